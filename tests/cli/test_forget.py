"""`forget`, `methods` and `explain` as a person would use them."""

import base64
import json
import re
import zlib

import pytest
from cli.test_bad_input import refuse

from qunlearn.report.judge import verdict_of
from qunlearn.runs.data import split_of
from qunlearn.runs.metrics import metrics_of
from qunlearn.store.layout import MODEL
from qunlearn.store.run import Run
from qunlearn.store.study import StudyFolder
from qunlearn.store.weights import read_header, read_tensors

FAST = ("--epochs", 1, "--threads", 1, "--accept")


@pytest.fixture(scope="module")
def people(run_folder, tmp_path_factory):
    """Metadata: every training sample belongs to one of three users."""
    split = split_of(Run.open(run_folder))
    path = tmp_path_factory.mktemp("people") / "people.csv"
    rows = [f"{split.data.ids[row]},{n % 3}" for n, row in enumerate(split.train.tolist())]
    path.write_text("\n".join(["id,user", *rows]) + "\n")
    return path


def test_forget_prints_a_table_and_json_that_is_the_folders_content(qunlearn, run_folder, tmp_path):
    words = ("forget", run_folder, "--random", 0.1, *FAST)
    code, out, err = qunlearn(*words, "--out", tmp_path / "a")
    assert (code, err) == (0, "")
    assert all(
        word in out for word in ("calibrated", "retained", "forgotten", "held out", "162", "18")
    )
    verdict = verdict_of(metrics_of(Run.open(tmp_path / "a")))
    assert f"Did the model forget? {verdict.answer}" in out
    code, out, _ = qunlearn(*words, "--out", tmp_path / "b", "--json")
    result = json.loads(out)
    run = Run.open(tmp_path / "b")
    assert (code, result["metrics"], result["method"]) == (0, run.metrics, "calibrated")
    assert result["seconds"]["forgetting"] > 0


def test_the_config_makes_the_run_again_and_flags_win(qunlearn, run_folder, tmp_path):
    words = ("forget", run_folder, "--class", 3, "--class", 5, "--set", "momentum=0.5", *FAST)
    assert qunlearn(*words, "--seed", 7, "--out", tmp_path / "a")[0] == 0
    config = tmp_path / "a" / "config.toml"
    assert qunlearn("forget", "--config", config, "--accept", "--out", tmp_path / "b")[0] == 0
    first, again = (read_tensors(tmp_path / name / "model.safetensors") for name in "ab")
    assert all(first[name].equal(again[name]) for name in first)
    assert Run.open(tmp_path / "a").split == Run.open(tmp_path / "b").split

    more = (
        "--accept",
        "--config",
        config,
        "--set",
        "weight_decay=0.002",
        "--seed",
        8,
        "--out",
        tmp_path / "c",
    )
    assert qunlearn("forget", *more)[0] == 0
    settings = Run.open(tmp_path / "c").config["settings"]
    assert [settings[k] for k in ("momentum", "weight_decay", "seed", "epochs")] == [
        0.5,
        0.002,
        8,
        1,
    ]


def test_ids_and_rules_and_requests_one_after_another(qunlearn, run_folder, people, tmp_path):
    split = split_of(Run.open(run_folder))
    names = [split.data.ids[row] for row in split.train[:5].tolist()]
    (tmp_path / "ids.txt").write_text("\n".join(names))
    words = ("--method", "ft", *FAST)
    out = [tmp_path / name for name in "abc"]
    assert (
        qunlearn("forget", run_folder, "--ids", tmp_path / "ids.txt", *words, "--out", out[0])[0]
        == 0
    )
    rule = ("--where", "user == 1", "--metadata", people)
    assert qunlearn("forget", out[0], *rule, *words, "--out", out[1])[0] == 0
    assert qunlearn("forget", out[1], "--random", 0.5, *words, "--out", out[2])[0] == 0
    code, printed, _ = qunlearn("evaluate", out[2])
    assert code == 0
    assert "forgotten earlier, request 1" in printed
    assert "forgotten earlier, request 2" in printed
    last = split_of(Run.open(out[2]))
    assert [request.kind for request in last.requests] == ["ids", "where", "random"]
    assert set(last.requests[0].ids) == set(names)


