"""What the page answers, for measurements that leave no doubt and for some that do."""

import copy
import re
from dataclasses import replace
from pathlib import Path

import pytest
from report.made_up import BEFORE, MODELS, RETRAIN, SAMPLES, measured, metrics, table

from qunlearn.methods.calibration import Calibration
from qunlearn.methods.relearn import Relearning
from qunlearn.metrics import Scores, average_gap
from qunlearn.report.alone import alone
from qunlearn.report.beside import Beside, beside_retrain
from qunlearn.report.comparison import view_of
from qunlearn.report.judge import verdict_of
from qunlearn.report.relearning import relearning_words
from qunlearn.report.summary import CERTAINTY, run_answers
from qunlearn.runs.metrics import RunMetrics, modernise
from qunlearn.store.typed import typed
from qunlearn.study.table import read_table


def beside(values, samples=4_500, test=10_000, **more):
    parts = {"forget": samples, "retain": 40_000, "test": test}
    gap = average_gap(values, RETRAIN)
    return beside_retrain(Beside(values, BEFORE, RETRAIN, parts, gap, **more))


@pytest.mark.parametrize(
    ("name", "level", "word"),
    [
        ("forgetter", "yes", "Yes"),
        ("memoriser", "no", "No"),
        ("eager", "too-much", "Too much"),
        ("wrecker", "too-much", "Too much"),
    ],
)
def test_beside_retrain(name, level, word):
    verdict = beside(MODELS[name])
    assert (verdict.level, verdict.word) == (level, word)
    content = read_table(table(), Path("table.json"))
    row = next(row for row in content.rows if row.method == name)
    assert beside_retrain(view_of(row, content)).word == word


def test_retrain_itself_has_forgotten():
    assert beside(RETRAIN).level == "yes"


def test_half_way_is_only_in_part():
    assert beside({**RETRAIN, "FA": 83.0}).word == "Mostly"
    assert beside({**RETRAIN, "FA": 87.0}).word == "Only in part"
    assert beside({**RETRAIN, "FA": 93.0}).word == "No"
    assert "attacker" in beside({**RETRAIN, "MIA": 25.0}).headline


def test_more_right_answers_yet_less_sure_is_neither():
    assert beside({**RETRAIN, "FA": 95.0, "MIA": 80.0}).word == "Not cleanly"


def test_what_was_lost_is_damage_only_if_it_was_there_before():
    worse = {**RETRAIN, "TA": 60.0}
    assert beside(worse).word == "Damaged"
    weak = Beside(worse, {**BEFORE, "TA": 60.0}, RETRAIN, dict.fromkeys(SIZES, 9_000), 5.0)
    assert beside_retrain(weak).level == "mostly"


SIZES = ("forget", "retain", "test")


def test_the_noise_floor_decides_between_yes_and_mostly():
    near = {**RETRAIN, "RA": RETRAIN["RA"] - 1.9, "TA": RETRAIN["TA"] - 1.5}
    assert beside(near, floor=0.5).level == "mostly"
    assert "within chance" in beside(near, floor=0.5).headline
    assert beside(near, floor=1.5).level == "yes"
    off = beside({**RETRAIN, "RA": RETRAIN["RA"] - 3.0}, floor=1.5)
    assert (off.level, "is distinguishable" in off.headline) == ("mostly", True)
    assert any("single Retrain" in caution for caution in beside(near).cautions)


def test_few_samples_or_wide_seeds_never_give_a_yes():
    assert beside(MODELS["forgetter"], samples=30).level == "unsure"
    wide = beside(MODELS["forgetter"], floor=9.0, floors={"FA": 20.0, "MIA": 20.0})
    assert wide.level == "unsure"
    # But what is plain to see is said even so.
    assert beside(MODELS["wrecker"], samples=30).level == "too-much"


