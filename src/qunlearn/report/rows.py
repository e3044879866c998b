"""The words and numbers of a comparison's table."""

from __future__ import annotations

from qunlearn.parts import LOST
from qunlearn.report.html import counted
from qunlearn.study.ranking import Ranking
from qunlearn.study.table import Interval, Table, TableRow


def runtime(row: TableRow) -> str:
    """The share of Retrain's time; marked where the two did not have the same of the machine."""
    return f"{'' if row.evenly_timed else '~ '}{interval(row.runtime, 1)} %"


LIRA = (
    "LiRA judges each forgotten sample by the Retrains of the other seeds. Retrain itself has an "
    "AUC of 0.5 and a TPR of 1 %. AUC above 0.5: still known; below 0.5: less known than unseen "
    "samples. AUC of |z|: distinguishable in either direction."
)


def notes(content: Table) -> list[str]:
    """What a reader has to know to trust the table, or not to."""
    rows, seeds, floor = content.rows, content.seeds, content.noise_floor
    spread = "mean ± half the 95 % interval over the seeds" if seeds > 1 else "no interval"
    lines = [
        f"{counted(seeds, 'seed')}: {spread}. Gap: the distance to Retrain of the same seed; AG: "
        "the mean of the four gaps, where small is good. Runtime: of Retrain's. Trials: how many "
        "settings were tried."
    ]
    lines += [ranking_words(content.ranking)] if content.ranking else []
    lines.append(
        f"Noise floor: Retrains of different seeds have an AG of {interval(floor.AG)} among "
        "each other; below that no method can be told from Retrain."
        if floor
        else "With a single seed there is no noise floor: how far Retrain is from itself by chance "
        "is not known; use two seeds or more."
    )
    retrain_right, original_right = content.retrain.RA[0], content.original.RA
    if retrain_right < original_right - LOST:
        lines.append(
            f"Careful: Retrain is right on {retrain_right:.1f} % of what it was taught, and the "
            f"original on {original_right:.1f} %. It has not learned as much, and is no fair "
            "reference; give it more epochs or another rate, as --set retrain.epochs=N."
        )
    if len({row.trials for row in content.methods}) > 1:
        lines.append(
            "Careful: the methods had different numbers of trials, so this comparison is not even."
        )
    lines.append(_chosen(content))
    if not all(row.evenly_timed for row in rows):
        lines.append(
            "~ Not a fair time: these runs and the Retrains were made with different numbers of "
            "threads or of workers side by side."
        )
    if any(row.lira and "TPR at 1 % FPR" not in row.lira for row in rows):
        forgotten = counted(content.parts["forget"], "sample")
        lines.append(f"LiRA's TPR at 1 % FPR is left out: 1 % of {forgotten} is less than one.")
    lines += [f"{name} failed, {why}" for name, why in content.failed.items()]
    return lines


def ranking_words(ranked: Ranking) -> str:
    """Which method is best, and if that cannot be told, why.

    >>> ranking_words(Ranking("ft", "rl", 2))
    'Best is ft, runner-up rl.'
    >>> ranking_words(Ranking("ft", "rl", 0, ("rl",), "intervals"))
    'ft has the smallest AG; which is best is open: its interval overlaps rl.'
    """
    first, tied = ranked.first, ", ".join(ranked.tied)
    if ranked.because == "one seed":
        return f"{first} has the smallest AG; one seed cannot tell which is best."
    if ranked.ranked == 2:
        return f"Best is {first}, runner-up {ranked.second}."
    rival = ranked.second if ranked.ranked else first
    why = (
        f"{rival}, {tied} are within the noise floor"
        if ranked.because == "noise floor"
        else f"its interval overlaps {tied}"
    )
    if ranked.ranked:
        return f"Best is {first}; which is second is open: {why}."
    return f"{first} has the smallest AG; which is best is open: {why}."


def _chosen(content: Table) -> str:
    """How settings were chosen."""
    select, source = content.select, content.settings_from
    if source:
        how = {
            "oracle": "chosen there by looking at Retrain (oracle)",
            "heldout": "chosen there by looking at held-out data only",
            None: "not searched for there",
        }
        return (
            f"Settings are those of the comparison {source}, {how[select]}; none was chosen here."
        )
    if not select:
        return "Settings were not searched for: they are the given ones and the defaults."
    looked = {
        "oracle": "Retrain (oracle), which nobody has in practice: take the figures as the best "
        "each method can do",
        "heldout": "held-out data only, not at Retrain",
    }
    return (
        f"Settings were chosen on seed 0 by looking at {looked[select]}. Seed 0 is among the seeds "
        "reported, so the figures are a little better than on seeds that chose nothing."
    )


def interval(value: Interval, digits: int = 2) -> str:
    """A mean with half its interval.

    >>> interval((12.5, 0.25)), interval((3.0, None))
    ('12.50 ± 0.25', '3.00')
    """
    mean, half = value
    return f"{mean:.{digits}f}" + (f" ± {half:.{digits}f}" if half is not None else "")
