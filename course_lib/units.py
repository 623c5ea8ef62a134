"""The fourteen units: their names, the same in all folders, and a map that shows how far you are."""

from __future__ import annotations

from html import escape
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from . import exercises, progress


class Unit(NamedTuple):
    """One unit: the stem of its files, its title, and what it answers."""

    name: str
    title: str
    question: str

    @property
    def number(self) -> str:
        return self.name[:2]


UNITS = (
    Unit("00_welcome", "Welcome", "How does this course work?"),
    Unit(
        "01_rnn_seq2seq", "Sequence to sequence with an RNN", "What happens when a sentence must fit into one vector?"
    ),
    Unit("02_rnn_attention", "RNN with attention", "How can a decoder look back at every word?"),
    Unit("03_self_attention", "Self-attention", "What if words look at each other, with nothing to learn?"),
    Unit("04_queries_keys_values", "Queries, keys and values", "What does a word ask for, and what does it hand out?"),
    Unit("05_scaling", "Scaling", "Why divide by the square root of the width?"),
    Unit("06_multi_head", "Multi-head attention", "How can one word look in several ways at once?"),
    Unit("07_masking", "Masking", "How do we keep the future out of sight?"),
    Unit("08_positions", "Positions", "How does attention learn what comes first?"),
    Unit("09_transformer_block", "The Transformer block", "What else does a layer need, and why can it be deep?"),
    Unit("10_encoder_decoder", "The encoder–decoder", "How do the parts make a translator?"),
    Unit("11_gpt", "Decoder only: GPT-2", "What is left when there is nothing to translate?"),
    Unit("12_efficient_attention", "What attention costs", "What does a long text cost, and how can we pay less?"),
    Unit("13_training_budget", "Training within a budget", "How far do two cores and a little memory go?"),
)
# These run on NumPy alone, all but the cells that are tagged needs-torch; so they run in a browser too.
NUMPY_UNITS = ("00", "03", "04", "05", "07", "08")


def row(unit: Unit, root: Path) -> tuple[str, str, str]:
    """Title, question and state of one unit: not there yet, or the points so far."""
    if not (root / "notebooks" / f"{unit.name}.ipynb").exists():
        elsewhere = unit.number not in NUMPY_UNITS and find_spec("torch") is None  # the edition in the browser
        return unit.title, unit.question, "needs torch: run it on your machine" if elsewhere else "still to come"
    if unit.number not in exercises.UNITS:
        return unit.title, unit.question, "read it"
    try:
        known = exercises.of_unit(unit.number)
    except ImportError:
        return unit.title, unit.question, "needs torch"
    entries = progress.read()
    done = sum(entries[e.id].points for e in known if e.id in entries)
    return unit.title, unit.question, f"{done} of {sum(e.points for e in known)} points"


class CourseMap:
    """The way through the course, with links and with what you have done."""

    def __init__(self, root: Path | str = "..") -> None:
        self.root = Path(root)

    def __repr__(self) -> str:
        rows = [(unit.number, *row(unit, self.root)) for unit in UNITS]
        return "\n".join(f"{number}  {title:34}{question:58}{state}" for number, title, question, state in rows)

    def _repr_html_(self) -> str:
        lines = []
        for unit in UNITS:
            title, question, state = row(unit, self.root)
            link = escape(title)
            if (self.root / "notebooks" / f"{unit.name}.ipynb").exists():
                link = f'<a href="{unit.name}.ipynb">{link}</a>'
                if unit.number in exercises.UNITS:
                    state = f'<a href="../exercises/{unit.name}.ipynb">{escape(state)}</a>'
            cells = f"<td>{link}</td><td>{escape(question)}</td><td>{state}</td>"
            lines.append(f"<tr><td>{unit.number}</td>{cells}</tr>")
        head = "<tr><th></th><th>unit</th><th>question</th><th>exercises</th></tr>"
        return f'<table style="text-align:left"><caption>The map of the course</caption>{head}{"".join(lines)}</table>'
