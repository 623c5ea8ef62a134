"""The pretend GPU itself: it computes what the CPU computes, and refuses what CUDA refuses."""

from __future__ import annotations

import contextlib
import copy
import gc
import io
from collections.abc import Callable, Iterator

import numpy as np
import pretend_gpu
import pytest
import torch
import torch.nn.functional as F
from pretend_gpu import NAME, Traffic
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint

pretend_gpu.install()

TWO_DEVICES = "Expected all tensors to be on the same device"
B, H, T, S, K = 2, 3, 5, 7, 4


@pytest.fixture(autouse=True)
def traffic() -> Iterator[Traffic]:
    torch.manual_seed(0)
    with pretend_gpu.switched_on() as traffic:
        yield traffic


def gpu(*size: int, **options) -> Tensor:
    return torch.randn(*size, device=NAME, **options)


def long(*values: int, device: str = NAME) -> Tensor:
    return torch.tensor(values, device=device)


def yes(*size: int, device: str = "cpu") -> Tensor:
    return torch.ones(size, dtype=torch.bool, device=device)


def same(mine: Tensor, cpu: Tensor) -> bool:
    """A device tensor and a CPU tensor with the same bits."""
    return mine.device.type == NAME and mine.dtype == cpu.dtype and torch.equal(mine.cpu(), cpu)


# --- What may not meet --------------------------------------------------------------------------------------

CPU_VECTOR, CPU_NUMBER = torch.randn(5), torch.tensor(1.5)

