"""Decoding: against plain Python on a model small enough to try every sentence, and by its properties."""

from __future__ import annotations

import itertools
import math
from functools import partial
from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from course_lib import decoding
from course_lib.decoding import beam, filter_logits, greedy, hypotheses, sample

PAD, BOS, EOS = 0, 1, 2
VOCAB, WIDTH = 5, 4


class State(NamedTuple):
    """As in the course's models: tensors, batch first, nested, with None where there is nothing yet."""

    seen: Tensor
    nested: tuple[Tensor, None]


class Toy(nn.Module):
    """h ← tanh(A h + E[token] + c), logits = W h: every token ever read counts. c comes from the source."""

    def __init__(self, seed: int = 0, vocab: int = VOCAB, sharpness: float = 2.0, eos_bias: float = 0.0):
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        shapes = {"a": (WIDTH, WIDTH), "e": (vocab, WIDTH), "s": (9, WIDTH), "w": (WIDTH, vocab)}
        for name, size in shapes.items():
            weights = torch.randn(*size, generator=generator, dtype=torch.float64)
            self.register_parameter(name, nn.Parameter(weights * (sharpness if name == "w" else 1.0)))
        self.eos_bias = eos_bias
        self.dropout = nn.Dropout(0.5)
        self.modes: list[tuple[bool, bool]] = []
        self.fed: list[list[int]] = []

    def start(self, source: Tensor) -> State:
        return State(self.s[source].mean(dim=1) * 0, (self.s[source].mean(dim=1), None))

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        self.modes.append((self.training, torch.is_grad_enabled()))
        self.fed.append(list(tokens.shape))
        h, c = state.seen, state.nested[0]
        for token in tokens.unbind(1):
            h = torch.tanh(h @ self.a + self.e[token] + c)
        logits = self.dropout(h @ self.w)
        logits[:, EOS] += self.eos_bias
        return logits, State(h, state.nested)


class Language(Toy):
    """The same without a source; with `max_length`, positions are learned and there are only so many."""

    def __init__(self, max_length: int | None = None, **more):
        super().__init__(**more)
        self.max_length = max_length

    def start(self, batch: int) -> State:
        nothing = torch.zeros(batch, WIDTH, dtype=torch.float64)
        return State(nothing, (nothing, None))


def log_probabilities(model: Toy, source: list[int] | None, tokens: tuple[int, ...]) -> np.ndarray:
    """log p of the next token after `tokens`, by NumPy."""
    a, e, s, w = (getattr(model, name).detach().numpy() for name in "aesw")
    h, c = np.zeros(WIDTH), s[source].mean(axis=0) if source is not None else np.zeros(WIDTH)
    for token in tokens:
        h = np.tanh(h @ a + e[token] + c)
    logits = h @ w
    logits[EOS] += model.eos_bias
    return logits - logits.max() - math.log(np.exp(logits - logits.max()).sum())


def score(model: Toy, source: list[int], sentence: tuple[int, ...], alpha: float) -> float:
    total = sum(
        log_probabilities(model, source, (BOS, *sentence[:place]))[token] for place, token in enumerate(sentence)
    )
    return total / ((5 + len(sentence)) / 6) ** alpha


def plain_greedy(model: Toy, source: list[int] | None, prompt: tuple[int, ...], length: int) -> tuple[int, ...]:
    said: tuple[int, ...] = ()
    while len(said) < length and EOS not in said:
        said += (int(log_probabilities(model, source, prompt + said).argmax()),)
    return said


def plain_beam(model: Toy, source: list[int], width: int, length: int, alpha: float) -> list[tuple[float, tuple]]:
    """Lists of (log-probability, sentence): the rule of the docstring, for one source at a time."""
    alive, done = [(0.0, ())], []
    for _ in range(length):
        longer = [
            (total + float(more), (*sentence, token))
            for total, sentence in alive
            for token, more in enumerate(log_probabilities(model, source, (BOS, *sentence)))
        ]
        best = sorted(longer, reverse=True)[: width - len(done)]
        alive = [item for item in best if item[1][-1] != EOS]
        done += [item for item in best if item[1][-1] == EOS]
    answer = done or alive
    return sorted(((total / ((5 + len(s)) / 6) ** alpha, s) for total, s in answer), reverse=True)