@pytest.mark.parametrize(
    ("forget", "word", "said"),
    [
        ((99.0, 0.97), "No", "still more confident on the forgotten samples than on unseen"),
        ((80.5, 0.80), "Only in part", "still more confident"),
        ((85.0, 0.75), "Only in part", "gets more of the forgotten samples right"),
        ((80.2, 0.755), "Yes", "as far as these measurements can tell"),
        ((20.0, 0.15), "Too much", "give them away"),
    ],
)
def test_without_retrain_beside_the_held_out_part(forget, word, said):
    verdict = alone(*metrics(forget))
    assert verdict.word == word
    assert said in verdict.headline
    assert any("no retrained model" in caution for caution in verdict.cautions)


def test_without_retrain_a_damaged_model_is_called_so():
    assert alone(*metrics((30.0, 0.3), unseen=(31.0, 0.3), ra=33.0)).word == "Damaged"


def test_without_memory_before_or_with_few_samples_it_cannot_be_told():
    assert alone(*metrics((80.2, 0.755), was=(80.5, 0.755))).level == "unsure"
    few = {"retain": 200, "forget": 20, "held_out": 20, "test": 400}
    now, before = metrics((80.2, 0.755), was=(99.9, 0.99), samples=few)
    before.parts["held_out"] = replace(before.parts["held_out"], accuracy=30.0)
    verdict = alone(now, before)
    assert verdict.level == "unsure"
    assert any("chance" in caution for caution in verdict.cautions)


def test_a_difference_that_hardly_fell_is_no_yes_because_chance_might_explain_it():
    few = {"retain": 500, "forget": 72, "held_out": 80, "test": 400}
    now, was = metrics((100.0, 0.997), unseen=(92.6, 0.907), was=(100.0, 0.991), samples=few)
    was.parts["held_out"] = replace(was.parts["held_out"], accuracy=90.7, confidence=0.880)
    verdict = alone(now, was)
    assert (verdict.level, verdict.word) == ("unsure", "Inconclusive")
    assert "still there" in verdict.headline


def test_too_much_comes_with_a_remedy():
    now, before = metrics((20.0, 0.15))
    for found in (RunMetrics(**vars(now), before=before), calibrated(0.60)):
        verdict = verdict_of(found)
        assert verdict.word == "Too much"
        assert ("try half of it" in str(verdict)) != ("try --set lr=0.005" in str(verdict))


def test_of_a_whole_class_none_is_to_be_right():
    assert alone(*metrics((0.0, 0.01)), whole_class=True).level == "yes"
    assert alone(*metrics((30.0, 0.3)), whole_class=True).word == "Only in part"
    assert alone(*metrics((90.0, 0.9)), whole_class=True).word == "No"


def test_nothing_done_is_never_called_mostly():
    before = {**RETRAIN, "FA": 84.0}
    view = Beside(before, before, RETRAIN, dict.fromkeys(SIZES, 9_000), 1.0)
    assert beside_retrain(view).word == "No"


def test_an_attack_that_guesses_decides_nothing():
    shown = {**RETRAIN, "MIA": 25.0}
    assert beside(shown, attack=60.0).word == "Only in part"
    verdict = beside(shown, attack=51.0)
    assert verdict.word == "Yes"  # accuracy decides: it was 99 % before, and is Retrain's now
    assert any("51.0 %" in caution for caution in verdict.cautions)
    assert beside({**RETRAIN, "FA": 93.0}, attack=51.0).word == "No"
    assert beside({**RETRAIN, "FA": 84.5}, attack=51.0).word == "Mostly"
    few = beside(shown, attack=60.0, test=30)  # which 30 samples give to guessing, too
    assert few.word == "Yes"
    assert any("may reach 67.5 %" in caution for caution in few.cautions)


def test_where_neither_the_attack_nor_accuracy_tells_nothing_is_said():
    before = {**RETRAIN, "FA": 80.5, "MIA": 20.0}
    parts = {"forget": 4_500, "retain": 40_000, "test": 10_000}
    assert beside_retrain(Beside(RETRAIN, before, RETRAIN, parts, 0.0, attack=51.0)).word == (
        "Inconclusive"
    )


def calibrated(reached, samples=4_500, **more):
    """A run's figures, with a target of 75 % and 98 % before."""
    now, before = metrics((100 * reached, reached), samples={**SAMPLES, "forget": samples})
    known = {"target": 75.0, "reached": 100 * reached, "before": 98.0, "samples": samples}
    known |= {"chance": 196 * (0.15 / samples) ** 0.5, "unseen": 5_000, "random": True}
    known |= {"depth": "shallow", "steps": 105, "lr": 0.01, **more}
    return RunMetrics(**vars(now), before=before, calibration=Calibration(**known))


