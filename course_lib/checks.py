"""`check(answer, "04.2")`: what holds, what does not, and which idea is wrong.

The judgement compares observations (see observe.py) of the learner's code with those of the library's answer and,
where they differ, with those of every declared misconception: whoever behaves like one is told its idea.
"""

from __future__ import annotations

import functools
import html
import inspect
import re
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from . import exercises, progress
from .exercises.declare import Case, Check, Exercise, Misconception
from .handed_in import path, read_model
from .observe import Observation, Opaque, observe, plain

RTOL, ATOL = (
    1e-4,
    1e-5,
)  # wide enough for float32 and another order of summing, far narrower than any wrong idea


@dataclass(frozen=True)
class Result:
    """How one check went, and the smallest case on which it failed."""

    check: Check
    passed: bool
    message: str = ""


@dataclass(frozen=True)
class Report:
    """How one exercise went. `status` is passed, wrong, error, timeout, missing or forbidden."""

    exercise: Exercise
    status: str
    results: tuple[Result, ...] = ()
    misconception: Misconception | None = None
    message: str = ""

    @property
    def points(self) -> int:
        return sum(result.check.points for result in self.results if result.passed)


# --- comparing ----------------------------------------------------------------------------------------------


def fitted(got: Any, want: Any) -> Any:
    """`got` in the form of `want`, where only the form differs: rows in a list, or three arrays in one."""
    if isinstance(want, np.ndarray) and isinstance(got, tuple) and got:
        rows = all(isinstance(row, np.ndarray) and row.shape == want.shape[1:] for row in got)
        return np.stack(got) if rows else got
    if isinstance(want, tuple) and isinstance(got, np.ndarray) and got.shape[:1] == (len(want),):
        return tuple(got)
    return got


def same(got: Any, want: Any) -> bool:
    """Equal as far as a float32 computation in another order can tell; NaN equals NaN."""
    got = fitted(got, want)
    if isinstance(want, tuple) and isinstance(got, tuple):
        return len(got) == len(want) and all(map(same, got, want))
    if isinstance(want, np.ndarray) and isinstance(got, np.ndarray):
        if got.shape != want.shape or (got.dtype.kind == "b") != (want.dtype.kind == "b"):
            return False
        return bool(np.allclose(got, want, rtol=RTOL, atol=ATOL, equal_nan=True))
    return type(got) is type(want) and bool(got == want)


def alike(a: Observation, b: Observation) -> bool:
    """Two programs did the same thing: result, gradient, inputs changed, parameters, error."""
    if (a.fault is None) != (b.fault is None):
        return False
    if a.fault is not None and b.fault is not None:
        return (a.fault.kind, a.fault.message) == (b.fault.kind, b.fault.message)
    return (
        same(a.output, b.output)
        and same(a.gradients, b.gradients)
        and a.changed == b.changed
        and a.parameters == b.parameters
    )


@functools.lru_cache(maxsize=1024)  # a unit has some 200 wrong ideas, and a class has all of them
def observations_of(exercise_id: str, seed: int, wrong: str | None = None) -> tuple[Observation, ...]:
    """What the answer, or one misconception, does on the cases: computed once."""
    exercise = exercises.find(exercise_id)
    known = {m.name: m.wrong for m in exercise.misconceptions}
    subject = exercise.load_answer() if wrong is None else known[wrong]
    return tuple(  # with time to spare: these are our own, and what is seen here is kept
        observe(subject, case, seconds=30) if case.wanted is None else Observation(output=plain(case.wanted))
        for case in exercise.draw_cases(seed)
    )


def right(case: Case, got: Observation, want: Observation) -> bool:
    """The answer's behaviour or, where the case has a complaint of its own, no reason for one."""
    if case.complaint is None:
        return alike(got, want)
    return got.fault is None and not case.complaint(got.output)


