import json

import pytest
import torch

from qunlearn.errors import UserError
from qunlearn.report.words import conflict_words
from qunlearn.runs.explain import Conflict, conflict_of
from qunlearn.store.run import Run


def made(cosine) -> Conflict:
    cosine = torch.tensor(cosine)
    layers = tuple(f"layer{i}" for i in range(len(cosine)))
    steps = tuple(float(i) for i in range(cosine.shape[1]))
    return Conflict(layers, steps, cosine, torch.full_like(cosine, 0.5))


def test_the_words_name_the_layers_and_the_trend():
    words = conflict_words(
        made([[0.1, 0.2, -0.1, -0.2], [0.3, 0.3, 0.3, 0.3], [-0.1, -0.1, -0.1, -0.1]])
    )
    assert "50 % of the sampled steps" in words
    assert "Most often in layer2 (100 %), layer0 (50 %);" in words
    assert "least in layer1 (0 %)" in words
    assert "rose (33 % to 67 %)" in words
    assert "left 50 % of the forget gradient's length" in words


def test_no_conflict_names_no_layer():
    assert "Most often" not in conflict_words(made([[0.1, 0.2], [0.3, 0.3]]))


def test_one_step_has_no_trend():
    assert "second" not in conflict_words(made([[0.1]]))


def row(epoch):
    return {"epoch": epoch, "seconds": 0.5, "elapsed": 0.5}


def run_with(tmp_path, monkeypatch, *rows):
    path = tmp_path / "run"
    path.mkdir(exist_ok=True)
    (path / "history.jsonl").write_text("\n".join(map(json.dumps, rows)))
    monkeypatch.setattr(Run, "open", classmethod(lambda cls, path: cls(path)))
    return path


def test_the_record_is_read_back(tmp_path, monkeypatch):
    rows = [
        {
            **row(epoch),
            "conflict": {
                "layers": ["a", "b"],
                "steps": [0, 5],
                "share_in_conflict": [0.5, 0.0],
                "cosine": [[-0.5, 0.5], [0.1 * epoch, 0.2]],
                "forget_norm": [[2.0, 0.0], [1.0, 1.0]],
                "projected_norm": [[1.0, 0.0], [1.0, 0.5]],
                "retain_norm": [[1.0, 1.0], [1.0, 1.0]],
            },
        }
        for epoch in (1, 2)
    ]
    conflict = conflict_of(run_with(tmp_path, monkeypatch, row(0), *rows))
    assert conflict.layers == ("a", "b")
    assert conflict.steps == pytest.approx((0, 5 / 6, 1, 1 + 5 / 6))
    expected = torch.tensor([[-0.5, 0.1, -0.5, 0.2], [0.5, 0.2, 0.5, 0.2]])
    assert torch.allclose(conflict.cosine, expected)
    assert torch.allclose(conflict.kept, torch.tensor([[0.5, 1, 0.5, 1], [1, 0.5, 1, 0.5]]))
    assert conflict.in_conflict().tolist() == [0.5, 0.0]


def test_a_run_without_a_record_is_told_apart(run_folder):
    with pytest.raises(UserError, match="only methods that project the gradient write one"):
        conflict_of(run_folder)


ONE = {"layers": ["a"], "steps": [0], "share_in_conflict": [0]}
ONE |= {name: [[1]] for name in ("cosine", "forget_norm", "projected_norm", "retain_norm")}


@pytest.mark.parametrize(
    "bad",
    [
        *({}, [], {"layers": ["a"], "steps": [0], "cosine": "no"}, ONE | {"steps": [-1]}),
        *(ONE | {"cosine": [[1], [1]]}, ONE | {"layers": [], "cosine": []}),
        *(ONE | {"forget_norm": [[1, 2]]}, ONE | {"layers": ["a", "b"]}),
    ],
)
def test_an_invalid_record_is_named(bad, tmp_path, monkeypatch):
    assert conflict_of(run_with(tmp_path, monkeypatch, row(1) | {"conflict": ONE})).layers == ("a",)
    path = run_with(tmp_path, monkeypatch, row(1) | {"conflict": bad})
    with pytest.raises(UserError, match="is invalid"):
        conflict_of(path)
