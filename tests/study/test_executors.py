"""Executors without a cluster: what is asked wrongly, what travels, what is shown."""

import json
import os
import shutil
import socket
import sys
import threading
import time
from dataclasses import replace
from io import StringIO
from pathlib import Path
from types import SimpleNamespace

import pytest
from conftest import made_once
from quick_study import config
from rich.console import Console

from qunlearn.errors import Failure, UserError
from qunlearn.runs.request import ForgetConfig
from qunlearn.store.files import write_json
from qunlearn.store.lock import locked
from qunlearn.store.parcel import pack_run, unpack, unpack_run
from qunlearn.store.run import Run
from qunlearn.store.typed import untyped
from qunlearn.study.cells import Cell, failure_of
from qunlearn.study.executors import local, needs, node, ray_cluster, slurm
from qunlearn.study.executors import ray as on_ray
from qunlearn.study.executors.base import THIS_MACHINE, Finished, Lost, Started
from qunlearn.study.executors.config import ExecutorConfig
from qunlearn.study.executors.needs import pack
from qunlearn.study.executors.node import Task, make_in_place, node_versions, run_task
from qunlearn.study.executors.open import opened_executor
from qunlearn.study.progress import Counts


@pytest.fixture(scope="module")
def cell_run(run_folder, tmp_path_factory):
    """A finished cell, made on this machine."""
    return made_once(tmp_path_factory, "cell", lambda base: cell(run_folder, base).make()) / "cell"


def cell(run_folder, folder):
    asked = {"run": run_folder, "random": 0.1, "method": "ft", "threads": 1}
    settings = {"settings": {"epochs": 1, "seed": 0}, "skip_probe": True}
    return Cell("ft", 0, ForgetConfig.parse(asked | settings), folder / "cell", "")


def open_with(tmp_path, **settings):
    with opened_executor(ExecutorConfig.parse(settings), tmp_path / "study"):
        pass


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"executor": "dask"}, "Unknown executor 'dask'; known are local, ray, slurm"),
        ({"executor": "ray", "workers": 4}, "--workers 4 is for --executor local"),
        ({"address": "auto"}, "--address auto needs --executor ray"),
        ({"executor": "ray", "address": "node-3"}, "write auto, HOST:PORT or ray://HOST:PORT"),
        ({"executor": "ray", "address": "node-3:99999"}, "is no address of a Ray cluster"),
        ({"executor": "slurm"}, "there is no srun"),
    ],
    ids=str,
)
def test_what_is_asked_wrongly_is_said_before_anything_is_written(tmp_path, settings, says):
    pytest.importorskip("ray")
    with pytest.raises(UserError, match=says):
        open_with(tmp_path, **settings)
    assert not (tmp_path / "study").exists()


def test_without_ray_or_submitit_the_remedy_is_said(tmp_path, monkeypatch):
    for module, extra in (("ray", "ray"), ("submitit", "slurm")):
        monkeypatch.setitem(sys.modules, module, None)
        with pytest.raises(UserError, match=rf"pip install 'qunlearn\[{extra}\]'"):
            open_with(tmp_path, executor=extra)


def test_where_nobody_listens_there_is_no_cluster(tmp_path):
    pytest.importorskip("ray")
    with socket.socket() as taken:  # bound, and not listening
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(UserError, match=f"No Ray cluster answers at '{address}' within 20 s"):
            open_with(tmp_path, executor="ray", address=address)


def test_a_cluster_that_does_not_answer_is_waited_for_no_longer_than_is_said(monkeypatch):
    monkeypatch.setattr(ray_cluster, "CONNECT_TIMEOUT", 0.2)
    ended = threading.Event()
    silent = SimpleNamespace(init=lambda **how: ended.wait(30))
    started = time.monotonic()
    with pytest.raises(UserError, match=r"at 'auto' within 0\.2 s; .* asks for a token"):
        ray_cluster.connect(silent, "auto")
    assert time.monotonic() - started < 5
    ended.set()


def test_all_that_ray_says_of_a_cluster_it_cannot_use_is_said():
    def init(**how):
        raise RuntimeError("Version mismatch: The cluster has:\n    Ray: 2.52\nThis has:\n  2.60\n")

    with pytest.raises(UserError) as raised:
        ray_cluster.connect(SimpleNamespace(init=init), "auto")
    assert str(raised.value) == (
        "Ray cannot be reached at 'auto': Version mismatch: The cluster has: Ray: 2.52 This has: "
        "2.60"
    )