def sentence_of(row: Tensor) -> tuple[int, ...]:
    """Up to and with EOS; behind it there must be nothing but PAD."""
    tokens = row.tolist()
    if EOS not in tokens:
        return tuple(tokens)
    end = tokens.index(EOS) + 1
    assert set(tokens[end:]) <= {PAD}
    return tuple(tokens[:end])


SOURCES = torch.tensor([[3, 4, 8], [5, 5, 5], [7, 3, 0], [8, 1, 2], [6, 4, 6], [2, 7, 3]])


# --- Greedy -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("check_every", [1, 3, 8, 100])
def test_greedy_takes_the_most_probable_token_each_time(seed, check_every):
    model = Toy(seed, eos_bias=1.0)
    tokens_BT = greedy(model, SOURCES, max_length=9, check_every=check_every)
    expected = [plain_greedy(model, source, (BOS,), 9) for source in SOURCES.tolist()]
    assert [sentence_of(row)[: len(e)] for row, e in zip(tokens_BT, expected, strict=True)] == expected
    assert tokens_BT.shape == (6, max(map(len, expected))), "as wide as the longest, however often one looks"
    assert tokens_BT.dtype == torch.long


def test_rows_end_at_different_times_and_none_stops_the_others():
    model = Toy(1, eos_bias=1.0)
    lengths = {len(sentence_of(row)) for row in greedy(model, SOURCES, max_length=12)}
    assert len(lengths) > 2, "or the tests here would prove little"


def test_greedy_reads_every_token_once_and_stops_soon_after_the_last_row():
    model = Toy(1, eos_bias=1.0)
    tokens_BT = greedy(model, SOURCES, max_length=500, check_every=4)
    assert tokens_BT.shape[1] < 20
    assert model.fed == [[6, 1]] * (4 * math.ceil(tokens_BT.shape[1] / 4))


def test_a_row_does_not_depend_on_the_others_in_its_batch():
    model = Toy(2, eos_bias=1.0)
    for search in (greedy, partial(beam, width=3), lambda *a, **k: beam(*a, width=2, **k)):
        together = search(model, SOURCES, max_length=9)
        together = together if isinstance(together, Tensor) else together[0]
        for row, source in zip(together, SOURCES, strict=True):
            alone = search(model, source[None], max_length=9)
            alone = alone if isinstance(alone, Tensor) else alone[0]
            assert sentence_of(row)[: alone.shape[1]] == sentence_of(alone[0])


def test_without_an_end_there_are_max_length_tokens():
    model = Toy(0, eos_bias=-100.0)
    for tokens in (greedy(model, SOURCES, max_length=7), beam(model, SOURCES, max_length=7)[0]):
        assert tokens.shape == (6, 7) and EOS not in tokens


def test_other_special_tokens():
    class Renamed(Toy):
        """The same model whose ids are all one higher, so that PAD, BOS and EOS are 1, 2 and 3."""

        def step(self, tokens, state):
            logits, state = super().step(tokens - 1, state)
            return torch.cat([torch.full_like(logits[:, :1], -50.0), logits], dim=1), state

    same, renamed = Toy(1, eos_bias=1.0), Renamed(1, eos_bias=1.0)
    ids = {"bos": 2, "eos": 3, "pad": 1}
    assert torch.equal(greedy(same, SOURCES, max_length=9) + 1, greedy(renamed, SOURCES, max_length=9, **ids))
    assert torch.equal(beam(same, SOURCES, max_length=9)[0] + 1, beam(renamed, SOURCES, max_length=9, **ids)[0])


