"""Transformer-XL against its formula term by term; what memory keeps, carries and cuts off."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._pytree import tree_map

from course_lib import transformer_xl
from course_lib.transformer_xl import RelativeMultiHead, TransformerXL, TransformerXLConfig, relative_shift

B, T, M, H, D, C = 2, 5, 4, 3, 12, 19


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def draw(*size: int, seed: int = 0) -> Tensor:
    return torch.randn(*size, generator=generator(seed), dtype=torch.float64)


def tokens(length: int, seed: int = 0) -> Tensor:
    return torch.randint(0, C, (B, length), generator=generator(seed))


def randomise(module: torch.nn.Module, std: float = 0.5) -> None:
    """No weight keeps its first value: neither the biases u and v of 0, nor the gains of 1."""
    with torch.no_grad():
        for seed, parameter in enumerate(module.parameters()):
            parameter.add_(std * torch.randn(parameter.shape, generator=generator(seed)))


def layer(d_model: int = D, heads: int = H) -> RelativeMultiHead:
    torch.manual_seed(0)
    module = RelativeMultiHead(d_model, heads).double()
    randomise(module)
    return module


def model(**sizes: int) -> TransformerXL:
    config = TransformerXLConfig(**{"vocab": C, "d_model": D, "heads": H, "layers": 3, "d_ff": 20, "memory": M} | sizes)
    torch.manual_seed(0)
    network = TransformerXL(config).double()
    randomise(network)
    return network


def wave(distance: int, width: int) -> Tensor:
    """R_distance by the definition: sin and cos in turn, with frequencies 10000^(−2i/D)."""
    angles = [distance / 10_000 ** (2 * (column // 2) / width) for column in range(width)]
    pairs = [math.cos(a) if column % 2 else math.sin(a) for column, a in enumerate(angles)]
    return torch.tensor(pairs, dtype=torch.float64)


def four_terms(module: RelativeMultiHead, x: Tensor, memory: Tensor) -> Tensor:
    """The paper's formula, one pair at a time: (a) q·k + (b) q·W_r R + (c) u·k + (d) v·W_r R."""
    width, offset = D // H, memory.shape[1]
    everything = torch.cat([memory.detach(), x], dim=1)
    sentences = []
    for b in range(x.shape[0]):
        words = []
        for i in range(x.shape[1]):
            heads = []
            for h in range(H):
                part = slice(h * width, (h + 1) * width)
                q = (module.w_q.weight @ x[b, i])[part]
                u, v = module.u[h, 0], module.v[h, 0]
                scores, values = [], []
                for j in range(offset + i + 1):
                    k = (module.w_k.weight @ everything[b, j])[part]
                    r = (module.w_r.weight @ wave(offset + i - j, D))[part]
                    scores.append((q @ k + q @ r + u @ k + v @ r) / math.sqrt(width))
                    values.append((module.w_v.weight @ everything[b, j])[part])
                weights = torch.softmax(torch.stack(scores), dim=0)
                heads.append(weights @ torch.stack(values))
            words.append(module.w_o.weight @ torch.cat(heads))
        sentences.append(torch.stack(words))
    return torch.stack(sentences)


# --- the layer ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("remembered", [0, 1, M])
def test_the_four_terms_pair_by_pair_value_and_gradient(remembered):
    module, x, memory = layer(), draw(B, T, D).requires_grad_(), draw(B, remembered, D, seed=1)
    leaves = [x, *module.parameters()]
    cotangent = draw(B, T, D, seed=2)
    ours, naive = module(x, memory), four_terms(module, x, memory)
    torch.testing.assert_close(ours, naive, atol=1e-10, rtol=1e-10)
    gradients = (torch.autograd.grad(y, leaves, cotangent) for y in (ours, naive))
    for one, other in zip(*gradients, strict=True):
        assert one.abs().max() > 1e-3
        torch.testing.assert_close(one, other, atol=1e-10, rtol=1e-10)


