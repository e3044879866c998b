"""Kernels in C: one pass over memory where plain torch makes ten.

    @kernel("round_forward", dense=1, shared=2)
    def rounded(x, step, zero, low, high): ...     # `x` element by element, step and zero shared

    with fused():
        rounded(x, step, zero, 0, 15)              # by `round_forward` of kernels.c
    rounded(x, step, zero, 0, 15)                  # as it is written, in torch

The arithmetic is the same either way. kernels.c is compiled when it is first wanted, which takes a
fraction of a second, and anew in each process: nothing is kept that could be another machine's. On
other devices than the processor `torch.compile` makes the kernels from what is written in torch.
"""

from __future__ import annotations

import ctypes
import os
import shlex
import shutil
import subprocess
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

SOURCE = Path(__file__).with_name("kernels.c")

FLAGS = (
    *("-std=c11", "-O3", "-fPIC", "-fno-math-errno", "-fno-trapping-math"),
    "-ffp-contract=off",  # a product and a sum are rounded each by itself, as in torch
)
WAYS = (
    ("-march=native", "-mprefer-vector-width=512", "-fopenmp"),
    ("-march=native", "-fopenmp"),
    ("-march=native", "-fopenmp-simd"),
    ("-fopenmp-simd",),
)
"""Flags of the best code, and of such as other compilers make, too; the last use one thread."""

REALS = {torch.float32: "float", torch.float64: "double"}
NARROW = (torch.bfloat16, torch.float16)
"""Computed in 32 bits."""

PLAIN = (Tensor, nn.Parameter)
"""The kinds of tensors that are nothing but memory."""

Tensors = tuple[Tensor, ...]

VERSIONS = 64
"""How many versions of a kernel `torch.compile` may make for another device."""

_on: ContextVar[bool] = ContextVar("fused", default=False)


@contextmanager
def fused(on: bool = True) -> Iterator[None]:
    """Within the block, kernels are compiled (or with `on=False`, are not); see `why_not`."""
    token = _on.set(on)
    try:
        yield
    finally:
        _on.reset(token)


def is_fused() -> bool:
    """Whether kernels are compiled here."""
    return _on.get()


class Kernel:
    """A pure function of `dense` tensors that are alike in shape, of `shared` ones, and of numbers.

    A shared tensor is a single number, or one for each row of the dense tensors' first axis. The
    first result is as the dense tensors are, and each of the others (`sums` of them) one number, or
    one for each row.
    """

    def __init__(self, name: str, function: Callable[..., Any], dense: int, shared: int, sums: int):
        self.name, self.plain = name, function
        self.dense, self.tensors, self.sums = dense, dense + shared, sums
        self.compiled: dict[torch.dtype, Any] = {}
        self.by_torch: Callable[..., Any] | None = None

    def __call__(self, *arguments: Any, fused: bool | None = None) -> Any:
        """The function's value; the first (or only) result is laid out as the first argument."""
        if not (is_fused() if fused is None else fused) or _watched():
            return self.plain(*arguments)
        for each in arguments[: self.tensors]:
            if not each.is_cpu:
                return self.elsewhere(*arguments)
            if type(each) not in PLAIN or not each.data_ptr():
                return self.plain(*arguments)
        dense, shared = arguments[: self.dense], arguments[self.dense : self.tensors]
        kind = dense[0].dtype
        if kind in NARROW:
            dense = tuple(a.float() for a in dense)
        rows = _rows(dense, shared)
        if rows is None:
            return self.plain(*arguments)
        found = self.by_c(dense, shared, arguments[self.tensors :], rows)
        if kind in NARROW:
            found[0] = found[0].to(kind)
        return tuple(found) if self.sums else found[0]

    def by_c(
        self, dense: Tensors, shared: Tensors, numbers: tuple[float, ...], rows: int
    ) -> list[Tensor]:
        """The same by kernels.c, of runs of memory."""
        first = dense[0]
        results = [torch.empty_like(first)]
        if self.sums:
            shape = () if rows == 1 else (rows, *[1] * (first.dim() - 1))
            results += [first.new_empty(shape) for _ in range(self.sums)]
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
        return results

    def elsewhere(self, *arguments: Any) -> Any:
        """The same on another device than the processor, by `torch.compile`."""
        if any(each.is_meta for each in arguments[: self.tensors]):
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
                + _first_line(error),
                stacklevel=2,
            )
            self.by_torch = self.plain
            return self.plain(*arguments)


