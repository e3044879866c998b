"""Audits of every finished cell of a comparison: which method fails which attack, at what cost.

    python benchmarks/audits.py OUT --data-dir DIR [--methods original,retrain,calibrated]
        [--seeds 1] [--audits relearn,differ]

OUT is the folder of a request: what `qunlearn compare` has written, or a folder such as
`random-10` of `qunlearn reproduce`. Each cell is audited beside the Retrain of its seed, a Retrain
beside that of the next seed; `original` is the network before forgetting. Every method has a file
in `results/audits/`, which is written anew after each audit: the same command resumes. Cells that
were made anew are audited anew. `audit_tables.py` prints the tables.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from qunlearn.audit import Case, NotApplicable, audited, audits, case_of
from qunlearn.audit.case import Controls
from qunlearn.audit.config import AuditConfig
from qunlearn.audit.differ import DifferAudit
from qunlearn.audit.relearn import RelearnAudit
from qunlearn.audit.run import Result
from qunlearn.errors import UserError
from qunlearn.metrics import average_gap
from qunlearn.runs.evaluate import evaluate
from qunlearn.runs.metrics import metrics_of
from qunlearn.store.files import make_folder, read_json, write_json
from qunlearn.store.run import Run
from qunlearn.store.typed import untyped

CONTROLS = Controls()
"""The same Retrain stands beside every method: `relearn` fine-tunes it once."""
RESULTS = Path(__file__).parent / "results" / "audits"
NETWORKS = ("relearn", "differ", "bits")
"""Audits of a cell."""
REQUEST = "copies"
"""The audit of the data and the network before, which are the same for every cell."""
ORIGINAL, RETRAIN = "original", "retrain"


@dataclass(frozen=True)
class AuditedCell:
    """A network to audit, and the Retrain that it is compared with.

    The original is audited on the split of a Retrain's run, which is then `run`.
    """

    method: str
    seed: int
    run: Run
    reference: Run | None

    def to_json(self) -> dict[str, Any]:
        """What identifies it; results of other networks do not count."""
        info, original = self.run.info, self.method == ORIGINAL
        return {
            "seed": self.seed,
            "revision": None if original else info.revision,
            "model_sha256": info.origin if original else info.model_sha256,
            "reference_sha256": self.reference and self.reference.info.model_sha256,
        }

    def case(self, data: Path | None) -> Case:
        """What the audits look at."""
        asked: dict[str, object] = {"seed": self.seed, "threads": 1}
        if data is not None:
            asked["data"] = data
        if self.reference is not None:
            asked["reference"] = self.reference.path
        case = replace(case_of(self.run.path, AuditConfig.parse(asked)), controls=CONTROLS)
        if self.method != ORIGINAL:
            return case
        if case.before is None:
            raise UserError(f"The network that {str(self.run.path)!r} was made from is gone.")
        return replace(case, model=case.before)


def newest(out: Path, method: str, seed: int) -> Run | None:
    """The finished cell of a seed; of several, the one made by the newest code."""
    paths = (out / "cells" / method).glob(f"seed{seed}*")
    mine = [path for path in paths if path.name.split("-")[0] == f"seed{seed}"]
    runs = [Run.open(path) for path in sorted(mine) if Run.is_complete(path)]
    return max(runs, key=lambda run: run.info.revision or 0, default=None)


def cells_of(out: Path, methods: list[str]) -> Iterator[AuditedCell]:
    """Every network there is to audit beside a Retrain, method by method."""
    numbers = sorted({int(p.name.split("-")[0][4:]) for p in (out / "cells").glob("*/seed*")})
    found = {seed: newest(out, RETRAIN, seed) for seed in numbers}
    retrains = {seed: run for seed, run in found.items() if run is not None}
    following = dict(zip(retrains, [*list(retrains)[1:], *retrains], strict=False))
    for method in methods:
        for seed, retrain in retrains.items():
            run = retrain if method == ORIGINAL else newest(out, method, seed)
            if run is None:
                continue
            other = following[seed] if method == RETRAIN else seed
            alone = method == RETRAIN and other == seed
            yield AuditedCell(method, seed, run, None if alone else retrains[other])


def methods_of(out: Path) -> list[str]:
    """The methods that a comparison has cells of: the original and Retrain first."""
    there = {path.name for path in (out / "cells").iterdir() if path.is_dir()}
    return [ORIGINAL, RETRAIN, *sorted(there - {ORIGINAL, RETRAIN})]


def entry(result: Result) -> dict[str, Any]:
    """An audit's outcome as it is kept, with the share of Retrain's time."""
    finding, content = result.finding, {**untyped(result.row), "share": result.row.share}
    if isinstance(finding, RelearnAudit):
        content["half"] = {str(c.shown): [c.half, c.retrain_half] for c in finding.curves}
    if isinstance(finding, DifferAudit):
        content["divergence"] = finding.divergence
    return content


def run_audit(name: str, case: Case) -> dict[str, Any]:
    """One audit, with the time that it takes alone; the reason if it has no answer."""
    settings = audits[name].config.parse({"seed": case.seed, "threads": 1})
    saved = CONTROLS.saved
    try:
        result = audited(name, case, settings)
        seconds = round(result.row.seconds + CONTROLS.saved - saved, 3)
        return entry(replace(result, row=replace(result.row, seconds=seconds)))
    except NotApplicable as error:
        return {"verdict": "cannot be told", "reason": str(error), "figures": []}


def gap_of(cell: AuditedCell, case: Case) -> float | None:
    """AG beside the reference."""
    if cell.reference is None:
        return None
    return average_gap(evaluate(case.model, case.split).figures, metrics_of(cell.reference).figures)


def audit_cell(cell: AuditedCell, file: Path, data: Path | None, names: Sequence[str]) -> None:
    """Run those audits of a cell that its method's file does not have."""
    identity, rows = cell.to_json(), read_json(file)["cells"] if file.is_file() else []
    same = [row for row in rows if identity.items() <= row.items()]
    others = [row for row in rows if row["seed"] != cell.seed]
    missing = [name for name in names if not same or name not in same[0]["audits"]]
    if not missing:
        return
    case = cell.case(data)
    row = same[0] if same else {**identity, "AG": gap_of(cell, case), "audits": {}}
    for name in missing:
        row["audits"][name] = run_audit(name, case)
        cells = sorted([*others, row], key=lambda each: int(each["seed"]))
        write_json(file, {"method": cell.method, "cells": cells})
        print(
            f"{cell.method} seed {cell.seed}, {name}: {row['audits'][name]['verdict']}", flush=True
        )


