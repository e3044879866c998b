"""What the page answers, for measurements that leave no doubt and for some that do."""

import pytest
from report.made_up import BEFORE, MODELS, RETRAIN, metrics, table

from qunlearn.metrics import average_gap
from qunlearn.report.alone import alone
from qunlearn.report.beside import Beside, beside_retrain
from qunlearn.report.comparison import view_of


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
    content = table()
    row = next(row for row in content["rows"] if row["method"] == name)
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
    assert (off.level, "can be told" in off.headline) == ("mostly", True)
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
        ((99.0, 0.97), "No", "still surer of the forgotten samples than of unseen ones"),
        ((80.5, 0.80), "Only in part", "still surer"),
        ((85.0, 0.75), "Only in part", "gets more of the forgotten samples right"),
        ((80.2, 0.755), "Yes", "as far as this can tell"),
        ((20.0, 0.15), "Too much", "give them away"),
    ],
)
def test_without_retrain_beside_the_held_out_part(forget, word, said):
    verdict = alone(metrics(forget))
    assert verdict.word == word
    assert said in verdict.headline
    assert any("no retrained model" in caution for caution in verdict.cautions)


def test_without_retrain_a_damaged_model_is_called_so():
    assert alone(metrics((30.0, 0.3), unseen=(31.0, 0.3), ra=33.0)).word == "Damaged"


def test_without_memory_before_or_with_few_samples_it_cannot_be_told():
    assert alone(metrics((80.2, 0.755), was=(80.5, 0.755))).level == "unsure"
    few = {"retain": 200, "forget": 20, "held_out": 20, "test": 400}
    was = metrics((80.2, 0.755), was=(99.9, 0.99), samples=few)
    was["before"]["parts"]["held_out"]["accuracy"] = 30.0
    verdict = alone(was)
    assert verdict.level == "unsure"
    assert any("chance" in caution for caution in verdict.cautions)


def test_of_a_whole_class_none_is_to_be_right():
    assert alone(metrics((0.0, 0.01)), whole_class=True).level == "yes"
    assert alone(metrics((30.0, 0.3)), whole_class=True).word == "Only in part"
    assert alone(metrics((90.0, 0.9)), whole_class=True).word == "No"


def test_nothing_done_is_never_called_mostly():
    before = {**RETRAIN, "FA": 84.0}
    view = Beside(before, before, RETRAIN, dict.fromkeys(SIZES, 9_000), 1.0)
    assert beside_retrain(view).word == "No"


def test_an_attack_that_guesses_decides_nothing():
    shown = {**RETRAIN, "MIA": 25.0}
    assert beside(shown, attack=60.0).word == "Only in part"
    verdict = beside(shown, attack=51.0)
    assert verdict.word == "Cannot be told"
    assert any("51.0 %" in caution for caution in verdict.cautions)
    assert beside({**RETRAIN, "FA": 93.0}, attack=51.0).word == "No"  # FA is no attack
    few = beside(shown, attack=60.0, test=30)  # which 30 samples give to guessing, too
    assert few.word == "Cannot be told"
    assert any("may be right on 67.5 %" in caution for caution in few.cautions)
