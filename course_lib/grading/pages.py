"""Pages as single HTML files: they ask nothing of another host, run no script, and show every text as a text.

A student's page says what was reached, which idea went wrong and where to read about it. It is made of what the rows
say and of titles, ideas and headings from the declarations: cases, answers and hints never come near it.
"""

from __future__ import annotations

import functools
import html
import re
from collections.abc import Iterable
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple

from .. import exercises
from ..exercises.declare import Exercise
from ..units import UNITS
from .records import Entry, Part, Row
from .standings import Applied, Standing, number, unreadable

GENERATOR = '<meta name="generator" content="attention-course grading">'
# Even if a text slipped through as markup, it could load nothing and run nothing.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
LONGEST = 2500
STATES = {
    "passed": "solved",
    "wrong": "not solved yet",
    "error": "stopped with an error",
    "timeout": "took too long",
    "died": "broke off",
    "missing": "nothing there yet",
    "forbidden": "uses what is not allowed here",
}
TERMINAL_COLOURS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
UNSEEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


class Idea(NamedTuple):
    """A wrong idea in words, and where to read about it (empty where that is not known)."""

    text: str
    unit: str = ""
    heading: str = ""


# --- words --------------------------------------------------------------------------------------------------


def text(value: object) -> str:
    """Any text, safe between tags and in quoted attributes."""
    plain = TERMINAL_COLOURS.sub("", str(value)).replace("\r\n", "\n").replace("\r", "\n")
    return html.escape(UNSEEN.sub("\N{REPLACEMENT CHARACTER}", plain))


def name(value: str) -> str:
    """A student's name; whatever direction it is written in, the words around it keep theirs."""
    return f"<bdi>{text(value)}</bdi>"


def long_text(value: str) -> str:
    """A message in its own lines, cut where it becomes a book."""
    cut = value if len(value) <= LONGEST else f"{value[:LONGEST]} … (shortened)"
    return f"<pre>{text(cut.strip())}</pre>"


def sentence(value: str) -> str:
    """A message: a sentence as such, anything longer in its own lines."""
    return long_text(value) if "\n" in value or len(value) > 240 else f"<p>{text(value)}</p>"


def count(amount: int, noun: str) -> str:
    """1 student, 2 students."""
    return f"{amount:,} {noun}{'' if amount == 1 else 's'}"


def percent(share: float) -> str:
    """A share in whole percent; what is not all is not called 100 %, and what is not nothing not 0 %."""
    whole = round(100 * share)
    if share < 1 and whole == 100:
        whole = 99
    if share > 0 and whole == 0:
        return "below 1 %"
    return f"{whole} %"


@functools.lru_cache(maxsize=1024)
def declared(exercise: str) -> Exercise | None:
    """The declaration of an exercise; None where it is not known (any more), so that old results can still be shown."""
    try:
        return exercises.find(exercise)
    except (ValueError, ImportError):
        return None


def title_of(exercise: str) -> str:
    found = declared(exercise)
    return found.title if found else ""


def unit_title(unit: str) -> str:
    return next((u.title for u in UNITS if u.number == unit), f"Unit {unit}")


@functools.lru_cache(maxsize=4096)
def idea_named(exercise: str, misconception: str) -> Idea:
    """The sentence that belongs to a misconception's name."""
    found = declared(exercise)
    for wrong in found.misconceptions if found else ():
        if misconception in (wrong.name, wrong.idea):
            return Idea(wrong.idea, *wrong.read)
    return Idea(misconception)


def idea_of(row: Row) -> Idea | None:
    """The wrong idea that a row betrays, if one was recognised."""
    return idea_named(row.exercise, row.misconception) if row.misconception else None


def where_to_read(idea: Idea) -> str:
    if not idea.heading:
        return ""
    return f"unit {text(idea.unit)}, {text(unit_title(idea.unit))}: “{text(idea.heading)}”"


# --- the frame ----------------------------------------------------------------------------------------------


@functools.cache
def style() -> str:
    return Path(__file__).with_name("pages.css").read_text(encoding="utf-8")


