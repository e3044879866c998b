"""The audit of the bits: codes counted, weights rounded anew, and the sentence about it."""

import html
import json
import shutil
from dataclasses import replace

import pytest
import torch
from conftest import SMALL, made_once
from torch import nn

import qunlearn as qu
from qunlearn.audit import finding_of
from qunlearn.audit.bits import (
    AuditBitsConfig,
    BitsAudit,
    BitScores,
    Widths,
    changed_codes,
    recovered,
    requantized,
)
from qunlearn.report.audits import bits_words
from qunlearn.runs.config import TrainConfig
from qunlearn.runs.data import split_of as split_of_run
from qunlearn.runs.forget import forget_run
from qunlearn.runs.request import ForgetConfig
from qunlearn.runs.train import train_run
from qunlearn.store.layout import AUDIT
from qunlearn.store.run import Run


@pytest.fixture(scope="module")
def runs(run_folder, tmp_path_factory):
    """A run that has forgotten, and its Retrain."""

    def make(folder):
        for method in ("ft", "retrain"):
            asked = {"run": run_folder, "random": 0.1, "method": method, "epochs": 1, "threads": 1}
            forget_run(ForgetConfig.parse(asked), folder / method)

    return made_once(tmp_path_factory, "audited", make)


def small(quantizer="lsq+", bits=4):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.Conv2d(4, 4, 3), nn.Flatten(), nn.Linear(64, 10))
    net = qu.quantize(net, qu.QuantSpec(bits, 4, quantizer))
    qu.calibrate(net, torch.randn(8, 1, 8, 8))
    return net.eval()


def test_changed_codes_are_counted():
    before, after = small(), small()
    assert changed_codes(before, after).all == 0
    scale = after[1].weight_quantizer.scale.item()
    rounded = after[1].quantized_weight().detach()
    with torch.no_grad():
        after[1].weight.copy_(rounded)
        before[1].weight.copy_(rounded)
        flat = after[1].weight.view(-1)
        toward_zero = -scale * torch.sign(rounded.view(-1))  # never into the clip
        flat[:9] += toward_zero[:9]  # a step
        flat[9:20] += 0.4 * scale  # less than half of one
    moved = int((rounded.view(-1)[:9] != 0).sum())
    found = changed_codes(before, after)
    assert found.layers == {"0": 0, "1": 100 * moved / 144, "3": 0}
    assert found.all == pytest.approx(100 * moved / (36 + 144 + 640))


@pytest.mark.parametrize("quantizer", ["lsq+", "lsq", "dsq", "pact"])
def test_weights_are_rounded_anew_from_the_values_underneath(quantizer):
    net, spec = small(quantizer), qu.QuantSpec(4, 4, quantizer)
    weight = net[1].weight.detach()
    errors = []
    for bits in (2, 4, 8):
        anew = requantized(net, spec, bits)
        rounded = anew[1].quantized_weight().detach()
        assert len(rounded.unique()) <= 2**bits
        errors.append((rounded - weight).square().mean().item())
        assert anew[0].weight_quantizer.bits == 8  # the edges keep their own
    assert errors == sorted(errors, reverse=True)
    assert torch.equal(requantized(net, spec, 32)[1].quantized_weight(), net[1].weight)
    assert net[1].weight_quantizer.bits == 4  # it works on a copy


def test_layers_in_full_precision_are_edges_too():
    torch.manual_seed(0)
    layers = [nn.Conv2d(1, 4, 3), nn.Conv2d(4, 4, 3), nn.Conv2d(4, 4, 3), nn.Conv2d(4, 2, 3)]
    spec = qu.QuantSpec(4, 4, first_last_bits=32)
    net = qu.quantize(nn.Sequential(*layers), spec)
    anew = requantized(net, spec, 2)
    assert [layer.weight_quantizer.bits for layer in (anew[1], anew[2])] == [2, 2]
    assert type(anew[0]) is nn.Conv2d


def scored(fa, mia, ra=99.0, ta=70.0):
    return BitScores(fa, ra, ta, mia)


def audit(trained, row, retrain=None, retrains=None, samples=450, width="8"):
    """An audit of one width, beside a Retrain with its trained bits and at that width."""
    reference = None if retrain is None else Widths(retrain, {width: retrains or retrain})
    return BitsAudit(trained, {width: row}, samples, 500, reference=reference)


@pytest.mark.parametrize(
    ("row", "retrains", "says"),
    [
        (scored(75, 40), scored(75, 40), "stays forgotten: nothing comes back"),
        (scored(85, 40), scored(74, 40), "comes undone: FA at 2 bits gives 10.0 points"),
        (scored(85, 40), scored(85, 40), "stays forgotten"),  # Retrain does the same
        (scored(70, 40), scored(60, 45), "stays forgotten: nothing"),  # Retrain is harmed more
        (scored(75, 20), scored(75, 40), "comes undone: MIA at 2 bits gives 20.0 points"),
        (scored(99, 0, ra=50.0), scored(75, 40), "Inconclusive"),
    ],
)
def test_the_verdict_takes_off_what_retrain_does_too(row, retrains, says):
    same = scored(75, 40)
    assert says in bits_words(audit(same, row, same, retrains, width="2"))


