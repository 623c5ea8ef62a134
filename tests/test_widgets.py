"""Figures: the NumPy twin, what shows where no script runs, bad input; and the same numbers from JavaScript."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess

import numpy as np
import pytest

from course_lib import plots, widgets
from course_lib.by_hand import WORKED_EXAMPLE, attention, project

Q, K, V = project(*WORKED_EXAMPLE)
ALIGNMENT = [[0.1, 0.9], [0.5, 0.5], [0.8, 0.2]]
MAKE = {
    "SoftDictionary": lambda: widgets.SoftDictionary(
        ["a", "b", "c"], [[2, 0], [0, 2], [1, 1]], [1, 2, 3], [1, 0.5], 0.7
    ),
    "Arrows": lambda: widgets.Arrows([1.5, 0.5], [[1, 1], [-0.5, 1.2]]),
    "EditKV": lambda: widgets.EditKV(Q, K, V),
    "WeightedSum": lambda: widgets.WeightedSum(Q, K, V, ["1", "2", "3"]),
    "DecoderSteps": lambda: widgets.DecoderSteps(["forty", "five"], ["fünf", "und", "vierzig"], ALIGNMENT),
}
figures = pytest.mark.parametrize("name", MAKE)


@figures
def test_a_figure_has_a_picture_and_a_text_for_places_without_scripts(name):
    figure = MAKE[name]()
    data, metadata = figure._repr_mimebundle_()
    assert base64.b64decode(data["image/png"])[:8] == b"\x89PNG\r\n\x1a\n"
    assert data["text/plain"] == figure.alt() and len(figure.alt()) > 30 and metadata["image/png"]["alt"]
    assert "application/vnd.jupyter.widget-view+json" in data


def test_the_twins_compute_attention():
    figure = MAKE["EditKV"]()
    np.testing.assert_allclose(figure.numbers()["output"], attention(Q, K, V, scale=1.0))
    figure.v = (V + 1).tolist()
    np.testing.assert_allclose(figure.numbers()["output"], attention(Q, K, V + 1, scale=1.0))
    total = MAKE["WeightedSum"]()
    total.query = 2
    np.testing.assert_allclose(total.numbers()["output"], attention(Q, K, V, scale=1.0)[2])
    soft = MAKE["SoftDictionary"]()
    cold = soft.numbers()["value"]
    soft.temperature = 1e-3
    assert soft.numbers()["value"] == pytest.approx(1) != cold


def test_the_decoder_shows_rows_of_targets_and_columns_of_sources():
    steps = MAKE["DecoderSteps"]()
    steps.step = 2
    assert steps.numbers()["source"].tolist() == [0.8, 0.2] and steps.numbers()["target"].tolist() == [0, 0, 1]
    steps.chosen = ["source", 1]
    assert steps.numbers()["target"].tolist() == [0.9, 0.5, 0.2] and steps.numbers()["source"].tolist() == [0, 1]


SCRIPT = """
const source = process.argv[1], states = JSON.parse(process.argv[2]);
const { compute } = await import("data:text/javascript;base64," + source);
console.log(JSON.stringify(states.map(compute)));
"""


@pytest.mark.skipif(not shutil.which("node"), reason="no node on this machine; the browser suite compares them too")
@figures
def test_javascript_gives_the_same_numbers_as_numpy(name):
    figure, rng = MAKE[name](), np.random.default_rng(0)
    states, wanted = [], []
    for _ in range(20):
        for trait in ("q", "k", "v", "query", "key_vectors"):
            value = getattr(figure, trait, None)
            if isinstance(value, list):
                setattr(figure, trait, (rng.standard_normal(np.shape(value)) * 20).tolist())
        if name == "SoftDictionary":
            figure.temperature = float(rng.uniform(0.01, 50))
        if name == "WeightedSum":
            figure.query = int(rng.integers(3))
        if name == "DecoderSteps":
            figure.step = int(rng.integers(3))
            figure.chosen = [[], ["source", 1], ["target", 0]][int(rng.integers(3))]
        states.append({key: getattr(figure, key) for key in figure.traits(sync=True) if not key.startswith("_")})
        wanted.append(figure.numbers())
    states = [{k: v for k, v in s.items() if isinstance(v, (int, float, list, str))} for s in states]
    code = base64.b64encode(type(figure)._esm.encode() if isinstance(type(figure)._esm, str) else figure._esm.encode())
    run = subprocess.run(
        ["node", "--input-type=module", "-e", SCRIPT, code.decode(), json.dumps(states)],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    for got, want in zip(json.loads(run.stdout), wanted, strict=True):
        assert set(got) == set(want)
        for key in want:
            np.testing.assert_allclose(np.array(got[key]), want[key], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: widgets.SoftDictionary(["a"], [[1, 2], [3, 4]], [1], [0, 0]), "got 1, 2 and 1"),
        (lambda: widgets.SoftDictionary(["a"], [[1, 2]], [1], [0, 0], 0), "above 0; got 0"),
        (lambda: widgets.Arrows([1, 2, 3], [[1, 2]]), r"query should be a matrix .* 2 columns; got shape \(1, 3\)"),
        (lambda: widgets.Arrows([1, np.nan], [[1, 2]]), "finite numbers"),
        (lambda: widgets.EditKV(Q, K[:, :2], V), "q and k share their width"),
        (lambda: widgets.WeightedSum(Q, K, V, ["1"]), "one row each for every token"),
        (lambda: widgets.DecoderSteps(["a"], ["b"], ALIGNMENT), r"\(1, 1\); got \(3, 2\)"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_an_unknown_figure_is_named():
    with pytest.raises(AttributeError, match="no figure 'Nonsense'; there are: SoftDictionary"):
        _ = widgets.Nonsense


# --- still pictures


@pytest.mark.parametrize(
    "picture",
    [
        lambda: plots.weights(np.eye(3), ["a", "b", "c"], title="T"),
        lambda: plots.weights(np.ones((2, 3)) / 3, title="T", mask=np.array([[True, False, True]] * 2)),
        lambda: plots.bars([0.2, 0.8], ["a", "b"], title="T"),
        lambda: plots.arrows([1, 0], [[0, 1]], title="T"),
        lambda: plots.curves({"a": [3, 2, 1], "b": ([1, 2], [2, 2])}, title="T", xlabel="x", ylabel="y", alt="T falls"),
    ],
)
def test_a_picture_is_drawn_and_described(picture):
    made = picture()
    assert made.png()[:4] == b"\x89PNG" and made.alt.startswith("T")
    assert 'alt="T' in made._repr_html_() and repr(made) == made.alt


def test_weights_are_drawn_on_one_scale_with_named_axes():
    axes = plots.weights(np.eye(3) * 0.4, title="T").figure.axes[0]
    assert axes.images[0].get_clim() == (0, 1)
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("key (attended to)", "query (attends)")
    hidden = plots.weights(np.eye(2), title="T", mask=np.array([[True, False], [True, True]])).figure.axes[0]
    assert [patch.get_hatch() for patch in hidden.patches] == ["///"]
    with pytest.raises(ValueError, match=r"\(queries, keys\); got shape \(3,\)"):
        plots.weights(np.ones(3), title="T")
