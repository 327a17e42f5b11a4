# `make` lists the targets.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin

SECONDS ?= 600
SEED ?= 20260101

# Rooms whose tests take a second or less each.
ROOMS := schema encoding files plots privacy recipe denoise noise engines/test_readers.py maps/tables ledger/test_running_totals.py learn/test_answer.py
QUICK := $(ROOMS:%=tests/unit/%) tests/unit/test_public.py tests/unit/test_displays.py tests/unit/test_calibration.py tests/golden \
	tests/docs/test_proofs.py tests/docs/test_modules.py

.PHONY: help demo quick test test-lowest lock lint bench bench-engines bench-friendster audit fuzz papers-truth papers-m2m papers-compressive papers-density papers-market clean

help:  ## list the targets
	@grep -E '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | sort

$(BIN)/python:
	@command -v $(PYTHON) >/dev/null 2>&1 && $(PYTHON) -m venv $(VENV) || python3 -m venv $(VENV)
	$(BIN)/python -m pip install -q --upgrade pip

$(VENV)/.installed: $(BIN)/python pyproject.toml
	$(BIN)/python -m pip install -q -e '.[curate,plot]'
	@touch $@

$(VENV)/.installed-test: $(BIN)/python pyproject.toml
	$(BIN)/python -m pip install -q -e '.[test]'
	@touch $@ $(VENV)/.installed

demo: $(VENV)/.installed  ## install, then release and question a simulated table
	$(BIN)/dpsketch demo

lint: $(VENV)/.installed-test  ## formatting, types, import contracts
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

quick: lint  ## all linters, and the tests that take seconds
	$(BIN)/python -m pytest -n 2 --dist worksteal $(QUICK)

test: lint  ## install test needs, run all linters and tests
	$(BIN)/python -m pytest -n 2 --dist worksteal

lock: $(VENV)/.installed-test  ## write the versions that the tests ran with to requirements-tested.txt
	(echo '# What the tests ran with: pip install -c requirements-tested.txt dpsketch. Written by make lock.'; \
	 $(BIN)/python -m pip freeze --exclude-editable | grep -v ' @ ') > requirements-tested.txt

# --clear: uv keeps what is installed, if it is new enough.
.venvs/lowest/.installed: pyproject.toml
	$(PYTHON) -m venv --clear .venvs/lowest || python3 -m venv --clear .venvs/lowest
	.venvs/lowest/bin/python -m pip install -q uv
	.venvs/lowest/bin/uv pip install -q --python .venvs/lowest/bin/python --resolution lowest-direct -e '.[test]'
	@touch $@

test-lowest: .venvs/lowest/.installed  ## run the tests with the lowest versions of all dependencies that pyproject.toml allows
	.venvs/lowest/bin/python -m pytest -n 2 --dist worksteal -W ignore::DeprecationWarning

audit: $(VENV)/.installed-test  ## the long privacy audit: attacks a million releases of every kind and prints one table
	$(BIN)/python -m benchmarks.audits --draws 1000000

fuzz: $(VENV)/.installed-test  ## hostile inputs of every kind, for SECONDS=600 with a fixed SEED
	$(BIN)/python -m benchmarks.fuzz --seconds $(SECONDS) --seed $(SEED)

bench: $(VENV)/.installed-test  ## speed of the kernels, as ratios in one process
	$(BIN)/python -m benchmarks

ROWS ?= 5000000
SCALE ?= 1

bench-engines: $(VENV)/.installed-test  ## ROWS=5000000 in six kinds of storage through all engines: same sums, seconds, memory
	$(BIN)/python -m benchmarks.engines --rows $(ROWS)

bench-friendster: $(VENV)/.installed-test  ## a graph of SCALE=1 times Friendster's size to released counters and answers
	$(BIN)/python -m benchmarks.friendster --scale $(SCALE)

.venvs/mbi/.installed: Makefile
	$(PYTHON) -m venv .venvs/mbi || python3 -m venv .venvs/mbi
	.venvs/mbi/bin/python -m pip install -q 'mbi==2.0.0' jax networkx
	@touch $@

# diffprivlib 0.6 uses names that scikit-learn 1.6 dropped.
.venvs/diffprivlib/.installed: Makefile
	$(PYTHON) -m venv .venvs/diffprivlib || python3 -m venv .venvs/diffprivlib
	.venvs/diffprivlib/bin/python -m pip install -q diffprivlib 'scikit-learn<1.6' 'numpy<2.3' 'scipy<1.15'
	@touch $@

.venvs/dpmm/.installed: Makefile
	$(PYTHON) -m venv .venvs/dpmm || python3 -m venv .venvs/dpmm
	.venvs/dpmm/bin/python -m pip install -q 'dpmm==0.1.9'
	@touch $@

papers-truth: $(VENV)/.installed-test .venvs/dpmm/.installed  ## whether ± holds on tables and questions that nobody tuned on, wide tables, and MST and AIM of dpmm
	$(BIN)/python -m benchmarks.truth
	$(BIN)/python -m benchmarks.truth.wide
	$(BIN)/python -m benchmarks.truth.curve
	$(BIN)/python -m benchmarks.truth.peers

papers-m2m: $(VENV)/.installed-test .venvs/mbi/.installed .venvs/diffprivlib/.installed  ## every figure of the m2m paper beside its goal and its baselines
	$(BIN)/python -m benchmarks.m2m

papers-compressive: $(VENV)/.installed-test .venvs/diffprivlib/.installed  ## every figure of the compressive paper beside its goal and its baselines
	$(BIN)/python -m benchmarks.compressive

papers-density: $(VENV)/.installed-test .venvs/diffprivlib/.installed  ## every figure of the race and density papers beside its goal and its baselines
	$(BIN)/python -m benchmarks.density

papers-market: $(VENV)/.installed-test  ## every figure of the summary paper beside its goal and its baselines
	$(BIN)/python -m benchmarks.market

clean:  ## remove the environment and caches
	rm -rf $(VENV) .venvs .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
