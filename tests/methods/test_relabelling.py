"""RL, SalUn and Q-MUL: which labels are taught, and what stays."""

import copy

import torch
from hypothesis import given
from hypothesis import strategies as st

from qunlearn.data import Loader
from qunlearn.methods import forget, qmul, relabel
from qunlearn.methods.base import Job, other_labels
from qunlearn.methods.qmul import gradient_size, similar_labels
from qunlearn.methods.relabel import Lesson
from qunlearn.methods.salun import salient
from qunlearn.training.config import ComputeConfig
from qunlearn.training.devices import make_fabric
from qunlearn.training.objective import fastest_layout

FAST = {"batch_size": 60}


@given(st.lists(st.integers(0, 9), min_size=1, max_size=200), st.integers(0, 1000))
def test_a_random_label_is_never_the_true_one(labels, seed):
    true = torch.tensor(labels)
    drawn = other_labels(true, 10, "labels", seed)
    assert not (drawn == true).any()
    assert 0 <= int(drawn.min()) <= int(drawn.max()) <= 9


def test_random_labels_are_drawn_anew_each_epoch_and_all_wrong_ones_are_alike():
    true = torch.full((9000,), 4)
    first, second = (other_labels(true, 10, "labels", 0, epoch) for epoch in (0, 1))
    assert not torch.equal(first, second)
    counts = first.bincount(minlength=10)
    assert counts[4] == 0
    assert (counts[torch.arange(10) != 4] - 1000).abs().max() < 150  # five standard deviations


def taught(monkeypatch, trained, split, method, **settings):
    """The labels and weights that each step of a method is given, by sample."""
    seen = []

    class Spying(relabel.CrossEntropy):
        def gradients(self, epoch, step):
            rows = self.loader.batch(epoch, step).index
            seen.append((epoch, rows, self.labels[rows].clone(), self.weights[rows].clone()))
            return super().gradients(epoch, step)

    monkeypatch.setattr(relabel, "CrossEntropy", Spying)
    forget(trained, split, method, **{**FAST, "epochs": 2, **settings})
    return seen


def test_rl_teaches_wrong_labels_first_then_the_true_ones(monkeypatch, trained, asked):
    seen = taught(monkeypatch, trained, asked, "rl")
    true, forget_rows = asked.data.labels, set(asked.forget.tolist())
    for epoch in (0, 1):
        steps = [step for step in seen if step[0] == epoch]
        of_forget = [set(rows.tolist()) <= forget_rows for _, rows, _, _ in steps]
        assert of_forget == sorted(of_forget, reverse=True)  # forget batches, then retain batches
        rows = torch.cat([rows for _, rows, _, _ in steps])
        labels = torch.cat([labels for _, _, labels, _ in steps])
        assert sorted(rows.tolist()) == sorted([*asked.forget.tolist(), *asked.retain.tolist()])
        is_forget = torch.isin(rows, asked.forget)
        assert (labels == true[rows]).equal(~is_forget)


def test_mixed_order_is_one_stream(monkeypatch, trained, asked):
    seen = taught(monkeypatch, trained, asked, "rl", order="mixed", epochs=1)
    rows = torch.cat([rows for _, rows, _, _ in seen])
    assert sorted(rows.tolist()) == sorted([*asked.forget.tolist(), *asked.retain.tolist()])
    mixed = [torch.isin(rows, asked.forget).float().mean().item() for _, rows, _, _ in seen]
    assert any(0 < share < 1 for share in mixed)


def test_similar_labels_are_the_slow_versions(asked):
    torch.manual_seed(0)
    logits, labels = torch.randn(50, 10) * 3, torch.randint(0, 10, (50,))
    probabilities = logits.double().softmax(1)
    for p, y, found in zip(
        probabilities, labels.tolist(), similar_labels(logits, labels).tolist(), strict=True
    ):
        others = [k for k in range(10) if k != y]
        assert found == min(others, key=lambda k: abs(p[k] - p[y]).item())