def test_a_file_does_not_decide_who_is_connected_to(run_folder, tmp_path, qunlearn):
    file = tmp_path / "compare.toml"
    for line, flag in (('address = "evil:6379"', "--address evil:6379"), ('executor="ray"', "ray")):
        file.write_text(f'run = "{run_folder}"\nrandom = 0.1\n{line}\n')
        code, _, said = qunlearn("compare", "--config", file, "--out", tmp_path / "out")
        assert code == 2
        assert "asks to make cells elsewhere" in said
        assert flag in said
    saved = config(run_folder, executor="ray", address="a:1", gpus_per_cell=1).to_dict()
    assert not saved.keys() & {"executor", "address", "cpus_per_cell", "gpus_per_cell"}


def test_a_cells_threads_on_a_cluster_are_its_processors(run_folder):
    away = {"executor": "ray", "threads": None}
    assert config(run_folder, **away).origin()["threads"] == 1
    assert config(run_folder, **away, cpus_per_cell=4).origin()["threads"] == 4
    assert config(run_folder, executor="ray", threads=2, cpus_per_cell=4).origin()["threads"] == 2


def task_of(job, **other):
    about = {"needs": job.needs(), "data": job.place(), "study": "test"}
    return Task(job, (), node_versions(), **{**about, **other})


def away(job, tmp_path):
    """A task for a node on which nothing of the driver's is at its place."""
    nowhere = tmp_path / "nowhere"
    moved = tuple(replace(need, path=nowhere / need.field) for need in job.needs())
    return task_of(job, needs=moved, marker=nowhere)


def test_a_cell_made_from_what_was_sent_is_the_cell_made_here(run_folder, cell_run, tmp_path):
    here = cell(run_folder, tmp_path)
    asked = away(here, tmp_path)
    parcels, fetched = {}, []

    def fetch(need):
        if need.folder in parcels:
            fetched.append(need.field)
        return parcels.get(need.folder)

    for missing in ("run", "data_path"):  # with the run, the node can tell whether it has the data
        (need,) = run_task(asked, fetch).missing
        assert need.field == missing
        on_driver = {each.field: each for each in here.needs()}
        parcels[need.folder] = pack(on_driver[missing], here.place())

    result = run_task(asked, fetch)
    assert (result.kind, fetched) == ("done", ["run", "data_path"])
    assert not here.path.exists()
    unpack_run(here.path, result.files)
    made, expected = Run.open(here.path), Run.open(cell_run)
    assert made.info.model_sha256 == expected.info.model_sha256
    assert made.metrics == expected.metrics
    assert made.config == expected.config  # with the driver's paths, not the node's
    assert run_task(replace(asked, job=cell(run_folder, tmp_path / "b")), fetch).kind == "done"
    assert fetched == ["run", "data_path"]  # once for each node
    node.delete_sent("test")
    assert run_task(asked, lambda need: None).kind == "missing"


def test_a_node_that_was_sent_something_else_does_not_ask_again(run_folder, tmp_path):
    here = cell(run_folder, tmp_path)
    run, data = here.needs()
    parcels = {run.folder: pack(run, here.place()), data.folder: {"data.npz": b"no archive"}}
    task = replace(away(here, tmp_path), study="other")
    result = run_task(task, lambda need: parcels[need.folder])
    node.delete_sent("other")
    assert result.kind == "failed"
    assert "was sent for data_path is not what the run was made with" in result.message


def test_a_node_finds_its_own_copy_of_the_data(run_folder, tmp_path, monkeypatch):
    here = cell(run_folder, tmp_path)
    data = here.needs()[-1]
    lost = replace(data, path=tmp_path / "nowhere")
    with pytest.raises(LookupError):
        needs.find(lost, run_folder, tmp_path)
    unpack(tmp_path / "mounted", pack(data, here.place()))
    monkeypatch.setenv(needs.NODE_DATA, str(tmp_path / "mounted" / "data.npz"))
    assert needs.find(lost, run_folder, tmp_path) == tmp_path / "mounted" / "data.npz"
    other = replace(lost, digest="0" * 64)  # another run's samples
    with pytest.raises(LookupError):
        needs.find(other, run_folder, tmp_path)


