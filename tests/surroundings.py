"""What a folder holds, in one word: to see whether an attack has changed anything."""

import hashlib
import os
import signal
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from qunlearn.store.place import named_folders

MOST_SECONDS = 15  # a pipe would be waited for for ever, and machines may be slow


def digest(*folders: Path) -> str:
    """Changes with every entry's name, kind, mode, time, content or target; follows no link."""
    found = hashlib.sha256()
    for folder in folders:
        for place, names, files in os.walk(folder):
            names.sort()
            for name in sorted([".", *names, *files]):
                path = Path(place) / name
                state = path.lstat()
                found.update(f"{path}|{state.st_mode}|{state.st_mtime_ns}|".encode())
                if stat.S_ISREG(state.st_mode):
                    found.update(path.read_bytes())
                elif stat.S_ISLNK(state.st_mode):
                    found.update(os.fsencode(path.readlink()))
    return found.hexdigest()


@contextmanager
def in_time(seconds: int = MOST_SECONDS) -> Iterator[None]:
    """Fail if the block takes longer, even if it hangs in a system call."""

    def stop(*_: object) -> None:
        raise AssertionError(f"it hung for {seconds} seconds")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def folders_there(_: int) -> tuple[Path, ...]:
    """The folders that a worker takes for named; here, where workers can import it."""
    return named_folders()
