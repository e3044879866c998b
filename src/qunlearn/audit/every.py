"""Every audit that fits a time budget, in order of what tells most."""

from __future__ import annotations

import copy
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, Field

from qunlearn.audit.case import Case, case_of
from qunlearn.audit.config import AuditConfig
from qunlearn.audit.registry import Work, audits
from qunlearn.audit.row import AuditRow, Detail, NotApplicable
from qunlearn.audit.run import audited, rows_of
from qunlearn.data.draw import spread
from qunlearn.errors import Failure
from qunlearn.methods.relearn import fine_tune
from qunlearn.store.layout import AUDIT
from qunlearn.store.run import Run
from qunlearn.store.typed import typed, untyped
from qunlearn.training.inference import predict

ALL = "all"
"""Where the table stands in `audit.json`."""
UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}
TRIED = 256
"""Samples that the speed is measured on."""
STEPS = 6
"""Steps of training that it is measured on."""


def seconds_of(text: object) -> object:
    """A duration in seconds.

    >>> seconds_of("10m"), seconds_of("90"), seconds_of("1.5h")
    (600.0, 90.0, 5400.0)
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smh]?)", str(text).strip())
    if match is None:
        raise ValueError("give seconds, minutes or hours, as 90s, 10m or 2h")
    return float(match[1]) * UNITS[match[2] or "s"]


class AuditAllConfig(AuditConfig):
    """How much time all audits together may take."""

    budget: Annotated[float, BeforeValidator(seconds_of)] = Field(
        600.0,
        gt=0,
        description="Time for all audits together, as 90s, 10m or 2h.",
        json_schema_extra={"metavar": "TIME"},
    )


@dataclass(frozen=True)
class AllAudits:
    """The outcome of each audit, those that were not run included.

    Attributes:
        rows: One for each audit, in order of what tells most.
        budget: The seconds that were allowed.
        seconds: The seconds that it took.
    """

    rows: tuple[AuditRow, ...]
    budget: float
    seconds: float


def audit_all(
    path: Path, settings: AuditAllConfig, started: Callable[[str], None] = lambda name: None
) -> AllAudits:
    """Run what fits the budget; keeps what each audit finds, and the table, in `audit.json`.

    Args:
        path: The run.
        settings: The budget, and what all audits share.
        started: Told the name of each audit that begins.
    """
    case = case_of(path, settings)
    begun = time.perf_counter()
    speed = speed_of(case)
    shared = {name: getattr(settings, name) for name in AuditConfig.model_fields}
    rows = []
    for name in sorted(audits, key=lambda name: audits[name].rank):
        audit = audits[name]
        config = audit.config.parse(shared)
        needed = speed.seconds(audit.work(case, config))
        if needed > settings.budget - (time.perf_counter() - begun):
            rows.append(_not_run(name, "over budget", {"seconds": round(needed, 3)}))
            continue
        started(name)
        try:
            result = audited(name, case, config)
        except NotApplicable as error:
            message = str(error).split(";")[0].rstrip(".")
            rows.append(_not_run(name, "not applicable", {"message": message}))
            continue
        except KeyboardInterrupt:
            done = ", ".join(row.attack for row in rows if row.figures) or "none yet"
            raise Failure(
                f"Interrupted during {name}. Finished audits, kept in audit.json: {done}. The same "
                "command begins with the first audit again."
            ) from None
        rows.append(result.row)
        if case.run is not None:
            case.run.write_audit(name, result.to_json())
    table = AllAudits(tuple(rows), settings.budget, round(time.perf_counter() - begun, 3))
    if case.run is not None:
        case.run.write_audit(ALL, untyped(table))
    return table


def _not_run(name: str, reason: str, detail: Detail) -> AuditRow:
    return AuditRow(name, (), (), "cannot be told", reason, detail=detail)


@dataclass(frozen=True)
class Speed:
    """Seconds that one sample takes: to be predicted, and to be trained on."""

    predicting: float
    training: float

    def seconds(self, work: Work) -> float:
        """How long an audit takes, about."""
        networks = self.predicting * work.predicted + self.training * work.trained
        return networks + work.seconds


def speed_of(case: Case) -> Speed:
    """How fast the network is here, tried on a few samples."""
    some = spread(case.split.retain, TRIED)
    predict(case.model, case.split.data, some[:8])  # the first call also prepares
    begun = time.perf_counter()
    predict(case.model, case.split.data, some)
    predicting = (time.perf_counter() - begun) / len(some)
    batch, copied = min(64, len(some)), copy.deepcopy(case.model)

    def trained(steps: int) -> float:
        begun = time.perf_counter()
        fine_tune(
            *(copied, case.split, some, case.fabric),
            steps=steps,
            batch_size=batch,
            title="measuring the speed",
        )
        return time.perf_counter() - begun

    trained(1)  # the first step also prepares
    return Speed(predicting, trained(STEPS) / (STEPS * batch))


def table_of(run: Run) -> tuple[AuditRow, ...]:
    """The outcome of every audit of a run, those not run included; empty if there was none."""
    done = {row.attack: row for row in rows_of(run)}
    content = run.audits.get(ALL)
    if content is not None:
        table = typed(AllAudits, content, run.path / AUDIT)
        done = {row.attack: row for row in table.rows if row.attack in audits} | done
    return tuple(sorted(done.values(), key=lambda row: audits[row.attack].rank))