def test_data_that_a_node_has_are_not_asked_for(run_folder, tmp_path):
    """They may be too large to be sent, where the run or the list of ids have to be."""
    ids = tmp_path / "ids.txt"
    ids.write_text(next(iter(json.loads(Run.open(run_folder).split)["parts"]["train"])))
    asked = {"run": run_folder, "ids": ids, "method": "ft"}
    here = Cell("ft", 0, ForgetConfig.parse(asked), tmp_path / "cell", "")
    run, listed, data = here.needs()
    for gone in ((run, listed), (listed,), (run,)):
        elsewhere = tuple(
            replace(need, path=tmp_path / "nowhere") if need in gone else need
            for need in (run, listed, data)
        )
        result = run_task(task_of(here, needs=elsewhere, marker=tmp_path), lambda need: None)
        assert [need.field for need in result.missing] == [gone[0].field]


def test_a_node_that_sees_the_folder_makes_the_cell_there(run_folder, cell_run, tmp_path):
    here = cell(run_folder, tmp_path)
    (tmp_path / "marker").touch()
    result = run_task(task_of(here, marker=tmp_path / "marker"), lambda need: None)
    assert (result.kind, result.files) == ("done", None)
    expected = Run.open(cell_run).info.model_sha256
    assert Run.open(here.path).info.model_sha256 == expected


def test_other_software_is_refused_by_the_node_itself(run_folder, tmp_path):
    newer = {**node_versions(), "qunlearn": "99.0"}
    result = run_task(Task(cell(run_folder, tmp_path), (), newer), lambda need: None)
    assert result.kind == "refused"
    assert "this machine has qunlearn 99.0" in result.message
    assert not (tmp_path / "cell").exists()


def test_a_cell_that_another_process_makes_is_waited_for(cell_run, tmp_path, monkeypatch):
    path = tmp_path / "cell"
    path.mkdir()
    begun = []

    class Waiting:
        done = property(lambda self: Run.is_complete(path))

        def make(self):
            begun.append(1)
            with locked(path):
                raise AssertionError("it is made twice")

    def finish():
        with locked(path):
            holds.set()
            while not begun:
                time.sleep(0.01)
            for file in cell_run.iterdir():
                shutil.copy(file, path)

    holds = threading.Event()
    other = threading.Thread(target=finish)
    other.start()
    holds.wait()
    make_in_place(Waiting())
    other.join()
    assert begun == [1]


class Noted:
    """A cell that only notes that it was made."""

    config = None

    def __init__(self, path, made):
        self.path, self.made, self.done = path, made, False
        path.mkdir()

    def make(self):
        self.made.append(self.path.name)


def test_a_cell_that_another_machine_makes_comes_last(tmp_path, monkeypatch):
    monkeypatch.setattr(local, "POLL", 0.01)
    made = []
    cells = [Noted(tmp_path / name, made) for name in "abc"]
    executor = local.InProcess()
    executor.submit(cells)
    with locked(tmp_path / "a"):  # by the machine that began the study
        for _ in range(4):
            list(executor.events())
        assert made == ["b", "c"]
    (finished,) = [event for event in executor.events() if isinstance(event, Finished)]
    assert finished.job is cells[0]


def test_a_cell_that_has_just_been_finished_elsewhere_is_not_made_again(cell_run, run_folder):
    here = cell(run_folder, cell_run.parent)
    before = (cell_run / "run.json").stat().st_mtime_ns
    here.make()
    assert (cell_run / "run.json").stat().st_mtime_ns == before


def test_a_failure_names_the_node(run_folder, tmp_path):
    here = cell(run_folder, tmp_path)
    there = failure_of(Finished(here, "node-3", Failure("The data is not there.")))
    assert str(there) == "seed 0 on node-3: The data is not there."
    assert str(failure_of(Finished(here, THIS_MACHINE, Failure("nan")))) == "seed 0: nan"
    assert failure_of(Finished(here, "node-3")) is None


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda files: files.pop("run.json"), "it is not complete"),
        (lambda files: files.update({"../config.toml": b""}), "'../config.toml' is no file"),
        (lambda files: files.update({"metrics.json": b"{}"}), "metrics.json does not match"),
        (lambda files: files.pop("model.safetensors"), "model.safetensors is missing"),
        (lambda files: files.update({"checksums.txt": b"x"}), "its checksums are invalid"),
    ],
    ids=["incomplete", "other folder", "changed", "missing", "checksums"],
)
def test_a_damaged_cell_is_refused_and_nothing_written(cell_run, tmp_path, damage, says):
    files = pack_run(cell_run)
    unpack_run(tmp_path / "intact", files)
    same = {name: (tmp_path / "intact" / name).read_bytes() for name in files}
    assert same == files
    damage(files)
    with pytest.raises(Failure, match=says):
        unpack_run(tmp_path / "damaged", files)
    assert not (tmp_path / "damaged").exists()


