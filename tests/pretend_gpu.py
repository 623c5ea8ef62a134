"""A GPU for machines that have none: the device "pretend_gpu" computes on the CPU and is as strict as CUDA.

    pretend_gpu.install()                          # once per process, before its first backward pass
    with pretend_gpu.switched_on() as traffic:
        model = Model().to("pretend_gpu")
        model(x.to("pretend_gpu")).sum().backward()   # raises if two devices meet anywhere, as on CUDA
    traffic.syncs                                  # how often the CPU waited for the device, and at what

How it works. torch keeps a dispatch key, PrivateUse1, free for backends that it does not know. A tensor of
this device is an ordinary `torch.Tensor` with that key; its storage says "pretend_gpu", but the memory is
that of a CPU storage, its *twin*. Every operation on such tensors arrives in `_run`, which (1) refuses what
CUDA refuses, (2) calls the CPU's kernel on CPU tensors over the same memory, (3) gives the results the
device's name. So the numbers are the CPU's to the last bit, and everything above the kernels (autograd,
modules, optimizers, views, checkpoints) is torch's own code on torch's own path for accelerators.

As on CUDA: tensors of two devices do not mix, except that a CPU tensor with no axes may take part in
elementwise arithmetic, and CPU indices may index device tensors (not the reverse); copies are explicit;
`.numpy()` is a TypeError, `.tolist()` and `.item()` wait; a random draw refuses a generator of the other
device; autocast follows CUDA's list of operations.

Not as on CUDA: the device shares the CPU's default generator, so that one seed gives the same numbers on
both; it has one index, no streams and no memory limit; attention takes torch's math kernel, so compare with
the CPU's under `sdpa_kernel(SDPBackend.MATH)`; an index out of range raises at once; a copy to the CPU cannot
be `non_blocking`; there is no kernel for the cells of `nn.GRU` and `nn.LSTM` (the course writes its own).
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from numbers import Number
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

NAME = "pretend_gpu"
CPU = torch.device("cpu")

Op = Any  # torch._ops.OpOverload, which has no public name
aten = torch.ops.aten
_C: Any = torch._C  # whose type stubs do not know half of what a backend needs


def on_device(x: Any) -> bool:
    """Whether a tensor or storage lives on the pretend GPU."""
    return x.device.type == NAME


# --- Traffic: what makes a real GPU wait --------------------------------------------------------------------


@dataclass
class Traffic:
    """What passed between the CPU and the device: each sync is a moment in which a real GPU would run dry."""

    syncs: Counter[str] = field(default_factory=Counter)  # the CPU waited for a value, by kind
    uploads: int = 0  # copies from the CPU to the device

    @property
    def waits(self) -> int:
        """How many times the CPU waited, whatever the kind."""
        return self.syncs.total()


_traffic = Traffic()

# Operations whose result, or the size of it, the CPU must know before it can go on. (`multinomial` checks its
# probabilities; whether CUDA waits for the answer depends on torch's release, so it counts.)
WAITING = {
    aten._local_scalar_dense.default: "item",
    aten.equal.default: "equal",
    aten.nonzero.default: "nonzero",
    aten.masked_select.default: "masked_select",
    aten.multinomial.default: "multinomial",
    aten.bincount.default: "bincount",
    aten._unique2.default: "unique",
    aten.unique_dim.default: "unique",
    aten.unique_consecutive.default: "unique",
    aten.repeat_interleave.Tensor: "repeat_interleave",
}


def _count(op: Op, args: tuple[Any, ...]) -> None:
    if op in COPIES:
        source, target = args[:2]
        if on_device(source) and not on_device(target):
            _traffic.syncs["copy to the CPU"] += 1
        elif on_device(target) and not on_device(source):
            _traffic.uploads += 1
    elif op in WAITING:
        _traffic.syncs[WAITING[op]] += 1
    elif op in INDEXING and _needs_places(args):
        _traffic.syncs["mask as index"] += 1


def _needs_places(args: tuple[Any, ...]) -> bool:
    """Whether an index is a mask, whose places only the device knows. (Writing one number needs no list.)"""
    masks = any(index.dtype == torch.bool and on_device(index) for index in _tensors(args[1]))
    return masks and (len(args) < 3 or args[2].numel() != 1)


# --- What may meet what -------------------------------------------------------------------------------------

COPIES = {aten._copy_from.default, aten._copy_from_and_resize.default, aten.copy_.default}
INDEXING = {
    aten.index.Tensor,
    aten.index.Tensor_out,
    aten.index_put.default,
    aten.index_put_.default,
    aten._index_put_impl_.default,
    aten._unsafe_index.Tensor,
}
MASKED_FILL = {aten.masked_fill, aten.masked_fill_}
# Beside the operations that torch itself tags as elementwise.
TAKES_CPU_NUMBERS = {aten.fill.Tensor, aten.fill_.Tensor, aten.floor_divide.default}


def _tensors(values: Iterable[Any]) -> Iterator[Tensor]:
    """All tensors among the arguments of an operation, lists of tensors included."""
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _tensors(value)


def _written(op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[Tensor]:
    """The arguments that the operation writes to: self of `add_`, out of `add(out=)`."""
    for place, argument in enumerate(op._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            yield from _tensors([args[place] if place < len(args) else kwargs.get(argument.name)])


def _takes_numbers(op: Op) -> bool:
    """Whether a CPU tensor without axes may stand beside device tensors: the kernel gets it as a number."""
    return torch.Tag.pointwise in op.tags or op in TAKES_CPU_NUMBERS or op.overloadpacket in MASKED_FILL


def _strangers(op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Tensor]:
    """The CPU tensors that CUDA would not accept here."""
    if op in INDEXING:
        _refuse_device_indices(args)
        return [value for value in _tensors(args[2:3]) if not on_device(value) and value.dim()]
    here = [t for t in _tensors((args, tuple(kwargs.values()))) if not on_device(t)]
    if not here or op in COPIES:
        return []
    if not _takes_numbers(op):
        return here
    places = [*_written(op, args, kwargs), *(args[1:2] if op.overloadpacket in MASKED_FILL else ())]
    return [t for t in here if t.dim() or any(t is place for place in places)]


def _refuse_device_indices(args: tuple[Any, ...]) -> None:
    """A CPU tensor cannot be indexed from the device: its kernel would have to look there."""
    if not on_device(args[0]) and any(on_device(index) for index in _tensors(args[1])):
        raise RuntimeError("indices should be either on cpu or on the same device as the indexed tensor (cpu)")


def _refuse(op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raise where CUDA would: two devices in one operation, or a generator from elsewhere."""
    if strangers := _strangers(op, args, kwargs):
        shapes = ", ".join(str(tuple(t.shape)) for t in strangers)
        raise RuntimeError(
            f"Expected all tensors to be on the same device, but found at least two devices, "
            f"{NAME}:0 and cpu! ({op} got CPU tensors of shape {shapes})"
        )
    generator = kwargs.get("generator")
    if generator is not None and generator._cdata not in _generators:
        raise RuntimeError(f"Expected a '{NAME}' device type for generator but found '{generator.device.type}'")


