"""`qunlearn export`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from qunlearn.cli.output import print_json, say
from qunlearn.cli.settings import Json, RunFolder, with_settings
from qunlearn.export.config import ExportConfig

OutFile = Annotated[Path | None, typer.Option(help="The new file.  \\[required]")]
Overwrite = Annotated[
    bool, typer.Option("--overwrite", metavar="", help="Replace --out if it is a file.")
]


@with_settings(ExportConfig)
def command(
    settings: ExportConfig,
    run: RunFolder,
    out: OutFile = None,
    overwrite: Overwrite = False,
    json: Json = False,
) -> None:
    """Write a run's network as an ONNX file, and check that it computes the same.

    Standard operators only, any number of images at a time. The target compact stores weights at
    their bits; fast makes ONNX Runtime convolve in integers. The file is run in ONNX Runtime on
    test samples and compared with the network; if it is not the same, nothing is kept.

    Examples:
      qunlearn export runs/forgotten --out model.onnx

      qunlearn export runs/forgotten --target fast --out fast.onnx

      qunlearn export runs/again --out model.onnx --overwrite

      qunlearn evaluate runs/forgotten --onnx model.onnx
    """
    from qunlearn.export import export_run
    from qunlearn.report.words import export_words

    assert out is not None
    exported = export_run(
        run,
        out,
        data=settings.data,
        factory=settings.model,
        target=settings.target,
        preprocess=settings.preprocess,
        most_samples=settings.most_samples,
        least_agreement=settings.least_agreement,
        opset=settings.opset,
        overwrite=overwrite,
    )
    if json:
        print_json({"run": str(run), **asdict(exported)})
    else:
        say(export_words(exported))