REFUSED: dict[str, Callable[[], object]] = {
    "add": lambda: gpu(5) + CPU_VECTOR,
    "add to a CPU tensor": lambda: CPU_VECTOR + gpu(5),
    "add in place": lambda: gpu(5).add_(CPU_VECTOR),
    "add in place to a CPU tensor": lambda: CPU_VECTOR.add_(gpu(5)),
    "add in place to a CPU number": lambda: CPU_NUMBER.clone().add_(gpu(())),
    "add with out= on the CPU": lambda: torch.add(gpu(5), gpu(5), out=torch.empty(5)),
    "add with a one-element vector": lambda: gpu(5) + torch.ones(1),
    "compare": lambda: gpu(5) == CPU_VECTOR,
    "matmul": lambda: gpu(2, 5) @ torch.randn(5, 3),
    "matmul with the CPU on the left": lambda: torch.randn(2, 5) @ gpu(5, 3),
    "batched matmul": lambda: torch.einsum("bij,bjk->bik", gpu(2, 3, 4), torch.randn(2, 4, 5)),
    "linear": lambda: nn.Linear(5, 3)(gpu(2, 5)),
    "layer norm": lambda: nn.LayerNorm(5)(gpu(2, 5)),
    "masked_fill": lambda: gpu(5).masked_fill(yes(5), 0.0),
    "masked_fill with a CPU mask of no axes": lambda: gpu(5).masked_fill(yes(), 0.0),
    "where": lambda: torch.where(yes(5), gpu(5), gpu(5)),
    "cat": lambda: torch.cat([gpu(2), torch.zeros(3)]),
    "stack": lambda: torch.stack([gpu(()), CPU_NUMBER]),
    "embedding": lambda: F.embedding(long(0, 1, device="cpu"), gpu(5, 3)),
    "embedding table on the CPU": lambda: nn.Embedding(5, 3)(long(0, 1)),
    "cross entropy, target on the CPU": lambda: F.cross_entropy(gpu(2, 5), long(0, 1, device="cpu")),
    "cross entropy, weights on the CPU": lambda: F.cross_entropy(gpu(2, 5), long(0, 1), weight=CPU_VECTOR),
    "attention mask": lambda: F.scaled_dot_product_attention(
        gpu(2, 3, 4), gpu(2, 3, 4), gpu(2, 3, 4), attn_mask=yes(3, 3)
    ),
    "gather": lambda: gpu(5).gather(0, long(0, 1, device="cpu")),
    "scatter": lambda: gpu(5).scatter(0, long(0, 1), torch.ones(2)),
    "index_select": lambda: gpu(5).index_select(0, long(0, 1, device="cpu")),
    "index_add_": lambda: gpu(5).index_add_(0, long(0, 1), torch.ones(2)),
    "write CPU values by index": lambda: gpu(5).__setitem__(long(0, 1), torch.ones(2)),
    "take from a CPU tensor by device index": lambda: F.embedding(long(1), CPU_VECTOR[:, None]),
    "lerp": lambda: torch.lerp(gpu(5), CPU_VECTOR, 0.5),
    "equal": lambda: torch.equal(gpu(5), CPU_VECTOR),
    "fused optimizer with its step count on the CPU": lambda: torch._fused_adamw_(
        *([gpu(3)] for _ in range(4)), [], [torch.tensor(1.0)],
        lr=0.1, beta1=0.9, beta2=0.99, weight_decay=0.0, eps=1e-8, amsgrad=False, maximize=False,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_two_devices_do_not_mix(name):
    with pytest.raises(RuntimeError, match=TWO_DEVICES):
        REFUSED[name]()


def test_refused_operations_leave_their_arguments_alone():
    x = gpu(5)
    before = x.cpu()
    with pytest.raises(RuntimeError, match=TWO_DEVICES):
        x.add_(CPU_VECTOR)
    assert same(x, before)


def test_the_message_names_operation_and_shape():
    with pytest.raises(RuntimeError, match=rf"{NAME}:0 and cpu! \(aten.mm.default got CPU tensors of shape \(5, 3\)"):
        gpu(2, 5) @ torch.randn(5, 3)


# --- What may meet ------------------------------------------------------------------------------------------

ALLOWED: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]] = {
    "number on the right": (lambda x: x + CPU_NUMBER, lambda x: x + 1.5),
    "number on the left": (lambda x: CPU_NUMBER / x, lambda x: CPU_NUMBER / x),
    "number to divide by": (lambda x: x // CPU_NUMBER, lambda x: x // 1.5),
    "number in place": (lambda x: x.mul_(CPU_NUMBER), lambda x: x * 1.5),
    "Python numbers": (lambda x: (x % 2) ** 2 // 1 - 3 > -1.5, lambda x: (x % 2) ** 2 // 1 - 3 > -1.5),
    "Python numbers in place": (lambda x: x.remainder_(2).clamp_(0, 1), lambda x: (x % 2).clamp(0, 1)),
    "Python numbers, whole": (lambda x: x.long() % 3 // 2, lambda x: x.long() % 3 // 2),
    "comparison": (lambda x: x > CPU_NUMBER, lambda x: x > 1.5),
    "masked_fill with a CPU number": (
        lambda x: x.masked_fill(x > 0, CPU_NUMBER),
        lambda x: x.masked_fill(x > 0, 1.5),
    ),
    "where with a CPU number": (
        lambda x: torch.where(x > 0, x, CPU_NUMBER),
        lambda x: x.masked_fill(x <= 0, 1.5),
    ),
    "fill": (lambda x: x.clone().fill_(CPU_NUMBER), lambda x: torch.full_like(x, 1.5)),
    "CPU index": (lambda x: x[torch.tensor([3, 1])], lambda x: x[[3, 1]]),
    "CPU mask as index": (lambda x: x[torch.arange(5) > 2], lambda x: x[3:]),
    "write a CPU number by CPU index": (
        lambda x: x.clone().index_put_((torch.tensor([3]),), CPU_NUMBER),
        lambda x: torch.cat([x[:3], torch.full((1,), 1.5), x[4:]]),
    ),
    "copy_ from the CPU": (lambda x: torch.empty_like(x).copy_(CPU_VECTOR), lambda x: CPU_VECTOR),
}  # fmt: skip


@pytest.mark.parametrize("name", ALLOWED)
def test_numbers_indices_and_copies_cross(name):
    on_gpu, on_cpu = ALLOWED[name]
    x = torch.randn(5)
    expected = on_cpu(x)
    assert same(on_gpu(x.to(NAME)), expected)


def test_a_slice_takes_a_copy_from_the_cpu():
    x = torch.zeros(5, device=NAME)
    x[1:3] = torch.tensor([1.0, 2.0])
    assert x.tolist() == [0.0, 1.0, 2.0, 0.0, 0.0]


def test_device_indices_do_not_index_cpu_tensors():
    with pytest.raises(RuntimeError, match="indices should be either on cpu or on the same device"):
        CPU_VECTOR[long(0, 1)]
    with pytest.raises(RuntimeError, match="indices should be either on cpu or on the same device"):
        CPU_VECTOR.clone()[long(0, 1)] = 1.0


# --- Copies and the way to NumPy ----------------------------------------------------------------------------


def test_there_and_back_is_the_same_tensor_elsewhere():
    x = torch.randn(T, S).mT
    there = x.to(NAME)
    assert there.device == torch.device(NAME, 0) and there.shape == x.shape and there.stride() == x.stride()
    assert same(there, x)
    there.zero_()
    assert x.abs().sum() > 0  # a copy, not the same memory
    assert there.to(NAME) is there


def test_numpy_is_refused_and_tolist_waits(traffic):
    x = torch.arange(3.0, device=NAME)
    with pytest.raises(TypeError, match=r"can't convert .* to numpy. Use Tensor.cpu\(\) to copy"):
        x.numpy()
    with pytest.raises(TypeError, match="to numpy"):
        np.asarray(x)
    assert traffic.waits == 0
    assert x.tolist() == [0.0, 1.0, 2.0] and traffic.syncs == {"copy to the CPU": 1}


def test_factories_take_the_device():
    assert same(torch.arange(3, 9, 2, device=NAME), torch.arange(3, 9, 2))
    assert same(torch.full((2, 3), 7.0, device=NAME), torch.full((2, 3), 7.0))
    assert same(torch.ones(3, device=NAME).new_zeros(2), torch.zeros(2))
    assert same(torch.zeros_like(gpu(T, S)), torch.zeros(T, S))
    assert torch.zeros_like(gpu(2), device="cpu").device.type == "cpu"
    assert same(torch.tensor([[1, 2]], device=NAME), torch.tensor([[1, 2]]))


def test_default_device_is_respected():
    torch.set_default_device(NAME)
    try:
        assert torch.zeros(2).device.type == NAME and nn.Linear(2, 3).weight.device.type == NAME
    finally:
        torch.set_default_device(None)


def test_a_tensor_prints_itself():
    assert repr(torch.arange(2.0, device=NAME)) == f"tensor([0., 1.], device='{NAME}:0')"


# --- Memory: views, in place, out= --------------------------------------------------------------------------


def test_views_share_memory():
    x = torch.zeros(2, 3, device=NAME)
    x[0].add_(1)
    x.mT[2] = 5
    x.view(-1)[3] = 7
    x.unfold(1, 2, 1)[1, 1, 0] = 9
    assert x.tolist() == [[1.0, 1.0, 5.0], [7.0, 9.0, 5.0]]
    assert x.detach().data_ptr() == x.data_ptr() and x.clone().data_ptr() != x.data_ptr()


def test_in_place_operations_return_their_tensor_and_follow_its_shape():
    x = gpu(2, 3)
    kept = x.cpu()
    assert x.t_() is x and same(x, kept.t())
    assert x.unsqueeze_(0) is x and x.shape == (1, 3, 2)
    assert x.resize_(5, 4) is x and x.shape == (5, 4)
    x.fill_(2.0)
    assert x.sum().item() == 40.0
    assert x.resize_(3, 2).shape == (3, 2) and x.sum().item() == 12.0


def test_out_is_written_and_resized():
    a, b = torch.randn(2, 3), torch.randn(3, 4)
    out = torch.empty(0, device=NAME)
    assert torch.matmul(a.to(NAME), b.to(NAME), out=out) is out
    assert same(out, a @ b)


def test_writing_where_autograd_needs_the_old_value_is_an_error():
    x = gpu(3, requires_grad=True)
    y = x.exp()
    y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_gradients_flow_through_views_and_writes():
    def gradient(device: str) -> Tensor:
        x = torch.arange(1.0, 7.0).view(2, 3).to(device).requires_grad_()
        y = x * 2
        y[0] *= x[1]
        y[:, 1] = 0
        y.mT.square().sum().backward()
        assert x.grad is not None
        return x.grad

    assert same(gradient(NAME), gradient("cpu"))


def test_inference_mode_makes_inference_tensors_but_keeps_views_of_buffers_ordinary():
    table = torch.ones(4, 3, device=NAME)
    layer = nn.Linear(3, 3, device=NAME)
    with torch.inference_mode():
        view, y = table[:2], layer(table)
        assert y.is_inference() and y[0].is_inference() and not view.is_inference()
    (layer(view).sum() + table.sum()).backward()  # a view of a buffer is still good for training


# --- The same numbers, to the last bit ----------------------------------------------------------------------

FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "softmax": lambda x: x.softmax(-1),
    "log_softmax": lambda x: x.log_softmax(-1),
    "layer_norm": lambda x: F.layer_norm(x, x.shape[-1:]),
    "gelu": F.gelu,
    "matmul": lambda x: x @ x.mT,
    "einsum": lambda x: torch.einsum("bts,bus->btu", x, x),
    "attention": lambda x: F.scaled_dot_product_attention(x, x, x, is_causal=True),
    "cumsum and topk": lambda x: x.cumsum(-1).topk(3).values,
    "sort and gather": lambda x: x.gather(-1, x.argsort(-1)),
    "scatter_add": lambda x: torch.zeros_like(x).scatter_add(1, x.argsort(1), x),
    "index_add": lambda x: torch.zeros_like(x).index_add(1, torch.arange(T, device=x.device) // 2, x),
    "unfold": lambda x: x.unfold(1, 3, 2),
    "pad and cat": lambda x: torch.cat([F.pad(x, (1, 2)), F.pad(x, (2, 1))], dim=1),
    "tril": lambda x: x.tril(),
    "norm": lambda x: torch.linalg.vector_norm(x, dim=-1),
    "complex rotation": lambda x: torch.view_as_real(
        torch.view_as_complex(x[..., :6].unflatten(-1, (3, 2)).contiguous())
        * torch.polar(x[..., :3].exp(), x[..., :3])
    ),
    "lazy conjugate and negative": lambda x: torch.view_as_complex(x[..., :2].contiguous()).conj().imag * 1,
    "amax and where": lambda x: torch.where(x > x.amax(-1, keepdim=True) / 2, x, 0.0),
    "logsumexp": lambda x: x.logsumexp(-1),
    "logcumsumexp": lambda x: x.logcumsumexp(-1),
    "repeat_interleave": lambda x: x.repeat_interleave(2, 0),
    "dropout of a half": lambda x: F.dropout(x, 0.5),
    "bernoulli": lambda x: x * torch.rand_like(x),
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_value_and_gradient_are_the_cpus_to_the_last_bit(name, dtype):
    x = torch.randn(B, T, S, dtype=dtype)

    def run(device: str) -> tuple[Tensor, Tensor]:
        torch.manual_seed(1)
        there = x.to(device).requires_grad_()
        with sdpa_kernel(SDPBackend.MATH):  # the one that is not the CPU's own kernel
            y = FUNCTIONS[name](there)
        (gradient,) = torch.autograd.grad(y.cos().sum(), there)
        return y.detach(), gradient

    mine, cpu = run(NAME), run("cpu")
    assert same(mine[0], cpu[0]) and same(mine[1], cpu[1])


class Pool(torch.autograd.Function):
    """Sums of the rows of each group, forward and backward by index operations."""

    @staticmethod
    def forward(ctx, x: Tensor, groups: Tensor, count: int) -> Tensor:
        ctx.save_for_backward(groups)
        return x.new_zeros(count, x.shape[1]).index_add_(0, groups, x)

    @staticmethod
    def backward(ctx, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (groups,) = ctx.saved_tensors
        return gradients[0].index_select(0, groups), None, None


def test_custom_autograd_function():
    x = torch.randn(T, K)
    mine, cpu = x.to(NAME).requires_grad_(), x.clone().requires_grad_()
    groups = torch.tensor([0, 2, 2, 1, 0])
    y = Pool.apply(mine, groups.to(NAME), 3)
    y.square().sum().backward()
    z = Pool.apply(cpu, groups, 3)
    z.square().sum().backward()
    assert same(y.detach(), z.detach()) and same(mine.grad, cpu.grad)
    with pytest.raises(RuntimeError, match=TWO_DEVICES):
        Pool.apply(mine, groups, 3)


def test_double_precision_gradients_agree_with_differences():
    x = gpu(T, K, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: (x @ x.mT).softmax(-1) @ x, x)


class Attention(nn.Module):
    """Causal attention of one head between two layers, with a tied embedding: a small model of everything."""

    def __init__(self, dropout: float = 0.5):
        super().__init__()
        self.embed = nn.Embedding(S, K)
        self.qkv = nn.Linear(K, 3 * K)
        self.norm = nn.LayerNorm(K)
        self.out = nn.Linear(K, S, bias=False)
        self.out.weight = self.embed.weight
        self.dropout = dropout
        self.register_buffer("position", torch.randn(T, K))

    def forward(self, tokens_BT: Tensor) -> Tensor:
        x_BTK = self.embed(tokens_BT) + self.position[: tokens_BT.shape[1]]
        q, k, v = self.qkv(x_BTK).chunk(3, dim=-1)
        t = torch.arange(tokens_BT.shape[1], device=tokens_BT.device)
        weights = (q @ k.mT / K**0.5).masked_fill(t > t[:, None], -torch.inf).softmax(-1)
        return self.out(self.norm(x_BTK + F.dropout(weights, self.dropout, self.training) @ v))


OPTIMIZERS: dict[str, Callable] = {
    "Adam": torch.optim.Adam,
    "AdamW": torch.optim.AdamW,
    "AdamW fused": lambda p: torch.optim.AdamW(p, fused=True),
    "AdamW foreach": lambda p: torch.optim.AdamW(p, foreach=True),
    "SGD with momentum": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_training_gives_the_cpus_parameters_after_every_step(name):
    tokens = torch.randint(S, (B, T))

    def train(device: str) -> list[list[Tensor]]:
        torch.manual_seed(3)
        model = Attention().to(device)
        optimizer = OPTIMIZERS[name](model.parameters())
        seen = []
        for _ in range(3):
            optimizer.zero_grad()
            F.cross_entropy(model(tokens.to(device)).flatten(0, 1), tokens.to(device).flatten()).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            seen.append([p.detach().clone() for p in model.parameters()])
        return seen

    for mine, cpu in zip(train(NAME), train("cpu"), strict=True):
        assert all(same(a, b) for a, b in zip(mine, cpu, strict=True))


# --- Modules ------------------------------------------------------------------------------------------------


def test_modules_keep_their_parameters_ties_and_gradients_when_they_move():
    model = Attention()
    weight, optimizer = model.embed.weight, torch.optim.SGD(model.parameters(), 0.1)
    assert model.to(NAME) is model and weight.device.type == NAME
    assert model.embed.weight is weight and model.out.weight is weight
    assert model.position.device.type == NAME
    before = weight.detach().clone()
    model(torch.zeros(B, T, dtype=torch.long, device=NAME)).sum().backward()
    optimizer.step()  # made before the move, as on CUDA it holds the same parameters
    assert not torch.equal(weight, before)
    assert model.to("cpu").embed.weight is weight and weight.grad.device.type == "cpu"


def test_state_dicts_load_across_devices():
    there, here = Attention().to(NAME), Attention()
    there.load_state_dict(here.state_dict())
    assert all(same(a, b) for a, b in zip(there.state_dict().values(), here.state_dict().values(), strict=True))
    there.embed.weight.data.zero_()
    here.load_state_dict(there.state_dict())
    assert here.embed.weight.abs().sum() == 0 and here.embed.weight.device.type == "cpu"


@pytest.mark.parametrize("where", [None, "cpu", NAME])
def test_files(where):
    model, file = Attention().to(NAME), io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    loaded = torch.load(file, map_location=where)
    assert {t.device.type for t in loaded.values()} == {where or NAME}
    assert all(torch.equal(a.cpu(), loaded[name].cpu()) for name, a in model.state_dict().items())


def test_deep_copies_have_their_own_memory():
    for thing in (nn.Linear(K, K).to(NAME).weight, gpu(T)):
        twin = copy.deepcopy(thing)
        assert torch.equal(twin, thing)
        twin.data.zero_()
        assert not torch.equal(twin, thing)


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointing_gives_the_same_gradient_dropout_included(reentrant):
    layer = nn.Sequential(nn.Linear(K, S), nn.Dropout(0.5), nn.Linear(S, K)).to(NAME)
    x = gpu(T, K, requires_grad=True)

    def gradient(run: Callable[[Tensor], Tensor]) -> Tensor:
        torch.manual_seed(4)
        return torch.autograd.grad(run(x).square().sum(), x)[0] if run is layer else backward(run)

    def backward(run: Callable[[Tensor], Tensor]) -> Tensor:  # the reentrant kind knows `backward` alone
        x.grad = None
        run(x).square().sum().backward()
        return x.grad

    assert torch.equal(gradient(layer), gradient(lambda x: checkpoint(layer, x, use_reentrant=reentrant)))


# --- Random numbers -----------------------------------------------------------------------------------------


def test_one_seed_one_set_of_numbers():
    for draw in (torch.rand, torch.randn):
        torch.manual_seed(5)
        here = draw(T)
        torch.manual_seed(5)
        assert same(draw(T, device=NAME), here)


def test_a_generator_that_is_gone_leaves_no_trace():
    address = torch.Generator(device=NAME)._cdata
    gc.collect()
    assert address not in pretend_gpu._generators  # another generator may come to live there


def test_a_generator_belongs_to_a_device():
    there, here = torch.Generator(device=NAME).manual_seed(6), torch.Generator().manual_seed(6)
    assert there.device == torch.device(NAME, 0) and here.device.type == "cpu"
    assert isinstance(torch.default_generator, torch.Generator) and not isinstance(3, torch.Generator)
    assert same(torch.rand(T, generator=there, device=NAME), torch.rand(T, generator=here))
    p = torch.rand(S)
    assert same(torch.multinomial(p.to(NAME), 3, generator=there), torch.multinomial(p, 3, generator=here))
    for draw in (
        lambda: torch.rand(T, generator=here, device=NAME),
        lambda: torch.randperm(T, generator=here, device=NAME),
        lambda: torch.multinomial(gpu(S).exp(), 1, generator=here),
        lambda: gpu(S).normal_(generator=here),
    ):
        with pytest.raises(RuntimeError, match=f"Expected a '{NAME}' device type for generator but found 'cpu'"):
            draw()
    for draw in (
        lambda: torch.rand(T, generator=there),
        lambda: torch.multinomial(p, 1, generator=there),
        lambda: p.clone().uniform_(generator=there),
    ):
        with pytest.raises(RuntimeError, match=f"Expected a 'cpu' device type for generator but found '{NAME}'"):
            draw()


# --- Mixed precision ----------------------------------------------------------------------------------------

AUTOCAST: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], torch.dtype]] = {
    "linear": (lambda x, low: F.linear(x, x), torch.bfloat16),
    "matmul": (lambda x, low: x @ x, torch.bfloat16),
    "einsum": (lambda x, low: torch.einsum("ij,jk->ik", x, x), torch.bfloat16),
    "attention": (lambda x, low: F.scaled_dot_product_attention(x, x, x), torch.bfloat16),
    "softmax": (lambda x, low: low.softmax(-1), torch.float32),
    "layer norm": (lambda x, low: F.layer_norm(low, (K,)), torch.float32),
    "sum": (lambda x, low: low.sum(), torch.float32),
    "exp": (lambda x, low: low.exp(), torch.float32),
    "cross entropy": (lambda x, low: F.cross_entropy(low, long(0, 1, 2, 3)), torch.float32),
    "add": (lambda x, low: low + low, torch.bfloat16),
    "gelu": (lambda x, low: F.gelu(low), torch.bfloat16),
    "cat": (lambda x, low: torch.cat([x, low]), torch.float32),
    "cat of low ones": (lambda x, low: torch.cat([low, low]), torch.bfloat16),
    "float64 stays": (lambda x, low: x.double() @ x.double(), torch.float64),
}


@pytest.mark.parametrize("name", AUTOCAST)
def test_autocast_follows_cudas_list(name):
    run, dtype = AUTOCAST[name]
    x = gpu(K, K)
    with torch.autocast(NAME, dtype=torch.bfloat16):
        assert run(x, x.bfloat16()).dtype == dtype
    with torch.autocast(NAME, dtype=torch.bfloat16, enabled=False):
        assert (x @ x).dtype == torch.float32


def test_autocast_of_the_cpu_does_not_reach_the_device():
    x = gpu(K, K)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert same(x @ x, (x @ x).cpu())
        assert (x @ x).dtype == torch.float32 and (x.cpu() @ x.cpu()).dtype == torch.bfloat16


def test_autocast_trains_in_float32():
    model = Attention(dropout=0.0).to(NAME)
    tokens = torch.randint(S, (B, T), device=NAME)
    with torch.autocast(NAME, dtype=torch.bfloat16):
        logits = model(tokens)
    assert logits.dtype == torch.bfloat16
    F.cross_entropy(logits.flatten(0, 1).float(), tokens.flatten()).backward()
    assert all(p.grad.dtype == torch.float32 and p.grad.isfinite().all() for p in model.parameters())
    exact = model(tokens)
    assert not torch.equal(exact, logits.float()) and torch.allclose(exact, logits.float(), atol=0.1)


# --- Waiting for the device ---------------------------------------------------------------------------------

WAITS: dict[str, tuple[Callable[[Tensor], object], str]] = {
    "item": (lambda x: x.sum().item(), "item"),
    "float": (lambda x: float(x[0]), "item"),
    "bool": (lambda x: bool((x > 0).any()), "item"),
    "if": (lambda x: 1 if x.max() > 0 else 0, "item"),
    "range": (lambda x: range(x.argmax()), "item"),
    "cpu": (lambda x: x.cpu(), "copy to the CPU"),
    "tolist": (lambda x: x.tolist(), "copy to the CPU"),
    "nonzero": (lambda x: x.nonzero(), "nonzero"),
    "where with one argument": (lambda x: torch.where(x > 0), "nonzero"),
    "mask as index": (lambda x: x[x > 0], "mask as index"),
    "values written by mask": (lambda x: x.__setitem__(x > -99, x.clone()), "mask as index"),
    "masked_select": (lambda x: x.masked_select(x > 0), "masked_select"),
    "unique": (lambda x: x.unique(), "unique"),
    "multinomial": (lambda x: torch.multinomial(x.exp(), 1), "multinomial"),
    "equal": (lambda x: torch.equal(x, x.clone()), "equal"),
    "synchronize": (lambda x: torch.pretend_gpu.synchronize(), "synchronize"),  # type: ignore[attr-defined]
}


@pytest.mark.parametrize("name", WAITS)
def test_waiting_is_counted(name, traffic):
    x = gpu(5)
    traffic.syncs.clear()
    WAITS[name][0](x)
    assert traffic.syncs == {WAITS[name][1]: 1} and traffic.waits == 1


def test_arithmetic_waits_for_nothing(traffic):
    x = gpu(5)
    x[x > 0] = 0.0  # one number, written by mask: no list of places is needed
    x[long(1, 2)] = x[long(3, 4)]
    model = nn.Linear(5, 3, device=NAME)
    model(x).sum().backward()
    torch.optim.AdamW(model.parameters()).step()
    assert traffic.waits == 0


def test_uploads_are_counted_and_each_block_counts_for_itself(traffic):
    torch.ones(3).to(NAME)
    long(1, 2)
    torch.ones(3, device=NAME)
    assert traffic.uploads == 2
    with pretend_gpu.switched_on() as inner:
        gpu(()).item()
        assert inner.waits == 1
    assert traffic.waits == 0


@pytest.mark.parametrize("error", [None, KeyError])
def test_switching_off_puts_everything_back(error, monkeypatch):
    monkeypatch.setattr(torch, "Generator", torch._C.Generator)
    torch.__future__.set_swap_module_params_on_conversion(False)
    with contextlib.suppress(KeyError), pretend_gpu.switched_on():
        assert torch.Generator is pretend_gpu.Generator
        assert torch.__future__.get_swap_module_params_on_conversion()
        if error:
            raise error
    assert torch.Generator is torch._C.Generator
    assert not torch.__future__.get_swap_module_params_on_conversion()


def test_installing_twice_changes_nothing():
    libraries = list(pretend_gpu._libraries)
    pretend_gpu.install()
    assert pretend_gpu._libraries == libraries
    assert torch.accelerator.current_accelerator() == torch.device(NAME)
