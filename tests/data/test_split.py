from __future__ import annotations

import dataclasses
import hashlib
import json
from collections import Counter

import pytest
import torch
from data.toy_data import make_data
from hypothesis import given, settings
from hypothesis import strategies as st

from qunlearn.data import Split
from qunlearn.errors import UserError
from qunlearn.report.words import outcome_words


def names(split, rows):
    return {split.data.ids[row] for row in rows.tolist()}


@settings(max_examples=60, deadline=None)
@given(
    labels=st.lists(st.integers(0, 3), min_size=6, max_size=80),
    share=st.floats(0.02, 0.9),
    fraction=st.floats(0.2, 0.8),
    seed=st.integers(0, 10**6),
)
def test_parts_are_disjoint_complete_and_stratified(labels, share, fraction, seed):
    data = make_data(labels, [0, 1, 2], size=1)
    split = Split.make(data, held_out=share, seed=seed)
    have = Counter(labels)
    held = Counter(data.labels[split.held_out].tolist())
    for label, count in have.items():
        wanted = min(max(round(share * count), 1), count - 1)
        assert held[label] == wanted
    if not 0 < round(fraction * len(split.train)) < len(split.train):
        return
    split = split.forget_random(fraction)
    parts = list(split.parts().values())
    together = torch.cat(parts)
    assert sorted(together.tolist()) == list(range(len(data)))
    assert len(split.forget) == round(fraction * len(split.train))
    assert set(split.test.tolist()) == {len(labels), len(labels) + 1, len(labels) + 2}
    assert all(torch.equal(part, part.sort().values) for part in parts)


def test_draws_follow_the_seed_and_do_not_repeat_for_later_requests(toy):
    one, same = Split.random(toy, 0.3, seed=1), Split.random(toy, 0.3, seed=1)
    assert one.digest == same.digest
    assert one.digest != Split.random(toy, 0.3, seed=2).digest
    # Two draws with one seed are independent: together they are not one larger draw.
    twice = Split.random(toy, 0.25, seed=1).forget_random(1 / 3)
    larger = Split.random(toy, 0.5, seed=1)
    assert len(twice.forgotten) == len(larger.forgotten) == 18
    assert names(twice, twice.forgotten) != names(larger, larger.forgotten)
    explicit = Split.make(toy, seed=1).forget_random(0.3, seed=9)
    assert names(explicit, explicit.held_out) == names(one, one.held_out)
    assert names(explicit, explicit.forget) != names(one, one.forget)


def test_draws_depend_on_ids_not_on_the_order_of_the_set(toy):
    backwards = toy.take(torch.arange(47, -1, -1))
    one, other = Split.random(toy), Split.random(backwards)
    for part, rows in one.parts().items():
        assert names(one, rows) == names(other, other.parts()[part])


def test_later_requests_add_to_earlier_ones(toy):
    split = Split.make(toy)
    first = toy.ids[int(split.train[0])]
    split = split.forget_ids([first]).forget_random(0.2).forget_class("duck")
    assert [request.kind for request in split.requests] == ["ids", "random", "class"]
    assert list(split.parts()) == ["retain", "forget", "forget_1", "forget_2", "held_out", "test"]
    assert names(split, split.earlier[0]) == {first}
    assert len(split.forgotten) == len(split.forget) + sum(map(len, split.earlier))
    assert set(toy.labels[split.forget].tolist()) == {2}
    assert 2 not in toy.labels[split.retain]
    assert len(split.retain) + len(split.forgotten) == len(split.train)


def test_without_a_request_there_is_nothing_to_forget(toy):
    split = Split.make(toy)
    assert list(split.parts()) == ["train", "held_out", "test"]
    assert torch.equal(split.retain, split.train)
    assert len(split.forgotten) == 0
    with pytest.raises(UserError, match="has no request to forget"):
        _ = split.forget


@pytest.mark.parametrize("given_", [3, "3", "fish"])
def test_class_by_number_or_name(toy, given_):
    split = Split.of_class(toy, given_)
    assert names(split, split.forget) == {
        toy.ids[row] for row in split.train.tolist() if toy.labels[row] == 3
    }
    assert split.requests[0].detail == {"classes": ["fish"]}
    assert len(Split.of_class(toy, 1, "fish").forget) == 18