# --- Beam search --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("width", [1, 2, 3, 7])
@pytest.mark.parametrize("alpha", [0.0, 0.6, 2.0])
def test_beam_search_is_the_one_in_plain_python(seed, width, alpha):
    model = Toy(seed, eos_bias=0.5)
    found = hypotheses(model, SOURCES, width=width, max_length=6, length_penalty=alpha, check_every=2)
    for source, tokens_WT, scores_W in zip(SOURCES.tolist(), found.tokens, found.scores, strict=True):
        expected = plain_beam(model, source, width, 6, alpha)
        got = [(s, sentence_of(t)) for s, t in zip(scores_W.tolist(), tokens_WT, strict=True) if s > -math.inf]
        assert [sentence for _, sentence in got] == [sentence for _, sentence in expected]
        assert np.allclose([s for s, _ in got], [s for s, _ in expected], atol=1e-10)
        empty = scores_W == -math.inf
        assert (tokens_WT[empty] == PAD).all() and empty.tolist() == sorted(empty.tolist())


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.5])
def test_a_beam_as_wide_as_the_language_finds_the_best_sentence_there_is(alpha):
    model = Toy(3, vocab=4, sharpness=1.0)
    length = 4
    others = [token for token in range(4) if token != EOS]
    sentences = [
        (*words, EOS) for n in range(length) for words in itertools.product(others, repeat=n)
    ]  # 1 + 3 + 9 + 27
    tokens_BT, scores_B = beam(model, SOURCES, width=200, max_length=length, length_penalty=alpha)
    for source, row, found in zip(SOURCES.tolist(), tokens_BT, scores_B, strict=True):
        ranked = sorted(((score(model, source, s, alpha), s) for s in sentences), reverse=True)
        assert sentence_of(row) == ranked[0][1]
        assert found.item() == pytest.approx(ranked[0][0], abs=1e-10)
    everything = hypotheses(model, SOURCES, width=200, max_length=length, length_penalty=alpha)
    assert (everything.scores[0] > -math.inf).sum() == len(sentences)
    assert {sentence_of(row) for row in everything.tokens[0, : len(sentences)]} == set(sentences)


@pytest.mark.parametrize("seed", range(6))
def test_width_one_is_greedy_search(seed):
    model = Toy(seed, eos_bias=0.7)
    assert torch.equal(beam(model, SOURCES, width=1, max_length=8)[0], greedy(model, SOURCES, max_length=8))


def test_a_wider_beam_finds_what_greedy_search_misses():
    """And the width that finds it is smaller than what exhaustive search would take."""
    better = 0
    for seed in range(10):
        model = Toy(seed, eos_bias=0.5)
        said, (found, scores_B) = (
            greedy(model, SOURCES, max_length=6),
            beam(model, SOURCES, width=4, max_length=6),
        )
        for source, one, other, s in zip(SOURCES.tolist(), said, found, scores_B.tolist(), strict=True):
            assert score(model, source, sentence_of(other), 0.6) == pytest.approx(s, abs=1e-10)
            if EOS in one:
                better += s > score(model, source, sentence_of(one), 0.6) + 1e-6
    assert better >= 3


def test_short_hypotheses_that_finish_early_do_not_end_the_search():
    """Each step EOS is second best: bad short sentences fill the beam, and the good long one must survive."""

    class Story(nn.Module):
        def __init__(self):
            super().__init__()
            self.story = nn.Parameter(torch.tensor([3, 4, 3, 4, 3, 4, EOS], dtype=torch.float64))

        def start(self, source):
            return torch.zeros(len(source), dtype=torch.long)

        def step(self, tokens, state):
            logits = torch.zeros(len(tokens), VOCAB, dtype=torch.float64)
            logits[:, EOS] = 2.0
            logits[torch.arange(len(tokens)), self.story.long()[state.clamp(max=6)]] = 5.0
            return logits, state + 1

    tokens_BT, _ = beam(Story(), SOURCES, width=4, max_length=10)
    assert tokens_BT.tolist() == [[3, 4, 3, 4, 3, 4, EOS]] * 6


def test_the_length_penalty_prefers_longer_sentences():
    lengths = []
    for alpha in (0.0, 1.5, 3.0):
        tokens_BT, _ = beam(Toy(2, sharpness=1.0), SOURCES, width=30, max_length=8, length_penalty=alpha)
        lengths.append(sum(len(sentence_of(row)) for row in tokens_BT))
    assert lengths == sorted(lengths) and lengths[0] < lengths[2]
    assert decoding.length_factor(1, 0.6) == 1.0 and decoding.length_factor(7, 1.0) == 2.0


def test_beam_search_encodes_once_and_stops_soon_after_the_last_source():
    model = Toy(1, eos_bias=4.0)
    calls = []
    start = model.start
    model.start = lambda source: (calls.append(len(source)), start(source))[1]
    beam(model, SOURCES, width=3, max_length=400, check_every=5)
    assert calls == [6] and set(map(tuple, model.fed)) == {(18, 1)}
    assert len(model.fed) < 100 and len(model.fed) % 5 == 0


