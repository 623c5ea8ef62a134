"""Unit 01, sequence to sequence with an RNN: torch tensors in and out, a batch of sentences on the first axis."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .declare import Case, Check, Draw, Exercise, Misconception

STEP = ("01", "An RNN reads one word after the other")
STATE = ("01", "The last state carries the whole sentence")
FUTURE = ("01", "Grammar needs the future")
FALLS = ("01", "Accuracy falls as sentences grow")
FADES = ("01", "The gradient fades on its way to the first word")
CHEF = ("01", "The chef is far from the verb")
WAIT = ("01", "The states of an RNN wait for each other")

NOT_OURS = ("RNN", "RNNCell", "GRU", "GRUCell", "LSTM", "LSTMCell", "rnn_tanh", "rnn_tanh_cell")
CUT = (
    "The numbers are right, but nothing can be learned: .detach(), .item(), .data or torch.tensor(...) cuts the "
    "gradient off."
)


# --- 01.1 ---------------------------------------------------------------------------------------------------


def who_knows_what() -> Any:
    """Five numbers, without a computer. The sentence is "I saw an elephant"; each reader's states have width 128.

    1. One reader, left to right: of how many words does its state at "an" know?
    2. One reader, right to left: of how many words does its state at "an" know?
    3. Both readers side by side: of how many words does the state at "an" know?
    4. How many numbers does the state of question 3 hold?
    5. One reader, left to right, hands its last state to a decoder. How many numbers does the decoder get if the
       sentence has thirty words instead of four?
    Return a list of five numbers.
    """
    return [3, 2, 4, 256, 128]


WHO_KNOWS = Exercise(
    id="01.1",
    title="Who knows what?",
    answer="course_lib.exercises.u01.who_knows_what",
    minutes=3,
    outcomes=("01-b", "01-c"),
    checks=(Check("the five numbers", 2),),
    cases=lambda draw: [Case("the five numbers")],
    hints=(
        "A state knows the words that its reader has read so far, the one under its nose included.",
        "From the left, “I saw an” has been read. From the right it is “elephant an”. Side by side means: one vector "
        "behind the other.",
        "128 + 128 for question 4. And for question 5: does the width of a state depend on how much was read?",
    ),
    misconceptions=(
        Misconception(
            "its own word left out",
            lambda: [2, 1, 3, 256, 128],
            "You left out the word itself. A state is made when its word is read, so it knows that one too.",
            FUTURE,
        ),
        Misconception(
            "own word counted twice",
            lambda: [3, 2, 5, 256, 128],
            "Both readers have read “an”, and it is still one word: 3 + 2 − 1.",
            FUTURE,
        ),
        Misconception(
            "added up",
            lambda: [3, 2, 4, 128, 128],
            "Side by side means one behind the other, 128 + 128 numbers. Adding the two vectors would mix the readers.",
            FUTURE,
        ),
        Misconception(
            "a state for every word",
            lambda: [3, 2, 4, 256, 3840],
            "There is a state for each of the thirty words, but only the last is handed over: that is the bottleneck.",
            STATE,
        ),
        Misconception(
            "thirty numbers",
            lambda: [3, 2, 4, 256, 30],
            "Question 5 asks for the width of a state, and that does not depend on how many words were read.",
            STATE,
        ),
        Misconception(
            "all words of the sentence",
            lambda: [3, 2, 4, 1024, 128],
            "1024 would be the states of all four words together. Question 4 asks for the state at “an” alone.",
            FUTURE,
        ),
        Misconception(
            "its own word only",
            lambda: [1, 1, 1, 256, 128],
            "A state also knows what its reader has read before: the old state goes into the new one.",
            STEP,
        ),
        Misconception(
            "the right reader knows all",
            lambda: [3, 4, 4, 256, 128],
            "Who comes from the right has not reached “I saw” when it makes the state at “an”.",
            FUTURE,
        ),
        Misconception(
            "both directions handed over",
            lambda: [3, 2, 4, 256, 256],
            "Nearly: question 5 has one reader only, so its last state has 128 numbers.",
            STATE,
        ),
        Misconception(
            "left and right swapped",
            lambda: [2, 3, 4, 256, 128],
            "Left and right are swapped: who comes from the left has read “I saw an” by then.",
            FUTURE,
        ),
        Misconception(
            "everybody knows everything",
            lambda: [4, 4, 4, 256, 128],
            "A reader has not seen what it has not read yet: at “an”, who comes from the left does not know of "
            "“elephant”.",
            FUTURE,
        ),
    ),
    prediction=True,
)


# --- 01.2 ---------------------------------------------------------------------------------------------------


def rnn_step(x: Tensor, h: Tensor, w_ih: Tensor, w_hh: Tensor, b: Tensor) -> Tensor:
    """One step of an RNN: the next state tanh(x W_ih + h W_hh + b), for a batch of sentences.

    x is (B, E): the word that each of B sentences reads now. h is (B, D): the states before.
    w_ih is (E, D), w_hh is (D, D), b is (D,); words and states are rows, so they stand left of the matrices.
    Return the new states, (B, D).
    """
    return torch.tanh(x @ w_ih + h @ w_hh + b)


def _single(draw: Draw, *shape: int, size: float = 1.0) -> Tensor:
    """float32, torch's own choice: a state that somebody starts with torch.zeros(...) fits."""
    return draw.tensor(*shape, size=size).float()


def _weights(draw: Draw, e: int, d: int) -> tuple[Tensor, Tensor, Tensor]:
    """W_ih, W_hh and b, small enough that tanh is not flat."""
    return _single(draw, e, d, size=0.6), _single(draw, d, d, size=0.6), _single(draw, d, size=0.5)


def _step_cases(draw: Draw) -> list[Case]:
    def case(check: str, b: int, e: int, d: int, note: str = "", gradient: bool = True) -> Case:
        x, h = _single(draw, b, e), _single(draw, b, d, size=0.5)
        return Case(check, (x, h, *_weights(draw, e, d)), note, gradient=gradient)

    # One large sentence among others: there alone, tanh is ±1 for whoever has the signs right.
    large = _single(draw, 3, 4) * torch.tensor([[1.0], [1e5], [1.0]]), _single(draw, 3, 5)
    return [
        case("any sizes", 1, 2, 3, "one sentence"),
        case("any sizes", 2, 5, 3),
        case("any sizes", 4, 2, 5, "more sentences than numbers in a word"),
        case("words as wide as states", 2, 3, 3, "where a wrong matrix has the right shape"),
        case("the old state is left alone", 3, 2, 4, gradient=False),
        Case(
            "large numbers",
            (*large, *_weights(draw, 4, 5)),
            "the second sentence has numbers around 100,000",
            gradient=True,
        ),
    ]


def _inside(x: Tensor, h: Tensor, w_ih: Tensor, w_hh: Tensor, b: Tensor) -> Tensor:
    return x @ w_ih + h @ w_hh + b


def _tanh_by_hand(z: Tensor) -> Tensor:
    return (z.exp() - (-z).exp()) / (z.exp() + (-z).exp())


def _written_over(x: Tensor, h: Tensor, w_ih: Tensor, w_hh: Tensor, b: Tensor) -> Tensor:
    return h.copy_(torch.tanh(_inside(x, h, w_ih, w_hh, b)))


def _glued(x: Tensor, h: Tensor, w_ih: Tensor, w_hh: Tensor, b: Tensor) -> Tensor:
    return torch.tanh(torch.cat([x, h], dim=-1) @ torch.cat([w_ih, w_hh]) + b)


def _step_loops(x: Tensor, h: Tensor, w_ih: Tensor, w_hh: Tensor, b: Tensor) -> Tensor:
    pairs = zip(x, h, strict=True)
    return torch.stack([torch.tanh(w_ih.T @ word + w_hh.T @ state + b) for word, state in pairs])


