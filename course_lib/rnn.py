"""Recurrent networks: three cells written out, the loop over time, two directions, and word windows.

Two letters beyond the key of `shapes.py`: E is the width of what a cell reads, G = gates · D the width of
its gates side by side. There is one road here, not two: for RNN and GRU, torch's own kernels on a CPU take as
long as this loop, bound by the same small matrix products. (Its LSTM takes half, where nothing is padded.)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from . import masks
from .shapes import expect, expect_last, expect_rank, shape


class LSTMState(NamedTuple):
    """What an LSTM carries from word to word: h is shown to others, c is its memory; (B, D) both."""

    h: Tensor
    c: Tensor


State = Tensor | LSTMState


def hidden(state: State) -> Tensor:
    """What others see of a state: h_t. RNN and GRU have nothing else."""
    return state.h if isinstance(state, LSTMState) else state


def keep_where(real: Tensor, new: State, old: State) -> State:
    """The new state for sentences that read a word (`real`), the old one for those that have ended."""
    if isinstance(new, LSTMState) and isinstance(old, LSTMState):
        return LSTMState(torch.where(real, new.h, old.h), torch.where(real, new.c, old.c))
    return torch.where(real, hidden(new), hidden(old))


class Cell(nn.Module):
    """What the three cells share: parameters laid out as torch's, gates under each other in one matrix."""

    gates = 1
    parts = 1  # tensors in a state

    def __init__(self, d_input: int, d_hidden: int):
        super().__init__()
        expect(
            d_input >= 1 and d_hidden >= 1,
            f"A cell needs widths of 1 or more; got d_input = {d_input} and d_hidden = {d_hidden}.",
        )
        self.d_input, self.d_hidden = d_input, d_hidden
        self.weight_ih = nn.Parameter(torch.empty(self.gates * d_hidden, d_input))
        self.weight_hh = nn.Parameter(torch.empty(self.gates * d_hidden, d_hidden))
        self.bias_ih = nn.Parameter(torch.empty(self.gates * d_hidden))
        self.bias_hh = nn.Parameter(torch.empty(self.gates * d_hidden))
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -1 / math.sqrt(d_hidden), 1 / math.sqrt(d_hidden))

    def project(self, x: Tensor) -> Tensor:
        """W_ih x + b_ih for every gate, (..., E) → (..., G): no state in it, so all words go at once."""
        expect_last(x, "x", self.d_input, "d_input")
        return F.linear(x, self.weight_ih, self.bias_ih)

    def recur(self, h: Tensor) -> Tensor:
        """W_hh h + b_hh for every gate, (B, D) → (B, G): this must wait for the state before."""
        return F.linear(h, self.weight_hh, self.bias_hh)

    def state(self, vector: Tensor) -> State:
        """The state that a vector (B, parts · D) spells."""
        expect_last(vector, "vector", self.parts * self.d_hidden, "parts · d_hidden")
        return LSTMState(*vector.chunk(2, dim=-1)) if self.parts == 2 else vector

    def zeros(self, x: Tensor) -> State:
        """The state before the first word, for as many sentences as x has."""
        return self.state(x.new_zeros(x.shape[0], self.parts * self.d_hidden))

    def step(self, projected: Tensor, state: State) -> State:
        """The next state, from a projected input (B, G) and the state before."""
        raise NotImplementedError

    def forward(self, x: Tensor, state: State | None = None) -> State:
        """One step: the next state from x_t (B, E) and the state before (zeros where there is none)."""
        expect(x.dim() == 2, f"A cell reads one word per sentence, (B, d_input); got x of shape {shape(x)}.")
        state = self.zeros(x) if state is None else state
        expect_state(self, state, x.shape[0])
        return self.step(self.project(x), state)


class RNNCell(Cell):
    """h_t = tanh(W_ih x_t + b_ih + W_hh h_{t−1} + b_hh)."""

    def step(self, projected: Tensor, state: State) -> State:
        return torch.tanh(projected + self.recur(hidden(state)))


class GRUCell(Cell):
    """A reset gate r, an update gate z, a proposal n; all W with their biases, ⊙ element by element.

    r = σ(W_ir x + W_hr h),  z = σ(W_iz x + W_hz h),  n = tanh(W_in x + r ⊙ (W_hn h)),
    h' = (1 − z) ⊙ n + z ⊙ h.
    """

    gates = 3

    def step(self, projected: Tensor, state: State) -> State:
        h_BD = hidden(state)
        xr_BD, xz_BD, xn_BD = projected.chunk(3, dim=-1)
        hr_BD, hz_BD, hn_BD = self.recur(h_BD).chunk(3, dim=-1)
        r_BD = torch.sigmoid(xr_BD + hr_BD)
        z_BD = torch.sigmoid(xz_BD + hz_BD)
        n_BD = torch.tanh(xn_BD + r_BD * hn_BD)
        return (1 - z_BD) * n_BD + z_BD * h_BD


