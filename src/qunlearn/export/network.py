"""An exported file as a torch module, run by ONNX Runtime."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from qunlearn.errors import UserError
from qunlearn.export.contained import check_contained, read_model
from qunlearn.export.extra import needed

KEY = "qunlearn"
FORMAT = 1
EXTERNAL_FOLDER = "session.model_external_initializers_file_folder_path"
NOWHERE = "/dev/null/none"
"""A folder that cannot exist, so that ONNX Runtime reads no external tensors."""


class OnnxNetwork(nn.Module):
    """A file that qunlearn exported, run by ONNX Runtime; takes normalised images.

    Example:
        >>> network = OnnxNetwork.open("model.onnx")    # doctest: +SKIP
        >>> qu.evaluate(network, split)["FA"]           # doctest: +SKIP
    """

    def __init__(self, content: bytes, name: str = "the model"):
        super().__init__()
        self.session = session_of(content, name)
        self.input = self.session.get_inputs()[0]
        self.about = _about(self.session.get_modelmeta().custom_metadata_map, name)

    @classmethod
    def open(cls, path: Path | str) -> OnnxNetwork:
        """Load a network from a file."""
        return cls(read_model(Path(path)), str(path))

    def forward(self, images: Tensor) -> Tensor:
        """Normalised images to logits."""
        if self.about.get("preprocessing"):  # the file expects pixels
            images = self._pixels(images)
        (logits,) = self.session.run(None, {self.input.name: images.numpy()})
        return torch.from_numpy(logits)

    def _pixels(self, images: Tensor) -> Tensor:
        mean, std = (torch.tensor(self.about[k]).view(-1, 1, 1) for k in ("mean", "std"))
        pixels = images * std + mean
        takes_bytes = self.input.type == "tensor(uint8)"
        return (pixels * 255).round().to(torch.uint8) if takes_bytes else pixels


def session_of(content: bytes, name: str) -> Any:
    """An ONNX Runtime session for a file, with as many threads as torch uses."""
    runtime = needed("onnxruntime")
    check_contained(content, name)
    options = runtime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.log_severity_level = 3
    options.add_session_config_entry(
        "session.load_model_format", "ONNX"
    )  # the format that was checked
    options.add_session_config_entry(EXTERNAL_FOLDER, NOWHERE)
    try:
        return runtime.InferenceSession(content, options, ["CPUExecutionProvider"])
    except Exception as error:  # ONNX Runtime has a class for each way in which a file is wrong
        reason = str(error).strip().splitlines()[0].rstrip(".")
        raise UserError(
            f"{name!r} is not an ONNX file that can be run here ({reason}); name one that "
            "`qunlearn export` wrote."
        ) from None


def _about(metadata: dict[str, str], name: str) -> dict[str, Any]:
    try:
        about = json.loads(metadata[KEY])
        known = about["format"] == FORMAT
    except (KeyError, ValueError, TypeError, RecursionError):
        raise UserError(
            f"{name!r} was not exported by qunlearn; name a file that `qunlearn export` wrote."
        ) from None
    if not known:
        raise UserError(
            f"{name!r} has format {about['format']!r}; this version of qunlearn reads {FORMAT}; "
            "use the version that wrote it."
        )
    checked: dict[str, Any] = about
    return checked
