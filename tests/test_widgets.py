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
HEADS = np.array([[[0.1, 0.9], [0.5, 0.5]], [[0.8, 0.2], [1.0, 0.0]], [[0.3, 0.7], [0.6, 0.4]]])
MAKE = {
    "Bottleneck": lambda: widgets.Bottleneck(
        [1, 2, 4], {"a": [1, 0.9, 0.2], "b": [1, 0.5, 0]}, {"c": [2, 1, 0.25], "d": [3, 0.3, 1e-4]}
    ),
    "MinimumSteps": lambda: widgets.MinimumSteps(["the", "chef", "who", "ran", "out", "was"], "window"),
    "SoftDictionary": lambda: widgets.SoftDictionary(
        ["a", "b", "c"], [[2, 0], [0, 2], [1, 1]], [1, 2, 3], [1, 0.5], 0.7
    ),
    "Arrows": lambda: widgets.Arrows([1.5, 0.5], [[1, 1], [-0.5, 1.2]]),
    "EditKV": lambda: widgets.EditKV(Q, K, V),
    "WeightedSum": lambda: widgets.WeightedSum(Q, K, V, ["1", "2", "3"]),
    "DecoderSteps": lambda: widgets.DecoderSteps(["forty", "five"], ["fünf", "und", "vierzig"], ALIGNMENT),
    "Reorder": lambda: widgets.Reorder(["a", "b", "c"], WORKED_EXAMPLE.x),
    "TokenPlane": lambda: widgets.TokenPlane(["a", "b", "c"], [[2, 0], [0, 0], [-1, 1]], "cosine"),
    "HeadExplorer": lambda: widgets.HeadExplorer(
        {"one": (["a", "b"], ["x", "y"], HEADS), "two": (["c"], ["x", "y"], HEADS[:, :1], [[True, False]])}
    ),
    "MaskPainter": lambda: widgets.MaskPainter(Q @ K.T, ["1", "2", "3"], real=[True, True, False]),
    "SinusoidImage": lambda: widgets.SinusoidImage(d_model=6, base=100.0, length=9, position=3),
    "DotsByDistance": lambda: widgets.DotsByDistance(d_model=8, base=50.0, look=3, head=1),
    "ScoreScale": lambda: widgets.ScoreScale(
        np.random.default_rng(0).standard_normal((5, 16)), np.random.default_rng(1).standard_normal((4, 16)), 8, 2.0
    ),
    "Translator": lambda: widgets.Translator(
        lambda number: (
            ["forty", "five"],
            ["fünf", "und", "vierzig"],
            np.random.default_rng(number).random((2, 3, 3, 2)),
        )
    ),
    "DataFlow": lambda: widgets.DataFlow(
        [
            ("encoder", "words", "BS", [[7, 9]]),
            ("encoder", "memory", "BSD", np.random.default_rng(0).standard_normal((2, 3, 4))),
            ("decoder", "weights", "BHTS", np.random.default_rng(1).random((2, 3, 9, 4))),
        ]
    ),
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


def test_the_scale_figure_keeps_its_spread_when_the_temperature_is_the_root():
    rng = np.random.default_rng(0)
    figure = widgets.ScoreScale(rng.standard_normal((16, 256)), rng.standard_normal((8, 256)), d_k=16, temperature=4)
    narrow = figure.numbers()
    figure.d_k = 256
    bare = figure.numbers()
    figure.temperature = 16.0
    wide = figure.numbers()
    assert narrow["spread"] == pytest.approx(1, abs=0.2) and wide["spread"] == pytest.approx(1, abs=0.2)
    assert bare["entropy"][1] < wide["entropy"][1] <= np.log(8) and bare["gradient"][1] < wide["gradient"][1]
    assert narrow["histogram"].sum() == wide["histogram"].sum() == 16 * 8


def test_the_decoder_shows_rows_of_targets_and_columns_of_sources():
    steps = MAKE["DecoderSteps"]()
    steps.step = 2
    assert steps.numbers()["source"].tolist() == [0.8, 0.2] and steps.numbers()["target"].tolist() == [0, 0, 1]
    steps.chosen = ["source", 1]
    assert steps.numbers()["target"].tolist() == [0.9, 0.5, 0.2] and steps.numbers()["source"].tolist() == [0, 1]


def test_reordered_tokens_keep_their_vectors_and_places_do_not():
    reorder = MAKE["Reorder"]()
    before = reorder.numbers()
    reorder.order = order = [2, 0, 1]
    now = reorder.numbers()
    np.testing.assert_allclose(now["weights"], before["weights"][order][:, order])
    np.testing.assert_allclose(now["output"], attention(*[WORKED_EXAMPLE.x] * 3, scale=1.0)[order])
    assert before["by_place"] == 0 and now["by_token"] < 1e-12 and now["by_place"] > 0.5


def test_the_plane_compares_tokens_by_three_measures():
    plane = MAKE["TokenPlane"]()
    root = np.sqrt(0.5)
    np.testing.assert_allclose(plane.numbers()["scores"], [[1, 0, -root], [0, 0, 0], [-root, 0, 1]], atol=1e-12)
    plane.measure = "dot product"
    assert plane.numbers()["scores"].tolist() == [[4, 0, -2], [0, 0, 0], [-2, 0, 2]]
    plane.measure = "distance"
    assert plane.numbers()["scores"].tolist() == [[0, -2, -5], [-2, 0, -1], [-5, -1, 0]]


def test_the_head_explorer_shows_one_head_or_the_mean_of_all():
    explorer = MAKE["HeadExplorer"]()
    explorer.head, explorer.query = 1, 1
    assert explorer.numbers()["weights"].tolist() == [1, 0] and "attends most to “x” (1.00)" in explorer.alt()
    explorer.head = 3  # after the last head: the mean
    np.testing.assert_allclose(explorer.numbers()["weights"], [0.7, 0.3])
    assert "mean of the heads" in explorer.alt()
    explorer.layer = 1  # has one word only: the nearest is shown
    np.testing.assert_allclose(explorer.numbers()["heads"], [[0.1, 0.9], [0.8, 0.2], [0.3, 0.7]])


def test_the_leak_meter_counts_weights_on_later_keys_only():
    painter = MAKE["MaskPainter"]()
    weights = painter.numbers()["weights"]
    np.testing.assert_allclose(painter.numbers()["leak"], [weights[0, 1] + weights[0, 2], weights[1, 2], 0])
    painter.mask = np.tri(3, k=-1, dtype=bool).tolist()  # strictly the past: the first query sees nothing
    now = painter.numbers()
    assert now["leak"].tolist() == [0, 0, 0] and now["empty"].tolist() == [1, 0, 0]
    assert now["weights"][0].tolist() == [0, 0, 0] and now["weights"].sum() == pytest.approx(2)


def test_the_translator_asks_the_kernel_and_says_what_went_wrong():
    def translate(number):
        if number > 99:
            raise ValueError(f"{number} is too large")
        return ["a"], ["b", "c"], np.full((1, 2, 2, 1), number / 100)

    figure = widgets.Translator(translate, number=45)
    figure.number = 50
    assert figure.numbers()["map"].tolist() == [[0.5], [0.5]] and figure.note == ""
    figure.number = 100
    assert figure.note == "100 is too large" and figure.numbers()["map"].tolist() == [[0.5], [0.5]]
    figure.number = 7
    assert figure.note == "" and figure.weights[0][1] == [[0.07], [0.07]]


def test_the_data_flow_keeps_the_whole_shape_and_a_corner_of_the_numbers():
    figure = MAKE["DataFlow"]()
    figure.chosen = 2
    now = figure.numbers()
    assert now["shape"].tolist() == [2, 3, 9, 4] and now["count"] == 216 and now["values"].shape == (8, 4)
    assert "memory (encoder) (B, S, D) = (2, 3, 4)" in figure.alt()


def test_the_bottleneck_says_what_is_left_and_the_factor_per_word():
    figure = MAKE["Bottleneck"]()
    assert figure.numbers()["share"].tolist() == figure.numbers()["factor"].tolist() == [1, 1]
    figure.place = 2  # three words more than the first
    now = figure.numbers()
    assert now["accuracy"].tolist() == [0.2, 0] and now["share"][0] == 0.125
    assert now["factor"][0] == pytest.approx(0.5)


@pytest.mark.parametrize("kind", ["rnn", "window", "attention"])
def test_minimum_steps_and_counts_are_the_librarys(kind):
    from course_lib import rnn

    figure = MAKE["MinimumSteps"]()
    figure.kind = kind
    for figure.length, figure.layers, figure.window in [(2, 1, 3), (5, 3, 3), (6, 2, 5)]:
        figure.chosen = [figure.layers, 0]
        now = figure.numbers()
        assert now["steps"].tolist() == rnn.minimum_steps(kind, figure.length, figure.layers).tolist()
        assert now["counts"].tolist() == list(rnn.counts(kind, figure.length, figure.window))


@pytest.mark.parametrize(
    "kind, wanted",
    [
        ("rnn", [[1, 1, 1, 0, 0], [1, 1, 1, 0, 0], [1, 1, 1, 0, 0]]),
        ("window", [[1, 1, 1, 1, 1], [0, 1, 1, 1, 0], [0, 0, 1, 0, 0]]),
        ("attention", [[1, 1, 1, 1, 1], [1, 1, 1, 1, 1], [0, 0, 1, 0, 0]]),
    ],
)
def test_a_state_knows_what_it_was_made_of(kind, wanted):
    figure = widgets.MinimumSteps(list("abcde"), kind)
    figure.chosen = [2, 2]
    assert figure.numbers()["known"].tolist() == wanted
    figure.chosen, figure.clock = [0, 3], 1
    assert figure.numbers()["known"].tolist() == [[0, 0, 0, 1, 0], [0] * 5, [0] * 5]
    assert figure.numbers()["done"].sum() == 5 + (1 if kind == "rnn" else 5)


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
        if name == "Bottleneck":
            figure.place = int(rng.integers(3))
        if name == "MinimumSteps":
            figure.kind, figure.window = ("rnn", "window", "attention")[int(rng.integers(3))], int(rng.choice([3, 5]))
            figure.length, figure.layers = int(rng.integers(2, 7)), int(rng.integers(1, 7))
            figure.clock = int(rng.integers(12))
            figure.chosen = [int(rng.integers(figure.layers + 1)), int(rng.integers(figure.length))]
        if name == "SoftDictionary":
            figure.temperature = float(rng.uniform(0.01, 50))
        if name == "WeightedSum":
            figure.query = int(rng.integers(3))
        if name == "ScoreScale":
            figure.d_k, figure.temperature = int(rng.integers(1, 17)), float(rng.uniform(0.25, 64))
        if name == "DecoderSteps":
            figure.step = int(rng.integers(3))
            figure.chosen = [[], ["source", 1], ["target", 0]][int(rng.integers(3))]
        if name in ("Reorder", "TokenPlane"):
            figure.vectors = (rng.standard_normal(np.shape(figure.vectors)) * 20).tolist()
        if name == "Reorder":
            figure.order = rng.permutation(3).tolist()
        if name == "TokenPlane":
            figure.vectors = [[0.0, 0.0], *figure.vectors[1:]]  # a token dragged to the origin has no direction
            figure.measure = ["dot product", "cosine", "distance"][int(rng.integers(3))]
        if name in ("SinusoidImage", "DotsByDistance"):
            figure.d_model, figure.base = 2 * int(rng.integers(1, 33)), float(10 ** rng.uniform(0.3, 5))
        if name == "DotsByDistance":
            figure.look, figure.head = int(rng.integers(61)), int(rng.integers(1, 9))
        if name == "HeadExplorer":
            figure.layer, figure.head, figure.query = (int(rng.integers(n)) for n in (2, 4, 2))
        if name == "MaskPainter":
            figure.scores = (rng.standard_normal((3, 3)) * 200).tolist()
            figure.mask = (rng.random((3, 3)) < 0.5).tolist()  # empty rows among them
        if name == "Translator":
            figure.number, figure.layer, figure.head = (
                int(rng.integers(99)),
                int(rng.integers(2)),
                int(rng.integers(-1, 3)),
            )
        if name == "DataFlow":
            figure.chosen = int(rng.integers(3))
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
        (lambda: widgets.Bottleneck([2, 1], {"a": [1, 0]}, {"b": [1, 1]}), r"none twice; got \[2, 1\]"),
        (lambda: widgets.Bottleneck([1, 2], {"a": [1]}, {"b": [1, 1]}), r"2 columns; got shape \(1, 1\)"),
        (lambda: widgets.Bottleneck([1, 2], {"a": [1, 0]}, {"b": [1, 0]}), "gradients of 0 or less"),
        (lambda: widgets.Bottleneck([1, 2], {n: [1, 0] for n in "abcde"}, {"b": [1, 1]}), "got 5 and 1"),
        (lambda: widgets.MinimumSteps(["a", "b"], "cnn"), "rnn, window, attention; got 'cnn'"),
        (lambda: widgets.MinimumSteps(["a"]), "2 to 14 words; got 1"),
        (lambda: widgets.MinimumSteps(["a", "b"], layers=7), "1 to 6 layers; got 7"),
        (lambda: widgets.MinimumSteps(["a", "b"], window=4), "3, 5 or 7; got 4"),
        (lambda: widgets.SoftDictionary(["a"], [[1, 2], [3, 4]], [1], [0, 0]), "got 1, 2 and 1"),
        (lambda: widgets.SoftDictionary(["a"], [[1, 2]], [1], [0, 0], 0), "above 0; got 0"),
        (lambda: widgets.Arrows([1, 2, 3], [[1, 2]]), r"query should be a matrix .* 2 columns; got shape \(1, 3\)"),
        (lambda: widgets.Arrows([1, np.nan], [[1, 2]]), "finite numbers"),
        (lambda: widgets.EditKV(Q, K[:, :2], V), "q and k share their width"),
        (lambda: widgets.WeightedSum(Q, K, V, ["1"]), "one row each for every token"),
        (lambda: widgets.DecoderSteps(["a"], ["b"], ALIGNMENT), r"\(1, 1\); got \(3, 2\)"),
        (lambda: widgets.ScoreScale(np.ones((2, 3)), np.ones((2, 4))), "equally wide; got 3 and 4"),
        (lambda: widgets.ScoreScale(np.ones((2, 3)), np.ones((2, 3)), d_k=4), "width of the keys, 3; got 4"),
        (lambda: widgets.ScoreScale(np.ones((2, 3)), np.ones((2, 3)), 2, 0.0), "above 0; got 0.0"),
        (lambda: widgets.Reorder(["a"], [[1, 2], [3, 4]]), "Each token needs a vector; got 1 and 2"),
        (lambda: widgets.TokenPlane(["a"], [[1, 2, 3]]), r"vectors should be .* 2 columns; got shape \(1, 3\)"),
        (lambda: widgets.TokenPlane(["a"], [[1, 2]], "taste"), "one of dot product, cosine, distance; got 'taste'"),
        (lambda: widgets.SinusoidImage(d_model=7), "even, 2 to 64: .* got 7"),
        (lambda: widgets.SinusoidImage(position=50), "0 to 49; got 50"),
        (lambda: widgets.DotsByDistance(base=1), "above 1 .* got 1"),
        (lambda: widgets.DotsByDistance(head=9), "1 to 8; got 9"),
        (lambda: widgets.HeadExplorer({}), "at least one layer"),
        (lambda: widgets.HeadExplorer({"a": (["x"], ["y"], HEADS)}), r"\(1, 1\); got \[\(2, 2\)\]"),
        (lambda: widgets.HeadExplorer({"a": ("xy", "xy", HEADS)}, head=4), "0 to 3, the mean; got 4"),
        (lambda: widgets.MaskPainter(Q, ["1", "2"]), r"\(2, 2\); got \(3, 3\)"),
        (lambda: widgets.MaskPainter(Q, ["1", "2", "3"], mask=np.ones((3, 3))), "boolean, .* got float64"),
        (lambda: widgets.Translator(lambda n: (["a"], ["b"], ALIGNMENT)), r"\(…, …, 1, 1\); got \(3, 2\)"),
        (lambda: widgets.DataFlow([("encoder", "words", "BSD", [[1, 2]])]), r"axes BSD.* got shape \(1, 2\)"),
        (lambda: widgets.DataFlow([]), "no block to show"),
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
        lambda: plots.histogram({"a": [1.0, -2.0], "b": [0.5]}, title="T", xlabel="x", alt="T is wide"),
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