class LSTMCell(Cell):
    """Gates for input i, forgetting f and output o, a proposal g, and a memory c; all W with their biases.

    i, f, o = σ(W_i x + W_h h), each with its own W;  g = tanh(W_ig x + W_hg h);
    c' = f ⊙ c + i ⊙ g,  h' = o ⊙ tanh(c').
    """

    gates = 4
    parts = 2

    def step(self, projected: Tensor, state: State) -> LSTMState:
        h_BD, c_BD = state
        i_BD, f_BD, g_BD, o_BD = (projected + self.recur(h_BD)).chunk(4, dim=-1)
        c_BD = torch.sigmoid(f_BD) * c_BD + torch.sigmoid(i_BD) * torch.tanh(g_BD)
        return LSTMState(torch.sigmoid(o_BD) * torch.tanh(c_BD), c_BD)


CELLS: dict[str, Callable[[int, int], Cell]] = {"rnn": RNNCell, "gru": GRUCell, "lstm": LSTMCell}


def make_cell(kind: str, d_input: int, d_hidden: int) -> Cell:
    """The cell of that name: "rnn", "gru" or "lstm"."""
    expect(kind in CELLS, f"A cell is one of {', '.join(CELLS)}; got {kind!r}.")
    return CELLS[kind](d_input, d_hidden)


def run(
    cell: Cell,
    x: Tensor,
    lengths: Tensor | None = None,
    *,
    reverse: bool = False,
    state: State | None = None,
) -> tuple[Tensor, State]:
    """Read x (B, T, E) word by word: the states (B, T, D), and the state after each sentence's last word.

    Padding (positions ≥ lengths) leaves a state as it is. So the last state of a padded sentence is the one
    at lengths − 1, and with `reverse` (right to left) reading begins there, from the state before the first.
    """
    expect_sequence(x, cell.d_input, lengths)
    state = cell.zeros(x) if state is None else state
    expect_state(cell, state, x.shape[0])
    # One product for all words instead of one per step: T times as many rows keep the processor busy, and
    # only W_hh h is left inside the loop. (`unbind` rather than [:, t]: its gradient is one `stack`.)
    inputs = list(cell.project(x).unbind(1))
    real = None if lengths is None else masks.padding(lengths, x.shape[1]).mT.unbind(1)
    shown: list[Tensor] = [x] * len(inputs)
    for t in reversed(range(len(inputs))) if reverse else range(len(inputs)):
        new = cell.step(inputs[t], state)
        state = new if real is None else keep_where(real[t], new, state)
        shown[t] = hidden(state)
    return torch.stack(shown, dim=1), state


def expect_sequence(x: Tensor, d_input: int, lengths: Tensor | None) -> None:
    """x is (B, T, E) with at least one word, and each length lies between 1 and T.

    The values of `lengths` are read on the CPU only: on a GPU that would wait for the device, every time.
    """
    expect_rank(x, "x", "BTD")
    expect_last(x, "x", d_input, "d_input")
    expect(x.shape[1] > 0, f"A sequence needs at least one word; got x of shape {shape(x)}.")
    if lengths is None:
        return
    expect(
        lengths.shape == x.shape[:1] and not lengths.is_floating_point(),
        f"lengths should hold one whole number per sentence, shape ({x.shape[0]},); "
        f"got shape {shape(lengths)} of {lengths.dtype}.",
    )
    if lengths.device.type == "cpu" and lengths.numel():
        low, high = (int(end) for end in lengths.aminmax())
        expect(
            low >= 1 and high <= x.shape[1],
            f"Each length should lie between 1 and T = {x.shape[1]}; got lengths from {low} to {high}. "
            "A sentence of length 0 has no last word to read a state at.",
        )


def expect_state(cell: Cell, state: State, batch: int) -> None:
    """Every part of a state is (B, D), and an LSTM's state has two."""
    if isinstance(state, LSTMState) != (cell.parts == 2) or not isinstance(state, LSTMState | Tensor):
        wanted = "a pair LSTMState(h, c)" if cell.parts == 2 else "one tensor h"
        raise TypeError(f"The state of {type(cell).__name__} is {wanted}; got {type(state).__name__}.")
    for part in state if isinstance(state, LSTMState) else (state,):
        expect(
            part.shape == (batch, cell.d_hidden),
            f"A state of {type(cell).__name__} should be (B, d_hidden) = ({batch}, {cell.d_hidden}); "
            f"got shape {shape(part)}.",
        )


