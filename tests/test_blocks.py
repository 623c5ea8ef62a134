"""Blocks against torch's own layers with the same weights, and against the formula in NumPy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from course_lib import blocks, by_hand, masks
from course_lib.attention import MultiHeadAttention
from course_lib.blocks import DecoderBlock, EncoderBlock, FeedForward, LayerNorm, Residual, layer_norm
from course_lib.positions import Rotary

B, T, S, D, H, FF = 2, 5, 7, 12, 3, 20


def draw(*shape, seed=0, grad=True):
    g = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randn(*shape, generator=g, dtype=torch.float64).requires_grad_(grad)


def shake(module, seed=0):
    """No bias is 0 and no gain is 1, so that a forgotten one shows."""
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.dim() == 1:
                parameter.copy_(torch.randn(parameter.shape, generator=g) * 0.5 + 0.7)
    return module.double()


def same_gradients(ours, theirs, our_inputs, their_inputs, seed=9):
    cotangent = draw(*ours.shape, seed=seed, grad=False)
    got = torch.autograd.grad(ours, our_inputs, cotangent)
    want = torch.autograd.grad(theirs, their_inputs, cotangent)
    for g, w in zip(got, want, strict=True):
        torch.testing.assert_close(g, w)


# --- layer norm


def test_a_normalised_token_has_mean_zero_and_variance_one():
    y = layer_norm(draw(B, T, D, grad=False) * 7 + 3, torch.ones(D), torch.zeros(D), eps=0.0)
    torch.testing.assert_close(y.mean(-1), torch.zeros(B, T).double(), atol=1e-12, rtol=0)
    torch.testing.assert_close(y.var(-1, unbiased=False), torch.ones(B, T).double())


@pytest.mark.parametrize("eps", [1e-5, 0.1])  # 0.1 shows an ε outside the root
def test_layer_norm_written_out_equals_torch_and_numpy(eps):
    x, gain, bias = draw(B, T, D), draw(D, seed=1), draw(D, seed=2)
    ours, theirs = layer_norm(x, gain, bias, eps), F.layer_norm(x, (D,), gain, bias, eps)
    torch.testing.assert_close(ours, theirs)
    same_gradients(ours, theirs, (x, gain, bias), (x, gain, bias))
    by_numpy = by_hand.layer_norm(*(t.detach().numpy() for t in (x, gain, bias)), eps)
    torch.testing.assert_close(ours.detach(), torch.from_numpy(by_numpy))


def test_layer_norm_defaults_are_torchs():
    x = draw(B, D, grad=False) * 1e-3  # so small that ε counts
    ones, zeros = torch.ones(D).double(), torch.zeros(D).double()
    torch.testing.assert_close(layer_norm(x, ones, zeros), F.layer_norm(x, (D,)))
    torch.testing.assert_close(LayerNorm(D).double()(x), F.layer_norm(x, (D,)))


def test_the_module_is_the_function_with_its_parameters():
    module, x = shake(LayerNorm(D, eps=0.1)), draw(B, T, D)
    torch.testing.assert_close(module(x), layer_norm(x, module.gain, module.bias, 0.1))
    assert [p.numel() for p in module.parameters()] == [D, D]


# --- feed-forward


@pytest.mark.parametrize("activation", ["relu", "gelu", "gelu_tanh"])
def test_feed_forward_equals_numpy_by_hand(activation):
    layer, x = shake(FeedForward(D, FF, activation)), draw(B, T, D)
    weights = (layer.w_1.weight.T, layer.w_1.bias, layer.w_2.weight.T, layer.w_2.bias)
    wanted = by_hand.feed_forward(x.detach().numpy(), *(w.detach().numpy() for w in weights), activation)
    torch.testing.assert_close(layer(x).detach(), torch.from_numpy(wanted))
    assert torch.autograd.gradcheck(layer, draw(2, D))


def test_feed_forward_treats_every_token_alone():
    layer, x = shake(FeedForward(D, FF)), draw(B, T, D)
    torch.testing.assert_close(layer(x)[:, 2], layer(x[:, 2]))


def test_the_two_gelus_differ():
    x = torch.linspace(-3, 3, 50)
    gap = (blocks.ACTIVATIONS["gelu"](x) - blocks.ACTIVATIONS["gelu_tanh"](x)).abs().max()
    assert 1e-4 < gap < 1e-2


# --- residual


@pytest.mark.parametrize("pre_norm", [True, False])
def test_residual_goes_around(pre_norm):
    skip, f, x = shake(Residual(D, pre_norm)), shake(FeedForward(D, FF)), draw(B, T, D)
    got = skip.leave(x, f(skip.enter(x)))
    torch.testing.assert_close(got, x + f(skip.norm(x)) if pre_norm else skip.norm(x + f(x)))


def test_residual_hands_its_eps_on():
    skip, x = shake(Residual(D, eps=0.1)), draw(B, T, D)
    torch.testing.assert_close(skip.enter(x), layer_norm(x, skip.norm.gain, skip.norm.bias, 0.1))


def test_residual_drops_only_what_the_sublayer_made():
    skip, x = Residual(D, dropout=0.5), torch.ones(40, D)
    torch.manual_seed(0)
    left = skip.leave(x, torch.ones(40, D))
    assert set(left.unique().tolist()) == {1.0, 3.0}
    assert (skip.eval().leave(x, torch.ones(40, D)) == 2).all()


# --- blocks against torch's layers


def copy_attention(ours: MultiHeadAttention, theirs: nn.MultiheadAttention):
    theirs.in_proj_weight.data.copy_(ours.w_qkv.weight)
    theirs.in_proj_bias.data.copy_(ours.w_qkv.bias)
    theirs.out_proj.load_state_dict(ours.w_o.state_dict())


def copy_rest(ours, theirs, norms):
    theirs.linear1.load_state_dict(ours.feed_forward.w_1.state_dict())
    theirs.linear2.load_state_dict(ours.feed_forward.w_2.state_dict())
    for skip, norm in zip(norms, ("norm1", "norm2", "norm3"), strict=False):
        getattr(theirs, norm).weight.data.copy_(skip.norm.gain)
        getattr(theirs, norm).bias.data.copy_(skip.norm.bias)


def torch_encoder_layer(ours: EncoderBlock, pre_norm, activation="relu"):
    theirs = nn.TransformerEncoderLayer(
        D, H, FF, dropout=0.0, activation=activation, batch_first=True, norm_first=pre_norm
    ).double()
    copy_attention(ours.attention, theirs.self_attn)
    copy_rest(ours, theirs, (ours.skip_1, ours.skip_2))
    return theirs


def torch_decoder_layer(ours: DecoderBlock, pre_norm):
    theirs = nn.TransformerDecoderLayer(D, H, FF, dropout=0.0, batch_first=True, norm_first=pre_norm).double()
    copy_attention(ours.self_attention, theirs.self_attn)
    copy_attention(ours.cross_attention, theirs.multihead_attn)
    copy_rest(ours, theirs, (ours.skip_1, ours.skip_2, ours.skip_3))
    return theirs


@pytest.mark.parametrize("pre_norm", [True, False])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("masked", [True, False])
def test_encoder_block_equals_torch(pre_norm, activation, masked):
    torch.manual_seed(0)
    ours = shake(EncoderBlock(D, H, FF, pre_norm=pre_norm, activation=activation))
    theirs, x = torch_encoder_layer(ours, pre_norm, activation), draw(B, T, D)
    mask = masks.padding(torch.tensor([T, 3])) if masked else None
    got = ours(x, mask)
    want = theirs(x, src_key_padding_mask=None if mask is None else ~mask[:, 0])
    torch.testing.assert_close(got, want)
    same_gradients(
        got,
        want,
        (x, ours.attention.w_qkv.weight, ours.skip_2.norm.gain, ours.feed_forward.w_1.weight),
        (x, theirs.self_attn.in_proj_weight, theirs.norm2.weight, theirs.linear1.weight),
    )
    assert sum(p.numel() for p in ours.parameters()) == sum(p.numel() for p in theirs.parameters())


@pytest.mark.parametrize("pre_norm", [True, False])
def test_encoder_block_equals_numpy_by_hand(pre_norm):
    torch.manual_seed(1)
    ours, x = shake(EncoderBlock(D, H, FF, pre_norm=pre_norm)), draw(B, T, D, grad=False).numpy()
    for linear in (ours.attention.w_qkv, ours.attention.w_o):
        nn.init.zeros_(linear.bias)  # by hand, heads have none
    array = {name: p.detach().numpy() for name, p in ours.named_parameters()}
    w_q, w_k, w_v = (w.T for w in np.split(array["attention.w_qkv.weight"], 3))
    w_o, f = array["attention.w_o.weight"].T, "feed_forward."
    feed = (array[f + "w_1.weight"].T, array[f + "w_1.bias"], array[f + "w_2.weight"].T, array[f + "w_2.bias"])
    wanted = by_hand.encoder_block(
        x,
        lambda y: by_hand.multi_head(y, w_q, w_k, w_v, w_o, H, mask=by_hand.causal_mask(T)),
        lambda y: by_hand.feed_forward(y, *feed),
        lambda y: by_hand.layer_norm(y, array["skip_1.norm.gain"], array["skip_1.norm.bias"]),
        lambda y: by_hand.layer_norm(y, array["skip_2.norm.gain"], array["skip_2.norm.bias"]),
        pre_norm,
    )
    torch.testing.assert_close(ours(torch.from_numpy(x), causal=True).detach(), torch.from_numpy(wanted))


@pytest.mark.parametrize("pre_norm", [True, False])
def test_decoder_block_equals_torch(pre_norm):
    torch.manual_seed(0)
    ours = shake(DecoderBlock(D, H, FF, pre_norm=pre_norm))
    theirs, x, memory = torch_decoder_layer(ours, pre_norm), draw(B, T, D), draw(B, S, D, seed=1)
    memory_mask = masks.padding(torch.tensor([4, S]))
    got = ours(x, memory, memory_mask=memory_mask)
    want = theirs(x, memory, tgt_mask=~masks.causal(T), memory_key_padding_mask=~memory_mask[:, 0])
    torch.testing.assert_close(got, want)
    same_gradients(
        got,
        want,
        (x, memory, ours.cross_attention.w_qkv.weight, ours.skip_2.norm.bias),
        (x, memory, theirs.multihead_attn.in_proj_weight, theirs.norm2.bias),
    )


def test_decoder_block_takes_a_mask_for_its_own_tokens_too():
    ours, x, memory = shake(DecoderBlock(D, H, FF)), draw(B, T, D), draw(B, S, D, seed=1)
    own = masks.padding(torch.tensor([T, 2]))
    got = ours(x, memory, own)
    want = torch_decoder_layer(ours, True)(x, memory, tgt_mask=~(masks.causal(T) & own).repeat_interleave(H, 0))
    torch.testing.assert_close(got, want)


def test_decoder_does_not_see_the_future_but_all_of_the_memory():
    ours, x, memory = shake(DecoderBlock(D, H, FF)), draw(B, T, D), draw(B, S, D, seed=1)
    out = ours(x, memory)
    changed = x.detach().clone()
    changed[:, 3:] += 5
    assert torch.equal(ours(changed, memory)[:, :3], out[:, :3])
    to_x, to_memory = torch.autograd.grad(out[:, 0].sum(), (x, memory))
    assert (to_x[:, 1:] == 0).all() and (to_memory != 0).any(-1).all()


@pytest.mark.parametrize("pre_norm", [True, False])
@pytest.mark.parametrize("positions", [None, "rotary"])
def test_steps_equal_the_whole(pre_norm, positions):
    rotary = Rotary(D // H) if positions else None
    encoder = shake(EncoderBlock(D, H, FF, pre_norm=pre_norm, positions=rotary))
    decoder = shake(DecoderBlock(D, H, FF, pre_norm=pre_norm, positions=rotary))
    x, memory, seen = draw(B, S, D), draw(B, T, D, seed=1), masks.padding(torch.tensor([T, 2]))
    kept = decoder.cross_attention.key_value(memory)
    past_e = past_d = None
    outs_e, outs_d = [], []
    for chunk in x.split([2, 1, 4], 1):
        out, past_e = encoder.step(chunk, past_e)
        outs_e.append(out)
        out, past_d = decoder.step(chunk, past_d, kept, seen)
        outs_d.append(out)
    torch.testing.assert_close(torch.cat(outs_e, 1), encoder(x, causal=True))
    torch.testing.assert_close(torch.cat(outs_d, 1), decoder(x, memory, memory_mask=seen))


def test_step_takes_a_mask():
    block, x = shake(EncoderBlock(D, H, FF)), draw(B, S, D)
    _, past = block.step(x[:, :4], None, masks.window(4, 1, causal=True))
    out, _ = block.step(x[:, 4:], past, masks.window(S - 4, 1, S, causal=True))
    torch.testing.assert_close(out, block(x, masks.window(S, 1, causal=True))[:, 4:])


def test_shuffled_tokens_give_shuffled_outputs():
    block, x, order = shake(EncoderBlock(D, H, FF)), draw(B, T, D), torch.tensor([2, 4, 0, 1, 3])
    torch.testing.assert_close(block(x[:, order]), block(x)[:, order])


@pytest.mark.parametrize("make", [EncoderBlock, DecoderBlock])
def test_dropout_reaches_every_sublayer_and_only_in_training(make):
    torch.manual_seed(0)
    block = make(D, H, FF, dropout=0.4).double()
    dropouts = [m.dropout for m in block.modules() if hasattr(m, "dropout")]
    assert len(dropouts) == (4 if make is EncoderBlock else 6) and set(dropouts) == {0.4}
    inputs = (draw(B, T, D), draw(B, S, D)) if make is DecoderBlock else (draw(B, T, D),)
    assert not torch.equal(block(*inputs), block(*inputs))
    block.eval()
    assert torch.equal(block(*inputs), block(*inputs))


def test_a_block_hands_its_input_on_where_all_else_is_dropped():
    encoder, decoder = shake(EncoderBlock(D, H, FF)), shake(DecoderBlock(D, H, FF))  # pre-norm unless asked
    for module in (*encoder.modules(), *decoder.modules()):
        if isinstance(module, Residual):
            module.dropout = 1.0
    x, memory = draw(B, T, D), draw(B, S, D, seed=1)
    assert torch.equal(encoder(x), x) and torch.equal(encoder.step(x, None)[0], x)
    kept = decoder.cross_attention.key_value(memory)
    assert torch.equal(decoder(x, memory), x) and torch.equal(decoder.step(x, None, kept)[0], x)


def test_blocks_use_the_positions_and_the_attention_they_are_given():
    rotary, given = Rotary(D // H), MultiHeadAttention(D, H)
    decoder = DecoderBlock(D, H, FF, positions=rotary)
    assert EncoderBlock(D, H, FF, positions=rotary).attention.positions is rotary
    assert decoder.self_attention.positions is rotary and decoder.cross_attention.positions is None
    assert EncoderBlock(D, H, FF, attention=given).attention is given


def test_feed_forward_drops_inside():
    torch.manual_seed(0)
    layer, x = FeedForward(D, FF, dropout=0.5), torch.randn(B, T, D)
    assert not torch.equal(layer(x), layer(x))
    assert torch.equal(layer.eval()(x), layer(x))


# --- looking words up, and bad input


def test_look_up_gives_rows_and_their_gradient():
    table, tokens = nn.Embedding(6, D), torch.tensor([[1, 5], [0, 1]])
    assert torch.equal(blocks.look_up(table, tokens), table.weight[tokens])


@pytest.mark.parametrize(
    "call, error, message",
    [
        (lambda: LayerNorm(D)(torch.zeros(2, 3)), ValueError, r"d_model = 12; got shape \(2, 3\)"),
        (lambda: FeedForward(D, FF)(torch.zeros(2, 3)), ValueError, r"d_model = 12; got shape \(2, 3\)"),
        (lambda: FeedForward(D, FF, "swish"), ValueError, "one of relu, gelu, gelu_tanh; got 'swish'"),
        (lambda: EncoderBlock(D, 5, FF), ValueError, "12 cannot be split into 5 heads"),
        (
            lambda: blocks.look_up(nn.Embedding(6, 2), torch.tensor([3, 6])),
            ValueError,
            "between 0 and 5.*3 to 6",
        ),
        (
            lambda: blocks.look_up(nn.Embedding(6, 2), torch.tensor([-1])),
            ValueError,
            "6 words; got tokens from -1",
        ),
        (
            lambda: blocks.look_up(nn.Embedding(6, 2), torch.ones(2)),
            TypeError,
            r"whole numbers.*torch.float32",
        ),
        (lambda: blocks.look_up(nn.Embedding(6, 2), torch.ones(2).bool()), TypeError, r"torch.bool"),
    ],
)
def test_bad_input_is_named(call, error, message):
    with pytest.raises(error, match=message):
        call()
