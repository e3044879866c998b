"""Audits on networks whose answer is known: an original, Retrains, and one that only hides."""

import copy
import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from conftest import trained_once
from scipy.stats import binomtest, norm
from torch import nn

import qunlearn as qu
from qunlearn.audit import NotApplicable
from qunlearn.audit.case import Case, Controls
from qunlearn.audit.copies import (
    KEPT,
    CopiesConfig,
    copies,
    features,
    perceptual_hash,
)
from qunlearn.audit.differ import DifferAudit, differ, separations
from qunlearn.audit.relearn import (
    RelearnAudit,
    RelearnConfig,
    Relearned,
    Traced,
    control_of,
    excess_of,
    half_back,
    relearn,
    shown_samples,
)
from qunlearn.audit.row import LEVEL
from qunlearn.audit.shadow import ShadowConfig
from qunlearn.data import Split
from qunlearn.errors import UserError
from qunlearn.metrics.bootstrap import Interval
from qunlearn.metrics.retrain_free import retrain_free_divergence
from qunlearn.report.audits import reason_words
from qunlearn.training.inference import predict

CLASSES = 4
SHORT = RelearnConfig(steps=30, shown=(0, 5))


@pytest.fixture(scope="module")
def split():
    """Noise with labels by chance: whatever is known of a sample is remembered."""
    chance = np.random.default_rng(0)
    images = chance.integers(0, 256, (560, 8, 8, 1), dtype=np.uint8)
    labels = np.arange(560) % CLASSES
    data = qu.Data(train=(images[:400], labels[:400]), test=(images[400:], labels[400:]))
    return Split.random(data, fraction=0.25, held_out=0.2)


def network(seed):
    torch.manual_seed(seed)
    layers = [nn.Flatten(), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU()]
    return qu.quantize(nn.Sequential(*layers, nn.Linear(64, CLASSES)), qu.QuantSpec(4, 8))


@pytest.fixture(scope="module")
def nets(split, tmp_path_factory):
    """The original, and two Retrains."""

    def trained(name, seed, part):
        settings = {"epochs": 30, "batch_size": 32, "lr": 0.05, "seed": seed, "part": part}
        return trained_once(
            tmp_path_factory,
            f"attacked {name}",
            lambda: network(seed),
            lambda model: qu.train(model, split, **settings),
        )

    retrains = {f"retrain {seed}": trained(f"retrain {seed}", seed, "retain") for seed in (1, 2)}
    return {"original": trained("original", 0, "train"), **retrains}


@pytest.fixture(scope="module")
def hiding(nets, split):
    """The original with another last layer, which answers on forgotten samples as by chance."""
    net = copy.deepcopy(nets["original"])
    last, labels = net[-1], split.data.labels
    with torch.no_grad():
        known = [
            net[:-1](split.data.normalise(split.data.images[part]))
            for part in (split.forget, split.retain)
        ]
    optimizer = torch.optim.Adam([last.weight, last.bias], 0.02)
    uniform = torch.full((len(split.forget), CLASSES), 1 / CLASSES)
    for _ in range(60):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(last(known[0]), uniform)
        (loss + nn.functional.cross_entropy(last(known[1]), labels[split.retain])).backward()
        optimizer.step()
    return net.eval()


def case_of(model, nets, split, reference=True):
    retrain = nets["retrain 2"] if reference else None
    return Case(model, split, before=nets["original"], retrain=retrain)


@pytest.mark.parametrize("reference", [True, False])
def test_an_untouched_original_fails(nets, split, reference):
    case = case_of(nets["original"], nets, split, reference)
    assert relearn(case, SHORT).row().verdict == "fail"
    assert differ(case, ShadowConfig()).row().verdict == "fail"


def test_a_retrain_passes(nets, split):
    case = case_of(nets["retrain 1"], nets, split)
    assert relearn(case, SHORT).row().verdict == "pass"
    assert differ(case, ShadowConfig()).row().verdict == "pass"
    alone = case_of(nets["retrain 1"], nets, split, reference=False)
    assert relearn(alone, SHORT).row().verdict != "fail"
    row = differ(alone, ShadowConfig()).row()
    assert (row.verdict, row.reason) == ("cannot be told", "no Retrain")


