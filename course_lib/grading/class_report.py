"""`report.html`: what the class has understood, on one page that needs no network and stays small for any class."""

from __future__ import annotations

import statistics
import urllib.parse
from collections import Counter
from collections.abc import Mapping, Sequence

from . import class_numbers as numbers
from . import pages
from .class_numbers import Wrong
from .pages import bar, count, name, percent, text
from .records import STATUSES
from .standings import Move, Standing, number, unreadable

MEANINGS = {
    "passed": "every check holds",
    "wrong": "runs, and a check does not hold",
    "error": "raised an error wherever it was called",
    "timeout": "did not end in time",
    "died": "the process broke off: memory, exit, a crash",
    "missing": "not there, or still the empty stub",
    "forbidden": "calls what the exercise asks to write",
}
MOST = {"exercises": 120, "ideas": 25, "pairs": 20, "talk": 40, "unreadable": 60, "moved": 30, "students": 400}


def page(
    ranked: Sequence[Standing],
    top: Mapping[str, int],
    files: Mapping[str, str],
    *,
    moved: Sequence[Move] = (),
    title: str = "",
) -> str:
    """The whole report."""
    head = f'<p class="eyebrow">{text(title)}</p>\n<h1>How the class did</h1>'
    if not ranked:
        return pages.frame("How the class did", f"{head}\n<p>Nothing has been graded yet.</p>")
    link = Linker(files)
    sections = {
        "totals": ("Points", _points(ranked, top)),
        "moved": ("What the regrade moved", _moved(moved, link)),
        "difficulty": ("Exercises, the hardest first", _difficulty(ranked)),
        "ideas": ("Wrong ideas, the most frequent first", _ideas(ranked)),
        "pairs": ("Wrong ideas that come together", _pairs(ranked)),
        "talk": ("Students to talk to", _talk(ranked, top, link)),
        "unreadable": ("Papers that could not be read", _unreadable(ranked, link)),
        "states": ("How programs ended", _states(ranked, top)),
        "students": ("Everybody", _students(ranked, top, link)),
    }
    shown = {key: parts for key, parts in sections.items() if parts[1]}
    jumps = "".join(f'<li><a href="#{key}">{words}</a></li>' for key, (words, _) in shown.items())
    body = "\n".join(
        f'<section aria-labelledby="{key}">\n<h2 id="{key}">{words}</h2>\n{inner}\n</section>'
        for key, (words, inner) in shown.items()
    )
    nav = f'<nav aria-label="Parts of this page"><ul>{jumps}</ul></nav>'
    return pages.frame(f"{title}: how the class did", f"{head}\n{_figures(ranked, top)}\n{nav}\n{body}")


class Linker:
    """A student's name as a link to the feedback page."""

    def __init__(self, files: Mapping[str, str]) -> None:
        self.files = files

    def __call__(self, student: str) -> str:
        if student not in self.files:
            return name(student)
        address = f"feedback/{urllib.parse.quote(self.files[student], errors='replace')}"
        return f'<a href="{address}">{name(student)}</a>'


def more(total: int, kind: str, where: str) -> str:
    """What to say when a list was cut."""
    left = total - MOST[kind]
    return f'<p class="soft">and {left:,} more, see {where}</p>' if left > 0 else ""


def rows(items: Sequence[str], tag: str = "ul", kind: str = "rows") -> str:
    return f'<{tag} class="{kind}">{"".join(f"<li>{item}</li>" for item in items)}</{tag}>'


# --- points -------------------------------------------------------------------------------------------------


def _figures(ranked: Sequence[Standing], top: Mapping[str, int]) -> str:
    totals, most = [float(standing.total) for standing in ranked], sum(top.values())
    full = sum(total >= most for total in totals) if most else 0
    tiles = [
        (f"{len(ranked):,}", "student" if len(ranked) == 1 else "students"),
        (_short(statistics.median(totals)), f"median of {count(most, 'point')}"),
        (_short(statistics.fmean(totals)), "mean"),
        (f"{_short(min(totals))} – {_short(max(totals))}", "lowest and highest"),
        (f"{full:,}", "with all points"),
    ]
    return f'<ul class="figures">{"".join(f"<li><b>{value}</b>{words}</li>" for value, words in tiles)}</ul>'