@pytest.mark.parametrize(
    ("reached", "samples", "word", "met", "said"),
    [
        (0.755, 4_500, "Yes", True, "Target reached."),
        (0.80, 4_500, "Only in part", False, "Target not reached: 5.0 points above it; try"),
        (0.95, 4_500, "No", False, "Target not reached: 20.0 points above it; try"),
        (0.70, 4_500, "Too much", False, "Target overshot: 5.0 points below it; try"),
        (0.63, 10, "Too much", False, "Target overshot: 12.0 points below it; try"),
        (0.46, 10, "Too much", False, "Target overshot: 29.0 points below it; try"),
        (0.70, 10, "Inconclusive", True, "Target reached."),
        (0.46, 1, "Inconclusive", True, "a single sample cannot show whether that is too far"),
        (0.90, 1, "No", False, "Target not reached: 15.0 points above it; try"),
    ],
)
def test_a_target_decides_where_there_is_no_retrain(reached, samples, word, met, said):
    verdict = verdict_of(calibrated(reached, samples))
    assert (verdict.word, verdict.met) == (word, met)
    assert said in verdict.reasons[0]
    assert ("; try --" in verdict.headline) is not met
    # Never "reached" of what ended far off, whatever an older version has on record.
    assert ("reached" in str(verdict).replace("not reached", "")) == (said == "Target reached.")


def test_a_target_in_words():
    said = verdict_of(calibrated(0.755, logit_scale=1.234, random=False)).reasons[0]
    assert "75.5 %, target 75.0 ± 1.1 % (estimated from 5,000 unseen samples), before" in said
    assert "More steps" not in said
    late = verdict_of(calibrated(0.755, waited_for=("target", "target"))).reasons[0]
    assert late.count("More steps than planned were needed until the target was reached.") == 1
    fallen = {"retained_before": 96.2, "retained_after": 91.7}
    low = verdict_of(calibrated(0.755, waited_for=("retained",), **fallen)).reasons[0]
    assert "did not recover: accuracy on 500 of them is 91.7 %, before 96.2 %" in low
    risen = verdict_of(calibrated(0.755, waited_for=("retained",), retained_after=99.0)).reasons[0]
    assert "needed until retained samples recovered" in risen
    short = verdict_of(calibrated(0.9, waited_for=("target",))).reasons[0]
    assert "did not reach the target" in short
    assert "Logits were rescaled by 1.23" in said
    assert "not drawn at random" in said
    gone = replace(calibrated(0.01, target=0.0, chance=0.0, class_wise=True), whole_classes=True)
    assert "target 0 %" in verdict_of(gone).reasons[0]
    assert verdict_of(gone).word == "Yes"
    assert verdict_of(calibrated(0.76, before=76.0)).reasons[0].startswith("There was little")


def test_the_right_mean_of_a_wrong_distribution_is_no_yes():
    far = {"distance": 0.7, "distance_before": 0.9, "distance_chance": 0.04}
    verdict = verdict_of(calibrated(0.75, **far))
    assert (verdict.level, verdict.word, verdict.met) == ("no", "Only on average", False)
    assert "Target reached on average only" in verdict.reasons[0]
    assert "(Kolmogorov-Smirnov): 0.70, before 0.90; up to 0.10 counts" in verdict.reasons[0]
    assert verdict_of(calibrated(0.75, **far | {"distance": 0.03})).word == "Yes"


DEEP = Relearning(200, 0.05, 75.5, 76.0, 75.0, 75.0, 81.0, 1.5)
SHALLOW = replace(DEEP, after=95.0)