# --- Filters ------------------------------------------------------------------------------------------------


LOGITS = st.lists(st.floats(-8, 8), min_size=2, max_size=12)


@given(LOGITS, st.integers(1, 14))
def test_top_k_keeps_exactly_k_the_largest_unchanged(values, k):
    logits = torch.tensor(values, dtype=torch.float64)
    before = logits.clone()
    kept = filter_logits(logits, top_k=k)
    stays = kept > -torch.inf
    assert stays.sum() == min(k, len(values)), "also where logits are equal"
    assert torch.equal(kept[stays], logits[stays]) and torch.equal(logits, before)
    if not stays.all():
        assert logits[stays].min() >= logits[~stays].max()


@given(LOGITS, st.floats(0.01, 1.0))
def test_top_p_keeps_the_smallest_set_that_reaches_p(values, p):
    logits = torch.tensor(values, dtype=torch.float64)
    kept = filter_logits(logits, top_p=p)
    stays, probability = kept > -torch.inf, logits.softmax(-1)
    assert stays.any() and torch.equal(kept[stays], logits[stays])
    total = probability[stays].sum()
    assert total >= p - 1e-12, "the token that crosses p is kept"
    assert total - probability[stays].min() < p + 1e-12, "and not one more than needed"
    if not stays.all():
        assert probability[stays].min() >= probability[~stays].max()


@given(LOGITS, st.integers(1, 6), st.floats(0.05, 1.0))
def test_both_filters_leave_a_distribution_renormalised_over_the_likeliest(values, k, p):
    """By plain Python: sort, cut at k, renormalise, add up until p, renormalise again."""
    probability = torch.tensor(values, dtype=torch.float64).softmax(-1).tolist()
    order = sorted(range(len(values)), key=lambda i: -probability[i])[:k]
    mass, kept = sum(probability[i] for i in order), []
    for i in order:
        if sum(probability[j] / mass for j in kept) >= p - 1e-12:
            break
        kept.append(i)
    expected = sorted((probability[i] / sum(probability[j] for j in kept) for i in kept), reverse=True)
    ours = filter_logits(torch.tensor(values, dtype=torch.float64), k, p).softmax(-1)
    got = sorted(ours.tolist(), reverse=True)
    assert sum(got) == pytest.approx(1.0)
    close_call = any(abs(sum(probability[j] / mass for j in order[:n]) - p) < 1e-9 for n in range(len(order)))
    assert close_call or np.allclose(got, expected + [0.0] * (len(values) - len(expected)), atol=1e-9)


def test_the_token_that_crosses_p_is_kept():
    logits = torch.tensor([[0.25, 0.5, 0.125, 0.125]]).log()
    assert (filter_logits(logits, top_p=0.5) > -torch.inf).tolist() == [[False, True, False, False]]
    assert (filter_logits(logits, top_p=0.51) > -torch.inf).tolist() == [[True, True, False, False]]
    assert (filter_logits(logits, top_p=1e-9) > -torch.inf).tolist() == [[False, True, False, False]]
    assert torch.equal(filter_logits(logits, top_p=1.0), logits) and torch.equal(filter_logits(logits), logits)


def test_filters_work_on_every_row_by_itself_in_any_number_of_axes_and_precision():
    logits = torch.randn(2, 3, 11, generator=torch.Generator().manual_seed(0))
    kept = filter_logits(logits, top_k=5, top_p=0.7)
    for row, whole in zip(logits.flatten(0, 1), kept.flatten(0, 1), strict=True):
        assert torch.equal(filter_logits(row, top_k=5, top_p=0.7), whole)
    half = filter_logits(logits.bfloat16(), top_k=5, top_p=0.7)
    assert half.dtype == torch.bfloat16 and ((half > -torch.inf).sum(-1) <= 5).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [({"top_k": 0}, "top_k"), ({"top_p": 0.0}, "top_p"), ({"top_p": 1.2}, "top_p.*got 1.2")],
)
def test_bad_filters_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        filter_logits(torch.zeros(3), **options)
    with pytest.raises(ValueError, match=message):
        sample(Language(), torch.tensor([[BOS]]), steps=1, generator=None, **options)


# --- Sampling -----------------------------------------------------------------------------------------------


