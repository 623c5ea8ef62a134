"""The site's pages as Markdown: front page, misconceptions, glossary, coverage, reference."""

from __future__ import annotations

import html
import importlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from .. import build, exercises, widgets
from ..exercises.declare import Exercise
from ..units import UNITS, Unit
from .drawings import drawing
from .figures import Files, live_widget

# The library as learners use it, by layer; what checks, grades and publishes is for those who read the code itself.
REFERENCE = {
    "Ground": ("shapes", "device"),
    "Ideas": ("attention", "masks", "positions", "blocks", "rnn", "efficient", "sparse"),
    "By hand, in NumPy": ("by_hand",),
    "Models": ("seq2seq", "transformer", "transformer_xl", "gpt", "parts"),
    "Use": (
        "number_words", "data", "switches", "parallel", "checkpoints", "training", "decoding", "metrics", "handed_in",
    ),
    "Show": ("plots", "widgets"),
}  # fmt: skip


@dataclass(frozen=True)
class Edition:
    """What is built: from which folder, which units, whether with solutions, and where the notebooks are published."""

    root: Path
    units: tuple[Unit, ...] = UNITS
    instructor: bool = False
    repository: str = ""

    def has(self, number: str) -> bool:
        return any(unit.number == number for unit in self.units)


def slug(title: str) -> str:
    """The anchor of a heading, as links write it."""
    return re.sub(r"\s+", "-", re.sub(r"[^\w\s-]", "", title.lower()).strip())


def exercises_of(unit: Unit) -> tuple[Exercise, ...]:
    return exercises.of_unit(unit.number) if unit.number in exercises.UNITS else ()


def markdown(edition: Edition, files: Files) -> dict[str, str]:
    """All pages but the lectures: name and text."""
    pages = {
        "index.md": front(edition, files),
        "glossary.md": glossary(edition),
        "coverage.md": coverage(edition),
        "misconceptions/index.md": misconceptions_index(edition),
        "reference/index.md": reference_index(),
    }
    pages |= {f"misconceptions/{u.number}.md": misconceptions(u, edition) for u in edition.units if exercises_of(u)}
    return pages | {f"reference/{name}.md": reference(name) for names in REFERENCE.values() for name in names}


# --- the front page -----------------------------------------------------------------------------------------

MORE = {
    "Glossary": ("glossary.html", "every symbol and every term, in a sentence each"),
    "Wrong ideas": (
        "misconceptions/index.html",
        "the mistakes people make, exercise by exercise, and what each betrays",
    ),
    "Coverage": ("coverage.html", "what each outcome is taught and tested by, and what each system is proved by"),
    "Library": ("reference/index.html", "the code behind the course, one idea per file"),
}


def front(edition: Edition, files: Files) -> str:
    """docs/front.md, with a live figure, the map and the way to the other pages put in."""
    text = (edition.root / "docs" / "front.md").read_text(encoding="utf-8")
    films = widgets.SoftDictionary(
        titles=["Star Wars", "Titanic", "Wall-E"],
        keys=[[2.0, 0.2], [0.1, 2.0], [1.2, 1.2]],
        values=[1977, 1997, 2008],
        query=[0.4, 0.6],
    )
    tiles = "".join(
        f'<li><a class="course-tile" href="{address}"><strong>{name}</strong><span>{what}</span></a></li>'
        for name, (address, what) in MORE.items()
    )
    text = text.replace("<!-- figure -->", live_widget(films, files, up=""))
    text = text.replace("<!-- map -->", f'<ol class="course-map">{"".join(map(card, edition.units))}</ol>')
    text = text.replace("<!-- more -->", f'<ul class="course-tiles">{tiles}</ul>')
    return text + contents(edition)


def card(unit: Unit) -> str:
    """One unit on the map: its drawing, its name, its question."""
    known = exercises_of(unit)
    minutes = sum(exercise.minutes for exercise in known)
    work = f"{len(known)} exercises, {minutes} minutes" if known else "start here"
    return (
        f'<li><a class="course-card" href="units/{unit.name}.html">'
        f'<span class="course-drawing">{drawing(unit.number)}</span>'
        f'<strong><span class="course-number">{unit.number}</span> {html.escape(unit.title)}</strong>'
        f'<span class="course-question">{html.escape(unit.question)}</span>'
        f'<span class="course-work">{work}</span></a></li>'
    )


def contents(edition: Edition) -> str:
    """The tables of contents that the side bar shows."""
    lectures = [f"{unit.number} {unit.title} <units/{unit.name}>" for unit in edition.units]
    more = [
        "Glossary <glossary>",
        "Wrong ideas <misconceptions/index>",
        "Coverage <coverage>",
        "Library <reference/index>",
    ]
    return hidden_contents("Lectures", lectures) + hidden_contents("More", more)


def hidden_contents(caption: str, entries: Iterable[str]) -> str:
    lines = "\n".join(entries)
    return f"\n\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{lines}\n```\n"


# --- exercises and their misconceptions ---------------------------------------------------------------------


def lecture_link(edition: Edition, unit: str, heading: str, up: str = "../") -> str:
    """A section of a lecture: a link where that unit is built, else its name."""
    words = f"{unit}, “{heading}”"
    name = next((u.name for u in edition.units if u.number == unit), "")
    return f"[{words}]({up}units/{name}.ipynb#{slug(heading)})" if name else words


