"""Unit 02, RNN with attention: torch tensors in and out, a batch of sentences on the first axis."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from .declare import Case, Check, Draw, Exercise, Misconception

SEARCH = ("02", "Attention is a soft search over the source")
SCORE = ("02", "A small network scores every source word")
WORDS = ("02", "Softmax runs over the source words")
MASK = ("02", "Padded words are masked before the softmax")
STEP = ("02", "The question is the state before the step")
PRODUCT = ("02", "A product can score as well")
SOURCES = ("02", "Two sources, or one")
ALIGN = ("02", "The alignment crosses where German does")

NOT_OURS = ("scaled_dot_product_attention", "MultiheadAttention")


# --- 02.1 ---------------------------------------------------------------------------------------------------


def weights_and_context() -> Any:
    """The three weights and the context vector, worked out with pencil and paper.

    Scores: e = [0, ln 2, ln 5]. Encoder states: h_1 = [8, 0], h_2 = [0, 8], h_3 = [8, 8].
    Return two lists: the three weights, and the two numbers of the context. Fractions such as 1/3 keep all digits.
    """
    return [1 / 8, 2 / 8, 5 / 8], [6, 7]


BY_HAND = Exercise(
    id="02.1",
    title="Weights and context by hand",
    answer="course_lib.exercises.u02.weights_and_context",
    minutes=4,
    outcomes=("02-a",),
    checks=(Check("the weights and the context", 2),),
    cases=lambda draw: [Case("the weights and the context")],
    hints=(
        "Softmax: the exponential of each score, divided by the sum of all three exponentials.",
        "exp(0) = 1, exp(ln 2) = 2, exp(ln 5) = 5, and their sum is 8.",
        "The context is 1/8 of h_1, plus 2/8 of h_2, plus 5/8 of h_3. Every state has an 8 in it: nothing is left "
        "over.",
    ),
    misconceptions=(
        Misconception(
            "without exponentials",
            lambda: ([0, math.log(2) / math.log(10), math.log(5) / math.log(10)], [5.5917, 8.0]),
            "You divided the scores by their sum. Softmax takes the exponential of each score first.",
            SEARCH,
        ),
        Misconception(
            "exponentials not divided",
            lambda: ([1, 2, 5], [48, 56]),
            "These are the exponentials. Divide each by their sum, 8, so that the weights sum to 1.",
            SEARCH,
        ),
        Misconception(
            "best word only",
            lambda: ([0, 0, 1], [8, 8]),
            "You took the best word alone. The search is soft: every word takes part, each with its weight.",
            SEARCH,
        ),
        Misconception(
            "context first",
            lambda: ([6, 7], [1 / 8, 2 / 8, 5 / 8]),
            "All five numbers are right, in the other order: the weights first, then the context.",
            SEARCH,
        ),
        Misconception(
            "one list",
            lambda: [1 / 8, 2 / 8, 5 / 8, 6, 7],
            "All five numbers are right. Return them as two lists: three weights, and the two numbers of the context.",
            SEARCH,
        ),
        Misconception(
            "plain sum of the states",
            lambda: ([1 / 8, 2 / 8, 5 / 8], [16, 16]),
            "The weights are right. The context is the sum of the states, each times its weight, not of the bare "
            "states.",
            SEARCH,
        ),
        Misconception(
            "exponentials as weights of the context",
            lambda: ([1 / 8, 2 / 8, 5 / 8], [48, 56]),
            "The weights are right, and the context does not use them: you multiplied by the exponentials 1, 2 and 5.",
            SEARCH,
        ),
        Misconception(
            "context the other way round",
            lambda: ([1 / 8, 2 / 8, 5 / 8], [7, 6]),
            "The weights are right, and the context has its two numbers the wrong way round: h_1 = [8, 0] has its 8 "
            "first.",
            SEARCH,
        ),
        Misconception(
            "no sum over the states",
            lambda: ([1 / 8, 2 / 8, 5 / 8], [1, 2, 5]),
            "The weights are right. The context is one vector, as wide as a state: add up the three weighted states.",
            SEARCH,
        ),
        Misconception(
            "percentages",
            lambda: ([12.5, 25, 62.5], [6, 7]),
            "Right, in percent. Weights sum to 1, not to 100.",
            SEARCH,
        ),
        Misconception(
            "rounded",
            lambda: ([0.13, 0.25, 0.63], [6, 7]),
            "Right, but rounded: these weights no longer sum to 1. Write 1/8 and let Python divide.",
            SEARCH,
        ),
        Misconception(
            "plain average of the states",
            lambda: ([1 / 8, 2 / 8, 5 / 8], [16 / 3, 16 / 3]),
            "The weights are right, and the context does not use them: every state counts the same in yours.",
            SEARCH,
        ),
    ),
    prediction=True,
)


# --- 02.2 ---------------------------------------------------------------------------------------------------


def additive_scores(state: Tensor, source: Tensor, w_state: Tensor, w_source: Tensor, v: Tensor) -> Tensor:
    """How well each source word fits what the decoder is about to write: vᵀ tanh(W_s s + W_h h_i), for all i.

    state is (B, N): one decoder state for each of B sentences. source is (B, S, M): S encoder states for each.
    w_state is (N, F), w_source is (M, F), and v is (F,); states are rows, so they stand left of the matrices.
    Return the scores, (B, S), before any softmax.
    """
    asked = state @ w_state
    offered = source @ w_source
    return torch.tanh(asked[:, None, :] + offered) @ v


def _additive_cases(draw: Draw) -> list[Case]:
    def case(check: str, b: int, s: int, n: int, m: int, f: int, note: str = "", size: float = 1.0) -> Case:
        tensors = draw.tensor(b, n, size=size), draw.tensor(b, s, m, size=size)
        return Case(check, (*tensors, draw.tensor(n, f), draw.tensor(m, f), draw.tensor(f)), note, gradient=True)

    return [
        case("two sentences of two words", 2, 2, 3, 3, 3, "sizes that hide a mix-up"),
        case("any sizes", 2, 4, 3, 5, 6),
        case("any sizes", 5, 3, 4, 2, 6, "more sentences than words"),
        case("any sizes", 1, 1, 2, 3, 4, "one sentence of one word"),
        case("large states", 3, 4, 2, 5, 6, "numbers in the thousands", size=2000),
    ]


def _sum_inside(state: Tensor, source: Tensor, w_state: Tensor, w_source: Tensor) -> Tensor:
    return (state @ w_state)[:, None] + source @ w_source


def _tanh_by_hand(x: Tensor) -> Tensor:
    return (x.exp() - (-x).exp()) / (x.exp() + (-x).exp())


def _additive_loops(state: Tensor, source: Tensor, w_state: Tensor, w_source: Tensor, v: Tensor) -> Tensor:
    rows = []
    for s, words in zip(state, source, strict=True):
        rows.append(torch.stack([v @ torch.tanh(s @ w_state + h @ w_source) for h in words]))
    return torch.stack(rows)


def _glued(state: Tensor, source: Tensor, w_state: Tensor, w_source: Tensor, v: Tensor) -> Tensor:
    both = torch.cat([state[:, None].expand(-1, source.shape[1], -1), source], dim=-1)
    return torch.tanh(both @ torch.cat([w_state, w_source])) @ v


def _glued_wrongly(state: Tensor, source: Tensor, w_state: Tensor, w_source: Tensor, v: Tensor) -> Tensor:
    both = torch.cat([source, state[:, None].expand(-1, source.shape[1], -1)], dim=-1)
    return torch.tanh(both @ torch.cat([w_state, w_source])) @ v


ADDITIVE_SCORES = Exercise(
    id="02.2",
    title="The score is a small network",
    answer="course_lib.exercises.u02.additive_scores",
    minutes=10,
    outcomes=("02-a",),
    checks=(Check("two sentences of two words", 1), Check("any sizes", 2), Check("large states")),
    cases=_additive_cases,
    hints=(
        "Two products, a sum, a tanh, and one more product. Write down the shape after each of them.",
        "state @ w_state is (B, F) and source @ w_source is (B, S, F). The first needs an axis for the words, so that "
        "each sentence adds its own state to all of its words: [:, None, :] puts it there.",
        "torch.tanh(...) of that sum is (B, S, F), and (B, S, F) @ (F,) is (B, S).",
    ),
    misconceptions=(
        Misconception(
            "no tanh",
            lambda s, h, w_s, w_h, v: _sum_inside(s, h, w_s, w_h) @ v,
            "The tanh is missing. Without it the state adds the same number to every word's score, and softmax, which "
            "sees differences only, would never notice the state.",
            SCORE,
        ),
        Misconception(
            "sigmoid",
            lambda s, h, w_s, w_h, v: torch.sigmoid(_sum_inside(s, h, w_s, w_h)) @ v,
            "This network has a tanh in its middle, from −1 to 1; yours has a sigmoid, from 0 to 1.",
            SCORE,
        ),
        Misconception(
            "relu",
            lambda s, h, w_s, w_h, v: torch.relu(_sum_inside(s, h, w_s, w_h)) @ v,
            "This network has a tanh in its middle; yours has a ReLU, which cuts off whatever is negative.",
            SCORE,
        ),
        Misconception(
            "two tanhs",
            lambda s, h, w_s, w_h, v: (torch.tanh(s @ w_s)[:, None] + torch.tanh(h @ w_h)) @ v,
            "You took tanh of the two parts and then added. Add first: only inside one tanh do state and word meet.",
            SCORE,
        ),
        Misconception(
            "v inside the tanh",
            lambda s, h, w_s, w_h, v: torch.tanh(_sum_inside(s, h, w_s, w_h) @ v),
            "v stands inside the tanh here, so no score leaves −1 … 1. The tanh is the hidden layer, v comes after it.",
            SCORE,
        ),
        Misconception(
            "without v",
            lambda s, h, w_s, w_h, v: torch.tanh(_sum_inside(s, h, w_s, w_h)).sum(dim=-1),
            "You added up the hidden layer. Its numbers do not count alike: v says how much each of them counts.",
            SCORE,
        ),
        Misconception(
            "not summed",
            lambda s, h, w_s, w_h, v: torch.tanh(_sum_inside(s, h, w_s, w_h)) * v,
            "You multiplied by v and did not add up: a score is one number for each word, so use @ instead of *.",
            SCORE,
        ),
        Misconception(
            "the state forgotten",
            lambda s, h, w_s, w_h, v: torch.tanh(h @ w_h) @ v,
            "The decoder's state is not used: every target word would read the same source words.",
            SCORE,
        ),
        Misconception(
            "multiplied",
            lambda s, h, w_s, w_h, v: torch.tanh((s @ w_s)[:, None] * (h @ w_h)) @ v,
            "You multiplied state and word. That is another kind of score; this one is called additive: they are "
            "added.",
            SCORE,
        ),
        Misconception(
            "no axis for the words",
            lambda s, h, w_s, w_h, v: torch.tanh(s @ w_s + h @ w_h) @ v,
            "(B, F) + (B, S, F) lines up the batch with the words: with as many sentences as words it runs and mixes "
            "them up, otherwise it fails. The state needs an axis for the words: (B, 1, F).",
            SCORE,
        ),
        Misconception(
            "everybody asks with the first state",
            lambda s, h, w_s, w_h, v: torch.tanh(s[0] @ w_s + h @ w_h) @ v,
            "All sentences are scored with the state of the first one. Each sentence has its own.",
            SCORE,
        ),
        Misconception(
            "matrices swapped",
            lambda s, h, w_s, w_h, v: torch.tanh((s @ w_h)[:, None] + h @ w_s) @ v,
            "The two matrices are swapped: w_state belongs to the decoder's state, w_source to the words.",
            SCORE,
        ),
        Misconception(
            "matrices transposed",
            lambda s, h, w_s, w_h, v: torch.tanh((s @ w_s.T)[:, None] + h @ w_h.T) @ v,
            "The matrices are transposed: w_state is (N, F) already, so state @ w_state leads from N numbers to F.",
            SCORE,
        ),
        Misconception(
            "the words forgotten",
            lambda s, h, w_s, w_h, v: torch.tanh((s @ w_s)[:, None] + 0 * (h @ w_h)) @ v,
            "The words are not used: all words of a sentence get the same score.",
            SCORE,
        ),
        Misconception(
            "tanh of the state alone",
            lambda s, h, w_s, w_h, v: (torch.tanh(s @ w_s)[:, None] + h @ w_h) @ v,
            "Only the state goes through the tanh, and the words are added after it. Add first: inside the tanh they "
            "meet.",
            SCORE,
        ),
        Misconception(
            "averaged",
            lambda s, h, w_s, w_h, v: (torch.tanh(_sum_inside(s, h, w_s, w_h)) * v).mean(dim=-1),
            "You took the mean over the hidden layer. vᵀ times a vector is a sum of products, and nothing divides it.",
            SCORE,
        ),
        Misconception(
            "summed over the words",
            lambda s, h, w_s, w_h, v: (torch.tanh(_sum_inside(s, h, w_s, w_h)) * v).sum(dim=1),
            "You summed over the words. Each word keeps a score of its own: sum over the hidden layer, the last axis.",
            SCORE,
        ),
        Misconception(
            "squeezed too much",
            lambda s, h, w_s, w_h, v: (torch.tanh(_sum_inside(s, h, w_s, w_h)) @ v[:, None]).squeeze(),
            "Right, until there is one sentence or one word: squeeze() drops every axis of length 1. Say which: "
            "squeeze(-1).",
            SCORE,
        ),
        Misconception(
            "one long row",
            lambda s, h, w_s, w_h, v: (torch.tanh(_sum_inside(s, h, w_s, w_h)) @ v).flatten(),
            "The numbers are right, in one long row. Give them the shape (B, S): one row for each sentence.",
            SCORE,
        ),
        Misconception(
            "glued in the other order",
            _glued_wrongly,
            "You glued [h; s] and the matrices as [W_s; W_h], so each meets the other's matrix. Same order on both "
            "sides.",
            SCORE,
        ),
        Misconception(
            "weights already",
            lambda s, h, w_s, w_h, v: torch.softmax(torch.tanh(_sum_inside(s, h, w_s, w_h)) @ v, dim=-1),
            "These are weights. The question stops one step earlier: the scores, before the softmax.",
            WORDS,
        ),
        Misconception(
            "an axis too many at the end",
            lambda s, h, w_s, w_h, v: torch.tanh(_sum_inside(s, h, w_s, w_h)) @ v[:, None],
            "The numbers are right, in the shape (B, S, 1): one score is a number, so drop the last axis.",
            SCORE,
        ),
        Misconception(
            "an axis too many in the middle",
            lambda s, h, w_s, w_h, v: (torch.tanh(_sum_inside(s, h, w_s, w_h)) @ v)[:, None],
            "The numbers are right, in the shape (B, 1, S): there is one state for each sentence, so no axis for "
            "states.",
            SCORE,
        ),
        Misconception(
            "words before sentences",
            lambda s, h, w_s, w_h, v: (torch.tanh(_sum_inside(s, h, w_s, w_h)) @ v).mT,
            "The numbers are right, and lie as (S, B): sentences are rows, (B, S).",
            SCORE,
        ),
        Misconception(
            "tanh overflows",
            lambda s, h, w_s, w_h, v: _tanh_by_hand(_sum_inside(s, h, w_s, w_h)) @ v,
            "exp of a large number is infinity, and infinity / infinity is NaN. torch.tanh does not have that problem.",
            SCORE,
        ),
        Misconception(
            "cut off from its inputs",
            lambda s, h, w_s, w_h, v: (torch.tanh(_sum_inside(s, h, w_s, w_h)) @ v).detach(),
            "The numbers are right, but nothing can be learned: .detach(), .item(), .data or torch.tensor(...) cuts the "
            "gradient off.",
            SCORE,
        ),
    ),
    alternatives=(
        _additive_loops,
        _glued,
        lambda s, h, w_s, w_h, v: torch.einsum(
            "bsf,f->bs",
            (torch.einsum("bn,nf->bf", s, w_s).unsqueeze(1) + torch.einsum("bsm,mf->bsf", h, w_h)).tanh(),
            v,
        ),
        lambda s, h, w_s, w_h, v: (torch.tanh(_sum_inside(s, h, w_s, w_h)) * v).sum(dim=-1),
        lambda s, h, w_s, w_h, v: torch.stack(
            [torch.tanh(s @ w_s + h[:, i] @ w_h) @ v for i in range(h.shape[1])], dim=1
        ),
        lambda s, h, w_s, w_h, v: (torch.tanh(_sum_inside(s, h, w_s, w_h)) @ v.view(-1, 1)).squeeze(-1),
    ),
    forbidden=NOT_OURS,
)


# --- 02.3 ---------------------------------------------------------------------------------------------------


def attention_weights(scores: Tensor, mask: Tensor) -> Tensor:
    """Weights over the real words of each sentence, and exactly 0 on padding.

    scores is (B, S). mask is (B, S), of booleans: True on a real word, False on padding.
    Return the weights, (B, S): each row sums to 1 over its real words. A row without any real word is all zeros.
    """
    lowest = torch.finfo(scores.dtype).min
    weights = torch.softmax(scores.masked_fill(~mask, lowest), dim=-1)
    return weights.masked_fill(~mask.any(dim=-1, keepdim=True), 0.0)


def _padding(*lengths: int, width: int) -> Tensor:
    """True on the first so many words of each sentence."""
    return torch.arange(width) < torch.tensor(lengths)[:, None]


def _weight_cases(draw: Draw) -> list[Case]:
    # Padding scores higher than any word, so that whoever lets it through is seen; but not by so much that
    # the words' shares vanish for those who mask after the softmax.
    def scores(*lengths: int, width: int, size: float = 1.0) -> tuple[Tensor, Tensor]:
        mask = _padding(*lengths, width=width)
        drawn = draw.tensor(len(lengths), width).clamp(-2, 2) * size
        return torch.where(mask, drawn, drawn + 1.5), mask

    words, large, empty = (
        "the weights of real words",
        "scores in the thousands",
        "a sentence without words gets zeros",
    )
    high, high_mask = scores(3, 4, 2, width=5)
    apart = torch.tensor([[3000.0], [-3000.0], [0.0]], dtype=high.dtype)
    return [
        Case(words, scores(3, 1, width=3)),
        Case(words, scores(3, 5, 2, width=5), "one sentence has no padding"),
        Case(words, scores(4, 4, 4, width=4), "nobody has padding"),
        Case("the gradient flows back", scores(4, 2, 3, width=5), gradient=True),
        Case(large, (high + 3000, high_mask), "above 2900"),
        Case(large, (high - 3000, high_mask), "below −2900"),
        Case(large, (high + apart, high_mask), "one sentence high, one low"),
        Case(empty, scores(0, 2, width=3), "the first sentence is all padding"),
        Case(empty, scores(3, 0, 4, width=4), "the second sentence is all padding: gradient too", gradient=True),
    ]


def _filled(scores: Tensor, mask: Tensor, value: float) -> Tensor:
    return scores.masked_fill(~mask, value)


def _zero_or_minus_inf(mask: Tensor) -> Tensor:
    return torch.zeros(mask.shape).masked_fill(~mask, -math.inf)


def _fill_in_place(scores: Tensor, mask: Tensor) -> Tensor:
    return torch.softmax(scores.masked_fill_(~mask, -math.inf), dim=-1)


def _clear_in_place(scores: Tensor, mask: Tensor) -> Tensor:
    weights = torch.softmax(_filled(scores, mask, -math.inf), dim=-1)
    weights[~mask.any(dim=-1)] = 0
    return weights


def _exp_by_hand(scores: Tensor, mask: Tensor) -> Tensor:
    exps = scores.exp() * mask
    return exps / exps.sum(dim=-1, keepdim=True)


def _no_exp(scores: Tensor, mask: Tensor) -> Tensor:
    return scores * mask / (scores * mask).sum(dim=-1, keepdim=True)


def _whole_batch_max(scores: Tensor, mask: Tensor) -> Tensor:
    exps = (scores - scores.max()).exp() * mask
    return exps / exps.sum(dim=-1, keepdim=True)


def _keepdim_forgotten(scores: Tensor, mask: Tensor) -> Tensor:
    exps = scores.exp() * mask
    return exps / exps.sum(dim=-1)


def _renormalised(scores: Tensor, mask: Tensor) -> Tensor:
    weights = torch.softmax(scores, dim=-1) * mask
    total = weights.sum(dim=-1, keepdim=True)
    return weights / torch.where(mask.any(dim=-1, keepdim=True), total, torch.ones_like(total))


def _guarded(scores: Tensor, mask: Tensor) -> Tensor:
    weights = torch.softmax(scores, dim=-1) * mask
    return weights / (weights.sum(dim=-1, keepdim=True) + 1e-9)


def _row_by_row(scores: Tensor, mask: Tensor) -> Tensor:
    rows = []
    for row, real in zip(scores, mask, strict=True):
        weights = torch.zeros_like(row)
        if real.any():
            weights = weights.masked_scatter(real, torch.softmax(row[real], dim=0))
        rows.append(weights)
    return torch.stack(rows)


def _shifted_exp(scores: Tensor, mask: Tensor) -> Tensor:
    exps = (scores - scores.max(dim=1, keepdim=True).values).exp() * mask
    return exps / (exps.sum(dim=1, keepdim=True) + (~mask.any(dim=1, keepdim=True)))


ATTENTION_WEIGHTS = Exercise(
    id="02.3",
    title="Weights for real words only",
    answer="course_lib.exercises.u02.attention_weights",
    minutes=10,
    outcomes=("02-a", "02-b"),
    checks=(
        Check("the weights of real words", 2),
        Check("the gradient flows back"),
        Check("scores in the thousands"),
        Check("a sentence without words gets zeros"),
    ),
    cases=_weight_cases,
    hints=(
        "Which score must padding have, so that its exponential is 0? Give it that score before the softmax.",
        "scores.masked_fill(~mask, value) makes a new tensor with `value` wherever the mask is False. Softmax runs over "
        "the words of one sentence: the last axis.",
        "In a row that is all −∞, softmax computes 0 / 0. Fill with a huge negative number instead, and set rows "
        "without words to 0 afterwards; or multiply the weights by the mask at the end.",
    ),
    misconceptions=(
        Misconception(
            "padding not masked",
            lambda scores, mask: torch.softmax(scores, dim=-1),
            "Padding takes part here: the same sentence would get other weights in a batch with longer ones.",
            MASK,
        ),
        Misconception(
            "padding scores 0",
            lambda scores, mask: torch.softmax(_filled(scores, mask, 0.0), dim=-1),
            "You set the scores of padding to 0, and exp(0) = 1: padding still takes its share. Its score must be −∞.",
            MASK,
        ),
        Misconception(
            "mask the wrong way round",
            lambda scores, mask: torch.softmax(scores.masked_fill(mask, -math.inf), dim=-1),
            "The mask is the wrong way round: True means a real word, and you hid those. Use ~mask for padding.",
            MASK,
        ),
        Misconception(
            "mask the wrong way round, finite",
            lambda scores, mask: torch.softmax(scores.masked_fill(mask, -1e9), dim=-1),
            "The mask is the wrong way round: True means a real word, and you hid those. Use ~mask for padding.",
            MASK,
        ),
        Misconception(
            "masked after the softmax only",
            lambda scores, mask: torch.softmax(scores, dim=-1) * mask,
            "You cleared padding after the softmax, so the weights of real words sum to less than 1. Mask the scores "
            "before, or divide by what is left.",
            MASK,
        ),
        Misconception(
            "over the sentences",
            lambda scores, mask: torch.softmax(_filled(scores, mask, -math.inf), dim=0),
            "This softmax runs over the sentences of the batch: they compete with each other. It runs over the words.",
            WORDS,
        ),
        Misconception(
            "over everything",
            lambda scores, mask: torch.softmax(_filled(scores, mask, -math.inf).flatten(), 0).view_as(scores),
            "All weights of the batch together sum to 1 here. Each sentence has a softmax of its own.",
            WORDS,
        ),
        Misconception(
            "no exponentials",
            _no_exp,
            "You divided the scores by their sum. Scores may be negative; softmax takes exponentials first.",
            WORDS,
        ),
        Misconception(
            "every word the same",
            lambda scores, mask: mask / mask.sum(dim=-1, keepdim=True) + 0 * scores,
            "Every real word has the same weight here: the scores are not used.",
            WORDS,
        ),
        Misconception(
            "best word only",
            lambda scores, mask: (
                nn.functional.one_hot(_filled(scores, mask, -math.inf).argmax(-1), scores.shape[-1]) + 0 * scores
            ),
            "Only the best word has a weight here. The search is soft: all real words take part.",
            SEARCH,
        ),
        Misconception(
            "logarithms",
            lambda scores, mask: torch.log_softmax(_filled(scores, mask, -math.inf), dim=-1),
            "These are the logarithms of the weights (log_softmax). Weights are positive and sum to 1: softmax.",
            WORDS,
        ),
        Misconception(
            "changes the scores in place",
            _fill_in_place,
            "The numbers are right, but your caller's scores are changed on the way: masked_fill_ (and scores[~mask] = …) "
            "work in place. masked_fill, without the underscore, makes a new tensor.",
            MASK,
        ),
        Misconception(
            "overflow",
            _exp_by_hand,
            "exp of a score in the thousands is infinity (or, far below 0, nothing is left), and the division gives NaN. "
            "Subtract the largest score first, or use torch.softmax.",
            WORDS,
        ),
        Misconception(
            "the largest score of the batch",
            _whole_batch_max,
            "You subtracted the largest score of the whole batch. Where another sentence scores much higher, exp leaves "
            "nothing of this one, and 0 / 0 is NaN. Each row has a maximum of its own.",
            WORDS,
        ),
        Misconception(
            "not low enough",
            lambda scores, mask: torch.softmax(_filled(scores, mask, -100.0), dim=-1),
            "The score that you give to padding is not low enough: words that score lower still lose against it. "
            "Take −∞, or the lowest number there is.",
            MASK,
        ),
        Misconception(
            "not low enough, then cleared",
            lambda scores, mask: torch.softmax(_filled(scores, mask, -100.0), dim=-1) * mask,
            "The score that you give to padding is not low enough: words that score lower still lose against it, and "
            "clearing padding afterwards leaves nothing. Take −∞, or the lowest number there is.",
            MASK,
        ),
        Misconception(
            "zero times infinity",
            lambda scores, mask: torch.softmax(scores + ~mask * -math.inf, dim=-1),
            "0 · ∞ is NaN, so a mask cannot be multiplied by −∞. scores.masked_fill(~mask, -math.inf) puts it where it "
            "belongs.",
            MASK,
        ),
        Misconception(
            "each word by itself",
            lambda scores, mask: torch.sigmoid(scores) * mask,
            "A sigmoid looks at each word by itself, so the weights need not sum to 1. Softmax shares one unit among "
            "them.",
            WORDS,
        ),
        Misconception(
            "not instead of ~",
            lambda scores, mask: torch.softmax(scores.masked_fill(not mask, -math.inf), dim=-1),
            "`not mask` asks whether the whole mask is true, which torch refuses to say. ~mask turns every entry "
            "round.",
            MASK,
        ),
        Misconception(
            "sum without its axis",
            _keepdim_forgotten,
            "The sum has lost its axis: (B, S) / (B,) does not line up. sum(dim=-1, keepdim=True) keeps it, as (B, 1).",
            WORDS,
        ),
        Misconception(
            "NaN where there is no word",
            lambda scores, mask: torch.softmax(_filled(scores, mask, -math.inf), dim=-1),
            "All is right but for a sentence without words: there, softmax divides 0 by 0, and NaN would spread through "
            "the whole batch. Give such a row zeros.",
            MASK,
        ),
        Misconception(
            "0 / 0 where there is no word",
            lambda scores, mask: torch.softmax(scores + _zero_or_minus_inf(mask), dim=-1),
            "All is right but for a sentence without words: there, nothing is divided by nothing, and the NaN spreads to "
            "the gradient. Give such a row zeros, before anything is divided.",
            MASK,
        ),
        Misconception(
            "empty row cleared in place",
            _clear_in_place,
            "You cleared the row in place (weights[…] = 0), in a tensor that the softmax needs again for its gradient. Make "
            "a new tensor: weights.masked_fill(…, 0.0), or weights * mask.",
            MASK,
        ),
        Misconception(
            "padding read where there is no word",
            lambda scores, mask: torch.softmax(_filled(scores, mask, -1e9), dim=-1),
            "All is right but for a sentence without words: when all scores are equally low, padding shares the "
            "attention. Set that row to zeros.",
            MASK,
        ),
        Misconception(
            "NaN in the gradient",
            lambda scores, mask: torch.softmax(scores + _zero_or_minus_inf(mask), dim=-1).nan_to_num(0.0),
            "The values are right, but NaN waits in the gradient of a sentence without words: it was covered up after "
            "the softmax. Fill with a huge finite number instead of −∞, then clear the row.",
            MASK,
        ),
        Misconception(
            "cut off from its inputs",
            lambda scores, mask: _renormalised(scores, mask).detach(),
            "The numbers are right, but nothing can be learned: .detach(), .item(), .data or torch.tensor(...) cuts the "
            "gradient off.",
            WORDS,
        ),
    ),
    alternatives=(
        lambda scores, mask: torch.softmax(_filled(scores, mask, -1e9), dim=-1) * mask,
        # masked_fill stops the gradient at the row that became NaN, so here it does not get through
        lambda scores, mask: torch.softmax(_filled(scores, mask, -math.inf), dim=-1).nan_to_num(0.0),
        _renormalised,
        _guarded,
        _row_by_row,
        _shifted_exp,
        lambda scores, mask: torch.where(mask, torch.softmax(torch.where(mask, scores, -1e12), dim=1), 0.0),
        lambda scores, mask: (
            torch.softmax(_filled(scores, mask | ~mask.any(1, keepdim=True), -math.inf), dim=-1) * mask
        ),
    ),
    forbidden=NOT_OURS,
)


# --- 02.4 ---------------------------------------------------------------------------------------------------


def context(weights: Tensor, source: Tensor) -> Tensor:
    """What the decoder reads at one step: the sum of the encoder states, each times its weight.

    weights is (B, S), source is (B, S, D). Return the context vectors, (B, D): one for each sentence.
    """
    return (weights[:, :, None] * source).sum(dim=1)


def _context_cases(draw: Draw) -> list[Case]:
    def case(check: str, b: int, s: int, d: int, note: str = "") -> Case:
        weights = torch.softmax(draw.tensor(b, s), dim=-1)
        return Case(check, (weights, draw.tensor(b, s, d)), note, gradient=True)

    empty = torch.softmax(draw.tensor(3, 2), dim=-1) * torch.tensor([[1.0], [0.0], [1.0]])
    return [
        case("all sizes alike", 2, 2, 2, "where a wrong axis has the right shape"),
        case("one context for each sentence", 2, 3, 4),
        case("one context for each sentence", 4, 5, 2, "more sentences"),
        case("one context for each sentence", 1, 2, 3, "one sentence"),
        Case(
            "weights are taken as they come",
            (empty, draw.tensor(3, 2, 5)),
            "the second sentence reads nothing",
            gradient=True,
        ),
    ]


CONTEXT = Exercise(
    id="02.4",
    title="The context vector",
    answer="course_lib.exercises.u02.context",
    minutes=6,
    outcomes=("02-a",),
    checks=(
        Check("all sizes alike"),
        Check("one context for each sentence", 2),
        Check("weights are taken as they come"),
    ),
    cases=_context_cases,
    hints=(
        "One weight belongs to one whole state of D numbers. What has to happen to the shape (B, S) for that?",
        "weights[:, :, None] is (B, S, 1) and multiplies every number of a state. Then add up: over which axis?",
        "Over the words, dim=1. Or as a product: (B, 1, S) @ (B, S, D) is (B, 1, D), and the middle axis goes.",
    ),
    misconceptions=(
        Misconception(
            "states summed without weights",
            lambda weights, source: source.sum(dim=1) + 0 * weights.sum(),
            "You summed the bare states. Each state is multiplied by its weight first.",
            SEARCH,
        ),
        Misconception(
            "plain average",
            lambda weights, source: source.mean(dim=1) + 0 * weights.sum(),
            "Every word counts the same here: this is the plain average of the states, without the weights.",
            SEARCH,
        ),
        Misconception(
            "best word only",
            lambda weights, source: source[torch.arange(len(source)), weights.argmax(dim=-1)] + 0 * weights.sum(),
            "You returned the state of the best word. The search is soft: all states take part, by weight.",
            SEARCH,
        ),
        Misconception(
            "last state",
            lambda weights, source: source[:, -1] + 0 * weights.sum(),
            "This is the last state, the bottleneck of unit 01. Attention sums all states, by weight.",
            SEARCH,
        ),
        Misconception(
            "not summed",
            lambda weights, source: weights[:, :, None] * source,
            "You weighted the states and did not add them up: the context is one vector for each sentence, their sum.",
            SEARCH,
        ),
        Misconception(
            "averaged after weighting",
            lambda weights, source: (weights[:, :, None] * source).mean(dim=1),
            "You took the mean of the weighted states, which divides by the number of words once more. The weights sum "
            "to 1 already: sum.",
            SEARCH,
        ),
        Misconception(
            "weights divided by their sum",
            lambda weights, source: (weights[:, :, None] * source).sum(dim=1) / weights.sum(dim=1, keepdim=True),
            "You divided by the sum of the weights. They sum to 1 already, and where they are all 0 you get NaN.",
            SEARCH,
        ),
        Misconception(
            "softmax once more",
            lambda weights, source: (torch.softmax(weights, dim=-1)[:, :, None] * source).sum(dim=1),
            "You took the softmax of the weights. They have been through it already: a second one makes them nearly "
            "equal.",
            WORDS,
        ),
        Misconception(
            "everybody's weights",
            lambda weights, source: weights @ source,
            "(B, S) @ (B, S, D) is (B, B, D): every sentence is read with the weights of all sentences. Give the weights "
            "an axis of their own, (B, 1, S), so that each sentence keeps to itself.",
            SEARCH,
        ),
        Misconception(
            "an axis too many",
            lambda weights, source: weights[:, None] @ source,
            "The numbers are right, in the shape (B, 1, D). There is one context for each sentence: drop the middle "
            "axis.",
            SEARCH,
        ),
        Misconception(
            "everybody's weights, sentences behind",
            lambda weights, source: torch.tensordot(weights, source, dims=([1], [1])),
            "This is (B, B, D): every sentence is read with the weights of all sentences. Each keeps to itself.",
            SEARCH,
        ),
        Misconception(
            "the first sentence's weights",
            lambda weights, source: weights[0] @ source,
            "All sentences are read with the weights of the first one. Each sentence has its own.",
            SEARCH,
        ),
        Misconception(
            "squeezed too much",
            lambda weights, source: (weights[:, None] @ source).squeeze(),
            "Right, until there is one sentence only: squeeze() drops every axis of length 1. Say which: squeeze(1).",
            SEARCH,
        ),
        Misconception(
            "weights for features",
            lambda weights, source: (source @ weights[:, :, None])[..., 0],
            "source @ weights multiplies the weights with the numbers of one state. A weight belongs to a whole word: "
            "(B, 1, S) @ (B, S, D).",
            SEARCH,
        ),
        Misconception(
            "changes the states in place",
            lambda weights, source: source.mul_(weights[:, :, None]).sum(dim=1),
            "*= and mul_ change your caller's states in place, and torch refuses that where gradients are wanted. "
            "weights[:, :, None] * source makes a new tensor.",
            SEARCH,
        ),
        Misconception(
            "summed over the sentences",
            lambda weights, source: (weights[:, :, None] * source).sum(dim=0),
            "You summed over the batch, so all sentences are mixed. Sum over the words: dim=1.",
            SEARCH,
        ),
        Misconception(
            "summed over the features",
            lambda weights, source: (weights[:, :, None] * source).sum(dim=2),
            "You summed inside each state, over its D numbers. Sum over the words: dim=1.",
            SEARCH,
        ),
        Misconception(
            "words and sentences mixed",
            lambda weights, source: torch.einsum("sb,bsd->bd", weights, source),
            "The weights are read as (S, B). Sentences are rows: weights[b, i] belongs to word i of sentence b.",
            WORDS,
        ),
        Misconception(
            "no axis for the features",
            lambda weights, source: (weights * source).sum(dim=1),
            "(B, S) * (B, S, D) lines up the words with the features: where all sizes are alike it runs and mixes them up, "
            "otherwise it fails. The weights need an axis for the features: (B, S, 1).",
            SEARCH,
        ),
        Misconception(
            "weights cut off",
            lambda weights, source: (weights.detach()[:, :, None] * source).sum(dim=1),
            "The numbers are right, but no gradient reaches the weights: where to look could never be learned.",
            SEARCH,
        ),
        Misconception(
            "cut off from its inputs",
            lambda weights, source: (weights[:, :, None] * source).sum(dim=1).detach(),
            "The numbers are right, but nothing can be learned: .detach(), .item(), .data or torch.tensor(...) cuts the "
            "gradient off.",
            SEARCH,
        ),
    ),
    alternatives=(
        lambda weights, source: torch.einsum("bs,bsd->bd", weights, source),
        lambda weights, source: torch.bmm(weights.unsqueeze(1), source).squeeze(1),
        lambda weights, source: torch.stack([a @ h for a, h in zip(weights, source, strict=True)]),
        lambda weights, source: (source.mT @ weights[..., None])[..., 0],
        lambda weights, source: sum(weights[:, i : i + 1] * source[:, i] for i in range(source.shape[1])),
    ),
    forbidden=NOT_OURS,
)


# --- 02.5 ---------------------------------------------------------------------------------------------------


class AttentionStep(nn.Module):
    """The whole of additive attention as a module, for one step of the decoder.

    Its parameters are w_state (d_state, d_hidden), w_source (d_source, d_hidden) and v (d_hidden,), all nn.Parameter.
    You may call your functions from above.
    """

    def __init__(self, d_state: int, d_source: int, d_hidden: int):
        """Make the three parameters, with small random numbers."""
        super().__init__()
        self.w_state = nn.Parameter(torch.randn(d_state, d_hidden) / d_state**0.5)
        self.w_source = nn.Parameter(torch.randn(d_source, d_hidden) / d_source**0.5)
        self.v = nn.Parameter(torch.randn(d_hidden) / d_hidden**0.5)

    def forward(self, state: Tensor, source: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """The context (B, d_source) and the weights (B, S), in this order.

        state is (B, d_state), source is (B, S, d_source), mask is (B, S) and True on real words.
        """
        scores = additive_scores(state, source, self.w_state, self.w_source, self.v)
        weights = attention_weights(scores, mask)
        return context(weights, source), weights


def _step_cases(draw: Draw) -> list[Case]:
    def case(check: str, lengths: tuple[int, ...], s: int, n: int, m: int, f: int, note: str = "") -> Case:
        weights = {"w_state": draw.tensor(n, f), "w_source": draw.tensor(m, f), "v": draw.tensor(f)}
        tensors = draw.tensor(len(lengths), n), draw.tensor(len(lengths), s, m)
        mask = _padding(*lengths, width=s)
        return Case(check, (*tensors, mask), note, build=(n, m, f), weights=weights, gradient=True)

    whole, padded = "context and weights", "padding is not read"
    return [
        case(whole, (3, 3), 3, 4, 5, 6, "nobody has padding"),
        case(whole, (2, 2, 2), 2, 5, 3, 4, "nobody has padding"),
        case(padded, (2, 4, 3), 4, 3, 5, 6),
    ]


def _module(forward: Any) -> type[AttentionStep]:
    """AttentionStep with another forward."""
    return type("AttentionStep", (AttentionStep,), {"forward": forward})


def _scores_in(self: AttentionStep, state: Tensor, source: Tensor) -> Tensor:
    return additive_scores(state, source, self.w_state, self.w_source, self.v)


def _weights_in(self: AttentionStep, state: Tensor, source: Tensor, mask: Tensor) -> Tensor:
    return attention_weights(_scores_in(self, state, source), mask)


def _order_swapped(self: AttentionStep, state: Tensor, source: Tensor, mask: Tensor) -> Any:
    weights = _weights_in(self, state, source, mask)
    return weights, context(weights, source)


def _with_axis(weights: Tensor, source: Tensor) -> Any:
    return weights[:, None] @ source, weights


def _unmasked(self: AttentionStep, state: Tensor, source: Tensor, mask: Tensor) -> Any:
    weights = torch.softmax(_scores_in(self, state, source), dim=-1)
    return context(weights, source), weights


def _cleared_after(self: AttentionStep, state: Tensor, source: Tensor, mask: Tensor) -> Any:
    weights = torch.softmax(_scores_in(self, state, source), dim=-1) * mask
    return context(weights, source), weights


def _scored_zero(self: AttentionStep, state: Tensor, source: Tensor, mask: Tensor) -> Any:
    weights = torch.softmax(_scores_in(self, state, source) * mask, dim=-1)
    return context(weights, source), weights


def _over_sentences(self: AttentionStep, state: Tensor, source: Tensor, mask: Tensor) -> Any:
    weights = torch.softmax(_scores_in(self, state, source).masked_fill(~mask, -1e9), dim=0)
    return context(weights, source), weights


def _scores_returned(self: AttentionStep, state: Tensor, source: Tensor, mask: Tensor) -> Any:
    return context(_weights_in(self, state, source, mask), source), _scores_in(self, state, source)


def _upside_down(self: AttentionStep, state: Tensor, source: Tensor, mask: Tensor) -> Any:
    weights = _weights_in(self, state, source, ~mask)
    return context(weights, source), weights


def _bare_scores(self: AttentionStep, state: Tensor, source: Tensor, mask: Tensor) -> Any:
    scores = _scores_in(self, state, source)
    return context(scores.masked_fill(~mask, 0.0), source), scores.masked_fill(~mask, 0.0)


def _keys_summed(self: AttentionStep, state: Tensor, source: Tensor, mask: Tensor) -> Any:
    weights = _weights_in(self, state, source, mask)
    return context(weights, source @ self.w_source), weights


def _own_state(self: AttentionStep, state: Tensor, source: Tensor, mask: Tensor) -> Any:
    weights = _weights_in(self, state, source, mask)
    return context(weights, state[:, None].expand(-1, source.shape[1], -1)), weights


def _no_tanh_inside(self: AttentionStep, state: Tensor, source: Tensor, mask: Tensor) -> Any:
    weights = attention_weights(_sum_inside(state, source, self.w_state, self.w_source) @ self.v, mask)
    return context(weights, source), weights


def _weights_cut(self: AttentionStep, state: Tensor, source: Tensor, mask: Tensor) -> Any:
    weights = _weights_in(self, state, source, mask).detach()
    return context(weights, source), weights


class _PlainTensors(AttentionStep):
    def __init__(self, d_state: int, d_source: int, d_hidden: int):
        super().__init__(d_state, d_source, d_hidden)
        made = dict(self.named_parameters())
        for name, value in made.items():
            delattr(self, name)
            setattr(self, name, value.detach())


class _Transposed(AttentionStep):
    def __init__(self, d_state: int, d_source: int, d_hidden: int):
        super().__init__(d_state, d_source, d_hidden)
        self.w_state = nn.Parameter(torch.randn(d_hidden, d_state))
        self.w_source = nn.Parameter(torch.randn(d_hidden, d_source))


class _Layers(nn.Module):
    def __init__(self, d_state: int, d_source: int, d_hidden: int):
        super().__init__()
        self.w_state = nn.Linear(d_state, d_hidden, bias=False)
        self.w_source = nn.Linear(d_source, d_hidden, bias=False)
        self.v = nn.Linear(d_hidden, 1, bias=False)

    def forward(self, state: Tensor, source: Tensor, mask: Tensor) -> Any:
        scores = self.v(torch.tanh(self.w_state(state)[:, None] + self.w_source(source)))[..., 0]
        weights = attention_weights(scores, mask)
        return context(weights, source), weights


class _Column(AttentionStep):
    def __init__(self, d_state: int, d_source: int, d_hidden: int):
        super().__init__(d_state, d_source, d_hidden)
        self.v = nn.Parameter(torch.randn(d_hidden, 1))


class _Crossed(AttentionStep):
    def __init__(self, d_state: int, d_source: int, d_hidden: int):
        super().__init__(d_source, d_state, d_hidden)


class _NoSuper(nn.Module):
    def __init__(self, d_state: int, d_source: int, d_hidden: int):
        self.w_state = nn.Parameter(torch.randn(d_state, d_hidden))


class _WrittenOut(nn.Module):
    def __init__(self, d_state: int, d_source: int, d_hidden: int):
        super().__init__()
        self.v = nn.Parameter(torch.zeros(d_hidden))
        self.w_source = nn.Parameter(torch.empty(d_source, d_hidden))
        self.w_state = nn.Parameter(torch.empty(d_state, d_hidden))
        for matrix in (self.w_source, self.w_state):
            nn.init.xavier_uniform_(matrix)

    def forward(self, state: Tensor, source: Tensor, mask: Tensor) -> Any:
        hidden = torch.tanh(torch.einsum("bn,nf->bf", state, self.w_state)[:, None] + source @ self.w_source)
        scores = torch.einsum("bsf,f->bs", hidden, self.v)
        weights = torch.softmax(torch.where(mask, scores, -1e9), dim=1)
        return torch.einsum("bs,bsd->bd", weights, source), weights


def _as_a_list(self: AttentionStep, state: Tensor, source: Tensor, mask: Tensor) -> Any:
    weights = torch.softmax(_scores_in(self, state, source).masked_fill(~mask, -math.inf), dim=-1)
    return [torch.bmm(weights[:, None], source)[:, 0], weights]


ATTENTION_STEP = Exercise(
    id="02.5",
    title="All of it as a module",
    answer="course_lib.exercises.u02.AttentionStep",
    minutes=12,
    outcomes=("02-a", "02-b"),
    checks=(Check("context and weights", 2), Check("padding is not read", 2)),
    cases=_step_cases,
    hints=(
        "A module makes its parameters in __init__ and uses them in forward. What is missing between your three "
        "functions?",
        "__init__ begins with super().__init__(). Then self.v = nn.Parameter(torch.randn(d_hidden)), and the two "
        "matrices likewise, with the shapes of the docstring.",
        "forward is three lines: scores from additive_scores with self.w_state, self.w_source and self.v; weights from "
        "attention_weights with the mask; then return the context and the weights.",
    ),
    misconceptions=(
        Misconception(
            "no parameters",
            _PlainTensors,
            "torch finds no parameters in your module, so no optimizer will ever train them. Each is an attribute of its "
            "own, self.v = nn.Parameter(...): a plain tensor is not found, and neither is what a list holds.",
            SCORE,
        ),
        Misconception(
            "super forgotten",
            _NoSuper,
            "A module starts with super().__init__(): without it there is no place for parameters.",
            SCORE,
        ),
        Misconception(
            "layers instead of parameters",
            _Layers,
            "nn.Linear works too, but then the parameters are called w_state.weight and lie transposed. Here they are "
            "nn.Parameter, with the names and shapes of the docstring.",
            SCORE,
        ),
        Misconception(
            "parameters transposed",
            _Transposed,
            "Your matrices are (d_hidden, width). In this course states are rows and stand left of the matrix: "
            "(width, d_hidden).",
            SCORE,
        ),
        Misconception(
            "v as a column",
            _Column,
            "Your v is a column, (d_hidden, 1). Here it is a vector, (d_hidden,), so that (B, S, F) @ v is (B, S).",
            SCORE,
        ),
        Misconception(
            "widths crossed",
            _Crossed,
            "The widths are crossed: w_state has d_state rows, and w_source has d_source.",
            SCORE,
        ),
        Misconception(
            "weights first",
            _module(_order_swapped),
            "Both results are right, in the other order: return the context, then the weights.",
            SEARCH,
        ),
        Misconception(
            "context alone",
            _module(lambda self, s, h, mask: context(_weights_in(self, s, h, mask), h)),
            "The context is right. Return the weights too: they are what you will look at to see what was read.",
            SEARCH,
        ),
        Misconception(
            "an axis too many",
            _module(lambda self, s, h, mask: _with_axis(_weights_in(self, s, h, mask), h)),
            "The numbers are right, and the context has the shape (B, 1, D): drop the axis in the middle.",
            SEARCH,
        ),
        Misconception(
            "mask not used",
            _module(_unmasked),
            "The mask is not used: padded words are read like any other.",
            MASK,
        ),
        Misconception(
            "masked after the softmax only",
            _module(_cleared_after),
            "You cleared padding after the softmax, so the weights of real words sum to less than 1. Mask the scores.",
            MASK,
        ),
        Misconception(
            "padding scores 0",
            _module(_scored_zero),
            "You set the scores of padding to 0, and exp(0) = 1: padding still takes its share. Its score must be −∞.",
            MASK,
        ),
        Misconception(
            "over the sentences",
            _module(_over_sentences),
            "This softmax runs over the sentences of the batch: they compete with each other. It runs over the words.",
            WORDS,
        ),
        Misconception(
            "scores instead of weights",
            _module(_scores_returned),
            "The context is right. The second thing to return are the weights, after the softmax; yours are the "
            "scores.",
            WORDS,
        ),
        Misconception(
            "mask the wrong way round",
            _module(_upside_down),
            "The mask is the wrong way round: you read the padding, and nothing where there is none.",
            MASK,
        ),
        Misconception(
            "no softmax",
            _module(_bare_scores),
            "You weighted the states with bare scores. Softmax turns them into weights: positive, and 1 in sum.",
            WORDS,
        ),
        Misconception(
            "no tanh",
            _module(_no_tanh_inside),
            "The tanh is missing in the score. Without it the weights do not depend on the decoder's state at all.",
            SCORE,
        ),
        Misconception(
            "projected states summed",
            _module(_keys_summed),
            "You summed W_h h_i. Those are for scoring; the context sums the encoder states h_i themselves.",
            SEARCH,
        ),
        Misconception(
            "decoder states summed",
            _module(_own_state),
            "The context is made of the decoder's state. The decoder asks; what is read are the encoder's states.",
            STEP,
        ),
        Misconception(
            "weights cut off",
            _module(_weights_cut),
            "The numbers are right, but no gradient goes through the weights: where to look could never be learned.",
            SEARCH,
        ),
    ),
    alternatives=(_WrittenOut, _module(_as_a_list)),
    forbidden=NOT_OURS,
)


# --- 02.6 ---------------------------------------------------------------------------------------------------


def multiplicative_scores(state: Tensor, source: Tensor, w: Tensor | None = None) -> Tensor:
    """Scores by products: sᵀ h_i without a matrix ("dot"), sᵀ W h_i with one ("general").

    state is (B, N), source is (B, S, M). With w, an (N, M) matrix, N and M may differ; without it they are equal.
    Return the scores, (B, S).
    """
    asked = state if w is None else state @ w
    return torch.einsum("bm,bsm->bs", asked, source)


def _product_cases(draw: Draw) -> list[Case]:
    def case(check: str, b: int, s: int, n: int, m: int | None = None, note: str = "") -> Case:
        tensors = draw.tensor(b, n), draw.tensor(b, s, m or n)
        matrix = () if m is None else (draw.tensor(n, m),)
        return Case(check, (*tensors, *matrix), note, gradient=True)

    return [
        case("dot: without a matrix", 2, 2, 3, note="as many sentences as words"),
        case("dot: without a matrix", 3, 4, 5),
        case("dot: without a matrix", 1, 3, 2, note="one sentence"),
        case("general: with a square matrix", 2, 2, 3, 3),
        case("general: with a matrix", 3, 4, 2, 5, "states of different widths"),
        case("general: with a matrix", 4, 2, 6, 3),
    ]


def _by_product(state: Tensor, w: Tensor | None) -> Tensor:
    return state if w is None else state @ w


def _dot(asked: Tensor, source: Tensor) -> Tensor:
    return (asked[:, None] * source).sum(dim=-1)


def _square_only(state: Tensor, source: Tensor, w: Tensor | None = None) -> Tensor:
    return _dot(state if w is None else state @ w.mT, source)


def _if_matrix(state: Tensor, source: Tensor, w: Tensor | None = None) -> Tensor:
    if w:
        state = state @ w
    return _dot(state, source)


def _state_last(state: Tensor, source: Tensor, w: Tensor | None = None) -> Tensor:
    keys = source if w is None else source @ w.mT
    return (keys @ state[:, :, None]).squeeze(-1)


def _product_loops(state: Tensor, source: Tensor, w: Tensor | None = None) -> Tensor:
    rows = zip(state, source, strict=True)
    return torch.stack([torch.stack([_by_product(s, w) @ h for h in words]) for s, words in rows])


MULTIPLICATIVE_SCORES = Exercise(
    id="02.6",
    title="Scores by products",
    answer="course_lib.exercises.u02.multiplicative_scores",
    minutes=8,
    outcomes=("02-e",),
    checks=(
        Check("dot: without a matrix", 2),
        Check("general: with a square matrix"),
        Check("general: with a matrix"),
    ),
    cases=_product_cases,
    hints=(
        "Start with dot: for each sentence, its state with each of its words. A sum of products over the features.",
        "state[:, None, :] * source is (B, S, M); sum over the last axis. With a matrix, the state goes through it "
        "first.",
        "sᵀ W is state @ w, of shape (B, M). From there on it is the dot score: only the first line knows about w.",
    ),
    misconceptions=(
        Misconception(
            "matrix ignored",
            lambda state, source, w=None: _dot(state, source),
            "The matrix is not used: this is the dot score, which only works where both widths are equal.",
            PRODUCT,
        ),
        Misconception(
            "matrix required",
            lambda state, source, w=None: _dot(state @ w, source),
            "With a matrix it is right. Without one (w is None) it should be the dot score.",
            PRODUCT,
        ),
        Misconception(
            "matrix transposed",
            _square_only,
            "The matrix is transposed: state @ w takes you from the state's width to the words', w.T the other way.",
            PRODUCT,
        ),
        Misconception(
            "no axis for the words",
            lambda state, source, w=None: (source * _by_product(state, w)).sum(dim=-1),
            "(B, S, M) * (B, M) lines up the batch with the words: with as many sentences as words it runs and mixes "
            "them up, otherwise it fails. The state needs an axis for the words: (B, 1, M).",
            PRODUCT,
        ),
        Misconception(
            "a product without axes",
            lambda state, source, w=None: source @ _by_product(state, w),
            "(B, S, M) @ (B, M) takes the batch for a matrix. Each sentence has a state of its own: make it a column, "
            "(B, M, 1), and drop that axis afterwards.",
            PRODUCT,
        ),
        Misconception(
            "every word with every state",
            lambda state, source, w=None: source @ _by_product(state, w).mT,
            "(B, S, M) @ (M, B) is (B, S, B): every word is compared with the states of all sentences. Each keeps to its "
            "own sentence.",
            PRODUCT,
        ),
        Misconception(
            "the truth of a matrix",
            _if_matrix,
            "`if w:` asks whether a matrix is true, which torch refuses to say. Ask `if w is not None:`.",
            PRODUCT,
        ),
        Misconception(
            "every state with every sentence",
            lambda state, source, w=None: _by_product(state, w) @ source.mT,
            "(B, M) @ (B, M, S) is (B, B, S): every state is compared with the words of all sentences. Each keeps to its "
            "own sentence.",
            PRODUCT,
        ),
        Misconception(
            "not summed",
            lambda state, source, w=None: _by_product(state, w)[:, None] * source,
            "You multiplied and did not add up: a score is one number for each word, the sum over the features.",
            PRODUCT,
        ),
        Misconception(
            "summed over the words",
            lambda state, source, w=None: (_by_product(state, w)[:, None] * source).sum(dim=1),
            "You summed over the words. A dot product sums over the features, the last axis, and leaves one number a "
            "word.",
            PRODUCT,
        ),
        Misconception(
            "an axis too many at the end",
            lambda state, source, w=None: source @ _by_product(state, w)[:, :, None],
            "The numbers are right, in the shape (B, S, 1): drop the last axis.",
            PRODUCT,
        ),
        Misconception(
            "an axis too many in the middle",
            lambda state, source, w=None: _by_product(state, w)[:, None] @ source.mT,
            "The numbers are right, in the shape (B, 1, S): drop the axis in the middle.",
            PRODUCT,
        ),
        Misconception(
            "squeezed too much",
            lambda state, source, w=None: (source @ _by_product(state, w)[:, :, None]).squeeze(),
            "Right, until there is one sentence only: squeeze() drops every axis of length 1. Say which: squeeze(-1).",
            PRODUCT,
        ),
        Misconception(
            "everybody asks with the first state",
            lambda state, source, w=None: source @ _by_product(state, w)[0],
            "All sentences are scored with the state of the first one. Each sentence has its own.",
            PRODUCT,
        ),
        Misconception(
            "averaged",
            lambda state, source, w=None: (_by_product(state, w)[:, None] * source).mean(dim=-1),
            "You took the mean over the features. A dot product is the sum of the products.",
            PRODUCT,
        ),
        Misconception(
            "distance",
            lambda state, source, w=None: -(_by_product(state, w)[:, None] - source).pow(2).sum(dim=-1),
            "You measured how far apart the two vectors are. That is another score; here they are multiplied and "
            "summed.",
            PRODUCT,
        ),
        Misconception(
            "added",
            lambda state, source, w=None: torch.tanh(_by_product(state, w)[:, None] + source).sum(dim=-1),
            "State and word are added here, as in the additive score. This one is a product.",
            PRODUCT,
        ),
        Misconception(
            "cosine",
            lambda state, source, w=None: torch.cosine_similarity(_by_product(state, w)[:, None], source, dim=-1),
            "You divided by the lengths of both vectors: that is the cosine. A dot product keeps the lengths.",
            PRODUCT,
        ),
        Misconception(
            "scaled",
            lambda state, source, w=None: _dot(_by_product(state, w), source) / source.shape[-1] ** 0.5,
            "You divided by √d. That is right for the Transformer, and it is unit 05: here the products stay as they "
            "are.",
            PRODUCT,
        ),
        Misconception(
            "tanh",
            lambda state, source, w=None: torch.tanh(_dot(_by_product(state, w), source)),
            "There is a tanh around the product. That belongs to the additive score; here nothing comes after the "
            "product.",
            PRODUCT,
        ),
        Misconception(
            "weights already",
            lambda state, source, w=None: torch.softmax(_dot(_by_product(state, w), source), dim=-1),
            "These are weights. The question stops one step earlier: the scores, before the softmax.",
            WORDS,
        ),
        Misconception(
            "cut off from its inputs",
            lambda state, source, w=None: _dot(_by_product(state, w), source).detach(),
            "The numbers are right, but nothing can be learned: .detach(), .item(), .data or torch.tensor(...) cuts the "
            "gradient off.",
            PRODUCT,
        ),
    ),
    alternatives=(
        _state_last,
        _product_loops,
        lambda state, source, w=None: _dot(_by_product(state, w), source),
        lambda state, source, w=None: torch.einsum(
            "bn,nm,bsm->bs", state, torch.eye(state.shape[-1], dtype=state.dtype) if w is None else w, source
        ),
    ),
    forbidden=NOT_OURS,
)


# --- 02.7 ---------------------------------------------------------------------------------------------------


def read_alignment() -> Any:
    """Read the two tables above, and return two lists.

    First: the source word that each German word reads most, five words from "two", "hundred", "thirty", "four".
    Second: two times True or False. Does the German alignment cross? Does the French one?
    """
    return ["two", "hundred", "four", "four", "thirty"], [True, False]


ALIGNMENT = Exercise(
    id="02.7",
    title="Read an alignment",
    answer="course_lib.exercises.u02.read_alignment",
    minutes=4,
    outcomes=("02-c",),
    checks=(Check("what each word reads, and what crosses", 2),),
    cases=lambda draw: [Case("what each word reads, and what crosses")],
    hints=(
        "A row belongs to a target word. Go along it, and find the largest number.",
        "The column of that number names the source word. “und” has no partner in English: take what the row says.",
        "Two target words cross when the later one reads an earlier source word. Follow the largest numbers from row to "
        "row: do they ever go back to the left?",
    ),
    misconceptions=(
        Misconception(
            "one after the other",
            lambda: (["two", "hundred", "thirty", "four", "four"], [False, False]),
            "You went through both sentences in their order. The order is what differs: look for the largest number in "
            "each row.",
            ALIGN,
        ),
        Misconception(
            "read down the columns",
            lambda: (["two", "hundred", "thirty", "four"], [True, False]),
            "You have one word for each column. Rows belong to the target words, and each of the five reads something.",
            ALIGN,
        ),
        Misconception(
            "und by its meaning",
            lambda: (["two", "hundred", "four", "hundred", "thirty"], [True, False]),
            "Nearly: for “und” you took what you would expect. Take what the table says: its row's largest number.",
            ALIGN,
        ),
        Misconception(
            "und by its neighbour",
            lambda: (["two", "hundred", "four", "thirty", "thirty"], [True, False]),
            "Nearly: look at the row of “und” again. Its largest number is 0.49, in the column of “four”.",
            ALIGN,
        ),
        Misconception(
            "und left out",
            lambda: (["two", "hundred", "four", "thirty"], [True, False]),
            "Nearly: there is a word for each of the five rows. “und” has no partner, and still reads something.",
            ALIGN,
        ),
        Misconception(
            "und translated",
            lambda: (["two", "hundred", "four", "and", "thirty"], [True, False]),
            "Nearly: “and” is no word of the source. Which column has the largest number in the row of “und”?",
            ALIGN,
        ),
        Misconception(
            "the German words",
            lambda: (["zwei", "hundert", "vier", "und", "dreißig"], [True, False]),
            "These are the words that are written. The question is what each of them reads: a word of the source.",
            ALIGN,
        ),
        Misconception(
            "one list",
            lambda: ["two", "hundred", "four", "four", "thirty", True, False],
            "All right, in one list. Return two: the five words, and the two answers.",
            ALIGN,
        ),
        Misconception(
            "nothing crosses",
            lambda: (["two", "hundred", "four", "four", "thirty"], [False, False]),
            "The words are right. German reads “four” and goes back to “thirty” after it: that is a crossing.",
            ALIGN,
        ),
        Misconception(
            "all cross",
            lambda: (["two", "hundred", "four", "four", "thirty"], [True, True]),
            "The words are right. In French the largest numbers never go back to the left: nothing crosses.",
            ALIGN,
        ),
        Misconception(
            "crossing the wrong way round",
            lambda: (["two", "hundred", "four", "four", "thirty"], [False, True]),
            "The words are right, and the two answers are the wrong way round: German goes back, from four to thirty.",
            ALIGN,
        ),
    ),
    prediction=True,
)


# --- 02.8 ---------------------------------------------------------------------------------------------------


def one_or_two() -> Any:
    """From how many sources do those who ask and those who are read come? Five times 1 or 2.

    1. The state of a German decoder reads the states of the English encoder.
    2. Every word of a sentence is averaged with the words of the same sentence that resemble it.
    3. A word of a caption looks for the region of the picture that it speaks of.
    4. While writing, a decoder looks back at the words that it has written itself.
    5. A question reads a document that may hold its answer.
    Return a list of five numbers.
    """
    return [2, 1, 2, 1, 2]


ONE_OR_TWO = Exercise(
    id="02.8",
    title="Two sources, or one?",
    answer="course_lib.exercises.u02.one_or_two",
    minutes=3,
    outcomes=("02-d",),
    checks=(Check("the five answers"),),
    cases=lambda draw: [Case("the five answers")],
    hints=(
        "For each line ask twice: who asks? And who is read?",
        "If both belong to one and the same sequence, it is self-attention: one source. Otherwise two.",
        "Captions and pictures, questions and documents are different sequences. What a decoder wrote itself is its "
        "own.",
    ),
    misconceptions=(
        Misconception(
            "always two",
            lambda: [2, 2, 2, 2, 2],
            "Who asks and who is read may be the same sequence: then there is one source, and it is self-attention.",
            SOURCES,
        ),
        Misconception(
            "the wrong way round",
            lambda: [1, 2, 1, 2, 1],
            "The wrong way round: one source means that a sequence reads itself.",
            SOURCES,
        ),
        Misconception(
            "decoder means two",
            lambda: [2, 1, 2, 2, 2],
            "Look at line 4 again: a decoder is at work, but what it reads is its own sentence. That is one source.",
            SOURCES,
        ),
        Misconception(
            "always one",
            lambda: [1, 1, 1, 1, 1],
            "One source means that a sequence reads itself. Does the German decoder write the English sentence?",
            SOURCES,
        ),
        Misconception(
            "a caption is its picture",
            lambda: [2, 1, 1, 1, 2],
            "Look at line 3 again: a caption is a row of words, its picture a set of regions. Those are two sources.",
            SOURCES,
        ),
        Misconception(
            "question and document as one",
            lambda: [2, 1, 2, 1, 1],
            "Look at line 5 again: who asks is the question, who is read is the document. Those are two sources.",
            SOURCES,
        ),
        Misconception(
            "the translator as one",
            lambda: [1, 1, 2, 1, 2],
            "Look at line 1 again: both belong to one network, but the states asked with and those read come from two "
            "sentences.",
            SOURCES,
        ),
        Misconception(
            "only translation has two",
            lambda: [2, 1, 1, 1, 1],
            "Two sources need not be two languages: a caption and a picture are two, and so are question and document.",
            SOURCES,
        ),
    ),
    prediction=True,
)

EXERCISES = (
    BY_HAND,
    ADDITIVE_SCORES,
    ATTENTION_WEIGHTS,
    CONTEXT,
    ATTENTION_STEP,
    MULTIPLICATIVE_SCORES,
    ALIGNMENT,
    ONE_OR_TWO,
)
