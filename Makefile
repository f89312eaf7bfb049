# Each target sets up its own .venv: Python 3.11 or newer and make are all that a machine needs.
# Another interpreter: make test PYTHON=python3.13

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CLEAN := build/clean
PIP := -m pip --disable-pip-version-check -qq
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1

# The installed files, by their own path: pyright looks into no environment unless told, and passes where it finds nothing.
define PYRIGHT_CONFIG
import agenttrace, json, os
print(json.dumps({
    "extends": "../pyproject.toml",
    "include": [os.path.relpath(agenttrace.__path__[0], "build")],
    "exclude": ["**/__pycache__"],
    "stubPath": "../typings",
    "venvPath": ".",
    "venv": "clean",
}))
endef
export PYRIGHT_CONFIG

.PHONY: demo test check mutants fuzz bench conformance examples exporters clean

demo: $(VENV)/.installed
	@$(BIN)/agenttrace demo

test: $(VENV)/.installed-dev
	@$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest -n 2 --dist loadgroup
	@$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

check: $(VENV)/.installed-dev $(CLEAN)/.installed
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/cog --check README.md
	rm -rf build/lib build/wheel
	$(BIN)/python $(PIP) wheel --no-deps --no-build-isolation --wheel-dir build/wheel .
	$(CLEAN)/bin/python $(PIP) install --no-deps --force-reinstall build/wheel/*.whl
	$(CLEAN)/bin/agenttrace demo build/demo > build/demo.txt
	@$(CLEAN)/bin/python -I -c "$$PYRIGHT_CONFIG" > build/pyrightconfig.json
	$(BIN)/pyright --project build

# Takes away each condition of each evaluator's SQL: a golden case must fail.
mutants: $(VENV)/.installed-dev
	$(BIN)/python tests/mutants.py

# A hundred thousand mutated inputs through decoder, receiver and importer; FUZZ="--inputs 1000 --seed 7" for others.
fuzz: $(VENV)/.installed-dev
	$(BIN)/python tests/fuzz.py $(FUZZ)

bench: $(VENV)/.installed-dev
	@for file in $(filter-out %/verdicts.py,$(wildcard benchmarks/*.py)); do echo "== $$file"; $(BIN)/python $$file || exit 1; done

# Recordings of real frameworks against the truth beside each, steps and then verdicts: the tests' own, or those in TRACES.
conformance: $(VENV)/.installed-dev
	$(BIN)/python tests/recordings.py $(TRACES)
	$(BIN)/python benchmarks/verdicts.py $(TRACES)

# Installs every framework that has an example, runs it against a scripted model, and compares what arrives; NAMES picks some.
examples: $(VENV)/.installed-dev
	$(BIN)/python tests/live_examples.py build/examples $(NAMES)

# Installs the exporters of OpenTelemetry's SDKs for Node and Python and a collector, and compares what arrives from each.
exporters: $(VENV)/.installed-dev
	$(BIN)/python tests/exporters.py build/exporters

clean:
	rm -rf $(VENV) build *.egg-info .coverage .coverage.* .pytest_cache .ruff_cache .hypothesis

# Installed again when pyproject.toml changes, and only then: a second run needs no network.
$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "agenttrace needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version 2>&1). Try: make $(MAKECMDGOALS) PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); echo "No virtual environment: on Debian and Ubuntu, install python3-venv." >&2; exit 1; }

$(VENV)/.installed: pyproject.toml | $(VENV)/bin/python
	@echo "Setting up $(VENV) (once) ..." >&2
	@$(BIN)/python $(PIP) install --editable .
	@touch $@

$(VENV)/.installed-dev: pyproject.toml | $(VENV)/bin/python
	@echo "Setting up $(VENV) with the tools for tests (once) ..." >&2
	@$(BIN)/python $(PIP) install --editable ".[dev]"
	@touch $(VENV)/.installed $@

# The wheel's dependencies alone, so that a missing one shows.
$(CLEAN)/.installed: pyproject.toml | $(VENV)/.installed-dev
	@echo "Setting up $(CLEAN) (once) ..." >&2
	@rm -rf $(CLEAN)
	@$(BIN)/python -m venv $(CLEAN)
	@$(CLEAN)/bin/python $(PIP) install .
	@touch $@
