"""Ratios measured side by side in one run: `make bench`.

The table is printed, and written to `benchmarks/results/bench.json`. `README.md` says for each
ratio why its reference is the right one. `--full` adds full-width networks, `--growth` how time
and memory grow.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import warnings
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from floor import bare_kernels, shares
from forgetting import Forgetting, attack, batching, evaluations
from growth import grow
from steps import FULL, W2A32, W4A4, Written, brevitas, build, forward, has_brevitas, step, swapped
from timing import Ratio, by_turns, peak_bytes, saved_bytes, spread

from qunlearn.quant import why_not
from qunlearn.store.info import machine, versions
from qunlearn.training.memory import keeping_memory

RESULTS = Path(__file__).parent / "results"
TWIN = "the same step in full precision"


def training_steps(
    model: str, width: float, bits: Any, repeats: int, targets: Any
) -> Iterator[Ratio]:
    """Low-bit / full precision, as torch computes it and compiled; and its saved bytes."""
    name = f"{model} ×{width:g} W{bits.weights}A{bits.activations or 32} LSQ+ step, batch 64"
    twin = step(build(model, width))
    eager, compiled, memory = targets
    yield by_turns(name, step(build(model, width, bits)), TWIN, twin, repeats, eager)
    if why_not() is None:
        quick = step(build(model, width, bits), compiled=True)
        yield by_turns(f"{name}, compiled", quick, TWIN, twin, repeats, compiled)
    saved = [saved_bytes(forward(build(model, width, each))) for each in (bits, FULL)]
    yield spread(f"{name}: bytes saved for backward", TWIN, [saved[0] / saved[1]], memory)


def other_software(repeats: int) -> Iterator[Ratio]:
    """Our W4A4 step / others' at the same bits."""
    name = "resnet18 ×0.25 W4A4 LSQ+ step, batch 64"
    others: dict[str, Any] = {"plain LSQ+, as papers' code writes it": (Written, 0.75)}
    if has_brevitas():
        others["Brevitas's layers with learned scales"] = (brevitas, 0.7)
    else:
        print("Brevitas is not installed: left out (README.md says how to install it)")
    for title, (swap, target) in others.items():
        other = step(swapped(build("resnet18", 0.25), swap))
        for compiled in (False, True)[: 1 if why_not() else 2]:
            ours = step(build("resnet18", 0.25, W4A4), compiled=compiled)
            suffix = ", compiled" if compiled else ""
            # The target is for the step as it is trained with.
            yield by_turns(name + suffix, ours, title, other, repeats, target if compiled else None)


def above_the_floor(repeats: int) -> Iterator[Ratio]:
    """The whole step / nothing but its convolutions and BatchNorms."""
    floor = bare_kernels(build("resnet18", 0.25))
    kinds = {"full-precision step": (FULL, False), "W4A4 LSQ+ step": (W4A4, False)}
    if why_not() is None:
        kinds["W4A4 LSQ+ step, compiled"] = (W4A4, True)
    for name, (bits, compiled) in kinds.items():
        work = step(build("resnet18", 0.25, bits), compiled=compiled)
        title = f"resnet18 ×0.25 {name}, batch 64"
        yield by_turns(title, work, "its bare convolutions and BatchNorms", floor, repeats)
        split_up = ", ".join(f"{name} {100 * share:.0f} %" for name, share in shares(work).items())
        print(f"         of which {split_up}")


def forgetting(repeats: int) -> Iterator[Ratio]:
    """An OEU step and epoch, batching, and the memory that a projection takes."""
    made = Forgetting()
    yield by_turns(
        "OEU step, W4A4, batches of 64 and 64",
        lambda: made.step(made.oeu),
        "its forget and retain forward-backward",
        made.two_passes,
        repeats,
        1.03,
    )
    once = Forgetting(pairing="once")
    yield by_turns(
        "OEU epoch, pairing=once, a tenth to forget",
        lambda: once.epoch(once.oeu),
        "an FT epoch",
        lambda: once.epoch(once.ft),
        max(repeats // 3, 1),
        1.15,
    )
    gradients = sum(4 * p.numel() for p in made.net.parameters())
    peaks = [peak_bytes(lambda goal=goal: made.step(goal)) for goal in (made.oeu, made.ft)]
    extra = [(peaks[0] - peaks[1]) / gradients]
    yield spread("OEU step's peak memory beyond an FT step's", "the gradients' size", extra)
    yield by_turns(
        "batching and augmentation, batch 64",
        batching(),
        "the W4A4 step that waits for it",
        step(build("resnet18", 0.25, W4A4)),
        repeats,
        0.03,
    )


def evaluation(repeats: int) -> Iterator[Ratio]:
    """All figures, the way the images are scored, and the attack."""
    work = evaluations()
    title = "evaluation of 2,000 images"
    yield by_turns(
        f"{title}, all figures", work["all"], "accuracy alone", work["accuracy"], repeats, 1.25
    )
    plain = "a plain loop in batches of 500"
    yield by_turns(f"{title}, accuracy", work["accuracy"], plain, work["plain"], repeats)
    ours, theirs = attack(20_000, exact=False), attack(20_000, exact=True)
    yield by_turns("MIA on 20,000 points", ours, "scikit-learn's SVC", theirs, 1, 0.02)


def start_up(repeats: int) -> Iterator[Ratio]:
    """`qunlearn --help` / a Python that does nothing."""

    programs = (("-m", "qunlearn.cli.main", "--help"), ("-c", ""))
    times = [children_seconds(programs[0]) / children_seconds(programs[1]) for _ in range(repeats)]
    yield spread("qunlearn --help", "an empty Python program", times)


def children_seconds(program: tuple[str, ...]) -> float:
    """The processor time of another Python."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *program], capture_output=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measured(full: bool, repeats: int) -> Iterator[Ratio]:
    """Every ratio of the table."""
    yield from training_steps("resnet18", 0.25, W4A4, repeats, (None, 1.2, 1.25))
    yield from training_steps("mobilenetv2", 0.5, W2A32, repeats, (None, 1.15, 1.25))
    if full:
        few = max(repeats // 2, 1)
        yield from training_steps("resnet18", 1.0, W4A4, few, (1.3, 1.1, 1.25))
    yield from other_software(repeats)
    yield from above_the_floor(repeats)
    yield from forgetting(repeats)
    yield from evaluation(max(repeats // 3, 1))
    yield from start_up(repeats)


def main() -> None:
    """Measure, print, write."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--full", action="store_true", help="Full-width networks too.")
    options.add_argument("--growth", action="store_true", help="How time and memory grow, too.")
    options.add_argument("--repeats", type=int, default=9, help="How often each pair is timed.")
    options.add_argument("--out", type=Path, default=RESULTS, help="The folder for the results.")
    chosen = options.parse_args()
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    chosen.out.mkdir(exist_ok=True, parents=True)
    report: dict[str, Any] = {"ratios": [], "versions": versions(), "machine": machine()}
    with keeping_memory():  # as training does, for both sides
        for row in measured(chosen.full, chosen.repeats):
            print(row, flush=True)
            report["ratios"].append(asdict(row))
            write(report, chosen.out)
    if chosen.growth:
        grow(chosen.out)


def write(report: dict[str, Any], folder: Path) -> None:
    """Write what has been measured so far."""
    text = json.dumps(report, indent=1, ensure_ascii=False)
    (folder / "bench.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
