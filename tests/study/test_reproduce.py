"""The paper's tables as data, and the experiments that make them again."""

import shutil
from pathlib import Path

import pytest
from conftest import SMALL

from qunlearn.cli.main import main
from qunlearn.errors import UserError
from qunlearn.methods import find_method
from qunlearn.metrics import average_gap
from qunlearn.quant.layers import QuantLayer
from qunlearn.report.reproduced import variant_words
from qunlearn.runs.config import TrainConfig
from qunlearn.runs.model_file import load
from qunlearn.runs.train import model_spec, quant_spec, train_run
from qunlearn.store.run import Run
from qunlearn.study import reproduce as experiments
from qunlearn.study.config import variant
from qunlearn.study.paper import PaperRow, paper_rows, printed, stated
from qunlearn.study.reproduce import chosen, comparison, home_of, recipe_of, reproduce
from qunlearn.study.scenarios import EXPERIMENTS, ReproduceConfig, Scenario
from qunlearn.training import checkpoint, optimizer


def test_the_papers_average_gaps_follow_from_its_figures_or_a_note_says_not():
    blocks = {(r.dataset, r.model.split("-")[0], r.scenario) for r in paper_rows()}
    for block in blocks:
        rows = printed(*block)
        for method, row in rows.items():
            exact = abs(average_gap(row.figures, rows["retrain"].figures) - row.AG) < 0.03
            assert exact or row.note, (block, method)


def test_every_method_of_the_paper_is_ours():
    for row in paper_rows():
        find_method(variant(row.method)[0])


def test_every_block_of_the_papers_tables_is_an_experiment():
    made = {(name, b.dataset, b.scenario) for name, blocks in EXPERIMENTS.items() for b in blocks}
    assert {(r.table, r.dataset, r.scenario) for r in paper_rows()} <= made
    assert set(EXPERIMENTS) == {
        "main", "ablation", "class-wise", "mobilenetv2", "tiny-imagenet", "quantizers", "runtime",
        "entropy",
    }  # fmt: skip


@pytest.mark.parametrize("scale", ["small", "medium", "paper"])
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
    assert {b.dataset for b in chosen(ReproduceConfig(what="main", cells="cifar10"))} == {"cifar10"}
    with pytest.raises(UserError, match="No block of 'main' has 'svhn' in its name"):
        chosen(ReproduceConfig(what="main", cells="svhn"))
    with pytest.raises(UserError, match="did you mean 'main'"):
        chosen(ReproduceConfig(what="mian"))


@pytest.mark.parametrize("scale", ["small", "medium", "paper"])
def test_fewer_epochs_are_a_network_of_their_own(scale):
    config = ReproduceConfig(what="main", scale=scale, epochs=20, cells="cifar10")
    block = chosen(config)[0]
    assert recipe_of(block, config)["epochs"] == 20
    assert home_of(block, config).endswith("-20-epochs")
    assert home_of(block, config) != home_of(block, ReproduceConfig(what="main", scale=scale))
    # Retrain takes the original's epochs, but where the paper states its own.
    retrain = comparison(block, config, Path("original"), Path("out")).settings
    assert retrain == ({"retrain.epochs": 20} if scale == "paper" else {})


def test_the_medium_scale_takes_all_images_at_a_quarter_of_the_width():
    config = ReproduceConfig(what="main", scale="medium")
    recipe = TrainConfig.parse(recipe_of(chosen(config)[0], config))
    assert (recipe.subset, recipe.width, recipe.epochs) == (None, 0.25, 60)
    assert home_of(chosen(config)[0], config) == "cifar10-resnet18-lsq+-paper-all-images"


def test_fewer_images_are_another_network_and_only_of_the_small_scale():
    config = ReproduceConfig(what="main", images=3000, cells="cifar10")
    block = chosen(config)[0]
    assert recipe_of(block, config)["subset"] == 3000
    assert home_of(block, config) == "cifar10-resnet18-lsq+-paper-3000-images"
    assert home_of(block, ReproduceConfig(what="main")) == "cifar10-resnet18-lsq+-paper"
    with pytest.raises(UserError, match="--images 3000 is for the small scale; leave it out"):
        chosen(ReproduceConfig(what="main", images=3000, scale="paper"))