def kernel(
    name: str, dense: int, shared: int, sums: int = 0
) -> Callable[[Callable[..., Any]], Kernel]:
    """Make a kernel of a pure function, with that of the name in kernels.c; see the module."""
    return lambda function: Kernel(name, function, dense, shared, sums)


@cache
def why_not() -> str | None:
    """Why this machine cannot compile kernels, in a few words; None if it can."""
    try:
        library(torch.float32)
    except RuntimeError as error:
        return _first_line(error)
    return None


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return next(iter(lines), type(error).__name__).rstrip(".") + "."


@cache
def library(kind: torch.dtype) -> ctypes.CDLL:
    """kernels.c, compiled for this machine and for numbers of a kind."""
    named = os.environ.get("CC") or "cc"
    try:
        words = shlex.split(named)
    except ValueError:
        words = [named]
    if not words or shutil.which(words[0]) is None:
        raise RuntimeError(f"there is no C compiler {named!r}; install one, or name it in CC.")
    said = ""
    for way in WAYS:
        try:
            with tempfile.TemporaryDirectory(prefix="qunlearn-") as folder:
                return ctypes.CDLL(str(_build(words, (*way, f"-DREAL={REALS[kind]}"), folder)))
        except subprocess.CalledProcessError as error:
            lines = error.stderr.splitlines()
            said = next((line for line in lines if "error" in line.lower()), str(error))
        except OSError as error:
            said = str(error)
    raise RuntimeError(f"{named} cannot compile or load {SOURCE.name}: {said}")


def _build(compiler: Sequence[str], flags: Sequence[str], folder: str) -> Path:
    # In two steps, so that the threads of OpenMP are torch's: linked by itself, the library would
    # bring its own, and the two would wait for each other's processors.
    compiled, linked = Path(folder, "kernels.o"), Path(folder, "kernels.so")
    for command in (
        [*compiler, *FLAGS, *flags, "-c", str(SOURCE), "-o", str(compiled)],
        [*compiler, "-shared", str(compiled), "-o", str(linked), "-lm"],
    ):
        subprocess.run(command, check=True, capture_output=True, text=True, errors="replace")
    return linked


def _rows(dense: Tensors, shared: Tensors) -> int | None:
    """How many rows with numbers of their own the tensors have; None if C cannot take them."""
    first, rows = dense[0], 1
    kind, axes = first.dtype, first.dim()
    by_rows = first.is_contiguous()
    layout = torch.contiguous_format if by_rows or axes != 4 else torch.channels_last
    for each in dense:
        if each.dtype is not kind or each.shape != first.shape or each.is_neg():
            return None
        if not each.is_contiguous(memory_format=layout):
            return None
    for each in shared:
        if each.dtype is not kind or each.dim() > axes or each.is_neg():
            return None
        if each.numel() != 1:
            rows = first.shape[0]
            if each.shape != (rows, *[1] * (axes - 1)) or not each.is_contiguous():
                return None
    return rows if kind in REALS and first.numel() else None


def _watched() -> bool:
    """Whether somebody follows what torch computes, who would not see what C does."""
    c: Any = torch._C
    ops: Any = torch._ops
    return bool(
        c._len_torch_dispatch_stack()
        or ops._len_torch_dispatch_stack_pre_dispatch()
        or c._are_functorch_transforms_active()
        or c._get_tracing_state()
        or torch.compiler.is_compiling()
    )