def test_trained_elsewhere(toy):
    seen = [f"train/{k}" for k in range(20)]
    split = Split.make(toy, trained_on=seen, held_out=["train/30", "test/5"])
    assert names(split, split.train) == set(seen)
    assert names(split, split.held_out) == {"train/30", "test/5"}
    assert names(split, split.test) == {f"test/{k}" for k in range(8) if k != 5}
    with pytest.raises(UserError, match=r"1 in no part of the split \('train/31'\)"):
        split.forget_ids(["train/31"])
    with pytest.raises(UserError, match="both as trained on and as held out"):
        Split.make(toy, trained_on=seen, held_out=["train/3"])
    with pytest.raises(UserError, match="cannot be drawn at random"):
        Split.make(toy, trained_on=seen)
    assert len(Split.make(toy, held_out=["test/0"]).train) == 40


def test_what_cannot_be_forgotten_is_refused(toy):
    split = Split.make(toy)
    trained = [toy.ids[row] for row in split.train.tolist()]
    once = split.forget_ids(trained[:2])
    for call, message in [
        (lambda: split.forget_ids([trained[0], trained[0]]), "listed twice"),
        (lambda: split.forget_ids(["train/99"]), r"1 unknown \('train/99'\): ids look like"),
        (lambda: split.forget_ids([trained[0].split("/")[1]]), f"did you mean '{trained[0]}'"),
        (lambda: split.forget_ids("train/1"), "give a list"),
        (lambda: split.forget_ids([3]), "3 is not a string"),
        (lambda: once.forget_ids(trained[1:3]), "1 already forgotten"),
        (lambda: split.forget_ids([]), "nothing to forget"),
        (lambda: split.forget_ids(trained), "Nothing would be retained"),
        (lambda: split.forget_random(0.001), "nothing to forget"),
        (lambda: split.forget_random(0.0), "fraction to forget is 0.0"),
        (lambda: split.forget_random(1.0), "fraction to forget is 1.0"),
        (lambda: split.forget_random(float("nan")), "fraction to forget is nan"),
        (lambda: split.forget_class("dgo"), "no class 'dgo' in toy: did you mean 'dog'"),
        (lambda: split.forget_class(4), "no class 4 .* 0 to 3"),
        (lambda: split.forget_class(-1), "no class -1"),
        (lambda: split.forget_class(0, 1, 2, 3), "Nothing would be retained"),
        (lambda: split.forget_class(0).forget_class(0), "nothing to forget"),
        (lambda: split.forget_where("user == 1"), "there is no metadata"),
        (lambda: Split.make(toy, held_out=1.5), "fraction to hold out is 1.5"),
        (lambda: Split.make(toy, held_out=list(toy.ids[:40])), "hold out fewer"),
    ]:
        with pytest.raises(UserError, match=message):
            call()


def test_forget_where(toy):
    users = tuple(str(k % 5) if k < 30 else "" for k in range(48))
    data = dataclasses.replace(toy, metadata={"user": users})
    before = Split.make(data)
    split = before.forget_where("user == 3 and class != dog")
    fits = {f"train/{k}" for k in range(30) if k % 5 == 3 and k % 4 != 1}
    assert names(split, split.forget) == fits & names(split, split.train)
    assert set(split.requests[0].retired) == fits & names(before, before.held_out) != set()
    assert Split.where(data, "user == 3 and class != dog").digest == split.digest
    with pytest.raises(UserError, match=r"column 'usr': did you mean 'user'"):
        split.forget_where("usr == 3")
    with pytest.raises(UserError, match="nothing to forget: the rule matches"):
        split.forget_where("user == 99")


def test_no_message_quotes_what_a_rule_compares_with(toy):
    """It may name a person, and what is printed ends up in logs."""
    data = dataclasses.replace(toy, metadata={"user": tuple(map(str, range(48)))})
    for split, rule, told in (
        (Split.make(toy), "user == 'anna@x.org'", "there is no metadata"),
        (Split.make(toy), "'anna@x.org' == user", "there is no metadata"),
        (Split.make(data), "user > 'anna@x.org'", "holds numbers, which have no order with a text"),
        (Split.make(data), "'anna@x.org' == user", "a value before the column"),
        (Split.make(data), "user == 'anna@x.org'", "nothing to forget"),
    ):
        with pytest.raises(UserError, match=told) as refused:
            split.forget_where(rule)
        assert "anna" not in str(refused.value)