def judge(exercise: Exercise, seen: Sequence[Observation], seed: int = 0) -> Report:
    """Points, reasons, and the misconception if one fits. Runs no code of the learner's."""
    cases, wanted = exercise.draw_cases(seed), observations_of(exercise.id, seed)
    if exercise.prediction:
        seen = [replace(got, output=as_meant(got.output, want.output)) for got, want in zip(seen, wanted, strict=True)]
    fine = [right(case, got, want) for case, got, want in zip(cases, seen, wanted, strict=True)]
    results, names = [], argument_names(exercise)
    for check in exercise.checks:
        places = [i for i, case in enumerate(cases) if case.check == check.name]
        failed = [i for i in places if not fine[i]]
        message = explain(cases[failed[0]], seen[failed[0]], wanted[failed[0]], names) if failed else ""
        if message and exercise.prediction and seen[failed[0]].fault is None and not cases[failed[0]].complaint:
            message = prediction_text(seen[failed[0]].output, wanted[failed[0]].output)
        results.append(Result(check, not failed, message))
    if all(fine):
        return Report(exercise, "passed", tuple(results))
    faults = [got.fault.kind for got in seen if got.fault]
    status = "timeout" if "TooLong" in faults else "error" if len(faults) == len(seen) else "wrong"
    return Report(exercise, status, tuple(results), name_the_idea(exercise, cases, seen, fine, seed))


def nearly(got: Any, like: Any) -> bool:
    """Equal but for rounding to two digits, which people do who compute by hand."""
    arrays = isinstance(got, np.ndarray) and isinstance(like, np.ndarray)
    return arrays and got.shape == like.shape and bool(np.allclose(got, like, rtol=0, atol=5e-3))


def predicted_alike(got: Any, like: Any) -> bool:
    """The same prediction, as far as rounding and spelling go."""
    return nearly(got, like) or same(as_meant(got, like), like)


def _letters(text: str) -> str:
    """A word without what people write in several ways: "Post-norm", "post norm" and "post_norm " are one."""
    return re.sub(r"[\s_-]+", " ", text).strip().casefold()


def as_meant(got: Any, want: Any) -> Any:
    """What a person means who writes 0 and 1 for False and True, " Animal" for "animal", or [4] for 4."""
    got = fitted(got, want)
    if isinstance(got, str) and isinstance(want, str):
        return want if _letters(got) == _letters(want) else got
    if isinstance(got, tuple) and isinstance(want, tuple) and len(got) == len(want):
        return tuple(map(as_meant, got, want))
    if not (isinstance(got, np.ndarray) and isinstance(want, np.ndarray)):
        return got
    if got.shape != want.shape and got.squeeze().shape == want.squeeze().shape:
        got = got.reshape(want.shape)  # [4] for 4, or [[1, 2]] for [1, 2]
    whole = got.dtype.kind in "iu" and bool(np.isin(got, (0, 1)).all())
    return got.astype(bool) if whole and want.dtype.kind == "b" else got


def name_the_idea(
    exercise: Exercise, cases: Sequence[Case], seen: Sequence[Observation], fine: Sequence[bool], seed: int
) -> Misconception | None:
    """The misconception that behaves just so; or the only one that does in the first check that failed."""
    agrees = {
        m.name: [
            alike(got, like) or (exercise.prediction and predicted_alike(got.output, like.output))
            for got, like in zip(seen, observations_of(exercise.id, seed, m.name), strict=True)
        ]
        for m in exercise.misconceptions
    }
    for m in exercise.misconceptions:
        if all(agrees[m.name]):
            return m
    first = next(case.check for case, ok in zip(cases, fine, strict=True) if not ok)
    places = [i for i, case in enumerate(cases) if case.check == first]
    if all(seen[i].fault for i in places):
        return None  # many roads lead to the same error message
    fitting = [m for m in exercise.misconceptions if all(agrees[m.name][i] for i in places)]
    best = max((sum(agrees[m.name]) for m in fitting), default=0)
    leaders = [m for m in fitting if sum(agrees[m.name]) == best]
    return leaders[0] if len(leaders) == 1 else None


# --- explaining ---------------------------------------------------------------------------------------------


def argument_names(exercise: Exercise) -> tuple[str, ...]:
    """What the stub calls its arguments."""
    answer: Any = exercise.load_answer()
    call = getattr(answer, "forward") if inspect.isclass(answer) else answer  # noqa: B009
    names = tuple(inspect.signature(call).parameters)
    return names[1:] if inspect.isclass(answer) else names


