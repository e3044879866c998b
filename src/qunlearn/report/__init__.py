"""The page that shows what a run or a comparison says."""

from qunlearn.report.comparison import report_comparison
from qunlearn.report.folder import report_folder
from qunlearn.report.run import report_run

__all__ = ["report_comparison", "report_folder", "report_run"]
