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
    "DepthGradient": lambda: widgets.DepthGradient(depth=3, residual=True, norm="pre"),
    "NormRow": lambda: widgets.NormRow([1, 3, 5, 7], gain=2.0, bias=-1.0),
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
    "PatternExplorer": lambda: widgets.PatternExplorer(24, size=3, radius=1, global_blocks=1, random_blocks=1),
    "OnlineSoftmax": lambda: widgets.OnlineSoftmax([2, 4, 4, 1, 7], [[1, 2], [2, 8], [2, 6], [0, 3], [5, 0]], tile=2),
    "CostCurves": lambda: widgets.CostCurves(512, 1000, 128),
    "NextToken": lambda: widgets.NextToken(
        list("abcde"), {"x": [2.0, 1.0, 0.5, 0.0, -3.0], "y": np.random.default_rng(2).standard_normal(5) * 3}, 0.7, 3
    ),
    "KeyValueCache": lambda: widgets.KeyValueCache(layers=3, d_model=16, prompt=2, step=3, band=3),
    "Budget": lambda: widgets.Budget(
        [("small", 1000, 2, 6, 10, 3, 5, 20), ("large", 10**7, 12, 512, 2048, 8, 64, 37_000)], 1e9, batch=8
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


def test_the_gradient_of_the_depth_figure_is_torchs():
    torch = pytest.importorskip("torch")
    from course_lib.widgets import depth

    x, top, blocks = depth._draw(3)
    for residual, norm in ((r, n) for r in (False, True) for n in depth.NORMS):
        figure = widgets.DepthGradient(7, residual, norm, gain=1.5, seed=3)
        states = [torch.tensor(x, requires_grad=True)]
        for w_1, w_2 in blocks[:7]:
            here = states[-1]
            inside = torch.nn.functional.layer_norm(here, (8,)) if norm == "pre" else here
            out = torch.relu(inside @ torch.tensor(1.5 * w_1)) @ torch.tensor(1.5 * w_2)
            out = out + here if residual else out
            states.append(torch.nn.functional.layer_norm(out, (8,)) if norm == "post" else out)
            states[-1].retain_grad()
        states[-1].backward(torch.tensor(top))
        sizes = np.array([float(s.grad.norm()) for s in states])
        np.testing.assert_allclose(figure.numbers()["gradient"], np.log10(sizes / sizes[-1]), atol=1e-9)


def test_depth_starves_a_bare_stack_and_norms_free_it_from_the_size_of_its_weights():
    for seed in range(3):
        now = widgets.DepthGradient(seed=seed).numbers()
        assert now["bottom"][0, 0] < -14 and np.abs(now["bottom"][1]).max() < 1  # no residual, no norm; residual
        assert now["alike"][0].min() > now["alike"][1].max()  # without residuals the tokens become one
        large = widgets.DepthGradient(residual=True, norm="pre", gain=3.0, seed=seed).numbers()
        assert large["bottom"][1, 0] > 6 and abs(large["bottom"][1, 1]) < 2


def test_a_normed_row_has_the_mean_of_its_bias_and_the_variance_of_its_gain():
    now = MAKE["NormRow"]().numbers()
    np.testing.assert_allclose(now["normal"], np.array([-3, -1, 1, 3]) / 5**0.5, atol=1e-5)
    np.testing.assert_allclose([*now["mean"], *now["variance"]], [4, -1, 5, 4], atol=1e-4)
    assert widgets.NormRow([2, 2, 2]).numbers()["output"].tolist() == [0, 0, 0]  # ε keeps 0 / 0 away


def test_the_budget_counts_what_a_step_keeps():
    figure = widgets.Budget([("small", 1000, 2, 6, 10, 3, 5, 20)], 1e6, batch=8)
    plain = figure.numbers()
    one_layer = 4 * (8 * 6 + 10 + 3 + 4)
    assert plain["bytes"].tolist() == [4000, 4000, 8000, 8 * 5 * 2 * one_layer, 8 * 5 * 20 * 4] and plain["work"] == 1
    figure.parts = 3  # three sentences at a time
    assert figure.numbers()["bytes"].tolist() == [4000, 4000, 8000, 3 * 5 * 2 * one_layer, 3 * 5 * 20 * 4]
    figure.parts, figure.again = 1, True
    assert figure.numbers()["bytes"][3] == 8 * 5 * (one_layer + 4 * 6) and figure.numbers()["work"] == 4 / 3
    figure.again, figure.precision = False, "bfloat16"
    half = figure.numbers()["bytes"]
    assert half[0] == 6000 and plain["bytes"][3] / 2 < half[3] < plain["bytes"][3] and half[4] == plain["bytes"][4]
    assert "kept by the layers" in figure.alt() and "of 1.0 MB in all" in figure.alt()


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


def test_the_pattern_explorer_draws_the_librarys_masks():
    from course_lib import masks

    figure = widgets.PatternExplorer(24, radius=3)
    assert ((figure.kinds(24) > 0) == masks.window(24, 3).numpy()).all() and figure.numbers()["layers"] == 8
    figure.global_blocks = 2
    both = masks.window(24, 3) | masks.global_tokens(24, 2)
    now = figure.numbers()
    assert ((now["kinds"] > 0) == both.numpy()).all() and now["pairs"] == int(both.sum()) and now["layers"] == 2
    figure.size, figure.radius = 4, 1
    layout = masks.window(6, 1) | masks.global_tokens(6, 2)
    assert ((figure.kinds(24) > 0) == masks.block(layout, 4).numpy()).all()
    figure.causal = True
    assert ((figure.kinds(24) > 0) == (masks.block(layout, 4) & masks.causal(24)).numpy()).all()


def test_random_blocks_are_so_many_in_each_row_and_others_with_another_seed():
    figure = widgets.PatternExplorer(40, radius=0, random_blocks=3)
    drawn = figure.kinds(40) == 3
    assert set(drawn.sum(axis=1).tolist()) <= {2, 3} and drawn.sum() > 100  # one may fall on the diagonal
    figure.seed = 1
    assert (drawn != (figure.kinds(40) == 3)).any()
    figure.random_blocks, figure.radius = 0, 0
    assert figure.numbers()["layers"] == -1 and "no number of layers" in figure.alt()


def test_the_online_softmax_ends_at_the_softmax_only_when_it_rescales():
    figure = MAKE["OnlineSoftmax"]()
    figure.step = 3
    now = figure.numbers()
    np.testing.assert_allclose(now["output"], now["exact"])
    assert now["top"].tolist() == [4, 4, 7] and now["factor"][0] == 0 and now["factor"][1] == 1
    figure.rescale = False
    assert abs(figure.numbers()["output"] - now["exact"]).max() > 0.5
    figure.step = 9  # there are three tiles only
    assert len(figure.numbers()["top"]) == 3


def test_the_cost_curves_are_the_formulas():
    figure = widgets.CostCurves(1000, 1000, 100)
    now = figure.numbers()
    assert now["costs"].tolist() == [2e9, 1.1e9, 1e9, 3e9] and now["share"] == 0.5 and now["bytes"] == 4_000_000
    assert now["growth"].tolist() == [3, 2, 2, 2] and now["steps"].tolist() == [1, 1, 1000, 1]


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
        if name == "DepthGradient":
            figure.depth, figure.residual = int(rng.integers(1, 33)), bool(rng.integers(2))
            figure.norm, figure.gain = ("none", "pre", "post")[int(rng.integers(3))], float(rng.uniform(1, 3))
            figure.seed = int(rng.integers(100))
        if name == "NormRow":
            figure.row = rng.choice([np.full(4, 2.5), rng.uniform(-10, 10, 4)]).tolist()  # equal numbers among them
            figure.gain, figure.bias = (float(v) for v in rng.uniform(-2, 2, 2))
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
        if name == "PatternExplorer":
            figure.length, figure.size, figure.radius = (int(rng.integers(*n)) for n in ((8, 40), (1, 6), (0, 4)))
            figure.global_blocks, figure.random_blocks = int(rng.integers(3)), int(rng.integers(4))
            figure.causal, figure.seed = bool(rng.random() < 0.4), int(rng.integers(9))
            figure.chosen = rng.integers(0, figure.length, 2).tolist()
        if name == "OnlineSoftmax":
            figure.scores = (rng.standard_normal(5) * 200).tolist()
            figure.tile, figure.step, figure.rescale = (
                int(rng.integers(1, 6)),
                int(rng.integers(1, 6)),
                bool(rng.random() < 0.7),
            )
        if name == "CostCurves":
            figure.length, figure.width, figure.few = (int(2 ** rng.uniform(4, 13)) for _ in range(3))
        if name == "NextToken":
            figure.text, figure.top_k = int(rng.integers(2)), int(rng.integers(6))
            figure.temperature, figure.luck = float(rng.choice([0, 0.1, 1, 3])), float(rng.random())
        if name == "KeyValueCache":
            figure.layers, figure.prompt, figure.step = (int(rng.integers(1, n)) for n in (7, 9, 13))
            figure.band, figure.cached = int(rng.choice([0, 2, 5])), bool(rng.integers(2))
            figure.step *= int(rng.integers(2))  # the prompt itself is a step, too
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


def test_the_next_token_is_drawn_by_temperature_and_top_k():
    figure = MAKE["NextToken"]()
    figure.temperature, figure.top_k = 1.0, 2
    now = figure.numbers()
    np.testing.assert_allclose(now["p"], [np.e / (1 + np.e), 1 / (1 + np.e), 0, 0, 0])
    figure.luck = 0.99
    assert figure.numbers()["drawn"] == 1 and figure.numbers()["kept"] == 2
    figure.temperature = 0.0
    assert figure.numbers()["p"].tolist() == [1, 0, 0, 0, 0] and figure.numbers()["drawn"] == 0
    figure.temperature, figure.top_k = 1000.0, 0
    assert figure.numbers()["equal"] == pytest.approx(5, abs=1e-2)


def test_the_cache_figure_counts_as_the_library_does():
    import torch

    from course_lib.gpt import GPT, GPTConfig

    figure = MAKE["KeyValueCache"]()
    model = GPT(GPTConfig(vocab=9, max_length=8, d_model=16, heads=2, layers=3, band=3))
    _, past = model(torch.zeros(1, 2, dtype=torch.long))
    for _ in range(3):
        _, past = model(torch.zeros(1, 1, dtype=torch.long), past)
    assert figure.numbers()["bytes"] == sum(t.numel() * t.element_size() for kv in past for t in kv)
    assert figure.numbers()["grid"].tolist() == [[2, 2, 2, 2, 1], [3, 3, 2, 2, 1], [2, 2, 2, 2, 1]]
    assert figure.numbers()["total"] == 5
    figure.cached = False
    assert (figure.numbers()["now"], figure.numbers()["total"], figure.numbers()["bytes"]) == (5, 2 + 3 + 4 + 5, 0)


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
        (lambda: widgets.DepthGradient(depth=33), "1 to 32 blocks; got 33"),
        (lambda: widgets.DepthGradient(norm="batch"), "none, pre, post; got 'batch'"),
        (lambda: widgets.DepthGradient(gain=4), "1 to 3 times torch's; got 4"),
        (lambda: widgets.NormRow([1]), r"two to six numbers from -10 to 10; got \[1.0\]"),
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
        (lambda: widgets.PatternExplorer(200), "8 to 96 words; got 200"),
        (lambda: widgets.PatternExplorer(16, size=0), "1 to 16 words; got 0"),
        (lambda: widgets.PatternExplorer(16, radius=-1), "got -1, 0 and 0"),
        (lambda: widgets.OnlineSoftmax([1, 2], [[1]]), "one value for each score; got 2 and 1"),
        (lambda: widgets.OnlineSoftmax([1, 2], [[1], [2]], tile=3), "1 to 2 keys; got 3"),
        (lambda: widgets.OnlineSoftmax([1, 2], [[1], [2]], step=0), "first step is 1; got 0"),
        (lambda: widgets.CostCurves(width=0), "width should be 1 to 131072; got 0"),
        (lambda: widgets.NextToken(["a"], {}), "no text to go on from"),
        (lambda: widgets.NextToken(["a"], {"x": [1, 2]}), "Each token needs a logit; got 1 and 2"),
        (lambda: widgets.NextToken(["a"], {"x": [1]}, temperature=-1), "0 or above, and finite; got -1"),
        (lambda: widgets.NextToken(["a"], {"x": [1]}, top_k=2), "to 1; got 2"),
        (lambda: widgets.KeyValueCache(layers=7), "1 to 6 layers, 1 to 8 tokens; got 7 and 4"),
        (lambda: widgets.KeyValueCache(step=13), "to 12; got 13"),
        (lambda: widgets.KeyValueCache(band=1), r"0 \(none\) or 2 to 8; got 1"),
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