def frame(title: str, body: str, kind: str = "") -> str:
    """A whole page around its body."""
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n{GENERATOR}\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer">\n'
        f"<title>{text(title)}</title>\n<style>\n{style()}</style>\n</head>\n"
        f"<body>\n<main{f' class={kind}' if kind else ''}>\n{body}\n</main>\n</body>\n</html>\n"
    )


def bar(share: float, rest: float = 0.0) -> str:
    """A bar from 0 to 1, and a hatched rest at its end. The numbers stand beside it in words."""
    inner = f'<i style="width:{100 * min(max(share, 0), 1):.1f}%"></i>'
    if rest > 0:
        inner += f'<i class="rest" style="width:{100 * min(rest, 1):.1f}%"></i>'
    return f'<div class="bar" aria-hidden="true">{inner}</div>'


# --- a student's page ---------------------------------------------------------------------------------------


def feedback(standing: Standing, title: str) -> str:
    """One student's page: the whole, what to read again, then unit by unit."""
    parts = [
        f'<p class="eyebrow">{text(title)}</p>',
        f"<h1>Feedback for {name(standing.student)}</h1>",
        _summary(standing),
        _adjusted([a for a in standing.applied if not a.adjustment.unit], "your total"),
        _read_again(standing),
    ]
    parts += [_unit(standing, entry) for _, entry in sorted(standing.entries.items())]
    parts.append(
        "<footer><p>Your code was run on inputs that are not shown here. To try it again, use "
        "<code>check</code> and <code>hint</code> in the notebook. If a line here seems wrong to you, ask: graders err "
        "too.</p></footer>"
    )
    return frame(f"Feedback for {standing.student}", "\n".join(filter(None, parts)), kind="narrow")


def _summary(standing: Standing) -> str:
    rows = [row for entry in standing.entries.values() for row in entry.rows]
    solved = sum(row.status == "passed" for row in rows)
    lines = [
        f'<p class="score">{number(standing.total)} <small>of {count(standing.max, "point")}</small></p>',
        bar(standing.share),
        f"<p>{_encouragement(solved, len(rows))}</p>",
    ]
    if len(standing.units) > 1:
        jumps = "".join(
            f'<li><a href="#unit-{text(unit)}">Unit {text(unit)}</a>: {number(points)}</li>'
            for unit, points in standing.units.items()
            if unit in standing.entries
        )
        lines.append(f'<nav aria-label="Units"><ul>{jumps}</ul></nav>')
    if absent := [unit for unit in standing.units if unit not in standing.entries]:
        lines.append(f"<p>There is nothing of yours for unit {text(', '.join(absent))}.</p>")
    return f'<div class="card">{"".join(lines)}</div>'


def _encouragement(solved: int, of: int) -> str:
    if not of:
        return "There is nothing to grade yet."
    if solved == of:
        return f"All {count(of, 'exercise')} solved. Well done!" if of > 1 else "Solved. Well done!"
    if solved:
        return (
            f"You solved {solved} of {count(of, 'exercise')}. What is still open stands below, with a place to start."
        )
    return "None of the exercises is solved yet. Below stands what each of them needs; begin with the first."


def _read_again(standing: Standing) -> str:
    """The headings that the wrong ideas point to, by unit, each with the exercises that need it."""
    places: dict[str, dict[str, list[str]]] = {}
    for _, entry in sorted(standing.entries.items()):
        for row in entry.rows:
            if (idea := idea_of(row)) and idea.heading:
                places.setdefault(idea.unit, {}).setdefault(idea.heading, []).append(row.exercise)
    if sum(map(len, places.values())) < 2:
        return ""  # the one place stands with its exercise
    lines = []
    for unit, headings in sorted(places.items()):
        items = "".join(
            f'<li>{text(heading)} <span class="soft">({text(", ".join(ids))})</span></li>'
            for heading, ids in headings.items()
        )
        lines.append(f'<p>Unit {text(unit)}, {text(unit_title(unit))}</p><ul class="plain">{items}</ul>')
    return f'<div class="card"><h2>Worth reading again</h2>{"".join(lines)}</div>'


