"""Pickled checkpoints: never opened, but recognised, with the line that converts them."""

from __future__ import annotations

import shlex
from pathlib import Path

from qunlearn.errors import UserError

ENDINGS = (".pt", ".pth", ".bin", ".ckpt", ".pkl")
STARTS = (b"PK\x03\x04", b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")
"""How the files begin that PyTorch writes, by zip and before that by pickle alone."""

PROGRAM = (
    "import sys; from safetensors.torch import save_file; from torch import is_tensor, load; "
    "d = load(sys.argv[1], map_location='cpu', weights_only=True); "
    "d = next((d[k] for k in ('state_dict', 'model_state_dict', 'model') "
    "if isinstance(d.get(k), dict)), d); "
    "save_file({k: v.contiguous().clone() for k, v in d.items() if is_tensor(v)}, sys.argv[2])"
)
"""What a user may run: only they can know whether they trust the file."""


def conversion(path: Path) -> str:
    """The line of shell that makes a safetensors file of a pickled checkpoint."""
    return shlex.join(["python", "-c", PROGRAM, str(path), str(path.with_suffix(".safetensors"))])


def refuse_pickled(path: Path) -> None:
    """Raise if a file is a pickled checkpoint, by its name or how it begins."""
    if not path.is_file():
        return  # whoever reads it says what is wrong
    with path.open("rb") as file:
        start = file.read(4)
    if path.suffix.lower() in ENDINGS or start.startswith(STARTS):
        raise UserError(
            f"The weights {str(path)!r} are pickled, and unpickling a file can run code, so that "
            "qunlearn never does; if you trust the file, convert it and name the new one with "
            f"--weights: {conversion(path)}"
        )
