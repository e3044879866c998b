"""Some changed files of every kind on each test run; FUZZ=20000 in the environment tries more."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="asks Linux for memory")
def test_no_changed_file_brings_a_reader_down():
    # In a process of its own, because memory is limited and every call is listened to.
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name("run.py"), os.environ.get("FUZZ", "150"), "0"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 faults" in done.stdout
