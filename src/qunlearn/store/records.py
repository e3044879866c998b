"""Earlier signed records of a run, which are kept beside the newest one."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from qunlearn.store.files import writing
from qunlearn.store.place import opened


def archive(folder: Path, names: Sequence[str], below: str, called: str) -> None:
    """Move files of a folder into `below`/`called`; those that are not there are passed over."""
    target = folder / below / called
    with writing(target), opened(folder) as here, opened(target, make=True) as there:
        for name in names:
            with suppress(FileNotFoundError):
                os.replace(name, name, src_dir_fd=here, dst_dir_fd=there)
