"""Whether a calibrated method reached its target, in words."""

from __future__ import annotations

from dataclasses import replace

from qunlearn.methods.calibration import Calibration, Extension
from qunlearn.methods.constants import CLOSE, UNEVEN, WATCHED
from qunlearn.report.html import counted
from qunlearn.report.verdict import COARSE, Verdict


def target_words(calibration: Calibration) -> str:
    """Whether the target was reached, with the figures.

    >>> print(target_words(Calibration(85.3, 86.0, 91.6, 1.1, 450, 5000, random=True,
    ...                                distance=0.04, distance_before=0.35, distance_chance=0.05,
    ...                                depth="deep", steps=640, logit_scale=1.05)))
    ... # doctest: +NORMALIZE_WHITESPACE
    Target reached. Mean confidence in the true label on the forgotten samples: 86.0 %, target
    85.3 ± 1.1 % (estimated from 5,000 unseen samples), before forgetting 91.6 %. Distance of the
    distribution from its target (Kolmogorov-Smirnov): 0.04, before 0.35; up to 0.10 counts as
    reached. Logits were rescaled by 1.05 to restore the original temperature; no prediction
    changes.
    """
    words = [_lead(calibration), _figures(calibration)]
    if calibration.distance is not None and calibration.distance_before is not None:
        words.append(
            f"Distance of the distribution from its target (Kolmogorov-Smirnov): "
            f"{calibration.distance:.2f}, before {calibration.distance_before:.2f}; up to "
            f"{max(UNEVEN, calibration.distance_chance):.2f} counts as reached."
        )
    words += [_extended(calibration, reason) for reason in dict.fromkeys(calibration.waited_for)]
    if calibration.depth == "shallow" and not calibration.depth_asked:
        words.append("Shallow forgetting was chosen, since the network had memorised little.")
    if calibration.logit_scale > 1.02:
        words.append(
            f"Logits were rescaled by {calibration.logit_scale:.2f} to restore the original "
            "temperature; no prediction changes."
        )
    if not calibration.random and not calibration.class_wise:
        words.append(
            "The samples were not drawn at random: they may be easier or harder than unseen ones, "
            "which the target was estimated from."
        )
    return " ".join(words)


def _extended(calibration: Calibration, reason: Extension) -> str:
    """Why steps were added, and whether that helped."""
    if reason == "depth":
        return (
            "Shallow forgetting came first, since the network had memorised little; fine-tuning "
            "brought samples back, so deep forgetting followed."
        )
    if reason == "target":
        if calibration.state == "short":
            return "More steps than planned were taken, and did not reach the target."
        return "More steps than planned were needed until the target was reached."
    if not calibration.recovered:
        return (
            "More steps than planned were taken, and retained samples did not recover: accuracy on "
            f"{WATCHED} of them is {calibration.retained_after:.1f} %, before "
            f"{calibration.retained_before:.1f} %."
        )
    return "More steps than planned were needed until retained samples recovered."


def _lead(calibration: Calibration) -> str:
    above, remedy = calibration.reached - calibration.target, _remedy(calibration)
    known = calibration.before - calibration.target > CLOSE
    little = "" if known else ", though there was little to forget"
    return {
        "reached": "Target reached.",
        "short": f"Target not reached: {above:.1f} points above it; {remedy}.",
        "too far": f"Target overshot: {-above:.1f} points below it{little}; {remedy}.",
        "uneven": "Target reached on average only: the distribution of confidences differs from "
        f"its target; {remedy}.",
        "little": "There was little to forget.",
        "open": f"The sample is {-above:.1f} points below its target; a single sample cannot show "
        "whether that is too far.",
    }[calibration.state]


def _figures(calibration: Calibration) -> str:
    target = (
        "0 %, since no sample of the class is retained"
        if calibration.class_wise
        else f"{calibration.target:.1f} ± {calibration.chance:.1f} % (estimated from "
        f"{counted(calibration.unseen, 'unseen sample')})"
    )
    return (
        f"Mean confidence in the true label on the forgotten samples: {calibration.reached:.1f} %, "
        f"target {target}, before forgetting {calibration.before:.1f} %."
    )


def _remedy(calibration: Calibration) -> str:
    """What to do if the target was missed."""
    if calibration.state == "too far":
        return f"try --set lr={calibration.lr / 2:g}" if calibration.lr else "use --method retrain"
    if calibration.limited:
        return "allow more steps"
    if calibration.depth == "shallow":
        return "try --depth deep"
    return "use --method retrain"


def judged_by_target(
    verdict: Verdict, calibration: Calibration, *, outgrown: bool = False
) -> Verdict:
    """The verdict on a network, where there is no Retrain to decide it.

    Args:
        verdict: The one beside unseen samples.
        calibration: The target, and what was reached.
        outgrown: Whether the network became much more confident on unseen samples: the target,
            which is estimated before forgetting, is then out of date.
    """
    if verdict.level == "damaged":
        return verdict
    if verdict.level == "too-much" and outgrown and calibration.met and not calibration.class_wise:
        headline = (
            "the model now does better on unseen samples than on the forgotten ones, which can "
            "give them away; it was still learning, so train the original for longer first."
        )
        return replace(verdict, headline=headline, met=False)
    above, remedy = calibration.reached - calibration.target, _remedy(calibration)
    level, word, headline = verdict.level, verdict.word, verdict.headline
    if calibration.state == "short":
        level, word = (
            "no",
            "Only in part" if above < (calibration.before - calibration.target) / 2 else "No",
        )
        headline = (
            f"confidence on the forgotten samples is {above:.1f} points above its target; {remedy}."
        )
    elif calibration.state == "too far":
        level, word = "too-much", "Too much"
        headline = (
            f"confidence on the forgotten samples is {-above:.1f} points below its target, which "
            f"can give them away; {remedy}."
        )
    elif calibration.state == "uneven":
        level, word = "no", "Only on average"
        headline = (
            "the mean confidence on the forgotten samples is at its target, but its distribution "
            f"is not, which can give them away; {remedy}."
        )
    elif calibration.class_wise:
        pass
    elif calibration.state == "little":
        level, word = "unsure", "Inconclusive"
        headline = "already before, the model treated these samples much like unseen ones."
    elif calibration.samples == 1:
        level, word = "unsure", "Inconclusive"
        headline = "the model may well never have seen the sample, but one sample shows little."
    elif calibration.chance > COARSE:
        level, word = "unsure", "Inconclusive"
        headline = (
            "the target is reached, but it was estimated from too few samples "
            f"(± {calibration.chance:.1f} points; at most ± {COARSE:.0f} is accepted)."
        )
    else:
        level, word = "yes", "Yes"
        headline = (
            "as far as these measurements can tell, the model treats the forgotten samples like "
            "samples that it never saw."
        )
    return replace(verdict, level=level, word=word, headline=headline)
