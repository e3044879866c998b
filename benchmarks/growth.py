"""How time and memory grow with the data, the width and the number of samples to forget."""

from __future__ import annotations

import json
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from forgetting import calibrated, random_split
from steps import W4A4, build, step
from timing import Work, seconds

import qunlearn as qu
from qunlearn.quant import why_not
from qunlearn.report.drawing import INK, KNOWN, draw

WIDTH = 0.125
"""Of the network whose epochs are timed: narrow, so that it takes minutes and not hours."""


def epoch(images: int) -> Work:
    """An epoch of training on so many images."""
    split = random_split(images, 1)
    net = calibrated(split, WIDTH)
    return lambda: qu.train(net, split, epochs=1, batch_size=64)


def forgetting(samples: int) -> Work:
    """An epoch of OEU in which each of so many samples has its turn once, beside 1,000 retained."""
    split = random_split(samples + 1000, samples)
    net = calibrated(split, WIDTH)
    return lambda: qu.forget(net, split, "oeu", epochs=1, batch_size=64, pairing="once")


def training_step(width: float) -> Work:
    """A training step of a network of some width."""
    return step(build("resnet18", width, W4A4), batch=32, compiled=why_not() is None)


CURVES: dict[str, tuple[Any, tuple[float, ...], str]] = {
    "images": (epoch, (1000, 2000, 4000, 8000), "an epoch of training"),
    "samples to forget": (forgetting, (200, 400, 800, 1600), "an epoch of OEU, pairing=once"),
    "parameters": (training_step, (0.125, 0.25, 0.5, 1.0), "a training step by width"),
}


def grow(out: Path) -> None:
    """Measure every curve; write the figures and a picture of them."""
    curves = {name: curve(*CURVES[name]) for name in CURVES}
    (out / "growth.json").write_text(json.dumps(curves, indent=1) + "\n")
    picture = draw(
        "growth", "", "Time and memory grow linearly", (7.5, 4.2), lambda f: paint(f, curves)
    )
    (out / "growth.svg").write_text(picture.svg)
    (out / "growth.png").write_bytes(picture.png)


def curve(make: Any, sizes: tuple[float, ...], title: str) -> dict[str, Any]:
    """Time and memory at each size, and the straight lines through them."""
    # Each in a process of its own: what another one took is not always handed back.
    with ProcessPoolExecutor(1, get_context("spawn"), max_tasks_per_child=1) as fresh:
        times, peaks = zip(*fresh.map(point, repeat(make), sizes), strict=True)
    along = [parameters(size) if make is training_step else size for size in sizes]
    print(title, sizes, [f"{t:.2f} s" for t in times], [f"{p:.0f} MB" for p in peaks], flush=True)
    fits = {"seconds": straight(along, times), "megabytes": straight(along, peaks)}
    return {
        "title": title,
        "sizes": sizes,
        "along": along,
        "seconds": times,
        "megabytes": peaks,
        "fits": fits,
    }


def point(make: Any, size: float) -> tuple[float, float]:
    """The best time of three, and this process's most memory in MB, with Python, torch and all."""
    torch.set_num_threads(1)
    work = make(size)
    time = min(seconds(work) for _ in range(3))
    # Not by getrusage: that starts from the peak of the process that called this one.
    lines = Path("/proc/self/status").read_text().splitlines()
    peak = next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))
    return time, peak


def parameters(width: float) -> int:
    """How many parameters a network of this width has."""
    return sum(p.numel() for p in build("resnet18", width).parameters())


def straight(x: Any, y: Any) -> dict[str, float]:
    """The straight line through the points, and the share of their variance that it explains."""
    slope, start = np.polyfit(x, y, 1)
    left = np.asarray(y) - (slope * np.asarray(x) + start)
    return {"slope": slope, "start": start, "r2": 1 - float(np.var(left) / np.var(y))}


def paint(figure: Any, curves: dict[str, Any]) -> None:
    """For each curve a panel of time and one of memory: the points, and the line through them."""
    panels = figure.subplots(2, len(curves))
    for column, (name, each) in enumerate(curves.items()):
        for row, what in enumerate(("seconds", "megabytes")):
            axes, line = panels[row][column], each["fits"][what]
            ends = np.array([0, max(each["along"])])
            axes.plot(ends, line["slope"] * ends + line["start"], color=KNOWN, linewidth=1)
            axes.plot(each["along"], each[what], "o", color=INK, markersize=4)
            axes.set(xlabel=name, ylabel=what, ylim=(0, 1.1 * max(each[what])))
            axes.grid(True)
        panels[0][column].set_title(each["title"], fontsize=9)
