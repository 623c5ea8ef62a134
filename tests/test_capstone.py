"""The capstone: own parts from notebooks, a file that nobody has to trust, and what a trained model earns."""

from __future__ import annotations

import json
import math
import os
import struct

import numpy as np
import pytest
import torch
from safetensors.numpy import save as save_arrays
from torch import nn

from course_lib import by_hand, exercises, handed_in, observe
from course_lib.attention import MultiHeadAttention
from course_lib.build import answer_source, stub_source
from course_lib.capstone import WANTED, definitions, find_part, own_parts, statements
from course_lib.checks import examine, forbidden_use, given_names, judge, observations_of, right, try_out, with_file
from course_lib.data import batches, number_pairs
from course_lib.device import generator, seed_all
from course_lib.exercises import u13
from course_lib.exercises.declare import Draw
from course_lib.handed_in import FILE, held_back, load_into, read_model, translate, write_model
from course_lib.observe import Observation
from course_lib.parts import Parts
from course_lib.training import TrainConfig, fit
from course_lib.validate.pages import kernel_env

HAND_IN = exercises.find("13.7")


# --- parts --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "id_"), WANTED.items())
def test_a_part_of_the_course_passes_the_exercise_that_it_stands_for(name, id_):
    assert try_out(getattr(Parts(), name), exercises.find(id_), 3).status == "passed"


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("cross", [False, True])
def test_attention_is_the_librarys_with_the_same_weights(cross, causal):
    torch.manual_seed(0)
    ours, theirs = Parts().attention(6, 3).double(), MultiHeadAttention(6, 3).double()
    with torch.no_grad():
        h = ours.heads
        theirs.w_qkv.weight.copy_(torch.cat([h.w_q.weight, h.w_k.weight, h.w_v.weight]))
        theirs.w_qkv.bias.copy_(torch.cat([h.w_q.bias, h.w_k.bias, h.w_v.bias]))
        theirs.w_o.load_state_dict(h.w_o.state_dict())
    x, memory = torch.randn(2, 4, 6).double(), torch.randn(2, 5, 6).double() if cross else None
    words = torch.arange(5 if cross else 4) < torch.tensor([[3], [4]])
    got = ours(x, memory, words[:, None], causal=causal)
    assert torch.allclose(got, theirs(x, memory, words[:, None], causal=causal), atol=1e-12)
    assert torch.allclose(ours(x, memory), theirs(x, memory), atol=1e-12)


def test_norm_think_and_positions_are_what_they_say():
    torch.manual_seed(0)
    parts, x = Parts(), torch.randn(2, 3, 4)
    norm, think = parts.norm(4), parts.think(4, 7)
    nn.init.normal_(norm.gain)
    assert torch.allclose(norm(x), nn.functional.layer_norm(x, (4,), norm.gain, norm.bias), atol=1e-6)
    assert torch.allclose(think(x), (x @ think.w_1 + think.b_1).relu() @ think.w_2 + think.b_2, atol=1e-6)
    assert parts.positions(x).dtype == x.dtype
    np.testing.assert_allclose(parts.positions(x), by_hand.sinusoidal(3, 4), atol=1e-6)
    assert parts.table(50, 64).weight.std().item() == pytest.approx(0.5 / 8, rel=0.1)


# --- own parts ----------------------------------------------------------------------------------------------


def notebook(folder, unit, *sources):
    cells = [{"cell_type": "code", "source": source, "metadata": {}} for source in sources]
    path = folder / f"{unit}_any_name.ipynb"
    path.write_text(json.dumps({"cells": cells}), encoding="utf-8")
    return path


def test_solved_notebooks_give_all_parts_and_untouched_ones_none(root):
    own, none = own_parts(root / "solutions"), own_parts(root / "exercises")
    assert [who for _, _, who in own.whose] == ["yours"] * len(WANTED)
    assert all(getattr(own, name).__module__ == "__main__" for name in WANTED)
    assert all(getattr(none, name) is getattr(Parts(), name) for name in WANTED)
    assert repr(none).count("is still empty") == len(WANTED) and "run this cell again" in repr(none)
    assert "run this cell again" not in repr(own)


def test_own_parts_make_the_same_model(root, monkeypatch):
    torch.manual_seed(0)
    theirs = u13.Translator(9, 8, 6, 3, 5).double()
    monkeypatch.setattr(u13, "parts", own_parts(root / "solutions"))
    ours = u13.Translator(9, 8, 6, 3, 5).double()
    load_into(ours, {name: p.detach().numpy() for name, p in theirs.named_parameters()})
    source, target = torch.tensor([[4, 5, 6], [7, 8, 0]]), torch.tensor([[1, 3], [1, 4]])
    assert torch.allclose(ours(source, target), theirs(source, target), atol=1e-10)


