"""A commitment to a list of ids: one digest, and a proof for each id that reveals no other.

A leaf is the SHA-256 of the id with a salt of its own, so that nobody can test a guess without the
secret that the salts are made from. Leaves and nodes begin with different bytes (RFC 6962), so that
a node cannot pass for a leaf.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

_DIGEST = re.compile("[0-9a-f]{64}")


@dataclass(frozen=True)
class Commitment:
    """A commitment, with what its owner needs to prove that an id is in it.

    Attributes:
        secret: What the salts are made from; once it is destroyed, no id can be tested.
        leaves: The leaves, in ascending order, which says nothing of the ids.
    """

    secret: str
    leaves: tuple[str, ...]

    @property
    def root(self) -> str:
        """The digest that stands for all ids."""
        return _levels(self.leaves)[-1][0]


@dataclass(frozen=True)
class Step:
    """A neighbour on the way from a leaf to the root, and the side that it stands on."""

    side: Literal["left", "right"]
    digest: str


@dataclass(frozen=True)
class Proof:
    """A proof that an id is in a commitment.

    Attributes:
        id: The id.
        salt: Its salt.
        steps: The neighbours from the leaf to the root.
        root: The commitment's root.
    """

    id: str
    salt: str
    steps: tuple[Step, ...]
    root: str

    @property
    def holds(self) -> bool:
        """Whether the steps lead from the id to the root.

        Salt and digests have a fixed length, so that no part of one can pass for part of the id.
        """
        if not all(map(_DIGEST.fullmatch, (self.salt, *(step.digest for step in self.steps)))):
            return False
        digest = _leaf(self.id, self.salt)
        for step in self.steps:
            digest = (
                _node(step.digest, digest) if step.side == "left" else _node(digest, step.digest)
            )
        return digest == self.root


def commit(ids: Sequence[str], secret: str | None = None) -> Commitment:
    """Commit to a list of ids.

    >>> commitment = commit(["train/1", "train/2", "train/3"])
    >>> prove(commitment, "train/2").holds
    True
    >>> prove(commitment, "train/9") is None
    True
    """
    secret = secret or secrets.token_hex(32)
    return Commitment(secret, tuple(sorted(_leaf(name, _salt(secret, name)) for name in ids)))


def prove(commitment: Commitment, name: str) -> Proof | None:
    """A proof that an id is in a commitment; None if it is not."""
    salt = _salt(commitment.secret, name)
    leaf = _leaf(name, salt)
    if leaf not in commitment.leaves:
        return None
    at, steps = commitment.leaves.index(leaf), []
    for level in _levels(commitment.leaves)[:-1]:
        beside = at ^ 1
        if beside < len(level):  # the last of an odd number goes up alone
            steps.append(Step("left" if beside < at else "right", level[beside]))
        at //= 2
    return Proof(name, salt, tuple(steps), commitment.root)


def members(commitment: Commitment, names: Iterable[str]) -> frozenset[str]:
    """Which of these ids are in a commitment.

    >>> sorted(members(commit(["train/1", "train/2"]), ["train/2", "train/3"]))
    ['train/2']
    """
    leaves, secret = frozenset(commitment.leaves), commitment.secret
    return frozenset(name for name in names if _leaf(name, _salt(secret, name)) in leaves)


def _levels(leaves: Sequence[str]) -> list[list[str]]:
    """All levels of the tree, from the leaves to the root."""
    levels = [list(leaves)]
    while len(levels[-1]) > 1:
        below = levels[-1]
        pairs = [below[i : i + 2] for i in range(0, len(below), 2)]
        levels.append([_node(*pair) if len(pair) == 2 else pair[0] for pair in pairs])
    return levels


def _salt(secret: str, name: str) -> str:
    return hmac.new(secret.encode(), name.encode(), hashlib.sha256).hexdigest()


def _leaf(name: str, salt: str) -> str:
    return hashlib.sha256(b"\0" + salt.encode() + b"\0" + name.encode()).hexdigest()


def _node(left: str, right: str) -> str:
    return hashlib.sha256(b"\1" + left.encode() + right.encode()).hexdigest()
