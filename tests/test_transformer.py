"""The encoder–decoder against torch.nn.Transformer with the same weights, and its own promises."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
import torch.nn.functional as F
from test_blocks import copy_attention, copy_rest, shake
from torch import nn

from course_lib import by_hand
from course_lib.transformer import PAPER_BASE, Transformer, TransformerConfig

B, S, T, D, H, FF = 3, 7, 5, 12, 3, 20
SMALL = TransformerConfig(
    source_vocab=17, target_vocab=19, d_model=D, heads=H, d_ff=FF, encoder_layers=2, decoder_layers=3
)


def make(seed=0, **changes):
    torch.manual_seed(seed)
    return shake(Transformer(dataclasses.replace(SMALL, **changes)), seed)


def tokens(seed=0):
    g = torch.Generator().manual_seed(seed)
    source, target = torch.randint(3, 17, (B, S), generator=g), torch.randint(3, 19, (B, T), generator=g)
    source[0, 4:] = 0
    source[2, 1:] = 0
    target[:, 0] = 1
    return source, target


def torch_twin(model):
    """torch.nn.Transformer with our weights."""
    c = model.config
    twin = nn.Transformer(
        D, H, c.encoder_layers, c.decoder_layers, FF, dropout=0.0, batch_first=True, norm_first=c.pre_norm
    ).double()
    for ours, theirs in zip(model.encoder, twin.encoder.layers, strict=True):
        copy_attention(ours.attention, theirs.self_attn)
        copy_rest(ours, theirs, (ours.skip_1, ours.skip_2))
    for ours, theirs in zip(model.decoder, twin.decoder.layers, strict=True):
        copy_attention(ours.self_attention, theirs.self_attn)
        copy_attention(ours.cross_attention, theirs.multihead_attn)
        copy_rest(ours, theirs, (ours.skip_1, ours.skip_2, ours.skip_3))
    for ours, theirs in ((model.encoder_norm, twin.encoder), (model.decoder_norm, twin.decoder)):
        if c.final_norm:
            theirs.norm.weight.data.copy_(ours.gain)
            theirs.norm.bias.data.copy_(ours.bias)
        else:
            theirs.norm = None
    return twin


@pytest.mark.parametrize("pre_norm", [True, False])
@pytest.mark.parametrize("final_norm", [True, False])
def test_equals_torch_in_value_and_gradient(pre_norm, final_norm):
    model = make(pre_norm=pre_norm, final_norm=final_norm)
    source, target = tokens()
    twin, pad = torch_twin(model), source == 0

    def embed(table, ids):
        waves = torch.from_numpy(by_hand.sinusoidal(ids.shape[1], D))
        return F.embedding(ids, table.weight) * math.sqrt(D) + waves

    hidden = twin(
        embed(model.source_embedding, source),
        embed(model.target_embedding, target),
        tgt_mask=torch.ones(T, T).triu(1).bool(),
        src_key_padding_mask=pad,
        memory_key_padding_mask=pad,
    )
    want, got = hidden @ model.target_embedding.weight.T, model(source, target)
    torch.testing.assert_close(got, want)
    ours = [
        model.source_embedding.weight,
        model.target_embedding.weight,
        model.encoder[0].attention.w_qkv.weight,
    ]
    theirs = [*ours[:2], twin.encoder.layers[0].self_attn.in_proj_weight]
    cotangent = torch.randn(got.shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    got, want = torch.autograd.grad(got, ours, cotangent), torch.autograd.grad(want, theirs, cotangent)
    for g, w in zip(got, want, strict=True):
        torch.testing.assert_close(g, w)


def test_padding_changes_nothing():
    model, (source, target) = make(), tokens()
    batch = model(source, target)
    for b, length in enumerate((4, S, 1)):
        alone = model(source[b : b + 1, :length], target[b : b + 1])
        torch.testing.assert_close(alone[0], batch[b])


def test_another_pad_token_is_respected():
    model, (source, target) = make(pad=16), tokens()
    swapped = torch.where(source == 0, 16, torch.where(source == 16, 15, source))
    alone = model(swapped[:1, :4], target[:1])
    torch.testing.assert_close(model(swapped, target)[:1], alone)


def test_no_leak_from_the_future_and_every_source_word_counts():
    model, (source, target) = make(), tokens()
    changed = target.clone()
    changed[:, 3:] = 7
    out = model(source, target)
    assert torch.equal(model(source, changed)[:, :3], out[:, :3])
    seen = {}
    model.source_embedding.register_forward_hook(lambda m, i, o: seen.update(x=o) or o.retain_grad())
    model(source, target)[:, 0].sum().backward()
    reaches = (seen["x"].grad != 0).any(-1)
    assert torch.equal(reaches, source != 0)


@pytest.mark.parametrize("changes", [{}, {"pre_norm": False, "final_norm": False}], ids=["pre", "post"])
@pytest.mark.parametrize("chunks", [[1] * T, [2, 3], [T]], ids=str)
def test_steps_equal_the_whole(changes, chunks):
    model, (source, target) = make(**changes), tokens()
    whole, state, at = model(source, target), model.start(source), 0
    for chunk in target.split(chunks, 1):
        logits, state = model.step(chunk, state)
        at += chunk.shape[1]
        torch.testing.assert_close(logits, whole[:, at - 1])


def test_a_state_can_be_used_twice_and_reordered():
    model, (source, target) = make(), tokens()
    _, state = model.step(target[:, :2], model.start(source))
    first, _ = model.step(target[:, 2:3], state)
    again, _ = model.step(target[:, 2:3], state)
    assert torch.equal(first, again)
    rows = torch.tensor([2, 0])
    picked = torch.utils._pytree.tree_map(lambda t: t.index_select(0, rows), state)
    torch.testing.assert_close(model.step(target[rows, 2:3], picked)[0], first[rows])


def test_embeddings_are_tied_to_the_output_and_shared_when_asked():
    assert make().source_embedding is not make().target_embedding
    shared = make(source_vocab=19, share_embeddings=True)
    assert shared.source_embedding is shared.target_embedding
    names = [name for name, _ in shared.named_parameters() if "embedding" in name]
    assert names == ["target_embedding.weight"]
    model = make()
    x = torch.randn(2, D, dtype=torch.float64)
    torch.testing.assert_close(model.logits(x), x @ model.target_embedding.weight.T)


def test_embeddings_start_with_the_width_asked_for():
    torch.manual_seed(0)
    model = Transformer(dataclasses.replace(SMALL, source_vocab=4000, target_vocab=4001, embedding_std=0.5))
    for table in (model.source_embedding, model.target_embedding):
        assert table.weight.std().item() * math.sqrt(D) == pytest.approx(0.5, rel=0.02)


def test_there_is_a_norm_after_each_stack_only_when_asked():
    assert (
        sum(p.numel() for p in make().parameters()) - sum(p.numel() for p in make(final_norm=False).parameters())
        == 4 * D
    )


def test_dropout_acts_on_embeddings_too():
    model, (source, _) = make(dropout=0.5, encoder_layers=0), tokens()
    torch.manual_seed(0)
    assert (model.embed(model.source_embedding, source) == 0).double().mean() == pytest.approx(0.5, abs=0.1)
    assert not (model.eval().embed(model.source_embedding, source) == 0).any()


def test_the_papers_base_model_has_the_papers_sizes():
    """Attention 4(D² + D), feed-forward 2DF + F + D, norms 2D each; 6 + 6 layers, and one table of 37,000 × 512."""
    c = PAPER_BASE
    attention, norm = 4 * (512 * 512 + 512), 2 * 512
    feed_forward = 2 * 512 * 2048 + 2048 + 512
    layers = 6 * (attention + feed_forward + 2 * norm) + 6 * (2 * attention + feed_forward + 3 * norm)
    with torch.device("meta"):
        model = Transformer(c)
    count = sum(p.numel() for p in model.parameters())
    assert count == layers + 37_000 * 512 == 63_082_496
    assert count == pytest.approx(65e6, rel=0.04)  # the paper, Table 3, says 65 million


@pytest.mark.slow
def test_one_training_step_of_the_papers_base_model():
    torch.manual_seed(0)
    model = Transformer(PAPER_BASE)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    g = torch.Generator().manual_seed(0)
    source, target = (
        torch.randint(3, 37_000, (2, 9), generator=g),
        torch.randint(3, 37_000, (2, 8), generator=g),
    )

    def loss():
        return F.cross_entropy(model(source, target[:, :-1]).flatten(0, 1), target[:, 1:].flatten())

    before = loss()
    assert before.item() == pytest.approx(math.log(37_000), abs=2)
    before.backward()
    assert all(p.grad.isfinite().all() and (p.grad != 0).any() for p in model.parameters())
    optimizer.step()
    model.eval()
    assert loss() < before


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda m, s, t: m(s[0], t), r"source should have 2 axes .*\(7,\)"),
        (lambda m, s, t: m(s, t[0]), r"target_in should have 2 axes"),
        (lambda m, s, t: m(s[:, :0], t), r"no words; got shape \(3, 0\)"),
        (lambda m, s, t: m(s, t[:, :0]), r"got target_in \(3, 0\) for 3 sources"),
        (lambda m, s, t: m(s, t[:2]), r"got target_in \(2, 5\) for 3 sources"),
        (lambda m, s, t: m(s + 10, t), "between 0 and 16"),
        (lambda m, s, t: m(s, t + 10), "between 0 and 18"),
        (lambda m, s, t: make(share_embeddings=True), "17 source and 19 target"),
        (lambda m, s, t: make(heads=5), "12 cannot be split into 5 heads"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call(make(), *tokens())