RNN_STEP = Exercise(
    id="01.2",
    title="One step of an RNN",
    answer="course_lib.exercises.u01.rnn_step",
    minutes=6,
    outcomes=("01-a",),
    checks=(
        Check("any sizes", 2),
        Check("words as wide as states"),
        Check("the old state is left alone"),
        Check("large numbers"),
    ),
    cases=_step_cases,
    hints=(
        "Two products, a sum of three, and one tanh around all of it. Write down the shape after each of them.",
        "x @ w_ih is (B, D), h @ w_hh is (B, D), and b is (D,): it is added to every row by itself.",
        "torch.tanh(… + … + b), and nothing after it.",
    ),
    misconceptions=(
        Misconception(
            "no tanh",
            _inside,
            "The tanh is missing. Without it, a whole sentence is one linear map, and the state may grow without end.",
            STEP,
        ),
        Misconception(
            "sigmoid",
            lambda x, h, w_ih, w_hh, b: torch.sigmoid(_inside(x, h, w_ih, w_hh, b)),
            "This is a sigmoid, from 0 to 1. The state of this RNN goes from −1 to 1: tanh.",
            STEP,
        ),
        Misconception(
            "relu",
            lambda x, h, w_ih, w_hh, b: torch.relu(_inside(x, h, w_ih, w_hh, b)),
            "This is a ReLU, which cuts off whatever is negative. The state of this RNN goes from −1 to 1: tanh.",
            STEP,
        ),
        Misconception(
            "the state forgotten",
            lambda x, h, w_ih, w_hh, b: torch.tanh(x @ w_ih + b),
            "The old state is not used: this network would forget every word as soon as it reads the next one.",
            STEP,
        ),
        Misconception(
            "the word forgotten",
            lambda x, h, w_ih, w_hh, b: torch.tanh(h @ w_hh + b),
            "The word is not used: this network reads nothing.",
            STEP,
        ),
        Misconception(
            "no bias",
            lambda x, h, w_ih, w_hh, b: torch.tanh(x @ w_ih + h @ w_hh),
            "The bias b is missing in the sum.",
            STEP,
        ),
        Misconception(
            "bias outside",
            lambda x, h, w_ih, w_hh, b: torch.tanh(x @ w_ih + h @ w_hh) + b,
            "The bias stands outside the tanh, so the state may leave −1 … 1. All three parts stand inside.",
            STEP,
        ),
        Misconception(
            "bias twice",
            lambda x, h, w_ih, w_hh, b: torch.tanh(x @ w_ih + b + h @ w_hh + b),
            "The bias is added twice. torch's own cell has two biases; here there is one, b.",
            STEP,
        ),
        Misconception(
            "tanh of the word alone",
            lambda x, h, w_ih, w_hh, b: torch.tanh(x @ w_ih) + h @ w_hh + b,
            "Only the word goes through the tanh, so the state may leave −1 … 1. All three parts stand inside.",
            STEP,
        ),
        Misconception(
            "squeezed",
            lambda x, h, w_ih, w_hh, b: torch.tanh(_inside(x, h, w_ih, w_hh, b)).squeeze(),
            "Right, until there is one sentence only: squeeze() drops every axis of length 1. Nothing has to be "
            "dropped here.",
            STEP,
        ),
        Misconception(
            "matrix on the left",
            lambda x, h, w_ih, w_hh, b: torch.tanh(w_ih @ x + w_hh @ h + b),
            "The matrices stand on the left, as for columns. Words and states are rows here: x @ w_ih, h @ w_hh.",
            STEP,
        ),
        Misconception(
            "returned twice",
            lambda x, h, w_ih, w_hh, b: (torch.tanh(_inside(x, h, w_ih, w_hh, b)),) * 2,
            "The new state is right. Return it once: in this RNN, output and state are the same thing.",
            STEP,
        ),
        Misconception(
            "two tanhs",
            lambda x, h, w_ih, w_hh, b: torch.tanh(x @ w_ih + b) + torch.tanh(h @ w_hh),
            "You took tanh of word and state apart and then added: the state may reach 2. Add first, one tanh around "
            "all.",
            STEP,
        ),
        Misconception(
            "state's matrix transposed",
            lambda x, h, w_ih, w_hh, b: torch.tanh(x @ w_ih + h @ w_hh.T + b),
            "w_hh is transposed. It is square, so nothing complains. States are rows here: h @ w_hh, as it stands.",
            STEP,
        ),
        Misconception(
            "word's matrix transposed",
            lambda x, h, w_ih, w_hh, b: torch.tanh(x @ w_ih.T + h @ w_hh + b),
            "w_ih is transposed, which only fits where words are as wide as states. Words are rows here: x @ w_ih.",
            STEP,
        ),
        Misconception(
            "both matrices transposed",
            lambda x, h, w_ih, w_hh, b: torch.tanh(x @ w_ih.T + h @ w_hh.T + b),
            "Both matrices are transposed, as torch keeps them. Here they are (E, D) and (D, D): no .T.",
            STEP,
        ),
        Misconception(
            "matrices swapped",
            lambda x, h, w_ih, w_hh, b: torch.tanh(x @ w_hh + h @ w_ih + b),
            "The matrices are swapped: w_ih goes from the input to the hidden state, w_hh from hidden to hidden.",
            STEP,
        ),
        Misconception(
            "multiplied",
            lambda x, h, w_ih, w_hh, b: torch.tanh((x @ w_ih) * (h @ w_hh) + b),
            "You multiplied what comes from the word with what comes from the state. They are added.",
            STEP,
        ),
        Misconception(
            "old state added",
            lambda x, h, w_ih, w_hh, b: h + torch.tanh(_inside(x, h, w_ih, w_hh, b)),
            "You added the old state to the new one. A fine idea (unit 09 is fond of it), but not this RNN: the old state "
            "only enters through w_hh.",
            STEP,
        ),
        Misconception(
            "old state written over",
            _written_over,
            "You wrote the new state into the old one, which the caller may still need. Return a new tensor.",
            STEP,
        ),
        Misconception(
            "tanh overflows",
            lambda x, h, w_ih, w_hh, b: _tanh_by_hand(_inside(x, h, w_ih, w_hh, b)),
            "exp of a large number is infinity, and infinity / infinity is NaN. torch.tanh does not have that problem.",
            STEP,
        ),
        Misconception(
            "cut off from its inputs",
            lambda x, h, w_ih, w_hh, b: torch.tanh(_inside(x, h, w_ih, w_hh, b)).detach(),
            CUT,
            FADES,
        ),
    ),
    alternatives=(
        _glued,
        _step_loops,
        lambda x, h, w_ih, w_hh, b: torch.tanh(
            torch.einsum("be,ed->bd", x, w_ih) + torch.einsum("bc,cd->bd", h, w_hh) + b
        ),
        lambda x, h, w_ih, w_hh, b: torch.tanh(
            torch.nn.functional.linear(x, w_ih.T, b) + torch.nn.functional.linear(h, w_hh.T)
        ),
        lambda x, h, w_ih, w_hh, b: 2 * torch.sigmoid(2 * _inside(x, h, w_ih, w_hh, b)) - 1,
        lambda x, h, w_ih, w_hh, b: torch.addmm(b, x, w_ih).add(h.matmul(w_hh)).tanh(),
    ),
    forbidden=NOT_OURS,
)


# --- 01.3 ---------------------------------------------------------------------------------------------------


def sentence_state(x: Tensor, lengths: Tensor, w_ih: Tensor, w_hh: Tensor, b: Tensor) -> Tensor:
    """Read every sentence from left to right; return the state after its last word, (B, D).

    x is (B, T, E): B sentences, filled up to T words with padding. lengths is (B,): how many words of each are real.
    Before the first word the state is all zeros. Padding stands behind the words and may hold any numbers.
    You may call your `rnn_step`.
    """
    h = x.new_zeros(len(x), len(w_hh))
    for t in range(x.shape[1]):
        new = rnn_step(x[:, t], h, w_ih, w_hh, b)
        h = torch.where((t < lengths)[:, None], new, h)
    return h


def _sentence_cases(draw: Draw) -> list[Case]:
    def case(check: str, lengths: tuple[int, ...], t: int, e: int, d: int, note: str = "") -> Case:
        x = _single(draw, len(lengths), t, e)
        return Case(check, (x, torch.tensor(lengths), *_weights(draw, e, d)), note, gradient=True)

    return [
        case("sentences without padding", (2, 2, 2), 2, 4, 5),
        case("sentences without padding", (4, 4), 4, 3, 2, "longer"),
        case("padding behind short sentences", (1, 3), 3, 4, 2, "one word, and three"),
        case("padding behind short sentences", (4, 2, 1, 5, 3), 6, 2, 3, "nobody fills the rectangle"),
        case("as many sentences as words", (2, 3, 1), 3, 2, 4, "where a wrong axis has the right shape"),
    ]


def _all_states(x: Tensor, w_ih: Tensor, w_hh: Tensor, b: Tensor, first: float = 0.0) -> Tensor:
    """(B, T, D): the padding read like words."""
    h, states = x.new_full((len(x), len(w_hh)), first), []
    for word in x.unbind(1):
        h = rnn_step(word, h, w_ih, w_hh, b)
        states.append(h)
    return torch.stack(states, dim=1)


def _pick(states: Tensor, places: Tensor) -> Tensor:
    return states[torch.arange(len(states)), places]


def _never_carried(x: Tensor, lengths: Tensor, w_ih: Tensor, w_hh: Tensor, b: Tensor) -> Tensor:
    words = _pick(x, lengths - 1)
    return rnn_step(words, words.new_zeros(len(x), len(w_hh)), w_ih, w_hh, b)


def _right_to_left(x: Tensor, lengths: Tensor, w_ih: Tensor, w_hh: Tensor, b: Tensor) -> Tensor:
    return torch.stack(
        [_all_states(row[None, :n].flip(1), w_ih, w_hh, b)[0, -1] for row, n in zip(x, lengths.tolist(), strict=True)]
    )


def _average(x: Tensor, lengths: Tensor, w_ih: Tensor, w_hh: Tensor, b: Tensor) -> Tensor:
    real = torch.arange(x.shape[1]) < lengths[:, None]
    return (_all_states(x, w_ih, w_hh, b) * real[..., None]).sum(dim=1) / lengths[:, None]


def _batch_as_time(x: Tensor, lengths: Tensor, w_ih: Tensor, w_hh: Tensor, b: Tensor) -> Tensor:
    return _pick(_all_states(x.transpose(0, 1), w_ih, w_hh, b), (lengths - 1).clamp(max=len(x) - 1))


def _forgetful(x: Tensor, lengths: Tensor, w_ih: Tensor, w_hh: Tensor, b: Tensor) -> Tensor:
    h = x.new_zeros(len(x), len(w_hh))
    for t in range(x.shape[1]):
        h = torch.where((t < lengths)[:, None], rnn_step(x[:, t], h.detach(), w_ih, w_hh, b), h)
    return h


def _second_word_on(x: Tensor, lengths: Tensor, w_ih: Tensor, w_hh: Tensor, b: Tensor) -> Tensor:
    h = x.new_zeros(len(x), len(w_hh))
    for t in range(1, x.shape[1]):
        h = torch.where((t < lengths)[:, None], rnn_step(x[:, t], h, w_ih, w_hh, b), h)
    return h


def _zeroed_padding(x: Tensor, lengths: Tensor, w_ih: Tensor, w_hh: Tensor, b: Tensor) -> Tensor:
    real = torch.arange(x.shape[1]) < lengths[:, None]
    return _all_states(x * real[..., None], w_ih, w_hh, b)[:, -1]


def _wiped_out(x: Tensor, lengths: Tensor, w_ih: Tensor, w_hh: Tensor, b: Tensor) -> Tensor:
    h = x.new_zeros(len(x), len(w_hh))
    for t in range(x.shape[1]):
        h = rnn_step(x[:, t], h, w_ih, w_hh, b) * (t < lengths)[:, None]
    return h


