"""Memory and throughput of training on a set that is larger than memory.

    python benchmarks/memory.py --gigabytes 20     # all phases; writes results/memory.json

A torch Dataset makes images of random bytes up. `large` converts it, trains and forgets on samples
all over the copy and evaluates; `small` does the same on a few images in memory: what the network
itself takes. `speed` times one epoch on a set that fits, from memory and from the cache by turns.
Each phase is a process of its own, and can be named alone. The copy is deleted at the end.

The peak of RssAnon is what the process holds; pages of the mapped file (RssFile) are the page
cache, which the system takes back when it needs them.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

import qunlearn as qu
from qunlearn.store.info import machine, versions

RESULTS = Path(__file__).parent / "results"
SIDE, CLASSES, TRAINED, BATCH = 128, 10, 3_200, 16
BYTES = 3 * SIDE * SIDE
PHASES = ("large", "small", "speed")


class Noise(torch.utils.data.Dataset[Any]):
    """Images of random bytes, each a function of its number."""

    def __init__(self, count: int):
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, row: int) -> tuple[np.ndarray[Any, Any], int]:
        noise = np.random.Generator(np.random.SFC64(row)).bytes(BYTES)
        return np.frombuffer(noise, np.uint8).reshape(3, SIDE, SIDE), row % CLASSES


class Peak:
    """Samples the memory of this process every 20 ms."""

    def __init__(self) -> None:
        self.bytes = {"RssAnon": 0, "RssFile": 0}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Peak:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(0.02):
            for line in Path("/proc/self/status").read_text().splitlines():
                name, _, value = line.partition(":")
                if name in self.bytes:
                    self.bytes[name] = max(self.bytes[name], 1024 * int(value.split()[0]))


def noise(gigabytes: float, cache: Path, budget: int) -> qu.ImageData:
    """The made-up set, in memory or mapped."""
    count = int(gigabytes * 1e9 / BYTES)
    options: dict[str, Any] = {"mean": 0.5, "std": 0.29, "name": f"noise-{count}"}
    return qu.Data(Noise(count), **options, memory_budget=budget, cache_dir=cache)


def use(gigabytes: float, cache: Path, budget: int) -> dict[str, Any]:
    """Train on samples all over the set, forget a tenth of them, evaluate with MIA."""
    began = time.perf_counter()
    with Peak() as peak:
        data = noise(gigabytes, cache, budget)
        rows = torch.randperm(len(data), generator=torch.Generator().manual_seed(0)).tolist()
        names = [data.ids[row] for row in rows]
        split = qu.Split.make(
            data, trained_on=names[:TRAINED], held_out=names[TRAINED : TRAINED + 320]
        )
        split = split.forget_random(0.1)
        opened = time.perf_counter() - began
        spec = qu.ModelSpec("cnn", classes=CLASSES, channels=3, size=SIDE, width=0.125)
        model = qu.quantize(spec.build(0), qu.QuantSpec())
        started = time.perf_counter()
        qu.train(model, split, epochs=1, batch_size=BATCH, lr=0.01)
        seconds = time.perf_counter() - started
        result = qu.forget(model, split, epochs=1, batch_size=BATCH, probe=False)
        qu.evaluate(result.model, split)
    steps = TRAINED // BATCH
    return {
        "bytes": data.images.nbytes,
        "steps": steps,
        "converting_seconds": opened,
        "step_seconds": seconds / steps,
        **peak.bytes,
    }


def speed(cache: Path) -> dict[str, Any]:
    """One epoch on a set that fits, from the cache / from memory, by turns."""
    gigabytes = 0.15
    sets = [noise(gigabytes, cache, 0), noise(gigabytes, cache, 1 << 40)]
    assert torch.equal(sets[0].images[:100], sets[1].images[:100])
    splits = [qu.Split.make(data, held_out=0.02) for data in sets]
    spec = qu.ModelSpec("cnn", classes=CLASSES, channels=3, size=SIDE, width=0.125)
    ratios = []
    for turn in range(5):
        seconds = []
        for split in splits if turn % 2 else splits[::-1]:
            model = qu.quantize(spec.build(0), qu.QuantSpec())
            started = time.process_time()
            qu.train(model, split, epochs=1, batch_size=64, lr=0.01)
            seconds.append(time.process_time() - started)
        mapped, inside = seconds if turn % 2 else seconds[::-1]
        if turn:  # the first turn reads the file from disk
            ratios.append(inside / mapped)
    lower, _, upper = statistics.quantiles(ratios, n=4)
    return {
        "bytes": sets[0].images.nbytes,
        "throughput_ratio": statistics.median(ratios),
        "quartiles": [lower, upper],
        "turns": len(ratios),
    }


def main() -> None:
    """Run the phases, each in a process of its own, and write what they measured."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gigabytes", type=float, default=20)
    parser.add_argument("--folder", type=Path, default=Path("runs/memory"))
    parser.add_argument("--phase", choices=PHASES)
    parser.add_argument("--keep", action="store_true", help="do not delete the copy")
    args = parser.parse_args()
    cache = args.folder / "cache"
    if args.phase == "large":
        print(json.dumps(use(args.gigabytes, cache, 0)))
    elif args.phase == "small":
        print(json.dumps(use(0.3, cache, 1 << 40)))
    elif args.phase == "speed":
        print(json.dumps(speed(cache)))
    else:
        phases: dict[str, Any] = {}
        for phase in PHASES:
            words = [sys.executable, __file__, "--phase", phase, "--folder", str(args.folder)]
            words += ["--gigabytes", str(args.gigabytes)]
            done = subprocess.run(words, stdout=subprocess.PIPE, check=True, text=True)
            phases[phase] = json.loads(done.stdout)
            print(phase, json.dumps(phases[phase]), flush=True)
        network = phases["small"]["RssAnon"] - phases["small"]["bytes"]  # without its images
        phases["above_the_network"] = phases["large"]["RssAnon"] - network
        phases |= {"machine": vars(machine()), "versions": versions()}
        (RESULTS / "memory.json").write_text(json.dumps(phases, indent=1) + "\n")
        if not args.keep:
            shutil.rmtree(args.folder)


if __name__ == "__main__":
    main()
