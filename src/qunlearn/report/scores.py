"""What was measured on a network, as tables and sentences that the command line prints."""

from __future__ import annotations

from qunlearn.metrics.gap import SCORES
from qunlearn.metrics.membership import REPORTED, least_accuracy, weakest_attack
from qunlearn.parts import LOST, part_name
from qunlearn.report.tables import AVERAGE, SCORE_NAMES, TextTable
from qunlearn.runs.metrics import RunMetrics


def parts_table(metrics: RunMetrics, title: str = "") -> TextTable:
    """Each part of the split, beside before forgetting and Retrain where these are there."""
    before = {} if metrics.before is None else metrics.before.parts
    compared = metrics.reference is not None
    head = ["part", "accuracy", *(["before"] if before else []), "confidence", "entropy"]
    head += ["agreement", "divergence"] if compared else []
    rows = []
    for name, part in metrics.parts.items():
        row = [part_name(name), f"{part.accuracy:.2f} %"]
        row += [f"{before[name].accuracy:.2f} %"] if before else []
        row += [f"{part.confidence:.3f}", f"{part.entropy:.3f}"]
        row += [f"{part.agreement:.2f} %", f"{part.divergence:.4f}"] if compared else []
        rows.append([*row, f"{part.samples:,}"])
    return TextTable([*head, "samples"], rows, title)


def scores_table(metrics: RunMetrics) -> TextTable:
    """The four figures beside what they were before, and Retrain's; each named in words."""
    before, retrain = metrics.before, metrics.reference
    models = {"this model": metrics, "before": before, "Retrain": retrain}
    figures = {name: model.figures for name, model in models.items() if model is not None}
    if retrain is not None:
        figures["gap"] = metrics.gaps
    rows = [[name, *(f"{each[score]:.2f}" for score in SCORES)] for name, each in figures.items()]
    head = ["in percent", *SCORE_NAMES.values()]
    if retrain is not None:
        rows = [[*rows[0], f"{metrics.AG:.2f}"], *([*row, ""] for row in rows[1:])]
        head.append(AVERAGE)
    return TextTable(head, rows)


def scores_notes(metrics: RunMetrics) -> list[str]:
    """What a reader has to know to trust the four figures, or not to."""
    before, retrain = metrics.before, metrics.reference
    other_features = [
        f"{name} {mia:.2f} %" for name, mia in metrics.attacks.items() if name != REPORTED
    ]
    notes = [f"MIA with another feature than confidence: {', '.join(other_features)}."]
    accuracy = weakest_attack(m.attack_accuracy for m in (metrics, retrain) if m is not None)
    needed = least_accuracy(min(metrics.parts[part].samples for part in ("retain", "test")))
    if accuracy is not None and accuracy < needed:
        notes.append(
            f"The membership attack is no better than guessing: its accuracy is {accuracy:.1f} %, "
            f"and {needed:.1f} % are needed to beat chance. Ignore MIA here, and its part in AG."
        )
    if retrain is not None and retrain.RA < metrics.RA - LOST:
        notes.append(
            "Retrain is no fair reference: its accuracy on the retained samples is "
            f"{retrain.RA:.1f} %, this model's {metrics.RA:.1f} %. Retrain with the settings of "
            "the original."
        )
    if before is not None and metrics.RA < before.RA - LOST:
        notes.append(
            f"The accuracy on what is retained fell from {before.RA:.1f} % to {metrics.RA:.1f} %: "
            "the network is damaged; use a smaller learning rate or fewer steps."
        )
    return notes


def original_table(original: RunMetrics) -> TextTable:
    """How many digits the demo's network gets right, of those it learned and of others."""
    names = {"train": "digits it was trained on", "test": "digits it never saw"}
    rows = [[name, f"{original.parts[part].accuracy:.1f} %"] for part, name in names.items()]
    return TextTable(["a 4-bit network on", "right"], rows)


def demo_request_words(metrics: RunMetrics) -> str:
    """What the demo asks of its network."""
    samples = metrics.parts["forget"].samples
    return f"It is made to forget {samples} of the digits that it was trained on."


def story_table(metrics: RunMetrics) -> TextTable:
    """A network before forgetting, after it and retrained, in words that need no glossary."""
    before, retrain = metrics.before, metrics.reference
    assert before is not None
    assert retrain is not None
    names = {
        "FA": "samples to forget: right",
        "RA": "samples to keep: right",
        "TA": "new samples: right",
        "MIA": "samples to forget: an attacker takes them for unseen",
    }
    rows = [
        [name, *(f"{each.figures[score]:.1f} %" for each in (before, metrics, retrain))]
        for score, name in names.items()
    ]
    return TextTable(["", "before", "after forgetting", "retrained without them"], rows)


def time_words(seconds: float, retraining: float) -> str:
    """How long forgetting took.

    >>> time_words(2.5, 20.0)
    'Forgetting took 2.5 seconds, 12 % of the 20.0 that retraining took.'
    """
    share = 100 * seconds / retraining
    return (
        f"Forgetting took {seconds:.1f} seconds, {share:.0f} % of the {retraining:.1f} that "
        "retraining took."
    )
