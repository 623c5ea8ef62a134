"""From probabilities to text: greedy, beam search and sampling, a whole batch at once, no token read twice.

A model here is an nn.Module with two more methods. `state = model.start(source)` reads the source (a language
model has none; it is told the batch size); `logits, state = model.step(tokens, state)` the newest tokens,
and says what may follow the last. The first axis of every tensor in a state is the batch, for beam search to
reorder. Prompts of one batch have the same length, and nothing here changes its arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._pytree import tree_map_only

from .shapes import expect, expect_rank, shape
from .training import in_mode

Model = Any  # an nn.Module with start and step

# --- One token after the other ------------------------------------------------------------------------------


def greedy(
    model: Model,
    source: Tensor,
    *,
    max_length: int,
    bos: int = 1,
    eos: int = 2,
    pad: int = 0,
    check_every: int = 8,
) -> Tensor:
    """The most probable token, again and again: y_t = argmax p(y_t | y_<t, source).

    Tokens (B, T) without BOS, up to and with EOS, then PAD; T is the longest row, `max_length` at most.
    Whether all rows have ended is asked every `check_every` steps only: each question makes a GPU wait.
    """
    expect_positive(max_length=max_length, check_every=check_every)
    expect_room(model, max_length)
    source = tokens_for(model, source, "source")
    first_B1 = source.new_full((len(source), 1), bos)
    with deciding(model):
        return generate(model, source, first_B1, most_probable, max_length, eos, pad, check_every)


def sample(
    model: Model,
    prompt: Tensor,
    *,
    steps: int,
    generator: torch.Generator | None,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    source: Tensor | None = None,
    eos: int | None = None,
    pad: int = 0,
    crop: bool = False,
    check_every: int = 8,
) -> Tensor:
    """Draw tokens to follow the prompt (B, T): y_t ~ softmax(filter_logits(logits / temperature)).

    Returns the new tokens alone, (B, steps). Temperature 0 is the limit: the most probable token. With
    `source`, the model translates it, and the prompt begins with BOS. With `eos`, rows end there as in
    `greedy`. Where the model has a `max_length` and would have to read more, that is an error, unless `crop`:
    then it reads the LAST `max_length` tokens. That moves every token to a new position, where no cached key
    is right any more, so beyond the limit each new token costs a whole forward pass.
    """
    expect_positive(steps=steps, check_every=check_every)
    expect(0 <= temperature < float("inf"), f"The temperature is 0 or above, and finite; got {temperature}.")
    expect_filter(top_k, top_p)
    prompt = tokens_for(model, prompt, "prompt")
    if source is not None:
        source = tokens_for(model, source, "source")
        expect(len(source) == len(prompt), f"Each source needs its prompt; got {shape(source)}, {shape(prompt)}.")
    if not crop:
        expect_room(model, prompt.shape[1] + steps - 1)  # nobody reads the last token drawn
    pick = drawer(temperature, top_k, top_p, generator) if temperature > 0 else most_probable
    with deciding(model):
        return generate(model, source, prompt, pick, steps, eos, pad, check_every)


def generate(
    model: Model,
    source: Tensor | None,
    prompt: Tensor,
    pick: Callable[[Tensor], Tensor],
    steps: int,
    eos: int | None,
    pad: int,
    check_every: int,
) -> Tensor:
    """Read the prompt; then pick a token from the logits and read it, up to `steps` times."""
    begin = len(prompt) if source is None else source
    limit = room(model)
    state, newest_BT, tokens = model.start(begin), last(prompt, limit), []
    ended_B = torch.zeros(len(prompt), dtype=torch.bool, device=prompt.device)
    for step in range(1, steps + 1):
        logits_BC, state = model.step(newest_BT, state)
        token_B = pick(logits_BC)
        if eos is not None:
            token_B = token_B.masked_fill(ended_B, pad)
            ended_B = ended_B | (token_B == eos)
        tokens.append(token_B)
        if eos is not None and step % check_every == 0 and bool(ended_B.all()):
            break
        newest_BT = token_B[:, None]
        if limit is not None and prompt.shape[1] + step > limit:
            newest_BT = last(torch.cat([prompt, torch.stack(tokens, dim=1)], dim=1), limit)
            state = model.start(begin)
    tokens_BT = torch.stack(tokens, dim=1)
    return tokens_BT if eos is None else tokens_BT[:, : longest(tokens_BT, eos)]


def last(tokens_BT: Tensor, count: int | None) -> Tensor:
    """The last `count` columns; None: all."""
    return tokens_BT if count is None else tokens_BT[:, -count:]


def longest(tokens_BT: Tensor, eos: int) -> int:
    """Columns up to the last row's EOS; all of them where a row has none."""
    is_eos_BT = tokens_BT == eos
    ended_before_BT = is_eos_BT.cumsum(dim=1) > is_eos_BT.long()
    return int((~ended_before_BT).any(dim=0).sum())


