"""What a pool of networks found, in sentences."""

from __future__ import annotations

from qunlearn.audit.pool import PoolAudit


def pool_words(finding: PoolAudit) -> list[str]:
    """What the pool was, what was tested, and what so many networks can show."""
    changed = ", ".join(f"{name} {value:g}" for name, value in finding.smaller.items())
    smaller = f" Its networks are smaller than the original ({changed})." if changed else ""
    training = (
        f"The pool has {finding.models} networks; each unlearned about {finding.unlearned:.0f} of "
        f"{finding.candidates} candidates by {finding.method}.{smaller}"
    )
    tested = (
        f"{finding.tested} samples that this run has forgotten are candidates."
        if finding.tested
        else "No sample that this run has forgotten is a candidate, so only its method is judged."
    )
    shown = (
        f"Median ε of the unlearning challenge: {finding.epsilon:.2f}; {finding.models} networks "
        f"can show at most {finding.epsilon_largest:.2f}. Its forgetting score: "
        f"{finding.challenge_score:.3f}."
    )
    return [training, tested, shown]
