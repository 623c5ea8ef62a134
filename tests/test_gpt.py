"""GPT-2 against Hugging Face's implementation with the same random weights; cache, bands, initialisation."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from test_blocks import shake

from course_lib import masks
from course_lib.gpt import GPT, GPT2_SMALL, GPTConfig, load_hugging_face

B, T, C, D, H, L = 2, 9, 23, 12, 3, 4
SMALL = GPTConfig(vocab=C, max_length=16, d_model=D, heads=H, layers=L)


def make(seed=0, **changes):
    torch.manual_seed(seed)
    return shake(GPT(dataclasses.replace(SMALL, **changes)), seed)


def text(seed=0, length=T):
    return torch.randint(0, C, (B, length), generator=torch.Generator().manual_seed(seed))


@pytest.fixture(scope="module")
def hugging_face():
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(1)
    config = transformers.GPT2Config(
        vocab_size=C, n_positions=16, n_embd=D, n_layer=L, n_head=H, bos_token_id=0, eos_token_id=None,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
    )  # fmt: skip
    return shake(transformers.GPT2LMHeadModel(config), 3).eval()


def test_same_logits_and_gradients_as_hugging_face(hugging_face):
    model = make()
    load_hugging_face(model, hugging_face.state_dict())
    logits, _ = model(text())
    theirs = hugging_face(text()).logits
    torch.testing.assert_close(logits, theirs)
    cotangent = torch.randn(B, T, C, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    blocks = hugging_face.transformer.h
    ours_p = [model.embedding.weight, model.positions.table, model.blocks[2].attention.w_qkv.weight]
    theirs_p = [
        hugging_face.transformer.wte.weight,
        hugging_face.transformer.wpe.weight,
        blocks[2].attn.c_attn.weight,
    ]
    got = torch.autograd.grad(logits, ours_p, cotangent)
    want = torch.autograd.grad(theirs, theirs_p, cotangent)
    torch.testing.assert_close(got[0], want[0])
    torch.testing.assert_close(got[1], want[1])
    torch.testing.assert_close(got[2], want[2].T)


def test_same_cached_generation_as_hugging_face(hugging_face):
    model = make().eval()
    load_hugging_face(model, hugging_face.state_dict())
    prompt = text(length=4)
    theirs = hugging_face.generate(
        prompt,
        attention_mask=torch.ones_like(prompt),
        max_new_tokens=8,
        do_sample=False,
        use_cache=True,
        pad_token_id=0,
    )
    tokens, state = prompt, model.start(B)
    newest = prompt
    for _ in range(8):
        logits, state = model.step(newest, state)
        newest = logits.argmax(-1, keepdim=True)
        tokens = torch.cat([tokens, newest], 1)
    assert torch.equal(tokens, theirs)


def test_all_or_nothing_is_loaded(hugging_face):
    model, good = make(), hugging_face.state_dict()
    before = {k: v.clone() for k, v in model.state_dict().items()}
    few = {k: v for k, v in good.items() if ".h.3." not in k}
    wide = good | {"transformer.ln_f.weight": torch.ones(D + 1)}
    for state, message in (
        (few, "no weights for blocks.3.*fewer layers"),
        (good | {"transformer.h.4.ln_1.weight": torch.ones(D)}, "has no blocks.4.*more layers"),
        (wide, r"norm.gain should have shape \(12,\); the state dict has \(13,\)"),
        (good | {"classifier.weight": torch.ones(2)}, "'classifier.weight' is not a weight"),
    ):
        with pytest.raises(ValueError, match=message):
            load_hugging_face(model, state)
        assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    load_hugging_face(model, {k.removeprefix("transformer."): v for k, v in good.items() if "lm_head" not in k})
    assert torch.equal(model.norm.gain, good["transformer.ln_f.weight"])


@pytest.mark.parametrize("band", [None, 1, 3, 20])
@pytest.mark.parametrize("chunks", [[1] * T, [4, 1, 4], [6, 3], [T]], ids=str)
def test_a_cache_equals_recomputation(band, chunks):
    model, tokens = make(band=band), text()
    whole, present = model(tokens)
    past, at = None, 0
    for chunk in tokens.split(chunks, 1):
        logits, past = model(chunk, past)
        torch.testing.assert_close(logits, whole[:, at : at + chunk.shape[1]])
        at += chunk.shape[1]
    torch.testing.assert_close(past, present)


def test_step_gives_the_last_logits():
    model = make()
    logits, state = model.step(text()[:, :5], model.start(B))
    torch.testing.assert_close(logits, model(text()[:, :5])[0][:, -1])
    logits, _ = model.step(text()[:, 5:], state)
    torch.testing.assert_close(logits, model(text())[0][:, -1])


def test_no_leak_from_the_future():
    model, tokens = make(band=3), text()
    changed = tokens.clone()
    changed[:, 5:] = (changed[:, 5:] + 1) % C
    assert torch.equal(model(tokens)[0][:, :5], model(changed)[0][:, :5])
    assert not torch.allclose(model(tokens)[0][:, 5:], model(changed)[0][:, 5:])


def test_every_second_layer_sees_a_band_only():
    model, tokens = make(band=2), text()
    from course_lib.attention import record_weights

    with record_weights(model) as seen:
        model(tokens)
    for layer in range(L):
        (weights,) = seen[f"blocks.{layer}.attention"]
        wanted = masks.window(T, 1, causal=True) if layer % 2 else masks.causal(T)
        assert torch.equal(weights > 0, wanted.expand_as(weights))
    assert not any(SMALL.is_banded(layer) for layer in range(L))


def test_initialisation_is_gpt2s():
    torch.manual_seed(0)
    model = GPT(GPTConfig(vocab=500, max_length=300, d_model=96, heads=4, layers=8))
    block = model.blocks[3]
    for weight, std in (
        (model.embedding.weight, 0.02),
        (model.positions.table, 0.01),
        (block.attention.w_qkv.weight, 0.02),
        (block.feed_forward.w_1.weight, 0.02),
        (block.attention.w_o.weight, 0.02 / math.sqrt(16)),
        (block.feed_forward.w_2.weight, 0.02 / math.sqrt(16)),
    ):
        assert weight.std().item() == pytest.approx(std, rel=0.05)
        assert abs(weight.mean().item()) < std / 10
    assert all((p == 0).all() for n, p in model.named_parameters() if n.endswith("bias"))
    assert all((p == 1).all() for n, p in model.named_parameters() if n.endswith("gain"))


def test_gpt2_small_has_its_124_million_parameters():
    with torch.device("meta"):
        model = GPT(GPT2_SMALL)
    assert sum(p.numel() for p in model.parameters()) == 124_439_808


def test_dropout_acts_in_training_only():
    model = make(dropout=0.3)
    torch.manual_seed(0)
    assert not torch.equal(model(text())[0], model(text())[0])
    model.eval()
    assert torch.equal(model(text())[0], model(text())[0])


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: make()(text()[0]), r"tokens should have 2 axes"),
        (lambda: make()(text()[:, :0]), r"no tokens to read; got shape \(2, 0\)"),
        (lambda: make()(text() + 5), "between 0 and 22"),
        (lambda: make()(text(length=17)), "max_length = 16"),
        (lambda: make()(text(), make()(text())[1]), "max_length = 16; 9 tokens after 9 others need 18"),
        (lambda: make(band=0), "1 token or more; got 0"),
        (lambda: make(heads=5), "12 cannot be split into 5 heads"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
