"""Whether fine-tuning brings back what was forgotten.

Whoever gets the network may fine-tune it. Samples that were only hidden come back: by training on
retained samples alone, or with a few of the forgotten ones, which recall the others. A Retrain
never knew them. Unseen samples are the control: what they gain too is not memory.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from pydantic import BeforeValidator, Field
from torch import Tensor, nn

from qunlearn.audit.case import Case
from qunlearn.audit.config import AuditConfig
from qunlearn.audit.registry import Audit, Work, audits
from qunlearn.audit.row import LEVEL, PASS, AuditRow, Figure, Judgement, NotApplicable
from qunlearn.data import Split
from qunlearn.data.draw import generator
from qunlearn.errors import Failure
from qunlearn.methods.constants import CLOSE, FEWEST
from qunlearn.methods.relearn import control_samples, fine_tune
from qunlearn.metrics import margin
from qunlearn.metrics.bootstrap import Interval, bootstrap_interval
from qunlearn.training.inference import predict

BATCH = 64
ROUNDS = 10
"""How many points a curve has, beside its start."""
SHOWN_SHARE = 8
"""Where forgotten samples are trained on, one in so many samples of a step is one of them."""
UNTOLD = 10.0
"""If so many points may be chance, nothing can be told."""

Control = Literal["Retrain", "unseen samples", "class-wise", "rise"]
"""What the network is compared with. "Retrain": fine-tuned the same. "unseen samples": a random
request leaves samples like them. "class-wise": a Retrain has no confidence in a class that it never
saw. "rise": nothing says where a Retrain would be, only a rise is telling."""


class RelearnConfig(AuditConfig):
    """How a network is fine-tuned."""

    steps: int = Field(200, ge=1, le=10**6, description="Steps of fine-tuning.")
    shown: Annotated[
        tuple[Annotated[int, Field(ge=0)], ...],
        BeforeValidator(lambda text: text.split(",") if isinstance(text, str) else text),
    ] = Field(
        (0, 1, 10),
        description="Forgotten samples per class that are trained on, with commas between; 0: "
        "retained samples alone.",
    )


@dataclass(frozen=True)
class Point:
    """Forgotten and unseen samples after so many steps: accuracy and mean confidence, percent."""

    steps: int
    accuracy: float
    confidence: float
    unseen_accuracy: float
    unseen_confidence: float


@dataclass(frozen=True)
class Relearned:
    """Fine-tuning with some forgotten samples shown.

    Attributes:
        shown: Forgotten samples per class that were trained on.
        samples: How many other forgotten samples were measured.
        points: The network, from the start to the end.
        retrain: The same of a Retrain; empty without one.
        excess: By how many points the forgotten samples are above what is expected in the end.
        interval: Where the excess lies.
        half: Steps until half of what was forgotten was back; None if it was not.
        retrain_half: Steps until Retrain had learned as much; None if it had not.
    """

    shown: int
    samples: int
    points: tuple[Point, ...]
    retrain: tuple[Point, ...]
    excess: float
    interval: Interval
    half: int | None = None
    retrain_half: int | None = None


@dataclass(frozen=True)
class RelearnAudit:
    """What fine-tuning brought back.

    Attributes:
        control: What the network is compared with.
        curves: One for each number of forgotten samples shown.
        unseen: How many unseen samples are the control.
        forgotten: How many points of confidence forgetting took off; None if unknown.
    """

    control: Control
    curves: tuple[Relearned, ...]
    unseen: int
    forgotten: float | None = None

    def row(self) -> AuditRow:
        """Fails if a curve is above what is expected, by more than chance."""
        retrain = ("Retrain",) if self.control == "Retrain" else ()
        figures = tuple(
            Figure(
                f"confidence that comes back, {curve.shown} per class shown",
                curve.excess,
                curve.interval,
                unit="points",
            )
            for curve in sorted(self.curves, key=lambda each: -each.excess)
        )
        judged = self.judged()
        needs = ("network", "retained samples", "forgotten samples", *retrain)
        return AuditRow(
            "relearn", needs, figures, judged.verdict, judged.reason, detail=judged.detail
        )

    def judged(self) -> Judgement:
        """The verdict, and what decided it."""
        curves = [c for c in self.curves if self.control != "class-wise" or not c.shown]
        back = tuple(str(c.shown) for c in curves if c.interval.low > CLOSE)
        if back:
            return Judgement("fail", "comes back", {"shown": back})
        if not curves:
            return Judgement("cannot be told", "no Retrain")
        if max(curve.interval.high - curve.excess for curve in curves) > UNTOLD:
            return Judgement("cannot be told", "too few samples")
        if self.control == "rise":
            return Judgement("cannot be told", "nothing comes back, no Retrain")
        if self.control == "class-wise" and len(curves) < len(self.curves):
            return Judgement("pass", "retained samples alone")
        return PASS


@dataclass(frozen=True)
class Traced:
    """A curve, and each sample's confidence in percent at its start and its end, as columns."""

    points: tuple[Point, ...]
    forgotten: Tensor
    unseen: Tensor