def test_some_methods_of_an_experiment_can_be_asked_for(monkeypatch, tmp_path):
    made_small(monkeypatch, "main", Scenario("digits", "random 10%", methods="ga,iu"))
    (few,) = reproduce(ReproduceConfig(what="main", seeds=1, threads=1, methods="ga"), tmp_path)
    assert [row.method for row in few.table.rows] == ["retrain", "ga"]
    (all_of_it,) = reproduce(ReproduceConfig(what="main", seeds=1, threads=1), tmp_path)
    assert all_of_it.table.rows[:2] == few.table.rows
    assert all_of_it.table.rows[2].method == "iu"


TINY = SMALL | {"keep": ("14",)}  # the last layer


def made_small(monkeypatch, what, *blocks):
    """Let an experiment have these blocks, on digits."""
    monkeypatch.setitem(experiments.EXPERIMENTS, what, blocks)
    monkeypatch.setattr(
        experiments,
        "recipe_of",
        lambda block, config: TINY | {"quantizer": block.quantizer},
    )


@pytest.mark.filterwarnings("error:Pydantic serializer")
def test_an_experiment_trains_compares_and_goes_on(monkeypatch, tmp_path):
    blocks = (
        Scenario("digits", "random 10%", methods="ga"),
        Scenario("digits", "one class", methods="ga"),
    )
    made_small(monkeypatch, "main", *blocks)
    config = ReproduceConfig(what="main", seeds=1, threads=1)
    results = list(reproduce(config, tmp_path))
    assert [r.name for r in results] == [b.name for b in blocks]
    original = tmp_path / "digits-resnet18-lsq+-paper" / "original"
    assert not isinstance(load(original)[14], QuantLayer)
    made = Run.open(original).info
    again = list(reproduce(config, tmp_path))
    assert again == results
    assert Run.open(original).info == made


def test_an_original_that_was_interrupted_goes_on(monkeypatch, tmp_path):
    made_small(monkeypatch, "main", Scenario("digits", "random 10%", methods="ga"))
    monkeypatch.setattr(checkpoint, "EVERY", 0.0)
    monkeypatch.setattr(checkpoint, "SHARE", 1e9)
    config = ReproduceConfig(what="main", seeds=1, threads=1)
    rate, epochs = optimizer.learning_rate, []

    def watched(config, steps, epoch, step):
        epochs.append(epoch)
        if len(epochs) == steps + 2:
            raise KeyboardInterrupt
        return rate(config, steps, epoch, step)

    monkeypatch.setattr(optimizer, "learning_rate", watched)
    with pytest.raises(KeyboardInterrupt):
        list(reproduce(config, tmp_path))
    assert epochs[-2:] == [1, 1]
    epochs[:] = [-1] * 1000
    list(reproduce(config, tmp_path))
    assert epochs[1000] == 1  # and not 0 again


def test_experiments_share_cells_and_settings_but_no_table(monkeypatch, tmp_path):
    made_small(monkeypatch, "main", Scenario("digits", "random 10%", methods="ga,iu"))
    made_small(
        monkeypatch, "ablation", Scenario("digits", "random 10%", methods="ga,ga[momentum=0]")
    )
    tuned = ReproduceConfig(what="main", seeds=1, threads=1, tune=2)
    (first,) = reproduce(tuned, tmp_path)
    home = tmp_path / "digits-resnet18-lsq+-paper" / "random-10"
    kept = (home / "main" / "table.json").read_bytes()
    before = {path: path.stat().st_mtime_ns for path in home.rglob("run.json")}
    source = home / "main" / "table.json"
    borrowed = ReproduceConfig(what="ablation", seeds=1, threads=1, settings_from=source)
    (second,) = reproduce(borrowed, tmp_path)
    assert second.table.rows[1] == first.table.rows[1]
    assert second.table.rows[2].trials == 2
    lr = first.table.rows[1].settings["lr"]
    assert second.table.rows[2].settings["lr"] == lr
    (plain,) = reproduce(ReproduceConfig(what="ablation", seeds=1, threads=1), tmp_path)
    assert plain.table.rows[2].settings["lr"] == find_method("ga").config().lr
    assert (home / "main" / "table.json").read_bytes() == kept
    assert before.items() <= {p: p.stat().st_mtime_ns for p in home.rglob("run.json")}.items()


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"settings_from": "nowhere.json"}, "nowhere.json"),
        ({"settings_from": "nowhere.json", "tune": 2}, "leave one out"),
    ],
)
def test_what_is_wrong_is_said_before_hours_of_training(monkeypatch, tmp_path, asked, says):
    made_small(monkeypatch, "main", Scenario("digits", "random 10%", methods="ga"))
    with pytest.raises(UserError, match=says):
        list(reproduce(ReproduceConfig(what="main", **asked), tmp_path))
    assert not list(tmp_path.iterdir())


