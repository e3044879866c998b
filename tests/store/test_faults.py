"""A write that fails, or is cut off, at each of its system calls: the old state or the new."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent / "faults"
COMPILER = shutil.which("cc") or shutil.which("gcc")


@pytest.mark.skipif(
    not sys.platform.startswith("linux") or COMPILER is None,
    reason="system calls are made to fail by a library that is compiled and preloaded",
)
def test_the_old_state_or_the_new_is_found_whatever_call_fails(tmp_path):
    library = tmp_path / "calls.so"
    source = HERE / "calls.c"
    subprocess.run([COMPILER, "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    (tmp_path / "runs").mkdir()
    done = subprocess.run(
        [sys.executable, HERE / "write.py", tmp_path / "runs"],
        env=os.environ | {"LD_PRELOAD": str(library)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    # One file takes nine: the folder and the file are opened, the file is locked, written, flushed,
    # renamed and closed, the folder flushed and closed.
    for name, states in json.loads(done.stdout).items():
        assert states["calls"] == states["old"] + states["new"] >= 9, name