def test_another_last_layer_does_not_withstand_fine_tuning(nets, hiding, split):
    case = case_of(hiding, nets, split)
    audit = relearn(case, SHORT)
    assert audit.row().verdict == "fail"
    first = audit.curves[0].points[0]
    assert first.confidence < 60 < audit.curves[-1].points[-1].confidence
    assert audit.forgotten == pytest.approx(100 - first.confidence, abs=8)


def test_what_is_shown_is_not_measured(nets, split):
    shown = shown_samples(split, 5, seed=0)
    counts = split.data.labels[split.forget].bincount().tolist()
    assert len(shown) == sum(min(5, count // 2) for count in counts)
    assert set(shown.tolist()) <= set(split.forget.tolist())
    audit = relearn(case_of(nets["retrain 1"], nets, split), replace_steps(2))
    assert [curve.samples for curve in audit.curves] == [
        len(split.forget),
        len(split.forget) - len(shown),
    ]
    assert [point.steps for point in audit.curves[0].points] == [0, 1, 2]


def test_networks_beside_one_retrain_share_its_curves(nets, split, monkeypatch):
    from qunlearn.audit import relearn as audit

    ran, usual = [], audit.fine_tune
    monkeypatch.setattr(audit, "fine_tune", lambda *a, **k: ran.append(1) or usual(*a, **k))
    controls = Controls()
    for name, seed, runs in (("original", 0, 4), ("retrain 1", 0, 2), ("original", 1, 4)):
        case = replace(case_of(nets[name], nets, split), seed=seed)
        ran.clear()
        shared = relearn(replace(case, controls=controls), replace_steps(2))
        assert len(ran) == runs
        assert shared == relearn(case, replace_steps(2))
    changed = copy.deepcopy(nets["retrain 2"])
    with torch.no_grad():
        changed[-1].bias[0] += 1e-3
    ran.clear()
    relearn(replace(case, retrain=changed, controls=controls), replace_steps(2))
    assert len(ran) == 4
    assert controls.saved > 0


def replace_steps(steps):
    return RelearnConfig(steps=steps, shown=(0, 5))


def test_fewer_than_no_samples_cannot_be_shown():
    with pytest.raises(UserError, match="shown = '-1' is invalid: choose 0 or more"):
        RelearnConfig.parse({"shown": "0,-1"})


def test_the_control_follows_the_request(nets, split):
    model = nets["original"]
    ids = [split.data.ids[row] for row in split.forget.tolist()[:20]]
    base = Split.make(split.data, held_out=0.2)
    for request, control in (
        (base.forget_random(0.1), "unseen samples"),
        (base.forget_class(1), "class-wise"),
        (base.forget_ids(ids), "rise"),
    ):
        assert control_of(Case(model, request)) == control
    assert control_of(Case(model, base.forget_ids(ids), retrain=model)) == "Retrain"


def test_without_the_network_before_there_is_no_difference(nets, split):
    with pytest.raises(NotApplicable, match="before forgetting is not available"):
        differ(Case(nets["original"], split), ShadowConfig())
    run = SimpleNamespace(config={"run": "runs/moved"})
    with pytest.raises(NotApplicable, match="forgotten from, 'runs/moved'"):
        differ(Case(nets["original"], split, run=run), ShadowConfig())


def made_up(chance, shift, count):
    """Logits of two classes whose log-odds of the truth are normal around a shift."""
    odds = torch.from_numpy(chance.normal(shift, 1.0, count))
    return torch.stack([odds, torch.zeros(count, dtype=torch.float64)], 1)


PARTS = {"forgotten": 100, "unseen": 300, "retained": 300}
LABELS = {name: torch.zeros(count, dtype=torch.int64) for name, count in PARTS.items()}


def pair(seed, shift, retrain_shift):
    """A network before, one after and a Retrain: forgotten samples fall by a shift."""
    chance = np.random.default_rng(seed)
    before = {name: made_up(chance, 0, count) * 0 for name, count in PARTS.items()}
    after, retrain = (
        {n: made_up(chance, -s if n == "forgotten" else 0, c) for n, c in PARTS.items()}
        for s in (shift, retrain_shift)
    )
    return separations(before, after, retrain, LABELS)


def audit_of(rows):
    return DifferAudit(rows, Interval(0.6, 0.7), None, None, PARTS)


def test_the_auc_of_made_up_networks_is_the_closed_form():
    rows = {(row.score, row.against): row for row in pair(0, 1.5, 1.5)}
    true = norm.cdf(1.5 / np.sqrt(2))
    for row in (rows["log-odds", "unseen"], rows["loss", "retained"]):
        assert row.interval.contains(true)
        assert row.tpr[1] is None  # of 300 negatives


def test_false_alarms_are_as_rare_as_stated():
    failed = [audit_of(pair(seed, 1.0, 1.0)).judged().verdict == "fail" for seed in range(20)]
    assert binomtest(sum(failed), 20, 0.05, alternative="greater").pvalue > 0.01


def relearned(seed, control, back):
    """The verdict on made-up curves: each network's confidences are one sample's, and noise."""
    chance = np.random.default_rng(seed)

    def confidences(count, hard, points):
        ends = [hard + chance.normal(0, 8, count) for _ in range(2)]
        return torch.from_numpy(np.stack([ends[0], ends[1] + points], 1))

    curves = []
    for shown in (0, 1, 10):
        hard = [chance.uniform(30, 90, count) for count in (200, 300)]
        traces = [
            Traced((), confidences(200, hard[0], points), confidences(300, hard[1], 0))
            for points in (back, 0)
        ]
        excess, interval = excess_of(control, traces, 2 * LEVEL / 3)
        curves.append(Relearned(shown, 200, (), (), excess, interval))
    return RelearnAudit(control, tuple(curves), 300).judged().verdict


@pytest.mark.parametrize("control", ["Retrain", "unseen samples", "rise"])
def test_relearning_fails_like_networks_no_more_often_than_stated(control, monkeypatch):
    from qunlearn.metrics import bootstrap

    monkeypatch.setattr(bootstrap.bootstrap_interval, "__kwdefaults__", FEWER_DRAWS)
    failed = [relearned(seed, control, 0) == "fail" for seed in range(20)]
    assert binomtest(sum(failed), 20, LEVEL, alternative="greater").pvalue > 0.01
    assert relearned(0, control, 25) == "fail"


FEWER_DRAWS = {"level": 0.05, "draws": 100, "seed": 0}


def test_more_and_less_than_retrain_fail():
    more, less = (audit_of(pair(0, *shifts)).row() for shifts in ((3.0, 0.5), (0.0, 2.0)))
    assert "tells more than Retrain's, against" in reason_words(more)
    assert "changed less than Retrain's, against" in reason_words(less)


def test_half_back_takes_off_what_unseen_samples_gain(nets, split):
    curve = relearn(case_of(nets["original"], nets, split), replace_steps(2)).curves[0].points
    assert half_back(curve, curve[0], None) is None
    assert half_back(curve, replace(curve[0], confidence=0.0), 20.0) == 0


def test_retrain_free_divergence_is_the_slow_one(nets, split):
    labels = split.data.labels
    after, before = nets["retrain 1"], nets["original"]
    forgotten = predict(after, split.data, split.forget)
    unseen = predict(before, split.data, split.held_out)
    slow = []
    for c in range(CLASSES):
        p = slow_mean(forgotten, labels[split.forget], c)
        q = slow_mean(unseen, labels[split.held_out], c)
        m = (p + q) / 2
        slow.append(0.5 * sum(p * np.log(p / m)) + 0.5 * sum(q * np.log(q / m)))
    fast = retrain_free_divergence(forgotten, labels[split.forget], unseen, labels[split.held_out])
    assert fast == pytest.approx(np.mean(slow), rel=1e-6)


def slow_mean(logits, labels, wanted):
    rows = zip(logits.double().numpy(), labels.tolist(), strict=True)
    return np.mean([np.exp(row) / np.exp(row).sum() for row, label in rows if label == wanted], 0)


# Copies: photographs of a kind, since noise has nothing left once it is resized.


def photos(count, seed):
    """Smooth images: some waves each."""
    chance = np.random.default_rng(seed)
    y, x = np.mgrid[0:32, 0:32] / 32
    images = []
    for _ in range(count):
        image = np.zeros((32, 32))
        for _ in range(8):
            a, b, phase = chance.uniform(-4, 4), chance.uniform(-4, 4), chance.uniform(0, 7)
            image += chance.normal() * np.cos(2 * np.pi * (a * x + b * y) + phase)
        images.append(np.interp(image, (image.min(), image.max()), (0, 255)))
    return np.stack(images).astype(np.uint8)


def planted(kind, image):
    """A copy of an image, as somebody else would have it."""
    import io

    from PIL import Image

    picture = Image.fromarray(image)
    if kind == "resized":
        return np.asarray(picture.resize((20, 20)).resize((32, 32)))
    if kind == "cropped":
        return np.asarray(picture.crop((2, 2, 30, 30)).resize((32, 32)))
    if kind == "mirrored":
        return image[:, ::-1]
    memory = io.BytesIO()
    picture.save(memory, "JPEG", quality=30)
    return np.asarray(Image.open(memory))


KINDS = ("resized", "cropped", "mirrored", "recompressed")


def with_copies(kinds):
    """A split of 40 forgotten of 340 samples; of the first ones there are copies."""
    images = photos(340, 0)
    for place, kind in enumerate(kinds):
        images[100 + place] = planted(kind, images[place])
    labels = np.arange(340) % CLASSES
    data = qu.Data(train=(images[..., None], labels), test=(images[:4, ..., None], labels[:4]))
    base = Split.make(data, held_out=[])
    return base.forget_ids([base.data.ids[row] for row in range(40)])


def tiny(seed=0):
    torch.manual_seed(seed)
    layers = [nn.Conv2d(1, 8, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 15 * 15, 4)]
    return nn.Sequential(*layers).eval()


def test_planted_copies_are_found():
    split = with_copies(KINDS * 2)
    audit = copies(Case(tiny(), split), CopiesConfig())
    assert audit.row().verdict == "fail"
    by_hash = {(c.forgotten, c.retained) for c in audit.copies if c.by == "hash"}
    ids = split.data.ids
    assert {(ids[i], ids[100 + i]) for i in range(8)} <= by_hash
    assert len(by_hash) <= 8 + 3  # and hardly any other


def test_unrelated_samples_are_flagged_at_the_stated_rate():
    audit = copies(Case(tiny(), with_copies(())), CopiesConfig(false_alarms=0.1))
    assert audit.row().verdict == "pass"
    for way in audit.ways:
        assert way.rate <= 0.1
        assert binomtest(way.flagged, audit.samples, 0.1, alternative="greater").pvalue > 0.01


def test_neighbours_are_looked_for_block_by_block(monkeypatch):
    """As one pair after the other gives, with few images in memory at a time."""
    module = sys.modules[copies.__module__]
    monkeypatch.setattr(module, "BLOCK", 32)
    monkeypatch.setattr(module, "COMPARED", 3)
    sizes = []

    def hashed(images, view):
        sizes.append(len(images))
        return perceptual_hash(images, view)

    monkeypatch.setattr(module, "perceptual_hash", hashed)
    split = with_copies(KINDS)
    near = module.by_hash(split)
    assert max(sizes) == 32
    hashes = [perceptual_hash(split.data.images, view) > 0 for view in module.VIEWS]

    def differing(one, other):
        pairs = [(view[one], hashes[0][other]) for view in hashes]
        pairs += [(hashes[0][one], view[other]) for view in hashes]
        return min(int((a != b).sum()) for a, b in pairs)

    retain = split.retain.tolist()
    for sample, distance, place in zip(
        split.forget[:5], near.distances[:5], near.nearest[:5], strict=True
    ):
        slow = [differing(sample, other) for other in retain]
        assert (min(slow), slow[place]) == (distance, distance)
    for sample, distance in zip(retain[::100], near.different, strict=True):
        assert min(differing(sample, other) for other in retain if other != sample) == distance


def test_the_hash_is_that_of_a_slow_transform():
    from scipy.fft import dctn

    images = torch.rand(3, 1, 32, 32, dtype=torch.float64)
    for image, row in zip(images, perceptual_hash(images), strict=True):
        content = dctn(image[0].numpy(), norm="ortho")[:KEPT, :KEPT].flatten()
        above = content > np.sort(content[1:])[31]
        assert torch.equal(row > 0, torch.from_numpy(above))


def test_features_are_what_the_last_layer_gets(split, nets):
    net = nets["original"]
    index = split.forget[:5]
    own = net[:-1](split.data.normalise(split.data.images[index])).detach().double()
    expected = own / own.norm(dim=1, keepdim=True)
    assert torch.allclose(features(net, split, index), expected, atol=1e-5)
