"""Going on where a loop was interrupted; see also test_interrupted, which kills commands."""

import shutil
from dataclasses import replace
from itertools import pairwise

import plain_net
import pytest
import torch
from lightning_fabric import Fabric

from qunlearn.errors import Failure, UserError
from qunlearn.methods import forget
from qunlearn.quant import Quantizer, QuantSpec, collapsed, quantize
from qunlearn.store.weights import read_header, read_tensors, write_weights
from qunlearn.training import checkpoint
from qunlearn.training.checkpoint import Checkpointer, State, fingerprint
from qunlearn.training.nonfinite import first_layer, refuse_nonfinite
from qunlearn.training.train import train

SETTINGS = {"epochs": 3, "batch_size": 60, "lr": 0.05}


class Stop(Exception):
    """The interruption."""


def made():
    torch.manual_seed(0)
    return quantize(plain_net.make(10), QuantSpec())


@pytest.fixture
def always(monkeypatch):
    """The state is kept after each step."""
    monkeypatch.setattr(checkpoint, "EVERY", 0.0)
    monkeypatch.setattr(checkpoint, "SHARE", 1e9)


@pytest.fixture(scope="module")
def checkpoint_file(digits, tmp_path_factory):
    """The checkpoint of a training, not to be changed."""
    path = tmp_path_factory.mktemp("checkpoint") / "state"
    train(made(), digits, **SETTINGS, checkpoint=path)
    return path


@pytest.fixture
def state(checkpoint_file, tmp_path):
    """A copy of it."""
    return shutil.copy(checkpoint_file, tmp_path / "state")


def interrupt_after(monkeypatch, keeps):
    """The process ends right after the state was kept so many times."""
    keep = Checkpointer.save

    def stopping(self, *arguments):
        keep(self, *arguments)
        stopping.count += 1
        if stopping.count == keeps:
            raise Stop

    stopping.count = 0
    monkeypatch.setattr(Checkpointer, "save", stopping)


@pytest.mark.parametrize("keeps", [1, 3, 4, 8, 9])  # within epochs, and at the ends of them
def test_training_goes_on_from_any_step(digits, tmp_path, always, monkeypatch, keeps):
    rows, again = [], []
    whole = train(made(), digits, **SETTINGS, on_epoch=rows.append)
    with monkeypatch.context() as interrupted:
        interrupt_after(interrupted, keeps)
        with pytest.raises(Stop):
            train(made(), digits, **SETTINGS, checkpoint=tmp_path / "state")
    model = train(made(), digits, **SETTINGS, checkpoint=tmp_path / "state", on_epoch=again.append)
    for name, tensor in whole.state_dict().items():
        assert torch.equal(model.state_dict()[name], tensor), name
    found, expected = ([replace(r, seconds=0, elapsed=0) for r in each] for each in (again, rows))
    assert found == expected


def test_each_row_has_the_seconds_of_its_epoch_and_those_elapsed(digits):
    rows = []
    train(made(), digits, **SETTINGS, on_epoch=rows.append)
    assert len(rows) > 1
    total = 0.0
    for row in rows:
        assert row.seconds > 0
        total += row.seconds
        assert row.elapsed == pytest.approx(total, abs=2e-3 * len(rows))


def test_a_checkpoint_of_something_else_is_refused(digits, tmp_path, state):
    for model, settings in ((made(), SETTINGS | {"lr": 0.1}), (plain_net.make(10), SETTINGS)):
        with pytest.raises(UserError, match="does not match this run"):
            train(model, digits, **settings, checkpoint=state)
    asked = digits.forget_random(0.1)
    forget(made_trained(digits), asked, "ft", epochs=1, checkpoint=tmp_path / "forget")
    with pytest.raises(UserError, match="does not match this run"):
        forget(made_trained(digits), asked, "rl", epochs=1, checkpoint=tmp_path / "forget")


def made_trained(digits):
    return train(made(), digits, **SETTINGS)


def test_a_damaged_checkpoint_is_said_to_be(digits, state):
    whole = state.read_bytes()
    for content in (b"", whole[:100], whole.replace(b"model/", b"modxl/")):
        state.write_bytes(content)
        with pytest.raises(UserError, match="is damaged"):
            train(made(), digits, **SETTINGS, checkpoint=state)


FORGED = {
    "threads": [10**9, 0, "2", None, True],
    "epoch": ["1", -1, None, 1.5],
    "step": [-(10**9), [], True],
    "seconds": ["now", -1.0],
    "compiled": ["yes"],
    "rows": [{}, [1], "rows", [{}], [{"epoch": 1, "seconds": 1, "loss": "x"}]],
    "more": [1],
}


@pytest.mark.parametrize(("name", "value"), [(n, v) for n, all_ in FORGED.items() for v in all_])
def test_a_checkpoint_with_sums_that_agree_may_still_be_forged(digits, state, name, value):
    header, tensors = read_header(state), read_tensors(state)
    del header["sum"]
    (header if name in header else header["state"])[name] = value
    write_weights(state, tensors, {**header, "sum": checkpoint.digest(tensors, header)})
    threads = torch.get_num_threads()
    with pytest.raises(UserError, match="is invalid"):
        train(made(), digits, **SETTINGS, checkpoint=state)
    assert torch.get_num_threads() == threads