def explain(case: Case, got: Observation, want: Observation, names: Sequence[str]) -> str:
    """The difference in one case: what went in, then errors, shapes, numbers, side effects, gradients."""
    if case.complaint and got.fault is None:
        return case.complaint(got.output)
    where = "With " + ", ".join(f"{n} {_brief(plain(a))}" for n, a in zip(names, case.args, strict=False))
    where = (where if case.args and names else "Called") + (f" ({case.note})" if case.note else "")
    where = _small_inputs(case, names) or where
    for find in (_fault_text, _value_text, _side_effects, _gradient_text):
        if text := find(got, want, names):
            return f"{where}: {text}"
    return f"{where}: something differs that has no name yet."


def _small_inputs(case: Case, names: Sequence[str]) -> str:
    """The inputs themselves, where all of them are small enough to compute with by hand."""
    values = [plain(arg) for arg in case.args]
    arrays = [v for v in values if isinstance(v, np.ndarray)]
    if not arrays or sum(v.size for v in arrays) > 30 or any(v.ndim > 2 or v.size > 12 for v in arrays):
        return ""
    if len(arrays) < len(values) or case.note:
        return ""
    lines = [f"{n} = {np.array2string(v, precision=4, prefix=f'{n} = ')}" for n, v in zip(names, arrays, strict=False)]
    return "\n".join(["With", *lines])


def prediction_text(got: Any, want: Any) -> str:
    """A prediction is not told the answer: only what is wrong with its form, or that it is not right yet."""
    if got is None:
        return "The result is None. Is a `return` missing?"
    if isinstance(got, np.ndarray) and isinstance(want, np.ndarray) and got.shape != want.shape:
        if got.size == want.size and same(got.reshape(want.shape), want):
            return f"The right numbers, in another form: return them as one list of {want.size}."
        return f"The answer should have the form {want.shape or 'of one number'}; yours has {got.shape}."
    if isinstance(got, Opaque) or type(got) is not type(want):
        return f"The answer should be {_form(want)}; yours is {_brief(got)}."
    if isinstance(got, tuple) and isinstance(want, tuple) and len(got) != len(want):
        return f"The answer should be {_form(want)}; yours is {_form(got)}."
    return f"Yours is {_numbers_or_brief(got)}. Not yet: work it out once more."


def _fault_text(got: Observation, want: Observation, names: Sequence[str]) -> str:
    if got.fault is None:
        if want.fault is None:
            return ""
        return f"this input should be refused with a {want.fault.kind}, and yours returned {_brief(got.output)}."
    kind, lines = got.fault.kind, "".join(f"\n  {line}" for line in got.fault.lines)
    if kind == "TooLong":
        return f"it was {got.fault.message}. Is there a loop without an end?{lines}"
    if kind == "MemoryError":
        return f"it asked for more memory than there is. Look at the shapes of what is multiplied.{lines}"
    return f"it raised {kind}: {got.fault.message}{_in_words(got.fault.message)}{lines}"


def _in_words(message: str) -> str:
    """The most frequent complaint of NumPy and torch, said so that one can act on it."""
    numpy = re.search(r"matmul: .* mismatch .*size (\d+) is different from (\d+)", message)
    torch = re.search(r"shapes cannot be multiplied \(\d+x(\d+) and (\d+)x\d+\)", message)
    columns, rows = (numpy[2], numpy[1]) if numpy else (torch[1], torch[2]) if torch else ("", "")
    return f"\n  In a @ b, a has {columns} columns and b has {rows} rows: these must be equal." if columns else ""


def _value_text(got: Observation, want: Observation, names: Sequence[str]) -> str:
    return value_text(got.output, want.output)


