"""`check` on a toy unit: names wrong ideas, accepts other right ways, survives whatever a learner writes."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
import toy_unit
from toy_unit import FUNCTION, MODULE, ToyLayer

from course_lib import checks, exercises, observe, progress
from course_lib.by_hand import softmax
from course_lib.checks import Card, NotYet, check, examine, hint
from course_lib.exercises.declare import Case, Check, Draw, Exercise


@pytest.fixture(autouse=True)
def toy_course(monkeypatch, tmp_path):
    """A course with one unit, 90, and a progress file of its own."""
    monkeypatch.setenv("COURSE_PROGRESS", str(tmp_path / "progress.json"))
    monkeypatch.setattr(exercises, "UNITS", ("90",))
    monkeypatch.setattr(exercises, "of_unit", lambda unit: toy_unit.EXERCISES)
    checks.observations_of.cache_clear()
    yield
    checks.observations_of.cache_clear()


def right(q, k, v, mask=None):
    scores = q @ k.T
    if mask is not None:
        scores = np.where(mask, scores, -np.inf)
    return softmax(scores) @ v


class MyLayer(ToyLayer):
    pass


# --- right answers


def test_a_right_answer_passes_with_all_points():
    report = examine(right, FUNCTION)
    assert report.status == "passed" and report.points == FUNCTION.points == 4 and report.misconception is None
    assert examine(MyLayer, MODULE).status == "passed"


@pytest.mark.parametrize("seed", [0, 1, 12345])
def test_other_right_ways_pass_whatever_the_seed(seed):
    for way in FUNCTION.alternatives:
        assert examine(way, FUNCTION, seed).status == "passed"

    def in_float32(q, k, v, mask=None):
        return right(q.astype("float32"), k.astype("float32"), v.astype("float32"), mask)

    def as_lists(q, k, v, mask=None):
        return right(q, k, v, mask).tolist()

    def in_torch(q, k, v, mask=None):
        return torch.from_numpy(right(q, k, v, mask))

    for way in (in_float32, as_lists, in_torch):
        assert examine(way, FUNCTION, seed).status == "passed"


# --- wrong answers


@pytest.mark.parametrize("exercise", [FUNCTION, MODULE], ids=lambda e: e.id)
@pytest.mark.parametrize("seed", [0, 7])
def test_each_misconception_fails_and_is_named(exercise, seed):
    for m in exercise.misconceptions:
        report = examine(m.wrong, exercise, seed)
        assert report.status != "passed" and report.points < exercise.points
        assert report.misconception is m


def test_half_right_keeps_its_points_and_gets_the_reason():
    report = examine(lambda q, k, v, mask=None: softmax(q @ k.T) @ v, FUNCTION)
    assert [r.passed for r in report.results] == [True, True, False] and report.points == 3
    assert "mask" in report.results[2].message


def test_a_second_mistake_elsewhere_does_not_hide_the_first():
    def both_wrong(q, k, v, mask=None):
        out = softmax(q @ k.T, axis=0) @ v
        return out * 2 if mask is not None else out

    report = examine(both_wrong, FUNCTION)
    assert report.misconception is not None and report.misconception.name == "over queries"


def test_an_unknown_mistake_is_not_given_a_name_but_the_smallest_case():
    report = examine(lambda q, k, v, mask=None: right(q, k, v, mask) + 1, FUNCTION)
    assert report.misconception is None
    assert "q = [[ 0.1257 -0.1321  0.6404]" in report.results[0].message
    assert "should be\n[[" in report.results[0].message and "q of shape (3, 4)" in report.results[1].message


def layer(forward):
    return type("Mine", (ToyLayer,), {"forward": forward})


@pytest.mark.parametrize(
    "wrong, words",
    [
        (lambda q, k, v, mask=None: None, "None. Is a `return` missing?"),
        (
            lambda q, k, v, mask=None: right(q, k, v, mask).T,
            "shape (3, 2), and yours has (2, 3). The last two axes",
        ),
        (lambda q, k, v, mask=None: softmax(q @ k.T), "shape (3, 2), and yours has (3, 5)"),
        (lambda q, k, v, mask=None: (right(q, k, v, mask), 1), "yours is 2 things"),
        (lambda q, k, v, mask=None: right(q, k, v, mask) * np.nan, "contains NaN"),
        (lambda q, k, v, mask=None: right(q, k, v, mask) + np.inf, "contains infinity"),
        (lambda q, k, v, mask=None: "attention", "yours is 'attention'"),
        (lambda q, k, v, mask=None: object(), "an object of type object"),
        (lambda q, k, v, mask=None: {1: 2}, "an object of type dict"),
        (lambda q, k, v, mask=None: right(q, k, v, mask) > 0, "should be of type float64, and yours is bool"),
        (lambda q, k, v, mask=None: q @ k, "raised ValueError"),
        (lambda q, k: 0, "raised TypeError"),
        (lambda *a: 1 / 0, "raised ZeroDivisionError"),
        (lambda *a: np.array([object()]), "array of object"),
    ],
)
def test_every_kind_of_difference_has_its_words(wrong, words):
    report = examine(wrong, FUNCTION)
    assert report.status in ("wrong", "error") and report.points == 0
    assert any(words in r.message for r in report.results)


def test_changing_an_input_is_noticed_and_named():
    def in_place(q, k, v, mask=None):
        out = right(q, k, v, mask)
        k *= 2
        return out

    report = examine(in_place, FUNCTION)
    assert report.points == 0 and "changes its input k in place" in report.results[0].message
    assert examine(right, FUNCTION).status == "passed"  # the cases themselves are unharmed


@pytest.mark.parametrize(
    "forward, words",
    [
        (lambda self, x: (x @ self.weight + self.bias).detach(), "no gradient flows back"),
        (
            lambda self, x: x @ self.weight.detach() + self.bias,
            "gradient for a parameter is not: none arrives",
        ),
        (
            lambda self, x: (x * 1.0).detach() @ self.weight + x * 0 @ self.weight + self.bias,
            "gradient for x is not",
        ),
        (lambda self, x: x @ self.weight, "should be\n"),
    ],
)
def test_modules_are_judged_by_values_and_gradients(forward, words):
    report = examine(layer(forward), MODULE)
    assert report.status == "wrong" and any(words in r.message for r in report.results)


def test_modules_with_other_parameters_are_told_so():
    class Other(torch.nn.Module):
        def __init__(self, d, e):
            super().__init__()
            self.linear = torch.nn.Linear(d, e)

        def forward(self, x):
            return self.linear(x)

    report = examine(Other, MODULE)
    assert "there is no parameter weight; found: linear.weight, linear.bias" in report.results[0].message


# --- code that misbehaves


def endless(*args):
    while True:
        pass


def swallowing(*args):
    while True:
        with contextlib.suppress(Exception):
            time.sleep(0.001)


def asleep(*args):
    time.sleep(60)


@pytest.mark.parametrize("stuck", [endless, swallowing, asleep])
def test_an_endless_loop_is_stopped_once_and_the_kernel_lives(stuck, monkeypatch):
    monkeypatch.setattr(observe, "SECONDS", 0.2)
    report = examine(stuck, FUNCTION)
    assert report.status == "timeout" and "loop without an end" in report.results[0].message
    assert ("restart the kernel" in report.results[0].message) == (stuck is asleep)
    assert examine(right, FUNCTION).status == "passed"


STUBBORN = """
from course_lib import observe
from course_lib.exercises.declare import Case

