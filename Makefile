# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

.PHONY: demo test lint types install clean

demo: install
	$(BIN)/orchid demo --out runs/demo

# One process a core, each with one thread: the tests are many and small. Those that start processes of their own
# come alone.
PARALLEL := tests/train/test_parallel.py

test: lint types
	OMP_NUM_THREADS=1 $(BIN)/pytest -n auto --dist worksteal --ignore $(PARALLEL)
	$(BIN)/pytest $(PARALLEL)

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: install
	$(BIN)/mypy

install: $(INSTALLED)

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[train,bert,kernels,export,dev]'
	touch $@

clean:
	rm -rf $(VENV) runs .pytest_cache .mypy_cache .ruff_cache
