"""The commitment to ids, against a slow and obvious version."""

from dataclasses import replace
from hashlib import sha256

import pytest

from qunlearn.evidence.merkle import Step, commit, prove


def root_of(leaves):
    """RFC 6962 without its split rule: pair neighbours, and an odd one goes up alone."""
    while len(leaves) > 1:
        pairs = [leaves[i : i + 2] for i in range(0, len(leaves), 2)]
        leaves = [sha256(b"\1" + "".join(p).encode()).hexdigest() if p[1:] else p[0] for p in pairs]
    return leaves[0]


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 8, 13, 100])
def test_every_id_has_a_proof_and_no_other_has(count):
    ids = [f"train/{i}" for i in range(count)]
    commitment = commit(ids)
    assert commitment.root == root_of(list(commitment.leaves))
    for name in ids:
        proof = prove(commitment, name)
        assert proof.holds
        assert proof.root == commitment.root
        assert not replace(proof, id="train/x").holds
        assert not replace(proof, salt="0" * 64).holds
        assert not replace(proof, steps=(*proof.steps, Step("left", "0" * 64))).holds
    assert prove(commitment, "train/x") is None


def test_two_commitments_to_the_same_ids_cannot_be_linked():
    ids = ["anna", "ben", "carla"]
    one, other = commit(ids), commit(ids)
    assert one.root != other.root
    assert not {*one.leaves} & {*other.leaves}


def test_a_proof_names_no_other_id():
    commitment = commit(["anna", "ben", "carla"])
    assert "ben" not in repr(prove(commitment, "anna"))
    guess = sha256(b"\0" + prove(commitment, "anna").salt.encode() + b"\0ben").hexdigest()
    assert guess not in repr(prove(commitment, "anna"))  # each id has a salt of its own


def test_no_part_of_a_salt_passes_for_part_of_an_id():
    commitment = commit(["folder\0anna", "ben"])
    proof = prove(commitment, "folder\0anna")
    assert proof.holds
    assert not replace(proof, id="anna", salt=f"{proof.salt}\0folder").holds
