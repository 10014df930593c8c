# Needs Python 3.11 or newer, make and git; everything else goes into .venv.
PYTHON ?= python3
# The four groups of tests that begin wait for processes, hosts and pages as long as they compute: two cores are full with them.
WORKERS ?= $(shell $(PYTHON) -c "import os; print(max(5, 1 + (os.cpu_count() or 1)))")
BIN := .venv/bin
STAMP := .venv/stamp
NOTEBOOKS := find notebooks -name '*.ipynb' -not -path '*/.*' -exec
SCRIPTS := $(filter-out $(addprefix benchmarks/,faults.py diagnosis.py planner_clusters.py textbook_master.py bare_star.py torch_ddp.py training_jobs.py torch_ranks.py),$(sort $(wildcard benchmarks/*.py)))

.DEFAULT_GOAL := help
.PHONY: faults help env run lab lectures site wheel lint test test-all format lock bench clean

help: ## Print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

env: $(STAMP) ## Make .venv from requirements.lock, all but PyTorch and Dask (PYTHON=python3.12 picks another Python)

$(STAMP): pyproject.toml requirements.lock tools/make_env.py
	$(PYTHON) tools/make_env.py
	@touch $@

run: env ## One experiment from start to figure
	$(BIN)/python -m workbench.lab.batch.quickstart

# Jupyter refuses to start as root, the usual user of a container, unless told; it listens on this machine only.
lab: env ## Open the first notebook in JupyterLab
	$(BIN)/python -m jupyterlab --ip=127.0.0.1 $(if $(filter 0,$(shell id -u)),--allow-root) \
		--LabApp.default_url=/lab/tree/notebooks/01-quickstart.ipynb

lectures: env ## Serve the lectures as pages without code, on this machine only
	$(BIN)/workbench lectures

site: env ## Build the site in dist/site/html (QUICK=1: notebooks not executed, and no reproduction book)
	$(BIN)/python -m tools.build_site $(if $(filter-out 0,$(QUICK)),--quick)
	$(if $(filter-out 0,$(QUICK)),,$(BIN)/workbench lectures --static dist/site/html/lectures-to-project)

wheel: env ## Build the wheel, which also carries the notebooks and the examples, in dist
	$(BIN)/python -m hatchling build -t wheel

lint: env ## Check format, style, types, the order of the layers, dead code, that no notebook holds results
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo --no-cache
	! grep -rnE --include=*.py '^ *(import (.*[ ,])?workbench( |,|$$)|from workbench import)' workbench # public names: for users only
	$(BIN)/python tools/dead_code.py
	$(BIN)/python tools/coined_names.py
	$(NOTEBOOKS) $(BIN)/nbstripout --verify {} +

# The workers share the cores: one thread each for the linear algebra. What one of them compiles, the others read.
test test-all: export OPENBLAS_NUM_THREADS := 1
test test-all: export OMP_NUM_THREADS := 1
test test-all: export PYTHONDONTWRITEBYTECODE :=

# Tests with real processes and browsers wait for them on cores that all share. What fails is tried once more, alone.
# The seed that chooses which expensive cases run in `make test` (tests/support/sampled_cases.py).
ROTATE ?= 0
PYTEST := $(BIN)/python -m pytest --rotate $(ROTATE)
GROUPS := --dist loadgroup --no-loadscope-reorder # in the order of tests/conftest.py, not by how many tests a group has
ALONE := --last-failed --last-failed-no-failures none

# Types are checked by one core for most of a minute; the tests begin meanwhile, and either ends without the other.
test test-all: env
	+@$(MAKE) --no-print-directory --jobs=2 --keep-going lint $@-alone

test: ## Lint, and all tests but the slow ones
test-all: ## Lint, and every test, with 1000 examples for each property

.PHONY: test-alone test-all-alone
test-alone: env
	$(PYTEST) -n $(WORKERS) $(GROUPS) -m "not slow" || $(PYTEST) $(ALONE) -m "not slow"

test-all-alone: env
	HYPOTHESIS_PROFILE=all $(PYTEST) -n $(WORKERS) $(GROUPS)

format: env ## Format the code, fix what can be fixed, strip notebooks, write the tables of docs and the picture of the layers
	$(BIN)/ruff check --fix
	$(BIN)/ruff format
	$(NOTEBOOKS) $(BIN)/nbstripout {} +
	$(BIN)/python -m tools.reference_tables
	$(BIN)/python tools/layers.py --draw >/dev/null

lock: env ## Remake requirements.lock with the newest versions that pyproject.toml allows
	$(BIN)/python tools/make_env.py --lock

bench: env ## Run the benchmarks one after another
	@set -e; for script in $(SCRIPTS); do echo "== $$script"; $(BIN)/python $$script; done

faults: env ## Show what a real run survives: deaths, stops, damage, full disks (about half an hour)
	$(BIN)/python benchmarks/faults.py

clean: ## Remove .venv and caches, never results
	rm -rf .venv dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