# --- From logits to a token ---------------------------------------------------------------------------------


def most_probable(logits_BC: Tensor) -> Tensor:
    return logits_BC.argmax(dim=-1)


def drawer(
    temperature: float, top_k: int | None, top_p: float | None, generator: torch.Generator | None
) -> Callable[[Tensor], Tensor]:
    """A function that draws one token for each row of logits."""

    def draw(logits_BC: Tensor) -> Tensor:
        expect(
            generator is None or generator.device.type == logits_BC.device.type,
            f"The generator is on {generator and generator.device}, the logits are on {logits_BC.device}: "
            "course_lib.device.generator(seed, device) makes one there.",
        )
        kept_BC = filter_logits(at_least_float32(logits_BC) / temperature, top_k, top_p)
        return torch.multinomial(kept_BC.softmax(dim=-1), 1, generator=generator).squeeze(1)

    return draw


def filter_logits(logits: Tensor, top_k: int | None = None, top_p: float | None = None) -> Tensor:
    """Logits with -∞ for all but the likeliest: first the `top_k` largest, then of those the nucleus `top_p`.

    The nucleus is the smallest set of likeliest tokens whose probabilities sum to p or more: the token that
    crosses p belongs to it, so it is never empty. Softmax over what is left adds up to one again.
    """
    expect_filter(top_k, top_p)
    expect(logits.ndim >= 1 and logits.shape[-1] > 0, f"There are no logits to filter; got {shape(logits)}.")
    if top_k is not None and top_k < logits.shape[-1]:
        kept = logits.topk(top_k, dim=-1)  # by place and not by value: of equal logits no more than k stay
        logits = torch.full_like(logits, -torch.inf).scatter(-1, kept.indices, kept.values)
    if top_p is not None and top_p < 1:
        ordered = logits.sort(dim=-1, descending=True, stable=True)
        p = at_least_float32(ordered.values).softmax(dim=-1)
        before = F.pad(p.cumsum(dim=-1)[..., :-1], (1, 0))  # the probability of all likelier tokens
        nucleus = ordered.values.masked_fill(before >= top_p, -torch.inf)
        logits = torch.empty_like(logits).scatter(-1, ordered.indices, nucleus)
    return logits


# --- Beam search --------------------------------------------------------------------------------------------


class Beams(NamedTuple):
    """W hypotheses for each source: tokens (B, W, T), and scores (B, W), -∞ where a place is empty."""

    tokens: Tensor
    scores: Tensor

    def without(self, empty_BW: Tensor) -> Beams:
        """The same with these places empty."""
        return Beams(self.tokens, self.scores.masked_fill(empty_BW, -torch.inf))

    def filled(self) -> Tensor:
        """How many hypotheses each source has, (B,)."""
        return (self.scores > -torch.inf).sum(dim=1)