def main() -> None:
    """Audit what is not there yet, one network at a time."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path, help="a folder with cells/")
    parser.add_argument("--data-dir", type=Path, help="where the data set is now")
    parser.add_argument("--methods", help="with commas between; all by default")
    parser.add_argument("--seeds", type=int, help="so many of the seeds; all by default")
    parser.add_argument("--audits", default=",".join(NETWORKS), help="with commas between")
    parser.add_argument("--results", type=Path, default=RESULTS)
    asked = parser.parse_args()
    out = asked.out.resolve()
    if not (out / "cells").is_dir():
        parser.error(f"{asked.out} has no folder cells; name one that `qunlearn compare` wrote")
    there = methods_of(out)
    methods = asked.methods.split(",") if asked.methods else there
    if unknown := set(methods) - set(there):
        parser.error(f"no cells of {', '.join(sorted(unknown))}; there are {', '.join(there)}")
    names = asked.audits.split(",")
    if wrong := set(names) - set(NETWORKS):
        parser.error(f"no such audits: {', '.join(sorted(wrong))}; known are {', '.join(NETWORKS)}")
    cells = list(cells_of(out, methods))
    if asked.seeds is not None:
        cells = [cell for cell in cells if cell.seed < asked.seeds]
    if not cells:
        parser.error(f"{asked.out} has no finished Retrain to compare with; finish the comparison")
    folder = asked.results / f"{out.parent.name}-{out.name}"
    make_folder(folder)
    file, network = folder / "request.json", {"original_sha256": cells[0].run.info.origin}
    if not file.is_file() or not network.items() <= read_json(file).items():
        content = run_audit(REQUEST, cells[0].case(asked.data_dir))
        write_json(file, {**network, REQUEST: content})
    for cell in cells:
        audit_cell(cell, folder / f"{cell.method}.json", asked.data_dir, names)


if __name__ == "__main__":
    main()