def test_what_comes_back_is_no_yes_unless_shallow_was_chosen():
    for depth in ("deep", "shallow"):
        verdict = verdict_of(replace(calibrated(0.755, depth=depth), relearning=DEEP))
        assert (verdict.word, verdict.met) == ("Yes", True)
        assert verdict.reasons[-1].startswith("Deep: 200 steps")
    deep = verdict_of(replace(calibrated(0.755, depth="deep"), relearning=SHALLOW))
    assert (deep.level, deep.word, deep.met) == ("no", "On the surface", False)
    assert "brings them back; use --method retrain." in deep.headline
    chosen = verdict_of(replace(calibrated(0.755), relearning=SHALLOW))
    assert (chosen.level, chosen.word, chosen.met) == ("mostly", "On the surface", True)
    assert "as was chosen by --depth shallow" in chosen.headline
    for verdict in (deep, chosen):
        assert verdict.reasons[-1].startswith("Shallow: 200 steps")
        assert "75.5 % before, 95.0 % after" in verdict.reasons[-1]
        assert "75.5 %; excess 19.5 points (up to" in verdict.reasons[-1]


def test_confidence_that_falls_less_than_on_unseen_samples_is_not_said_to_come_back():
    words = relearning_words(Relearning(200, 0.05, 75.5, 74.0, 75.0, 66.0, 80.0, 3.0))
    assert "Shallow: 200 steps of fine-tuning" in words
    assert "cost forgotten ones less confidence than unseen ones" in words
    assert "bring" not in words


def test_an_overshoot_where_little_was_known_says_so():
    verdict = verdict_of(calibrated(0.60, before=76.0))
    assert (
        "Target overshot: 15.0 points below it, though there was little to forget; try"
        in (verdict.reasons[0])
    )


def test_a_little_that_comes_back_is_said_and_no_target_missed():
    found = calibrated(0.755, depth="deep")
    assert found.before is not None
    lost = 100 * (found.before.parts["forget"].confidence - 0.755)
    for share, word, met in ((0.19, "Mostly", True), (0.21, "On the surface", False)):
        level = {"unseen_after": DEEP.unseen_before, "target": None, "chance": 0.1}
        probe = replace(DEEP, after=DEEP.before + share * lost, **level)
        verdict = verdict_of(replace(found, relearning=probe))
        assert (verdict.word, verdict.met) == (word, met)
        assert ("brings back 19 % of what was forgotten" in verdict.headline) == met


def test_what_comes_back_is_said_of_any_method_but_of_no_retrain():
    now, before = metrics((80.2, 0.755))
    found = RunMetrics(**vars(now), before=before, relearning=SHALLOW)
    assert verdict_of(replace(found, relearning=None)).word == "Yes"
    verdict = verdict_of(found, "ft")
    assert (verdict.word, verdict.met) == ("On the surface", False)
    assert "; try --method calibrated." in verdict.headline
    assert (verdict_of(found, "retrain").word, verdict_of(found, "retrain").met) == ("Yes", True)


def test_what_is_no_yes_anyway_is_not_made_better_by_the_probe():
    for reached, word in ((0.95, "No"), (0.70, "Too much")):
        for probe in (DEEP, SHALLOW):
            verdict = verdict_of(replace(calibrated(reached, depth="deep"), relearning=probe))
            assert (verdict.word, verdict.met) == (word, False)


def test_beside_retrain_the_probe_decides_too():
    retrain = typed(Scores, measured(RETRAIN), Path("metrics.json"))
    found = replace(calibrated(0.755, depth="deep"), **(vars(retrain) | {"reference": retrain}))
    assert verdict_of(replace(found, relearning=DEEP)).word == "Yes"
    assert verdict_of(replace(found, relearning=SHALLOW)).word == "On the surface"


def test_a_network_that_outgrew_its_target_is_no_yes():
    """It was still learning: the target is reached, and unseen samples do better than that."""
    found = calibrated(0.755)
    unseen = replace(found.parts["held_out"], accuracy=95.0, confidence=0.95)
    verdict = verdict_of(replace(found, parts={**found.parts, "held_out": unseen}))
    assert (verdict.word, verdict.met) == ("Too much", False)
    assert "does better on unseen samples" in verdict.headline