def _adjusted(applied: Iterable[Applied], what: str) -> str:
    items = []
    for one in applied:
        reason = text(one.adjustment.reason) if one.adjustment.reason else "no reason was given"
        sign = text(one.adjustment.change.replace("-", "−").replace("%", " %"))
        items.append(f"<li>{sign}: {number(one.before)} → {number(one.after)} points. Reason: {reason}</li>")
    if not items:
        return ""
    return f'<div class="note"><p>Your instructor adjusted {what}:</p><ul class="plain">{"".join(items)}</ul></div>'


def _unit(standing: Standing, entry: Entry) -> str:
    points, most = standing.units[entry.unit], sum(row.max for row in entry.rows)
    parts = [
        f'<section aria-labelledby="unit-{text(entry.unit)}">',
        f'<div class="head"><h2 id="unit-{text(entry.unit)}">Unit {text(entry.unit)}: '
        f'{text(unit_title(entry.unit))}</h2><span class="points">{_of(points, most)}</span></div>',
        _adjusted([a for a in standing.applied if a.adjustment.unit == entry.unit], "this unit"),
        _notes(entry),
        *map(_exercise, entry.rows),
        "</section>",
    ]
    return "\n".join(filter(None, parts))


def _of(points: Decimal | int, most: int) -> str:
    return f"{number(points)} of {count(most, 'point')}"


def _notes(entry: Entry) -> str:
    if not entry.notes:
        return ""
    items = "".join(f"<li>{text(note)}</li>" for note in entry.notes[:30])
    head = "Your notebook could not be read:" if unreadable(entry) else "About the notebook that you handed in:"
    return f'<div class="note"><p>{head}</p><ul class="plain">{items}</ul></div>'


def _exercise(row: Row) -> str:
    """One exercise: the state, the idea, the message, and each check."""
    passed = row.status == "passed"
    partly = row.status == "wrong" and row.points > 0
    state, mark = STATES.get(row.status, row.status), "✓" if passed else "◐" if partly else "○"
    heading = f"{row.exercise} {title_of(row.exercise)}".strip()
    lines = [
        f'<div class="head"><h3>{text(heading)}</h3><span class="points">{_of(row.points, row.max)}</span></div>',
        f'<p class="state {"good" if passed else "bad"}">{mark} {text("partly solved" if partly else state)}</p>',
        _idea(row),
        _message(row),
        _checks(row),
    ]
    return f'<article class="card">{"".join(filter(None, lines))}</article>'


def _idea(row: Row) -> str:
    idea = idea_of(row)
    if idea is None:
        return ""
    place = where_to_read(idea)
    read = f'<p class="soft">Read again: {place}.</p>' if place else ""
    return f'<div class="idea"><p><strong>{text(idea.text)}</strong></p>{read}</div>'


def _message(row: Row) -> str:
    """The row's sentence, unless the idea or a check says the same."""
    idea = idea_of(row)
    said = {form for part in row.parts for form in (part.reason.strip(), f"{part.name}: {part.reason}".strip())}
    said |= {idea.text} if idea else set()
    message = row.message.strip()
    if not message or message in said or row.status == "passed":
        return ""
    return sentence(message)


def _checks(row: Row) -> str:
    """Every check with its points. Where the wrong idea has a name, or a reason stood before, one example is enough."""
    told: list[str] = []
    items = []
    for part in row.parts:
        reason = part.reason.strip()
        detail = reason.partition(": it raised ")[2] or reason
        fresh = bool(reason) and not part.passed and not (told and (row.misconception or detail in told))
        items.append(_check(part, reason if fresh else ""))
        told += [detail] if fresh else []
    if not items:
        return ""
    checks = f'<ul class="parts">{"".join(items)}</ul>'
    if row.status != "passed":
        return checks
    return f"<details><summary>{count(len(items), 'check')} passed</summary>{checks}</details>"


def _check(part: Part, reason: str) -> str:
    mark, tone, said = ("✓", "good", "holds") if part.passed else ("✗", "bad", "does not hold yet")
    points = f"{part.points if part.passed else 0} of {part.points}"
    shown = f'<span class="mark {tone}" role="img" aria-label="{said}">{mark}</span>'
    return f'<li>{shown}{text(part.name)} <span class="soft">({points})</span>{sentence(reason) if reason else ""}</li>'
