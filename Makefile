# Everything Gridloom needs is built into target/ and .venv/ of this folder.
#   make demo    build, start a local grid, run the demonstration on real input, write out/demo/
#   make test    all tests; what this machine lacks is skipped by name and counted at the end
#   make test-all    the same after the system's packages that some tests use are installed (as root, Debian)
#   make capi    the library for C, its headers, the Fortran module, manual pages, pkg-config and CMake files: target/capi/
#   make install PREFIX=/usr/local    the same and the program, somewhere else
#   make bench   figures beside the machine's limits, recorded in bench/results/; bench/record.py has more
#   make experiments    the papers' tables and figures beside ours: docs/experiments/; experiments-full runs all sizes
#   make docs    the documentation as a site: target/docs/index.html
#   make lint    formatting, lint, spelling and type checks, and whether the stubs fit
#   make deny    licences and sources of the dependencies, after Cargo.lock has changed
#   make wheel   a Python wheel for this machine: target/wheels/
#   make wheel-portable    the same for any Linux with glibc 2.28 or newer (2018): target/portable/

PYTHON ?= python3
# Python cannot load packages from a folder whose path the locale cannot represent.
UTF8 := LC_ALL=C.UTF-8 PYTHONUTF8=1
# Where the path of this folder has other characters: pytest cannot pass such a path to its processes in the locale C.
UTF8_PATH := $(if $(shell printf '%s' "$(CURDIR)" | LC_ALL=C tr -d '\40-\176'),$(UTF8))
VENV := .venv
BIN := $(VENV)/bin
PACKAGE := crates/gridloom-python
RUST := $(shell find crates bench -name '*.rs' -o -name '*.toml' -o -name '*.idl' -o -name '*.json' -o -name '*.c' -o -name '*.h' -o -name '*.S' -o -name '*.h.in' 2>/dev/null | grep -v -e /target/ -e /include/compat/) $(wildcard deploy/systemd/*) Cargo.toml Cargo.lock
CAPI := crates/gridloom-capi
HEADERS := $(wildcard crates/*/include/*.*)
# Headers for programs of other systems; programs name their folder to use them.
COMPAT := $(CAPI)/include/compat
COMPAT_HEADERS := $(wildcard $(COMPAT)/*.h $(COMPAT)/*/*.h)
FORTRAN := $(wildcard $(CAPI)/fortran/*.f90)
CMAKE := $(wildcard $(CAPI)/cmake/*.in)
GENERATE := $(CAPI)/generate
# Libraries that programs need with the static library: 'cargo rustc -p gridloom-capi -- --print native-static-libs'.
STATIC_NEEDS := pthread m dl gcc_s
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)
# 0.1 of 0.1.0.
FILL = sed -e 's/@VERSION@/$(VERSION)/' -e 's/@MINOR_VERSION@/$(basename $(VERSION))/'
space := $(subst ,, )
PREFIX ?= /usr/local
PYSOURCES := $(shell find $(PACKAGE)/python $(PACKAGE)/data -type f -not -name "*.pyc" 2>/dev/null) $(PACKAGE)/pyproject.toml README.md

.PHONY: all build capi install python demo test test-rust test-python test-all bench experiments experiments-full deny docs lint lint-rust \
	lint-stubs lint-text lint-types wheel wheel-portable clean

all: build python

build: target/release/gridloom capi

# The program and the libraries for C are built together, so that both share what they are made of. They keep the times that cargo gives
# them: 'cargo test --release' rebuilds the program alone, and then the libraries are still older than the sources.
target/release/gridloom target/release/libgridloom_capi.so target/release/libgridloom_capi.a &: $(RUST)
	MAKEFLAGS= cargo build --release --locked -p gridloom-cli -p gridloom-capi

capi: target/capi/ready

# Headers are in the include folders. The Fortran module, the manual pages, and the files for pkg-config and CMake are derived from them,
# from the version, and from the program's help.
target/capi/ready: target/release/gridloom target/release/libgridloom_capi.so target/release/libgridloom_capi.a \
		$(HEADERS) $(COMPAT_HEADERS) $(FORTRAN) $(CAPI)/gridloom.pc.in $(CMAKE) $(wildcard $(GENERATE)/*.py) Cargo.toml
	rm -rf target/capi
	mkdir -p target/capi/lib/pkgconfig target/capi/lib/cmake/gridloom target/capi/include
	install -m 755 target/release/libgridloom_capi.so target/capi/lib/libgridloom.so
	install -m 644 target/release/libgridloom_capi.a target/capi/lib/libgridloom.a
	install -m 644 $(HEADERS) $(FORTRAN) target/capi/include/
	for file in $(COMPAT_HEADERS:$(COMPAT)/%=%); do install -D -m 644 $(COMPAT)/$$file target/capi/include/compat/$$file; done
	$(PYTHON) $(GENERATE)/fortran.py --out target/capi/include --module $(CAPI)/fortran $(filter %.h,$(HEADERS))
	$(FILL) -e 's/@LIBRARIES@/$(addprefix -l,$(STATIC_NEEDS))/' $(CAPI)/gridloom.pc.in > target/capi/lib/pkgconfig/gridloom.pc
	set -e; for file in $(notdir $(CMAKE:.in=)); do \
		$(FILL) -e 's/@LIBRARIES@/$(subst $(space),;,$(STATIC_NEEDS))/' $(CAPI)/cmake/$$file.in > target/capi/lib/cmake/gridloom/$$file; \
	done
	$(PYTHON) $(GENERATE)/pages.py --out target/capi/share/man --version $(VERSION) --program target/release/gridloom \
		$(filter %.h,$(HEADERS))
	@touch $@

install: capi
	mkdir -p "$(DESTDIR)$(PREFIX)/bin"
	install -m 755 target/release/gridloom "$(DESTDIR)$(PREFIX)/bin/"
	cp -RP target/capi/include target/capi/lib target/capi/share "$(DESTDIR)$(PREFIX)/"

PIP := $(UTF8) $(BIN)/python -m pip install --quiet --disable-pip-version-check

# scikit-image is there for the photograph that it ships.
$(VENV)/ready: requirements.txt
	@echo "Python packages that building and the demonstration need go into $(VENV)/ (10 to 60 s)."
	$(UTF8) $(PYTHON) -m venv $(VENV)
	$(PIP) -r requirements.txt
	$(PIP) --no-deps scikit-image==0.26.0
	@touch $@

# pyhmmer is there for the proteins that it ships.
$(VENV)/tests: tests/requirements.txt $(VENV)/ready
	$(PIP) -r tests/requirements.txt
	$(PIP) --no-deps pyhmmer==0.12.3
	@touch $@

# The release of Dask before that of the tests, for a scheduler and a worker of another version than the program.
$(VENV)/dask-before/ready: $(VENV)/ready
	$(PIP) --no-deps --target $(VENV)/dask-before dask==2026.7.1 distributed==2026.7.1
	@touch $@

# A model server for the tests of connectors, apart from the rest: it wants older versions of some packages. Half a minute, 300 MB.
$(VENV)/mlserver/ready: $(VENV)/ready
	$(UTF8) $(PYTHON) -m venv $(VENV)/mlserver
	$(UTF8) $(VENV)/mlserver/bin/python -m pip install --quiet --disable-pip-version-check mlserver==1.7.1
	@touch $@

wheel: target/wheels/ready

target/wheels/ready: target/release/gridloom $(RUST) $(VENV)/ready $(PYSOURCES)
	mkdir -p $(PACKAGE)/python/gridloom/bin
	cp --remove-destination target/release/gridloom $(PACKAGE)/python/gridloom/bin/gridloom  # A grid may run from the old one.
	rm -rf target/wheels
	$(UTF8) $(BIN)/maturin build --release --locked -m $(PACKAGE)/Cargo.toml -i $(BIN)/python -o target/wheels
	@touch $@

# Compiled a second time, with zig as the linker, which knows the C library's older versions. auditwheel looks at all that is inside.
TARGET = $(shell rustc -vV | sed -n 's/^host: //p')
GLIBC := 2.28
wheel-portable: export PATH := $(CURDIR)/$(BIN):$(PATH)
wheel-portable: $(VENV)/portable
	cargo zigbuild --release --locked --target $(TARGET).$(GLIBC) -p gridloom-cli
	mkdir -p $(PACKAGE)/python/gridloom/bin
	cp target/$(TARGET)/release/gridloom $(PACKAGE)/python/gridloom/bin/gridloom
	rm -rf target/portable
	$(UTF8) $(BIN)/maturin build --release --locked -m $(PACKAGE)/Cargo.toml -i $(BIN)/python -o target/portable --zig \
		--target $(TARGET) --compatibility manylinux_$(subst .,_,$(GLIBC))
	$(BIN)/auditwheel show target/portable/*.whl | tee target/portable/audit.txt
	grep -q 'platform tag: "manylinux_$(subst .,_,$(GLIBC))_' target/portable/audit.txt

$(VENV)/portable: $(VENV)/ready
	$(PIP) --no-warn-conflicts auditwheel==6.8.2 cargo-zigbuild==0.24.0 ziglang==0.17.1
	@touch $@

# The package in .venv is the folder crates/gridloom-python/python itself, so that an edit of a Python file takes effect at once. Only the
# compiled module and the program are built, when a Rust file has changed.
python: $(VENV)/installed

$(VENV)/installed: target/release/gridloom $(RUST) $(VENV)/ready $(PACKAGE)/pyproject.toml
	mkdir -p $(PACKAGE)/python/gridloom/bin
	cp --remove-destination target/release/gridloom $(PACKAGE)/python/gridloom/bin/gridloom  # A grid may run from the old one.
	MAKEFLAGS= $(UTF8) VIRTUAL_ENV="$(CURDIR)/$(VENV)" $(BIN)/maturin develop --release --locked -m $(PACKAGE)/Cargo.toml
	@# A relative path, because Python reads this file in the locale's encoding and fails at an umlaut in the path.
	@for file in $(VENV)/lib/python*/site-packages/gridloom.pth; do echo "../../../../$(PACKAGE)/python" > "$$file"; done
	@touch $@

demo: announced python
	$(UTF8) $(BIN)/python examples/demo/demo.py

# Says beforehand how long it takes, where nothing is built yet.
announced:
	@[ -e $(VENV)/installed ] || echo "The first time this compiles everything: four to eight minutes on two cores, up to twelve if the machine is busy." \
		"Cargo shows how far it is."

# Names of tests that were skipped, written by the Rust tests; pytest counts its own.
SKIPPED := target/skipped

test: test-rust wheel test-python
	@if [ -s $(SKIPPED) ]; then \
		echo "skipped among the Rust tests, $$(wc -l < $(SKIPPED)):"; sort $(SKIPPED) | sed 's/^/  /'; fi

# Tests of a Rust program that run side by side: more than cores, because many wait for processes and for the detection of lost ones.
TEST_THREADS ?= $(shell echo $$(($$(nproc) + 4)))

test-rust:
	@mkdir -p target && rm -f $(SKIPPED)
	@command -v rustdoc > /dev/null || echo "the examples in documentation: there is no rustdoc" >> $(SKIPPED)
	GRIDLOOM_SKIPPED="$(CURDIR)/$(SKIPPED)" RUST_TEST_THREADS=$(TEST_THREADS) RUSTC_WRAPPER="$(CURDIR)/tests/rustc-of-tests" \
		cargo test --release --locked $$(command -v rustdoc > /dev/null || echo --lib --bins --tests)

# Processes that run Python tests side by side. The tests of a file run in one of them, since they share grids and clusters. Four keep two
# cores busy all the time: on a machine that also did other work, tests with valgrind and Dask exceeded their limits of time.
WORKERS ?= 2

# The keys of the grids of the Python tests, instead of the user's.
KEYS := $(CURDIR)/target/keys-of-tests

# Compiles the package first: with PYTHONDONTWRITEBYTECODE, each of the thousands of processes of the tests compiles it again.
test-python: python capi $(VENV)/tests
	$(BIN)/python -m compileall -q $(PACKAGE)/python
	rm -rf "$(KEYS)"
	GRIDLOOM_KEYS="$(KEYS)" target/release/gridloom keys init tests
	GRIDLOOM_KEYS="$(KEYS)" $(UTF8_PATH) $(BIN)/python -m pytest -q -rs --durations 15 --timeout 300 -n $(WORKERS) --dist loadfile --no-loadscope-reorder \
		$(PACKAGE)/tests tests

PACKAGES := cmake gcc-arm-linux-gnueabihf gcc-powerpc-linux-gnu gcc-s390x-linux-gnu gdb gfortran groff-base libc6-dev-armhf-cross \
	libc6-dev-powerpc-cross libc6-dev-s390x-cross libfftw3-double3 libfftw3-single3 liblapack3 libopenblas0 munge openssh-client openssh-server pkg-config qemu-user \
	slurm-client slurmctld slurmd valgrind
test-all:
	apt-get update && apt-get install -y --no-install-recommends $(PACKAGES)
	$(MAKE) $(VENV)/mlserver/ready $(VENV)/dask-before/ready
	$(MAKE) test

bench: python
	$(BIN)/python bench/record.py calls python-calls

# The papers' tables and figures beside ours, in docs/experiments: minutes; experiments-full runs all sizes: hours.
experiments: FULL :=
experiments-full: FULL := --full
# The tests' packages have Dask, Ray and pyhmmer; without them these are skipped.
experiments experiments-full: python capi $(VENV)/experiments $(VENV)/tests
	cargo build --release --locked -p gridloom --example leanmd --example stencil
	cargo build --release --locked -p gridloom-bench
	$(BIN)/python experiments/run.py $(FULL)

$(VENV)/experiments: experiments/requirements.txt $(VENV)/ready
	$(PIP) -r experiments/requirements.txt
	@touch $@

# Strict: a link to a page or heading that does not exist is an error.
docs: $(VENV)/docs target/release/gridloom
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

$(VENV)/docs: docs/requirements.txt $(VENV)/ready
	$(PIP) -r docs/requirements.txt
	@touch $@

# Packages are installed while the compiler runs, and types are checked while clippy runs. MAKEFLAGS is empty for cargo, which would look
# for the job server of make and warn that it cannot use it.
lint:
	@$(MAKE) --no-print-directory --jobs 2 target/release/gridloom $(VENV)/tests
	@$(MAKE) --no-print-directory --jobs 3 lint-rust lint-types lint-stubs lint-text

lint-rust: python
	cargo fmt --all --check
	MAKEFLAGS= cargo clippy --release --locked --all-targets -- -D warnings

lint-types: $(VENV)/tests
	$(UTF8_PATH) $(BIN)/python -m mypy --strict $(PACKAGE)/python/gridloom $(PACKAGE)/python/gridloom_command

lint-stubs: python $(VENV)/tests
	$(UTF8_PATH) $(BIN)/python -m mypy.stubtest gridloom._gridloom

lint-text: $(VENV)/tests
	$(BIN)/ruff check $(PACKAGE) examples tests bench experiments $(GENERATE)
	$(BIN)/typos
	@sha256sum --check --status deny.sum || { echo "Cargo.lock or deny.toml has changed since the dependencies were checked: run 'make deny' and commit deny.sum"; exit 1; }

# Licences and sources of the dependencies. They change only with Cargo.lock, so lint compares sums, and cargo-deny is built only here.
deny: target/tools/bin/cargo-deny
	target/tools/bin/cargo-deny --locked --offline check bans licenses sources
	sha256sum Cargo.lock deny.toml > deny.sum

target/tools/bin/cargo-deny:
	cargo install --quiet --debug --locked --root target/tools cargo-deny@0.20.2

clean:
	rm -rf target $(VENV) out $(PACKAGE)/python/gridloom/bin
