"""Kernels that a compiler fuses: one pass over memory where plain torch makes ten.

    @kernel(dense=1)
    def rounded(x, scale): ...     # `x` element by element, `scale` shared

    with fused():
        rounded(x, scale)          # compiled; outside of the block, computed as it is written

Compiled or not, the arithmetic is the same. What is compiled sees each tensor as a flat run of
memory, so that one compilation serves all shapes and layouts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch._C._dynamo import guards
from torch._C._functorch import is_functorch_wrapped_tensor

_over: Any = guards._reinterpret_tensor  # type: ignore[attr-defined]
"""The memory of a tensor with another shape, as compiled code makes it; no view, since the compiler
would look at its base."""

PLAIN = (Tensor, nn.Parameter)
"""The kinds of tensors that are nothing but memory."""

WORTH_IT = 1 << 8
"""From how many elements on the compiled kernel is faster, in spite of what its call costs."""

VERSIONS = 64
"""How many versions of a kernel `torch.compile` may make."""

Shape = tuple[int, ...]
Holds = Callable[[Shape], bool]
Made = Callable[[list[Tensor]], Sequence[Any]]
Call = Callable[[list[Tensor]], Any]

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


class Kernel:
    """A pure function whose first `dense` arguments are alike in shape; the others are shared.

    Tensors come first, then numbers. The first result is as the dense tensors are. A shared tensor
    is a single number, or one for each row of the dense tensors' first axis.
    """

    def __init__(self, function: Callable[..., Any], dense: int):
        self.plain, self.dense = function, dense
        self.versions: dict[Any, tuple[Holds, Made]] = {}
        self.calls: dict[Any, Call] = {}
        self.elsewhere: Callable[..., Any] | None = None

    def __call__(self, *arguments: Any, fused: bool | None = None) -> Any:
        """The function's value; the first (or only) result is laid out as the first argument."""
        if not (is_fused() if fused is None else fused):
            return self.plain(*arguments)
        tensors = [a for a in arguments if isinstance(a, Tensor)]
        if _watched() or not _plain(tensors):
            return self.plain(*arguments)
        numbers = arguments[len(tensors) :]
        alike = [(a.shape, a.stride(), a.dtype) for a in tensors]
        key = (*alike, tensors[0].device, numbers, torch.get_num_threads())
        call = self.calls.get(key)
        if call is None:
            call = self.calls[key] = self.call_for(tensors, numbers)
        return call(tensors)

    def call_for(self, tensors: list[Tensor], numbers: tuple[Any, ...]) -> Call:
        """How to call what is compiled with tensors of these shapes and layouts."""
        count, first = self.dense, tensors[0]
        shape = _flat_shape(tensors[:count], tensors[count:])
        if shape is None:
            return lambda tensors: self.plain(*tensors, *numbers)
        strides, outer = (*shape[1:], 1), (tuple(first.shape), first.stride())

        def flattened(tensors: list[Tensor]) -> list[Tensor]:
            dense = [_over(a, shape, strides, 0) for a in tensors[:count]]
            return dense + [a if a.dim() == 0 else _column(a) for a in tensors[count:]]

        made = self.version(shape, flattened(tensors), numbers)

        def call(tensors: list[Tensor]) -> Any:
            with torch.no_grad():
                found = made(flattened(tensors))
            result = _over(found[0], *outer, 0)
            return (result, *found[1:]) if len(found) > 1 else result

        return call

    def version(self, shape: Shape, flat: list[Tensor], numbers: tuple[Any, ...]) -> Made:
        """The compiled function for flat tensors of this shape, made if there is none."""
        from torch._dynamo.convert_frame import compile_lock

        if flat[0].device.type != "cpu":
            return lambda flat: self.by_torch(flat, numbers)
        kinds = (*((a.dtype, a.dim()) for a in flat), *numbers, torch.get_num_threads())
        example = _example(shape)
        with compile_lock:  # the compiler is not made for several threads
            if (example, kinds) not in self.versions:
                self.versions[example, kinds] = _compile(self.plain, flat, numbers, example)
        holds, made = self.versions[example, kinds]
        return made if holds(shape) else lambda flat: _several(self.plain(*flat, *numbers))

    def by_torch(self, flat: list[Tensor], numbers: tuple[Any, ...]) -> Sequence[Any]:
        """The same by `torch.compile`, which knows other devices than the processor, too."""
        if self.elsewhere is None:
            limit = torch._dynamo.config.recompile_limit
            torch._dynamo.config.recompile_limit = max(limit, VERSIONS)
            self.elsewhere = torch.compile(self.plain, dynamic=True, fullgraph=True)
        # Copies of what is shared: the compiler would look at what they are views of.
        flat = [*flat[: self.dense], *(a.detach().clone() for a in flat[self.dense :])]
        return _several(self.elsewhere(*flat, *numbers))


def kernel(dense: int) -> Callable[[Callable[..., Any]], Kernel]:
    """Make a kernel of a pure function; see the module."""
    return lambda function: Kernel(function, dense)