# --- Memory: a storage of the device and its twin on the CPU ------------------------------------------------

_CPU_KEY = _C.DispatchKeySet(_C.DispatchKey.CPU)
_CPU_AUTOCAST = _C.DispatchKeySet(_C.DispatchKey.AutocastCPU)


def _twin(storage: torch.UntypedStorage) -> torch.UntypedStorage:
    """The CPU storage that holds a device storage's bytes."""
    return storage.twin  # type: ignore[attr-defined]


def _storage(twin: torch.UntypedStorage) -> torch.UntypedStorage:
    """A device storage over the bytes of a CPU storage, which it keeps alive."""
    storage = _C._construct_storage_from_data_pointer(twin.data_ptr(), torch.device(NAME, 0), twin.nbytes())
    storage.twin = twin
    return storage


def _new_storage(cls: type, *args: Any, device: Any = "cpu", **kwargs: Any) -> torch.UntypedStorage:
    """`torch.UntypedStorage(...)`, which `torch.load` and `deepcopy` call, for this device too.

    torch would look for the device's allocator, which cannot be written in Python, and crash.
    """
    if torch.device(device).type == NAME:
        return _storage(torch.UntypedStorage(*args, **kwargs))
    return _C.StorageBase.__new__(cls, *args, device=device, **kwargs)


