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
from torch import Tensor, nn
from torch._C._dynamo import guards
from torch._C._functorch import is_functorch_wrapped_tensor

PLAIN = (Tensor, nn.Parameter)
"""The kinds of tensors that are nothing but memory."""

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
        _, made = _compile(lambda x: x * 2 + 1, (torch.ones(8),), ())
        made([torch.ones(9)])
    except Exception as error:  # whatever is missing: a compiler, its headers, a place to write
        lines = str(error).strip().splitlines() or [type(error).__name__]
        return next((line for line in lines if line.strip()), type(error).__name__)
    return None


WORTH_IT = 1 << 8
"""From how many elements on the compiled kernel is faster, in spite of what its call costs."""

VERSIONS = 64
"""How many versions of a kernel `torch.compile` may make."""

Holds = Callable[[tuple[int, ...]], bool]
Made = Callable[[list[Tensor]], Any]


class Kernel:
    """A pure function whose first `dense` arguments are alike in shape; the others are shared.

    Tensors come first, then numbers. The first result is as the dense tensors are. A shared tensor
    is a single number, or one for each row of the dense tensors' first axis.
    """

    def __init__(self, function: Callable[..., Any], dense: int):
        self.plain, self.dense = function, dense
        self.versions: dict[Any, list[tuple[Holds, Made]]] = {}
        self.by_shape: dict[Any, Made] = {}
        self.elsewhere: Callable[..., Any] | None = None

    def __call__(self, *arguments: Any, fused: bool | None = None) -> Any:
        """The function's value; the first (or only) result is laid out as the first argument."""
        if not (is_fused() if fused is None else fused) or torch.compiler.is_compiling():
            return self.plain(*arguments)
        tensors = [a for a in arguments if isinstance(a, Tensor)]
        dense, shared = tensors[: self.dense], tensors[self.dense :]
        first = dense[0]
        count = first.numel()
        by_row = [a for a in shared if a.numel() > 1]
        if count < max(WORTH_IT, 2) or not _alike(dense) or not _rows(by_row, first):
            return self.plain(*arguments)
        shape = (first.shape[0], count // first.shape[0]) if by_row else (count,)
        if min(shape) < 2:  # sizes of 1 are compiled otherwise
            return self.plain(*arguments)
        flat = [_over(a, shape, (*shape[1:], 1)) for a in dense] + [*map(_column, shared)]
        with torch.no_grad():
            found = self.compiled(shape, flat, arguments[len(tensors) :])
        found[0] = _over(found[0], first.shape, first.stride())
        return found if len(found) > 1 else found[0]

    def compiled(self, shape: tuple[int, ...], flat: list[Tensor], numbers: Any) -> list[Any]:
        """What the compiled function gives for tensors of this shape."""
        if flat[0].device.type != "cpu":
            if self.elsewhere is None:
                limit = torch._dynamo.config.recompile_limit
                torch._dynamo.config.recompile_limit = max(limit, VERSIONS)
                self.elsewhere = torch.compile(self.plain, dynamic=True, fullgraph=True)
            return _listed(self.elsewhere(*flat, *numbers))
        kinds = (*((a.dtype, a.dim()) for a in flat), *numbers, torch.get_num_threads())
        made = self.by_shape.get((shape, kinds)) or self.version(shape, kinds, flat, numbers)
        self.by_shape[shape, kinds] = made
        return list(made(flat))

    def version(self, shape: tuple[int, ...], kinds: Any, flat: list[Tensor], numbers: Any) -> Made:
        """The compiled function for tensors of this shape, made if there is none."""
        versions = self.versions.setdefault(kinds, [])
        for holds, made in versions:
            if holds(shape):
                return made
        holds, made = _compile(self.plain, flat, numbers)
        if not holds(shape):
            return lambda flat: _listed(self.plain(*flat, *numbers))
        versions.append((holds, made))
        return made


def kernel(dense: int) -> Callable[[Callable[..., Any]], Kernel]:
    """Make a kernel of a pure function; see the module."""
    return lambda function: Kernel(function, dense)


def _compile(
    function: Callable[..., Any], tensors: Sequence[Tensor], numbers: Sequence[Any]
) -> tuple[Holds, Made]:
    """What torch's compiler makes of a function of flat tensors, and for which sizes it is right.

    `torch.compile` makes the same, and spends 40 microseconds around each call of it, mostly to
    find out whether the tensors are such as it was made for. A kernel knows that.
    """
    from torch._inductor.compile_fx import compile_fx_inner
    from torch._inductor.decomposition import select_decomp_table
    from torch.fx.experimental.proxy_tensor import make_fx

    def whole(*tensors: Tensor) -> Any:
        return _listed(function(*tensors, *numbers))

    # Two sizes that are the same would be taken for one.
    shape = tensors[0].shape
    square = len(shape) == 2 and shape[0] == shape[1]
    like = [
        a.new_zeros(shape[0], shape[1] + 1) if square and a.shape == shape else a for a in tensors
    ]
    written = torch.func.functionalize(whole, remove="mutations_and_views")
    graph = make_fx(written, select_decomp_table(), tracing_mode="symbolic")(*like)
    inputs = [node.meta["val"] for node in graph.graph.nodes if node.op == "placeholder"]
    with torch._inductor.config.patch(size_asserts=False):  # it is called with nothing else
        made = compile_fx_inner(graph, inputs)
    sizes = [size.node.expr for size in inputs[0].shape]
    guards = [guard.expr for guard in inputs[0].fake_mode.shape_env.guards]

    def holds(shape: tuple[int, ...]) -> bool:
        return all(guard.subs(zip(sizes, shape, strict=True)) == True for guard in guards)  # noqa: E712

    return holds, made


def _listed(found: Any) -> list[Any]:
    return [found] if isinstance(found, Tensor) else list(found)


def _alike(tensors: Sequence[Tensor]) -> bool:
    """Whether the tensors fill their memory, all in the same order."""
    if any(type(t) not in PLAIN or is_functorch_wrapped_tensor(t) or t.is_meta for t in tensors):
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


def _column(value: Tensor) -> Tensor:
    """A shared tensor as one number or as a column."""
    if not value.dim() and not value.requires_grad and not value._is_view():
        return value
    return value.detach().reshape((-1, 1) if value.numel() > 1 else ()).clone()
