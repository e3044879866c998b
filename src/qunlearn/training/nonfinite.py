"""Numbers that go wrong: stopped at the step where they do, with the layer named."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from qunlearn.errors import Failure
from qunlearn.quant import collapsed


def refuse_nonfinite(
    model: nn.Module,
    scalars: Mapping[str, Tensor],
    again: Callable[[], object],
    where: str,
    *,
    scaled: bool = False,
) -> None:
    """Raise if what a step reports, or a gradient that it has left, is NaN or infinite.

    Args:
        model: Whose gradients.
        scalars: What the step reports.
        again: Makes the step's gradients once more, to see which layer begins it.
        where: The epoch and the step, in words.
        scaled: Whether gradients are scaled for 16 bits: then they may be infinite now and then.
    """
    gradients = {} if scaled else _gradients(model)
    sizes = list(torch._foreach_norm(list(gradients.values()))) if gradients else []
    # One number for all, because each that is looked at stalls the device.
    if torch.isfinite(torch.stack([v.float() for v in (*scalars.values(), *sizes)]).sum()):
        return
    wrong = next((n for n, v in scalars.items() if not torch.isfinite(v)), None)
    what = f"{wrong} became {float(scalars[wrong])}" if wrong else "gradient became NaN or infinite"
    first = first_layer(model, again)
    raise Failure(
        f"The {what} in {where}{f', first in {first}' if first else ''}; begin anew with a lower "
        "learning rate (lr) or warm-up. The epochs before are in the history, and the last good "
        "checkpoint is kept."
    )


def first_layer(model: nn.Module, again: Callable[[], object]) -> str:
    """The layer whose output is the first that is not finite; else the last such gradient's."""
    found: list[str] = []

    def look(name: str) -> Callable[[nn.Module, Any, Any], None]:
        def hook(module: nn.Module, inputs: Any, output: Any) -> None:
            if isinstance(output, Tensor) and not found and not torch.isfinite(output).all():
                found.append(name)

        return hook

    handles = [m.register_forward_hook(look(name)) for name, m in model.named_modules() if name]
    try:
        again()
    finally:
        for handle in handles:
            handle.remove()
    if found:
        return f"the output of {found[0]}"
    # Backwards, the layer nearest to the output comes first.
    bad = [name for name, g in _gradients(model).items() if not torch.isfinite(g).all()]
    return f"the gradient of {bad[-1]}" if bad else ""


def report_collapse(model: nn.Module) -> dict[str, list[str]]:
    """For an epoch's row, and as a warning: the quantizers whose scale has come down to zero."""
    names = collapsed(model)
    if not names:
        return {}
    warnings.warn(
        f"The scale of {', '.join(names)} has come down to zero and is held at the smallest that "
        "can be computed with; lower the learning rate (lr).",
        stacklevel=2,
    )
    return {"collapsed": names}


def _gradients(model: nn.Module) -> dict[str, Tensor]:
    return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
