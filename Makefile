# Every habit is a target.  Needs Python 3.11 or newer, pip and make; all it installs goes into .venv.
PYTHON ?= python3
BIN := .venv/bin
PYODIDE := 314.0.7
PARTS := core plugins/scalar plugins/simd plugins/wgpu plugins/cuda plugins/dask
ARGS ?=
# All tests together are worth a process a core; each takes a gigabyte, so four at most.  A selection runs in one, which
# starts at once and can be debugged; ARGS="-n 2 -k softmax" if it is large.
PARALLEL = -n auto --maxprocesses 4 --dist worksteal
WORKERS = $(if $(ARGS),,$(PARALLEL))

.PHONY: help setup demo test test-share test-all hostile check lint types imports bench bench-gpu sanitize docs generate golden wheels
.PHONY: clean

help:  ## Show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## */\t/' | awk -F'\t' '{printf "  %-9s %s\n", $$1, $$2}'

setup: .venv/dev .venv/npm/pyodide-$(PYODIDE)  ## Install the packages (editable) and every tool into .venv

demo: .venv/packages  ## Run every op on the best backend and compare with NumPy
	$(BIN)/trueno demo $(ARGS)

test: .venv/dev  ## Run the tests, a sample of the long families (TRUENO_TEST_SEED draws it; ARGS="-k softmax" to choose)
	$(BIN)/python -m pytest $(WORKERS) $(ARGS)

SHARE ?= 0.2
test-share: .venv/dev  ## Run every test, of each long family a part: what CI runs (SHARE=0.2; TRUENO_TEST_SEED draws it)
	$(BIN)/python -m pytest $(PARALLEL) --share $(SHARE) $(ARGS)

test-all: .venv/dev  ## Run every test
	$(BIN)/python -m pytest $(PARALLEL) --all $(ARGS)

MINUTES ?= 10
hostile: .venv/dev  ## Attack everything by seeded random cases (MINUTES=60, ARGS="--attacks calls --seed 7")
	$(BIN)/python -m tests.hostile --minutes $(MINUTES) $(ARGS)

check: lint types imports  ## Format, lint, types, import contracts: what CI asks of the text

lint: .venv/dev  ## The fast part of check: ruff
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: .venv/dev
	$(BIN)/mypy

imports: .venv/dev
	$(BIN)/lint-imports --no-logo

bench: .venv/dev  ## Compare with NumPy and PyTorch, row by row
	$(BIN)/python -m benchmarks $(ARGS)

bench-gpu: .venv/dev  ## The rows of GPUs alone, on the GPUs that are here
	$(BIN)/python -m benchmarks --rows cuda,language_cuda,engine_cuda,lz4_gpu,wgpu,gpus $(ARGS)

TOOLS ?= memcheck racecheck
sanitize: .venv/packages  ## Run every CUDA kernel's sample under compute-sanitizer, on the GPU that is here
	@for tool in $(TOOLS); do echo "$$tool:"; \
	    compute-sanitizer --tool $$tool --error-exitcode 1 $(BIN)/trueno ptx check $(ARGS) || exit 1; done

docs: .venv/dev  ## Build the site into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

generate: .venv/packages  ## Rewrite what derives from a table: stubs, the manifest's schema, docs/reference/, the README's list of ops
	$(BIN)/python -m trueno._stubs
	$(BIN)/python -m trueno.discovery.manifest
	$(BIN)/python docs/reference.py README.md

golden: .venv/dev  ## Rewrite the printed kernels that tests compare with; look at the diff
	TRUENO_GOLDEN=write $(BIN)/python -m pytest -q tests/golden

# pip sees a build's leftovers as sources, so they go first.  With a recent setuptools at hand nothing is downloaded.
wheels:  ## Build every distribution into dist/ (offline too, if setuptools is there)
	rm -rf dist core/build plugins/*/build
	@py=$$(test -x $(BIN)/python && echo $(BIN)/python || echo $(PYTHON)); \
	$$py -c 'import setuptools, sys; sys.exit(int(setuptools.__version__.split(".")[0]) < 77)' 2>/dev/null \
	    && how=--no-build-isolation || how=; \
	$$py -m pip wheel --quiet --no-deps $$how --wheel-dir dist $(PARTS:%=./%)
	@ls dist

clean:  ## Remove what was built (.venv stays)
	rm -rf dist site core/build plugins/*/build core/src/*.egg-info plugins/*/src/*.egg-info
	rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage

# Two stamps: the demo waits for our packages alone, the rest for the tools as well.
.venv/packages: $(PARTS:%=%/pyproject.toml)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	    || { echo "Trueno needs Python 3.11 or newer; name one with make PYTHON=..."; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet -e "./core[cli,lz4]" $(patsubst %,-e ./%,$(filter plugins/%,$(PARTS)))
	touch $@

# Python for pages, which tests start in Chromium.  Where npm is missing or fails, they are skipped, and setup goes on.
.venv/npm/pyodide-$(PYODIDE): | .venv/packages
	@mkdir -p $(@D)
	@{ npm install --silent --no-audit --no-fund --ignore-scripts --no-save --fetch-retries 2 --fetch-timeout 60000 \
	    --prefix $(@D) pyodide@$(PYODIDE) >/dev/null 2>&1 && touch $@; } \
	    || echo "npm could not install pyodide $(PYODIDE): the tests that run Python in a page are skipped"

.venv/dev: pyproject.toml .venv/packages
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"  # the first that knows dependency groups
	$(BIN)/python -m pip install --quiet --group dev
	touch $@
