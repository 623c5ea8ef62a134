"""What `course bench` says and how it judges; the figures themselves are no test's business."""

from __future__ import annotations

import argparse
import json

import pytest
import torch

from course_lib import bench
from course_lib.bench import Row


def parse(*words):
    parser = argparse.ArgumentParser()
    bench.add_arguments(parser)
    return parser.parse_args(words)


@pytest.mark.parametrize(
    "row, met, budget",
    [
        (Row("g", "n", 1.0, at_most=1.0), True, "≤ 1"),
        (Row("g", "n", 1.01, at_most=1.0), False, "≤ 1"),
        (Row("g", "n", 12.0, at_least=12.0), True, "≥ 12"),
        (Row("g", "n", 11.9, at_least=12.0), False, "≥ 12"),
        (Row("g", "n", 99.0), True, ""),
    ],
)
def test_a_row_knows_whether_its_budget_is_met(row, met, budget):
    assert row.met is met and row.budget == budget


def test_the_exit_code_the_table_and_the_json_agree(monkeypatch, tmp_path, capsys):
    rows = [Row("good", "fine", 0.5, at_most=1.0), Row("bad", "slow", 2.0, at_most=1.0)]
    monkeypatch.setattr(bench, "GROUPS", {r.group: lambda r=r: iter([r]) for r in rows})
    file = tmp_path / "bench.json"
    assert bench.main(parse("good")) == 0
    assert bench.main(parse("--json", str(file))) == 1
    out = capsys.readouterr().out
    assert "slow" in out and "BROKEN" in out and "2 figures, 1 over budget" in out
    assert [(r["name"], r["met"]) for r in json.loads(file.read_text())] == [("fine", True), ("slow", False)]
    with pytest.raises(ValueError, match="no group speed; there are: good, bad"):
        bench.main(parse("speed"))


def test_a_ratio_is_the_median_of_rounds_on_one_clock(monkeypatch):
    clock = {"now": 0.0, "rounds": 0}
    monkeypatch.setattr(bench.time, "perf_counter", lambda: clock["now"])

    def ours():
        clock["rounds"] += 1
        clock["now"] += 200.0 if clock["rounds"] == 5 else 2.0  # one hiccup

    def theirs():
        clock["now"] += 1.0

    assert bench.ratio(ours, theirs, budget_seconds=1.0) == 2.0


def test_peak_memory_counts_what_is_held_at_one_time():
    def one_after_the_other():
        for _ in range(3):
            torch.ones(1000, 1000)

    def together():
        return [torch.ones(1000, 1000) for _ in range(3)]

    assert bench.peak_bytes(one_after_the_other) == 4_000_000
    assert bench.peak_bytes(together) == 12_000_000


@pytest.mark.parametrize("masked", [False, True])
def test_the_formula_we_measure_against_is_the_same_formula(masked):
    q, k, v = torch.randn(2, 3, 5, 4), torch.randn(2, 3, 7, 4), torch.randn(2, 3, 7, 6)
    mask = torch.rand(5, 7) > 0.5 if masked else None
    if masked:
        mask[2] = False
    torch.testing.assert_close(bench.plain_formula(q, k, v, mask), bench.A.explicit(q, k, v, mask)[0])


def test_both_translators_of_the_step_compute_logits_of_one_shape():
    ours, theirs, source, target = bench.translators(6, 4, d_model=16, heads=2, d_ff=32)
    assert ours(source, target[:, :-1]).shape == theirs(source, target[:, :-1]).shape == (4, 6, 100)
