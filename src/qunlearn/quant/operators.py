"""Quantizer kernels as torch operators, so that tracing, export and vmap support them.

    @kernel("round_forward", dense=1, shared=2)
    def rounded(x: Tensor, step: Tensor, zero: Tensor, low: int, high: int) -> Tensor: ...

    with fused():
        rounded(x, step, zero, 0, 15)              # by `round_forward` of kernels.c
    rounded(x, step, zero, 0, 15)                  # by the Python function, in torch

This registers `qunlearn::round_forward`. Within `fused()` it is computed in C on the CPU, and on
other devices by the function compiled with `torch.compile`; this includes `torch.func.vmap`.
`torch.compile` and `torch.export` trace the Python function, which they can fuse and store.

Autograd goes through `torch.autograd.Function` (functional.py). `torch.library.register_autograd`
does not support `torch.func.grad` (pytorch/pytorch#170834) and takes longer per call.
"""

from __future__ import annotations

import ctypes
import warnings
from collections.abc import Callable, Sequence
from inspect import Parameter, Signature
from typing import Any

import torch
from torch import Tensor

from qunlearn.quant.fuse import C_TYPES, first_line, is_fused, library

NARROW = (torch.bfloat16, torch.float16)
"""Types that are computed in 32 bits."""

VERSIONS = 64
"""Limit of recompilations of a kernel by `torch.compile`, on devices other than the CPU."""

Tensors = tuple[Tensor, ...]

OPERATORS: Any = torch.library.Library("qunlearn", "FRAGMENT")  # type: ignore[no-untyped-call]

POSITIONAL = Signature([Parameter("arguments", Parameter.VAR_POSITIONAL)])


