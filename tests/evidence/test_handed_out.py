"""A run without its key and outputs: nobody can tell by it which pictures it was trained on."""

from __future__ import annotations

import base64
import hashlib
import io
import shutil
import zlib

from PIL import Image

from qunlearn.runs.data import split_of
from qunlearn.store.layout import KEY, PREDICTIONS
from qunlearn.store.run import Run
from qunlearn.store.weights import read_header

WAYS = ("md5", "sha1", "sha256", "blake2b", "blake2s", "sha3_256")


def traces(content: bytes) -> list[bytes]:
    """Every usual hash of a picture, shortened ones too, as bytes and as text."""
    digests = [hashlib.new(way, content).digest() for way in WAYS]
    digests += [hashlib.blake2b(content, digest_size=size).digest() for size in (8, 16, 32)]
    short = [digest[:8] for digest in digests]
    return [*short, *(digest.hex().encode() for digest in short)]


def test_only_the_outputs_and_the_key_tell_a_picture(qunlearn, run_folder, tmp_path):
    run, copy = Run.open(run_folder), tmp_path / "run"
    split = split_of(run)
    rows = split.train[:5]
    pieces = {mark.encode() for mark in split.data.hashes(rows)}
    for row in rows.tolist():
        pixels = split.data.images[row].numpy()
        png = io.BytesIO()
        Image.fromarray(pixels[0]).save(png, "PNG")
        scaled = (pixels / pixels.dtype.type(255)).astype("float32")
        for content in (pixels.tobytes(), scaled.tobytes(), png.getvalue()):
            pieces |= {content, *traces(content)}
    outputs = {logits.numpy().tobytes() for logits in run.predictions["train"][:5]}
    assert len(outputs) == 5

    def held(folder):
        files = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        for path in folder.rglob("model.safetensors"):
            files[path] += zlib.decompress(base64.b64decode(read_header(path)["split"]))
        every = pieces | outputs
        return {path.name for path, text in files.items() if any(each in text for each in every)}

    assert held(run_folder) == {PREDICTIONS}  # which is why it is not to be handed out
    left_out = shutil.ignore_patterns(KEY, PREDICTIONS)
    shutil.copytree(run_folder, copy, ignore=left_out)
    assert held(copy) == set()
    assert qunlearn("describe", copy)[0] == 0
    code, _, err = qunlearn("evaluate", copy)
    assert code == 2
    assert KEY in err
