# Each of these works on a fresh clone: it installs into .venv what it needs, and no more.
PYTHON ?= python3
BIN := .venv/bin
PRODUCT := .venv/.installed
TOOLS := .venv/.installed-tools
INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt
# Half of the tests, in a tenth of the time: no kills, no benchmarks, no whole studies.
QUICK := architecture artifacts cli_help clipping config continued_runs data engine_guards gdp \
	import ledger ledger_tamper linear_engine parallel_event pictures_folders plan predictor \
	preparation preprocess privacy randomness rounding rows score search_curve search_law search_linear_scaling \
	search_space split transform trial

.PHONY: demo test quick check clean

demo: $(PRODUCT)
	@$(BIN)/dptune tune --data demo

test: check
	$(BIN)/pytest -n 2 --dist worksteal

quick: check
	$(BIN)/pytest -n 2 --dist worksteal $(QUICK:%=tests/test_%.py)

check: $(TOOLS)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

$(PRODUCT): pyproject.toml constraints.txt
	@echo "Installing dptune into .venv (a minute or two, the first time) ..."
	$(PYTHON) -m venv .venv
	$(INSTALL) -e .
	@touch $@

$(TOOLS): $(PRODUCT)
	@echo "Installing what the tests need into .venv ..."
	$(INSTALL) -e '.[dev]'
	@touch $@

clean:
	rm -rf .venv build dist .hypothesis .mypy_cache .pytest_cache .ruff_cache