def test_nothing_but_definitions_is_run(tmp_path):
    trap = tmp_path / "ran"
    path = notebook(
        tmp_path, "06", "%matplotlib inline\nimport math\n!ls", f"open({str(trap)!r}, 'w')",
        "eps, low = 1e-5, float('-inf')", "half = lambda x: math.sqrt(x)", "slow = half(2)", "raise ValueError",
        "def f(x):\n    return half(x) + eps",
        "for i in range(3):\n    g = i", "this is no Python", "class C:\n    size = eps",
    )  # fmt: skip
    space = definitions(path)
    assert not trap.exists() and not {"slow", "g", "i"} & set(space)
    assert space["f"](4) == 2 + 1e-5 and space["C"].size == 1e-5 and space["low"] == -math.inf
    assert statements("x = (") == []


def test_a_learner_is_told_why_a_part_is_the_courses(tmp_path):
    exercise = exercises.find("07.2")
    imports = "import numpy as np\nfrom course_lib import masks"

    def why(*sources):
        notebook(tmp_path, "07", *sources)
        return find_part("07.2", tmp_path)

    assert find_part("07.2", tmp_path)[1] == "there is no notebook of unit 07 in this folder"
    assert why("x = 1")[1] == "07_any_name.ipynb has no see_the_past that can be read"
    assert why(imports, stub_source(exercise))[1] == "07.2 is still empty"
    wrong = "def see_the_past(T, S):\n    return np.tril(np.ones((T, S), dtype=bool), -1)"
    assert "has 0 of" in why(imports, wrong)[1]
    lent = "def see_the_past(T, S):\n    return masks.causal(T, S).numpy()"
    assert "wants your own code, and yours calls masks" in why(imports, lent)[1]
    (tmp_path / "07_any_name.ipynb").write_text("no notebook")
    assert find_part("07.2", tmp_path)[1] == "07_any_name.ipynb cannot be read as a notebook"
    helper = "def past(T, S):\n    return np.arange(S) <= np.arange(S - T, S)[:, None]"
    mine, reason = why(imports, "def see_the_past(T, S):\n    return past(T, S)", helper)
    assert reason == "" and mine(2, 3).tolist() == [[True, True, False], [True, True, True]]


def test_definitions_without_an_end_are_given_up(tmp_path, monkeypatch):
    limits = observe.within_limits
    monkeypatch.setattr(observe, "within_limits", lambda run, seconds=None: limits(run, 0.3))
    notebook(
        tmp_path,
        "07",
        "def forever(f):\n    while True:\n        pass",
        "@forever\ndef see_the_past(T, S):\n    return T",
    )
    assert find_part("07.2", tmp_path)[1] == "the definitions in 07_any_name.ipynb do not come to an end"


def test_where_answers_are_missing_the_courses_parts_stand_in(tmp_path, monkeypatch):
    monkeypatch.delattr(exercises, "find")
    assert "nothing here to check yours with" in find_part("06.8", tmp_path)[1]


# --- the file -----------------------------------------------------------------------------------------------


def test_a_model_survives_its_file(tmp_path, monkeypatch):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(3, 4), nn.Linear(4, 5)).double()
    monkeypatch.setenv("COURSE_HAND_IN", str(tmp_path))
    assert write_model(model) == tmp_path / FILE and [p.name for p in tmp_path.iterdir()] == [FILE]
    tensors = read_model()
    assert {name: (a.shape, a.dtype.name) for name, a in tensors.items()} == {
        "0.weight": ((3, 4), "float32"), "1.weight": ((5, 4), "float32"), "1.bias": ((5,), "float32"),
    }  # fmt: skip
    other = nn.Sequential(nn.Embedding(3, 4), nn.Linear(4, 5))
    load_into(other, tensors)
    assert torch.equal(other[1].weight.double(), model[1].weight.float().double())


def header(**entries):
    text = json.dumps(entries).encode()
    return struct.pack("<Q", len(text)) + text


