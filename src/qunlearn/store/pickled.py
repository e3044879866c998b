"""Pickled checkpoints: detected and refused, with a command that converts them."""

from __future__ import annotations

import shlex
from pathlib import Path

from qunlearn.errors import UserError

ENDINGS = (".pt", ".pth", ".bin", ".ckpt", ".pkl")
STARTS = (b"PK\x03\x04", b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")
"""First bytes of files that `torch.save` writes: zip archives, or bare pickles."""

PROGRAM = (
    "import sys; from safetensors.torch import save_file; from torch import is_tensor, load; "
    "d = load(sys.argv[1], map_location='cpu', weights_only=True); "
    "d = next((d[k] for k in ('state_dict', 'model_state_dict', 'model') "
    "if isinstance(d.get(k), dict)), d); "
    "save_file({k: v.contiguous().clone() for k, v in d.items() if is_tensor(v)}, sys.argv[2])"
)
"""Conversion script, run by the user: only they know whether the file can be trusted."""


def conversion(path: Path) -> str:
    """The shell command that converts a pickled checkpoint to safetensors."""
    return shlex.join(["python", "-c", PROGRAM, str(path), str(path.with_suffix(".safetensors"))])


def refuse_pickled(path: Path) -> None:
    """Raise if a file is a pickled checkpoint, by its suffix or its first bytes."""
    if not path.is_file():
        return  # reading it reports the error
    with path.open("rb") as file:
        start = file.read(4)
    if path.suffix.lower() in ENDINGS or start.startswith(STARTS):
        raise UserError(
            f"The weights {str(path)!r} are pickled. qunlearn does not unpickle, because that can "
            "run code from the file. If you trust it, convert it and name the new file with "
            f"--weights: {conversion(path)}"
        )