def relearn(case: Case, settings: RelearnConfig) -> RelearnAudit:
    """Fine-tune copies of the network, and of a Retrain if there is one; see `RelearnAudit`."""
    split = case.split
    unseen = control_samples(split)
    if len(unseen) < FEWEST:
        raise NotApplicable(
            f"There are {len(unseen)} unseen samples of the retained classes, too few to compare "
            f"with; {FEWEST} are needed."
        )
    control = control_of(case)
    draws = {count: shown_samples(split, count, case.seed) for count in settings.shown}
    # With nothing left to measure, or nothing shown that a smaller number did not, there is none.
    draws = {n: shown for n, shown in draws.items() if bool(len(shown)) == bool(n)}
    before = None if case.before is None else _mean_confidence(case.before, split)
    took = None if before is None else before - _mean_confidence(case.model, split)
    curves = []
    for count, shown in draws.items():
        rest = split.forget[~torch.isin(split.forget, shown)]
        parts = (shown, rest, unseen)
        traces = [_trace(case.model, case, *parts, settings.steps)]
        if case.retrain is not None:
            traces.append(_control(case.retrain, case, *parts, settings.steps))
        excess, interval = excess_of(control, traces, 2 * LEVEL / len(draws))
        halves = [half_back(trace.points, traces[0].points[0], took) for trace in traces]
        curves.append(
            Relearned(
                count,
                len(rest),
                traces[0].points,
                traces[1].points if len(traces) > 1 else (),
                excess,
                interval,
                halves[0],
                halves[1] if len(halves) > 1 else None,
            )
        )
    return RelearnAudit(control, tuple(curves), len(unseen), took)


def control_of(case: Case) -> Control:
    """What the network is compared with, by what is at hand and what was asked."""
    if case.retrain is not None:
        return "Retrain"
    if case.split.whole_classes:
        return "class-wise"
    last = case.split.last
    return "unseen samples" if last is not None and last.kind == "random" else "rise"