def _upside_down(x: Tensor, lengths: Tensor, w_ih: Tensor, w_hh: Tensor, b: Tensor) -> Tensor:
    h = x.new_zeros(len(x), len(w_hh))
    for t in range(x.shape[1]):
        h = torch.where((t < lengths)[:, None], h, rnn_step(x[:, t], h, w_ih, w_hh, b))
    return h


def _last_word_missed(x: Tensor, lengths: Tensor, w_ih: Tensor, w_hh: Tensor, b: Tensor) -> Tensor:
    h = x.new_zeros(len(x), len(w_hh))
    for t in range(x.shape[1]):
        h = torch.where((t < lengths - 1)[:, None], rnn_step(x[:, t], h, w_ih, w_hh, b), h)
    return h


def _never_reset(x: Tensor, lengths: Tensor, w_ih: Tensor, w_hh: Tensor, b: Tensor) -> Tensor:
    h, rows = x.new_zeros(1, len(w_hh)), []
    for row, n in zip(x, lengths.tolist(), strict=True):
        for word in row[:n]:
            h = rnn_step(word[None], h, w_ih, w_hh, b)
        rows.append(h)
    return torch.cat(rows)


def _as_wide_as_a_word(x: Tensor, lengths: Tensor, w_ih: Tensor, w_hh: Tensor, b: Tensor) -> Tensor:
    return rnn_step(x[:, 0], torch.zeros_like(x[:, 0]), w_ih, w_hh, b)


def _total(x: Tensor, lengths: Tensor, w_ih: Tensor, w_hh: Tensor, b: Tensor) -> Tensor:
    return _average(x, lengths, w_ih, w_hh, b) * lengths[:, None]


def _one_by_one(x: Tensor, lengths: Tensor, w_ih: Tensor, w_hh: Tensor, b: Tensor) -> Tensor:
    rows = zip(x, lengths.tolist(), strict=True)
    return torch.stack([_all_states(row[None, :n], w_ih, w_hh, b)[0, -1] for row, n in rows])


def _live_rows(x: Tensor, lengths: Tensor, w_ih: Tensor, w_hh: Tensor, b: Tensor) -> Tensor:
    h = torch.zeros(len(x), len(w_hh))
    for t in range(x.shape[1]):
        live = t < lengths
        h[live] = rnn_step(x[live, t], h[live], w_ih, w_hh, b)
    return h


def _blended(x: Tensor, lengths: Tensor, w_ih: Tensor, w_hh: Tensor, b: Tensor) -> Tensor:
    h = torch.zeros(x.shape[0], w_hh.shape[1], dtype=x.dtype)
    for t in range(int(lengths.max())):
        real = (lengths > t).to(x.dtype).unsqueeze(1)
        h = real * rnn_step(x[:, t], h, w_ih, w_hh, b) + (1 - real) * h
    return h


def _gathered(x: Tensor, lengths: Tensor, w_ih: Tensor, w_hh: Tensor, b: Tensor) -> Tensor:
    states = _all_states(x, w_ih, w_hh, b)
    places = (lengths - 1)[:, None, None].expand(-1, 1, states.shape[-1])
    return states.gather(1, places).squeeze(1)


SENTENCE_STATE = Exercise(
    id="01.3",
    title="One state for a sentence",
    answer="course_lib.exercises.u01.sentence_state",
    minutes=10,
    outcomes=("01-a", "01-c"),
    checks=(
        Check("sentences without padding", 2),
        Check("padding behind short sentences", 2),
        Check("as many sentences as words"),
    ),
    cases=_sentence_cases,
    hints=(
        "A loop over the words, t = 0, 1, …; x[:, t] holds word t of all sentences. The state goes from step to step.",
        "A sentence that has ended should keep its state while the others go on. Which sentences still have a word at t? "
        "Those with t < lengths.",
        "torch.where(condition, new, old) chooses row by row; the condition needs shape (B, 1), so [:, None]. Or keep all "
        "states, and pick number lengths − 1 of each sentence at the end.",
    ),
    misconceptions=(
        Misconception(
            "read at the padded end",
            lambda x, lengths, w_ih, w_hh, b: _all_states(x, w_ih, w_hh, b)[:, -1],
            "You took the state at the end of the rectangle: short sentences have read padding by then. Their last word is "
            "number lengths − 1.",
            STATE,
        ),
        Misconception(
            "read until the longest ends",
            lambda x, lengths, w_ih, w_hh, b: _all_states(x, w_ih, w_hh, b)[:, int(lengths.max()) - 1],
            "You read on until the longest sentence ends: the shorter ones have read padding by then. Their last "
            "word is number lengths − 1.",
            STATE,
        ),
        Misconception(
            "mask the wrong way round",
            _upside_down,
            "The condition is the wrong way round: sentences read their padding here, and keep still while there are "
            "words.",
            STATE,
        ),
        Misconception(
            "last word missed",
            _last_word_missed,
            "The last word is not read: word number lengths − 1 is a real one, so t < lengths.",
            STATE,
        ),
        Misconception(
            "state carried to the next sentence",
            _never_reset,
            "A sentence starts with the last state of the one before. Each starts from zeros.",
            STEP,
        ),
        Misconception(
            "every length for every sentence",
            lambda x, lengths, w_ih, w_hh, b: _all_states(x, w_ih, w_hh, b)[:, lengths - 1],
            "states[:, lengths - 1] picks all places for each sentence, (B, B, D). One place each: "
            "states[torch.arange(B), lengths - 1].",
            STATE,
        ),
        Misconception(
            "steps and sentences mixed up",
            lambda x, lengths, w_ih, w_hh, b: _all_states(x, w_ih, w_hh, b).transpose(0, 1)[
                torch.arange(len(x)), lengths - 1
            ],
            "torch.stack of the states is (T, B, D): the steps come first. Say dim=1, or ask for [lengths - 1, "
            "torch.arange(B)].",
            STATE,
        ),
        Misconception(
            "as wide as a word",
            _as_wide_as_a_word,
            "Your first state is as wide as a word. It has D numbers, as many as w_hh has rows.",
            STEP,
        ),
        Misconception(
            "sum of the states",
            _total,
            "This is the sum of all states. What is asked for is the last one, which has read everything.",
            STATE,
        ),
        Misconception(
            "zeros for padding",
            _zeroed_padding,
            "You set padding to zero vectors and read on. A step without a word still changes the state, by w_hh and b: "
            "the state has to stay as it is.",
            STATE,
        ),
        Misconception(
            "state wiped out by padding",
            _wiped_out,
            "Where a sentence has ended you set the state to 0, and the sentence is forgotten. It has to stay as it was: the "
            "old state, not zeros.",
            STATE,
        ),
        Misconception(
            "one word too far",
            lambda x, lengths, w_ih, w_hh, b: _pick(_all_states(x, w_ih, w_hh, b), lengths.clamp(max=x.shape[1] - 1)),
            "Python counts from 0: the last of n words is number n − 1, and you took number n.",
            STATE,
        ),
        Misconception(
            "state not carried",
            _never_carried,
            "Every step starts from zeros, so this is the state after the last word alone. Hand the state on.",
            STEP,
        ),
        Misconception(
            "right to left",
            _right_to_left,
            "You read from the last word to the first. Here reading goes from left to right.",
            FUTURE,
        ),
        Misconception(
            "average of the states",
            _average,
            "This is the average of all states. What is asked for is the last one, which has read everything.",
            STATE,
        ),
        Misconception(
            "all states",
            lambda x, lengths, w_ih, w_hh, b: _all_states(x, w_ih, w_hh, b),
            "You returned the states after every word, (B, T, D). Only the one after each sentence's last word is "
            "asked for.",
            STATE,
        ),
        Misconception(
            "first state",
            lambda x, lengths, w_ih, w_hh, b: _all_states(x, w_ih, w_hh, b)[:, 0],
            "This is the state after the first word. Is there a `return` inside the loop?",
            STEP,
        ),
        Misconception(
            "sentences read as words",
            _batch_as_time,
            "`for … in x` walks along the first axis, over the sentences. Words are on the second one: x[:, t].",
            STEP,
        ),
        Misconception(
            "everybody as long as the shortest",
            lambda x, lengths, w_ih, w_hh, b: _all_states(x, w_ih, w_hh, b)[:, int(lengths.min()) - 1],
            "You stopped for all when the shortest sentence ended. The others go on.",
            STATE,
        ),
        Misconception(
            "everybody as long as the first",
            lambda x, lengths, w_ih, w_hh, b: _all_states(x, w_ih, w_hh, b)[:, int(lengths[0]) - 1],
            "You used the length of the first sentence for all. Each has its own.",
            STATE,
        ),
        Misconception(
            "starts from ones",
            lambda x, lengths, w_ih, w_hh, b: _pick(_all_states(x, w_ih, w_hh, b, first=1.0), lengths - 1),
            "Reading begins with a state of ones here. Before the first word nothing is known: zeros.",
            STEP,
        ),
        Misconception(
            "first word skipped",
            _second_word_on,
            "The first word is never read: t starts at 0.",
            STEP,
        ),
        Misconception(
            "state cut off at every step",
            _forgetful,
            "The numbers are right, but the state is detached on the way: no gradient goes further back than one word, so "
            "nothing earlier can be learned.",
            FADES,
        ),
        Misconception(
            "cut off from its inputs",
            lambda x, lengths, w_ih, w_hh, b: sentence_state(x, lengths, w_ih, w_hh, b).detach(),
            CUT,
            FADES,
        ),
    ),
    alternatives=(
        _one_by_one,
        _live_rows,
        _blended,
        _gathered,
        lambda x, lengths, w_ih, w_hh, b: _pick(_all_states(x, w_ih, w_hh, b), lengths - 1),
    ),
    forbidden=NOT_OURS,
)


# --- 01.4 ---------------------------------------------------------------------------------------------------


