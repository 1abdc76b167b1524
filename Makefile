# `make demo` and `make test` need Python 3.11 or newer; on Debian 12 they install all the rest.
#
#   make demo [DATA=Data.fs] [DEMO_OPTIONS=--keep]   a cluster at work on real input
#   make test [TEST_OPTIONS="-k wire"]               lint, then the whole suite (-n 4)
#   make soak [SOAK_MINUTES=40]                      search for bugs with fresh seeds; gates nothing
#   make dist                                        a wheel and a source distribution, in dist/
#   make deb [DEB_EXTRAS=metrics,mariadb]            a Debian package, in dist/
#   make lint | bench | bench-spark | clean
#   make site                                        the documents as HTML with search, in build/site; every link is followed
#   make diagrams                                    draw new diagrams of the documents; needs npm and Chromium
#   make pins                                        the newest versions of all that tests need, for tools/constraints.txt
#   make plone                                       a Plone site on a cluster, and back

PYTHON ?= python3
PYTHON312 ?= python3.12
VENV ?= .venv
DEMO_OPTIONS ?=
TEST_OPTIONS ?= -n 4
SOAK_MINUTES ?= 40
SOAK_OPTIONS ?=
BENCH_OPTIONS ?=
DEB_EXTRAS ?= metrics
SPARK_OPTIONS ?=
REPLICATION_OPTIONS ?= $(filter --quick,$(BENCH_OPTIONS))

BIN := $(VENV)/bin
PACKAGING := setup.cfg pyproject.toml tools/install-debian.sh
# The versions with which the suite passes, so that a new release of a library or a linter refuses no change.
PINS := tools/constraints.txt
# A peer of the benchmarks, in an environment of its own.
PGJSONB := 1.19.0
# Draws the diagrams of the documents.
MERMAID := 12.3.0
# A suite starts a thousand processes. Where the environment forbids to write bytecode, each of them would compile
# the whole project again, which takes longer than all else of its start.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test soak lint bench bench-spark pgjsonb plone site diagrams dist deb pins clean
.DELETE_ON_ERROR:

help:
	@sed -n 's/^#   \{0,1\}//p' Makefile

demo: $(VENV)/.installed-demo
	$(BIN)/python -m examples.demo $(if $(DATA),--data '$(DATA)') $(DEMO_OPTIONS)

test: lint
	PYTHONHASHSEED=0 $(BIN)/python -m pytest $(TEST_OPTIONS)

soak: $(VENV)/.installed-test
	$(BIN)/python -m tests.soak --minutes $(SOAK_MINUTES) $(SOAK_OPTIONS)

lint: $(VENV)/.installed-test
	$(BIN)/ruff check neo neoctl pyspark_neo examples schema tests tools
	$(BIN)/mypy

bench: $(VENV)/.installed-bench pgjsonb
	$(BIN)/python -m tests.bench $(BENCH_OPTIONS)
	$(BIN)/python -m tests.bench.replication $(REPLICATION_OPTIONS)
	$(BIN)/python -m tests.bench.sync $(REPLICATION_OPTIONS)
	$(BIN)/python -m tests.bench.blobs $(REPLICATION_OPTIONS)
	$(BIN)/python -m tests.bench.operations $(REPLICATION_OPTIONS)

# One of the storages with which NEO is compared needs Python 3.12. Without one it is not measured.
pgjsonb: $(VENV)/.installed-test
	@if $(PYTHON312) -c '' 2>/dev/null; then $(MAKE) --no-print-directory $(VENV)-pgjsonb/.installed; \
	else echo 'no Python 3.12 ($(PYTHON312)): zodb-pgjsonb is not measured'; fi

plone: $(VENV)-plone/.installed
	$(VENV)-plone/bin/python -m tests.plone.story

bench-spark: $(VENV)/.installed-test
	$(BIN)/python -m tests.bench.spark $(SPARK_OPTIONS)

site: $(VENV)/.installed-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "build/site/index.html; with search: $(PYTHON) -m http.server -d build/site"

diagrams: $(VENV)/bin/python
	mkdir -p build/mermaid
	cd build/mermaid && npm pack --silent mermaid@$(MERMAID) && tar xzf mermaid-$(MERMAID).tgz package/dist/mermaid.min.js
	$(BIN)/python tools/draw_diagrams.py build/mermaid/package/dist/mermaid.min.js

dist: $(VENV)/bin/python
	rm -rf build/lib build/bdist.*
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c $(PINS) build
	$(BIN)/python -m build --outdir dist .

# Python and libraries of the package are those of this Debian and of $(PINS).
deb: $(VENV)/.installed-demo
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c $(PINS) 'setuptools >= 70.1'
	TOOLS=$(abspath $(BIN))/python EXTRAS=$(DEB_EXTRAS) packaging/debian/build.sh dist

clean:
	rm -rf $(VENV) $(VENV)-plone $(VENV)-pgjsonb build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .tox
	find neo neoctl examples schema tests tools -name __pycache__ -prune -exec rm -rf {} +

# Wheels alone serve the demo: no compiler, no MariaDB.
$(VENV)/.installed-demo: $(VENV)/bin/python $(PACKAGING)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	@touch $@

$(VENV)/.installed-test: $(VENV)/bin/python $(PACKAGING) $(PINS)
	@tools/install-debian.sh test $(PYTHON)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c $(PINS) -e '.[test,mariadb,spark]'
	@touch $@

$(VENV)/.installed-bench: $(VENV)/.installed-test
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c $(PINS) -e '.[bench]'
	@touch $@

$(VENV)-pgjsonb/.installed: $(PACKAGING) $(PINS)
	$(PYTHON312) -m venv $(VENV)-pgjsonb
	$(VENV)-pgjsonb/bin/python -m pip install --quiet --disable-pip-version-check -c $(PINS) -e . zodb-pgjsonb==$(PGJSONB)
	@touch $@

$(VENV)/.installed-docs: $(VENV)/bin/python $(PACKAGING)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c $(PINS) -e '.[docs]'
	@touch $@

pins:
	@tools/install-debian.sh test $(PYTHON)
	rm -rf build/pins
	$(PYTHON) -m venv build/pins
	build/pins/bin/python -m pip install --quiet --disable-pip-version-check -e '.[test,mariadb,spark,bench,docs]'
	build/pins/bin/python -m pip freeze --exclude-editable > $(PINS)

# Plone takes some minutes to install, and decides about versions of many packages.
$(VENV)-plone/.installed: $(VENV)/bin/python $(PACKAGING)
	$(PYTHON) -m venv $(VENV)-plone
	$(VENV)-plone/bin/python -m pip install --quiet --disable-pip-version-check -e '.[plone]'
	@touch $@

$(VENV)/bin/python:
	@tools/install-debian.sh demo $(PYTHON)
	$(PYTHON) -m venv $(VENV)