def test_manifest_holds_every_id_with_its_hash(toy):
    split = Split.of_class(toy, 1)
    value = json.loads(split.to_json())
    assert value["format"] == 1
    assert (value["dataset"], value["seed"]) == ("toy", 0)
    for part in ("train", "held_out", "test"):
        rows = getattr(split, part)
        assert value["parts"][part] == dict(
            zip([toy.ids[row] for row in rows.tolist()], toy.hashes(rows), strict=True)
        )
    assert set(value["requests"][0]["ids"]) == names(split, split.forget)
    assert split.digest == hashlib.sha256(split.to_json().encode()).hexdigest()


def test_manifest_comes_back_the_same(toy):
    split = Split.random(toy, 0.3, seed=4).forget_class(2)
    again = Split.from_json(split.to_json(), toy)
    assert again.digest == split.digest
    assert again.requests == split.requests
    for part, rows in split.parts().items():
        assert torch.equal(rows, again.parts()[part])


def test_changed_and_missing_samples_are_named(toy):
    text = Split.random(toy, 0.2).to_json()
    images = toy.images.clone()
    images[17, 0, 0, 0] ^= 1
    with pytest.raises(UserError, match=r"of 48 samples that are used, 1 changed \('train/17'\)"):
        Split.from_json(text, dataclasses.replace(toy, images=images))
    kept = torch.tensor([row for row in range(48) if toy.ids[row] != "test/3"])
    with pytest.raises(UserError, match=r"1 missing \('test/3'\) and 1 changed \('train/17'\)"):
        Split.from_json(text, dataclasses.replace(toy, images=images).take(kept))


def test_forgotten_samples_may_be_erased_and_the_manifest_stays_the_same(toy):
    split = Split.of_class(toy, 1).forget_random(0.2)
    gone = set(split.earlier[0].tolist())
    left = toy.take(torch.tensor([row for row in range(48) if row not in gone]))
    again = Split.from_json(split.to_json(), left)
    assert again.digest == split.digest
    assert len(again.earlier[0]) == 0
    assert names(again, again.forget) == names(split, split.forget)
    assert names(again, again.retain) == names(split, split.retain)
    name = split.requests[0].ids[0]
    with pytest.raises(UserError, match=f"1 already forgotten .'{name}'"):
        again.forget_ids([name])
    further = again.forget_random(0.5)
    assert len(further.requests) == 3
    assert Split.from_json(further.to_json(), left).digest == further.digest


def test_a_single_id_that_cannot_be_used_is_not_counted(toy):
    with pytest.raises(UserError, match=r"^The id cannot be used: 1 unknown"):
        Split.make(toy).forget_ids(["x1"])


def test_all_ids_that_cannot_be_used_are_counted_and_named_by_kind(toy):
    split = Split.make(toy)
    trained, unseen = (sorted(names(split, part)) for part in (split.train, split.held_out))
    split = split.forget_ids([trained[0], unseen[0]])
    strange = [f"x{k}" for k in range(12)]
    bad = [trained[0], unseen[0], trained[2], *strange]
    listed = [trained[1], trained[2], *bad, unseen[1]]
    with pytest.raises(UserError) as caught:
        split.forget_ids(listed)
    said = str(caught.value)
    assert said.startswith("Of the 18 ids, 15 cannot be used: ")
    for part in (
        f"1 listed twice ('{trained[2]}')",
        f"1 already forgotten ('{trained[0]}')",
        f"1 already retired ('{unseen[0]}')",
        f"12 unknown ({', '.join(map(repr, strange[:10]))}, ...)",
    ):
        assert part in said
    assert "--skip-unusable" in said

    further = split.forget_ids(listed, skip_unusable=True)
    request = further.requests[-1]
    assert (request.ids, request.retired) == (tuple(trained[1:3]), (unseen[1],))
    counts = {"listed twice": 1, "already forgotten": 1, "already retired": 1, "unknown": 12}
    assert request.detail == {"skipped": counts}
    assert further.outcome().skipped == counts
    assert "x0" not in further.to_json()
    with pytest.raises(UserError, match="nothing to forget"):
        split.forget_ids(bad[:2], skip_unusable=True)


