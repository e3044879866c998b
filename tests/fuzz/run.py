"""Feeds every reader files that were valid once, and says what came out that must not.

    python tests/fuzz/run.py COUNT SEED [TARGET ...]

Only a `UserError` or a `Failure` may come out: no other exception, nothing over 5 seconds or 2 GB,
no code that is run, no file opened for writing elsewhere. What is found is kept in a folder.
"""

from __future__ import annotations

import itertools
import os
import resource
import signal
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from fuzz.mutate import Chance
from fuzz.targets import Target, all_targets

from qunlearn.errors import Failure, UserError

CORPUS = Path(__file__).parent / "corpus"
SECONDS, BYTES = 5, 2 << 30
CODE = ("os.system", "os.exec", "os.posix_spawn", "os.spawn", "subprocess.Popen", "os.fork")
CODE += ("pickle.find_class", "socket.connect", "ctypes.dlopen")


class Misdeed(BaseException):
    """What a reader must not do; not an `Exception`, so that no reader catches it."""


class Guard:
    """While it is on, code that is run and files written elsewhere end the reading."""

    def __init__(self, base: Path):
        self.base, self.on = base.resolve(), False
        sys.addaudithook(self._heard)
        for sign in (signal.SIGPROF, signal.SIGALRM):
            signal.signal(sign, self._late)

    def _late(self, *_: object) -> None:
        raise Misdeed(f"took more than {SECONDS} s")

    def _heard(self, event: str, arguments: tuple[object, ...]) -> None:
        if not self.on:
            return
        if event in CODE:
            raise Misdeed(f"{event} {arguments}")
        if event == "open" and isinstance(arguments[0], (str, bytes)):
            # Names in an opened folder come without it, and are then seen from the working folder,
            # which is the base; the store opens folders in this way to write in them, and others
            # are refused here.
            flags = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_DIRECTORY
            writes = int(arguments[2] or 0) & flags  # type: ignore
            if writes and not Path(os.fsdecode(arguments[0])).resolve().is_relative_to(self.base):
                raise Misdeed(f"opens {arguments[0]!r} for writing")


def attempt(guard: Guard, target: Target) -> str:
    """Read a file: "read", "refused", or a traceback."""
    # Seconds of the processor, which others may be using too; and of the clock, if it only waits.
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    signal.alarm(20 * SECONDS)
    guard.on = True
    try:
        target.read()
        return "read"
    except (UserError, Failure) as error:
        guard.on = False
        str(error).encode(errors="backslashreplace")
        return "refused"
    except (Exception, Misdeed):
        guard.on = False
        return traceback.format_exc()
    finally:
        guard.on = False
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.alarm(0)


def memory() -> int:
    """The most memory that this process ever had, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def replaced(guard: Guard, target: Target, changed: bytes) -> str:
    """Read a target with a changed file in its place; everything is put back after."""
    kept = {path: path.read_bytes() for path in target.path.parent.iterdir() if path.is_file()}
    target.path.write_bytes(changed)
    outcome = attempt(guard, target)
    for path, content in kept.items():
        path.write_bytes(content)
    return outcome


def corpus() -> Iterator[tuple[str, bytes]]:
    """What was found once, by the name of its target."""
    for path in sorted(CORPUS.glob("*/*")):
        yield path.parent.name, path.read_bytes()


def changed_files(
    targets: dict[str, Target], count: int, names: list[str], seed: int
) -> Iterator[tuple[str, bytes]]:
    """As many changed files, of each target in turn."""
    for number in range(count):
        name = names[number % len(names)]
        whole = targets[name].path.read_bytes()
        yield name, targets[name].mutate(whole, Chance(f"{seed}/{name}/{number // len(names)}"))


def fuzz(base: Path, count: int, names: list[str], seed: int) -> tuple[Counter[str], list[str]]:
    """Try the corpus and `count` changed files; how many were read and refused, and all faults."""
    import_module("matplotlib.font_manager")  # which asks a program for fonts, once for each user
    targets = all_targets(base)
    os.chdir(base)
    guard = Guard(base)
    for name, target in targets.items():  # each is valid as it is; and what is imported is now
        outcome = attempt(guard, target)
        assert outcome == "read", f"{name}: {outcome}"
    limit = memory() + BYTES
    resource.setrlimit(resource.RLIMIT_AS, (virtual() + BYTES, resource.RLIM_INFINITY))
    outcomes: Counter[str] = Counter()
    faults: dict[str, str] = {}
    made = changed_files(targets, count, names or list(targets), seed)
    for name, changed in itertools.chain(corpus(), made):
        (base / "last").write_bytes(changed)  # to be found after a crash
        outcome = replaced(guard, targets[name], changed)
        if memory() > limit:
            outcome, limit = f"took {memory():,} bytes of memory in all", memory()
        if outcome not in ("read", "refused"):
            place = f"{name}: {outcome.strip().splitlines()[-1][:200]}"
            if place not in faults:
                (base / f"fault-{len(faults)}").write_bytes(changed)
                print(f"{name}\n{outcome}", flush=True)
                faults[place] = outcome
            outcome = "fault"
        outcomes[outcome] += 1
    return outcomes, list(faults)


def virtual() -> int:
    """The address space of this process now, in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    place = Path(tempfile.mkdtemp(prefix="fuzz-"))
    os.environ["XDG_CACHE_HOME"] = str(place / "user-cache")
    count, seed, *named = sys.argv[1:]
    found, wrong = fuzz(place, int(count), named, int(seed))
    print(f"{sum(found.values()):,} files: {dict(found)}; {len(wrong)} faults, kept in {place}.")
    sys.exit(bool(wrong))