def test_a_list_from_a_spreadsheet(qunlearn, run_folder, tmp_path):
    """As a German Excel saves it: UTF-16 or a byte-order mark, semicolons, its own header."""
    split = split_of(Run.open(run_folder))
    names = [split.data.ids[row] for row in split.train[:5].tolist()]
    table = "\r\n".join(["Grund;Bild", *(f'"1,5";{name}' for name in names), ";", ""])
    file = tmp_path / "liste.csv"
    file.write_bytes(table.encode("utf-16"))
    words = ("forget", run_folder, "--ids", file, "--method", "ft", *FAST)
    said = refuse(qunlearn, tmp_path, *words, "--out", tmp_path / "a")
    assert (
        "'Grund', 'Bild' but no 'id'; name the column of sample ids with --column"
        in said.replace("\n", " ")
    )
    words = (*words, "--column", "Bild", "--out", tmp_path / "a")
    assert qunlearn(*words)[0] == 0
    assert set(split_of(Run.open(tmp_path / "a")).requests[0].ids) == set(names)
    # Another way to ask leaves the column of the list out, too.
    again = ("--config", tmp_path / "a" / "config.toml", "--random", 0.1, "--out", tmp_path / "b")
    assert qunlearn("forget", *again)[0] == 0
    words = ("forget", run_folder, "--random", 0.1, "--column", "Bild", "--out", tmp_path / "c")
    assert "--column goes with --ids" in refuse(qunlearn, tmp_path, *words)


def test_the_value_of_a_rule_is_in_no_file_and_no_message(qunlearn, run_folder, tmp_path):
    """It may name a person; folders are copied, and what is printed is logged."""
    ids = split_of(Run.open(run_folder)).data.ids
    rows = [f"{name},{'anna@example.org' if n < 9 else 'x'}" for n, name in enumerate(ids)]
    (tmp_path / "people.csv").write_text("\n".join(["id,user", *rows]))
    rule = ("--where", "user == 'anna@example.org'", "--metadata", tmp_path / "people.csv")
    out = tmp_path / "runs" / "a"
    printed = qunlearn("forget", run_folder, *rule, "--method", "ft", *FAST, "--out", out)
    assert printed[0] == 0
    again = qunlearn("forget", run_folder, *rule, "--method", "ft", "--resume", "--out", out)
    printed += (*again, *qunlearn("report", out), *qunlearn("forget", out, *rule, "--out", out))
    assert "anna@" not in " ".join(map(str, printed))
    files = [path for path in out.rglob("*") if path.is_file()]
    header = json.loads(zlib.decompress(base64.b64decode(read_header(out / MODEL)["split"])))
    assert header["requests"][-1]["kind"] == "where"
    assert not [path.name for path in files if b"anna@" in path.read_bytes()]
    assert "anna@" not in json.dumps(header)


def test_a_config_is_reused_with_moved_files(qunlearn, run_folder, people, tmp_path):
    rule = ("--where", "user == 1", "--metadata", people)
    words = ("--method", "ft", *FAST)
    assert qunlearn("forget", run_folder, *rule, *words, "--out", tmp_path / "a")[0] == 0
    moved = tmp_path / "moved.csv"
    moved.write_bytes(people.read_bytes())
    again = ("--config", tmp_path / "a" / "config.toml", "--metadata", moved)
    said = refuse(qunlearn, tmp_path, "forget", *again, "--out", tmp_path / "b")
    assert "A rule is not saved in files" in said.replace("\n", " ")
    assert qunlearn("forget", *again, *rule[:2], "--out", tmp_path / "b")[0] == 0
    assert Run.open(tmp_path / "a").split == Run.open(tmp_path / "b").split
    assert Run.open(tmp_path / "b").config["provenance"]["data"]["metadata"] == str(moved)


@pytest.mark.usefixtures("quick_children")
def test_too_few_samples_for_two_devices(qunlearn, run_folder, tmp_path):
    split = split_of(Run.open(run_folder))
    names = [split.data.ids[row] for row in split.train.tolist()]
    (tmp_path / "one.txt").write_text(names[0])
    words = ("forget", run_folder, "--devices", 2, *FAST, "--out", tmp_path / "out", "--ids")
    assert "2 processes" in refuse(qunlearn, tmp_path, *words, tmp_path / "one.txt")
    (tmp_path / "nine.txt").write_text("\n".join(names[:9]))
    assert qunlearn(*words, tmp_path / "nine.txt", "--set", "batch_size=8")[0] == 0