def both_directions(x: Tensor, lengths: Tensor, w_ih: Tensor, w_hh: Tensor, b: Tensor) -> Tensor:
    """The states of two readers side by side, (B, T, 2D): first who reads left to right, then who reads right to left.

    x is (B, T, E), lengths is (B,); padding stands behind the words. w_ih is (2, E, D), w_hh is (2, D, D), b is (2, D):
    number 0 belongs to the reader from the left, number 1 to the one from the right. Both start with zeros, the one
    from the right at each sentence's last real word. In the result, everything on padding is 0.
    """
    real = torch.arange(x.shape[1]) < lengths[:, None]
    sides = []
    for side, order in enumerate((range(x.shape[1]), reversed(range(x.shape[1])))):
        h, states = x.new_zeros(len(x), w_hh.shape[-1]), {}
        for t in order:
            new = rnn_step(x[:, t], h, w_ih[side], w_hh[side], b[side])
            states[t] = h = torch.where(real[:, t, None], new, h)
        sides.append(torch.stack([states[t] for t in range(x.shape[1])], dim=1))
    return torch.cat(sides, dim=-1) * real[..., None]


def _both_cases(draw: Draw) -> list[Case]:
    def case(check: str, lengths: tuple[int, ...], t: int, e: int, d: int, note: str = "") -> Case:
        sides = zip(_weights(draw, e, d), _weights(draw, e, d), strict=True)
        weights = (torch.stack(pair) for pair in sides)
        return Case(check, (_single(draw, len(lengths), t, e), torch.tensor(lengths), *weights), note, gradient=True)

    return [
        case("two readers, no padding", (3, 3), 3, 4, 5),
        case("two readers, no padding", (2, 2, 2, 2), 2, 5, 3, "more sentences"),
        case("sizes alike", (3, 3, 3), 3, 2, 3, "where a wrong axis has the right shape"),
        case("sentences of different lengths", (1, 3), 3, 4, 2, "one word, and three"),
        case("sentences of different lengths", (4, 2, 5), 6, 3, 4, "nobody fills the rectangle"),
    ]


Sides = tuple[Tensor, Tensor, Tensor]


def _real(x: Tensor, lengths: Tensor) -> Tensor:
    return (torch.arange(x.shape[1]) < lengths[:, None])[..., None]


def _one_side(x: Tensor, lengths: Tensor, weights: Sides, reverse: bool) -> Tensor:
    """The states (B, T, D) of one reader, each sentence read alone, zeros on padding."""
    rows = []
    for row, n in zip(x, lengths.tolist(), strict=True):
        words = row[None, :n].flip(1) if reverse else row[None, :n]
        states = _all_states(words, *weights)[0]
        states = states.flip(0) if reverse else states
        rows.append(torch.cat([states, states.new_zeros(x.shape[1] - n, states.shape[1])]))
    return torch.stack(rows)


