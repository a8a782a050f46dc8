# Everything runs in a virtual environment made here; nothing else on the machine is touched.
PYTHON ?= python3
VENV ?= .venv
DATA ?=
ARGS ?=
COUNT ?= 100
SEED ?= 0
SECONDS ?= 600
FOLDERS ?=
PYTHONS ?= python3.10 python3.11 python3.12 python3.13
BENCH ?= $(filter-out __init__ __main__ harness samples gpu,$(basename $(notdir $(wildcard benchmarks/*.py))))

# Bytecode is kept: each process would compile all modules again. It is made of what is imported, when that happens; pip
# would make it of all files of all packages first, which takes half of an installation.
export PYTHONDONTWRITEBYTECODE =

# One more than there are processors, up to four: while some tests wait for processes, others run.
WORKERS ?= $(shell $(PYTHON) -c 'import os; print(min(4, os.cpu_count() + 1))')

BIN := $(VENV)/bin
READY := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help install demo compare sampled evaluate test quick mutate fuzz check lint types docs bench gpu package lowest newest format clean

help:  ## print what there is
	@awk 'BEGIN {FS = ":.*## "} /^[a-z]+:.*## / {printf "  make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo
	@echo "  DATA=path    make demo, compare, sampled, evaluate: a directory in MovieLens' CSV layout instead of the built-in data"
	@echo "  ARGS='...'   make demo, compare, sampled, evaluate, test, bench: further arguments for the program that is run"
	@echo "  SEED=N       make mutate, fuzz: draw other changes, other cases"
	@echo "  BENCH=name   make bench: one of $(BENCH)"
	@echo "  PYTHONS=...  make package: the interpreters; NO_DEPS=1: without torch, which some have in gigabytes alone"
	@echo "  PYTHON=...   the interpreter to make the environment with; VENV=... the place of the environment"

# The stamp is newer than both files exactly when what is installed is what they ask for.
$(READY): pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt --editable '.[dev]'
	@touch $@

install: $(READY)  ## make the virtual environment and install the package with everything the targets below need

demo: $(READY)  ## train on MovieLens-like data in two processes and report (DATA=path: on your own)
	$(BIN)/python -m examples.movielens.demo $(if $(DATA),--data $(DATA)) $(ARGS)

compare: $(READY)  ## which of the demo's two models is better, and is that beyond chance? (runs the demo where it has not run)
	$(BIN)/python -m examples.compare $(if $(DATA),--data $(DATA)) $(ARGS)

sampled: $(READY)  ## rank the models of the demo among 100 sampled negatives, 200 times
	$(BIN)/python -m examples.movielens.sampled $(if $(DATA),--data $(DATA)) $(ARGS)

evaluate: $(READY)  ## train the demo's models for 3 epochs, export their lists, evaluate and compare the files (DATA=path: of your own)
	$(BIN)/python -m examples.offline $(if $(DATA),--data $(DATA)) $(ARGS)

test: $(READY)  ## run all tests, doctests and examples
	$(BIN)/python -m pytest --numprocesses=$(WORKERS) --dist=loadfile --no-loadscope-reorder $(ARGS)

quick: $(READY)  ## a few tests of what changed since main, and one case of each law: within 45 seconds
	$(BIN)/python -m tests.tools.quick $(ARGS)

mutate: $(READY)  ## change COUNT places of the package (FOLDERS='core/auc users': of these), print what no test catches
	$(BIN)/python -m tests.tools.mutate --count $(COUNT) --seed $(SEED) $(ARGS) $(FOLDERS)

fuzz: $(READY)  ## draw cases of the laws anew for so many SECONDS; a failure is shrunk, and its seed printed
	$(BIN)/python -m tests.tools.fuzz --seconds $(SECONDS) $(if $(filter-out 0,$(SEED)),--seed $(SEED)) $(ARGS)

check: lint types docs  ## lint, format, types, direction of imports, docs

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python -m pytest -q tests/core/test_import_direction.py

types: $(READY)
	$(BIN)/mypy

docs: $(READY)  ## build the documentation; a warning is an error
	rm -rf docs/_build/html  # pages of sources that look unchanged would be kept
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --fresh-env --quiet docs docs/_build/html

bench: $(READY)  ## time the package beside the other libraries that are installed, and keep the tables for the docs
	$(BIN)/python -m pip install --quiet --no-deps --requirement benchmarks/competitors.txt || \
		echo "not every library to compare with could be installed: those that are missing are skipped"
	$(BIN)/python -m benchmarks $(BENCH) $(ARGS)

gpu: $(READY)  ## run the tests and the benchmarks of a GPU and keep their table; without one it says so
	$(BIN)/python -m benchmarks.gpu

package: $(READY)  ## build sdist and wheel, and install both in an empty environment of each of PYTHONS
	rm -rf dist && $(BIN)/python -m hatchling build
	.ci/package $(PYTHONS)

lowest:  ## run the tests on the lowest versions that pyproject.toml admits (downloads gigabytes)
	test -x $(VENV)-lowest/bin/python || $(PYTHON) -m venv $(VENV)-lowest
	$(VENV)-lowest/bin/python -m pip install --quiet --requirement lowest.txt --editable .
	$(VENV)-lowest/bin/python -m pytest --numprocesses=2 --dist=loadfile $(or $(ARGS),tests/core tests/metrics tests/collection tests/laws)

newest:  ## run the tests on the newest versions of everything there are
	test -x $(VENV)-newest/bin/python || $(PYTHON) -m venv $(VENV)-newest
	$(VENV)-newest/bin/python -m pip install --quiet --upgrade --editable '.[dev]'
	$(VENV)-newest/bin/python -m pytest --numprocesses=2 --dist=loadfile $(ARGS)

format: $(READY)  ## bring all files into the one format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:  ## remove the environment and everything that was built or cached
	rm -rf $(VENV) build dist docs/_build docs/metrics .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
