"""The paper's tables as data, and the experiments that make them again."""

import pytest
from conftest import SMALL

from qunlearn.errors import UserError
from qunlearn.methods import find_method
from qunlearn.metrics import average_gap
from qunlearn.quant.layers import QuantLayer
from qunlearn.store.run import Run
from qunlearn.study import reproduce as experiments
from qunlearn.study.config import variant
from qunlearn.study.paper import paper_rows, printed
from qunlearn.study.reproduce import (
    EXPERIMENTS,
    ReproduceConfig,
    Scenario,
    chosen,
    recipe_of,
    reproduce,
)
from qunlearn.training.checkpoint import load
from qunlearn.training.config import TrainConfig
from qunlearn.training.train import model_spec, quant_spec


def test_the_papers_average_gaps_follow_from_its_figures_or_a_note_says_not():
    blocks = {(r["table"], r["dataset"], r["scenario"]) for r in paper_rows()}
    for block in blocks:
        rows = printed(*block)
        for method, row in rows.items():
            exact = abs(average_gap(row, rows["retrain"]) - row["AG"]) < 0.03
            assert exact or row["note"], (block, method)


def test_every_method_of_the_paper_is_ours():
    for row in paper_rows():
        find_method(variant(row["method"])[0])


def test_every_block_of_the_papers_tables_is_an_experiment():
    made = {(name, b.dataset, b.scenario) for name, blocks in EXPERIMENTS.items() for b in blocks}
    assert {(r["table"], r["dataset"], r["scenario"]) for r in paper_rows()} <= made
    assert set(EXPERIMENTS) == {
        "main", "ablation", "class-wise", "mobilenetv2", "tiny-imagenet", "quantizers", "runtime",
        "entropy",
    }  # fmt: skip


@pytest.mark.parametrize("scale", ["small", "paper"])
@pytest.mark.parametrize("kind", ["paper", "released"])
def test_every_block_has_a_recipe_that_can_be_trained(scale, kind):
    for what, blocks in EXPERIMENTS.items():
        config = ReproduceConfig(what=what, scale=scale, variant=kind)
        for block in blocks:
            TrainConfig.parse(recipe_of(block, config))
            assert len(block.request) == 1


def test_the_papers_protocol():
    config = ReproduceConfig(what="main", scale="paper")
    recipe = TrainConfig.parse(recipe_of(EXPERIMENTS["main"][0], config))
    assert (recipe.epochs, recipe.lr, recipe.batch_size, recipe.width) == (182, 0.1, 256, 1.0)
    assert (recipe.weight_bits, recipe.act_bits, recipe.quantizer) == (4, 4, "lsq+")
    mobile = TrainConfig.parse(recipe_of(EXPERIMENTS["mobilenetv2"][0], config))
    assert (mobile.weight_bits, mobile.act_bits) == (2, 32)


def test_the_released_variant_leaves_the_right_layers_alone(digits):
    config = ReproduceConfig(what="main", scale="paper", variant="released")
    recipe = TrainConfig.parse({**recipe_of(EXPERIMENTS["main"][0], config), "width": 0.125})
    from qunlearn.quant import quantize

    model = quantize(model_spec("resnet18", 0.125, digits.data).build(), quant_spec(recipe))
    quantized = {name for name, m in model.named_modules() if isinstance(m, QuantLayer)}
    assert quantized == {f"blocks.{i}.conv{j}" for i in range(8) for j in (1, 2)}
    layer = model.blocks[0].conv1
    assert (layer.weight_quantizer.bits, layer.activation_quantizer.bits) == (4, 8)


def test_blocks_are_chosen_by_name():
    assert len(chosen(ReproduceConfig(what="main"))) == 6
    assert len(chosen(ReproduceConfig(what="main", cells="cifar10-resnet18"))) == 3
    with pytest.raises(UserError, match="No block of 'main' contains 'svhn'"):
        chosen(ReproduceConfig(what="main", cells="svhn"))
    with pytest.raises(UserError, match="did you mean 'main'"):
        chosen(ReproduceConfig(what="mian"))


def test_an_experiment_trains_compares_and_goes_on(monkeypatch, tmp_path):
    blocks = (
        Scenario("digits", "random 10%", methods="ga"),
        Scenario("digits", "one class", methods="ga"),
    )
    monkeypatch.setitem(experiments.EXPERIMENTS, "main", blocks)
    monkeypatch.setattr(experiments, "recipe_of", lambda block, config: SMALL | {"keep": ("fc",)})
    config = ReproduceConfig(what="main", seeds=1, threads=1)
    results = reproduce(config, tmp_path)
    assert [r["block"] for r in results] == [b.name for b in blocks]
    original = tmp_path / "digits-resnet18-lsq+-paper" / "original"
    assert not isinstance(load(original).fc, QuantLayer)
    made = Run.open(original).info
    again = reproduce(config, tmp_path)
    assert again == results
    assert Run.open(original).info == made
