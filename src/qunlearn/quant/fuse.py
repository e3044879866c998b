"""Kernels that a compiler fuses: one pass over memory where plain torch makes ten.

    @kernel(dense=1)
    def rounded(x, scale): ...     # `x` element by element, `scale` shared

    with fused():
        rounded(x, scale)          # compiled; outside of the block, computed as it is written

Compiled or not, the arithmetic is the same. What is compiled sees each tensor as a flat run of
memory, so that one compilation serves all shapes and layouts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch._C._dynamo import guards
from torch._C._functorch import is_functorch_wrapped_tensor

_on: ContextVar[bool] = ContextVar("fused", default=False)


@contextmanager
def fused(on: bool = True) -> Iterator[None]:
    """Within the block, kernels are compiled (or with `on=False`, are not)."""
    token = _on.set(on)
    try:
        yield
    finally:
        _on.reset(token)


def is_fused() -> bool:
    """Whether kernels are compiled here."""
    return _on.get()


@cache
def why_not() -> str | None:
    """Why this machine cannot compile kernels, in a few words; None if it can."""
    try:
        torch.compile(lambda x: x * 2 + 1, dynamic=True)(_over(torch.ones(2, 4), (8,), (1,)))
    except Exception as error:  # whatever is missing: a compiler, its headers, a place to write
        lines = str(error).strip().splitlines() or [type(error).__name__]
        return next((line for line in lines if line.strip()), type(error).__name__)
    return None


WORTH_IT = 1 << 17
"""From how many elements on the compiled kernel is faster, in spite of what its call costs."""

VERSIONS = 64
"""How many versions of a kernel may be compiled."""


class Kernel:
    """A pure function whose first `dense` arguments are alike in shape; the others are shared.

    The first result is as they are. A shared tensor is a single number, or one for each row of the
    dense tensors' first axis.
    """

    def __init__(self, function: Callable[..., Any], dense: int):
        self.plain, self.dense = function, dense
        self.compiled: Callable[..., Any] | None = None

    def __call__(self, *arguments: Any, fused: bool | None = None) -> Any:
        """The function's value; the first (or only) result is laid out as the first argument."""
        dense, shared = arguments[: self.dense], arguments[self.dense :]
        first = dense[0]
        count = first.numel()
        by_row = [a for a in shared if isinstance(a, Tensor) and a.numel() > 1]
        wanted = is_fused() if fused is None else fused
        if not wanted or count < WORTH_IT or not _alike(dense) or not _rows(by_row, first):
            return self.plain(*arguments)
        if self.compiled is None:
            # Types, rows and threads each make a version of their own.
            limit = torch._dynamo.config.recompile_limit
            torch._dynamo.config.recompile_limit = max(limit, VERSIONS)
            self.compiled = torch.compile(self.plain, dynamic=True, fullgraph=True)
        shape = (first.shape[0], count // first.shape[0]) if by_row else (count,)
        flat = [_over(a, shape, (*shape[1:], 1)) for a in dense]
        with torch.no_grad():
            found = self.compiled(*flat, *map(_column, shared))
        if isinstance(found, Tensor):
            return _over(found, first.shape, first.stride())
        return _over(found[0], first.shape, first.stride()), *found[1:]


def kernel(dense: int) -> Callable[[Callable[..., Any]], Kernel]:
    """Make a kernel of a pure function; see the module."""
    return lambda function: Kernel(function, dense)


def _alike(tensors: Sequence[Tensor]) -> bool:
    """Whether the tensors fill their memory, all in the same order."""
    if any(map(is_functorch_wrapped_tensor, tensors)):
        return False  # they have no memory
    first = tensors[0]
    layouts = (torch.contiguous_format, torch.channels_last)[: 2 if first.dim() == 4 else 1]
    return any(all(t.is_contiguous(memory_format=layout) for t in tensors) for layout in layouts)


def _rows(shared: Sequence[Tensor], first: Tensor) -> bool:
    """Whether each of some tensors has one number for each row of `first`."""
    rows = (*first.shape[:1], *[1] * (first.dim() - 1))
    return all(tuple(a.shape) == rows for a in shared)


def _over(x: Tensor, shape: Sequence[int], strides: Sequence[int]) -> Tensor:
    """The memory of `x` with another shape; no view, since the compiler would look at its base."""
    call: Any = guards._reinterpret_tensor  # type: ignore[attr-defined]  # what compiled code calls
    return call(x, tuple(shape), tuple(strides), 0)  # type: ignore[no-any-return]


def _column(value: Any) -> Any:
    """A shared tensor as one number or as a column."""
    if not isinstance(value, Tensor):
        return value
    if not value.dim() and not value.requires_grad and not value._is_view():
        return value
    return value.detach().reshape((-1, 1) if value.numel() > 1 else ()).clone()