def test_a_request_covers_all_of_a_persons_samples(toy):
    split = Split.make(toy)
    trained, held_out, test = (
        sorted(names(split, part)) for part in (split.train, split.held_out, split.test)
    )
    asked = split.forget_ids([trained[0], held_out[0], test[0], test[1]])
    assert names(asked, asked.forget) == {trained[0]}
    assert asked.requests[0].retired == tuple(sorted([held_out[0], test[0], test[1]]))
    assert names(asked, asked.held_out) == {*held_out[1:]}
    assert names(asked, asked.test) == {*test[2:]}
    assert {name: len(rows) for name, rows in asked.measured().items()} == {
        "retain": len(trained) - 1,
        "forget": 1,
        "held_out": len(held_out) - 1,
        "test": len(test) - 2,
    }
    outcome = asked.outcome()
    assert (outcome.forgotten, outcome.retired) == (1, {"held_out": 1, "test": 2})
    assert "forgotten: 1, retired: 3 (1 held out, 2 test)" in outcome_words(outcome)

    text = asked.to_json()
    assert json.loads(text)["format"] == 2
    assert Split.from_json(text, toy).to_json() == text
    gone = {trained[0], held_out[0], test[0], test[1]}
    left = toy.take(torch.tensor([row for row in range(48) if toy.ids[row] not in gone]))
    again = Split.from_json(text, left)
    assert again.to_json() == text
    assert names(again, again.test) == {*test[2:]}
    with pytest.raises(UserError, match="48 samples that are used, 4 missing"):
        Split.from_json(split.to_json(), left)

    later = again.forget_ids([trained[1], test[2]])
    assert names(later, later.earlier[0]) == set()
    assert {*later.retired["test"]} == {*test[:3]}
    assert Split.from_json(later.to_json(), left).to_json() == later.to_json()


def test_a_request_may_name_unseen_samples_only(toy):
    split = Split.make(toy)
    test = sorted(names(split, split.test))
    only = split.forget_ids(test[:2])
    assert only.last is None
    assert set(only.measured()) == {"train", "held_out", "test"}
    assert "the weights are unchanged" in outcome_words(only.outcome())
    # What was forgotten before goes on being measured as the last thing that was forgotten.
    forgotten = split.forget_class(1)
    after = forgotten.forget_ids(test[:2])
    assert after.last == forgotten.requests[0]
    assert torch.equal(after.forget, forgotten.forget)
    assert after.earlier == ()
    assert set(after.parts()) == set(forgotten.parts())
    third = after.forget_random(0.1)
    assert [len(rows) for rows in third.earlier] == [len(forgotten.forget), 0]
    assert "forget_1" in third.measured()
    assert "forget_2" not in third.measured()


def test_something_must_be_left_to_measure_on(toy):
    split = Split.make(toy)
    for part, called in ((split.test, "test"), (split.held_out, "held-out")):
        every = sorted(names(split, part))
        with pytest.raises(UserError, match=f"left to evaluate on: .* of the {called} part"):
            split.forget_ids(every)
        most = split.forget_ids(every[1:])
        with pytest.raises(UserError, match="left to evaluate on"):
            most.forget_ids(every[:1])


def test_the_name_of_the_data_is_the_manifests(toy):
    split = Split.random(toy, 0.2)
    moved = dataclasses.replace(toy, name="copy")
    assert Split.from_json(split.to_json(), moved).to_json() == split.to_json()


def test_class_numbers_and_normalisation_are_the_manifests(toy):
    """When a class is erased, a folder numbers the classes after it anew."""
    train_only = toy.take(torch.arange(40))
    split = Split.make(train_only, held_out=["train/0"]).forget_class("dog")
    kept = train_only.take((train_only.labels != 1).nonzero().flatten())
    numbers = torch.tensor([0, -1, 1, 2])[kept.labels]
    kept = dataclasses.replace(
        kept, labels=numbers, classes=("cat", "duck", "fish"), mean=(0.0, 0.0, 0.0)
    )
    again = Split.from_json(split.to_json(), kept)
    assert again.digest == split.digest
    assert again.data.classes == toy.classes
    assert again.data.mean == toy.mean
    assert torch.equal(again.data.labels, toy.labels[:40][toy.labels[:40] != 1])
    strange = dataclasses.replace(toy, classes=("cat", "dog", "duck", "cow"))
    with pytest.raises(UserError, match="class 'cow'"):
        Split.from_json(split.to_json(), strange)


def retire(value, *names):
    value["format"] = 2
    value["requests"][0]["retired"] = list(names)