def test_a_config_asks_for_the_same_samples_or_is_refused(qunlearn, run_folder, tmp_path):
    split = split_of(Run.open(run_folder))
    names = [split.data.ids[row] for row in split.train.tolist()]
    (tmp_path / "ids.txt").write_text("\n".join(names[:9]))
    words = ("--ids", tmp_path / "ids.txt", "--method", "ft", *FAST)
    assert qunlearn("forget", run_folder, *words, "--out", tmp_path / "a")[0] == 0
    (tmp_path / "ids.txt").write_text("\n".join(names[:8]))
    again = ("forget", "--config", tmp_path / "a" / "config.toml")
    sentence = refuse(qunlearn, tmp_path, *again, "--out", tmp_path / "b")
    assert "other samples than when" in sentence
    # Another way to ask, given by a flag, replaces the file's.
    assert qunlearn(*again, "--class", 3, "--accept", "--out", tmp_path / "c")[0] == 0
    assert Run.open(tmp_path / "c").config["classes"] == ["3"]
    assert "ids" not in Run.open(tmp_path / "c").config


def test_the_output_is_not_inside_the_run(qunlearn, run_folder):
    words = ("forget", run_folder, "--random", 0.1, "--out", run_folder / "inside")
    code, _, err = qunlearn(*words)
    assert code == 2
    assert "inside the run" in err


@pytest.mark.usefixtures("quick_children")
def test_two_devices(qunlearn, run_folder, tmp_path):
    words = ("--random", 0.2, "--devices", 2, *FAST, "--out", tmp_path / "two")
    code, out, _ = qunlearn("forget", run_folder, *words)
    assert code == 0
    assert "forgotten" in out
    assert Run.open(tmp_path / "two").history[0].scalars["forget_accuracy"] >= 0


def test_methods_lists_all_with_their_settings(qunlearn):
    code, out, _ = qunlearn("methods")
    assert code == 0
    listed = json.loads(qunlearn("methods", "--json")[1])["methods"]
    assert len(listed) == 11
    for method in listed:
        assert method["name"] in out
        assert method["summary"] in out
        for setting in method["settings"].values():
            assert setting["about"]
    published, calibrated = listed[-2:]
    assert published["settings"]["lr"]["search"] == [0.01, 0.1]
    assert not any(setting.get("search") for setting in calibrated["settings"].values())
    assert "lr" not in listed[3]["settings"]
    assert "depth" in qunlearn("methods", "calibrated")[1]
    assert "\nmomentum, weight_decay and augment follow" in qunlearn("methods", "calibrated")[1]
    assert "\nbatch_size, momentum, weight_decay and augment follow" in qunlearn("methods", "ft")[1]
    assert "follow" not in qunlearn("methods", "iu")[1]
    assert qunlearn("methods", "oeuu")[0] == 2


def test_explain_draws_layers_and_says_it_in_words(qunlearn, run_folder, tmp_path):
    out = tmp_path / "run"
    words = ("forget", run_folder, "--random", 0.1, "--method", "oeu", *FAST)
    assert qunlearn(*words, "--out", out)[0] == 0
    code, printed, _ = qunlearn("explain", out)
    assert code == 0
    drawn = [line.split()[0] for line in printed.splitlines() if line.strip()]
    assert "pulled apart in" in printed
    layers = json.loads(qunlearn("explain", out, "--json")[1])["layers"]
    assert len(layers) == 9
    assert {layer["layer"] for layer in layers} <= {*drawn}
    assert all(0 <= layer["share_in_conflict"] <= 1 for layer in layers)


