"""Gradient projection: remove from the forget gradient its component along the retain gradient."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from qunlearn.errors import UserError, unknown
from qunlearn.gradients.groups import Granularity, group_names
from qunlearn.quant import preserve_running_stats

When = Literal["always", "conflict"]


@dataclass(frozen=True)
class LayerConflict:
    """Cosine and norms of the two gradients: one value for each group in `names`."""

    names: tuple[str, ...]
    cosine: Tensor
    forget_norm: Tensor
    retain_norm: Tensor
    projected_norm: Tensor


class GradientProjector:
    r"""Combines a forget and a retain gradient, layer by layer, into the optimizer's gradient.

    For each group of parameters, $\hat g_f = g_f - \alpha \frac{\langle g_f, g_r\rangle}
    {\|g_r\|^2} g_r$, unchanged where $g_r$ is zero; `project` writes $\hat g_f + \beta g_r$ to
    `.grad`. It works with any optimizer; call `zero_grad` before each step. Both blocks may be
    entered several times before `project`, to accumulate gradients; clip after it. With data
    parallelism each backward pass first averages its gradient over the processes, so the projection
    is that of the global batch. Memory: one extra copy of the gradients.

    Args:
        model: The model; frozen parameters are left alone.
        alpha: The fraction of the conflict that is removed: 1 all of it, 0 none.
        beta: The weight of the retain gradient.
        granularity: "layer" (a layer's weight and bias with its quantizers' parameters), "tensor",
            or "global".
        when: "always", or only in "conflict": where the two gradients point apart.

    Example:
        >>> import qunlearn as qu
        >>> _ = torch.manual_seed(0)
        >>> model = nn.Linear(4, 3)
        >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        >>> projector = GradientProjector(model)
        >>> with projector.forget():
        ...     model(torch.randn(8, 4)).square().mean().backward()
        >>> with projector.retain():
        ...     model(torch.randn(8, 4)).logsumexp(1).mean().backward()
        >>> projector.project()
        >>> optimizer.step()
    """

    def __init__(
        self,
        model: nn.Module,
        alpha: float = 1.0,
        beta: float = 1.0,
        granularity: Granularity = "layer",
        when: When = "always",
    ):
        if not 0 <= alpha <= 1:
            raise UserError(f"alpha = {alpha!r} is invalid: choose 0 to 1.")
        if not 0 <= beta < math.inf:
            raise UserError(f"beta = {beta!r} is invalid: choose a finite number of 0 or more.")
        if granularity not in get_args(Granularity):
            raise unknown("granularity", granularity, get_args(Granularity))
        if when not in get_args(When):
            raise unknown("setting of when:", when, get_args(When))
        members = group_names(model, granularity)
        _refuse_shards(model, members)
        self.model, self.alpha, self.beta, self.when = model, alpha, beta, when
        self.parameters = [parameter for _, parameter in members]
        self.names = tuple(dict.fromkeys(name for name, _ in members))
        number = {name: i for i, name in enumerate(self.names)}
        device = self.parameters[0].device if self.parameters else torch.device("cpu")
        self._group = torch.tensor([number[name] for name, _ in members], device=device)
        self._forget: list[Tensor | None] = [None] * len(members)
        self._inside: str | None = None
        self._entered: set[str] = set()
        self._written: list[tuple[Tensor | None, int]] = []

    @contextmanager
    def forget(self) -> Iterator[None]:
        """Within this block, backward passes add to the forget gradient.

        Put the forward pass inside, too: BatchNorm then normalises by the batch but does not update
        its running averages, which would otherwise include the samples to forget.
        """
        self._enter("forget")
        # Copies, because data parallelism may keep gradients in buckets that it overwrites.
        retained = [None if p.grad is None else p.grad.clone() for p in self.parameters]
        for parameter, gradient in zip(self.parameters, self._forget, strict=True):
            parameter.grad = gradient
        try:
            with preserve_running_stats(self.model):
                yield
        finally:
            for i, parameter in enumerate(self.parameters):
                gradient = parameter.grad
                if gradient is not self._forget[i]:
                    self._forget[i] = None if gradient is None else gradient.clone()
                parameter.grad = retained[i]
            self._inside = None

    @contextmanager
    def retain(self) -> Iterator[None]:
        """Within this block, backward passes add to the retain gradient: `.grad` itself."""
        self._enter("retain")
        try:
            yield
        finally:
            self._inside = None

    @torch.no_grad()
    def project(self) -> None:
        """Write the combined gradient to `.grad`, and reset."""
        self._combine()

    @torch.no_grad()
    def project_and_measure(self) -> LayerConflict:
        """As `project`; returns the conflict of the two gradients in each group."""
        return self._combine(measure=True)  # type: ignore[return-value]

    def _enter(self, block: str) -> None:
        if self._inside:
            raise RuntimeError(
                f"{block}() was entered inside {self._inside}(); leave that block first."
            )
        if not self._entered and any(
            written is not None and p.grad is written and written._version == version
            for p, (written, version) in zip(self.parameters, self._written, strict=False)
        ):
            raise RuntimeError(
                "The gradients of the last step were not cleared; call optimizer.zero_grad() first."
            )
        self._inside = block
        self._entered.add(block)

    def _combine(self, measure: bool = False) -> LayerConflict | None:
        if self._inside or self._entered != {"forget", "retain"}:
            where = (
                f"within {self._inside}()" if self._inside else "before both blocks were entered"
            )
            raise RuntimeError(f"project() {where}; call it after forget() and retain().")
        gradients = [p.grad for p in self.parameters]
        if self.parameters:  # the model may have been moved since
            self._group = self._group.to(self.parameters[0].device)
        dot, retain_square = self._dots(gradients), self._squares(gradients)
        # What only a measurement asks for, while both gradients are there.
        forget_square = self._squares(self._forget) if measure else None
        share = torch.where(retain_square > 0, dot / retain_square, 0.0)
        taken = self.alpha * share
        if self.when == "conflict":
            taken = taken.clamp_max(0)
        # A gradient that is missing counts as zero.
        retained = [i for i, gradient in enumerate(gradients) if gradient is not None]
        if retained:
            kept = [gradients[i] for i in retained]
            factors = (self.beta - taken)[self._group[retained]]
            torch._foreach_mul_(kept, list(factors.unbind()))  # type: ignore[arg-type]
        both = [i for i in retained if self._forget[i] is not None]
        if both:
            forgotten = [self._forget[i] for i in both]
            torch._foreach_add_([gradients[i] for i in both], forgotten)  # type: ignore[misc, arg-type]
        for i, parameter in enumerate(self.parameters):
            if parameter.grad is None:
                parameter.grad = self._forget[i]
            self._forget[i] = None
        self._entered = set()
        self._written = [
            (p.grad, -1 if p.grad is None else p.grad._version) for p in self.parameters
        ]
        if forget_square is None:
            return None
        norms = forget_square.sqrt(), retain_square.sqrt()
        length = norms[0] * norms[1]
        projected = forget_square - 2 * taken * dot + taken**2 * retain_square
        return LayerConflict(
            self.names,
            torch.where(length > 0, dot / length, 0.0),
            *norms,
            projected.clamp_min(0).sqrt(),
        )

    def _dots(self, retain: list[Tensor | None]) -> Tensor:
        """⟨f, r⟩ for each group."""
        pairs = list(zip(self._forget, retain, strict=True))
        dots = {
            i: (_wide(f) * _wide(r)).sum()
            for i, (f, r) in enumerate(pairs)
            if f is not None and r is not None
        }
        return self._summed(dots)

    def _squares(self, gradients: list[Tensor | None]) -> Tensor:
        """⟨g, g⟩ for each group."""
        present = {i: _wide(g) for i, g in enumerate(gradients) if g is not None}
        norms = torch._foreach_norm(list(present.values())) if present else []
        return self._summed({i: n.square() for i, n in zip(present, norms, strict=True)})

    def _summed(self, values: dict[int, Tensor]) -> Tensor:
        """The sum over the members of each group."""
        if not values:
            return torch.zeros(len(self.names), device=self._group.device)
        each = torch.stack(list(values.values()))
        total = torch.zeros(len(self.names), dtype=each.dtype, device=each.device)
        return total.index_add_(0, self._group[list(values)], each)


def _wide(gradient: Tensor) -> Tensor:
    """At least float32: squares of half-precision numbers overflow or underflow."""
    return gradient.float() if gradient.dtype in (torch.float16, torch.bfloat16) else gradient


def _refuse_shards(model: nn.Module, members: list[tuple[str, nn.Parameter]]) -> None:
    """Raise if parameters are sharded: a projection needs complete gradients."""
    sharded = [
        name
        for name, parameter in members
        if "DTensor" in {kind.__name__ for kind in type(parameter.data).__mro__}
    ]
    sharded += [
        name
        for name, module in model.named_modules()
        if type(module).__name__ == "FullyShardedDataParallel"
    ]
    if sharded:
        raise UserError(
            f"The parameters of {sharded[0] or 'the model'!r} are sharded (FSDP), and a projection "
            "needs complete gradients; use plain data parallelism (DDP)."
        )