def test_a_retrain_has_forgotten_by_construction():
    now, before = metrics((80.2, 0.755), was=(80.5, 0.755))
    found = RunMetrics(**vars(now), before=before)
    assert verdict_of(found).level == "unsure"
    verdict = verdict_of(found, "retrain")
    assert (verdict.word, verdict.met) == ("Yes", True)
    assert "by construction" in verdict.headline
    sure = run_answers(found, verdict)[-1].words
    for words in (sure, " ".join(verdict.cautions)):
        assert "normalised by" in words
        assert "no retrained model" not in words
        assert "no model retrained" not in words


def test_the_target_of_a_run_made_by_an_older_version_is_judged_anew():
    old = calibrated(0.60, samples=10).to_json()
    figures = {"aimed": 75.0, "reached": 60.0, "chance": 24.0, "samples": 10, "unseen": 5_000}
    old["calibration"] = {**figures, "state": "reached", "random": True, "sentence": "Reached."}
    verdict = verdict_of(typed(RunMetrics, modernise(old), Path("metrics.json")))
    assert (verdict.word, verdict.met) == ("Too much", False)


def test_what_earlier_versions_knew_of_a_calibration_is_passed_over():
    new = calibrated(0.755).to_json()
    new["calibration"] = {
        k: v for k, v in new["calibration"].items() if k not in ("depth", "steps")
    }
    gone = {"epochs": 5, "reached_in_epoch": 2, "lowered": ["epochs"], "raised": ["lr"]}
    for more in (gone, {"epochs": 5, "down": 2}, {"epochs": None, "reached_in_epoch": None}):
        old = copy.deepcopy(new)
        old["calibration"] |= more
        read = typed(RunMetrics, modernise(old), Path("metrics.json"))
        assert read.calibration == replace(calibrated(0.755).calibration, depth=None, steps=0)
        assert read.relearning is None
        assert verdict_of(read).word == "Yes"
        assert not gone.keys() & read.to_json()["calibration"].keys()


def test_beside_retrain_the_target_is_a_reason_and_not_the_answer():
    retrain = typed(Scores, measured(RETRAIN), Path("metrics.json"))
    found = replace(calibrated(0.60), **(vars(retrain) | {"reference": retrain}))
    verdict = verdict_of(found)
    assert (verdict.word, verdict.met) == ("Yes", False)
    assert "Target overshot" in verdict.reasons[0]


def with_earlier(was, now, samples):
    """Figures of a later request, with an earlier one's samples before and after it."""
    found = calibrated(0.755)
    for parts, sure in ((found.before.parts, was), (found.parts, now)):
        parts["forget_1"] = replace(parts["forget"], confidence=sure, samples=samples)
    return found


def test_what_a_later_request_brings_back_is_said():
    assert verdict_of(with_earlier(0.70, 0.73, 500)).word == "Yes"
    assert verdict_of(with_earlier(0.70, 0.85, 10)).word == "Yes"  # so few may move by chance
    assert verdict_of(with_earlier(0.50, 0.97, 1)).word == "Yes"  # a single one by much
    for samples in (10, 500):
        verdict = verdict_of(with_earlier(0.50, 0.97, samples))
        assert (verdict.level, verdict.word, verdict.met) == ("no", "Not cleanly", False)
        assert "knows samples again that an earlier request" in verdict.headline
        assert "forgotten earlier, request 1" in verdict.reasons[0]
        assert "rose from 50.0 % to 97.0 %" in verdict.reasons[0]
    # Unless all unseen samples gained as much: then the network is better, and remembers nothing.
    better = with_earlier(0.50, 0.97, 500)
    better.parts["forget"] = replace(better.parts["forget"], accuracy=80.0)
    parts = better.before.parts
    parts["held_out"] = replace(parts["held_out"], confidence=0.30)
    assert verdict_of(better).level == "yes"


@pytest.mark.parametrize("compared", [False, True])
def test_what_may_be_chance_is_one_figure_for_every_reader(compared):
    made = calibrated(0.76, samples=60)
    if compared:
        made = replace(made, reference=made.before)
    verdict = verdict_of(made)
    sure = next(each.words for each in run_answers(made, verdict) if each.question == CERTAINTY)
    said = re.findall(r"of up to (\d+) points may be chance", " ".join([sure, *verdict.cautions]))
    assert len(said) == 2
    assert len(set(said)) == 1