def test_so_may_its_tensors(digits, state):
    header = read_header(state)
    del header["sum"]
    tensors = {
        name.replace("model/", "other/"): tensor for name, tensor in read_tensors(state).items()
    }
    write_weights(state, tensors, {**header, "sum": checkpoint.digest(tensors, header)})
    with pytest.raises(UserError, match="is invalid"):
        train(made(), digits, **SETTINGS, checkpoint=state)


def test_the_fingerprint_tells_weights_settings_and_samples_apart():
    one, other = plain_net.make(10), plain_net.make(10)
    with torch.no_grad():
        next(other.parameters()).view(-1)[0] += 1e-6
    index = torch.arange(5)
    prints = [
        fingerprint(one, "ft", index),
        fingerprint(other, "ft", index),
        fingerprint(one, "rl", index),
        fingerprint(one, "ft", index + 1),
    ]
    assert len(set(prints)) == 4
    assert fingerprint(one, "ft", index) == prints[0]


def test_keeping_the_state_costs_no_more_than_its_share(tmp_path, monkeypatch):
    """With a clock of our own: an hour of steps of 0.1 s, where keeping takes 2 s."""
    clock = [0.0]
    monkeypatch.setattr(checkpoint.time, "perf_counter", lambda: clock[0])

    def slow_write(*arguments):
        clock[0] += 2.0

    monkeypatch.setattr(checkpoint, "write_weights", slow_write)
    checkpointer = Checkpointer(tmp_path / "state", "")
    model = plain_net.make(10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    fabric, kept = Fabric(accelerator="cpu", devices=1), []
    while clock[0] < 3600:
        clock[0] += 0.1
        if checkpointer.due(epoch_ended=int(clock[0] * 10) % 50 == 0):
            checkpointer.save(State(), model, optimizer, fabric)
            kept.append(clock[0])
    spent = 2.0 * len(kept)
    assert spent <= (checkpoint.SHARE + 0.001) * clock[0]
    # The first is written at once; the second waits until both are worth their time.
    assert kept[0] < 10
    assert max(b - a for a, b in pairwise(kept)) <= 2 * 2.0 / checkpoint.SHARE + 5


# Numbers that go wrong


def test_the_layer_is_named_where_numbers_go_wrong(digits):
    model = plain_net.make(10)
    names = [name for name, m in model.named_modules() if isinstance(m, torch.nn.Conv2d)]
    with torch.no_grad():
        model.get_submodule(names[1]).weight.view(-1)[0] = torch.nan
    with pytest.raises(Failure, match=rf"epoch 1, step 1, first in the output of {names[1]};"):
        train(model, digits, **SETTINGS)


class Exploding(torch.autograd.Function):
    """Finite forwards, infinite backwards."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient / 0


def test_a_gradient_that_explodes_is_found_though_the_loss_is_fine():
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 2))
    loss = torch.zeros(())

    def again():
        hidden = Exploding.apply(model[0](torch.ones(1, 3)))
        model[1](hidden).sum().backward()

    again()
    with pytest.raises(Failure, match="The gradient became NaN or infinite in here, first in the"):
        refuse_nonfinite(model, {"loss": loss}, again, "here")
    assert first_layer(model, again) == "the gradient of 0.bias"
    refuse_nonfinite(model, {"loss": loss}, again, "here", scaled=True)


def test_the_last_checkpoint_outlives_numbers_that_go_wrong(digits, tmp_path, always):
    path = tmp_path / "state"
    with pytest.raises(Failure, match="the last good checkpoint is kept"):
        train(made(), digits, epochs=3, batch_size=60, lr=1e30, checkpoint=path)
    assert path.exists()


@pytest.mark.parametrize("quantizer", ["lsq", "lsq+", "pact", "dsq"])
def test_a_scale_that_comes_down_to_zero_is_kept_positive_and_reported(digits, quantizer):
    model = train(quantize(plain_net.make(10), QuantSpec(quantizer=quantizer)), digits, epochs=1)
    assert collapsed(model) == []
    name, inner = [(n, m) for n, m in model.named_modules() if isinstance(m, Quantizer)][-1]
    with torch.no_grad():
        for parameter in inner.parameters():
            parameter.fill_(-1.0)
    assert (inner.grid().scale > 0).all()
    rows = []
    with pytest.warns(UserWarning, match=f"The scale of {name} has collapsed to zero"):
        train(model, digits, epochs=1, lr=1e-9, on_epoch=rows.append)
    assert rows[0].collapsed == (name,)


def test_a_state_that_has_gone_wrong_is_not_kept(digits, tmp_path, always):
    """With a rate beyond all measure the weights go wrong a step before the loss does."""
    path = tmp_path / "state"
    with pytest.raises(Failure, match="the last good checkpoint is kept"):
        train(plain_net.make(10), digits, epochs=30, batch_size=60, lr=1e30, checkpoint=path)
    if path.exists():
        tensors = read_tensors(path)
        assert all(torch.isfinite(t).all() for t in tensors.values() if t.is_floating_point())


def test_a_single_flipped_bit_of_a_checkpoint_is_found(digits, state):
    content = bytearray(state.read_bytes())
    content[-1000] ^= 1
    state.write_bytes(content)
    with pytest.raises(UserError, match="is damaged; delete it, and --resume restarts"):
        train(made(), digits, **SETTINGS, checkpoint=state)
