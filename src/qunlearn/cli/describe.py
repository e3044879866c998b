"""`qunlearn describe`."""

from __future__ import annotations

from dataclasses import asdict

from qunlearn.cli.output import print_json, say
from qunlearn.cli.settings import Json, RunFolder, with_settings
from qunlearn.runs.config import DescribeConfig


@with_settings(DescribeConfig)
def command(settings: DescribeConfig, run: RunFolder, json: Json = False) -> None:
    """Show a run's layers, bits, scales and size.

    Example:
      qunlearn describe runs/original
    """
    from qunlearn.quant import describe
    from qunlearn.runs.model_file import load

    description = describe(load(run, factory=settings.model))
    if json:
        layers = [asdict(layer) for layer in description.layers]
        print_json(
            {"layers": layers, "parameters": description.parameters, "bytes": description.bytes}
        )
    else:
        say(description)