def _sides(x: Tensor, lengths: Tensor, w_ih: Tensor, w_hh: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    right, left = zip(w_ih, w_hh, b, strict=True)
    return _one_side(x, lengths, right, False), _one_side(x, lengths, left, True)


def _joined(join: Callable[[Tensor, Tensor], Any]) -> Callable[..., Any]:
    """The right two readers, joined in some way."""
    return lambda x, lengths, w_ih, w_hh, b: join(*_sides(x, lengths, w_ih, w_hh, b))


def _padding_first(x: Tensor, lengths: Tensor, w_ih: Tensor, w_hh: Tensor, b: Tensor) -> Tensor:
    right, _ = _sides(x, lengths, w_ih, w_hh, b)
    left = _all_states(x.flip(1), w_ih[1], w_hh[1], b[1]).flip(1)
    return torch.cat([right, left], dim=-1) * _real(x, lengths)


def _padding_kept(x: Tensor, lengths: Tensor, w_ih: Tensor, w_hh: Tensor, b: Tensor) -> Tensor:
    right = _all_states(x, w_ih[0], w_hh[0], b[0])
    left = _all_states(x.flip(1), w_ih[1], w_hh[1], b[1]).flip(1)
    return torch.cat([right, left], dim=-1)


def _padding_not_cleared(x: Tensor, lengths: Tensor, w_ih: Tensor, w_hh: Tensor, b: Tensor) -> Tensor:
    right, left = _sides(x, lengths, w_ih, w_hh, b)
    ends = _pick(right, lengths - 1)[:, None]  # a state that stays as it is, to the end of the rectangle
    return torch.cat([torch.where(_real(x, lengths), right, ends), left], dim=-1)


def _zeros_read_first(x: Tensor, lengths: Tensor, w_ih: Tensor, w_hh: Tensor, b: Tensor) -> Tensor:
    return _padding_first(x * _real(x, lengths), lengths, w_ih, w_hh, b)


def _not_turned_back(x: Tensor, lengths: Tensor, w_ih: Tensor, w_hh: Tensor, b: Tensor) -> Tensor:
    right, _ = _sides(x, lengths, w_ih, w_hh, b)
    rows = zip(x, lengths.tolist(), strict=True)
    turned = torch.stack([torch.cat([row[:n].flip(0), row[n:]]) for row, n in rows])
    left = _one_side(turned, lengths, (w_ih[1], w_hh[1], b[1]), False)
    return torch.cat([right, left], dim=-1)


def _both_from_the_left(x: Tensor, lengths: Tensor, w_ih: Tensor, w_hh: Tensor, b: Tensor) -> Tensor:
    sides = [_one_side(x, lengths, weights, False) for weights in zip(w_ih, w_hh, b, strict=True)]
    return torch.cat(sides, dim=-1)


def _both_from_the_right(x: Tensor, lengths: Tensor, w_ih: Tensor, w_hh: Tensor, b: Tensor) -> Tensor:
    sides = [_one_side(x, lengths, weights, True) for weights in zip(w_ih, w_hh, b, strict=True)]
    return torch.cat(sides, dim=-1)


def _same_weights(x: Tensor, lengths: Tensor, w_ih: Tensor, w_hh: Tensor, b: Tensor) -> Tensor:
    first: Sides = (w_ih[0], w_hh[0], b[0])
    return torch.cat([_one_side(x, lengths, first, False), _one_side(x, lengths, first, True)], dim=-1)


def _weights_swapped(x: Tensor, lengths: Tensor, w_ih: Tensor, w_hh: Tensor, b: Tensor) -> Tensor:
    return torch.cat(_sides(x, lengths, w_ih.flip(0), w_hh.flip(0), b.flip(0)), dim=-1)


def _carried_over(x: Tensor, lengths: Tensor, w_ih: Tensor, w_hh: Tensor, b: Tensor) -> Tensor:
    """The reader from the right starts with the last state of the other one."""
    rows = []
    for row, n in zip(x, lengths.tolist(), strict=True):
        right = _all_states(row[None, :n], w_ih[0], w_hh[0], b[0])[0]
        h, left = right[-1:], [right[:0]]
        for word in row[:n].flip(0):
            h = rnn_step(word[None], h, w_ih[1], w_hh[1], b[1])
            left.insert(0, h)
        both = torch.cat([right, torch.cat(left)], dim=-1)
        rows.append(torch.cat([both, both.new_zeros(x.shape[1] - n, both.shape[1])]))
    return torch.stack(rows)


def _flipped(axis: int) -> Callable[..., Tensor]:
    """The second reader gets x turned round along another axis than time."""

    def both(x: Tensor, lengths: Tensor, w_ih: Tensor, w_hh: Tensor, b: Tensor) -> Tensor:
        right, _ = _sides(x, lengths, w_ih, w_hh, b)
        left = _all_states(x.flip(axis), w_ih[1], w_hh[1], b[1])
        return torch.cat([right, left], dim=-1) * _real(x, lengths)

    return both


def _turned_by_index(x: Tensor, lengths: Tensor, w_ih: Tensor, w_hh: Tensor, b: Tensor) -> Tensor:
    """Turn only the real words of each sentence round, read from the left, turn back."""
    places = torch.arange(x.shape[1]).expand(len(x), -1)
    places = torch.where(places < lengths[:, None], lengths[:, None] - 1 - places, places)
    rows = torch.arange(len(x))[:, None]
    left = _all_states(x[rows, places], w_ih[1], w_hh[1], b[1])[rows, places]
    states = torch.cat([_all_states(x, w_ih[0], w_hh[0], b[0]), left], dim=-1)
    return states.masked_fill(~_real(x, lengths), 0.0)


BOTH_DIRECTIONS = Exercise(
    id="01.4",
    title="A state that knows both sides",
    answer="course_lib.exercises.u01.both_directions",
    minutes=14,
    outcomes=("01-b",),
    checks=(
        Check("two readers, no padding", 2),
        Check("sizes alike"),
        Check("sentences of different lengths", 2),
    ),
    cases=_both_cases,
    hints=(
        "Two loops: one over t = 0 … T − 1, one over t = T − 1 … 0. Each has its own weights and its own state, and keeps "
        "its states by t. torch.cat puts them side by side.",
        "For the second reader, the state made at word t belongs to position t again: sort its states by t before you "
        "put them beside the others.",
        "Padding: let a state stay as it is where t ≥ lengths (torch.where, as in 01.3). The reader from the right then "
        "still has its zeros when it comes to the last real word. At the end, multiply by the mask.",
    ),
    misconceptions=(
        Misconception(
            "both from the left",
            _both_from_the_left,
            "Both readers come from the left: no state knows the words behind it. The second one starts at the end.",
            FUTURE,
        ),
        Misconception(
            "both from the right",
            _both_from_the_right,
            "Both readers come from the right: no state knows the words before it. The first one starts at the "
            "beginning.",
            FUTURE,
        ),
        Misconception(
            "not turned back",
            _not_turned_back,
            "You turned the sentence round and read it, and did not turn the states back: beside word 1 stands what the "
            "second reader knew at the last word.",
            FUTURE,
        ),
        Misconception(
            "one reader, turned round",
            _joined(lambda right, left: torch.cat([right, right.flip(1)], dim=-1)),
            "You turned the first reader's states round. The second reader reads for itself, from the end, with its "
            "own weights.",
            FUTURE,
        ),
        Misconception(
            "sentences doubled",
            _joined(lambda right, left: torch.cat([right, left])),
            "torch.cat without dim= goes along the batch, 2B sentences. The two states of a word belong side by "
            "side: dim=-1.",
            FUTURE,
        ),
        Misconception(
            "two results",
            _joined(lambda right, left: (right, left)),
            "Both readers are right. Put their states side by side, in one tensor: torch.cat with dim=-1.",
            FUTURE,
        ),
        Misconception(
            "added",
            _joined(lambda right, left: right + left),
            "You added the two states. Side by side means: one behind the other, D + D numbers.",
            FUTURE,
        ),
        Misconception(
            "averaged",
            _joined(lambda right, left: (right + left) / 2),
            "You averaged the two states. Side by side means: one behind the other, D + D numbers.",
            FUTURE,
        ),
        Misconception(
            "one after the other in time",
            _joined(lambda right, left: torch.cat([right, left], dim=1)),
            "You put the states one after the other in time, 2T of them. They belong side by side: dim=-1.",
            FUTURE,
        ),
        Misconception(
            "a new axis",
            _joined(lambda right, left: torch.stack([right, left], dim=2)),
            "torch.stack makes a new axis, (B, T, 2, D). The two states of a word form one vector, (B, T, 2D): "
            "torch.cat.",
            FUTURE,
        ),
        Misconception(
            "taking turns",
            _joined(lambda right, left: torch.stack([right, left], dim=-1).flatten(-2)),
            "The numbers of both readers take turns. First all of the left one's, then all of the right one's.",
            FUTURE,
        ),
        Misconception(
            "one vector for the sentence",
            _joined(lambda right, left: torch.cat([right[:, -1], left[:, -1]], dim=-1)),
            "You return one vector for each sentence. Every word gets its own state here, (B, T, 2D).",
            FUTURE,
        ),
        Misconception(
            "right reader first",
            _joined(lambda right, left: torch.cat([left, right], dim=-1)),
            "Both states are right, in the other order: first who reads from left to right.",
            FUTURE,
        ),
        Misconception(
            "one set of weights",
            _same_weights,
            "Both readers use the weights number 0. They are two networks: the second one has its own.",
            FUTURE,
        ),
        Misconception(
            "weights swapped",
            _weights_swapped,
            "Each reader has the other one's weights: number 0 is for who comes from the left.",
            FUTURE,
        ),
        Misconception(
            "state carried over",
            _carried_over,
            "The second reader starts with the last state of the first. Each starts from zeros, or it has seen it all.",
            FUTURE,
        ),
        Misconception(
            "features turned round",
            _flipped(2),
            "You turned round the numbers inside each word, not the words: time is the second axis.",
            FUTURE,
        ),
        Misconception(
            "sentences turned round",
            _flipped(0),
            "You turned round the batch: the second reader reads other sentences, and from the left. Time is the second "
            "axis.",
            FUTURE,
        ),
        Misconception(
            "padding read first",
            _padding_first,
            "The reader from the right begins with the padding of short sentences. It should begin at their last "
            "real word.",
            STATE,
        ),
        Misconception(
            "padding not cleared",
            _padding_not_cleared,
            "Both readers are right. What stands on padding should be 0: multiply by the mask at the end.",
            STATE,
        ),
        Misconception(
            "zeros read first",
            _zeros_read_first,
            "You set padding to zero vectors, and the reader from the right begins with them. A step without a word "
            "still changes the state: it should begin at the last real word.",
            STATE,
        ),
        Misconception(
            "padding read by both",
            _padding_kept,
            "Without padding it is right. With it, the reader from the right begins with padding, and the states there "
            "should be 0.",
            STATE,
        ),
        Misconception(
            "cut off from its inputs",
            _joined(lambda right, left: torch.cat([right, left], dim=-1).detach()),
            CUT,
            FADES,
        ),
    ),
    alternatives=(
        _joined(lambda right, left: torch.cat([right, left], dim=-1)),
        _turned_by_index,
    ),
    forbidden=NOT_OURS,
)


# --- 01.5 ---------------------------------------------------------------------------------------------------


def accuracy_by_length(said: Tensor, meant: Tensor, lengths: Tensor) -> Tensor:
    """The share of sentences that came out exactly right, for each length 1, 2, … up to the longest.

    said and meant are (N, T): token ids of N sentences, the end token included, filled up with 0 behind it.
    lengths is (N,): how many words each sentence has, without the end token; every length up to the longest occurs.
    A sentence is right if all of its row is. Return a tensor with one share, from 0 to 1, for each length.
    """
    right = (said == meant).all(dim=1)
    shares = [right[lengths == n].float().mean() for n in range(1, int(lengths.max()) + 1)]
    return torch.stack(shares)


def _said_and_meant(draw: Draw, sentences: list[tuple[int, str]]) -> tuple[Tensor, Tensor, Tensor]:
    """Sentences of so many words, said "right", or with one of the ways to be wrong."""
    width = max(n for n, _ in sentences) + 2
    said, meant = torch.zeros(2, len(sentences), width, dtype=torch.long)
    for row, (n, how) in enumerate(sentences):
        words = torch.from_numpy(draw.rng.permutation(9)[:n] + 4)  # no word twice, or a swap could go unseen
        meant[row, : n + 1] = torch.cat([words, torch.tensor([2])])
        copied = meant[row].clone()
        if how == "first":
            copied[0] = 13
        elif how == "last":
            copied[n - 1] = 13
        elif how == "swapped":
            copied[[0, n - 1]] = copied[[n - 1, 0]]
        elif how == "long":
            copied[n], copied[n + 1] = 13, 2
        elif how == "short":
            copied[n - 1], copied[n] = 2, 0
        said[row] = copied
    return said, meant, torch.tensor([n for n, _ in sentences])


def _accuracy_cases(draw: Draw) -> list[Case]:
    few = [(1, "right"), (2, "first"), (1, "last"), (2, "right"), (1, "right")]
    many = [(3, "right"), (1, "right"), (3, "swapped"), (2, "right"), (4, "first"), (2, "last"), (3, "last"), (4, "right"),
            (4, "swapped"), (2, "first"), (3, "right"), (4, "short"), (1, "long"), (3, "right"), (2, "right")]  # fmt: skip
    ends = [(2, "long"), (1, "right"), (2, "right"), (3, "short"), (3, "long"), (3, "swapped"), (1, "long"), (3, "right"),
            (2, "right"), (1, "right")]  # fmt: skip
    return [
        Case("one share for each length", _said_and_meant(draw, few), "one and two words"),
        Case("one share for each length", _said_and_meant(draw, many), "up to four words"),
        Case("the end counts, and so does the order", _said_and_meant(draw, ends), "some too long, some too short"),
    ]


def _grouped(score: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Callable[..., Tensor]:
    """The mean of some score of each sentence, by length."""

    def by_length(said: Tensor, meant: Tensor, lengths: Tensor) -> Tensor:
        scores = score(said, meant, lengths).float()
        return torch.stack([scores[lengths == n].mean() for n in range(1, int(lengths.max()) + 1)])

    return by_length


def _whole_rows(said: Tensor, meant: Tensor, lengths: Tensor) -> Tensor:
    return (said == meant).all(dim=1)


def _first_words(said: Tensor, meant: Tensor, lengths: Tensor) -> Tensor:
    words = torch.arange(said.shape[1]) < lengths[:, None]
    return ((said == meant) | ~words).all(dim=1)


def _shares(selected: Callable[[Tensor, int], Tensor], divide: bool = True) -> Callable[..., Tensor]:
    """Right sentences among those that `selected` picks for each length."""

    def by_length(said: Tensor, meant: Tensor, lengths: Tensor) -> Tensor:
        right = _whole_rows(said, meant, lengths).float()
        rows = [right[selected(lengths, n)] for n in range(1, int(lengths.max()) + 1)]
        return torch.stack([row.mean() if divide else row.sum() for row in rows])

    return by_length


def _from_zero(said: Tensor, meant: Tensor, lengths: Tensor) -> Tensor:
    right = _whole_rows(said, meant, lengths).float()
    return torch.stack([right[lengths == n].mean() for n in range(int(lengths.max()) + 1)])


def _last_length_lost(said: Tensor, meant: Tensor, lengths: Tensor) -> Tensor:
    right = _whole_rows(said, meant, lengths).float()
    return torch.stack([right[lengths == n].mean() for n in range(1, int(lengths.max()))])


def _counted(said: Tensor, meant: Tensor, lengths: Tensor) -> list[float]:
    hits: dict[int, list[bool]] = {}
    for one, other, n in zip(said.tolist(), meant.tolist(), lengths.tolist(), strict=True):
        hits.setdefault(n, []).append(one == other)
    return [sum(hits[n]) / len(hits[n]) for n in sorted(hits)]


def _by_bincount(said: Tensor, meant: Tensor, lengths: Tensor) -> Tensor:
    right = 1.0 * (said != meant).sum(dim=1).eq(0)
    return torch.bincount(lengths, weights=right)[1:] / torch.bincount(lengths)[1:]


def _all_or_nothing(said: Tensor, meant: Tensor, lengths: Tensor) -> Tensor:
    right = said == meant
    return torch.stack([right[lengths == n].all().float() for n in range(1, int(lengths.max()) + 1)])


def _as_they_come(said: Tensor, meant: Tensor, lengths: Tensor) -> Tensor:
    shares = _grouped(_whole_rows)(said, meant, lengths)
    return shares[torch.tensor(list(dict.fromkeys(lengths.tolist()))) - 1]


def _mean_of_booleans(said: Tensor, meant: Tensor, lengths: Tensor) -> Tensor:
    return _whole_rows(said, meant, lengths)[lengths == 1].mean()


ACCURACY = Exercise(
    id="01.5",
    title="Accuracy against length",
    answer="course_lib.exercises.u01.accuracy_by_length",
    minutes=8,
    outcomes=("01-c",),
    checks=(Check("one share for each length", 2), Check("the end counts, and so does the order")),
    cases=_accuracy_cases,
    hints=(
        "First forget the lengths: which rows are right from end to end? Then take those of one length at a time.",
        "said == meant compares token by token; .all(dim=1) asks for whole rows. lengths == n picks the sentences of "
        "length n, for n = 1, 2, … and the longest too.",
        "The mean of True and False is the share of True, once they are numbers: .float().mean(). torch.stack makes one "
        "tensor of the shares.",
    ),
    misconceptions=(
        Misconception(
            "words instead of sentences",
            _grouped(lambda said, meant, lengths: (said == meant).float().mean(dim=1)),
            "You counted tokens, padding included. A sentence with one wrong word is wrong: ask for .all() of its row.",
            FALLS,
        ),
        Misconception(
            "words without padding",
            _grouped(
                lambda said, meant, lengths: ((said == meant) & (meant != 0)).sum(dim=1) / (meant != 0).sum(dim=1)
            ),
            "You counted words. That is a fair measure too, but another one: here a sentence with a wrong word is "
            "wrong.",
            FALLS,
        ),
        Misconception(
            "all sentences of a length together",
            _all_or_nothing,
            "Your numbers are all 0 or 1: either you asked whether all sentences of a length are right (.all() without dim=1), or "
            "// cut the fractions off. One answer for each sentence, and then their share.",
            FALLS,
        ),
        Misconception(
            "order of appearance",
            _as_they_come,
            "The shares are right, in the order in which the lengths turn up. They should stand in order: length 1 "
            "first.",
            FALLS,
        ),
        Misconception(
            "percent",
            lambda said, meant, lengths: 100 * _grouped(_whole_rows)(said, meant, lengths),
            "Right, in percent. A share goes from 0 to 1.",
            FALLS,
        ),
        Misconception(
            "mean of True and False",
            _mean_of_booleans,
            "torch takes no mean of True and False: make numbers of them first, .float().mean().",
            FALLS,
        ),
        Misconception(
            "any word",
            _grouped(lambda said, meant, lengths: (said == meant).any(dim=1)),
            "One right token is enough for you (.any()). The whole row must be right: .all().",
            FALLS,
        ),
        Misconception(
            "the end forgotten",
            _grouped(_first_words),
            "You compared the words and not where the sentence ends: who goes on talking is right in your count.",
            FALLS,
        ),
        Misconception(
            "order forgotten",
            _grouped(lambda said, meant, lengths: (said.sort(dim=1).values == meant.sort(dim=1).values).all(dim=1)),
            "You compared which words there are, in any order. The order counts.",
            FALLS,
        ),
        Misconception(
            "first word only",
            _grouped(lambda said, meant, lengths: said[:, 0] == meant[:, 0]),
            "You looked at the first word only. The whole row must be right.",
            FALLS,
        ),
        Misconception(
            "errors instead",
            _grouped(lambda said, meant, lengths: ~_whole_rows(said, meant, lengths)),
            "This is the share that is wrong. Accuracy is the share that is right.",
            FALLS,
        ),
        Misconception(
            "counts",
            _shares(lambda lengths, n: lengths == n, divide=False),
            "These are counts. Divide by how many sentences of that length there are.",
            FALLS,
        ),
        Misconception(
            "share of all sentences",
            lambda said, meant, lengths: (
                _shares(lambda lengths, n: lengths == n, divide=False)(said, meant, lengths) / len(said)
            ),
            "You divided by the number of all sentences. Each length is a group of its own: divide by its own number.",
            FALLS,
        ),
        Misconception(
            "up to this length",
            _shares(lambda lengths, n: lengths <= n),
            "These shares are over all sentences up to that length. Long ones would hide behind short ones: lengths "
            "== n.",
            FALLS,
        ),
        Misconception(
            "one number",
            lambda said, meant, lengths: _whole_rows(said, meant, lengths).float().mean(),
            "One number for everything hides what you want to see. A share for each length, please.",
            FALLS,
        ),
        Misconception(
            "from length 0",
            _from_zero,
            "Your first entry is for length 0, and there is no such sentence. The first length is 1.",
            FALLS,
        ),
        Misconception(
            "longest left out",
            _last_length_lost,
            "The longest sentences are missing: range(1, n) ends before n.",
            FALLS,
        ),
    ),
    alternatives=(
        _counted,
        _by_bincount,
        _grouped(_whole_rows),
        lambda said, meant, lengths: (
            torch.tensor([torch.equal(a, b) for a, b in zip(said, meant, strict=True)], dtype=torch.float64)
            @ torch.nn.functional.one_hot(lengths - 1).double()
            / torch.bincount(lengths - 1)
        ),
    ),
)


# --- 01.6 ---------------------------------------------------------------------------------------------------


def gradient_by_word(x: Tensor, w_ih: Tensor, w_hh: Tensor, b: Tensor) -> Tensor:
    """How much of a gradient reaches each word, (B, T), when it starts at the last state.

    x is (B, T, E), without padding. Read it from left to right, from a state of zeros, and take the sum of the last
    state's numbers, over all sentences. Its gradient for x is (B, T, E); return the length (Euclidean norm) of each
    word's gradient.
    """
    x = x.detach().requires_grad_()
    h = x.new_zeros(len(x), len(w_hh))
    for word in x.unbind(dim=1):
        h = rnn_step(word, h, w_ih, w_hh, b)
    (gradient,) = torch.autograd.grad(h.sum(), x)
    return gradient.norm(dim=-1)


def _gradient_cases(draw: Draw) -> list[Case]:
    def case(check: str, b: int, t: int, e: int, d: int, note: str = "") -> Case:
        return Case(check, (_single(draw, b, t, e), *_weights(draw, e, d)), note)

    return [
        case("a sentence of two words", 1, 2, 3, 4),
        case("any sizes", 3, 4, 2, 5),
        case("any sizes", 2, 7, 5, 3, "longer"),
        case("as many sentences as words", 3, 3, 2, 3, "where a wrong axis has the right shape"),
    ]


def _traced(x: Tensor, w_ih: Tensor, w_hh: Tensor, b: Tensor) -> tuple[Tensor, list[Tensor]]:
    """A copy of x that gradients can reach, and the states after every word."""
    x = x.detach().clone().requires_grad_()
    h, states = x.new_zeros(len(x), len(w_hh)), []
    for word in x.unbind(1):
        h = rnn_step(word, h, w_ih, w_hh, b)
        states.append(h)
    return x, states


def _gradients(x: Tensor, w_ih: Tensor, w_hh: Tensor, b: Tensor) -> Tensor:
    x, states = _traced(x, w_ih, w_hh, b)
    return torch.autograd.grad(states[-1].sum(), x)[0]


def _measured(measure: Callable[[Tensor], Tensor]) -> Callable[..., Tensor]:
    """The right gradient, measured in some way."""
    return lambda x, w_ih, w_hh, b: measure(_gradients(x, w_ih, w_hh, b))


def _from_all_states(x: Tensor, w_ih: Tensor, w_hh: Tensor, b: Tensor) -> Tensor:
    x, states = _traced(x, w_ih, w_hh, b)
    return torch.autograd.grad(torch.stack(states).sum(), x)[0].norm(dim=-1)


def _from_the_mean(x: Tensor, w_ih: Tensor, w_hh: Tensor, b: Tensor) -> Tensor:
    x, states = _traced(x, w_ih, w_hh, b)
    return torch.autograd.grad(states[-1].mean(), x)[0].norm(dim=-1)


def _at_the_states(x: Tensor, w_ih: Tensor, w_hh: Tensor, b: Tensor) -> Tensor:
    _, states = _traced(x, w_ih, w_hh, b)
    return torch.stack([g.norm(dim=-1) for g in torch.autograd.grad(states[-1].sum(), states)], dim=1)


def _cut_at_every_step(x: Tensor, w_ih: Tensor, w_hh: Tensor, b: Tensor) -> Tensor:
    x = x.detach().clone().requires_grad_()
    h = x.new_zeros(len(x), len(w_hh))
    for word in x.unbind(1):
        h = rnn_step(word, h.detach(), w_ih, w_hh, b)
    return torch.autograd.grad(h.sum(), x)[0].norm(dim=-1)


def _own_state_only(x: Tensor, w_ih: Tensor, w_hh: Tensor, b: Tensor) -> Tensor:
    x = x.detach().clone().requires_grad_()
    states = rnn_step(x.flatten(0, 1), x.new_zeros(x.shape[0] * x.shape[1], len(w_hh)), w_ih, w_hh, b)
    return torch.autograd.grad(states.sum(), x)[0].norm(dim=-1)


def _nobody_asked(x: Tensor, w_ih: Tensor, w_hh: Tensor, b: Tensor) -> Any:
    return _all_states(x, w_ih, w_hh, b)[:, -1].sum().backward()


def _word_by_word(x: Tensor, w_ih: Tensor, w_hh: Tensor, b: Tensor) -> Tensor:
    words = [word.clone().requires_grad_() for word in x.unbind(1)]
    h = torch.zeros(len(x), len(w_hh))
    for word in words:
        h = rnn_step(word, h, w_ih, w_hh, b)
    return torch.stack([g.norm(dim=1) for g in torch.autograd.grad(h.sum(), words)], dim=1)


def _many_numbers(x: Tensor, w_ih: Tensor, w_hh: Tensor, b: Tensor) -> Any:
    return _traced(x, w_ih, w_hh, b)[1][-1].backward()


def _from_the_right(x: Tensor, w_ih: Tensor, w_hh: Tensor, b: Tensor) -> Tensor:
    return _gradients(x.flip(1), w_ih, w_hh, b).flip(1).norm(dim=-1)


def _first_sentence(x: Tensor, w_ih: Tensor, w_hh: Tensor, b: Tensor) -> Tensor:
    x, states = _traced(x, w_ih, w_hh, b)
    return torch.autograd.grad(states[-1][0].sum(), x)[0].norm(dim=-1)


def _chain_rule(x: Tensor, w_ih: Tensor, w_hh: Tensor, b: Tensor) -> Tensor:
    """By hand: backwards through tanh and w_hh, word by word."""
    states = _all_states(x, w_ih, w_hh, b)
    g = torch.ones_like(states[:, 0])
    lengths: list[Tensor] = []
    for t in reversed(range(x.shape[1])):
        g = g * (1 - states[:, t] ** 2)
        lengths.insert(0, (g @ w_ih.T).norm(dim=-1))
        g = g @ w_hh.T
    return torch.stack(lengths, dim=1)


def _chain_without_tanh(x: Tensor, w_ih: Tensor, w_hh: Tensor, b: Tensor) -> Tensor:
    g = x.new_ones(len(x), len(w_hh))
    lengths: list[Tensor] = []
    for _ in range(x.shape[1]):
        lengths.insert(0, (g @ w_ih.T).norm(dim=-1))
        g = g @ w_hh.T
    return torch.stack(lengths, dim=1)


GRADIENT_BY_WORD = Exercise(
    id="01.6",
    title="The gradient that arrives",
    answer="course_lib.exercises.u01.gradient_by_word",
    minutes=10,
    outcomes=("01-e",),
    checks=(Check("a sentence of two words"), Check("any sizes", 2), Check("as many sentences as words")),
    cases=_gradient_cases,
    hints=(
        "torch only keeps gradients for tensors that ask for them. Make such a tensor of x, read it, and let one number go "
        "backwards.",
        "A copy with .requires_grad_() asks. Then your loop over the words; then .sum() of the last state, and .backward() "
        "(or torch.autograd.grad): the gradient has the shape of x.",
        "A gradient for a word is a vector of E numbers; its length is .norm(dim=-1), which turns (B, T, E) into (B, "
        "T).",
    ),
    misconceptions=(
        Misconception(
            "all states pull",
            _from_all_states,
            "You summed all states, so every word also has a short way. The question is what comes from the last "
            "state.",
            FADES,
        ),
        Misconception(
            "mean instead of sum",
            _from_the_mean,
            "You started from the mean of the last state: all gradients are smaller by the number of entries. Sum.",
            FADES,
        ),
        Misconception(
            "nobody asked for a gradient",
            _nobody_asked,
            "No tensor asks for a gradient, so torch has kept nothing to go back along. Make a copy of x with "
            ".requires_grad_() before you read.",
            FADES,
        ),
        Misconception(
            "backwards from many numbers",
            _many_numbers,
            "A gradient starts from one number. Take .sum() of the last state first.",
            FADES,
        ),
        Misconception(
            "read from the right",
            _from_the_right,
            "You read from the last word to the first, so the last one is far away. Read from left to right.",
            STEP,
        ),
        Misconception(
            "first sentence alone",
            _first_sentence,
            "Only the first sentence gets a gradient here: sum the last states of all sentences.",
            FADES,
        ),
        Misconception(
            "one number",
            _measured(lambda g: g.norm()),
            "This is one number for everything. Return one for each word, (B, T): .norm(dim=-1).",
            FADES,
        ),
        Misconception(
            "lengths of the states",
            lambda x, w_ih, w_hh, b: _all_states(x, w_ih, w_hh, b).norm(dim=-1),
            "These are the lengths of the states. The question is about gradients: what the last state sends back to "
            "each word.",
            FADES,
        ),
        Misconception(
            "squared lengths",
            _measured(lambda g: (g**2).sum(dim=-1)),
            "These are the squares of the lengths: the root is missing.",
            FADES,
        ),
        Misconception(
            "absolute values summed",
            _measured(lambda g: g.abs().sum(dim=-1)),
            "You summed absolute values. The length of a vector is the root of the sum of its squares: .norm().",
            FADES,
        ),
        Misconception(
            "largest entry",
            _measured(lambda g: g.abs().amax(dim=-1)),
            "This is the largest entry of each gradient. Its length takes all entries: the root of the sum of squares.",
            FADES,
        ),
        Misconception(
            "signed sum",
            _measured(lambda g: g.sum(dim=-1)),
            "You summed the entries with their signs, so they cancel. A length is never negative: .norm().",
            FADES,
        ),
        Misconception(
            "first word only",
            _measured(lambda g: g[:, 0].norm(dim=-1)),
            "This is right for the first word. Return a number for each word: (B, T).",
            FADES,
        ),
        Misconception(
            "over the words",
            _measured(lambda g: g.norm(dim=1)),
            "You took the norm over the words. Each word has a gradient of its own: the norm runs over its E numbers.",
            FADES,
        ),
        Misconception(
            "over the sentences",
            _measured(lambda g: g.norm(dim=(0, 2))),
            "You took one norm for all sentences together. Each sentence keeps its own: (B, T).",
            FADES,
        ),
        Misconception(
            "averaged over the sentences",
            _measured(lambda g: g.norm(dim=-1).mean(dim=0)),
            "These are averages over the sentences. The question wants each sentence's own: (B, T).",
            FADES,
        ),
        Misconception(
            "the gradient itself",
            _measured(lambda g: g),
            "This is the gradient, (B, T, E), and it is right. What is asked for is its length, one number for each "
            "word.",
            FADES,
        ),
        Misconception(
            "relative to the last word",
            _measured(lambda g: g.norm(dim=-1) / g[:, -1:].norm(dim=-1)),
            "You divided by the last word's. That makes a fine plot; the question wants the lengths as they are.",
            FADES,
        ),
        Misconception(
            "at the states",
            _at_the_states,
            "These gradients arrive at the states. One more step leads from state t to word t, through tanh and w_ih.",
            FADES,
        ),
        Misconception(
            "cut at every step",
            _cut_at_every_step,
            "Only the last word has a gradient here: the state is detached in the loop, so nothing gets past it.",
            FADES,
        ),
        Misconception(
            "state not carried",
            _own_state_only,
            "Every word is read from a state of zeros, so no word is far from the end. Hand the state on.",
            STEP,
        ),
        Misconception(
            "chain rule without tanh",
            _chain_without_tanh,
            "By hand, and nearly: the gradient also passes through tanh at every step, which multiplies by 1 − h².",
            FADES,
        ),
    ),
    alternatives=(
        _measured(lambda g: g.norm(dim=-1)),
        _measured(lambda g: (g * g).sum(dim=-1).sqrt()),
        _chain_rule,
        _word_by_word,
        lambda x, w_ih, w_hh, b: torch.autograd.functional.vjp(lambda y: _all_states(y, w_ih, w_hh, b)[:, -1].sum(), x)[
            1
        ].norm(dim=-1),
    ),
    forbidden=NOT_OURS,
)


# --- 01.7 ---------------------------------------------------------------------------------------------------


def steps_by_hand() -> Any:
    """The fewest steps before each state can be computed: two layers over a sentence of five words.

    A state needs one step, and can be computed as soon as everything that it reads is there. The words are there at
    step 0. In an RNN, a state reads the state below it and the one on its left. With attention, it reads all of the
    layer below.
    Return two lists of lists, first for the RNN, then for attention: each has the five numbers of layer 1, and then
    the five numbers of layer 2.
    """
    return [[1, 2, 3, 4, 5], [2, 3, 4, 5, 6]], [[1, 1, 1, 1, 1], [2, 2, 2, 2, 2]]


STEPS_BY_HAND = Exercise(
    id="01.7",
    title="Who waits for whom?",
    answer="course_lib.exercises.u01.steps_by_hand",
    minutes=4,
    outcomes=("01-d",),
    checks=(Check("both tables", 2),),
    cases=lambda draw: [Case("both tables")],
    hints=(
        "Draw two rows of five circles above the words. Put a 1 into every circle that can be computed at once.",
        "A circle's number is one more than the largest number among those it reads.",
        "In the RNN, layer 2 need not wait until layer 1 is done: its first state can be computed at step 2, its second at "
        "step 3.",
    ),
    misconceptions=(
        Misconception(
            "layer after layer",
            lambda: ([[1, 2, 3, 4, 5], [6, 7, 8, 9, 10]], [[1] * 5, [2] * 5]),
            "You let layer 2 wait until all of layer 1 is done. Its first state only needs the first state below: "
            "step 2.",
            WAIT,
        ),
        Misconception(
            "counted from 0",
            lambda: ([[0, 1, 2, 3, 4], [1, 2, 3, 4, 5]], [[0] * 5, [1] * 5]),
            "All are one too small: the words are there at step 0, and the first state takes a step.",
            WAIT,
        ),
        Misconception(
            "layers in parallel",
            lambda: ([[1, 2, 3, 4, 5], [1, 2, 3, 4, 5]], [[1] * 5, [1] * 5]),
            "Layer 2 reads layer 1, so it has to wait for it: each of its numbers is larger than the one below.",
            WAIT,
        ),
        Misconception(
            "layer 2 all at once",
            lambda: ([[1, 2, 3, 4, 5], [2, 2, 2, 2, 2]], [[1] * 5, [2] * 5]),
            "Layer 2 of the RNN has a left neighbour to wait for, too: it is an RNN as well.",
            WAIT,
        ),
        Misconception(
            "steps added up",
            lambda: ([[1, 2, 3, 4, 5], [2, 4, 6, 8, 10]], [[1] * 5, [2] * 5]),
            "You added what stands below and on the left, or doubled. Both can be waited for at once: one more than the "
            "larger of the two.",
            WAIT,
        ),
        Misconception(
            "one step too late",
            lambda: ([[1, 2, 3, 4, 5], [3, 4, 5, 6, 7]], [[1] * 5, [2] * 5]),
            "The first state of layer 2 only needs the first state of layer 1, which is there after step 1: it comes "
            "at step 2.",
            WAIT,
        ),
        Misconception(
            "attention's layers at once",
            lambda: ([[1, 2, 3, 4, 5], [2, 3, 4, 5, 6]], [[1] * 5, [1] * 5]),
            "The RNN is right. With attention too, layer 2 reads layer 1 and has to wait for it.",
            WAIT,
        ),
        Misconception(
            "attention first",
            lambda: ([[1] * 5, [2] * 5], [[1, 2, 3, 4, 5], [2, 3, 4, 5, 6]]),
            "Both tables are right, in the other order: first the RNN, then attention.",
            WAIT,
        ),
        Misconception(
            "upper layer first",
            lambda: ([[2, 3, 4, 5, 6], [1, 2, 3, 4, 5]], [[2] * 5, [1] * 5]),
            "All numbers are right, and the layers stand as in a drawing. Return layer 1 first, then layer 2.",
            WAIT,
        ),
        Misconception(
            "flat tables",
            lambda: ([1, 2, 3, 4, 5, 2, 3, 4, 5, 6], [1] * 5 + [2] * 5),
            "All numbers are right. Each table is a list of two lists: layer 1, and layer 2.",
            WAIT,
        ),
        Misconception(
            "attention waits too",
            lambda: ([[1, 2, 3, 4, 5], [2, 3, 4, 5, 6]], [[1, 2, 3, 4, 5], [2, 3, 4, 5, 6]]),
            "The RNN is right. With attention nobody waits for a neighbour of the same layer: a whole layer is one "
            "step.",
            WAIT,
        ),
        Misconception(
            "attention after the whole layer",
            lambda: ([[1, 2, 3, 4, 5], [2, 3, 4, 5, 6]], [[1] * 5, [6] * 5]),
            "The RNN is right. A layer of attention is done after one step, for all words, so layer 2 is done after "
            "two.",
            WAIT,
        ),
    ),
    prediction=True,
)


# --- 01.8 ---------------------------------------------------------------------------------------------------


def two_counts(length: int, window: int) -> Any:
    """Two counts for each of three roads through a sentence of `length` words: RNN, word window, attention.

    First: the steps of one layer that must wait for each other. Second: how many steps (RNN) or layers (window,
    attention) it takes until some state knows the first and the last word, the first word's own step included.
    A window has an odd number of words, `window`; one layer at least is needed, even for a single word.
    Return three pairs of whole numbers, in this order: [[…, …], [… , …], [… , …]].
    """
    layers = math.ceil((length - 1) / (window - 1))
    return [[length, length], [1, max(1, layers)], [1, 1]]


def _count_cases(draw: Draw) -> list[Case]:
    even, rest = "windows that come out even", "windows that do not come out even"
    return [
        Case(even, (3, 3)),
        Case(even, (7, 3)),
        Case(even, (21, 5)),
        Case(rest, (4, 3)),
        Case(rest, (10, 5)),
        Case(rest, (30, 7)),
        Case("sentences no longer than the window", (1, 5), "one word"),
        Case("sentences no longer than the window", (4, 9)),
    ]


def _layers(length: int, window: int) -> int:
    return max(1, math.ceil((length - 1) / (window - 1)))


def _with_window(layers: Callable[[int, int], Any]) -> Callable[..., Any]:
    """The answer, but for the distance of a window."""
    return lambda length, window: [[length, length], [1, layers(length, window)], [1, 1]]


def _with_rows(
    rnn: Callable[[int], Any] | None = None, attention: Callable[[int], Any] | None = None
) -> Callable[..., Any]:
    """The answer, but for the row of the RNN or of attention."""

    def counts(length: int, window: int) -> Any:
        first, middle, last = two_counts(length, window)
        return [first if rnn is None else rnn(length), middle, last if attention is None else attention(length)]

    return counts


def _layer_by_layer(length: int, window: int) -> Any:
    layers, seen = 1, window
    while seen < length:
        layers, seen = layers + 1, seen + window - 1
    return (length, length), (1, layers), (1, 1)


TWO_COUNTS = Exercise(
    id="01.8",
    title="Two counts for three roads",
    answer="course_lib.exercises.u01.two_counts",
    minutes=8,
    outcomes=("01-d",),
    checks=(
        Check("windows that come out even"),
        Check("windows that do not come out even", 2),
        Check("sentences no longer than the window"),
    ),
    cases=_count_cases,
    hints=(
        "RNN and attention need no arithmetic. For windows, ask: how many words has the best-informed state seen after one "
        "layer? After two?",
        "After one layer `window` words, and with every further layer window − 1 more: l layers see l · (window − 1) "
        "+ 1.",
        "So l · (window − 1) must be at least length − 1: divide, and round up. A single word would give 0 layers; it "
        "needs one.",
    ),
    misconceptions=(
        Misconception(
            "length over window",
            _with_window(lambda n, w: math.ceil(n / w)),
            "length / window is what the slides say, and it is a rule of thumb: windows overlap by one word, so each layer "
            "after the first adds window − 1.",
            CHEF,
        ),
        Misconception(
            "length over window, rounded down",
            _with_window(lambda n, w: max(1, n // w)),
            "length // window is a rule of thumb, rounded down. Windows overlap by one word, and a part of a window needs a "
            "whole layer.",
            CHEF,
        ),
        Misconception(
            "length over window, not rounded",
            _with_window(lambda n, w: n / w),
            "length / window is a rule of thumb. Windows overlap by one word, so each layer after the first adds window − 1; "
            "and there are no parts of layers.",
            CHEF,
        ),
        Misconception(
            "rounded down",
            _with_window(lambda n, w: max(1, (n - 1) // (w - 1))),
            "You rounded down. A part of a window needs a whole layer: round up.",
            CHEF,
        ),
        Misconception(
            "not rounded",
            _with_window(lambda n, w: max(1, (n - 1) / (w - 1))),
            "There are no parts of layers: round up.",
            CHEF,
        ),
        Misconception(
            "one word too many",
            _with_window(lambda n, w: math.ceil(n / (w - 1))),
            "From the first word to the last there are length − 1 places to go, not length.",
            CHEF,
        ),
        Misconception(
            "no layer for one word",
            _with_window(lambda n, w: math.ceil((n - 1) / (w - 1))),
            "Right but for a sentence of one word: your count is 0 there, and one layer is needed at least.",
            CHEF,
        ),
        Misconception(
            "first layer not counted",
            _with_window(lambda n, w: max(0, math.ceil((n - w) / (w - 1)))),
            "Nearly: you counted the layers after the first. The first one, which shows `window` words, counts too.",
            CHEF,
        ),
        Misconception(
            "windows that see everything",
            _with_window(lambda n, w: 1),
            "One layer shows a state only `window` words. For longer sentences it takes more layers.",
            CHEF,
        ),
        Misconception(
            "logarithm",
            _with_window(lambda n, w: max(1, math.ceil(math.log(n, w)))),
            "A logarithm would be right if every layer saw `window` times as many words. Here each further layer "
            "adds window − 1.",
            CHEF,
        ),
        Misconception(
            "one side of the window",
            _with_window(lambda n, w: max(1, math.ceil((n - 1) / (w // 2)))),
            "That many layers pass until the *last* word's own state knows the first. In between the two meet earlier: a "
            "state in the middle grows on both sides at once.",
            CHEF,
        ),
        Misconception(
            "layers counted as steps",
            lambda n, w: [[n, n], [_layers(n, w), _layers(n, w)], [1, 1]],
            "The distances are right. The first count is for one layer, and all windows of a layer are read at once: "
            "1.",
            WAIT,
        ),
        Misconception(
            "windows one after the other",
            lambda n, w: [[n, n], [n, _layers(n, w)], [1, 1]],
            "The windows of one layer do not wait for each other: they read the layer below, and that is there.",
            WAIT,
        ),
        Misconception(
            "the two counts swapped",
            lambda n, w: [pair[::-1] for pair in two_counts(n, w)],
            "The two counts of each pair are in the other order: first the steps that wait, then the distance.",
            WAIT,
        ),
        Misconception(
            "rows and columns swapped",
            lambda n, w: [list(column) for column in zip(*two_counts(n, w), strict=True)],
            "You return two lists of three. What is asked for is a pair for each road: three lists of two.",
            WAIT,
        ),
        Misconception(
            "an RNN in parallel",
            _with_rows(rnn=lambda n: [1, n]),
            "The states of an RNN wait for each other, one step for every word: its first count is the length.",
            WAIT,
        ),
        Misconception(
            "an RNN that sees all at once",
            _with_rows(rnn=lambda n: [n, 1]),
            "In an RNN the first word is handed on from state to state, all along the sentence: its distance is the "
            "length.",
            CHEF,
        ),
        Misconception(
            "between first and last",
            _with_rows(rnn=lambda n: [n, n - 1]),
            "Nearly: for the RNN you counted the steps after the first word. Its own step is included here: the "
            "length.",
            CHEF,
        ),
        Misconception(
            "attention word by word",
            _with_rows(attention=lambda n: [n, 1]),
            "With attention no word of a layer waits for another: all are computed at once, in 1 step.",
            WAIT,
        ),
        Misconception(
            "attention without a step",
            _with_rows(attention=lambda n: [1, 0]),
            "Nearly: with attention two words meet in one layer, and that layer counts: 1.",
            CHEF,
        ),
        Misconception(
            "roads the other way round",
            lambda n, w: two_counts(n, w)[::-1],
            "All counts are right, and the roads stand the other way round: RNN, window, attention.",
            WAIT,
        ),
        Misconception(
            "one flat list",
            lambda n, w: [count for pair in two_counts(n, w) for count in pair],
            "All counts are right, in one list. Return three pairs.",
            WAIT,
        ),
        Misconception(
            "attention counted in pairs",
            _with_rows(attention=lambda n: [1, n * n]),
            "There are length² pairs, and that is work, not distance: each word reads every other one directly. 1.",
            CHEF,
        ),
    ),
    alternatives=(
        _layer_by_layer,
        lambda length, window: [(length, length), (1, max(-(-(length - 1) // (window - 1)), 1)), (1, 1)],
        lambda length, window: torch.tensor(
            [[length, length], [1, max(1, (length + window - 3) // (window - 1))], [1, 1]]
        ),
    ),
)

EXERCISES = (
    WHO_KNOWS,
    RNN_STEP,
    SENTENCE_STATE,
    BOTH_DIRECTIONS,
    ACCURACY,
    GRADIENT_BY_WORD,
    STEPS_BY_HAND,
    TWO_COUNTS,
)