def facts(exercise: Exercise) -> str:
    points = "1 point" if exercise.points == 1 else f"{exercise.points} points"
    return f"{exercise.minutes} minutes · {points} · outcome {', '.join(exercise.outcomes)}"


def plain(text: str) -> str:
    """A sentence that is no Markdown, written so that Markdown leaves it alone; what stands in backticks stays code."""
    parts = re.split(r"(`[^`]+`)", text)
    return "".join(part if i % 2 else re.sub(r"([\\*_\[\]<>$#`|~^])", r"\\\1", part) for i, part in enumerate(parts))


def misconceptions_index(edition: Edition) -> str:
    rows = []
    for unit in edition.units:
        if known := exercises_of(unit):
            ideas = sum(len(exercise.misconceptions) for exercise in known)
            rows.append(f"| [{unit.number} {unit.title}]({unit.number}.md) | {len(known)} | {ideas} |")
    lines = [
        "# Wrong ideas, and what they are called",
        "",
        "An answer can be wrong in many ways, and most of them are ideas that other people had before. Each exercise",
        "knows its own: when your answer behaves like one of them, `check(...)` says which idea it is, and where to",
        "read about it.",
        "",
        "For instructors: these are the sentences to expect in class." + INSTRUCTOR * edition.instructor,
        "",
        "| unit | exercises | wrong ideas |",
        "|---|---|---|",
        *rows,
    ]
    entries = [f"{unit.number} {unit.title} <{unit.number}>" for unit in edition.units if exercises_of(unit)]
    return "\n".join(lines) + hidden_contents("Units", entries)


INSTRUCTOR = " **This is the instructor's edition: it shows solutions and hints, so do not publish it.**"


def misconceptions(unit: Unit, edition: Edition) -> str:
    """The wrong ideas of each exercise of a unit; for instructors the hints and the solution too."""
    lines = [f"# {unit.number} Wrong ideas: {unit.title}", "", f"Lecture: [{unit.title}](../units/{unit.name}.ipynb)."]
    for exercise in exercises_of(unit):
        lines += ["", f"## {exercise.id} {plain(exercise.title)}", "", f"*{facts(exercise)}*", ""]
        for wrong in exercise.misconceptions:
            where = lecture_link(edition, *wrong.read)
            lines.append(f"- **{plain(wrong.name)}**: {plain(wrong.idea)} *Read* {where}.")
        if not exercise.misconceptions:
            lines.append("Done with pencil and paper: there is no wrong program to name.")
        lines += for_instructors(exercise) if edition.instructor else []
    return "\n".join(lines) + "\n"


def for_instructors(exercise: Exercise) -> list[str]:
    hints = [f"{n}. {plain(hint)}" for n, hint in enumerate(exercise.hints, start=1)]
    solution = ["```python", build.answer_source(exercise), "```"]
    return ["", "**Hints**", "", *hints, "", "**Solution**", "", *solution]


# --- pages that exist as files ------------------------------------------------------------------------------


def glossary(edition: Edition) -> str:
    """docs/glossary.md, its units as links."""
    text = (edition.root / "docs" / "glossary.md").read_text(encoding="utf-8")
    names = {unit.number: unit.name for unit in edition.units}

    def linked(found: re.Match[str]) -> str:
        return f"[Unit {found[1]}](units/{names[found[1]]}.ipynb)" if found[1] in names else f"Unit {found[1]}"

    return re.sub(r"\*Unit (\d\d)\.\*", linked, text)


def coverage(edition: Edition) -> str:
    """docs/coverage.md; what it says of a lecture leads to the very section."""
    text = (edition.root / "docs" / "coverage.md").read_text(encoding="utf-8")
    section = re.compile(r"\[(\d\d)_\w+\]\(\.\./notebooks/\w+\.ipynb\), “(.*?)” \|")
    return section.sub(lambda found: f"{lecture_link(edition, found[1], found[2], up='')} |", text)


# --- the library --------------------------------------------------------------------------------------------


def reference_index() -> str:
    lines = ["# The library", "", "`course_lib`, in the order in which things depend on each other."]
    for layer, names in REFERENCE.items():
        lines += ["", f"## {layer}", ""]
        lines += [f"- [`{name}`]({name}.md): {plain(first_line(name))}" for name in names]
    entries = [name for names in REFERENCE.values() for name in names]
    return "\n".join(lines) + hidden_contents("Modules", entries)


def first_line(name: str) -> str:
    return (importlib.import_module(f"course_lib.{name}").__doc__ or "").strip().split("\n")[0]


def reference(name: str) -> str:
    """A module's page: what Sphinx finds in its docstrings."""
    if name == "widgets":  # its figures load on first use, so each is asked for by its name
        classes = [getattr(widgets, figure) for figure in dir(widgets)]
        asked = "\n".join(f".. autoclass:: {c.__module__}.{c.__qualname__}\n" for c in classes)
        asked = ".. automodule:: course_lib.widgets\n\n" + asked
    else:
        asked = f".. automodule:: course_lib.{name}\n   :members:\n   :member-order: bysource"
    return f"# {name}\n\n```{{eval-rst}}\n{asked}\n```\n"
