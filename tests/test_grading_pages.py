"""The pages of a graded class: what they say, what they must never say, and that no text can act in them."""

from __future__ import annotations

import inspect
import math
import random
import re
import statistics
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import browser
import numpy as np
import pytest
from graded_class import UNREADABLE, empty, entry, of_size, row, solved
from hypothesis import given, settings
from hypothesis import strategies as st

from course_lib import exercises
from course_lib.exercises.declare import Case, Check, Exercise, Misconception
from course_lib.grading import class_numbers as numbers
from course_lib.grading import class_report, pages
from course_lib.grading.outputs import Adjustment, Move, file_names, write_outputs
from course_lib.grading.records import STATUSES, Entry, Part, Row
from course_lib.grading.standings import maxima, standings

FOUR = exercises.of_unit("04")
NASTY = '</pre></style><script>alert(1)</script><img src="http://evil.example/x" onerror=alert(2)>&quot;\'"'


class Reader(HTMLParser):
    """Tags with their attributes in order, and the text that a reader sees."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, tuple[str, ...]]] = []
        self.links: list[str] = []
        self.words: list[str] = []
        self.open: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, tuple(name for name, _ in attrs)))
        self.links += [value for name, value in attrs if name in ("href", "src", "action", "data", "srcset")]
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, tuple(name for name, _ in attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, f"</{tag}> closes another tag"

    def handle_data(self, data):
        if self.open and self.open[-1] not in ("style", "title"):
            self.words.append(data)

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", "".join(self.words))


def feedback(entries: list[Entry], *adjustments: Adjustment) -> str:
    (standing,) = standings(entries, adjustments)
    return pages.feedback(standing, "A course")


def report(entries: list[Entry], moved: tuple[Move, ...] = ()) -> str:
    ranked = standings(entries)
    names = file_names(s.student for s in ranked)
    return class_report.page(ranked, maxima(entries), names, moved=moved, title="A course")


# --- what a student reads ----------------------------------------------------------------------------------


def test_feedback_says_what_passed_what_idea_went_wrong_and_where_to_read() -> None:
    exercise = FOUR[3]
    wrong = exercise.misconceptions[4]
    failed = row("ada", exercise, "wrong", 1, wrong.name, reason="The numbers are not right.")
    said = Reader(feedback([entry("ada", "04", [row("ada", FOUR[0]), failed], ["code cell 3 was left out"])])).text
    assert (
        "Feedback for ada" in said and f"{FOUR[0].points + failed.points} of {FOUR[0].points + exercise.points}" in said
    )
    assert f"{exercise.id} {exercise.title}" in said and "partly solved" in said
    assert wrong.idea in said and f"“{wrong.read[1]}”" in said and f"unit {wrong.read[0]}" in said
    for check, held in zip(exercise.checks, (True, True, False), strict=True):
        assert f"{'✓' if held else '✗'}{check.name} ({check.points if held else 0} of {check.points})" in said
    assert said.count("The numbers are not right.") == 1, "the row's message repeats the part's reason"
    assert "code cell 3 was left out" in said


@pytest.mark.parametrize("status", STATUSES)
def test_every_status_has_words(status: str) -> None:
    failed = 0 if status == "passed" else len(FOUR[1].checks)
    said = Reader(feedback([entry("ada", "04", [row("ada", FOUR[1], status, failed)])])).text
    assert pages.STATES[status] in said
    assert ("Well done" in said) == (status == "passed")


def test_a_message_without_parts_is_shown_and_cut_where_it_becomes_a_book() -> None:
    message = "It was stopped. " + "x" * 40_000
    page = feedback([entry("ada", "04", [row("ada", FOUR[1], "timeout", message=message)])])
    assert "It was stopped." in page and "(shortened)" in page and len(page) < 30_000


def test_the_same_reason_is_told_once() -> None:
    rows = [row("ada", FOUR[3], "error", 3, reason="It raised ValueError.")]
    assert Reader(feedback([entry("ada", "04", rows)])).text.count("It raised ValueError.") == 1


def test_adjustments_stand_with_their_reasons() -> None:
    changes = Adjustment("ada", "04", "-10%", "one day late"), Adjustment("ada", "", "+1", "helped <others>")
    said = Reader(feedback([solved("ada")], *changes)).text
    assert "−10 %: 24 → 21.6 points. Reason: one day late" in said
    assert "+1: 21.6 → 22.6 points. Reason: helped <others>" in said
    assert "22.6 of 24 points" in said and "21.6 of 24 points" in said


def test_an_unreadable_paper_is_said_to_be_one() -> None:
    said = Reader(feedback([empty("ada", notes=[UNREADABLE])])).text
    assert "Your notebook could not be read" in said and UNREADABLE in said


def test_a_unit_without_a_paper_is_named() -> None:
    (ada, _) = standings([solved("ada", "03"), solved("bob", "04")])
    said = Reader(pages.feedback(ada, "A course")).text
    assert "There is nothing of yours for unit 04." in said and f"of {ada.max} points" in said


def test_places_to_read_are_gathered_by_unit() -> None:
    wrong = [row("ada", e, "wrong", 1, e.misconceptions[0].name) for e in FOUR]
    said = Reader(feedback([entry("ada", "04", wrong)])).text
    gathered = said.partition("Worth reading again")[2].partition("Unit 04:")[0]
    for heading, ids in Counter(e.misconceptions[0].read[1] for e in FOUR).items():
        assert gathered.count(heading) == 1, (heading, ids)


def test_results_of_an_exercise_that_is_no_longer_declared() -> None:
    old = Row("ada", "77", "77.1", 1, 2, "wrong", "some idea", "Not right.", (Part("a check", 2, False, "Why."),))
    said = Reader(feedback([entry("ada", "77", [old])])).text
    assert "Unit 77" in said and "77.1" in said and "some idea" in said and "a check" in said
    assert "77.1" in report([entry("ada", "77", [old])])


# --- what a student must not read --------------------------------------------------------------------------


def secret(x: np.ndarray) -> np.ndarray:
    """SECRET-ANSWER"""
    return x


SECRETIVE = Exercise(
    id="04.9",
    title="An open title",
    answer="test_grading_pages.secret",
    minutes=1,
    outcomes=("SECRET-OUTCOME",),
    checks=(Check("an open check", 2),),
    cases=lambda draw: [Case("an open check", (np.array([31415.9265]),), note="SECRET-NOTE")],
    hints=("SECRET-HINT 1", "SECRET-HINT 2", "SECRET-HINT 3"),
    misconceptions=(
        Misconception("secretly-named", lambda x: x + 27182.8182, "An open idea.", ("04", "An open heading")),
        Misconception("another", lambda x: x, "SECRET-OTHER idea", ("04", "SECRET-OTHER heading")),
    ),
    forbidden=("SECRET_CALL",),
)


@pytest.mark.parametrize("status", STATUSES)
def test_pages_are_made_of_what_is_open(monkeypatch: pytest.MonkeyPatch, status: str) -> None:
    monkeypatch.setattr(pages, "declared", lambda exercise: SECRETIVE)
    pages.idea_named.cache_clear()
    failed = 0 if status == "passed" else 1
    made = row(
        "ada", SECRETIVE, status, failed, "secretly-named" if status == "wrong" else "", reason="An open reason."
    )
    both = feedback([entry("ada", "04", [made])]) + report([entry("ada", "04", [made])])
    pages.idea_named.cache_clear()
    assert "An open title" in both and ("An open idea." in both) == (status == "wrong")
    assert not re.search(r"SECRET|31415|27182|secretly-named", both)


@pytest.mark.parametrize("unit", ["03", "04", "07"])
def test_no_hint_and_no_answer_of_the_course_is_on_a_page(unit: str) -> None:
    for exercise in exercises.of_unit(unit):
        rows = [row("ada", exercise, "wrong", 1, m.name) for m in exercise.misconceptions]
        said = Reader(feedback([entry("ada", unit, rows)])).text
        ideas = " ".join(m.idea for m in exercise.misconceptions)
        for hint in exercise.hints:
            assert hint not in said
        lines = [line.strip() for line in inspect.getsource(exercise.load_answer()).splitlines()]
        for line in lines:
            assert len(line) < 18 or line in ideas or line not in said, line
        assert all(m.idea in said for m in exercise.misconceptions if m.idea == " ".join(m.idea.split()))


# --- no text can act ---------------------------------------------------------------------------------------


def everything(words: str, name: str) -> tuple[str, str]:
    """Both pages with the same text in every place that a student or an instructor fills."""
    wrong = row(name, FOUR[3], "wrong", 2, "idea " + words, "message " + words, "reason " + words)
    gone = row(name, FOUR[4], "timeout", message="message " + words)
    own = [entry(name, "04", [wrong, gone], ["note " + words]), empty(name, "06", [f"{UNREADABLE} {words}"])]
    page = feedback(own, Adjustment(name, "04", "-1", "reason " + words), Adjustment(name, "", "+1", "why " + words))
    moves = (
        Move(name, "04", "04.1", 0, 1, 2, "wrong", "passed"),
        Move(name + "2", "04", "04.1", 0, 1, 2, "", "turned " + words),
    )
    return page, report([*own, solved("other")], moves)


lines = st.text(st.characters(exclude_characters="\n\r"), max_size=60)


@settings(max_examples=60)
@given(
    st.one_of(lines, st.sampled_from([NASTY, "<b>", "]]>", "--><!--", "&lt;", "\x1b[31mred", "\u202e", "\ud800"])),
    lines,
)
def test_every_text_stays_a_text(words: str, name: str) -> None:
    plain, nasty = everything("x", "student"), everything(words, "student" + name.replace("/", ""))
    for before, after in zip(plain, nasty, strict=True):
        assert Reader(after).tags == Reader(before).tags
        assert not Reader(after).open
        after.encode("utf-8")
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f]", after)


def test_markup_is_shown_as_it_was_written() -> None:
    page, overview = everything(NASTY, NASTY.replace("/", ""))
    assert NASTY in Reader(page).text and NASTY in Reader(overview).text
    assert "<script" not in page + overview and "<img" not in page + overview


@pytest.mark.parametrize("size", [0, 1, 40])
def test_nothing_is_asked_of_another_host(tmp_path: Path, size: int) -> None:
    entries = of_size(size, ("03", "04"))
    entries += (
        [solved("a/b?c#d%20.html".replace("/", ":")), solved("javascript:alert(1)"), solved("Ä ö")] if size else []
    )
    write_outputs(tmp_path, entries, moved=[Move("student00001", "04", "04.1", 0, 1, 2, "", "")])
    found = list(tmp_path.rglob("*.html"))
    assert len(found) == size + 1 + 3 * (size > 0)
    for path in found:
        text = path.read_text(encoding="utf-8")
        page = Reader(text)
        assert not page.open
        assert not {tag for tag, _ in page.tags} & {
            "script",
            "img",
            "link",
            "iframe",
            "object",
            "embed",
            "form",
            "base",
        }
        assert not re.search(r"https?:|//|url\(|@import", text.replace("<!doctype html>", ""))
        for link in page.links:
            assert link.startswith("#") or (path.parent / unquote(link)).is_file(), link
            assert link.isascii() and " " not in link
        anchors = set(re.findall(r' id="([^"]+)"', text))
        assert {link[1:] for link in page.links if link.startswith("#")} <= anchors
        assert "default-src 'none'" in text


# --- the report --------------------------------------------------------------------------------------------


def test_the_report_of_a_class() -> None:
    entries = of_size(60, ("03", "04"), seed=3)
    said = Reader(report(entries)).text
    totals = [float(s.total) for s in standings(entries)]
    assert f"{statistics.median(totals):.1f}".removesuffix(".0") + "median of" in said
    for words in (
        "Exercises, the hardest first",
        "Wrong ideas",
        "Students to talk to",
        "How programs ended",
        "Everybody",
    ):
        assert words in said
    assert "What the regrade moved" not in said and "could not be read" not in said.partition("Named here")[0]


def test_the_report_of_one_student_and_of_none() -> None:
    assert "Nothing has been graded yet" in report([])
    said = Reader(report([solved("ada")])).text
    assert "1student" in said and "100 %" in said and "No wrong idea was recognised" in said and "Nobody." in said
    assert "0 – 0" in Reader(report([empty("ada")])).text
    assert "Nothing" not in report([Entry("ada", "04", "key", ())])


def test_ten_thousand_students_fit_on_a_page() -> None:
    entries = of_size(10_000)
    entries += [empty(f"unreadable{i}", notes=[UNREADABLE + "!" * 5000]) for i in range(300)]
    moves = tuple(Move(f"student{i:05d}", "04", "04.1", 0, 1, 2, "wrong", "passed") for i in range(10_000))
    page = report(entries, moves)
    assert len(page.encode()) < 350_000
    said = Reader(page).text
    most = class_report.MOST
    assert f"and {10_300 - most['students']:,} more, see grades.csv" in said
    assert f"and {10_000 - most['moved']:,} more, see moved.csv" in said
    assert f"and {300 - most['unreadable']:,} more, see results.jsonl" in said


def test_difficulty_counts_points_and_the_missing() -> None:
    hard, easy = FOUR[3], FOUR[0]
    entries = [entry(s, "04", [row(s, hard, "wrong", 3), row(s, easy)]) for s in "ab"]
    entries += [entry("c", "04", [row("c", hard), row("c", easy)]), entry("d", "04", [row("d", hard, "missing")])]
    first, second = numbers.difficulties(standings(entries))
    assert (first.exercise, first.students, first.reached, first.solved, first.missing, first.attempts) == (
        hard.id, 4, 0.25, 0.25, 0.25, 3)  # fmt: skip
    assert (second.exercise, second.students, second.reached, second.missing) == (easy.id, 3, 1.0, 0.0)


def test_ideas_are_counted_among_those_who_tried() -> None:
    a, b = (m.name for m in FOUR[3].misconceptions[:2])
    rows = [(f"s{i}", row(f"s{i}", FOUR[3], "wrong", 1, a if i < 5 else b)) for i in range(7)]
    rows += [("s8", row("s8", FOUR[3], "missing")), ("s9", row("s9", FOUR[3]))]
    found = numbers.frequencies(standings([entry(s, "04", [r]) for s, r in rows]))
    assert [(f.wrong, f.students, f.attempts) for f in found] == [((FOUR[3].id, a), 5, 8), ((FOUR[3].id, b), 2, 8)]


def holding(student: str, *held: tuple[Exercise, int]) -> Entry:
    """A student who solved all of unit 04 but holds these wrong ideas."""
    ideas = {exercise.id: exercise.misconceptions[i].name for exercise, i in held}
    rows = [row(student, e, "wrong", 1, ideas[e.id]) if e.id in ideas else row(student, e) for e in FOUR]
    return entry(student, "04", rows)


def test_ideas_that_come_together_are_found_and_others_are_not() -> None:
    entries = [holding(f"both{i}", (FOUR[3], 0), (FOUR[4], 2)) for i in range(9)]
    entries += [holding(f"one{i}", (FOUR[3], 0)) for i in range(4)]
    entries += [holding(f"other{i}", (FOUR[2], 1), (FOUR[5], 1)) for i in range(2)]
    entries += [holding(f"none{i}") for i in range(45)]
    (pair,) = numbers.pairs(standings(entries))
    assert {pair.first, pair.second} == {(e.id, e.misconceptions[i].name) for e, i in ((FOUR[3], 0), (FOUR[4], 2))}
    assert (pair.both, pair.tried) == (9, 60) and pair.expected == pytest.approx(13 * 9 / 60)
    assert pair.lift == pytest.approx(9 / (13 * 9 / 60))
    said = Reader(report(entries)).text
    assert "9 students" in said and "4.6 times what chance gives (1.9 of 60)" in said


def test_independent_ideas_are_not_paired() -> None:
    rng = random.Random(5)
    false = 0
    for _ in range(20):
        entries = [
            holding(f"s{i}", *((e, rng.randrange(3)) for e in FOUR[2:5] if rng.random() < 0.4)) for i in range(80)
        ]
        false += len(numbers.pairs(standings(entries)))
    assert false <= 1


@given(st.integers(1, 40).flatmap(lambda n: st.tuples(*[st.integers(0, n)] * 2, st.just(n))), st.data())
def test_chance_is_the_hypergeometric_tail(sizes: tuple[int, int, int], data: st.DataObject) -> None:
    first, second, tried = sizes
    both = data.draw(st.integers(0, min(first, second)))
    ways = sum(
        math.comb(first, k) * math.comb(tried - first, second - k)
        for k in range(both, min(first, second) + 1)
        if second - k <= tried - first
    )
    assert numbers.chance_of(both, first, second, tried) == pytest.approx(ways / math.comb(tried, second), rel=1e-9)


def test_students_to_talk_to() -> None:
    trouble = [row("crash", e, s) for e, s in zip(FOUR, ("timeout", "died", "forbidden"), strict=False)]
    calm = [row("calm", e, s) for e, s in zip(FOUR, ("timeout", "died"), strict=False)]
    entries = [
        *(solved(f"good{i}", unit) for i in range(6) for unit in ("03", "04")),
        solved("crash", "03"), entry("crash", "04", [*trouble, *(row("crash", e) for e in FOUR[3:])]),
        solved("calm", "03"), entry("calm", "04", [*calm, *(row("calm", e) for e in FOUR[2:])]),
        solved("gone", "03"), empty("gone", "04"),
        solved("torn", "03"), empty("torn", "04", [UNREADABLE]),
        empty("idle", "03"), empty("idle", "04"),
    ]  # fmt: skip
    found = numbers.concerns(standings(entries), maxima(entries))
    assert {c.standing.student: c.reasons for c in found} == {
        "torn": ("unreadable: unit 04",),
        "gone": ("nothing since unit 03",),
        "crash": ("programs that did not end well: 1 × died, 1 × forbidden, 1 × timeout",),
        "idle": ("far below the median",),
    }
    assert found[0].standing.student == "idle"
    few = [solved(f"good{i}") for i in range(3)] + [empty("idle")]
    assert numbers.concerns(standings(few), maxima(few)) == [], "four students have no median to speak of"


@given(st.lists(st.floats(0, 300, allow_nan=False), max_size=30), st.integers(0, 290))
def test_a_histogram_leaves_nobody_out(values: list[float], top: int) -> None:
    bins = numbers.histogram(values, top)
    assert sum(n for *_, n in bins) == len(values) and 1 <= len(bins) <= 13
    assert bins[0][0] == 0 and bins[-1][0] <= top < bins[-1][1]
    assert len({end - start for start, end, _ in bins}) == 1
    for start, end, n in bins[:-1]:
        assert n == sum(start <= v < end for v in values)


def test_moves_are_gathered_by_student() -> None:
    moves = [Move("ada", "04", f"04.{i}", 0, 2, 3, "wrong", "passed") for i in (1, 2)]
    moves += [Move("bob", "04", "04.1", 3, 2, 3, "passed", "wrong")]
    said = Reader(report([solved("ada"), solved("bob")], tuple(moves))).text
    assert "3 grades of 2 students moved: 2 up, 1 down" in said
    assert said.index("ada+4") < said.index("bob-1")


# --- colours, and a real browser ---------------------------------------------------------------------------


def contrast(a: str, b: str) -> float:
    """WCAG 2: (lighter + 0.05) / (darker + 0.05)."""

    def luminance(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    light, dark = sorted((luminance(a), luminance(b)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_colours_keep_wcag_aa(theme: int) -> None:
    blocks = re.findall(r":root \{(.*?)\}", pages.style(), re.DOTALL)
    assert len(blocks) == 2
    colour = dict(re.findall(r"--([\w-]+): (#\w{6})", blocks[theme]))
    assert len(colour) == 13
    for ink in ("ink", "soft", "blue", "green", "amber"):
        for ground in ("page", "card"):
            assert contrast(colour[ink], colour[ground]) >= 4.5, (ink, ground)
    for wash in ("blue-wash", "amber-wash"):
        assert contrast(colour["ink"], colour[wash]) >= 4.5, wash
    assert contrast(colour["blue"], colour["track"]) >= 3
    assert contrast(colour["edge"], colour["card"]) >= 3


@pytest.mark.browser
@pytest.mark.slow
def test_pages_fit_a_phone_and_ask_nothing(tmp_path: Path) -> None:
    entries = of_size(30, ("03", "04"))
    long = "an_unusually_" + "long_" * 20 + "name"
    entries += [
        replace(solved(long), notes=("x" * 400,)),
        entry("wide", "04", [row("wide", FOUR[3], "wrong", 2, message="y" * 300)]),
    ]
    write_outputs(tmp_path, entries, title="A course")
    chosen = [tmp_path / "report.html", *(tmp_path / "feedback" / f"{s}.html" for s in (long, "wide", "student00003"))]
    for scheme in ("light", "dark"):
        with browser.open_page(width=400) as page:
            page.emulate_media(color_scheme=scheme)
            said: list[str] = []
            page.on("console", lambda message, said=said: said.append(message.text))
            for path in chosen:
                page.goto(path.as_uri())
                assert page.evaluate("document.documentElement.scrollWidth") <= 400, path.name
                size = page.evaluate("Math.min(...[...document.querySelectorAll('p, li, td, svg text')].map(e => "
                                     "parseFloat(getComputedStyle(e).fontSize)))")  # fmt: skip
                assert size >= 12
            dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
            assert (sum(map(int, re.findall(r"\d+", dark))) < 200) == (scheme == "dark")
            assert [url for url in page.strangers if not url.startswith("file:")] == [] and page.errors == [] == said
