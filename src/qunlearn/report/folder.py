"""Which page a folder gets."""

from __future__ import annotations

from pathlib import Path

from qunlearn.errors import UserError
from qunlearn.report.comparison import report_comparison
from qunlearn.report.run import report_run
from qunlearn.store import layout, study


def report_folder(
    path: Path,
    *,
    reference: Path | None = None,
    data: Path | None = None,
    image: bool = False,
) -> Path:
    """Write the page of a run or of a comparison, by what the folder holds."""
    if (path / study.CONFIG).is_file():
        if reference is not None:
            raise UserError(
                f"The comparison {str(path)!r} has Retrains of its own; leave --reference out."
            )
        return report_comparison(path, data=data, image=image)
    if (
        path.is_dir()
        and not (path / layout.CONFIG).is_file()
        and not (path / layout.INFO).is_file()
    ):
        raise UserError(
            f"The folder {str(path)!r} is neither a run nor a comparison; name one that "
            "`qunlearn forget` or `qunlearn compare` wrote."
        )
    return report_run(path, reference=reference, data=data, image=image)