def test_no_memory_and_an_empty_memory_are_the_same():
    module, x = layer(), draw(B, T, D)
    torch.testing.assert_close(module(x), module(x, draw(B, 0, D)))


def test_heads_divide_an_odd_width_too():
    assert layer(15, 5)(draw(B, T, 15), draw(B, M, 15)).shape == (B, T, 15)


def test_gradcheck():
    module, memory = layer(), draw(1, 2, D, seed=1)
    assert torch.autograd.gradcheck(lambda x: module(x, memory), draw(1, 3, D).requires_grad_())


@given(st.integers(1, 9), st.integers(0, 9))
def test_relative_shift_puts_each_distance_under_its_key(queries, remembered):
    keys = queries + remembered
    distance = torch.arange(keys - 1, -1, -1).expand(2, queries, keys)
    shifted = relative_shift(distance)
    assert shifted.shape == (2, queries, keys)
    for i in range(queries):
        seen = remembered + i + 1
        assert shifted[1, i, :seen].tolist() == [remembered + i - j for j in range(seen)]


@pytest.mark.parametrize("length", [9, 520])
def test_a_segment_with_memory_continues_the_long_text(length):
    """For one layer: attention over memory and segment = the same rows of attention over both at once."""
    module, x = layer(), draw(B, length, D)
    whole = module(x)
    torch.testing.assert_close(module(x[:, 4:], x[:, :4]), whole[:, 4:], atol=1e-10, rtol=1e-10)
    torch.testing.assert_close(module(x[:, :4]), whole[:, :4], atol=1e-10, rtol=1e-10)


def test_the_layer_sees_memory_and_past_and_nothing_of_the_future():
    """Value and gradient: word 3 of the segment on all words, one at a time."""
    module, memory = layer(), draw(B, M, D, seed=1)
    x = draw(B, T, D).requires_grad_()
    out = module(x, memory)
    (gradient,) = torch.autograd.grad(out[:, 3].square().sum(), x)
    assert (gradient[:, 4:] == 0).all() and (gradient[:, :4] != 0).any(-1).all()
    changed = x.detach().clone()
    changed[:, 4:] = 77.0
    assert torch.equal(module(changed, memory)[:, :4], out[:, :4])
    for j in range(M):
        other = memory.clone()
        other[:, j] += 1
        assert ((module(x, other) - out).abs().amax(-1) > 1e-9).all(), f"nobody read word {j} of the memory"


def test_the_layer_does_not_train_through_its_memory():
    module, memory = layer(), draw(B, M, D, seed=1).requires_grad_()
    module(draw(B, T, D).requires_grad_(), memory).sum().backward()
    assert memory.grad is None
    assert (module.w_k.weight.grad != 0).all() and (module.u.grad != 0).all(), "the weights still learn"


# --- the model: memory --------------------------------------------------------------------------------------


@given(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.integers(1, 3))
def test_segments_with_a_long_enough_memory_are_one_pass(lengths, layers):
    """If the memory holds all words before, logits by segments = logits of the whole text, at any depth.

    Causal layers make it so: the states of the first segment do not depend on the second.
    """
    network, text = model(layers=layers, memory=sum(lengths)), tokens(sum(lengths))
    whole, _ = network(text)
    memory, parts = None, []
    for segment in text.split(lengths, dim=1):
        logits, memory = network(segment, memory)
        parts.append(logits)
    torch.testing.assert_close(torch.cat(parts, dim=1), whole, atol=1e-9, rtol=1e-9)