def frequencies(draws: int = 20_000, **options) -> np.ndarray:
    """How often each token follows BOS 3."""
    prompt = torch.tensor([[BOS, 3]]).expand(draws, 2)
    drawn = sample(
        Language(seed=5, sharpness=0.5),
        prompt,
        steps=1,
        generator=torch.Generator().manual_seed(0),
        **options,
    )
    return np.bincount(drawn[:, 0].numpy(), minlength=VOCAB) / draws


@pytest.mark.parametrize(
    "options",
    [{}, {"temperature": 0.5}, {"temperature": 3.0}, {"top_k": 2}, {"top_p": 0.8, "temperature": 2.0}],
)
def test_tokens_are_drawn_as_often_as_their_probability_says(options):
    log_p = log_probabilities(Language(seed=5, sharpness=0.5), None, (BOS, 3)) / options.get("temperature", 1.0)
    kept = filter_logits(torch.tensor(log_p), options.get("top_k"), options.get("top_p"))
    expected = kept.softmax(-1).numpy()
    drawn = frequencies(**options)
    # Standard deviation of a frequency is at most 0.5 / √20000 = 0.0035; five of them.
    assert np.abs(drawn - expected).max() < 0.018
    assert drawn[expected == 0].sum() == 0
    assert (expected > 0.05).sum() >= 2, "or this test would prove little"


def test_a_sample_is_fixed_by_its_generator_and_by_nothing_else():
    model, prompt = Language(seed=5), torch.tensor([[BOS, 3], [BOS, 4], [3, 3]])
    draw = partial(sample, model, prompt, steps=12)
    torch.manual_seed(0)
    first = draw(generator=torch.Generator().manual_seed(1))
    global_state = torch.get_rng_state()
    again = draw(generator=torch.Generator().manual_seed(1))
    other = draw(generator=torch.Generator().manual_seed(2))
    assert first.shape == (3, 12) and torch.equal(first, again) and not torch.equal(first, other)
    assert torch.equal(global_state, torch.get_rng_state())
    assert prompt.tolist() == [[BOS, 3], [BOS, 4], [3, 3]]


def test_temperature_zero_and_a_single_candidate_are_greedy():
    model, prompt = Language(seed=5), torch.tensor([[BOS, 3], [BOS, 4], [3, 3]])
    expected = []
    for row in prompt.tolist():
        said: tuple[int, ...] = ()
        for _ in range(8):
            said += (int(log_probabilities(model, None, (*row, *said)).argmax()),)
        expected.append(list(said))
    cold = sample(model, prompt, steps=8, temperature=0.0, generator=None)
    single = sample(model, prompt, steps=8, top_k=1, generator=torch.Generator().manual_seed(0))
    assert cold.tolist() == expected == single.tolist()
    assert model.fed[:8] == [[3, 2]] + [[3, 1]] * 7, "the prompt once, then one token at a time"


def test_translations_can_be_sampled_too():
    model = Toy(1, eos_bias=1.0)
    first = torch.full((6, 1), BOS)
    cold = sample(model, first, source=SOURCES, steps=9, temperature=0, generator=None, eos=EOS)
    assert torch.equal(cold, greedy(model, SOURCES, max_length=9))
    drawn = sample(
        model,
        first,
        source=SOURCES,
        steps=30,
        generator=torch.Generator().manual_seed(0),
        eos=EOS,
        check_every=3,
    )
    lengths = [len(sentence_of(row)) for row in drawn]
    assert drawn.shape == (6, max(lengths)) and len(set(lengths)) > 1
    with pytest.raises(ValueError, match="Each source needs its prompt"):
        sample(model, first[:2], source=SOURCES, steps=3, generator=None)


def test_half_precision_logits_are_drawn_in_float32():
    class Half(Language):
        def step(self, tokens, state):
            logits, state = super().step(tokens, state)
            return logits.bfloat16(), state

    prompt = torch.tensor([[BOS, 3]]).expand(8, 2)
    drawn = sample(Half(), prompt, steps=5, generator=torch.Generator().manual_seed(0), top_p=0.9)
    assert drawn.shape == (8, 5)
    assert (
        hypotheses(type("HalfToy", (Half,), {"start": Toy.start})(), SOURCES, max_length=3).scores.dtype
        == torch.float32
    )