def value_text(got: Any, want: Any, what: str = "the result") -> str:
    """How one value differs from the other: kind, shape, finiteness, type, numbers."""
    got = fitted(got, want)
    if same(got, want):
        return ""
    if got is None:
        return f"{what} is None. Is a `return` missing?"
    if want is None:
        return f"{what} should be None, and yours is {_brief(got)}."
    if isinstance(want, tuple) or isinstance(got, tuple):
        if not (isinstance(got, tuple) and isinstance(want, tuple) and len(got) == len(want)):
            return f"{what} should be {_brief(want)}, and yours is {_brief(got)}."
        pairs = enumerate(zip(got, want, strict=True))
        return next(t for i, (g, w) in pairs if (t := value_text(g, w, f"part {i + 1} of {what}")))
    if isinstance(got, (str, Opaque)) or isinstance(want, str):
        return f"{what} should be {_brief(want)}, and yours is {_brief(got)}."
    if got.shape != want.shape:
        swapped = " The last two axes are swapped." if got.shape == (*want.shape[:-2], *want.shape[:-3:-1]) else ""
        return f"{what} should have shape {want.shape}, and yours has {got.shape}.{swapped}"
    if (got.dtype.kind == "b") != (want.dtype.kind == "b"):
        return f"{what} should be of type {want.dtype}, and yours is {got.dtype}."
    if np.isfinite(want).all() and not np.isfinite(got).all():
        bad = "NaN" if np.isnan(got).any() else "infinity"
        return f"{what} contains {bad}, and it should be {_numbers(want)}. Yours: {_numbers(got)}"
    return f"{what} should be\n{_numbers(want)}\nand yours is\n{_numbers(got)}{_relation(got, want)}"


def _relation(got: np.ndarray, want: np.ndarray) -> str:
    """How wrong numbers hang together with right ones, if they do."""
    if got.dtype.kind == "b" or not np.isfinite(got).all():
        return ""
    if got.ndim >= 2 and got.shape[-1] == got.shape[-2] and same(np.swapaxes(got, -1, -2), want):
        return "\nYours is the transpose."
    sizes = np.abs(want) > 1e-9
    ratios = got[sizes] / want[sizes]
    if ratios.size > 1 and np.allclose(ratios, ratios[0], rtol=1e-6) and np.allclose(got[~sizes], 0):
        return f"\nYours is {ratios[0]:.4g} times that."
    if want.size > 2 and np.allclose(np.sort(got, axis=None), np.sort(want, axis=None), rtol=RTOL, atol=ATOL):
        return "\nThe same numbers stand in other places."
    largest = float(np.abs(got - want).max())
    return f"\nThe largest difference is {largest:.1g}. Is something rounded?" if largest < 1e-3 else ""


def _side_effects(got: Observation, want: Observation, names: Sequence[str]) -> str:
    if got.changed != want.changed:
        changed = ", ".join(names[i] for i in got.changed if 0 <= i < len(names))
        return f"it changes its input {changed} in place, which the caller may still need: work on a copy."
    if got.parameters != want.parameters:
        listed = [", ".join(f"{n} {s}" for n, s in o.parameters) or "none" for o in (want, got)]
        return f"its parameters should be {listed[0]}; torch finds {listed[1]}."
    return ""


def _gradient_text(got: Observation, want: Observation, names: Sequence[str]) -> str:
    if got.gradients is None and want.gradients is not None:
        return (
            "the values are right, but no gradient flows back. Something cuts the path: .detach(), .data, "
            ".item(), .numpy(), or torch.tensor(...) around a result."
        )
    for i, (g, w) in enumerate(zip(got.gradients or (), want.gradients or (), strict=False)):
        if not same(g, w):
            name = names[i] if i < len(names) else "a parameter"
            if w is None:
                return f"the values are right, but a gradient reaches {name}, and none should: detach it."
            return f"the values are right, but the gradient for {name} is not: " + (
                "none arrives. Something cuts the path." if g is None else value_text(g, w, "it")
            )
    return ""


def _form(value: Any) -> str:
    """What kind of thing a value is, without saying which."""
    if isinstance(value, tuple):
        return f"a list of {len(value)} {'words' if all(isinstance(v, str) for v in value) else 'things'}"
    if isinstance(value, np.ndarray):
        return f"a list of numbers of shape {value.shape}" if value.ndim else "one number"
    return "one word, in quotes" if isinstance(value, str) else "something else"