def stubborn():
    while True:
        try:
            while True:
                pass
        except:
            pass

observe.SECONDS = 0.2
print(observe.observe(stubborn, Case("c")).fault.message)
"""


def test_a_loop_that_will_not_listen_is_left_behind_and_said_so():
    run = subprocess.run([sys.executable, "-c", STUBBORN], capture_output=True, text=True, timeout=60)
    assert "does not stop: restart the kernel" in run.stdout


def test_a_huge_allocation_is_refused_in_words():
    report = examine(lambda *a: np.ones((1 << 33,)), FUNCTION)
    assert "more memory than there is" in report.results[0].message
    assert np.ones(1 << 24).sum() == 1 << 24  # and the ceiling is gone again


@pytest.mark.parametrize("leave", [lambda *a: sys.exit(3), lambda *a: exec("raise GeneratorExit")])
def test_leaving_is_not_dying(leave):
    assert "raised" in examine(leave, FUNCTION).results[0].message


def test_an_interrupt_of_the_learner_goes_through():
    def interrupt(*args):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        examine(interrupt, FUNCTION)


def test_recursion_and_prints_are_contained(capsys):
    def deep(*args):
        return deep(*args)

    def chatty(q, k, v, mask=None):
        print("x" * 100_000)
        return right(q, k, v, mask)

    assert "RecursionError" in examine(deep, FUNCTION).results[0].message
    assert examine(chatty, FUNCTION).status == "passed"
    assert "x" * 100 not in capsys.readouterr().out


def test_objects_that_claim_to_equal_everything_do_not_pass():
    class Yes(np.ndarray):
        def __eq__(self, other):
            return True

        def __sub__(self, other):
            return 0

    class Anything:
        shape = (2, 3)

        def __eq__(self, other):
            return True

        __hash__ = None

    for fake in (lambda q, k, v, mask=None: np.zeros((len(q), v.shape[1])).view(Yes), lambda *a: Anything()):
        assert examine(fake, FUNCTION).points == 0


def test_errors_show_the_learners_lines_and_not_the_librarys():
    def mine(q, k, v, mask=None):
        return np.linalg.inv(q @ undefined_name)  # noqa: F821

    message = examine(mine, FUNCTION).results[0].message
    assert "NameError" in message and "undefined_name" in message and "observe.py" not in message


# --- what may not be used


def test_the_librarys_answer_and_forbidden_names_are_refused():
    def cheat(q, k, v, mask=None):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v)

    def borrow(q, k, v, mask=None):
        from course_lib import by_hand

        return by_hand.attention(q, k, v, mask, scale=1.0)

    assert examine(cheat, FUNCTION).status == "forbidden"
    assert "scaled_dot_product_attention" in examine(cheat, FUNCTION).message
    assert "course_lib" in examine(borrow, FUNCTION).message
    assert examine(toy_unit.toy_attention, FUNCTION).status == "forbidden"


# --- what the learner sees


def test_check_raises_when_wrong_and_says_nothing_of_the_library(capsys):
    with pytest.raises(NotYet) as error:
        check(lambda q, k, v, mask=None: softmax(q @ k.T) @ v, "90.1")
    assert error.value._render_traceback_() == ["90.1 toy_attention: 3 of 4 points so far."]
    out = capsys.readouterr().out
    assert "Forgets the mask." in out and 'hint("90.1")' in out and "✓ values (2 of 2)" in out
    check(right, "90.1")
    assert "4 of 4 points" in capsys.readouterr().out


def test_a_stub_raises_not_implemented_and_is_not_counted_as_a_try():
    def toy_attention(q, k, v, mask=None):
        raise NotImplementedError

    with pytest.raises(NotImplementedError, match=r"90.1 toy_attention: Still empty"):
        check(toy_attention)
    assert progress.read() == {}


def test_what_is_no_function_is_told_so(capsys):
    with pytest.raises(NotYet):
        check(np.ones(3), "90.1")
    assert "should be a function or class; it is a ndarray" in capsys.readouterr().out
    with pytest.raises(ValueError, match=r'No exercise is called .* check\(answer, "04\.2"\)'):
        check(lambda: 0)


def test_hints_come_one_at_a_time(capsys):
    for words in ("Hint 1 of 3: first", "Hint 2 of 3: second", "Hint 3 of 3: third", "Hint 3 of 3: third"):
        hint("90.1")
        assert words in capsys.readouterr().out


def test_the_card_is_html_that_escapes_and_text_that_reads():
    report = examine(lambda *a: "<script>", FUNCTION)
    card = Card(report)
    assert "<script>" not in card._repr_html_() and "&lt;script&gt;" in card._repr_html_()
    assert repr(card).startswith("90.1 Toy attention: 0 of 4 points")


def test_a_named_idea_needs_one_example_only():
    report = examine(FUNCTION.misconceptions[0].wrong, FUNCTION)
    assert repr(Card(report)).count("and yours is") == 1
    unnamed = dataclasses.replace(report, misconception=None)
    assert repr(Card(unnamed)).count("and yours is") == 3


# --- progress


def test_the_best_result_stays_and_tries_are_counted():
    for points in (1, 4, 2):
        progress.record("90.1", points, 4)
    assert progress.read()["90.1"] == progress.Entry(points=4, max=4, tries=3, hints=0)
    assert "4 of 4" in progress.table() and "not tried" in progress.table()
    progress.restart("90")
    assert progress.read() == {}


@pytest.mark.parametrize("text", ["", "{", "[]", '{"exercises": {"90.1": {"points": "x"}}}', '{"exercises": {"1": 3}}'])
def test_an_unreadable_file_is_put_aside(text):
    progress.path().write_text(text)
    assert progress.read() == {}
    progress.record("90.1", 1, 4)
    assert progress.path().with_suffix(".unreadable.json").read_text() == text


def test_a_crash_while_writing_leaves_the_old_file(monkeypatch):
    progress.record("90.1", 3, 4)
    before = progress.path().read_text()

    def crash(*args):
        raise OSError("no space left on device")

    monkeypatch.setattr(os, "replace", crash)
    with pytest.warns(UserWarning, match="could not be kept in .*: no space"):
        progress.record("90.1", 4, 4)
    assert progress.path().read_text() == before and json.loads(before)["version"] == 1
    assert [p.name for p in progress.path().parent.iterdir()] == ["progress.json"]


# --- declarations


def test_a_declaration_is_checked_when_it_is_made():
    with pytest.raises(ValueError, match="different names"):
        dataclasses.replace(FUNCTION, checks=(Check("a"), Check("a")))
    with pytest.raises(ValueError, match=r"looks like 04\.2"):
        dataclasses.replace(FUNCTION, id="four")
    with pytest.raises(ValueError, match=r"checks \['other'\] and cases for"):
        dataclasses.replace(FUNCTION, checks=(Check("other"),)).draw_cases()


def test_draws_are_fixed_by_the_seed_and_masks_have_both_kinds_in_each_row():
    assert np.array_equal(Draw(3)(4, 5), Draw(3)(4, 5)) and not np.array_equal(Draw(3)(4, 5), Draw(4)(4, 5))
    for seed in range(50):
        mask = Draw(seed).mask(4, 5)
        assert mask.any(-1).all() and (~mask).any(-1).all()


def test_training_mode_reaches_the_module():
    seen = []

    class Spy(ToyLayer):
        def forward(self, x):
            seen.append(self.training)
            return super().forward(x)

    for training in (True, False):
        observe.observe(Spy, Case("c", (torch.ones(1, 2),), build=(2, 3), training=training))
    assert seen == [True, False]


def test_exercises_know_themselves():
    assert isinstance(FUNCTION, Exercise) and FUNCTION.unit == "90" and FUNCTION.name == "toy_attention"
    assert exercises.find("90.2") is MODULE and exercises.find("toy_attention") is FUNCTION


# --- answers in another form, and how wrong numbers hang together


def test_rows_in_a_list_and_arguments_the_other_way_round_are_understood(capsys):
    assert examine(lambda q, k, v, mask=None: list(right(q, k, v, mask)), FUNCTION).status == "passed"
    check("90.1", right)
    assert "4 of 4 points" in capsys.readouterr().out
    three = (np.ones(3), np.zeros(3), np.ones(3))
    assert checks.same(np.stack(three), three) and checks.same(three, np.stack(three))
    assert not checks.same((np.ones(3), np.ones(2)), np.ones((2, 3)))


@pytest.mark.parametrize(
    "change, words",
    [
        (lambda out: out / 3, "Yours is 0.3333 times that."),
        (lambda out: out[:, ::-1], "The same numbers stand in other places."),
        (lambda out: out + 3e-5, "Is something rounded?"),
    ],
)
def test_wrong_numbers_are_told_how_they_hang_together_with_right_ones(change, words):
    report = examine(lambda q, k, v, mask=None: change(right(q, k, v, mask)), FUNCTION)
    assert words in report.results[0].message
    assert "Yours is the transpose." in checks.value_text(np.array([[1.0, 2], [3, 4]]), np.array([[1.0, 3], [2, 4]]))


def test_a_product_that_does_not_fit_is_explained_in_columns_and_rows():
    report = examine(lambda q, k, v, mask=None: q @ k, FUNCTION)
    assert "In a @ b, a has 3 columns and b has 2 rows: these must be equal." in report.results[0].message
    assert repr(Card(report)).count("In a @ b") <= len(report.results)


def test_an_answer_that_borrows_the_librarys_function_is_refused():
    space = {"__name__": "__main__"}
    exec(
        "from course_lib.by_hand import attention\ndef mine(q, k, v, mask=None):\n    return attention(q, k, v)", space
    )
    assert examine(space["mine"], FUNCTION).status == "forbidden"
    assert examine(right, FUNCTION).status == "passed"  # softmax is given: the answer uses it too


@pytest.mark.parametrize(
    "got, words",
    [
        (None, "Is a `return` missing?"),
        (np.array([[1, 2, 3]]), "The right numbers, in another form"),
        (np.array([1, 2]), "should have the form (3,); yours has (2,)"),
        ("1, 2, 3", "should be a list of numbers of shape (3,); yours is '1, 2, 3'"),
        (np.array([3, 2, 1]), "Not yet: work it out once more."),
    ],
)
def test_a_prediction_is_told_its_form_and_never_the_answer(got, words):
    text = checks.prediction_text(got, np.array([1, 2, 3]))
    assert words in text and "[1 2 3]" not in text


def test_ones_and_zeros_may_stand_for_true_and_false_in_a_prediction():
    wanted = np.array([True, False])
    assert checks.same(checks.as_meant(np.array([1, 0]), wanted), wanted)
    assert not checks.same(checks.as_meant(np.array([2, 0]), wanted), wanted)
    assert checks.nearly(np.array([0.06, 0.47]), np.array([0.0634, 0.4683])) and not checks.nearly(None, wanted)


def test_words_of_a_prediction_are_compared_without_case_and_surrounding_blanks():
    wanted = ("animal", "tired")
    assert checks.same(checks.as_meant((" Animal", "TIRED "), wanted), wanted)
    assert not checks.same(checks.as_meant(("animal", "tire d"), wanted), wanted)
    assert not checks.same(("Animal", "tired"), wanted)  # in code, as opposed to a prediction, spelling counts
    assert checks.predicted_alike(("Tired", "animal"), ("tired", "animal"))  # a wrong prediction is recognised too
    assert not checks.predicted_alike(("tired", "animal"), wanted)


@pytest.mark.parametrize(
    "got, want, words",
    [
        ("tired", "animal", "Yours is 'tired'. Not yet"),
        (("a", "c", "b"), ("a", "b", "c"), "Yours is 'a', 'c', 'b'. Not yet"),
        (("a", "b"), ("a", "b", "c"), "should be a list of 3 words; yours is a list of 2 words"),
        ("a, c", ("a", "b", "c"), "should be a list of 3 words; yours is 'a, c'"),
        (np.array(3), "animal", "should be one word, in quotes; yours is 3"),
        ("three", np.array(3), "should be one number; yours is 'three'"),
        (("a", np.ones(2)), (np.ones(2), "a", "b"), "a list of 3 things; yours is a list of 2 things"),
    ],
)
def test_a_prediction_in_words_is_shown_and_the_answer_is_not(got, want, words):
    text = checks.prediction_text(got, want)
    assert words in text and "things (" not in text and repr(want) not in text and "animal" not in text


def test_a_gradient_where_none_should_be_is_told():
    want = observe.Observation(output=np.zeros(2), gradients=(np.ones(2), None))
    got = observe.Observation(output=np.zeros(2), gradients=(np.ones(2), np.ones(3)))
    text = checks.explain(Case("c", (np.zeros(2), np.zeros(3))), got, want, ("x", "memory"))
    assert "a gradient reaches memory" in text
    assert checks.value_text(np.ones(2), None) == "the result should be None, and yours is of shape (2,)."


def test_a_prediction_in_other_brackets_is_meant_as_it_stands():
    four, row = np.array(4), np.array([1, 2])
    assert checks.as_meant(np.array([4]), four).shape == () and checks.as_meant(np.array([[1, 2]]), row).shape == (2,)
    assert checks.as_meant(np.array([1, 2, 3]), row).shape == (3,)
    assert checks.as_meant(np.array([[1], [0]]), np.array([True, False])).tolist() == [True, False]


def test_a_change_inside_a_list_or_dictionary_of_arrays_is_seen():
    def spoils(tables, parts):
        tables["a"][0] = 5.0
        return parts[0]

    case = Case("c", ({"a": np.zeros(2), "b": torch.ones(1)}, [np.ones(2), (torch.ones(2),)]))
    assert observe.observe(spoils, case).changed == (0,)
    assert observe.observe(lambda tables, parts: parts[1][0].add_(1), case).changed == (1,)
    assert observe.observe(lambda tables, parts: parts[0], case).changed == ()


def test_the_most_frequent_complaints_are_said_in_words():
    a, b = torch.ones(2, 3), torch.ones(5, 3)
    for product in (lambda: a @ b, lambda: a.numpy() @ b.numpy()):
        with pytest.raises((RuntimeError, ValueError)) as error:
            product()
        assert "a has 3 columns and b has 5 rows" in checks._in_words(str(error.value))
    assert checks._in_words("something else") == ""


def test_a_word_is_meant_as_it_sounds():
    assert checks.as_meant("Post norm ", "post-norm") == checks.as_meant("post_norm", "post-norm") == "post-norm"
    assert checks.as_meant("postnorm", "post-norm") == "postnorm"