def test_every_data_set_must_be_there_before_the_first_is_trained_on(tmp_path):
    (tmp_path / "none").mkdir()
    with pytest.raises(UserError, match="--download"):
        list(reproduce(ReproduceConfig(what="main", data_dir=tmp_path / "none"), tmp_path / "out"))
    assert not (tmp_path / "out").exists()
    asked = ReproduceConfig(what="main", download=True)
    assert recipe_of(chosen(asked)[0], asked)["download"]


def test_an_original_that_was_trained_otherwise_is_refused(monkeypatch, tmp_path):
    made_small(monkeypatch, "main", Scenario("digits", "random 10%", methods="ga"))
    config = ReproduceConfig(what="main", seeds=1, threads=1)
    list(reproduce(config, tmp_path))
    files = sorted(tmp_path.rglob("*"))
    made_small(monkeypatch, "runtime", Scenario("digits", "one class", methods="ga"))
    monkeypatch.setattr(experiments, "recipe_of", lambda block, config: {**TINY, "epochs": 3})
    with pytest.raises(UserError, match="was trained with epochs = 2, not 3; move it away"):
        list(reproduce(ReproduceConfig(what="runtime", threads=1), tmp_path))
    assert sorted(tmp_path.rglob("*")) == files
    moved = {**TINY, "threads": 2, "data_dir": "elsewhere"}  # the network is the same for all that
    monkeypatch.setattr(experiments, "recipe_of", lambda block, config: moved)
    list(reproduce(config, tmp_path))


@pytest.mark.parametrize(
    ("what", "blocks", "paper", "says"),
    [
        (
            "main",
            [Scenario("digits", "random 10%", methods="oeu")],
            {
                "retrain": (93.38, 100.0, 92.64, 13.36, 0),
                "oeu": (93.58, 99.86, 92.97, 15.0, 0.58),
            },
            ["the paper", "93.58 (0.20)", "15.00 (1.64)", "the table: misprinted", "Noise floor"],
        ),
        (
            "runtime",
            [Scenario("digits", "random 10%", methods="oeu")],
            {},
            ["20 min", "3 min", "15.0 %", "100.0 %", "about, by the text"],
        ),
        (
            "entropy",
            [Scenario("digits", "random 10%", methods="oeu[alpha=0;beta=0]")],
            {},
            ["before forgetting", "4.605", "nearly uniform"],
        ),
        (
            "quantizers",
            [Scenario("digits", "random 10%", quantizer=q, methods="qmul,oeu") for q in
             ("none", "pact")],
            {},
            ["[3.60]", "[60.5 %]", "full precision"],
        ),
    ],
)  # fmt: skip
def test_each_experiment_prints_its_figures_beside_the_papers(
    monkeypatch, tmp_path, capsys, what, blocks, paper, says
):
    made_small(monkeypatch, what, *blocks)
    figures = {
        name: PaperRow("", "", "", "", name, *row, "misprinted" if name == "oeu" else "")
        for name, row in paper.items()
    }
    monkeypatch.setattr(experiments, "printed", lambda *block: figures)
    monkeypatch.setattr(
        experiments, "stated", lambda what, dataset, quantizer: stated(what, "cifar100", quantizer)
    )
    monkeypatch.setenv("COLUMNS", "200")
    seeds = 2 if what == "main" else 1
    words = ["reproduce", what, "--seeds", seeds, "--threads", 1, "--out", tmp_path / "a"]
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    out = capsys.readouterr().out
    assert ended.value.code in (0, None), out
    for word in says:
        assert word in out, (word, out)
    for block in blocks:
        home = tmp_path / "a" / f"digits-resnet18-{block.quantizer}-paper"
        page = home / "random-10" / what / "report.html"
        assert page.is_file()
        assert str(page) in out.replace("\n", "")
        assert "Confidence in the true label" in page.read_text()  # it finds the shared cells