def test_a_short_memory_is_not_one_pass():
    network, text = model(memory=2), tokens(10)
    first, memory = network(text[:, :5])
    second, _ = network(text[:, 5:], memory)
    whole, _ = network(text)
    torch.testing.assert_close(first, whole[:, :5])
    assert (second - whole[:, 5:]).abs().amax(-1).min() > 1e-6


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_each_layer_looks_one_memory_further_back(layers):
    """The first word of a segment depends on the words up to layers × memory back, and on none before."""
    network, text = model(layers=layers, memory=M), tokens((layers + 2) * M)

    def last_segment(text: Tensor) -> Tensor:
        memory = None
        for segment in text.split(M, dim=1):
            logits, memory = network(segment, memory)
        return logits[:, 0]

    here, before = (layers + 1) * M, last_segment(text)
    for back, reaches in ((layers * M, True), (layers * M + 1, False)):
        changed = text.clone()
        changed[:, here - back] = (changed[:, here - back] + 1) % C
        assert torch.equal(last_segment(changed), before) is not reaches


def test_memory_holds_the_last_states_before_each_layer():
    network, text = model(), tokens(10)
    _, memory = network(text[:, :3])
    assert [kept.shape for kept in memory] == [(B, 3, D)] * 3, "as many as there are"
    _, memory = network(text[:, 3:], memory)
    assert [kept.shape for kept in memory] == [(B, M, D)] * 3, "and not more than M"
    states = network.embedding(text) * math.sqrt(D)
    torch.testing.assert_close(memory[0], states[:, -M:].detach())
    _, long = model(memory=10)(text)
    for block, kept in zip(network.blocks, long, strict=True):
        torch.testing.assert_close(kept, states.detach())
        states = block(states)


def test_a_memory_of_nothing():
    network, text = model(memory=0), tokens(6)
    first, memory = network(text)
    assert [kept.shape for kept in memory] == [(B, 0, D)] * 3
    torch.testing.assert_close(network(text, memory)[0], first)


def test_no_gradient_enters_the_earlier_segment():
    network, text = model(), tokens(8)
    _, memory = network(text[:, :4])
    assert all(not kept.requires_grad for kept in memory)
    given_memory = tuple(kept.clone().requires_grad_() for kept in memory)
    logits, after = network(text[:, 4:], given_memory)
    logits.square().sum().backward()
    assert all(kept.grad is None for kept in given_memory)
    assert all(not kept.requires_grad for kept in after)
    assert all(p.grad is not None and (p.grad != 0).any() for p in network.parameters())


def test_memory_is_not_changed_by_the_next_segment():
    network, text = model(), tokens(9)
    _, memory = network(text[:, :4])
    before = [kept.clone() for kept in memory]
    network(text[:, 4:], memory)
    assert all(torch.equal(a, b) for a, b in zip(memory, before, strict=True))


def test_nothing_comes_from_the_future():
    """Value: earlier logits keep every bit. Gradient: of later words' embeddings, exactly 0."""
    network, text = model(), tokens(9)
    _, memory = network(text[:, :2])
    changed = text.clone()
    changed[:, 6:] = (changed[:, 6:] + 1) % C
    logits, other = network(text[:, 2:], memory)[0], network(changed[:, 2:], memory)[0]
    assert torch.equal(logits[:, :4], other[:, :4])
    assert not torch.isclose(logits[:, 4:], other[:, 4:]).all(-1).any()
    states: list[Tensor] = []
    hook = network.embedding.register_forward_hook(lambda *args: states.append(args[2]))
    logits, _ = network(text[:, 2:], memory)
    hook.remove()
    (gradient,) = torch.autograd.grad(logits[:, 3].square().sum(), states[0])
    assert (gradient[:, 4:] == 0).all() and (gradient[:, :4] != 0).any(-1).all()


# --- the model: the rest ------------------------------------------------------------------------------------


def test_step_by_step_is_the_forward_pass_and_rows_of_a_state_can_be_reordered():
    network, text = model(memory=20), tokens(7)
    whole, _ = network(text)
    state = network.start(B)
    for i, word in enumerate(text.split(1, dim=1)):
        logits, state = network.step(word, state)
        assert logits.shape == (B, C)
        torch.testing.assert_close(logits, whole[:, i])
    torch.testing.assert_close(network.step(text, None)[0], whole[:, -1])
    swapped = tree_map(lambda x: x.index_select(0, torch.tensor([1, 0])), state)
    one, two = network.step(text[:, :1], state)[0], network.step(text[:, :1].flip(0), swapped)[0]
    torch.testing.assert_close(one.flip(0), two)


