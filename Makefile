# Two commands: `make demo` and `make test`. Both make .venv by themselves and reuse it.

PYTHON ?= python3
BIN := .venv/bin
# Several processes with several threads each fight for the cores: one thread for each.
ONE_THREAD := OMP_NUM_THREADS=1

.PHONY: demo test lint bench clean

demo: .venv/runtime
	@$(BIN)/qunlearn demo

test: lint
	@$(ONE_THREAD) $(BIN)/pytest -n auto

lint: .venv/installed
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/mypy

bench: .venv/installed
	@$(ONE_THREAD) $(BIN)/python benchmarks/run.py

# What the package needs, and then what its tests need; constraints.txt (tools/lock.py) pins both.
.venv/runtime: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("qunlearn needs Python 3.11 or later; this is " + sys.version.split()[0] + ": make PYTHON=python3.11" if sys.version_info < (3, 11) else 0)'
	@echo "Installing into .venv (once) ..."
	@$(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	@touch $@

.venv/installed: .venv/runtime
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

clean:
	rm -rf .venv