def test_a_parcel_leaves_no_path(tmp_path):
    with pytest.raises(Failure, match="names that are paths"):
        unpack(tmp_path / "parcel", {"../evil": b""})
    unpack(tmp_path / "parcel", {"a": b"1"})
    unpack(tmp_path / "parcel", {"a": b"2"})  # there already
    assert (tmp_path / "parcel" / "a").read_bytes() == b"1"
    assert [path.name for path in tmp_path.iterdir()] == ["parcel"]
    assert (tmp_path / "parcel").stat().st_mode & 0o077 == 0


def test_what_is_shown_of_a_study():
    clock = iter(range(0, 10_000, 10))
    counts = Counts("comparing", 12, 2, clock=lambda: float(next(clock)))
    cells = [SimpleNamespace(method="oeu", path=Path(f"seed{n}")) for n in range(6)]
    for each in cells:
        counts.add(Started(each, "node-3"))
    assert counts.line == (
        "comparing: 2 of 12 cells; running: oeu seed0 on node-3, oeu seed1 on node-3, "
        "oeu seed2 on node-3, oeu seed3 on node-3 and 2 more"
    )
    counts.add(Finished(cells[0], "node-3"))
    counts.add(Lost(cells[1], "node-3", "its node died"))
    counts.add(Finished(cells[2], "node-3", Failure("nan")))
    assert counts.line.startswith(
        "comparing: 4 of 12 cells, 1 failed, restarted after a node or worker died: 1, "
        "expected to end at 1970"
    )
    assert "oeu seed1" not in counts.line
    screen = Console(width=120, file=StringIO())
    screen.print(counts.table())
    shown = screen.file.getvalue().splitlines()
    assert shown[0].startswith("comparing: 4 of 12 cells, 1 failed, restarted after a node")
    assert shown[1].split() == ["running", "on", "for"]
    assert [line.split()[:3] for line in shown[2:]] == [
        ["oeu", f"seed{n}", "node-3"] for n in (3, 4, 5)
    ]
    steady = Counts("comparing", 12, 2, clock=lambda: 0.0)
    steady.add(Finished(cells[0], "node-3"))
    steady.clock = lambda: 60.0  # one cell in a minute, nine to go
    assert steady.expected_end == 60 + 9 * 60


def test_the_pickles_of_jobs_are_private(tmp_path):
    pytest.importorskip("submitit")
    executor = slurm.on_slurm(ExecutorConfig(executor="slurm", address="local"), tmp_path / "s")
    executor.submit([])
    assert (tmp_path / "s" / "jobs").stat().st_mode & 0o777 == 0o700
    executor.close(interrupted=False)
    assert not (tmp_path / "s" / "jobs").exists()


def test_a_cell_of_an_earlier_job_is_waited_for_and_not_submitted(cell_run, run_folder, tmp_path):
    pytest.importorskip("submitit")
    executor = slurm.on_slurm(ExecutorConfig(executor="slurm", address="local"), tmp_path / "s")
    here = cell(run_folder, tmp_path)
    here.path.mkdir()
    with locked(here.path):  # the job is still running; its driver was killed
        executor.submit([here])
        assert list(executor.events()) == []
        for file in cell_run.iterdir():
            shutil.copy(file, here.path)
    (event,) = executor.events()
    assert (event.job, event.failure) == (here, None)
    executor.close(interrupted=False)


SBATCH = """#!/bin/sh
count=$(( $(grep -o 'array=0-[0-9]*' "$1" | grep -o '[0-9]*$') + 1 )) 2> /dev/null || count=1
if [ "$count" -gt ${LARGEST:-2} ] || [ $(( $(wc -l < jobs) + count )) -gt ${MOST:-3} ]; then
    echo "sbatch: error: Job violates accounting/QOS policy" >&2
    exit 1
fi
for each in $(seq "$count"); do echo job >> jobs; done
echo "Submitted batch job 7$(wc -l < jobs)"
"""
"""Accepts arrays of at most two jobs, and three jobs in all, unless variables say otherwise."""