def shown_samples(split: Split, count: int, seed: int) -> Tensor:
    """Forgotten samples to train on: at most so many of a class, and at most half of them."""
    labels, chosen = split.data.labels[split.forget], []
    for label in sorted(set(labels.tolist())):
        rows = split.forget[labels == label]
        order = torch.from_numpy(generator("shown", seed, int(label)).permutation(len(rows)))
        chosen.append(rows[order[: min(count, len(rows) // 2)]])
    return torch.cat(chosen).sort().values


def _control(
    retrain: nn.Module, case: Case, shown: Tensor, rest: Tensor, unseen: Tensor, steps: int
) -> Traced:
    """Retrain's curve; the one that was made before, if networks beside it share their curves."""
    if case.controls is None:
        return _trace(retrain, case, shown, rest, unseen, steps)
    content = hashlib.sha256(f"{retrain} {case.split.digest} {case.seed} {steps}".encode())
    content.update(f"{torch.get_num_threads()} {case.fabric.world_size}".encode())
    for name, tensor in (*retrain.state_dict().items(), ("shown", shown), ("rest", rest)):
        content.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        content.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return case.controls.trace(
        content.hexdigest(), lambda: _trace(retrain, case, shown, rest, unseen, steps)
    )


def _trace(
    network: nn.Module, case: Case, shown: Tensor, rest: Tensor, unseen: Tensor, steps: int
) -> Traced:
    copied, split = copy.deepcopy(network), case.split
    rounds = min(ROUNDS, steps)
    each = -(-steps // rounds)
    labels, points, columns = split.data.labels, [], ([], [])  # type: ignore[var-annotated]

    def measure() -> None:
        parts = [(predict(copied, split.data, part), labels[part]) for part in (rest, unseen)]
        sure = [100 * margin(out.double(), true).sigmoid() for out, true in parts]
        right = [100 * float((out.argmax(1) == true).double().mean()) for out, true in parts]
        means = [float(values.mean()) for values in sure]
        points.append(Point(each * len(points), right[0], means[0], right[1], means[1]))
        for column, values in zip(columns, sure, strict=True):
            column.append(values)

    measure()
    index = split.retain
    if len(shown):
        times = max(1, len(index) // (SHOWN_SHARE - 1) // len(shown))
        index = torch.cat([index, shown.repeat(times)])
    try:
        fine_tune(
            copied,
            split,
            index,
            case.fabric,
            steps=each,
            rounds=rounds,
            batch_size=BATCH,
            seed=case.seed,
            title="relearning",
            watch=measure,
        )
    except Failure as error:
        raise NotApplicable(f"Fine-tuning diverged: {error}") from None
    ends = [torch.stack([column[0], column[-1]], 1) for column in columns]
    return Traced(tuple(points), *ends)


def excess_of(control: Control, traces: Sequence[Traced], level: float) -> tuple[float, Interval]:
    """By how many points the forgotten samples are above what is expected, and its interval."""
    ours = traces[0]
    if control == "Retrain":
        pairs = [
            torch.stack([getattr(trace, part)[:, 1] for trace in traces], 1)
            for part in ("forgotten", "unseen")
        ]

        def beyond(forgotten: Tensor, unseen: Tensor) -> float:
            rises = [(each[:, 0] - each[:, 1]).mean() for each in (forgotten, unseen)]
            return float(rises[0] - rises[1])

        return beyond(*pairs), bootstrap_interval(beyond, *pairs, level=level)
    if control == "class-wise":
        values = [ours.forgotten[:, 1]]
    elif control == "unseen samples":
        values = [ours.forgotten[:, 1], ours.unseen[:, 1]]
    else:
        values = [each[:, 1] - each[:, 0] for each in (ours.forgotten, ours.unseen)]

    def above(forgotten: Tensor, *unseen: Tensor) -> float:
        return float(forgotten.mean()) - sum(float(each.mean()) for each in unseen)

    return above(*values), bootstrap_interval(above, *values, level=level)


def half_back(points: Sequence[Point], start: Point, forgotten: float | None) -> int | None:
    """Steps until half of what was forgotten is back, beyond what unseen samples gain.

    >>> curve = (Point(0, 0, 50.0, 0, 60.0), Point(20, 0, 65.0, 0, 62.0))
    >>> half_back(curve, curve[0], 20.0), half_back(curve, curve[0], 30.0)
    (20, None)
    """
    if forgotten is None or forgotten <= CLOSE:
        return None
    for point in points:
        gained = point.unseen_confidence - points[0].unseen_confidence
        if point.confidence - gained >= start.confidence + forgotten / 2:
            return point.steps
    return None


def _mean_confidence(model: nn.Module, split: Split) -> float:
    logits = predict(model, split.data, split.forget).double()
    return 100 * float(margin(logits, split.data.labels[split.forget]).sigmoid().mean())


def work(case: Case, settings: RelearnConfig) -> Work:
    """Each curve trains on a batch in each step, and predicts the samples at each point."""
    networks = (1 if case.retrain is None else 2) * len(settings.shown)
    measured = len(case.split.forget) + len(control_samples(case.split))
    return Work(networks * measured * (ROUNDS + 1), networks * settings.steps * BATCH)


audits.register("relearn")(
    Audit(
        rank=10,
        config=RelearnConfig,
        finding=RelearnAudit,
        attack=relearn,
        work=work,
        summary="See whether fine-tuning brings back what was forgotten.",
        help="""Fine-tunes a copy of the network, in its own bits, on retained samples alone and
        with 1 and 10 forgotten samples per class; measures the other forgotten samples, with unseen
        ones as the control; beside Retrain, if it is given, treated the same.""",
        examples=("--reference runs/retrain", "--steps 500 --shown 0,5"),
    )
)