def test_oeu_is_the_paper_s(qunlearn, run_folder, tmp_path):
    words = (
        "forget",
        run_folder,
        "--random",
        0.1,
        "--method",
        "oeu",
        *FAST,
        "--out",
        tmp_path / "a",
    )
    assert qunlearn(*words)[0] == 0
    assert Run.open(tmp_path / "a").info.method == "oeu"
    again = ("forget", "--config", tmp_path / "a" / "config.toml", "--out", tmp_path / "b")
    assert qunlearn(*again)[0] == 0
    assert Run.open(tmp_path / "b").info.model_sha256 == Run.open(tmp_path / "a").info.model_sha256


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--random", "0.1", "--method", "oeuu"], "did you mean 'oeu'"),
        (
            ["--random", "0.1", "--set", "momentun=1"],
            "calibrated, 'momentun'.*'momentum'",
        ),
        (["--random", "0.1", "--method", "oeu", "--set", "alpha=2"], "alpha = '2' .* 1 or less"),
        (["--random", "0.1", "--set", "alpha"], "--set NAME=VALUE"),
        (["--random", "0.1", "--depth", "abyssal"], "depth = 'abyssal' .*'deep' or 'shallow'"),
        (["--random", "0.1", "--method", "ft", "--depth", "deep"], "'ft' has no setting 'depth'"),
        (
            ["--random", "0.1", "--method", "ft", "--budget", "9"],
            "'ft' has no .*leave --budget out",
        ),
        (["--random", "0.1", "--budget", "0"], "budget = '0' .* more than 0"),
        (
            ["--random", "0.1", "--budget", "10m"],
            "'10m' is invalid: give a number of steps, as 300",
        ),
        (["--random", "0.1", "--budget", "inf"], "budget = 'inf' .* finite number"),
        (["--random", "0.1", "--epochs", "0"], "epochs = .*0.* 1 or more"),
        (
            ["--random", "0.1", "--method", "iu", "--epochs", "3"],
            "Method 'iu' has no setting 'epochs'",
        ),
        (["--random", "1"], "fraction to forget is 1"),
        (["--random", "0.0001"], "nothing to forget"),
        (["--random", "nan"], "nan"),
        (["--random", "0.1", "--set", "lr=inf"], "lr = 'inf' .* finite number"),
        (["--class", "eleven"], "no class 'eleven'"),
        ([w for k in range(10) for w in ("--class", k)], "Nothing would be retained"),
        ([], "exactly one of"),
        (["--random", "0.1", "--class", "3"], "Conflicting flags: --random, --class"),
        (["--class", "3", "--forget-seed", "1"], "goes with --random only"),
        (["--where", "user == 42"], "--metadata"),
        (["--random", "0.1", "--method", "neggrad.py"], "neggrad:NAME"),
        (["--ids", "none.csv"], "none.csv"),
        (["--random", "0.1", "--method", "nowhere:x"], "cannot be found"),
        (["--random", "0.1", "--set", "batch_size=1"], "batch size of 1"),
        (["--random", "0.1", "--model", "plain_net:make", "--data", "x"], "no data at 'x'"),
        (["--random", "0.1", "--data", "."], "come with scikit-learn"),
        (["--random", "0.1", "--skip-unusable"], "goes with --ids only"),
    ],
)
def test_what_is_asked_wrongly_is_named(qunlearn, run_folder, tmp_path, words, says):
    sentence = refuse(qunlearn, tmp_path, "forget", run_folder, *words, "--out", tmp_path / "out")
    assert re.search(says, sentence), sentence


def test_ids_that_cannot_be_used(qunlearn, run_folder, tmp_path):
    split = split_of(Run.open(run_folder))
    first, second = (split.data.ids[int(row)] for row in split.train[:2])
    (tmp_path / "ids.txt").write_text("\n".join([first, "nobody", "x1", first]))
    words = ("--ids", tmp_path / "ids.txt", "--method", "ft", *FAST)
    said = refuse(qunlearn, tmp_path, "forget", run_folder, *words, "--out", tmp_path / "done")
    assert f"Of the 4 ids, 3 cannot be used: 1 listed twice ('{first}'); 2 unknown" in said
    skip = (*words, "--skip-unusable")
    code, out, err = qunlearn("forget", run_folder, *skip, "--out", tmp_path / "done")
    assert code == 0, err
    assert "Samples forgotten: 1. Ids skipped: 2 unknown, 1 listed twice." in out
    run = Run.open(tmp_path / "done")
    assert run.metrics["request"]["skipped"] == {"unknown": 2, "listed twice": 1}
    assert "nobody" not in run.split
    (tmp_path / "ids.txt").write_text("\n".join([first, second]))
    again = ("forget", tmp_path / "done", *words, "--out", tmp_path / "again")
    assert f"1 already forgotten ('{first}')" in refuse(qunlearn, tmp_path, *again)