@pytest.fixture
def slurm_with_limits(tmp_path, monkeypatch):
    """The commands of a SLURM that accepts a few jobs and starts none."""
    pytest.importorskip("submitit")
    commands = tmp_path / "commands"
    commands.mkdir()
    for name, text in (("sbatch", SBATCH), ("srun", ""), ("sacct", ""), ("scancel", "")):
        (commands / name).write_text(text or "#!/bin/sh\n")
        (commands / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(commands), prepend=os.pathsep)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "jobs").touch()
    monkeypatch.setattr(slurm, "POLL", 0.01)
    config = ExecutorConfig(executor="slurm", address="gpu")
    executor = slurm.on_slurm(config, tmp_path / "study")
    yield executor
    executor.close(interrupted=False)


def test_cells_that_slurm_refuses_for_a_limit_are_submitted_later(slurm_with_limits, tmp_path):
    executor = slurm_with_limits
    made = []
    executor.submit([Noted(tmp_path / name, made) for name in "abcde"])
    assert (tmp_path / "jobs").read_text().count("job") == 3
    (tmp_path / "jobs").write_text("")  # they have ended
    done = untyped(slurm.JobState("node-3", "done"))
    for report in [executor._report(job) for job, _ in executor._running.values()]:
        write_json(report, done)
    finished = [event for event in executor.events() if isinstance(event, Finished)]
    assert [event.job.path.name for event in finished] == ["a", "b", "c"]
    assert (tmp_path / "jobs").read_text().count("job") == 2


def test_all_jobs_of_an_array_may_run_at_a_time(slurm_with_limits, tmp_path, monkeypatch):
    monkeypatch.setenv("LARGEST", "300")
    monkeypatch.setenv("MOST", "300")
    slurm_with_limits.submit([Noted(tmp_path / f"{number}", []) for number in range(300)])
    (script,) = (tmp_path / "study" / "jobs").glob("*_submission.sh")
    assert "--array=0-299%300" in script.read_text()


def test_what_slurm_refuses_altogether_is_a_failure(slurm_with_limits, tmp_path, capfd):
    (tmp_path / "jobs").write_text("job\n" * 3)
    with pytest.raises(Failure, match=r"'gpu': sbatch: error: Job violates .* Check --address"):
        slurm_with_limits.submit([Noted(tmp_path / name, []) for name in "ab"])
    assert capfd.readouterr().err == ""  # said once


class FakeRay:
    """A cluster whose tasks never end."""

    def __init__(self):
        self.exceptions = SimpleNamespace(RayError=RuntimeError, RayTaskError=KeyError)
        self.alive, self.submitted = True, []

    def remote(self, **options):
        actor = SimpleNamespace(take=SimpleNamespace(remote=lambda: None))
        submits = {on_ray.run_on_node: self._submit, on_ray.StartLog: lambda: actor}
        return lambda work: SimpleNamespace(remote=submits[work])

    def _submit(self, task, *others):
        self.submitted.append(task.job.path.name)
        return len(self.submitted)

    def nodes(self):
        return [{"NodeID": "1", "Alive": self.alive, "Resources": {"CPU": 1}}]

    def wait(self, refs, **how):
        return [], refs

    def get(self, ref, timeout):
        return []

    def shutdown(self):
        pass


@pytest.fixture
def fake_ray(run_folder, tmp_path, monkeypatch):
    monkeypatch.setattr(on_ray, "POLL", 0.01)
    monkeypatch.setattr(on_ray, "RECOUNT", 0.0)
    executor = on_ray.RayExecutor(
        FakeRay(), ExecutorConfig(executor="ray"), tmp_path / "study", {"1": 1}
    )
    yield executor
    executor.close(interrupted=True)


def test_a_cell_that_another_machine_makes_is_not_submitted(fake_ray, run_folder, tmp_path):
    cells = [cell(run_folder, tmp_path / name) for name in "ab"]
    cells = [replace(each, path=tmp_path / name) for each, name in zip(cells, "ab", strict=True)]
    (tmp_path / "a").mkdir()
    with locked(tmp_path / "a"):
        fake_ray.submit(cells)
        list(fake_ray.events())
        assert fake_ray.ray.submitted == ["b"]
    list(fake_ray.events())
    assert fake_ray.ray.submitted == ["b", "a"]


def test_a_cluster_that_has_lost_all_nodes_is_waited_for_a_while(fake_ray, monkeypatch):
    fake_ray.ray.alive = False
    assert list(fake_ray.events()) == []  # one may come back
    monkeypatch.setattr(on_ray, "SLOTLESS", 0.0)
    with pytest.raises(Failure, match="no node of the Ray cluster has had room for a cell"):
        list(fake_ray.events())
