# Each target sets up its own .venv: Python 3.11 or newer and make are all that a machine needs.
# Another interpreter: make test PYTHON=python3.13

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CLEAN := build/clean
PIP := -m pip --disable-pip-version-check -qq
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1
# Tests start hundreds of processes: where nothing compiled may be kept, each compiles all that it imports.
export PYTHONDONTWRITEBYTECODE :=

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

.PHONY: demo test check docs test-browser nights mutants fuzz chaos bench soak defences audit conformance examples exporters clean

demo: $(VENV)/.installed
	@$(BIN)/agenttrace demo

test: $(VENV)/.installed-dev
	@$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest -n 3 --dist loadgroup
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

# The report in headless Chromium, of Debian's package; pictures and figures are left in build/browser.
test-browser: $(VENV)/.installed-dev
	@$(BIN)/python -c "import playwright" 2>/dev/null || $(BIN)/python $(PIP) install --editable ".[browser]"
	$(BIN)/python -m pytest -q -n 0 -s tests/browser_report.py

# The site, in build/docs/html; a link that leads nowhere is an error.
docs: $(VENV)/.installed-dev
	@$(BIN)/python -c "import furo, myst_parser" 2>/dev/null || $(BIN)/python $(PIP) install --editable ".[docs]"
	$(BIN)/python docs/build.py build/docs

# Thirty nights over a growing store against an oracle: late spans, a crash, a night without data, a change of the clocks.
NIGHTS ?= 30
nights: $(VENV)/.installed-dev
	NIGHTS=$(NIGHTS) $(BIN)/python -m pytest -q -n 0 tests/test_nightly.py -k night_after_night

# Takes away each condition of each evaluator's SQL: a golden case must fail.
mutants: $(VENV)/.installed-dev
	$(BIN)/python tests/mutants.py

# A hundred thousand mutated inputs through decoder, receiver and importer; FUZZ="--inputs 1000 --seed 7" for others.
fuzz: $(VENV)/.installed-dev
	$(BIN)/python tests/fuzz.py $(FUZZ)

# Kills, starves, floods and lies to agents, receivers and compactors: nothing acknowledged may be lost or stored twice, no
# agent may end otherwise. CHAOS="--seed 7 --only kills" for others.
chaos: $(VENV)/.installed-dev
	$(BIN)/python tests/chaos.py $(CHAOS)

# All targets in one table at the end, and README's own made anew; about an hour. NAMES="decode receiver" for some of them.
bench: $(VENV)/.installed-dev
	@$(BIN)/python benchmarks/bench.py $(NAMES); status=$$?; $(BIN)/cog -r README.md; exit $$status

# The receiver at half of its capacity for MINUTES.
MINUTES ?= 10
soak: $(VENV)/.installed-dev
	$(BIN)/python benchmarks/soak.py $(MINUTES)

# Takes the defences of docs/security.md out one by one: the test of each line must fail. DEFENCES="sql" for those with a word.
defences: $(VENV)/.installed-dev
	$(BIN)/python tests/defences.py $(DEFENCES)

# What the wheel brings with it, as an SBOM, and what is known against it; `--strict`: what could not be asked about is no pass.
audit: $(CLEAN)/.installed build/audit/.installed
	build/audit/bin/cyclonedx-py environment $(CLEAN)/bin/python --mc-type library --pyproject pyproject.toml -o build/sbom.json
	@$(CLEAN)/bin/python $(PIP) freeze --exclude agenttrace-otel > build/requirements.txt
	build/audit/bin/pip-audit --strict --no-deps --disable-pip --progress-spinner off -r build/requirements.txt

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

build/audit/.installed: | $(VENV)/bin/python
	@$(BIN)/python -m venv build/audit
	@build/audit/bin/python $(PIP) install "pip-audit>=2.9,<3" "cyclonedx-bom>=7,<8"
	@touch $@

# The wheel's dependencies alone, so that a missing one shows; and pytest, into which a module of it plugs.
$(CLEAN)/.installed: pyproject.toml | $(VENV)/.installed-dev
	@echo "Setting up $(CLEAN) (once) ..." >&2
	@rm -rf $(CLEAN)
	@$(BIN)/python -m venv $(CLEAN)
	@$(CLEAN)/bin/python $(PIP) install . "pytest>=8.3"
	@touch $@