# --- Models with a limit ------------------------------------------------------------------------------------


def test_reading_more_than_the_model_can_is_an_error():
    prompt = torch.tensor([[BOS, 3, 4]])
    model = Language(max_length=6)
    assert sample(model, prompt, steps=4, generator=None).shape == (1, 4), "3 + 4 tokens, of which 6 are read"
    with pytest.raises(ValueError, match=r"max_length = 6 tokens, and this would need 7.*crop=True"):
        sample(model, prompt, steps=5, generator=None)
    limited = Toy()
    limited.max_length = 6
    assert greedy(limited, SOURCES, max_length=6).shape[1] <= 6
    for search in (greedy, beam):
        with pytest.raises(ValueError, match="max_length = 6"):
            search(limited, SOURCES, max_length=7)


@pytest.mark.parametrize("length", [2, 6, 9])
def test_cropping_reads_the_last_tokens_from_the_beginning(length):
    """The same as a model that forgets, in NumPy: at every step it sees the last six tokens and no cache."""
    model = Language(max_length=6, seed=7)
    prompt = torch.randint(0, VOCAB, (3, length), generator=torch.Generator().manual_seed(0))
    expected = []
    for row in prompt.tolist():
        tokens = list(row)
        for _ in range(10):
            tokens.append(int(log_probabilities(model, None, tuple(tokens[-6:])).argmax()))
        expected.append(tokens[length:])
    said = sample(model, prompt, steps=10, temperature=0, generator=None, crop=True)
    assert said.tolist() == expected
    cached = max(0, 6 - length)
    assert [columns for _, columns in model.fed] == [min(length, 6)] + [1] * cached + [6] * (9 - cached)


def test_within_the_limit_cropping_changes_nothing():
    model, prompt = Language(max_length=20, seed=7), torch.tensor([[BOS, 3, 4]])
    draw = partial(sample, model, prompt, steps=10)
    assert torch.equal(
        draw(generator=torch.Generator().manual_seed(0)),
        draw(generator=torch.Generator().manual_seed(0), crop=True),
    )
    assert model.fed[:10] == model.fed[10:] == [[1, 3]] + [[1, 1]] * 9


# --- Modes and bad input ------------------------------------------------------------------------------------


def every_search(model: nn.Module) -> list:
    bos = torch.full((6, 1), BOS)
    return [
        lambda: greedy(model, SOURCES, max_length=3),
        lambda: beam(model, SOURCES, max_length=3),
        lambda: sample(model, bos, source=SOURCES, steps=3, generator=torch.Generator().manual_seed(0)),
    ]


@pytest.mark.parametrize("which", range(3))
def test_decoding_is_without_dropout_and_gradients_and_leaves_the_model_as_it_was(which):
    model = Toy()
    model.extra = nn.Sequential(nn.Dropout(), nn.Dropout())
    model.train()
    model.extra[0].eval()
    before, sources = {k: v.clone() for k, v in model.state_dict().items()}, SOURCES.clone()
    every_search(model)[which]()
    assert set(model.modes) == {(False, False)}
    assert model.training and model.dropout.training and not model.extra[0].training and model.extra[1].training
    assert all(torch.equal(before[k], v) for k, v in model.state_dict().items())
    assert torch.equal(SOURCES, sources) and torch.is_grad_enabled()


@pytest.mark.parametrize("which", range(3))
def test_the_mode_comes_back_after_an_error(which):
    class Broken(Toy):
        def step(self, tokens, state):
            raise KeyError("broken")

    model = Broken()
    with pytest.raises(KeyError, match="broken"):
        every_search(model)[which]()
    assert model.training and model.dropout.training and torch.is_grad_enabled()


@pytest.mark.parametrize(
    ("source", "error", "message"),
    [
        ([[3, 4]], TypeError, "tensor of token ids.*got list"),
        (torch.ones(2, 3), TypeError, "got torch.float32"),
        (torch.ones(2, 3, dtype=torch.bool), TypeError, "got torch.bool"),
        (torch.tensor([3, 4]), ValueError, "2 axes"),
        (torch.zeros(0, 3, dtype=torch.long), ValueError, "at least one row"),
        (torch.zeros(3, 0, dtype=torch.long), ValueError, "at least one row and one token"),
    ],
)
def test_what_is_no_batch_of_tokens_is_refused(source, error, message):
    with pytest.raises(error, match=message):
        greedy(Toy(), source, max_length=3)
    with pytest.raises(error, match=message):
        beam(Toy(), source, max_length=3)
    with pytest.raises(error, match=message.replace("source", "prompt")):
        sample(Language(), source, steps=3, generator=None)