def test_qmuls_labels_stay_with_their_samples_and_weights_are_the_slow_versions(
    monkeypatch, trained, asked
):
    seen = taught(monkeypatch, trained, asked, "qmul", epochs=1)
    data, model = asked.data, copy.deepcopy(trained).eval()

    def probabilities(row):
        return model(data.normalise(data.images[row : row + 1])).double().softmax(1)[0]

    similar = {}
    for row in asked.forget.tolist():
        p, y = probabilities(row), int(data.labels[row])
        similar[row] = min((k for k in range(10) if k != y), key=lambda k: abs(p[k] - p[y]).item())
    for _, rows, labels, _ in seen:
        for row, label in zip(rows.tolist(), labels.tolist(), strict=True):
            assert label == similar.get(row, int(data.labels[row]))

    def size(index, labels):
        norms = []
        whole = Loader(data, index, 60, augment=False, stream="measuring")
        for part in [batch.index for batch in whole.epoch(0)]:
            model.zero_grad()
            images = data.normalise(data.images[part])
            logits = model(images.to(memory_format=fastest_layout(model)))
            wanted = torch.tensor([labels(row) for row in part.tolist()])
            torch.nn.functional.cross_entropy(logits, wanted).backward()
            norms.append(sum(p.grad.norm().item() for p in model.parameters()))
        return sum(norms) / len(norms)

    g_f = size(asked.forget, lambda row: similar[row])
    g_r = size(asked.retain, lambda row: int(data.labels[row]))
    for _, rows, _, weights in seen:
        expected = torch.where(torch.isin(rows, asked.forget), g_r / (g_f + g_r), g_f / (g_f + g_r))
        assert torch.allclose(weights.double(), expected.double(), rtol=1e-3)


def test_qmuls_measuring_moves_nothing(trained, asked):
    model = copy.deepcopy(trained).train()
    before = copy.deepcopy(model.state_dict())
    loader = Loader(asked.data, asked.forget, 10)
    gradient_size(model, loader, 0, asked.data.labels)
    assert model.training
    assert all(p.grad is None for p in model.parameters())
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])


def test_qmul_takes_equal_weights_where_both_gradients_vanish(monkeypatch, trained, asked):
    monkeypatch.setattr(qmul, "gradient_size", lambda *_: 0.0)
    lessons = []
    monkeypatch.setattr(
        qmul, "Relabelled", lambda job, config, model, lesson: lessons.append(lesson(0))
    )
    monkeypatch.setattr(Job, "optimize", lambda job, config, objective: objective(job.model))
    forget(trained, asked, "qmul")
    (lesson,) = lessons
    assert isinstance(lesson, Lesson)
    assert (lesson.forget_weight, lesson.retain_weight) == (0.5, 0.5)


def test_salun_frees_the_globally_largest_gradients(trained, asked):
    model = copy.deepcopy(trained)
    job = Job(model, asked, make_fabric(ComputeConfig()))
    free = salient(job, 0.3)
    data = asked.data
    model.eval()
    loss = torch.nn.functional.cross_entropy(
        model(data.normalise(data.images[asked.forget])),
        data.labels[asked.forget],
        reduction="sum",
    )
    loss.backward()
    sizes = torch.cat([p.grad.abs().flatten() for p in model.parameters()])
    mask = torch.cat([m.flatten() for m in free])
    assert int(mask.sum()) == round(0.3 * len(sizes))
    assert sizes[mask].min() >= sizes[~mask].max() * (1 - 1e-3)


def test_saluns_frozen_weights_are_bit_identical_after_ten_epochs(trained, asked):
    job = Job(copy.deepcopy(trained), asked, make_fabric(ComputeConfig()))
    free = salient(job, 0.5)
    settings = {"share": 0.5, "epochs": 10, "lr": 0.05, "momentum": 0.9, "weight_decay": 5e-3}
    after = forget(trained, asked, "salun", **FAST, **settings).model
    moved = 0
    for mask, old, new in zip(free, trained.parameters(), after.parameters(), strict=True):
        assert torch.equal(old[~mask], new[~mask])
        moved += int((old[mask] != new[mask]).sum())
    assert moved > 0.9 * sum(int(mask.sum()) for mask in free)