def _brief(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.tolist()}" if value.size <= 1 else f"of shape {value.shape}"
    if isinstance(value, tuple):
        words = bool(value) and all(isinstance(v, str) for v in value)
        return ", ".join(map(repr, value)) if words else f"{len(value)} things ({', '.join(map(_brief, value))})"
    return f"an object of type {value.kind}" if isinstance(value, Opaque) else repr(value)


def _numbers_or_brief(value: Any) -> str:
    return _numbers(value) if isinstance(value, np.ndarray) else _brief(value)


def _numbers(array: np.ndarray) -> str:
    with np.printoptions(precision=4, suppress=True, threshold=24, edgeitems=3):
        return str(array)


# --- what may not be called ---------------------------------------------------------------------------------


def names_used(subject: Any) -> set[str]:
    """Every global name, attribute and import in a function, or in the methods of a class."""
    if inspect.isclass(subject):
        return set().union(
            *(names_used(part) for part in vars(subject).values()), {b.__name__ for b in subject.__bases__}
        )
    code = getattr(subject, "__code__", None)
    return _names_in(code) if code is not None else set()


def _names_in(code: Any) -> set[str]:
    inner = (_names_in(c) for c in code.co_consts if inspect.iscode(c))
    return {part for name in code.co_names for part in name.split(".")}.union(*inner)


def forbidden_use(exercise: Exercise, subject: Any) -> str:
    """What the answer may not lean on, if it does: best effort, from its code and its identity."""
    if from_library(subject) or subject is exercise.load_answer():
        return f"the library's own {getattr(subject, '__name__', 'answer')}"
    used, given = names_used(subject), given_names(exercise)
    around = getattr(subject, "__globals__", {})
    borrowed = {name for name in used - given if is_help(around.get(name))}
    return ", ".join(sorted(used & {*exercise.forbidden, "course_lib"} | borrowed))


def is_help(thing: Any) -> bool:
    """Whether something of the library computes: its modules, functions and classes do, a vocabulary does not."""
    return from_library(thing) and (callable(thing) or inspect.ismodule(thing))


def given_names(exercise: Exercise) -> set[str]:
    """What the answers of a unit use (softmax, say); any other help from the library is the answer in disguise."""
    unit = exercises.of_unit(exercise.unit)
    return {e.name for e in unit}.union(*({*names_used(e.load_answer()), *e.given} for e in unit))


def from_library(thing: Any) -> bool:
    """Whether something is a module of this library, or was defined in one."""
    name = getattr(thing, "__name__", "") if inspect.ismodule(thing) else getattr(thing, "__module__", "")
    return str(name or "").split(".")[0] == "course_lib"


# --- the learner's side -------------------------------------------------------------------------------------


class NotYet(AssertionError):
    """The exercise is not solved yet: the card above says why."""


def _quiet(error: Exception) -> Exception:
    """Show the message alone: the traceback would lead into the library, which did nothing wrong."""
    error._render_traceback_ = lambda: [str(error)]  # type: ignore[attr-defined]
    return error


def examine(subject: Callable[..., Any], exercise: Exercise, seed: int = 0) -> Report:
    """A learner's answer: is it their own, and does it work? Nothing is shown and nothing recorded."""
    if not callable(subject):
        kind = type(subject).__name__
        return Report(exercise, "error", message=f"{exercise.name} should be a function or class; it is a {kind}.")
    if used := forbidden_use(exercise, subject):
        return Report(exercise, "forbidden", message=f"This exercise wants your own code, and yours calls {used}.")
    report = try_out(subject, exercise, seed)
    if not exercise.file or report.status == "missing":
        return report
    try:
        return try_out(subject, exercise, seed, read_model(path(exercise.file)))
    except ValueError as error:
        return Report(exercise, "missing", message=str(error))