def _on_cpu(x: Tensor) -> Tensor:
    """A CPU tensor over the memory of a device tensor."""
    twin = _twin(x.untyped_storage())
    below = torch.empty(0, dtype=x.dtype, device=CPU).set_(twin, x.storage_offset(), x.size(), x.stride())
    return _with_bits_of(x, below)


def _with_bits_of(x: Tensor, y: Tensor) -> Tensor:
    """y, read as x is: `conj()` and `-z.imag` of complex numbers are only bits until somebody computes."""
    y = y.conj() if x.is_conj() else y
    return torch._neg_view(y) if x.is_neg() else y


def _place(x: Tensor, storage: torch.UntypedStorage, like: Tensor) -> Tensor:
    """Let the device tensor x look at `storage`, with the shape, strides and offset of the CPU tensor `like`.

    The CPU's kernel for `set_` does this for any device: it only sets fields.
    """
    set_ = aten.set_.source_Storage_storage_offset
    return set_.redispatch(_CPU_KEY, x, storage, like.storage_offset(), like.size(), like.stride())


class _Call:
    """One operation: arguments go down to the CPU, results come up, and what was one memory stays one."""

    def __init__(self) -> None:
        # By the id of what the kernel sees: that, and what the caller passed.
        self.passed: dict[int, tuple[Tensor, Tensor]] = {}
        # By the CPU storage: a device tensor that looks at it.
        self.shared: dict[int, Tensor] = {}

    def down(self, x: Any) -> Any:
        """What the CPU's kernel gets for an argument."""
        if isinstance(x, Tensor):
            below = _on_cpu(x) if on_device(x) else x
            self.passed[id(below)] = (below, x)
            if below is not x:
                self.shared[below.untyped_storage()._cdata] = x
            return below
        if isinstance(x, (list, tuple)):
            return type(x)(self.down(item) for item in x)
        if isinstance(x, torch.UntypedStorage) and on_device(x):
            return _twin(x)
        return CPU if isinstance(x, torch.device) else x

    def up(self, x: Any) -> Any:
        """What the caller gets for a result: the tensor it passed, a view of one, or a new device tensor."""
        if isinstance(x, (list, tuple)):
            return type(x)(self.up(item) for item in x)
        if not isinstance(x, Tensor):
            return x
        if id(x) in self.passed:
            return self.passed[id(x)][1]
        base = self.shared.get(x.untyped_storage()._cdata)
        if base is None:
            return _place(_empty(x.dtype), _storage(x.untyped_storage()), x)
        # A view of an ordinary tensor is an ordinary one, even if it is taken in inference mode.
        with torch.inference_mode(base.is_inference()):
            return _with_bits_of(x, _place(_empty(x.dtype), base.untyped_storage(), x))

    def follow(self) -> None:
        """Give device tensors the shape and memory that the kernel gave their stand-ins: t_, resize_, out."""
        for below, x in self.passed.values():
            if below is x:
                continue
            storage, twin = x.untyped_storage(), below.untyped_storage()
            if (storage.data_ptr(), storage.nbytes()) != (twin.data_ptr(), twin.nbytes()):
                _place(x, _storage(twin), below)
            elif (x.shape, x.stride()) != (below.shape, below.stride()):
                _place(x, storage, below)


def _empty(dtype: torch.dtype) -> Tensor:
    return _C._acc.create_empty_tensor((0,), dtype)


def _copy_from(source: Tensor, target: Tensor, non_blocking: bool = False) -> Tensor:
    return target.copy_(source)


def _copy_from_and_resize(source: Tensor, target: Tensor) -> Tensor:
    return target.resize_(source.shape).copy_(source)


# How torch asks a backend to copy; the CPU has no kernels for these, it copies with `copy_`.
REPLACED: dict[Op, Any] = {
    aten._copy_from.default: _copy_from,
    aten._copy_from_and_resize.default: _copy_from_and_resize,
}


@cache
def _tensor_places(op: Op) -> tuple[int, ...]:
    """Which of the arguments are tensors, by the operation's signature."""
    return tuple(i for i, a in enumerate(op._schema.arguments) if isinstance(a.type, torch.TensorType))