def beam(
    model: Model,
    source: Tensor,
    *,
    width: int = 4,
    max_length: int,
    length_penalty: float = 0.6,
    bos: int = 1,
    eos: int = 2,
    pad: int = 0,
    check_every: int = 8,
) -> tuple[Tensor, Tensor]:
    """The best hypothesis that beam search finds for each source: tokens (B, T) as by `greedy`, scores (B,).

    score = log p(y | source) / ((5 + |y|) / 6)^length_penalty, EOS counted in |y|. Width 1 is greedy search.
    """
    found = hypotheses(
        model,
        source,
        width=width,
        max_length=max_length,
        length_penalty=length_penalty,
        bos=bos,
        eos=eos,
        pad=pad,
        check_every=check_every,
    )
    tokens_BT = found.tokens[:, 0]
    return tokens_BT[:, : longest(tokens_BT, eos)], found.scores[:, 0]


def hypotheses(
    model: Model,
    source: Tensor,
    *,
    width: int = 4,
    max_length: int,
    length_penalty: float = 0.6,
    bos: int = 1,
    eos: int = 2,
    pad: int = 0,
    check_every: int = 8,
) -> Beams:
    """All that beam search ends with: up to `width` hypotheses (B, W, T) for each source, the best first.

    Each step extends every hypothesis by every token and keeps the best: as many as are still searched for,
    `width` at first. Those that end with EOS are finished and kept apart, and one fewer is searched for. A
    source is done when `width` have finished. If none has within `max_length` tokens, it gets the unfinished.
    """
    expect_positive(width=width, max_length=max_length, check_every=check_every)
    expect_room(model, max_length)
    source = tokens_for(model, source, "source")
    alive = first_beams(source, width, max_length, pad)
    done = alive.without(torch.ones_like(alive.scores, dtype=torch.bool))
    newest_BW = source.new_full(alive.scores.shape, bos)
    with deciding(model):
        state = reorder(model.start(source), rows_of(alive))
        for step in range(max_length):
            logits_NC, state = model.step(newest_BW.flatten()[:, None], state)
            best, parents_BW = extend(alive, logits_NC, step, width - done.filled())
            newest_BW = best.tokens[:, :, step]
            alive = best.without(newest_BW == eos)
            done = merge(done, best.without(newest_BW != eos), length_factor(step + 1, length_penalty))
            if (step + 1) % check_every == 0 and bool((done.filled() == width).all()):
                break
            state = reorder(state, rows_of(alive, parents_BW))
    return done_or_cut_off(done, alive, length_factor(max_length, length_penalty), pad)


def extend(alive: Beams, logits_NC: Tensor, step: int, wanted_B: Tensor) -> tuple[Beams, Tensor]:
    """The best extensions by one token, `wanted` of them, best first, and which hypothesis each extends."""
    width, vocabulary = alive.scores.shape[1], logits_NC.shape[1]
    log_p_BWC = at_least_float32(logits_NC).log_softmax(dim=-1).unflatten(0, alive.scores.shape)
    best = (alive.scores[..., None] + log_p_BWC).flatten(1).topk(width, dim=1)
    parents_BW, newest_BW = best.indices // vocabulary, best.indices % vocabulary
    tokens_BWT = pick_rows(alive.tokens, parents_BW)
    tokens_BWT[:, :, step] = newest_BW
    ranks_W = torch.arange(width, device=logits_NC.device)
    return Beams(tokens_BWT, best.values).without(ranks_W >= wanted_B[:, None]), parents_BW


def merge(done: Beams, ended: Beams, factor: float) -> Beams:
    """All finished hypotheses, old and new, the best first; together they are never more than W."""
    scores_BN = torch.cat([done.scores, ended.scores / factor], dim=1)
    best = scores_BN.topk(done.scores.shape[1], dim=1)
    return Beams(pick_rows(torch.cat([done.tokens, ended.tokens], dim=1), best.indices), best.values)