ONE = save_arrays({"w": np.ones((2, 3), dtype=np.float32)})
BFLOAT16 = header(w={"dtype": "BF16", "shape": [1], "data_offsets": [0, 2]}) + b"ab"
OVERLONG = header(w={"dtype": "F32", "shape": [9], "data_offsets": [0, 36]}) + b"abcd"
MANY = save_arrays({f"w{i}": np.ones(1, dtype=np.float32) for i in range(handed_in.MOST_TENSORS + 1)})


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (b"", "is not a safetensors file"),
        (b"\x80\x04pickle me", "is not a safetensors file"),
        (struct.pack("<Q", 1 << 60) + b"{}", "is not a safetensors file"),
        (header(w=3), "is not a safetensors file"),
        (struct.pack("<Q", 90_000) + b"[" * 90_000, "is not a safetensors file"),
        (header(), "holds 0 tensors"),
        (MANY, "holds 401 tensors; 1 to 400 are read"),
        (ONE[:-4], "not a whole safetensors file"),
        (ONE + b"more", "not a whole safetensors file"),
        (OVERLONG, "not a whole safetensors file"),
        (BFLOAT16, "numbers of type BF16; save them as float32"),
        (save_arrays({"w": np.ones(1, dtype=np.int64)}), "numbers of type I64"),
        (save_arrays({"w" * 201: np.ones(1, dtype=np.float32)}), "at most 200 letters"),
        (save_arrays({"w": np.array([1, np.nan], dtype=np.float32)}), "NaN or infinity in w"),
        (bytes(handed_in.LARGEST_FILE + 1), "more than 8 MB"),
    ],
)
def test_a_bad_file_is_refused_in_words(tmp_path, content, match):
    (tmp_path / FILE).write_bytes(content)
    with pytest.raises(ValueError, match=match):
        read_model(tmp_path / FILE)


def test_only_a_plain_file_is_read(tmp_path):
    with pytest.raises(ValueError, match=r"There is no 13_model.safetensors beside the notebook yet"):
        read_model(tmp_path / FILE)
    (tmp_path / "real").write_bytes(ONE)
    assert list(read_model(tmp_path / "real")) == ["w"]
    (tmp_path / "folder").mkdir()
    for name, make in {"link": lambda p: p.symlink_to("real"), "pipe": os.mkfifo}.items():
        make(tmp_path / name)
    for name in ("folder", "link", "pipe"):
        with pytest.raises(ValueError, match=rf"{name} (cannot be read|is no plain file)"):
            read_model(tmp_path / name)


def test_tensors_that_do_not_fit_change_nothing():
    model = nn.Linear(2, 3)
    before = model.weight.detach().clone()
    full = {"weight": np.ones((3, 2), np.float32), "bias": np.ones(3, np.float32)}
    for tensors, match in (
        ({"weight": full["weight"]}, "bias is not in the file"),
        (full | {"more": np.ones(1)}, "more is in the file, but not in the model"),
        (full | {"bias": np.ones(1, np.float32)}, r"bias is \(1,\) in the file and \(3,\) in the model"),
        ({}, "weight is not in the file; bias is not in the file"),
    ):
        with pytest.raises(ValueError, match=match):
            load_into(model, tensors)
        assert torch.equal(model.weight, before)
    load_into(model, full)
    assert (model.weight == 1).all()


class Parrot(nn.Module):
    """Says 5, 6, … and ends after as many words as its source has."""

    def forward(self, source, target_in):
        logits = torch.zeros(*target_in.shape, 9)
        for row, length in enumerate((source != 0).sum(dim=1).tolist()):
            for place in range(target_in.shape[1]):
                logits[row, place, 2 if place == length else 5 + place] = 1
        return logits


def test_translations_end_each_for_itself():
    said = translate(Parrot(), torch.tensor([[7, 0, 0], [7, 7, 7]]), 6)
    assert said.tolist() == [[5, 2, 0, 0], [5, 6, 7, 2]]
    assert translate(Parrot(), torch.tensor([[7, 7, 7]]), 2).tolist() == [[5, 6]]


def test_every_seventh_number_is_held_back():
    assert held_back(45) and sum(map(held_back, range(700))) == 100
    with pytest.raises(ValueError, match="from 0 to 999,999; got 1000000"):
        held_back(1_000_000)


# --- what is graded -----------------------------------------------------------------------------------------


def test_unseen_numbers_are_held_back_and_follow_the_seed():
    numbers = u13.unseen(Draw(1), 100)
    assert len(set(numbers)) == 100 and all(map(held_back, numbers)) and numbers == u13.unseen(Draw(1), 100)
    assert sum(n < 1000 for n in numbers) == 25 and numbers != u13.unseen(Draw(2), 100)


def test_a_complaint_counts_exactly():
    numbers = u13.unseen(Draw(0), 40)
    (case, *_), complaint = HAND_IN.draw_cases(0), u13.too_few_right(numbers, 0.9)
    words = number_pairs("german", train=1, test=1)
    said = words.encode(numbers)[1][:, 1:].numpy()
    assert complaint(said) == ""
    spoiled = said.copy()
    spoiled[:4, 0] = 5
    assert complaint(spoiled) == ""
    spoiled[4, 0] = 99  # a token that is no word
    told = complaint(spoiled)
    assert "35 of 40 unseen numbers are right, 36 are needed" in told and f"For example, {numbers[0]} became" in told
    behind = np.concatenate([said, np.full((40, 1), 7)], axis=1)  # words after <eos> are not said
    assert complaint(np.where(behind == 0, 7, behind)) == ""
    for nonsense in (None, "x", said[0], said[:-1], said.astype(float), 3.0):
        assert "no translations" in complaint(nonsense)
    assert not right(case, Observation(), Observation(output=case.wanted))