@cache
def why_not() -> str | None:
    """Why this machine cannot compile kernels, in a few words; None if it can."""
    try:
        tried = Kernel(lambda x, s, rows: (x * s - rows, (x * rows).sum_to_size(rows.shape)), 1)
        for size in ((32, 40), (48, 32)):
            given = torch.rand(size), torch.tensor(2.0), torch.rand(size[0], 1)
            for ours, expected in zip(tried(*given, fused=True), tried.plain(*given), strict=True):
                torch.testing.assert_close(ours, expected)
    except Exception as error:  # whatever is missing: a compiler, its headers, a place to write
        lines = str(error).strip().splitlines() or [type(error).__name__]
        return next((line for line in lines if line.strip()), type(error).__name__)
    return None


def _compile(
    function: Callable[..., Any], tensors: Sequence[Tensor], numbers: Sequence[Any], example: Shape
) -> tuple[Holds, Made]:
    """What torch's compiler makes of a function of flat tensors, and for which sizes it is right.

    `torch.compile` makes the same, and finds out at each call whether the tensors are such as it
    was made for. A kernel knows that; docs/performance.md has what it gains.

    Args:
        function: Takes the tensors, then the numbers.
        tensors: Tensors such as it will be given.
        numbers: Become part of the code.
        example: The sizes that the code is made for; others work if it so happens.
    """
    from torch._inductor.compile_fx import compile_fx_inner
    from torch._inductor.decomposition import select_decomp_table
    from torch.fx.experimental.proxy_tensor import make_fx

    def whole(*tensors: Tensor) -> Sequence[Any]:
        return _several(function(*tensors, *numbers))

    shape = tensors[0].shape
    sizes = [
        () if not a.dim() else example if a.shape == shape else (example[0], 1) for a in tensors
    ]
    like = [a.new_empty(size) for a, size in zip(tensors, sizes, strict=True)]
    written = torch.func.functionalize(whole, remove="mutations_and_views")
    graph = make_fx(written, select_decomp_table(), tracing_mode="symbolic")(*like)
    inputs = [node.meta["val"] for node in graph.graph.nodes if node.op == "placeholder"]
    # It is called with nothing else; and its cache would not tell small examples from large ones.
    with torch._inductor.config.patch(size_asserts=False, fx_graph_cache=False):
        made = compile_fx_inner(graph, inputs)
    names = [size.node.expr for size in inputs[0].shape]
    guards = [guard.expr for guard in inputs[0].fake_mode.shape_env.guards]

    def holds(shape: Shape) -> bool:
        return all(guard.subs(zip(names, shape, strict=True)) == True for guard in guards)  # noqa: E712

    return holds, made


def _example(shape: Shape) -> Shape:
    """The sizes that stand for a shape when it is compiled.

    The compiler looks at sizes to decide on threads and on the order of sums. What was computed
    first must not decide that, or a run that goes on would not be the same to the last bit. All
    sizes here are prime: equal ones would be taken for one.
    """
    long, large = shape[-1] > 4096, math.prod(shape) > 1 << 15
    if len(shape) == 1:
        return (1048573,) if large else (8209,) if long else (1009,)
    return (1021 if large else 31, 8209 if long else 1031 if large else 37)


def _several(found: Any) -> Sequence[Any]:
    return (found,) if isinstance(found, Tensor) else found


def _flat_shape(dense: Sequence[Tensor], shared: Sequence[Tensor]) -> Shape | None:
    """The tensors' shape as a run of memory, or as rows of it; None if they are not such."""
    first = dense[0]
    count = first.numel()
    if count < max(WORTH_IT, 2):
        return None
    layouts = (torch.contiguous_format, torch.channels_last)[: 2 if first.dim() == 4 else 1]
    if not any(all(t.is_contiguous(memory_format=each) for t in dense) for each in layouts):
        return None
    if all(a.numel() == 1 and a.dim() <= first.dim() for a in shared):
        return (count,)
    rows = (*first.shape[:1], *[1] * (first.dim() - 1))
    if any(a.numel() > 1 and tuple(a.shape) != rows for a in shared):
        return None
    shape = (first.shape[0], count // first.shape[0])
    return shape if min(shape) > 1 else None  # sizes of 1 are compiled otherwise


def _watched() -> bool:
    """Whether somebody writes down what torch computes: compiled code would not show up there."""
    c: Any = torch._C
    return bool(
        torch.compiler.is_compiling() or c._len_torch_dispatch_stack() or c._get_tracing_state()
    )


def _plain(tensors: Sequence[Tensor]) -> bool:
    """Whether the tensors are nothing but memory, all on one device."""
    device = tensors[0].device
    return device.type != "meta" and all(
        type(t) in PLAIN
        and t.device == device
        and not is_functorch_wrapped_tensor(t)
        and not t.is_neg()
        for t in tensors
    )


def _column(value: Tensor) -> Tensor:
    """A shared tensor as one number or as a column."""
    if value.numel() == 1:
        return value.reshape(()) if value.dim() else value
    return value.reshape(-1, 1).contiguous()