def test_layers_have_weights_of_their_own_and_the_output_is_tied():
    per_layer = 5 * D * D + 2 * D + (2 * D * 20 + 20 + D) + 4 * D
    assert sum(p.numel() for p in model().parameters()) == C * D + 3 * per_layer


@pytest.mark.parametrize("layers", [0, 1])
def test_dropout_acts_in_training_only(layers):
    """With no layer, on the embeddings alone."""
    network = TransformerXL(TransformerXLConfig(C, D, H, layers=layers, d_ff=20, memory=M, dropout=0.5))
    text = tokens(6)
    assert not torch.equal(network(text)[0], network(text)[0])
    network.eval()
    assert torch.equal(network(text)[0], network(text)[0])


def test_attention_dropout_acts_in_training_only():
    module, x = RelativeMultiHead(D, H, dropout=0.5).double(), draw(B, T, D)
    assert not torch.equal(module(x), module(x))
    module.eval()
    assert torch.equal(module(x), module(x))


@pytest.mark.parametrize("autocast", [True, False])
def test_bfloat16(autocast):
    """Under autocast, and with all weights in bfloat16: near the float32 logits, and finite gradients."""
    exact, text = model(layers=1, memory=20).float(), tokens(9)
    _, memory = exact(text[:, :4])
    logits, _ = exact(text[:, 4:], memory)
    rough = exact if autocast else model(layers=1, memory=20).bfloat16()
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        _, memory = rough(text[:, :4])
        low, memory = rough(text[:, 4:], memory)
        low.float().square().sum().backward()
    assert low.dtype == torch.bfloat16
    assert (low - logits).abs().max() < 0.1 * logits.abs().max()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in rough.parameters())


def test_under_autocast_attention_gets_bfloat16(monkeypatch):
    """Else u and v, which stay float32, would widen the queries, and the slower road would be taken."""
    seen = []
    monkeypatch.setattr(transformer_xl, "attention", lambda q, k, v, **rest: seen.extend([q, k, v, rest["bias"]]) or v)
    with torch.autocast("cpu", torch.bfloat16):
        layer().float()(draw(B, T, D).float())
    assert [x.dtype for x in seen] == [torch.bfloat16] * 4


def test_bad_input_is_refused_in_words():
    network, text = model(), tokens(4)
    with pytest.raises(ValueError, match="cannot be split into 5 heads"):
        RelativeMultiHead(D, 5)
    with pytest.raises(ValueError, match="0 words or more; got -1"):
        model(memory=-1)
    with pytest.raises(ValueError, match="tokens should have 2 axes"):
        network(text[0])
    with pytest.raises(ValueError, match="no tokens to read"):
        network(text[:, :0])
    with pytest.raises(ValueError, match="between 0 and 18"):
        network(text + C)
    with pytest.raises(TypeError, match="whole numbers"):
        network(text.float())
    _, memory = network(text)
    with pytest.raises(ValueError, match="one tensor per layer, 3; got 2"):
        network(text, memory[:2])
    with pytest.raises(ValueError, match=r"should be \(B, M, D\) .*got shape \(1, 4, 12\)"):
        network(text, tuple(kept[:1] for kept in memory))
    with pytest.raises(ValueError, match=r"should be \(B, M, D\) .*got shape \(2, 4, 11\)"):
        layer()(draw(B, T, D), draw(B, 4, 11))
    with pytest.raises(ValueError, match=r"should be \(B, M, D\) .*got shape \(2, 12\)"):
        layer()(draw(B, T, D), draw(B, D))
    with pytest.raises(ValueError, match="x should have 3 axes"):
        layer()(draw(T, D))
    with pytest.raises(ValueError, match="d_model = 12; got shape"):
        layer()(draw(B, T, D + 1))