def positional(forward: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Store the signature of a `Function.forward` whose arguments are all passed by position.

    `Function.apply` binds the arguments to the signature in every call. A signature that is not
    stored is parsed each time, which takes longer than quantizing a small tensor.
    """
    vars(forward)["__signature__"] = POSITIONAL
    return forward


class Kernel:
    """A pure function of `dense` tensors of one shape, of `shared` tensors, and of numbers.

    A shared tensor holds one number, or one for each index of the dense tensors' first axis. The
    first result has the shape of the dense tensors. Each other result is a sum. `sums` holds, for
    each of them, the index of the shared tensor whose shape it has.
    """

    def __init__(
        self, name: str, plain: Callable[..., Any], dense: int, shared: int, sums: tuple[int, ...]
    ):
        self.name, self.plain = name, plain
        self.dense, self.tensors, self.sums = dense, dense + shared, sums
        self.c_functions: dict[torch.dtype, Any] = {}
        self.compiled_plain: Callable[..., Any] | None = None
        schema = torch.library.infer_schema(plain, mutates_args=())
        OPERATORS.define(name + schema.replace(") ->", ", bool fused) ->"))
        OPERATORS.impl(name, self.on_cpu, "CPU")
        OPERATORS.impl(name, self.on_other_device, "CompositeExplicitAutograd")
        qualified = f"qunlearn::{name}"
        torch.library.register_fake(
            qualified, lambda *arguments: plain(*arguments[:-1]), lib=OPERATORS
        )
        torch.library.register_vmap(qualified, self.vmap, lib=OPERATORS)
        self.operator = getattr(torch.ops.qunlearn, name).default

    def __call__(self, *arguments: Any, fused: bool | None = None) -> Any:
        """The results; the first (or only) one has the memory layout of the first argument."""
        if torch.compiler.is_compiling():
            return self.plain(*arguments)
        return self.operator(*arguments, is_fused() if fused is None else fused)

    def on_cpu(self, *arguments: Any) -> Any:
        """The results for tensors on the CPU; the last argument is `fused`."""
        if not arguments[-1]:
            return self.plain(*arguments[:-1])
        dense, shared = arguments[: self.dense], arguments[self.dense : self.tensors]
        kind = dense[0].dtype
        if kind in NARROW:
            dense = tuple(a.float() for a in dense)
        rows = _rows(dense, shared)
        if rows is None:
            return self.plain(*arguments[:-1])
        results = self.call_c(dense, shared, arguments[self.tensors : -1], rows)
        if kind in NARROW:
            results[0] = results[0].to(kind)
        return tuple(results) if self.sums else results[0]

    def call_c(
        self, dense: Tensors, shared: Tensors, numbers: tuple[float, ...], rows: int
    ) -> list[Tensor]:
        """The results by kernels.c, for contiguous tensors."""
        first = dense[0]
        results = [torch.empty_like(first)]
        for index in self.sums:
            like = shared[index]
            results.append(
                torch.empty_like(like) if like.numel() == rows else first.new_empty(rows)
            )
        arguments: list[float] = [each.data_ptr() for each in (*dense, *results)]
        for each in shared:
            arguments += (each.data_ptr(), int(each.numel() > 1))
        arguments += (*numbers, rows, first.numel() // rows, torch.get_num_threads())
        function: Any = self.c_functions.get(first.dtype)
        if function is None:
            function = library(first.dtype)[self.name]
            pointer, count, number = ctypes.c_void_p, ctypes.c_int64, ctypes.c_double
            function.argtypes = (
                *[pointer] * (len(dense) + len(results)),
                *[pointer, count] * len(shared),
                *[number] * len(numbers),
                *(count, count, ctypes.c_int),
            )
            self.c_functions[first.dtype] = function  # last, since other threads may read it
        if function(*arguments):
            raise MemoryError
        for i, index in enumerate(self.sums, 1):
            if results[i].numel() != shared[index].numel():  # one number for all rows
                results[i] = results[i].sum().reshape(shared[index].shape)
        return results

    def on_other_device(self, *arguments_and_fused: Any) -> Any:
        """The results on devices other than the CPU, by `torch.compile`."""
        *arguments, fused = arguments_and_fused
        if not fused:
            return self.plain(*arguments)
        if self.compiled_plain is None:
            limit = torch._dynamo.config.recompile_limit
            torch._dynamo.config.recompile_limit = max(limit, VERSIONS)
            self.compiled_plain = torch.compile(self.plain, dynamic=True, fullgraph=True)
        try:
            return self.compiled_plain(*arguments)
        except torch._dynamo.exc.TorchDynamoException as error:
            warnings.warn(
                "torch.compile failed on a quantizer kernel. It runs not compiled, with the same "
                "results but more slowly: " + first_line(error),
                stacklevel=2,
            )
            self.compiled_plain = self.plain
            return self.plain(*arguments)

    def vmap(self, info: Any, axes: Sequence[int | None], *arguments: Any) -> tuple[Any, Any]:
        """The batching rule for `torch.func.vmap`: the batch axis comes first.

        Shared tensors are expanded to the batch, so that sums are computed per example.
        """
        dims = max(
            each.dim() - (axis is not None)
            for each, axis in zip(arguments[: self.tensors], axes, strict=False)
        )
        tensors, shapes = [], []
        for each, axis in zip(arguments[: self.tensors], axes, strict=False):
            batched = (
                each.expand(info.batch_size, *each.shape) if axis is None else each.movedim(axis, 0)
            )
            shapes.append(batched.shape)
            filled = (*batched.shape[:1], *[1] * (dims + 1 - batched.dim()), *batched.shape[1:])
            tensors.append(batched.reshape(filled))
        shared = [each.contiguous() for each in tensors[self.dense :]]
        results = self.operator(*tensors[: self.dense], *shared, *arguments[self.tensors :])
        if not self.sums:
            return results, 0
        first, *sums = results
        sum_shapes = [shapes[self.dense + index] for index in self.sums]
        return (first, *map(Tensor.reshape, sums, sum_shapes)), (0,) * len(results)


def kernel(
    name: str, dense: int, shared: int, sums: tuple[int, ...] = ()
) -> Callable[[Callable[..., Any]], Kernel]:
    """Make a kernel of a pure function and of the C function `name`; see the module."""
    return lambda function: Kernel(name, function, dense, shared, sums)


def _rows(dense: Tensors, shared: Tensors) -> int | None:
    """The number of rows with separate shared numbers; None if C does not support the tensors."""
    first, rows = dense[0], 1
    kind, axes = first.dtype, first.dim()
    contiguous = first.is_contiguous()
    layout = torch.contiguous_format if contiguous or axes != 4 else torch.channels_last
    for each in dense:
        if each.dtype is not kind or each.shape != first.shape:
            return None
        if not each.is_contiguous(memory_format=layout):
            return None
    for each in shared:
        if each.dtype is not kind or each.dim() > axes:
            return None
        if each.numel() != 1:
            rows = first.shape[0]
            if each.shape != (rows, *[1] * (axes - 1)) or not each.is_contiguous():
                return None
    return rows if kind in C_TYPES and first.numel() else None
