"""One writer at a time."""

import signal
import subprocess
import sys

import pytest

from qunlearn.errors import UserError
from qunlearn.store.lock import LOCK, locked

HOLD = """
import sys, time
from pathlib import Path
from qunlearn.store.lock import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def owner(tmp_path):
    """Another process that writes to the folder."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, tmp_path], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.wait()


def test_a_second_writer_is_told_and_the_first_goes_on(tmp_path, owner):
    with pytest.raises(UserError, match="Another process is writing to"), locked(tmp_path):
        pass
    assert owner.poll() is None
    assert (tmp_path / LOCK).exists()


def test_a_lock_goes_with_its_owner_even_by_force(tmp_path, owner):
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    with locked(tmp_path):
        pass
    assert not (tmp_path / LOCK).exists()


def test_a_lock_is_let_go_when_its_work_fails(tmp_path):
    with pytest.raises(KeyError), locked(tmp_path):
        raise KeyError
    with locked(tmp_path):
        pass


def test_a_lock_that_was_taken_away_while_waiting_is_taken_anew(tmp_path, monkeypatch):
    """Its owner ends between our opening the file and our locking it: two must not hold it."""
    from qunlearn.store import lock

    attempts = []

    def ends_first(handle):
        if not attempts:
            (tmp_path / LOCK).unlink()
        attempts.append(handle)
        return lock_it(handle)

    lock_it = lock.try_lock
    monkeypatch.setattr(lock, "try_lock", ends_first)
    with locked(tmp_path):
        assert len(attempts) == 2
        with pytest.raises(UserError, match="Another process"), locked(tmp_path):
            pass
