# `make demo` and `make test` are usually enough; `make help` lists the rest.
# Works from any directory: `make -C DIR test` or `make -f DIR/Makefile test`.

ifneq ($(lastword $(MAKEFILE_LIST)),Makefile)

# Called with -f from another directory: run make again in the Makefile's directory.
GOALS := $(or $(MAKECMDGOALS),help)
.PHONY: $(GOALS)
$(GOALS):
	@$(MAKE) --no-print-directory -C '$(dir $(lastword $(MAKEFILE_LIST)))' $@

else

PYTHON ?= python3
PY := .venv/bin/python
PIP := $(PY) -m pip --disable-pip-version-check --quiet
# Pool tests mostly wait, so running two files at a time takes little more than half the time.
PYTEST_ARGS ?= --numprocesses 2 --dist loadfile --no-loadscope-reorder
.DEFAULT_GOAL := help

.PHONY: help
help:
	@echo 'make demo       advice for the held jobs of a real event log, without a pool'
	@echo 'make test       all tests, with a real HTCondor pool in .pool/'
	@echo 'make check      everything CI runs: lint and test'
	@echo 'make lint       ruff and mypy'
	@echo 'make bench      all benchmarks; each prints JSON lines'
	@echo 'make results    the same, written to docs/results.md (BENCH=name: only that one)'
	@echo 'make soak       a day of a busy access point in 12 minutes, plotted to out/'
	@echo 'make man        write the man page and the shell completions'
	@echo 'make pool       install HTCondor in .pool/, unless condor_master is on PATH'
	@echo 'make condor_checkpoint.pyz    the in-job hook as one file, for transfer_input_files'
	@echo 'make clean      remove build and test files; distclean: also .venv and .pool'

# ---- the virtual environment: the core for the demo, everything for the tests -----------
# Stamp files record what is installed. If pyproject.toml is newer than a stamp, make installs
# again.

.venv/made: tools/make_venv.py
	@echo 'creating .venv'
	@$(PYTHON) tools/make_venv.py .venv
	@touch $@

.venv/core: pyproject.toml | .venv/made
	@echo 'installing the core into .venv'
	@$(PIP) install --editable .
	@touch $@

.venv/dev: pyproject.toml | .venv/made
	@echo 'installing everything the tests need into .venv (several hundred megabytes)'
	@$(PIP) install --editable '.[dev]'
	@touch .venv/core $@

# ---- commands ---------------------------------------------------------------------------

.PHONY: demo
demo: .venv/core
	@$(PY) -m condor_advice demo

# A machine without a pool still runs the other tests. The reason is printed here, and again
# with each skipped test.
.PHONY: pool
pool: .venv/dev
	@$(PY) -m condor_advice.lab.install_pool || echo 'no pool: tests that need one will be skipped'

.PHONY: test
test: .venv/dev pool
	@$(PY) -m pytest $(PYTEST_ARGS)

.PHONY: lint
lint: .venv/dev
	@$(PY) -m ruff check
	@$(PY) -m ruff format --check
	@$(PY) -m mypy

.PHONY: check
check: lint test

.PHONY: bench
bench: .venv/dev
	@set -e; for benchmark in bench/*.py; do $(PY) "$$benchmark"; done

.PHONY: soak
soak: .venv/dev
	@$(PY) bench/soak.py --hours 24 --speed 120 --log-mb 20

.PHONY: man
man: .venv/core
	@$(PY) tools/write_man.py

.PHONY: results
results: .venv/dev
	@$(PY) tools/write_results.py $(BENCH)

# One file with the hook, its command and its model. Does not need .venv.
condor_checkpoint.pyz: tools/make_pyz.py $(wildcard checkpoint/*.py) checkpoint/model.json
	@$(PYTHON) tools/make_pyz.py $@

.PHONY: clean
clean:
	rm -rf build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +

.PHONY: distclean
distclean: clean
	rm -rf .venv .pool

endif
