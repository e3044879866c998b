"""Whether a run may serve as the reference that another is compared with."""

from __future__ import annotations

from qunlearn.data import Split, manifest
from qunlearn.errors import UserError
from qunlearn.runs.metrics import Declared
from qunlearn.store.run import Run


def check_reference(run: Run, split: Split, reference: Run) -> None:
    """Raise unless the reference is a Retrain without the samples that the run has forgotten."""
    if split.last is None:
        raise UserError(
            f"The run {str(run.path)!r} has forgotten nothing, so that there is nothing to compare "
            "with a Retrain; leave --reference out."
        )
    check_made_by_retrain(reference, "reference")
    check_present(run, split)
    check_retrained(reference, split, "reference")


def check_made_by_retrain(run: Run, called: str) -> None:
    """Raise unless a run was made by Retrain."""
    if run.info.method != "retrain":
        raise UserError(
            f"The {called} {str(run.path)!r} was not made by Retrain; name a run made by "
            "`qunlearn forget --method retrain`, or declared by `qunlearn adopt --retrain-of`."
        )


def check_retrained(run: Run, split: Split, called: str) -> None:
    """Raise unless a Retrain was trained on all that a split retains, and on nothing else."""
    theirs, ours = manifest.parse(run.split), manifest.parse(split.to_json())
    if theirs.forgotten != ours.forgotten:
        raise UserError(
            f"The {called} {str(run.path)!r} was retrained without other samples than those that "
            "are forgotten here; name the Retrain of the same request."
        )
    if theirs.retained != ours.retained:
        raise UserError(
            f"The {called} {str(run.path)!r} was trained on other samples than those that are "
            "retained here; name a Retrain of the same data, subset and split seed."
        )


def check_present(run: Run, split: Split) -> None:
    """Raise if samples that were to be forgotten are no longer there to be measured on."""
    if split.last is not None and not split.erased.keys().isdisjoint(split.last.ids):
        raise UserError(
            f"Samples that {str(run.path)!r} has forgotten are erased from the data, and can no "
            "longer be measured on; metrics.json has what was measured while they were there."
        )


def check_test(split: Split) -> None:
    """Raise if there is no test part, by which TA and MIA are measured."""
    if "test" not in split.measured():
        raise UserError(
            f"The data set {split.data.name!r} has no test samples of the classes that are "
            "retained, and TA and MIA are measured on them; add some "
            "(docs/reference/data.md says where)."
        )


def declared(reference: Run) -> Declared | None:
    """What is known of a reference that was trained elsewhere; None if it was made here."""
    checked = reference.info.declared
    return None if checked is None else Declared(reference.path.name, checked)
