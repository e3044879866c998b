"""Valid files made into invalid ones: bytes, values and structure, always the same for a seed."""

from __future__ import annotations

import base64
import io
import json
import random
import struct
import zipfile
import zlib
from collections.abc import Callable
from functools import cache
from typing import Any

Chance = random.Random

HOSTILE: list[Any] = [
    *(None, True, False, 0, -1, 1, 2**31, 2**63, 10**12, 10**40, 0.5, -0.0, 1e308, 1e-320),
    *(float("nan"), float("inf"), "", " ", "x" * 5000, "\x00", "\ud800", "\u202e", "<script>"),
    *(
        "../../../etc/passwd",
        "/etc/passwd",
        "os:system",
        "NaN",
        "1e999",
        "9" * 5000,
        "0x" + "f" * 5000,
        "%s{0}",
    ),
    *([], {}, [[]], [None], {"": {}}, [1, "a", None], {"a": 1}, ["x"] * 100),
]
NESTED = ("[" * 100_000, "[" * 100_000 + "]" * 100_000, '{"a":' * 100_000)


@cache
def bomb() -> str:
    """Text that unpacks to half a gigabyte."""
    return base64.b64encode(zlib.compress(bytes(1 << 29), 1)).decode()


def in_bytes(content: bytes, chance: Chance) -> bytes:
    """A few bytes changed, or a piece lost, doubled, moved or put in."""
    data = bytearray(content)
    for _ in range(chance.choice((1, 1, 1, 2, 4, 16))):
        at = chance.randrange(len(data) + 1)
        length = min(chance.choice((1, 2, 4, 8, 64, 1024)), len(data) - at)
        how = chance.randrange(7)
        if how == 0 and at < len(data):
            data[at] ^= 1 << chance.randrange(8)
        elif how == 1:
            data[at : at + length] = chance.randbytes(length)
        elif how == 2:
            data[at : at + length] = b""
        elif how == 3:
            data[at:at] = data[at : at + length]
        elif how == 4:
            data[at : at + length] = chance.choice((b"\xff", b"\x00", b"\x7f", b"9")) * length
        elif how == 5:
            number = chance.choice((0, 1, 2**31 - 1, 2**32 - 1, 2**40, 2**63 - 1, 2**64 - 1))
            data[at : at + 8] = struct.pack(chance.choice("<>") + "Q", number)
        else:
            del data[chance.randrange(len(data) + 1) :]
    return bytes(data)


def value(given: Any, chance: Chance) -> Any:
    """A value with one node somewhere in it lost, renamed, doubled or replaced."""
    if not isinstance(given, (dict, list)) or not given or chance.random() < 0.15:
        return chance.choice(HOSTILE)
    made = given.copy()
    key = chance.choice(list(made)) if isinstance(made, dict) else chance.randrange(len(made))
    how = chance.random()
    if how < 0.1:
        del made[key]
    elif how < 0.15 and isinstance(made, dict):
        made[str(chance.choice(HOSTILE))] = made.pop(key)
    elif how < 0.2 and isinstance(made, list):
        made.append(made[key])
    else:
        made[key] = value(made[key], chance)
    return made


def in_json(content: bytes, chance: Chance) -> bytes:
    """JSON with one value changed, or no JSON any more."""
    how = chance.random()
    if how < 0.02:
        return chance.choice(NESTED).encode()
    if how < 0.3:
        return in_bytes(content, chance)
    return json.dumps(value(json.loads(content), chance)).encode()


def in_lines(part: Callable[[bytes, Chance], bytes]) -> Callable[[bytes, Chance], bytes]:
    """One line changed."""

    def mutate(content: bytes, chance: Chance) -> bytes:
        lines = content.splitlines()
        at = chance.randrange(len(lines))
        lines[at] = part(lines[at], chance)
        return b"\n".join(lines)

    return mutate


def in_words(content: bytes, chance: Chance) -> bytes:
    """Text (TOML, CSV, a rule) with a word replaced by a hostile one, or a line by another."""
    how = chance.random()
    if how < 0.02:
        return chance.choice((b"a = ", b"", b"(")) + chance.choice(NESTED).encode()
    if how < 0.35:
        return in_bytes(content, chance)
    lines = content.decode().splitlines() or [""]
    at = chance.randrange(len(lines))
    head, sign, tail = lines[at].partition(chance.choice((" = ", ",", " ", "/")))
    hostile = chance.choice(HOSTILE)
    word = json.dumps(hostile) if chance.random() < 0.6 else str(hostile)
    lines[at] = head + sign + word if chance.random() < 0.7 else word + sign + tail
    if chance.random() < 0.2:
        lines.insert(chance.randrange(len(lines) + 1), lines[chance.randrange(len(lines))])
    return "\n".join(lines).encode(errors="surrogatepass")


def in_safetensors(content: bytes, chance: Chance) -> bytes:
    """The head of a safetensors file changed where it has meaning, or bytes anywhere."""
    if chance.random() < 0.3:
        return in_bytes(content, chance)
    size = int.from_bytes(content[:8], "little")
    head, data = json.loads(content[8 : 8 + size]), content[8 + size :]
    ours = json.loads(head["__metadata__"]["qunlearn"])
    how = chance.random()
    if how < 0.02:
        head["__metadata__"]["qunlearn"] = chance.choice(NESTED)
    elif how < 0.03:
        head["__metadata__"]["qunlearn"] = json.dumps({**ours, "split": bomb()})
    elif how < 0.7:
        head["__metadata__"]["qunlearn"] = json.dumps(value(ours, chance))
    else:
        head = value(head, chance)
    text = json.dumps(head).encode()
    return struct.pack("<Q", len(text)) + text + data


def in_zip(content: bytes, chance: Chance) -> bytes:
    """One entry of a zip file changed, its checksum right again; or bytes anywhere."""
    if chance.random() < 0.3:
        return in_bytes(content, chance)
    with zipfile.ZipFile(io.BytesIO(content)) as pack:
        entries = {name: pack.read(name) for name in pack.namelist()}
    name = chance.choice(list(entries))
    how = chance.random()
    if how < 0.1:
        entries[chance.choice(("../x.npy", "/x", "x_train", name * 3))] = entries.pop(name)
    elif how < 0.5:
        head = entries[name][:128].replace(
            chance.choice((b"(", b"'shape': (", b"|u1", b"<i8", b"<U")),
            chance.choice((b"(1000000000000,", b"'shape': (99999999999, ", b"|O", b"<f8", b"<U9")),
        )
        entries[name] = head + entries[name][128:]
    else:
        entries[name] = in_bytes(entries[name], chance)
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as pack:
        for name, data in entries.items():
            pack.writestr(name, data)
    return made.getvalue()