def try_out(
    subject: Callable[..., Any], exercise: Exercise, seed: int = 0, handed_in: dict[str, Any] | None = None
) -> Report:
    """Observe and judge, whoever wrote it. `handed_in` are the tensors of the exercise's file, if it has one."""
    seen: list[Observation] = []
    for case in with_file(exercise.draw_cases(seed), handed_in):
        slow = seen and seen[-1].fault and seen[-1].fault.kind == "TooLong"  # once is enough to wait for
        seen.append(seen[-1] if slow else observe(subject, case))
    if all(got.fault and got.fault.kind == "NotImplementedError" for got in seen):
        return Report(exercise, "missing", message="Still empty: replace the line `raise NotImplementedError`.")
    return judge(exercise, seen, seed)


def with_file(cases: Sequence[Case], handed_in: dict[str, Any] | None) -> list[Case]:
    """The cases, those of a trained model with its parameters."""
    return [replace(case, weights=handed_in) if case.longest else case for case in cases]


def check(subject: Callable[..., Any], exercise: str | None = None) -> None:
    """Try what you wrote: `check(attention, "04.2")`. Shows what holds and what does not, and records it."""
    if isinstance(subject, str) and callable(exercise):
        subject, exercise = exercise, subject  # check("04.2", attention) is as clear
    found = exercises.find(exercise or str(getattr(subject, "__name__", "")))
    report = examine(subject, found)
    if report.status == "missing":
        raise _quiet(NotImplementedError(f"{found.id} {found.name}: {report.message}")) from None
    progress.record(found.id, report.points, found.points)
    show(Card(report))
    if report.status != "passed":
        raise _quiet(NotYet(f"{found.id} {found.name}: {report.points} of {found.points} points so far.")) from None


def hint(exercise: str) -> None:
    """The next hint for an exercise, `hint("04.2")`: there are three, and each says more."""
    found = exercises.find(exercise)
    number = progress.next_hint(found.id, len(found.hints))
    show(Card(Report(found, "hint", message=f"Hint {number + 1} of {len(found.hints)}: {found.hints[number]}")))


class Card:
    """A report as a small card in the notebook, or as plain text where there is no HTML."""

    def __init__(self, report: Report):
        self.report = report

    def __repr__(self) -> str:
        r = self.report
        lines = [f"{r.exercise.id} {r.exercise.title}: {r.points} of {r.exercise.points} points"]
        if r.status == "hint":
            lines = [f"{r.exercise.id} {r.exercise.title}"]
        if r.message:
            lines.append(r.message)
        if r.misconception:
            unit, heading = r.misconception.read
            lines += [f"! {r.misconception.idea}", f"  Read again: unit {unit}, “{heading}”."]
        told: list[str] = []  # where the wrong idea has a name, or the error is the same, one example is enough
        for result in r.results:
            mark = "✓" if result.passed else "✗"
            lines.append(f"{mark} {result.check.name} ({result.check.points if result.passed else 0} of "
                         f"{result.check.points})")  # fmt: skip
            detail = result.message.partition(": it raised ")[2] or result.message
            if result.message and not (told and (r.misconception or detail in told)):
                lines.append(textwrap.indent(result.message, "    "))
                told.append(detail)
        if r.status not in ("passed", "hint"):
            lines.append(f'Stuck? hint("{r.exercise.id}")')
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        first, *rest = repr(self).split("\n")
        colour = {"passed": "#2e7d32", "hint": "#1565c0"}.get(self.report.status, "#b26a00")
        body = "".join(self._line(line) for line in rest)
        return (
            f'<div role="status" style="border-left:4px solid {colour};padding:.4em .8em;margin:.3em 0;'
            f'max-width:46em;overflow-x:auto"><strong>{html.escape(first)}</strong>{body}</div>'
        )

    @staticmethod
    def _line(line: str) -> str:
        if line.startswith("! "):
            return f'<p style="margin:.4em 0;font-size:1.05em"><strong>{html.escape(line[2:])}</strong></p>'
        pre = "font-family:monospace;white-space:pre-wrap;" if line.startswith("    ") else ""
        return f'<div style="{pre}margin:.1em 0">{html.escape(line)}</div>'


def show(card: Card) -> None:
    """In a notebook as HTML, elsewhere as text."""
    try:
        from IPython import get_ipython
    except ImportError:
        get_ipython = None
    if get_ipython is not None and get_ipython() is not None:
        from IPython.display import display

        display(card)
    else:
        print(card)
