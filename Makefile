# The two commands of the README are `make demo` and `make test`. Everything they need is made in .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready

.PHONY: demo test check format unit bench lock clean

$(STAMP): requirements-dev.txt requirements-emulator.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("bide needs Python 3.11 or newer; this is " + sys.version.split()[0] + ". Try: make PYTHON=python3.12 ...") if sys.version_info < (3, 11) else None'
	@echo "installing what bide needs into $(VENV); this is done once and takes a minute"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@$(PYTHON) -m venv $(VENV)/emulator
	@$(VENV)/emulator/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-emulator.txt
	@touch $(STAMP)

demo: $(STAMP)  ## poll a small sample API for a minute and watch what becomes of its changes
	@$(BIN)/bide demo

test: check unit  ## everything that CI runs

check: $(STAMP)  ## format, lint, types, architecture, tidiness
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/pytest -q -p no:cacheprovider tests/test_tidy.py

unit: $(STAMP)  ## every test, in parallel
	$(BIN)/pytest -q -n auto --dist worksteal

format: $(STAMP)  ## rewrite the code in the house style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(STAMP)  ## the benchmarks, each beside its ceiling; a few minutes
	$(BIN)/python benchmarks/polls.py
	$(BIN)/python benchmarks/waits.py
	$(BIN)/python benchmarks/imports.py

lock:  ## renew the pinned requirements (needs uv)
	uv export --quiet --format requirements-txt --all-extras --no-emit-project --no-header --output-file requirements-dev.txt
	uv export --quiet --format requirements-txt --only-group emulator --no-emit-project --no-header --output-file requirements-emulator.txt
	rm -f uv.lock

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
