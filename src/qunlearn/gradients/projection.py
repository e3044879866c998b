"""Gradient orthogonal projection: take from the forget gradient what would move the retain loss."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from qunlearn.errors import UserError, unknown
from qunlearn.gradients.groups import Granularity, group_names

When = Literal["always", "conflict"]


@dataclass(frozen=True)
class LayerConflict:
    """How the two gradients met in each group: one number for each of `names`."""

    names: tuple[str, ...]
    cosine: Tensor
    forget_norm: Tensor
    retain_norm: Tensor
    projected_norm: Tensor


class GradientProjector:
    r"""Combines a forget and a retain gradient, layer by layer, into the one that is stepped on.

    For each group of parameters, $\hat g_f = g_f - \alpha \frac{\langle g_f, g_r\rangle}
    {\|g_r\|^2} g_r$, unchanged where $g_r$ is zero; `project` writes $\hat g_f + \beta g_r$ to
    `.grad`. It works with any optimizer. Both blocks may be entered several times before `project`,
    to accumulate gradients; clip after it. With data parallelism each backward pass averages its
    gradient over the processes first, so that the projection is that of the whole batch. It keeps
    one extra copy of the gradients.

    Args:
        model: Whose parameters; those that are frozen are left alone.
        alpha: How much of the conflict is taken out: 1 all of it, 0 none.
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
            raise UserError(f"alpha = {alpha!r} is not possible: choose 0 to 1.")
        if granularity not in get_args(Granularity):
            raise unknown("granularity", granularity, get_args(Granularity))
        if when not in get_args(When):
            raise unknown("setting of when:", when, get_args(When))
        members = group_names(model, granularity)
        _refuse_shards(members)
        self.alpha, self.beta, self.when = alpha, beta, when
        self.parameters = [parameter for _, parameter in members]
        self.names = tuple(dict.fromkeys(name for name, _ in members))
        number = {name: i for i, name in enumerate(self.names)}
        device = self.parameters[0].device if self.parameters else torch.device("cpu")
        self._group = torch.tensor([number[name] for name, _ in members], device=device)
        self._forget: list[Tensor | None] = [None] * len(members)

    @contextmanager
    def forget(self) -> Iterator[None]:
        """Within this block, backward passes add to the forget gradient."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    @contextmanager
    def retain(self) -> Iterator[None]:
        """Within this block, backward passes add to the retain gradient: `.grad` itself."""
        yield

    @torch.no_grad()
    def project(self) -> None:
        """Write the combined gradient to `.grad`, and start anew."""
        self._combine()

    @torch.no_grad()
    def project_and_measure(self) -> LayerConflict:
        """`project`, and say how the two gradients met in each group."""
        return self._combine(measure=True)  # type: ignore[return-value]

    def _swap(self) -> None:
        for i, parameter in enumerate(self.parameters):
            self._forget[i], parameter.grad = parameter.grad, self._forget[i]

    def _combine(self, measure: bool = False) -> LayerConflict | None:
        both = [
            i
            for i, parameter in enumerate(self.parameters)
            if self._forget[i] is not None and parameter.grad is not None
        ]
        forget = [self._forget[i] for i in both]
        retain = [self.parameters[i].grad for i in both]
        sums = _inner_products(forget, retain, self._group[both], len(self.names))  # type: ignore[arg-type]
        dot, forget_square, retain_square = sums
        share = torch.where(retain_square > 0, dot / retain_square, 0.0)
        taken = self.alpha * share
        if self.when == "conflict":
            taken = taken.clamp_max(0)
        if both:
            factors = list((self.beta - taken)[self._group[both]].unbind())
            torch._foreach_mul_(retain, factors)  # type: ignore[arg-type]
            torch._foreach_add_(retain, forget)  # type: ignore[arg-type]
        for i, parameter in enumerate(self.parameters):
            alone = self._forget[i]
            if parameter.grad is None and alone is not None:
                parameter.grad = alone
            elif alone is None and parameter.grad is not None:
                parameter.grad.mul_(self.beta)
            self._forget[i] = None
        if not measure:
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


def _inner_products(
    forget: list[Tensor], retain: list[Tensor], group: Tensor, groups: int
) -> tuple[Tensor, Tensor, Tensor]:
    """⟨f, r⟩, ⟨f, f⟩ and ⟨r, r⟩ for each group."""
    if not forget:
        nothing = torch.zeros(groups, device=group.device)
        return nothing, nothing, nothing
    dots = torch.stack([(f * r).sum() for f, r in zip(forget, retain, strict=True)])
    squares = [torch.stack(torch._foreach_norm(each)).square() for each in (forget, retain)]
    totals = [torch.zeros(groups, dtype=d.dtype, device=d.device) for d in (dots, *squares)]
    for total, values in zip(totals, (dots, *squares), strict=True):
        total.index_add_(0, group, values)
    return totals[0], totals[1], totals[2]


def _refuse_shards(members: list[tuple[str, nn.Parameter]]) -> None:
    """A projection needs whole gradients."""
    for name, parameter in members:
        kinds = {kind.__name__ for kind in type(parameter).__mro__} | {
            type(parameter.data).__name__
        }
        if kinds & {"DTensor", "FlatParameter"} or hasattr(parameter, "_sharded_size"):
            raise UserError(
                f"The parameters of {name or 'the model'!r} are sharded (FSDP), and a projection "
                "needs whole gradients; use plain data parallelism (DDP)."
            )