def _below(op: Op, args: tuple[Any, ...]) -> Callable[..., Any]:
    """What to call on the CPU. The 3 of x % 3 comes to `remainder.Tensor` as a number: let torch choose."""
    if op in REPLACED:
        return REPLACED[op]
    numbers = any(i < len(args) and isinstance(args[i], Number) for i in _tensor_places(op))
    return op.overloadpacket if numbers else op


def _run(op: Op, *args: Any, **kwargs: Any) -> Any:
    """Every operation of the device."""
    _refuse(op, args, kwargs)
    _count(op, args)
    call = _Call()
    # `torch.autocast("cpu")` means CPU tensors: it must not reach the device through its kernels.
    with _C._ExcludeDispatchKeyGuard(_CPU_AUTOCAST):
        options = {name: call.down(value) for name, value in kwargs.items()}
        result = _below(op, args)(*call.down(args), **options)
    if op._schema.is_mutable:
        call.follow()
    return call.up(result)


# --- Mixed precision: the casts of CUDA's autocast, as torch lists them for every backend -------------------

LOW_PRECISION = (
    "addmm addmv addr matmul einsum mm mv linear addbmm baddbmm bmm prelu conv1d conv2d scaled_dot_product_attention"
)
FLOAT32 = (
    "exp expm1 log log10 log2 log1p reciprocal rsqrt pow.Tensor_Scalar pow.Tensor_Tensor pow.Scalar softplus "
    "layer_norm native_layer_norm rms_norm nll_loss kl_div l1_loss smooth_l1_loss mse_loss "
    "binary_cross_entropy_with_logits cosine_similarity dist cdist logsumexp softmax.int log_softmax.int "
    "cumsum cumprod prod prod.dim_int sum sum.dim_IntList linalg_vector_norm"
)
WIDEST = "addcdiv addcmul atan2 bilinear dot index_put tensordot scatter_add cat stack"


def _low(tensors: list[Tensor]) -> torch.dtype:
    return torch.get_autocast_dtype(NAME)


def _float32(tensors: list[Tensor]) -> torch.dtype:
    return torch.float32


def _widest(tensors: list[Tensor]) -> torch.dtype:
    """float32 as soon as one of them is."""
    return torch.float32 if any(t.dtype == torch.float32 for t in tensors) else _low(tensors)


def _cast_and_run(op: Op, choose: Callable[[list[Tensor]], torch.dtype], *args: Any, **kwargs: Any) -> Any:
    """Cast the device's floating-point tensors (not float64), then run the operation without autocast."""

    def cast(x: Any) -> Any:
        if isinstance(x, (list, tuple)):
            return type(x)(cast(item) for item in x)
        return x.to(dtype) if isinstance(x, Tensor) and _castable(x) else x

    key = _C.DispatchKey.AutocastPrivateUse1
    with _C._ExcludeDispatchKeyGuard(_C.DispatchKeySet(key)):
        dtype = choose([t for t in _tensors((args, tuple(kwargs.values()))) if _castable(t)])
        return op(*cast(args), **{name: cast(value) for name, value in kwargs.items()})


def _castable(x: Tensor) -> bool:
    return on_device(x) and x.is_floating_point() and x.dtype != torch.float64


# --- The device as torch sees it ----------------------------------------------------------------------------


class _Backend:
    """`torch.pretend_gpu`: the functions that torch expects of a device's module."""

    def is_initialized(self) -> bool:
        return True

    def is_available(self) -> bool:
        return True

    def current_device(self) -> int:
        return 0

    def device_count(self) -> int:
        return 1

    def synchronize(self, device: Any = None) -> None:
        _traffic.syncs["synchronize"] += 1

    def manual_seed_all(self, seed: int) -> None:
        """Nothing to do: the device draws from the CPU's generator, which torch has seeded already."""

    def get_rng_state(self, device: Any = None) -> Tensor:
        return torch.get_rng_state()

    def set_rng_state(self, state: Tensor, device: Any = None) -> None:
        torch.set_rng_state(state)

    @contextmanager
    def device(self, device: Any) -> Iterator[None]:
        """There is one device, so choosing it changes nothing."""
        yield

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.bfloat16, torch.float16]

    def _is_in_bad_fork(self) -> bool:
        return False


_generators: set[int] = set()  # those of the device, by address: kernels get them wrapped anew