def test_without_retrain_or_with_few_samples_nothing_is_called_forgotten():
    same = scored(98, 5)
    words = bits_words(audit(same, same))
    assert words.startswith("Other bits bring nothing back; whether it had")
    assert bits_words(audit(same, same, same, samples=10)).startswith("Inconclusive: with 10")


def test_what_was_not_forgotten_does_not_stay_forgotten():
    found = audit(scored(98, 5), scored(98, 5), scored(75, 40))
    assert bits_words(found).startswith("It had not forgotten in the first place, FA 23.0")


def test_without_retrain_new_samples_are_the_reference():
    assert recovered(audit(scored(75, 40), scored(80, 40, ta=73.0)), "8") == {"FA": 2.0}


def test_an_attack_that_guesses_recognises_nobody():
    then, now = scored(70.0, 40.0), scored(70.0, 10.0)
    retrain = replace(scored(70.0, 42.0), attack_accuracy=70.0)
    returned, guessed = {"FA": 0.0, "MIA": 30.0}, {"FA": 0.0}
    for accuracy, samples, expected in (
        (70.0, 500, returned),
        (52.0, 500, guessed),
        (60.0, 500, returned),
        (60.0, 30, guessed),
    ):
        found = audit(then, replace(now, attack_accuracy=accuracy), retrain)
        found = replace(found, attack_samples=samples)
        assert recovered(found, "8") == expected


def test_the_command_keeps_what_it_finds_and_the_report_shows_it(qunlearn, runs, tmp_path):
    run = tmp_path / "ft"
    shutil.copytree(runs / "ft", run)
    words = ("--reference", runs / "retrain", "--bits", "2,32,2")
    code, out, err = qunlearn("audit", "bits", run, *words, "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert found["rows"].keys() == {"2", "32"}
    assert found["changed"]["all"] > 0
    assert Run.open(run).audits["bits"]["verdict"] == found["verdict"]
    model = qu.load(run)
    spec = qu.QuantSpec()
    expected = qu.evaluate(requantized(model, spec, 2), split_of(run))
    assert found["rows"]["2"]["MIA"] == pytest.approx(expected.MIA)

    code, out, _ = qunlearn("report", run)
    assert code == 0
    page = (run / "report.html").read_text()
    assert "When the bits change" in page
    assert bits_words(finding_of(Run.open(run), "bits")) in html.unescape(page)
    for name, share in found["changed"]["layers"].items():
        assert f'<th scope="row">{name}</th><td>{share:.2f}\N{NO-BREAK SPACE}%</td>' in page

    copied = tmp_path / "copied"
    Run.open(run).copy_to(copied)
    assert (copied / AUDIT).is_file()


def split_of(run):
    return split_of_run(Run.open(run))


def test_a_width_given_twice_is_taken_once():
    assert AuditBitsConfig.parse({"bits": "3,2,3"}).bits == (3, 2)


def test_a_retrain_on_another_split_is_no_reference(qunlearn, run_folder, tmp_path):
    other = tmp_path / "other"
    train_run(TrainConfig.parse(SMALL | {"held_out": 0.3}), other)
    parts = [set(json.loads(Run.open(run).split)["parts"]["train"]) for run in (run_folder, other)]
    (tmp_path / "ids.txt").write_text("\n".join(sorted(parts[0] & parts[1])[:20]))
    for run, method in ((run_folder, "ga"), (other, "retrain")):
        asked = {"run": run, "ids": tmp_path / "ids.txt", "method": method, "threads": 1}
        forget_run(ForgetConfig.parse(asked | {"epochs": 1}), tmp_path / method)
    code, _, err = qunlearn("evaluate", tmp_path / "ga", "--reference", tmp_path / "retrain")
    assert (code, "was trained on other samples" in err) == (2, True)


def test_what_cannot_be_audited_is_said(qunlearn, run_folder, runs):
    code, _, err = qunlearn("audit", "bits", run_folder)
    assert (code, "has forgotten nothing" in err) == (2, True)
    code, _, err = qunlearn("audit", "bits", runs / "ft", "--reference", runs / "ft")
    assert (code, "was not made by Retrain" in err) == (2, True)
    twice = {"run": runs / "ft", "random": 0.1, "method": "ga", "threads": 1}
    forget_run(ForgetConfig.parse(twice), runs / "twice")  # its Retrain is without both
    code, _, err = qunlearn("audit", "bits", runs / "twice", "--reference", runs / "retrain")
    assert (code, "was retrained without other samples" in err) == (2, True)
    code, _, err = qunlearn("audit", "bits", runs / "ft", "--bits", "2,9")
    assert (code, "choose 2 to 8 bits" in err) == (2, True)
    code, _, err = qunlearn("audit", "bytes", runs / "ft")
    assert (code, "bytes" in err) == (2, True)
    assert not (runs / "ft" / AUDIT).exists()


def test_without_few_bit_weights_there_is_nothing_to_audit(qunlearn, tmp_path):
    train_run(TrainConfig.parse(SMALL | {"epochs": 1, "weight_bits": 32}), tmp_path / "o")
    asked = {"run": tmp_path / "o", "random": 0.1, "method": "ga", "threads": 1}
    forget_run(ForgetConfig.parse(asked), tmp_path / "ga")
    code, _, err = qunlearn("audit", "bits", tmp_path / "ga")
    assert (code, "are in full precision" in err, err.count("\n")) == (2, True, 1)