def done_or_cut_off(done: Beams, alive: Beams, factor: float, pad: int) -> Beams:
    """The finished hypotheses; where a source has none, those that max_length cut off."""
    none_B1 = done.filled()[:, None] == 0
    scores_BW = torch.where(none_B1, alive.scores / factor, done.scores)
    tokens_BWT = torch.where(none_B1[..., None], alive.tokens, done.tokens)
    return Beams(tokens_BWT.masked_fill(scores_BW[..., None] == -torch.inf, pad), scores_BW)


def length_factor(length: int, alpha: float) -> float:
    """((5 + length) / 6)^alpha: without it, a sum of log-probabilities favours whoever stops early."""
    return ((5 + length) / 6) ** alpha


def first_beams(source: Tensor, width: int, max_length: int, pad: int) -> Beams:
    """One hypothesis per source, nothing said yet; the other W - 1 places are empty."""
    tokens_BWT = source.new_full((len(source), width, max_length), pad)
    scores_BW = torch.full(tokens_BWT.shape[:2], -torch.inf, device=source.device)
    scores_BW[:, 0] = 0.0
    return Beams(tokens_BWT, scores_BW)


def rows_of(beams: Beams, parents_BW: Tensor | None = None) -> Tensor:
    """Which row of the state each hypothesis takes: its parent's or, before the first step, its source's."""
    batch, width = beams.scores.shape
    sources_B1 = torch.arange(batch, device=beams.scores.device)[:, None]
    rows_BW = sources_B1.expand(batch, width) if parents_BW is None else sources_B1 * width + parents_BW
    return rows_BW.flatten()


def reorder(state: Any, rows: Tensor) -> Any:
    """The state of these rows, in this order."""
    return tree_map_only(Tensor, lambda tensor: tensor.index_select(0, rows), state)


def pick_rows(tokens_BWT: Tensor, places_BN: Tensor) -> Tensor:
    """tokens[b, places[b, n], :] for every b and n, as a new tensor."""
    return tokens_BWT.gather(1, places_BN[..., None].expand(-1, -1, tokens_BWT.shape[-1]))


# --- What every search needs --------------------------------------------------------------------------------


@contextmanager
def deciding(model: Model) -> Iterator[None]:
    """No gradients, no dropout; afterwards the model is in the mode it was in, also after an error."""
    # Not inference_mode: a table that a model keeps for later would be of no use in training.
    with torch.no_grad(), in_mode(model, training=False):
        yield


def at_least_float32(logits: Tensor) -> Tensor:
    """Half precision has too few digits to add up probabilities."""
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


def room(model: Model) -> int | None:
    """How many tokens the model can read, if there is a limit."""
    return getattr(model, "max_length", None)


def expect_room(model: Model, tokens: int) -> None:
    limit = room(model)
    expect(
        limit is None or tokens <= limit,
        f"The model reads at most max_length = {limit} tokens, and this would need {tokens}. "
        "Ask for fewer, or let `sample` forget the oldest with crop=True.",
    )


def expect_positive(**numbers: int) -> None:
    for name, value in numbers.items():
        expect(value >= 1, f"{name} should be at least 1; got {value}.")


def expect_filter(top_k: int | None, top_p: float | None) -> None:
    expect(top_k is None or top_k >= 1, f"top_k keeps at least one token; got {top_k}.")
    expect(top_p is None or 0 < top_p <= 1, f"top_p goes from above 0 to 1; got {top_p}.")


def tokens_for(model: Model, tokens: Tensor, name: str) -> Tensor:
    """Token ids (B, T), none of the axes empty, on the model's device."""
    if not isinstance(tokens, Tensor) or tokens.is_floating_point() or tokens.dtype == torch.bool:
        kind = tokens.dtype if isinstance(tokens, Tensor) else type(tokens).__name__
        raise TypeError(f"{name} should be a tensor of token ids (whole numbers); got {kind}.")
    expect_rank(tokens, name, "BT")
    expect(tokens.numel() > 0, f"{name} needs at least one row and one token; got {shape(tokens)}.")
    first = next(model.parameters(), None)
    return tokens if first is None else tokens.to(first.device)
