# Two commands: `make demo` and `make test`. Both make .venv by themselves and reuse it.

PYTHON ?= python3
BIN := .venv/bin
# Several processes with several threads each fight for the cores: one thread for each. What was
# compiled once is saved, whatever the environment says: tests start many processes.
ONE_THREAD := OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=

.PHONY: demo test test-all lint bench docs clean release-check axe

demo: .venv/runtime
	@$(BIN)/qunlearn demo

# The checks of `lint` run beside the tests.
test: .venv/installed
	@$(MAKE) --no-print-directory -j2 lint tests

.PHONY: tests
tests: .venv/installed
	@$(ONE_THREAD) $(BIN)/pytest -n auto --dist worksteal

# Also the tests that start launchers, clusters and jobs, one after another: each needs the cores.
test-all: test
	@$(ONE_THREAD) $(BIN)/pytest -m cluster tests

lint: .venv/installed
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/mypy

bench: .venv/installed
	@$(ONE_THREAD) $(BIN)/python benchmarks/run.py

# The site, in build/site. Warnings are errors; nothing is fetched.
docs: .venv/docs
	@$(ONE_THREAD) $(BIN)/sphinx-build -q -W --keep-going -n -b html docs build/site
	@echo "build/site/index.html"

# Looks at pages with axe-core, for readers with screen readers or poor sight: needs Chromium and npm.
axe: docs
	@npm install --silent --no-save --ignore-scripts --prefix build/axe axe-core@4.14.0
	@$(BIN)/python tools/axe.py build/site
	@$(ONE_THREAD) $(BIN)/pytest -q tests/report/test_browser.py

# Build, install in a clean environment, run the demo from the wheel: some minutes and the network.
release-check: .venv/runtime
	@$(BIN)/python tools/release_check.py

# What the package needs, and then what its tests need; constraints.txt (tools/lock.py) pins both.
.venv/runtime: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("qunlearn needs Python 3.11 or later; this is " + sys.version.split()[0] + ": make PYTHON=python3.11" if sys.version_info < (3, 11) else 0)'
	@echo "Installing into .venv (once; some minutes) ..."
	@$(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	@touch $@

.venv/installed: .venv/runtime
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

.venv/docs: .venv/installed
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	@touch $@

clean:
	rm -rf .venv