def test_quantizers_share_a_twin_and_its_retrains(monkeypatch, tmp_path):
    blocks = [Scenario("digits", "random 10%", quantizer=q, methods="ga") for q in ("lsq", "none")]
    made_small(monkeypatch, "quantizers", *blocks)
    config = ReproduceConfig(what="quantizers", seeds=2, threads=1, from_twin=True)
    results = list(reproduce(config, tmp_path))
    assert [r.quantizer for r in results] == ["lsq", "none"]
    twin, quantized = (
        tmp_path / f"digits-resnet18-{name}" for name in ("none-paper", "lsq-paper-from-twin")
    )
    assert Run.open(quantized / "original").config["start_from"] == str(twin / "original")
    for seed in range(2):
        cell = Path("random-10", "cells", "retrain", f"seed{seed}")
        assert Run.open(quantized / cell).config["start_from"] == str(twin / cell)
    made = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("run.json")}
    # However the folder is called, it is the same.
    again = list(reproduce(config, tmp_path / "x" / ".."))
    assert [r.table.rows for r in again] == [r.table.rows for r in results]
    assert made == {path: path.stat().st_mtime_ns for path in tmp_path.rglob("run.json")}
    shutil.rmtree(twin / "original")
    monkeypatch.setitem(TINY, "epochs", 3)
    with pytest.raises(UserError, match="was trained with epochs = 2, not 3; move it away"):
        list(reproduce(config, tmp_path))
    shutil.rmtree(quantized)
    with pytest.raises(UserError, match="was made from another network"):  # the twin's Retrain
        list(reproduce(config, tmp_path))


def test_an_original_from_a_twin_that_is_gone_is_refused(monkeypatch, tmp_path):
    made_small(monkeypatch, "quantizers", Scenario("digits", "random 10%", methods="ga"))
    config = ReproduceConfig(what="quantizers", seeds=1, threads=1, from_twin=True)
    list(reproduce(config, tmp_path))
    twin = tmp_path / "digits-resnet18-none-paper"
    shutil.rmtree(twin)
    train_run(TrainConfig.parse({**TINY, "quantizer": "none", "seed": 0}), twin / "original")
    list(reproduce(config, tmp_path))  # the same again
    written = Run.open(twin / "original").path / "config.toml"
    shutil.rmtree(twin / "original")
    train_run(TrainConfig.parse({**TINY, "quantizer": "none", "lr": 0.09}), twin / "original")
    assert written.is_file()
    monkeypatch.setattr(
        experiments,
        "recipe_of",
        lambda block, config: (
            TINY
            | {"quantizer": block.quantizer}
            | ({"lr": 0.09} if block.quantizer == "none" else {})
        ),
    )
    with pytest.raises(UserError, match=r"was trained from another network than .* holds now"):
        list(reproduce(config, tmp_path))


def test_a_twin_takes_the_twins_epochs_and_is_only_of_the_small_scale():
    config = ReproduceConfig(what="quantizers", from_twin=True)
    epochs = {b.quantizer: recipe_of(b, config)["epochs"] for b in chosen(config)}
    assert epochs == {"none": 80, "lsq+": 20, "lsq": 20, "pact": 20, "dsq": 20}
    with pytest.raises(UserError, match="--from-twin is for the small scale; leave it out"):
        chosen(ReproduceConfig(what="quantizers", from_twin=True, scale="paper"))


def test_the_released_variant_is_called_what_it_is():
    blocks = chosen(ReproduceConfig(what="quantizers", variant="released", cells="cifar10"))
    assert [block.quantizer for block in blocks] == ["none", "lsq", "pact", "dsq"]
    config = ReproduceConfig(what="main", variant="released")
    assert all(
        recipe_of(block, config)["quantizer"] == "lsq" and "-lsq-" in block.name
        for block in chosen(config)
    )
    (sentence,) = variant_words(["cifar10-mobilenetv2-lsq-random-10"])
    assert "2-bit weights" in sentence
    assert "4-bit" not in sentence


def test_the_released_variant_stands_beside_the_same_figures(monkeypatch, tmp_path):
    made_small(monkeypatch, "runtime", Scenario("digits", "random 10%", methods="ga"))
    asked = []
    monkeypatch.setattr(experiments, "stated", lambda *words: asked.append(words) or [])
    config = ReproduceConfig(what="runtime", variant="released", seeds=1, threads=1)
    (block,) = reproduce(config, tmp_path)
    assert block.quantizer == "lsq"
    assert asked == [("runtime", "digits", "lsq+")]