class LeftToRight(nn.Module):
    """The plain encoder: h_i knows the words up to i, and the last one has seen the whole sentence."""

    def __init__(self, d_input: int, d_hidden: int, cell: str = "gru"):
        super().__init__()
        self.cell = make_cell(cell, d_input, d_hidden)
        self.width = d_hidden

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """States (B, T, D), and the hidden state after each sentence's last word (B, D)."""
        states, last = run(self.cell, x, lengths)
        return states, hidden(last)


class Bidirectional(nn.Module):
    """Two readers, one from each end, side by side: h_i = [h_i→; h_i←] knows the words on both sides of i.

    d_hidden is the width of one direction: 128 + 128 gives states of width 256.
    """

    def __init__(self, d_input: int, d_hidden: int, cell: str = "gru"):
        super().__init__()
        self.right = make_cell(cell, d_input, d_hidden)
        self.left = make_cell(cell, d_input, d_hidden)
        self.width = 2 * d_hidden

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """States (B, T, 2D); and (B, 2D), the hidden state of each reader after the last word *it* read."""
        right_BTD, last_right = run(self.right, x, lengths)
        left_BTD, last_left = run(self.left, x, lengths, reverse=True)
        states = torch.cat([right_BTD, left_BTD], dim=-1)
        return states, torch.cat([hidden(last_right), hidden(last_left)], dim=-1)


class WindowEncoder(nn.Module):
    """Word windows, layer upon layer (a convolution): h_i = ReLU(W [x_{i−r}; …; x_i; …; x_{i+r}] + b).

    All positions at once; but each layer shows a state only window − 1 = 2r words more.
    """

    def __init__(self, d_input: int, d_hidden: int, window: int = 3, layers: int = 1):
        super().__init__()
        expect_window(window)
        expect(layers >= 1, f"An encoder needs at least one layer; got {layers}.")
        self.d_input, self.window = d_input, window
        widths = [d_input] + [d_hidden] * (layers - 1)
        self.layers = nn.ModuleList(nn.Linear(window * width, d_hidden) for width in widths)

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        """States (B, T, D), zero on padding."""
        expect_sequence(x, self.d_input, lengths)
        real = None if lengths is None else masks.padding(lengths, x.shape[1]).mT
        x = x if real is None else torch.where(real, x, 0.0)
        for layer in self.layers:
            x = torch.relu(layer(windows(x, self.window)))
            # After every layer: a bias would make padding speak, and the next window would hear it.
            x = x if real is None else torch.where(real, x, 0.0)
        return x


def windows(x: Tensor, window: int) -> Tensor:
    """(B, T, E) → (B, T, window · E): every word beside its neighbours, zeros beyond the ends."""
    padded_BTE = F.pad(x, (0, 0, window // 2, window // 2))
    return padded_BTE.unfold(1, window, 1).mT.flatten(-2)


def expect_window(window: int) -> None:
    """A window has a middle."""
    expect(window >= 3 and window % 2 == 1, f"A window is an odd number of words, 3 or more; got {window}.")


class Counts(NamedTuple):
    """The two costs of one layer, or of reading a sentence, that tell the three roads apart."""

    sequential_steps: int
    interaction_distance: int


def counts(kind: str, length: int, window: int = 3) -> Counts:
    """Steps of a layer that must wait for each other, and layers or steps until first and last word have met.

    rnn: T and T. attention: 1 and 1. window: 1, and about T / window: after l layers a state has seen
    l · (window − 1) + 1 words, so it takes ⌈(T − 1) / (window − 1)⌉ layers to see them all.
    """
    expect_kind(kind, length)
    if kind == "rnn":
        return Counts(length, length)
    if kind == "attention":
        return Counts(1, 1)
    expect_window(window)
    return Counts(1, max(1, math.ceil((length - 1) / (window - 1))))


def minimum_steps(kind: str, length: int, layers: int = 1) -> Tensor:
    """(layers + 1, T): the fewest steps before each state can be computed; row 0 is the words' vectors.

    rnn: l + t − 1 at layer l and word t = 1, 2, …: up through the layers, along the sentence. Others: l.
    """
    expect_kind(kind, length)
    expect(layers >= 1, f"There should be at least one layer; got {layers}.")
    layer_L1 = torch.arange(layers + 1)[:, None]
    before_T = torch.arange(length) if kind == "rnn" else torch.zeros(length, dtype=torch.long)
    return torch.where(layer_L1 > 0, layer_L1 + before_T, 0)


def expect_kind(kind: str, length: int) -> None:
    """One of the three roads, and a sentence of at least one word."""
    kinds = ("rnn", "window", "attention")
    expect(kind in kinds, f"kind should be one of {', '.join(kinds)}; got {kind!r}.")
    expect(length >= 1, f"A sentence has at least one word; got length {length}.")