def _short(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _points(ranked: Sequence[Standing], top: Mapping[str, int]) -> str:
    charts = [_chart("All units", [float(s.total) for s in ranked], sum(top.values()))]
    if len(top) > 1:
        for unit, most in top.items():
            values = [float(standing.units[unit]) for standing in ranked]
            charts.append(_chart(f"Unit {unit}: {pages.unit_title(unit)}", values, most))
    return f'<div class="charts">{"".join(charts)}</div>'


def _chart(title: str, values: Sequence[float], top: int) -> str:
    """How many students have how many points: columns, and the median as a dashed line."""
    bins, median = numbers.histogram(values, top), statistics.median(values)
    tallest, step, span = max(n for *_, n in bins), bins[0][1], bins[-1][1]
    left, right, floor, ceiling = 34.0, 350.0, 168.0, 34.0
    wide = (right - left) / len(bins)
    middle = wide / 2 if step == 1 else 0.0  # where a column is one number, the number stands below its middle

    def x(value: float) -> float:
        return left + (right - left) * min(value, span) / span

    inner = []
    for start, end, n in bins:
        height = (floor - ceiling) * n / tallest
        box = f'x="{x(start) + 1:.1f}" y="{floor - height:.1f}" width="{wide - 2:.1f}" height="{height:.1f}"'
        inner.append(
            f'<rect class="column" {box}><title>{_range(start, end, top)}: {count(n, "student")}</title></rect>'
        )
    inner.append(f'<line class="axis" x1="{left}" y1="{floor}" x2="{right}" y2="{floor}"/>')
    inner.append(f'<text class="faint" x="{left - 6}" y="{ceiling + 4}" text-anchor="end">{tallest:,}</text>')
    inner.append(f'<text class="faint" x="{left - 6}" y="{floor + 4}" text-anchor="end">0</text>')
    for start, *_ in bins[:: 1 if len(bins) <= 8 else 2]:
        inner.append(f'<text x="{x(start) + middle:.1f}" y="{floor + 16}" text-anchor="middle">{_short(start)}</text>')
    inner.append(f'<text class="faint" x="{right}" y="{floor + 34}" text-anchor="end">points, of {top}</text>')
    at, words = min(x(median) + middle, right), f"median {_short(median)}"
    for kind in ("halo", "median"):
        inner.append(f'<line class="{kind}" x1="{at:.1f}" y1="{ceiling - 10}" x2="{at:.1f}" y2="{floor}"/>')
    anchor = "start" if at < (left + right) / 2 else "end"
    inner.append(f'<text class="marked" x="{at:.1f}" y="{ceiling - 16}" text-anchor="{anchor}">{words}</text>')
    said = "; ".join(f"{_range(start, end, top)}: {n}" for start, end, n in bins)
    alt = f"{title}: students by points, {words}. {said}."
    return (
        f'<figure><figcaption>{text(title)}</figcaption><svg viewBox="0 0 360 206" role="img" '
        f'aria-label="{text(alt)}">{"".join(inner)}</svg></figure>'
    )


def _range(start: float, end: float, top: int) -> str:
    if end > top:
        return f"{_short(start)} or more points"
    return f"{_short(start)} points" if end - start == 1 else f"{_short(start)} to below {_short(end)} points"


# --- exercises and ideas ------------------------------------------------------------------------------------


def _difficulty(ranked: Sequence[Standing]) -> str:
    measured = numbers.difficulties(ranked)
    if not measured:
        return ""
    items = []
    for d in measured[: MOST["exercises"]]:
        heading = f"<strong>{text(d.exercise)}</strong> {text(pages.title_of(d.exercise))}"
        items.append(
            f'<div class="head"><span>{heading}</span><span class="points">{percent(d.reached)}</span></div>'
            f'{bar(d.reached, d.missing)}<p class="small soft">solved by {percent(d.solved)}, '
            f"missing from {percent(d.missing)}</p>"
        )
    legend = (
        '<ul class="legend"><li><span class="bar"><i></i></span>share of the points reached</li>'
        '<li><span class="bar"><i class="rest"></i></span>share of students without an answer</li></ul>'
    )
    return legend + rows(items, "ol", "rows two") + more(len(measured), "exercises", "results.jsonl")


def _wrong(wrong: Wrong) -> str:
    idea = pages.idea_named(*wrong)
    title = pages.title_of(wrong[0])
    return f"<strong>{text(wrong[0])}</strong>{f' {text(title)}' if title else ''}: {text(idea.text)}"


def _ideas(ranked: Sequence[Standing]) -> str:
    found = numbers.frequencies(ranked)
    if not found:
        return "<p>No wrong idea was recognised.</p>"
    items = []
    for f in found[: MOST["ideas"]]:
        idea = pages.idea_named(*f.wrong)
        place = pages.where_to_read(idea)
        title = pages.title_of(f.wrong[0])
        items.append(
            f'<div class="head"><span><strong>{text(f.wrong[0])}</strong> {text(title)}</span>'
            f'<span class="points">{count(f.students, "student")}, {percent(f.share)}</span></div>{bar(f.share)}'
            f"<p>{text(idea.text)}</p>" + (f'<p class="small soft">Taught in {place}</p>' if place else "")
        )
    intro = '<p class="soft">The share is of those who tried the exercise.</p>'
    return intro + rows(items, "ol") + more(len(found), "ideas", "results.jsonl")


def _pairs(ranked: Sequence[Standing]) -> str:
    found = numbers.pairs(ranked)
    rule = (
        f'<p class="soft">A pair is named when at least {numbers.FEWEST_TOGETHER} students hold both ideas, at least '
        f"{numbers.LEAST_LIFT} times as many as if the two had nothing to do with each other, and when chance alone "
        "would show any such pair in fewer than one class of a hundred. Counted are those who tried both exercises.</p>"
    )
    if not found:
        return f"{rule}<p>No two wrong ideas come together that often.</p>"
    items = [
        f'<div class="head"><span class="points">{count(p.both, "student")}</span>'
        f'<span class="soft">{p.lift:.1f} times what chance gives ({p.expected:.1f} of {p.tried:,})</span></div>'
        f'<ul class="plain"><li>{_wrong(p.first)}</li><li>{_wrong(p.second)}</li></ul>'
        for p in found[: MOST["pairs"]]
    ]
    return rule + rows(items) + more(len(found), "pairs", "results.jsonl")


# --- students -----------------------------------------------------------------------------------------------


def _talk(ranked: Sequence[Standing], top: Mapping[str, int], link: Linker) -> str:
    median, found = numbers.median_total(ranked), numbers.concerns(ranked, top)
    far = f"fewer than half of the median’s {_short(median)} points"
    if len(ranked) < numbers.ENOUGH_FOR_A_MEDIAN:
        far += f" (not asked in a class of fewer than {numbers.ENOUGH_FOR_A_MEDIAN})"
    rule = (
        f'<p class="soft">Named here: who has {far}; who has {numbers.MUCH_TROUBLE} or more exercises that ended with '
        f"{', '.join(numbers.TROUBLE[:-1])} or {numbers.TROUBLE[-1]}; whose paper could not be read; and who worked on "
        "earlier units and left the later ones empty. Most reasons first. A reason is a question, not a verdict.</p>"
    )
    if not found:
        return f"{rule}<p>Nobody.</p>"
    items = [
        f'<div class="head"><span>{link(c.standing.student)}</span><span class="points">'
        f"{number(c.standing.total)} of {c.standing.max}</span></div>"
        f'<p class="small">{text("; ".join(c.reasons))}</p>'
        for c in found[: MOST["talk"]]
    ]
    return (
        rule
        + f"<p>{count(len(found), 'student')}:</p>"
        + rows(items, "ul", "rows two")
        + more(len(found), "talk", "grades.csv")
    )


def _unreadable(ranked: Sequence[Standing], link: Linker) -> str:
    bad = {s.student: [e for e in s.entries.values() if unreadable(e)] for s in ranked}
    bad = {student: entries for student, entries in bad.items() if entries}
    items = []
    for student, entries in list(bad.items())[: MOST["unreadable"]]:
        units = ", ".join(entry.unit for entry in entries)
        notes = " · ".join(dict.fromkeys(note for entry in entries for note in entry.notes))
        items.append(
            f'<div class="head"><span>{link(student)}</span><span class="soft">unit {text(units)}</span></div>'
            f'<p class="small">{text(notes[:400])}</p>'
        )
    return rows(items, "ul", "rows two") + more(len(bad), "unreadable", "results.jsonl") if items else ""


def _states(ranked: Sequence[Standing], top: Mapping[str, int]) -> str:
    counts = {unit: Counter[str]() for unit in top}
    for standing in ranked:
        for unit, entry in standing.entries.items():
            counts[unit].update(row.status for row in entry.rows)
    known = [*STATUSES, *sorted({s for c in counts.values() for s in c} - set(STATUSES))]
    lines = []
    for state in known:
        cells = "".join(f"<td>{counts[unit][state]:,}</td>" for unit in top)
        whole = f"<td>{sum(c[state] for c in counts.values()):,}</td>" if len(top) > 1 else ""
        about = f'<br><span class="small soft">{MEANINGS.get(state, "")}</span>'
        lines.append(f'<tr><th scope="row">{text(state)}{about}</th>{cells}{whole}</tr>')
    head = "".join(f'<th scope="col">{text(unit)}</th>' for unit in top)
    return _table("Exercises by status", f'<th scope="col" class="left">status</th>{head}{_all(top)}', lines)


def _all(top: Mapping[str, int]) -> str:
    return '<th scope="col">all</th>' if len(top) > 1 else ""


def _table(label: str, head: str, lines: Sequence[str]) -> str:
    return (
        f'<div class="wide" tabindex="0" role="region" aria-label="{text(label)}"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table></div>"
    )


def _students(ranked: Sequence[Standing], top: Mapping[str, int], link: Linker) -> str:
    lines = []
    for standing in ranked[: MOST["students"]]:
        cells = "".join(f"<td>{number(points)}</td>" for points in standing.units.values())
        whole = f"<td>{number(standing.total)}</td>"
        lines.append(f'<tr><th scope="row">{link(standing.student)}</th>{cells}{whole}</tr>')
    head = "".join(
        f'<th scope="col">{text(unit)} <span class="soft">/ {most}</span></th>' for unit, most in top.items()
    )
    total = f'<th scope="col">total <span class="soft">/ {sum(top.values())}</span></th>'
    table = _table("Points of every student", f'<th scope="col" class="left">student</th>{head}{total}', lines)
    changed = sum(len(standing.applied) for standing in ranked)
    note = f'<p class="soft">{count(changed, "adjustment")} by hand included.</p>' if changed else ""
    return f"{note}{table}{more(len(ranked), 'students', 'grades.csv')}"


def _moved(moves: Sequence[Move], link: Linker) -> str:
    """Whose points a regrade changed, the largest change first."""
    if not moves:
        return ""
    by_student: dict[str, list[Move]] = {}
    for move in moves:
        by_student.setdefault(move.student, []).append(move)
    up = sum(m.after > m.before for m in moves)
    by_exercise = sorted(Counter(m.exercise for m in moves).items())
    listed = ", ".join(f"{text(exercise)} ({n:,})" for exercise, n in by_exercise[:40])
    intro = (
        f"<p>{count(len(moves), 'grade')} of {count(len(by_student), 'student')} moved: {up:,} up, "
        f"{len(moves) - up:,} down, before adjustments by hand. By exercise: {listed}.</p>"
    )
    largest = sorted(by_student.items(), key=lambda item: (-abs(_gain(item[1])), item[0]))
    items = [
        f'<div class="head"><span>{link(student)}</span><span class="points">{_gain(own):+d}</span></div>'
        + '<p class="small">'
        + "; ".join(f"{text(m.exercise)}: {m.before} → {m.after} of {m.max}{_turned(m)}" for m in own[:20])
        + "</p>"
        for student, own in largest[: MOST["moved"]]
    ]
    return intro + rows(items, "ul", "rows two") + more(len(by_student), "moved", "moved.csv")


def _gain(moves: Sequence[Move]) -> int:
    return sum(m.after - m.before for m in moves)


def _turned(move: Move) -> str:
    if move.status_before == move.status_after:
        return ""
    return f' <span class="soft">({text(move.status_before)} → {text(move.status_after)})</span>'
