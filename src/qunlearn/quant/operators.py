"""Kernels as operators of torch, so that whatever follows what torch computes follows them, too.

    @kernel("round_forward", dense=1, shared=2)
    def rounded(x: Tensor, step: Tensor, zero: Tensor, low: int, high: int) -> Tensor: ...

    with fused():
        rounded(x, step, zero, 0, 15)              # by `round_forward` of kernels.c
    rounded(x, step, zero, 0, 15)                  # as it is written, in torch

This registers `qunlearn::round_forward`. On the processor it is computed in C, on other devices by
what `torch.compile` makes of the function, in both cases within `fused()` only, also under
`torch.func.vmap`. `torch.compile` and `torch.export` see the function's own operations, which they
can fuse and store.
"""

from __future__ import annotations

import ctypes
import warnings
from collections.abc import Callable, Sequence
from inspect import Parameter, Signature
from typing import Any

import torch
from torch import Tensor

from qunlearn.quant.fuse import REALS, first_line, is_fused, library

NARROW = (torch.bfloat16, torch.float16)
"""Computed in 32 bits."""

VERSIONS = 64
"""How many versions of a kernel `torch.compile` may make for another device."""

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
    """A pure function of `dense` tensors that are alike in shape, of `shared` ones, and of numbers.

    A shared tensor is a single number, or one for each row of the dense tensors' first axis. The
    first result is as the dense tensors are. Each of the others is a sum in the shape of the shared
    tensor that `sums` names by its place.
    """

    def __init__(
        self, name: str, plain: Callable[..., Any], dense: int, shared: int, sums: tuple[int, ...]
    ):
        self.name, self.plain = name, plain
        self.dense, self.tensors, self.sums = dense, dense + shared, sums
        self.compiled: dict[torch.dtype, Any] = {}
        self.by_torch: Callable[..., Any] | None = None
        schema = torch.library.infer_schema(plain, mutates_args=())
        OPERATORS.define(name + schema.replace(") ->", ", bool fused) ->"))
        OPERATORS.impl(name, self.on_processor, "CPU")
        OPERATORS.impl(name, self.elsewhere, "CompositeExplicitAutograd")
        qualified = f"qunlearn::{name}"
        torch.library.register_fake(qualified, lambda *given: plain(*given[:-1]), lib=OPERATORS)
        torch.library.register_vmap(qualified, self.mapped, lib=OPERATORS)
        self.operator = getattr(torch.ops.qunlearn, name).default

    def __call__(self, *arguments: Any, fused: bool | None = None) -> Any:
        """The function's value; the first (or only) result is laid out as the first argument."""
        if torch.compiler.is_compiling():
            return self.plain(*arguments)
        return self.operator(*arguments, is_fused() if fused is None else fused)

    def on_processor(self, *given: Any) -> Any:
        """The value for tensors in the processor's memory."""
        if not given[-1]:
            return self.plain(*given[:-1])
        dense, shared = given[: self.dense], given[self.dense : self.tensors]
        kind = dense[0].dtype
        if kind in NARROW:
            dense = tuple(a.float() for a in dense)
        rows = _rows(dense, shared)
        if rows is None:
            return self.plain(*given[:-1])
        found = self.by_c(dense, shared, given[self.tensors : -1], rows)
        if kind in NARROW:
            found[0] = found[0].to(kind)
        return tuple(found) if self.sums else found[0]

    def by_c(
        self, dense: Tensors, shared: Tensors, numbers: tuple[float, ...], rows: int
    ) -> list[Tensor]:
        """The same by kernels.c, of runs of memory."""
        first = dense[0]
        results = [torch.empty_like(first)]
        for which in self.sums:
            like = shared[which]
            results.append(
                torch.empty_like(like) if like.numel() == rows else first.new_empty(rows)
            )
        given: list[float] = [each.data_ptr() for each in (*dense, *results)]
        for each in shared:
            given += (each.data_ptr(), int(each.numel() > 1))
        given += (*numbers, rows, first.numel() // rows, torch.get_num_threads())
        function: Any = self.compiled.get(first.dtype)
        if function is None:
            function = library(first.dtype)[self.name]
            place, count, number = ctypes.c_void_p, ctypes.c_int64, ctypes.c_double
            function.argtypes = (
                *[place] * (len(dense) + len(results)),
                *[place, count] * len(shared),
                *[number] * len(numbers),
                *(count, count, ctypes.c_int),
            )
            self.compiled[first.dtype] = function  # now that other threads may use it
        if function(*given):
            raise MemoryError
        for i, which in enumerate(self.sums, 1):
            if results[i].numel() != shared[which].numel():  # shared by all rows
                results[i] = results[i].sum().reshape(shared[which].shape)
        return results

    def elsewhere(self, *given: Any) -> Any:
        """The value on another device than the processor, by `torch.compile`."""
        *arguments, fused = given
        if not fused:
            return self.plain(*arguments)
        if self.by_torch is None:
            limit = torch._dynamo.config.recompile_limit
            torch._dynamo.config.recompile_limit = max(limit, VERSIONS)
            self.by_torch = torch.compile(self.plain, dynamic=True, fullgraph=True)
        try:
            return self.by_torch(*arguments)
        except torch._dynamo.exc.TorchDynamoException as error:
            warnings.warn(
                "A quantizer is not compiled, which costs time but changes nothing else: "
                + first_line(error),
                stacklevel=2,
            )
            self.by_torch = self.plain
            return self.plain(*arguments)

    def mapped(self, info: Any, axes: Sequence[int | None], *given: Any) -> tuple[Any, Any]:
        """The values for many tensors at once, under `torch.func.vmap`: one more axis in front.

        Shared tensors get one number for each of the many, so that sums are made one by one.
        """
        most = max(
            each.dim() - (axis is not None)
            for each, axis in zip(given[: self.tensors], axes, strict=False)
        )
        tensors, shapes = [], []
        for each, axis in zip(given[: self.tensors], axes, strict=False):
            many = (
                each.expand(info.batch_size, *each.shape) if axis is None else each.movedim(axis, 0)
            )
            shapes.append(many.shape)
            filled = (*many.shape[:1], *[1] * (most + 1 - many.dim()), *many.shape[1:])
            tensors.append(many.reshape(filled))
        shared = [each.contiguous() for each in tensors[self.dense :]]
        found = self.operator(*tensors[: self.dense], *shared, *given[self.tensors :])
        if not self.sums:
            return found, 0
        first, *sums = found
        own = [shapes[self.dense + place] for place in self.sums]
        return (first, *map(Tensor.reshape, sums, own)), (0,) * len(found)


def kernel(
    name: str, dense: int, shared: int, sums: tuple[int, ...] = ()
) -> Callable[[Callable[..., Any]], Kernel]:
    """Make a kernel of a pure function, with that of the name in kernels.c; see the module."""
    return lambda function: Kernel(name, function, dense, shared, sums)


def _rows(dense: Tensors, shared: Tensors) -> int | None:
    """How many rows with numbers of their own the tensors have; None if C cannot take them."""
    first, rows = dense[0], 1
    kind, axes = first.dtype, first.dim()
    by_rows = first.is_contiguous()
    layout = torch.contiguous_format if by_rows or axes != 4 else torch.channels_last
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
    return rows if kind in REALS and first.numel() else None
