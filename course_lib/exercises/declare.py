"""What an exercise is: an answer, seeded cases, named checks, wrong ideas with names, hints.

An exercise is declared once and serves the learner's `check(...)`, the class grader, the notebooks and the tests.
Nothing here runs a learner's code (`observe.py` does) and nothing here compares (`checks.py` does).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..shapes import expect


class Draw:
    """Random inputs, fixed by a seed: `draw(3, 4)` is a NumPy array of normal numbers, no two alike."""

    def __init__(self, seed: int = 0):
        self.rng = np.random.default_rng(seed)

    def __call__(self, *shape: int, size: float = 1.0) -> np.ndarray:
        return self.rng.standard_normal(shape) * size

    def whole(self, *shape: int) -> np.ndarray:
        """Small whole numbers, to compute with by hand; at least two of them differ."""
        while True:
            numbers = self.rng.integers(-2, 4, shape).astype(float)
            if numbers.size < 2 or numbers.std() > 0:
                return numbers

    def mask(self, *shape: int) -> np.ndarray:
        """True for about two pairs of three; every row has a True and a False, where it has room for both."""
        mask = self.rng.random(shape) < 0.65
        mask[..., 0] = True
        if shape[-1] > 1:
            mask[..., -1] &= ~mask[..., :-1].all(axis=-1)
        return mask

    def tensor(self, *shape: int, size: float = 1.0) -> Any:
        """The same as a torch tensor of float64."""
        import torch

        return torch.from_numpy(self(*shape, size=size))


@dataclass(frozen=True)
class Case:
    """One call of what the learner wrote. Cases of a check come smallest first.

    For a class, `build` are the constructor's arguments and `weights` the parameters to load before the call.
    With `longest`, what is built is a translator that somebody trained (see `Exercise.file`): its parameters come from
    the file, and its output are the words that it says, so many at most. `wanted` is then what is right, since nobody
    trains the answer for it, and `complaint` takes the place of equality: what is wrong with an output, or nothing.
    """

    check: str
    args: tuple[Any, ...] = ()
    note: str = ""
    build: tuple[Any, ...] | None = None
    weights: Mapping[str, Any] | None = None
    gradient: bool = False
    training: bool = False
    longest: int = 0
    wanted: Any = None
    complaint: Callable[[Any], str] | None = None


@dataclass(frozen=True)
class Check:
    """A property in words, and what it is worth."""

    name: str
    points: int = 1


@dataclass(frozen=True)
class Misconception:
    """A wrong answer that people give: the code, the idea that it betrays, and where to read about it.

    `read` is the unit's number and a heading of its lecture: ("04", "Softmax runs along each row").
    """

    name: str
    wrong: Callable[..., Any]
    idea: str
    read: tuple[str, str]


@dataclass(frozen=True)
class Exercise:
    """One exercise. `answer` is a dotted path, its last part the name that the learner defines."""

    id: str
    title: str
    answer: str
    minutes: int
    outcomes: tuple[str, ...]
    checks: tuple[Check, ...]
    cases: Callable[[Draw], list[Case]]
    hints: tuple[str, str, str]
    misconceptions: tuple[Misconception, ...] = ()
    alternatives: tuple[Callable[..., Any], ...] = ()
    forbidden: tuple[str, ...] = ()
    given: tuple[str, ...] = ()  # names of the library behind what the notebook's own cells hand over, free to use
    prediction: bool = field(default=False)  # answered with pencil and paper, so there are no wrong programs to name
    file: str = ""  # handed in beside the notebook: the parameters of a trained translator, for cases with `longest`

    def __post_init__(self) -> None:
        names = [check.name for check in self.checks]
        expect(len(set(names)) == len(names) > 0, f"{self.id}: checks need different names; got {names}.")
        wrong = [m.name for m in self.misconceptions]
        expect(len(set(wrong)) == len(wrong), f"{self.id}: misconceptions need different names; got {wrong}.")
        expect(self.id[:2].isdigit() and self.id[2] == ".", f"An id looks like 04.2; got {self.id!r}.")

    @property
    def unit(self) -> str:
        return self.id[:2]

    @property
    def name(self) -> str:
        return self.answer.rpartition(".")[2]

    @property
    def points(self) -> int:
        return sum(check.points for check in self.checks)

    def load_answer(self) -> Any:
        """The library's own answer."""
        module, _, name = self.answer.rpartition(".")
        return getattr(importlib.import_module(module), name)

    def draw_cases(self, seed: int = 0) -> list[Case]:
        """The cases for a seed: the learner's is 0, the instructor keeps another one."""
        cases = self.cases(Draw(seed))
        named, used = {check.name for check in self.checks}, {case.check for case in cases}
        expect(
            named == used,
            f"{self.id}: checks {sorted(named)} and cases for {sorted(used)} should be the same.",
        )
        return cases