def test_an_interrupted_request_needs_no_list_and_no_metadata(
    qunlearn, run_folder, tmp_path, monkeypatch
):
    split = split_of(Run.open(run_folder))
    names = [split.data.ids[int(row)] for row in split.train[:4]]
    (tmp_path / "ids.csv").write_text("\n".join(["id", *names]))
    (tmp_path / "users.csv").write_text("\n".join(["id,user", *(f"{n},7" for n in names)]))
    asked = {
        "listed": ("--ids", tmp_path / "ids.csv"),
        "ruled": ("--where", "user == 7", "--metadata", tmp_path / "users.csv"),
    }
    for name, words in asked.items():
        with monkeypatch.context() as patch:
            patch.setattr("qunlearn.runs.forget._forget_into", stopped)
            begin = (
                "forget",
                run_folder,
                *words,
                "--method",
                "ft",
                *FAST,
                "--out",
                tmp_path / name,
            )
            assert qunlearn(*begin)[0] == 1
    (tmp_path / "ids.csv").unlink()
    (tmp_path / "users.csv").unlink()
    for name in asked:
        code, _, err = qunlearn("forget", "--resume", "--out", tmp_path / name)
        assert code == 0, err
        assert Run.open(tmp_path / name).metrics["parts"]["forget"]["samples"] == 4
        assert qunlearn("evaluate", tmp_path / name)[0] == 0
    # Another request in its place is still refused.
    (tmp_path / "ids.csv").write_text(names[0])
    words = ("--resume", *asked["listed"], "--out", tmp_path / "listed")
    assert qunlearn("forget", *words)[0] == 2


def stopped(*_, **__):
    raise KeyboardInterrupt


def test_a_run_without_a_split_and_no_run_at_all(qunlearn, run_folder, tmp_path):
    import shutil

    broken = shutil.copytree(run_folder, tmp_path / "broken")
    (broken / "split.json").unlink()
    words = ("--random", 0.1, "--out", tmp_path / "out")
    assert "split.json" in refuse(qunlearn, tmp_path, "forget", broken, *words)
    assert "no run folder" in refuse(qunlearn, tmp_path, "forget", tmp_path / "none", *words)
    assert "'run' is missing; name it after the command" in refuse(
        qunlearn, tmp_path, "forget", *words
    )


def test_compare_prints_the_table_and_json(qunlearn, run_folder, tmp_path):
    import shutil

    run = shutil.copytree(run_folder, tmp_path / "run")
    words = ("compare", run, "--random", 0.1, "--methods", "ga[momentum=0]", "--seeds", 2)
    words += ("--set", "retrain.epochs=1", "--set", "ga.epochs=1", "--threads", 1)
    code, out, _ = qunlearn(*words)
    assert code == 0
    shutil.move(tmp_path / "run-compare-random-10", tmp_path / "t")
    assert all(word in out for word in ("retrain", "ga[momentum=0]", "Noise floor", "2 seeds"))
    code, out, _ = qunlearn(*words, "--out", tmp_path / "t", "--json")
    assert json.loads(out) == StudyFolder(tmp_path / "t").table
    assert "compared" in refuse(qunlearn, tmp_path, *words, "--set", "ft.lr=1", "--out", "x")


def test_evaluate_beside_a_retrained_run(qunlearn, run_folder, tmp_path):
    for name in ("ft", "retrain"):
        words = ("forget", run_folder, "--random", 0.1, "--method", name, *FAST)
        assert qunlearn(*words, "--out", tmp_path / name)[0] == 0
    words = ("evaluate", tmp_path / "ft", "--reference", tmp_path / "retrain")
    code, out, _ = qunlearn(*words)
    assert code == 0
    assert all(word in out for word in ("AG", "MIA", "gap", "Retrain"))
    found = json.loads(qunlearn(*words, "--json", "--vector", "--exact")[1])["metrics"]
    assert found["AG"] == sum(found["gaps"].values()) / 4
    for run, reference, says in (
        ("ft", run_folder, "not made by Retrain"),
        ("ft", tmp_path / "ft", "not made by Retrain"),
        (run_folder, tmp_path / "retrain", "has forgotten nothing"),
    ):
        words = ("evaluate", tmp_path / run, "--reference", reference)
        assert says in refuse(qunlearn, tmp_path, *words)
    assert "vector" in found["attacks"]