def test_bad_numbers_are_refused():
    for call, message in [
        (lambda: greedy(Toy(), SOURCES, max_length=0), "max_length should be at least 1; got 0"),
        (lambda: greedy(Toy(), SOURCES, max_length=3, check_every=0), "check_every"),
        (lambda: beam(Toy(), SOURCES, max_length=0), "max_length"),
        (lambda: beam(Toy(), SOURCES, max_length=3, width=0), "width should be at least 1"),
        (lambda: sample(Language(), SOURCES, steps=0, generator=None), "steps"),
        (lambda: sample(Language(), SOURCES, steps=1, generator=None, temperature=-1.0), "temperature"),
        (lambda: sample(Language(), SOURCES, steps=1, generator=None, temperature=math.inf), "temperature"),
        (lambda: sample(Language(), SOURCES, steps=1, generator=None, temperature=math.nan), "temperature"),
    ]:
        with pytest.raises(ValueError, match=message):
            call()


# --- With the course's own models ---------------------------------------------------------------------------


def course_translators() -> dict[str, nn.Module]:
    from course_lib.seq2seq import AttentionSeq2Seq, Seq2Seq, Seq2SeqConfig
    from course_lib.transformer import Transformer, TransformerConfig

    torch.manual_seed(3)
    sizes = Seq2SeqConfig(9, 7, d_embed=8, d_hidden=6, d_attention=5, embedding_std=2.0)
    return {
        "transformer": Transformer(
            TransformerConfig(9, 7, d_model=8, heads=2, d_ff=12, decoder_layers=2, dropout=0.3, embedding_std=3.0)
        ),
        "seq2seq": Seq2Seq(sizes),
        "attention": AttentionSeq2Seq(sizes),
    }


@pytest.mark.parametrize("name", ["transformer", "seq2seq", "attention"])
def test_scores_of_a_model_are_those_of_its_forward_pass(name):
    """Beam search reorders the state; if it did so wrongly, teacher forcing would give another score."""
    model = course_translators()[name].eval()
    source_BS = torch.tensor([[3, 4, 8, 5], [5, 6, 0, 0], [7, 3, 4, 0]])
    found = hypotheses(model, source_BS, width=3, max_length=6, length_penalty=1.0)
    for source, tokens_WT, scores_W in zip(source_BS, found.tokens, found.scores, strict=True):
        for row, expected in zip(tokens_WT, scores_W, strict=True):
            if expected == -math.inf:
                continue
            sentence = torch.tensor(sentence_of(row))
            with torch.no_grad():
                logits_TC = model(source[None], torch.cat([torch.tensor([BOS]), sentence[:-1]])[None])[0]
            total = logits_TC.log_softmax(-1).gather(1, sentence[:, None]).sum()
            assert total / ((5 + len(sentence)) / 6) == pytest.approx(expected.item(), abs=1e-4)
    assert torch.equal(beam(model, source_BS, width=1, max_length=6)[0], greedy(model, source_BS, max_length=6))


@settings(max_examples=5)
@given(st.integers(1, 4))
def test_gpt_says_with_its_cache_what_it_says_without(prompt_length):
    from course_lib.gpt import GPT, GPTConfig

    torch.manual_seed(0)
    model = GPT(GPTConfig(11, max_length=5, d_model=8, heads=2, dropout=0.2))
    nn.init.normal_(model.embedding.weight)
    prompt = torch.randint(0, 11, (3, prompt_length), generator=torch.Generator().manual_seed(prompt_length))
    tokens = prompt
    model.eval()
    for _ in range(7):
        with torch.no_grad():
            logits_BTC, _ = model(tokens[:, -5:])
        tokens = torch.cat([tokens, logits_BTC[:, -1:].argmax(-1)], dim=1)
    said = sample(model, prompt, steps=7, temperature=0, generator=None, crop=True)
    assert torch.equal(said, tokens[:, prompt_length:])
