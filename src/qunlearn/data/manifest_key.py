"""The key of a manifest: without it, nobody can tell which pictures its hashes belong to.

Each sample has a key of its own, derived from a random seed. To destroy the keys of some samples,
the others' are written down and the seed is thrown away: the hashes of the former are then random
numbers to everybody, and the others can still be checked.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from qunlearn.errors import UserError
from qunlearn.store.files import json_text, read_object
from qunlearn.store.keyring import replace_secret, shared_secret
from qunlearn.store.layout import KEY
from qunlearn.store.limits import parse_json
from qunlearn.store.place import FILE, kind_of
from qunlearn.store.secret import write_secret
from qunlearn.store.typed import typed, untyped


@dataclass(frozen=True)
class ManifestKey:
    """A key.

    Attributes:
        id: Names the key in manifests; says nothing of it.
        seed: What the keys of samples are derived from.
        keys: The keys of samples that have outlived an earlier seed.

    >>> key = ManifestKey.new()
    >>> key.seal("train/1", "ab") == key.seal("train/1", "ab") != key.seal("train/2", "ab")
    True
    >>> later = key.without(["train/1"], ["train/2"])
    >>> later.seal("train/2", "ab") == key.seal("train/2", "ab")
    True
    >>> later.seal("train/1", "ab") == key.seal("train/1", "ab")
    False
    """

    id: str
    seed: str
    keys: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def new(cls) -> ManifestKey:
        """A random key."""
        return cls(secrets.token_hex(8), secrets.token_hex(32))

    @classmethod
    def of_data(cls, dataset: str) -> ManifestKey:
        """The user's key for a data set; random where none can be kept."""
        content = shared_secret(dataset, lambda: cls.new().text().encode())
        return _parsed(content)

    @classmethod
    def read(cls, run: Path | str) -> ManifestKey | None:
        """The key in a run folder; None if there is none."""
        path = Path(run) / KEY
        return _checked(read_object(path), path) if kind_of(path) == FILE else None

    def text(self) -> str:
        """The content of the key's file."""
        return json_text(untyped(self))

    def write(self, run: Path) -> None:
        """Save the key in a run folder, for its owner alone."""
        write_secret(run / KEY, self.text().encode())

    def seal(self, name: str, fingerprint: str) -> str:
        """The keyed hash of a sample."""
        return hashlib.blake2b(fingerprint.encode(), digest_size=16, key=self._of(name)).hexdigest()

    def agrees(self, other: ManifestKey, name: str) -> bool:
        """Whether both keys seal a sample alike; they may not, once keys were destroyed."""
        return self._of(name) == other._of(name)

    def alias(self, name: str) -> str:
        """A pseudonym for an id; whoever has the key can derive it, and nobody else."""
        digest = hashlib.blake2b(name.encode(), digest_size=12, key=self._of(""))
        return f"p/{digest.hexdigest()}"

    def without(self, destroyed: Container[str], kept: Iterable[str]) -> ManifestKey:
        """The key after those of some samples are destroyed; the `kept` ones are as before."""
        written = {name: self._of(name).hex() for name in ("", *self.keys, *kept)}
        left = {name: key for name, key in written.items() if name not in destroyed}
        return ManifestKey(self.id, secrets.token_hex(32), left)

    def _of(self, name: str) -> bytes:
        if name in self.keys:
            return bytes.fromhex(self.keys[name])
        seed = bytes.fromhex(self.seed)
        return hashlib.blake2b(name.encode(), digest_size=32, key=seed).digest()


def destroy_shared(dataset: str, destroyed: Container[str], kept: Iterable[str]) -> None:
    """Destroy the keys of samples in the user's key for a data set, too."""
    names = list(kept)
    replace_secret(
        dataset, lambda content: _parsed(content).without(destroyed, names).text().encode()
    )


def _parsed(content: bytes) -> ManifestKey:
    try:
        return _checked(parse_json(content.decode()), Path(KEY))
    except (ValueError, RecursionError):
        return ManifestKey.new()


def _checked(content: object, path: Path) -> ManifestKey:
    key = typed(ManifestKey, content, path)
    try:
        sizes = {len(bytes.fromhex(text)) for text in (key.seed, *key.keys.values())}
    except ValueError:
        sizes = set()
    if sizes != {32}:
        raise UserError(f"The key {str(path)!r} is damaged; restore it from a copy.")
    return key