def trained(steps=400):
    words = number_pairs("german", train=14_000, test=1)
    learn = [n for n in (*words.train_numbers, *4 * [*range(1000)]) if not held_back(n)]
    seed_all(0)
    model = u13.hand_in()
    pairs = batches(*words.encode(learn), 32, generator=generator(0), steps=steps)
    fit(model, pairs, TrainConfig(steps=steps, lr=5e-3, warmup=20, matmul="medium"), progress=False)
    return model


@pytest.fixture(scope="module")
def model_file(tmp_path_factory):
    return write_model(trained(), tmp_path_factory.mktemp("trained") / FILE)


def learners(source, name, **more):
    """What a learner wrote, as in a notebook."""
    space = dict(vars(u13)) | {"__name__": "__main__"} | more
    exec(source, space)
    return space[name]


@pytest.mark.parametrize("seed", [0, 1, 20_261])
def test_some_seconds_of_training_earn_all_points(model_file, seed):
    report = try_out(learners(answer_source(HAND_IN), "hand_in"), HAND_IN, seed, read_model(model_file))
    assert report.status == "passed" and report.points == HAND_IN.points == 6, report


def test_the_notebooks_check_reads_the_file_beside_it(model_file, monkeypatch, tmp_path):
    hand_in = learners(answer_source(HAND_IN), "hand_in")
    monkeypatch.chdir(tmp_path)
    empty = examine(learners(stub_source(HAND_IN), "hand_in"), HAND_IN)
    assert empty.status == "missing" and "Still empty" in empty.message
    absent = examine(hand_in, HAND_IN)
    assert absent.status == "missing" and "train your model first" in absent.message
    (tmp_path / FILE).write_bytes(model_file.read_bytes())
    assert examine(hand_in, HAND_IN).status == "passed"
    (tmp_path / FILE).write_bytes(model_file.read_bytes()[:-1])
    assert "not a whole safetensors file" in examine(hand_in, HAND_IN).message


def test_what_the_notebook_hands_over_may_be_used():
    words = number_pairs("german", train=1, test=1)
    source = "def hand_in():\n    return Translator(len(words.source_words), len(german), 64, 4, 256)"
    assert forbidden_use(HAND_IN, learners(source, "hand_in", words=words)) == ""
    lent = "def hand_in():\n    return number_vocabulary('german')"
    assert forbidden_use(HAND_IN, learners(lent, "hand_in")) == "number_vocabulary"
    assert {"own_parts", "number_pairs", "parts", "Translator"} <= given_names(HAND_IN)


@pytest.mark.parametrize(
    ("source", "match"),
    [
        ("def hand_in():\n    return Translator(len(english), len(german), 32, 4, 256)", "belongs to another model"),
        ("def hand_in():\n    return Translator", "a model is wanted, an nn.Module with parameters; got type"),
        ("def hand_in():\n    return None", "got NoneType"),
    ],
)
def test_a_model_that_does_not_fit_its_file_is_told(model_file, source, match):
    report = try_out(learners(source, "hand_in"), HAND_IN, 0, read_model(model_file))
    assert report.status == "error" and report.points == 0 and match in report.results[0].message


def test_a_model_that_knows_little_earns_what_it_knows(model_file):
    tensors = read_model(model_file)
    few = try_out(u13.hand_in, HAND_IN, 0, tensors | {"norm_7.gain": tensors["norm_7.gain"] * 0})
    assert few.status == "wrong" and few.points == 0
    assert "0 of 100 unseen numbers are right, 50 are needed" in few.results[0].message
    half = [replace_rows(case, 30) for case in with_file(HAND_IN.draw_cases(0), tensors)]
    report = judge(HAND_IN, half)
    assert [result.passed for result in report.results] == [True, False, False] and report.points == 2


def replace_rows(case, count):
    """The right words, but for the first rows."""
    said = case.wanted.numpy().copy()
    said[:count] = 5
    return Observation(output=said)


def test_no_answer_has_to_be_trained_to_be_judged():
    seen = observations_of("13.7", 5)
    assert judge(HAND_IN, seen, 5).status == "passed" and all(o.fault is None for o in seen)


def test_the_file_is_not_kept_by_git(root):
    assert FILE in (root / ".gitignore").read_text().split()


def test_a_validation_keeps_the_file_out_of_the_course(tmp_path):
    assert kernel_env(tmp_path)["COURSE_HAND_IN"] == str(tmp_path)