def edit(text, change):
    value = json.loads(text)
    change(value)
    return json.dumps(value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda v: v.update(format=4), "upgrade qunlearn"),
        (lambda v: v.update(format=2), "does not match format 2"),
        (lambda v: v["requests"][0].update(retired=["test/0"]), "does not match format 1"),
        (lambda v: retire(v, "test/0", "test/0"), "twice"),
        (lambda v: retire(v, next(iter(v["parts"]["train"]))), "neither held out nor"),
        (lambda v: v.update(format="1"), "no format version"),
        (lambda v: v.pop("format"), "no format version"),
        (lambda v: v.update(format=0), "format 0"),
        (lambda v: v.pop("dataset"), "'dataset'"),
        (lambda v: v.update(seed=1.5), "'seed'"),
        (lambda v: v.update(classes="abc"), "'classes'"),
        (lambda v: v.pop("parts"), "'parts'"),
        (lambda v: v["parts"].pop("test"), "part 'test'"),
        (lambda v: v["parts"]["test"].update({"test/0": "zz"}), "part 'test'"),
        (lambda v: v["parts"]["test"].update({"test/0": None}), "part 'test'"),
        (lambda v: v["parts"]["held_out"].update(v["parts"]["test"]), "in two parts"),
        (lambda v: v.update(requests={}), "'requests'"),
        (lambda v: v["requests"][0].update(kind="magic"), "request is malformed"),
        (lambda v: v["requests"][0].update(ids=[]), "request is empty"),
        (lambda v: v["requests"][0]["ids"].append("test/0"), "never trained on"),
        (lambda v: v["requests"][0]["ids"].append(v["requests"][0]["ids"][0]), "twice"),
        (lambda v: v["requests"].append(v["requests"][0]), "forgotten twice"),
        (lambda v: v["requests"][0].update(ids=list(v["parts"]["train"])), "nothing is retained"),
        (lambda v: v["normalisation"].update(mean="x"), "'mean'"),
        (lambda v: v["normalisation"].update(mean=[0.1]), "3 channels"),
    ],
)
def test_malformed_manifests_are_refused(toy, change, message):
    text = edit(Split.random(toy).to_json(), change)
    with pytest.raises(UserError, match=message):
        Split.from_json(text, toy)


@pytest.mark.parametrize("text", ["", "{", "[]", "[" * 100_000, '{"format":1,"format":1}', "NaN"])
def test_what_is_no_manifest_is_refused(toy, text):
    with pytest.raises(UserError, match="The split manifest is not valid"):
        Split.from_json(text, toy)


@pytest.mark.parametrize("name", [3.9, None, True, "3.9", "-1"])
def test_a_class_that_is_no_class_is_refused(name):
    with pytest.raises(UserError, match="no class"):
        Split.of_class(make_data([0, 1, 2, 3] * 15), name)


def test_a_split_is_printed_in_a_line():
    assert len(repr(Split.make(make_data([0, 1, 2, 3] * 15))).splitlines()) == 1


def test_a_class_of_which_nothing_is_retained_leaves_what_is_measured():
    data = make_data([0, 0, 0, 1, 1, 1, 2, 2, 2] * 4, [0, 1, 2, 0, 1, 2])
    split = Split.make(data, held_out=0.2)
    assert set(split.measured()) == {"train", "held_out", "test"}
    split = split.forget_class(1)
    parts = split.measured()
    labels = {name: set(data.labels[rows].tolist()) for name, rows in parts.items()}
    assert labels["held_out"] == labels["test"] == labels["retain"] == {0, 2}
    assert labels["test_forgotten"] == labels["forget"] == {1}
    # A class that is forgotten in part is still to be known.
    partly = Split.make(data, held_out=0.2)
    partly = partly.forget_ids([data.ids[int(partly.train[0])]])
    assert set(partly.measured()) == {"retain", "forget", "held_out", "test"}
    assert torch.equal(partly.measured()["test"], partly.test)


@pytest.mark.parametrize(
    ("rule", "says"),
    [("user < front", "'user' holds numbers"), ("camera >= 3", "'camera' holds texts")],
)
def test_numbers_and_texts_have_no_order(rule, says):
    data = make_data([0, 1] * 10)
    columns = {"user": tuple(map(str, range(20))), "camera": ("front", "rear") * 10}
    data = dataclasses.replace(data, metadata=columns)
    with pytest.raises(UserError, match=says):
        Split.where(data, rule)
    assert len(Split.where(data, "user < 10 and camera != rear").forget) > 0
