# Each target sets up its own environment when it is missing.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
BENCH_READY := $(VENV)/.bench-ready
DOCS_READY := $(VENV)/.docs-ready
CORES := $(shell nproc 2>/dev/null || echo 2)
# Tests wait a quarter of their time, for processes or a browser: more of them than cores keep the cores busy.
AT_A_TIME := $(shell echo $$(((3 * $(CORES) + 1) / 2)))

# Compiled tests are kept, so that only the first of several sessions compiles them.
unexport PYTHONDONTWRITEBYTECODE

# Tests marked `serial` compare times: they run after the others, one at a time. Both parts run, and either can fail.
# $(1) chooses the tests, $(2) is where they are; files without the mark are not even read for the serial part.
marked = $$(grep -rlw --include='test_*.py' 'mark\.$(1)' tests)
run_tests = parallel=0; serial=0; \
	$(BIN)/python -m pytest -n $(AT_A_TIME) --dist worksteal -m '($(1)) and not serial' $(3) $(2) || parallel=$$?; \
	$(BIN)/python -m pytest -m '($(1)) and serial' $(3) $(call marked,serial) || serial=$$?; \
	exit $$((parallel | serial))

.PHONY: demo test test-slow soak lint bench docs clean

demo: $(READY)
	$(BIN)/paceline demo

test: $(READY)
	@tests/get_browser.sh
	@$(call run_tests,not slow and not soak,tests)

test-slow: $(READY)
	@tests/get_browser.sh
	@$(call run_tests,slow and not soak,$(call marked,slow),--timeout 600)

soak: $(READY)
	$(BIN)/python -m pytest -m soak --timeout 3600

lint: $(READY)
	$(BIN)/ruff check paceline tests benchmarks examples
	$(BIN)/ruff format --check paceline tests benchmarks examples
	$(BIN)/mypy

bench: $(BENCH_READY)
	$(BIN)/python -m benchmarks

docs: $(DOCS_READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo "Open build/site/index.html in a browser."

$(READY): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $@

$(BENCH_READY): $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,bench]'
	touch $@

$(DOCS_READY): $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,docs]'
	touch $@

clean:
	rm -rf $(VENV) build *.egg-info .pytest_cache .mypy_cache .ruff_cache
