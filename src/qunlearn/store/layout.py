"""The run folder: settings, data split, weights and results.

config.toml         the settings; `qunlearn train --config` with it repeats the run
split.json          the manifest: every sample's part and hash, and the requests to forget
model.safetensors   the weights, with everything needed to build the model in the header
history.jsonl       one line per epoch
metrics.json        accuracy and the other metrics
predictions.safetensors   the model's logits on every part that was measured
checksums.txt       the SHA-256 of every file here; `sha256sum -c checksums.txt` checks them too
run.json            start and end, versions, machine, timings; written last, so its presence
                    means "complete"

An unfinished run also has checkpoint.safetensors, from which it can be resumed, and .lock. Files
added later, such as audit.json and a report, are not part of the run. A file is compared with its
checksum when it is read. Runs of format 1 have no checksums.txt and no format in run.json; only
their weights are checked.
"""

from __future__ import annotations

import re
from pathlib import Path

from qunlearn.errors import UserError
from qunlearn.store.files import UNDER_WAY, read_object
from qunlearn.store.lock import LOCK

CONFIG, SPLIT, MODEL = "config.toml", "split.json", "model.safetensors"
HISTORY, METRICS, INFO = "history.jsonl", "metrics.json", "run.json"
PREDICTIONS, CHECKSUMS = "predictions.safetensors", "checksums.txt"
CHECKPOINT, AUDIT = "checkpoint.safetensors", "audit.json"
PAGE, FIGURES = "report.html", "figures"
FIGURE_NAME = re.compile(
    r"(gaps|runtime|(confidence|answers|sample|conflict|audit)-.*|image)\.(svg|png)"
)
"""File names of figures."""
PAPERS = ("forgetting.intoto.json", "forgetting.html", "commitment.json", "erased.json")
"""The papers of a request: its signed record and page, its commitment, what was erased."""
KEY = "split.key"
"""The key of the manifest's hashes, readable by its owner only."""
RECORDS = "records"
"""The folder of earlier signed records."""
ALSO = re.compile(r"proof-\d+\.json|.*\.onnx")
"""Names of files that a run folder may hold, too: proofs for requesters, exported networks."""
PARTS = (CONFIG, SPLIT, MODEL, HISTORY, METRICS, PREDICTIONS, CHECKSUMS, INFO)
NEEDED = (CONFIG, SPLIT, MODEL, METRICS, INFO)
OLDEST, FORMAT = 1, 2
"""The oldest format of the run folder that is read, and the format that is written."""


def format_of(path: Path) -> int:
    """The format of a complete run; an unsupported one is a `UserError`."""
    number = read_object(path / INFO).get("format", 1)
    if not isinstance(number, int) or not OLDEST <= number <= FORMAT:
        newer = isinstance(number, int) and number > FORMAT
        remedy = "upgrade qunlearn" if newer else "use the version of qunlearn that wrote it"
        raise UserError(
            f"The run {str(path)!r} has format {number!r}; this version of qunlearn reads formats "
            f"{OLDEST} to {FORMAT}; {remedy}."
        )
    return number


def names(folder: Path) -> list[str]:
    """The names in a folder, without lock and temporary files."""
    names = [path.name for path in folder.iterdir()]
    return [name for name in names if name != LOCK and not name.startswith(UNDER_WAY)]