class _AnyGenerator(type(_C.Generator)):  # type: ignore[misc]
    """Generators made before the device was switched on are generators too."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, _C.Generator)


class Generator(_C.Generator, metaclass=_AnyGenerator):
    """`torch.Generator` that can also be made for the pretend GPU; inside, it is one of the CPU."""

    def __new__(cls, device: str | torch.device = "cpu") -> Generator:
        device = torch.device(device)
        if device.type != NAME:
            return super().__new__(cls, device)
        made = super().__new__(cls, CPU)
        _generators.add(made._cdata)
        weakref.finalize(made, _generators.discard, made._cdata)
        return made

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return torch.device(NAME, 0) if self._cdata in _generators else super().device


class _RefuseDeviceGenerators(TorchFunctionMode):
    """Inside, a generator of the device does not draw on the CPU. (That one never comes to `_run`.)"""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        generator = kwargs.get("generator")
        if generator is not None and generator._cdata in _generators:
            tensor = next(_tensors((args, tuple(kwargs.values()))), None)
            device = torch.device(
                kwargs.get("device") or (torch.get_default_device() if tensor is None else tensor.device)
            )
            if device.type != NAME:
                raise RuntimeError(f"Expected a '{device.type}' device type for generator but found '{NAME}'")
        return func(*args, **kwargs)


_libraries: list[torch.library.Library] = []


def _needs_kernel(name: str) -> bool:
    """Whether the CPU has a kernel of its own for what other devices compose from simpler operations.

    Composed, `native_layer_norm` rounds differently: taking the CPU's kernel keeps the last bit.
    """
    has = _C._dispatch_has_kernel_for_dispatch_key
    composed = ("CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional")
    return name.startswith("aten::") and has(name, "CPU") and any(has(name, key) for key in composed)


def _op(name: str) -> Op:
    """The operation called "softmax.int" or "aten::linear"."""
    packet, _, overload = name.removeprefix("aten::").partition(".")
    return getattr(getattr(aten, packet), overload or "default")


def install() -> None:
    """Add the device to torch, for the rest of the process.

    Before the first backward pass of the process: that is when autograd starts one thread for each device it
    knows, and it never looks again. A test module does it on import: pytest imports all before it runs any.
    """
    if _libraries:
        return
    _setup_privateuseone_for_python_backend(NAME, backend_module=_Backend())
    torch.UntypedStorage.__new__ = _new_storage  # type: ignore[method-assign, assignment]
    everything = torch.library.Library("_", "IMPL")
    everything.fallback(_run, "PrivateUse1")
    everything.fallback(torch.library.fallthrough_kernel, "AutocastPrivateUse1")  # no cast unless listed
    named = torch.library.Library("aten", "IMPL")
    for name in filter(_needs_kernel, _C._dispatch_get_all_op_names()):
        named.impl(_op(name), partial(_run, _op(name)), "PrivateUse1")
    for op in REPLACED:  # copying is what resolves lazy conjugates and negatives, so it must see them
        named.impl(op, torch.library.fallthrough_kernel, "Conjugate")
        named.impl(op, torch.library.fallthrough_kernel, "Negative")
    for names, choose in ((LOW_PRECISION, _low), (FLOAT32, _float32), (WIDEST, _widest)):
        for name in names.split():
            named.impl(_op(name), partial(_cast_and_run, _op(name), choose), "AutocastPrivateUse1")
    _libraries.extend([everything, named])


@contextmanager
def switched_on() -> Iterator[Traffic]:
    """Inside the block, generators can be made on the device, and modules move to it as they move to CUDA.

    Gives a fresh count of the traffic. On CUDA `module.to(...)` keeps the Parameter objects, and with them
    ties and what an optimizer holds; for a backend that torch does not know it must be asked to.
    """
    global _traffic
    outer = (_traffic, torch.Generator, torch.__future__.get_swap_module_params_on_conversion())
    _traffic = Traffic()
    torch.Generator = Generator  # type: ignore[misc, assignment]
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        with _RefuseDeviceGenerators():
            yield _traffic
    finally:
        _traffic, torch.Generator = outer[:2]  # type: ignore[misc]
        torch.__future__.set_swap_module_params_on_conversion(outer[2])
