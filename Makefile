# Everything Gridloom needs is built into target/ and .venv/ of this folder.
#   make demo    build, start a local grid, run the demonstration on real input, write out/demo/
#   make test    all tests
#   make capi    the library for C, its headers, the Fortran module, manual pages, pkg-config and CMake files: target/capi/
#   make install PREFIX=/usr/local    the same and the program, somewhere else
#   make bench   figures beside the machine's limits, out/bench/figures.json
#   make lint    formatting, lint and type checks, and whether the stubs fit
#   make wheel   a Python wheel in target/wheels/

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PACKAGE := crates/gridloom-python
RUST := $(shell find crates bench -name '*.rs' -o -name '*.toml' -o -name '*.idl' -o -name '*.c' -o -name '*.h' 2>/dev/null | grep -v /target/) Cargo.toml Cargo.lock
HEADERS := $(addprefix crates/gridloom-capi/include/,gridloom.h grpc.h grpc_extensions.h grpc_remote.h grpc_data.h grpc_map.h grpc_objects.h grpc.hpp) \
	crates/gridloom-core/include/gridloom_layout.h
CMAKE := $(addprefix crates/gridloom-capi/cmake/,gridloomConfig.cmake gridloomConfigVersion.cmake)
FORTRAN := crates/gridloom-capi/fortran/grpc.f90
MANUAL := crates/gridloom-capi/manual
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)
PREFIX ?= /usr/local
PYSOURCES := $(shell find $(PACKAGE)/python -name '*.py' -o -name '*.pyi' 2>/dev/null) $(PACKAGE)/pyproject.toml

.PHONY: all build capi install python demo test test-rust test-python bench lint wheel clean

all: build python

build: target/release/gridloom capi

target/release/gridloom: $(RUST)
	cargo build --release --locked -p gridloom-cli -p gridloom-capi
	@touch $@

capi: target/capi/ready

# Built with the program, so that both share what they are made of, and manual pages say what it says of itself.
target/capi/ready: target/release/gridloom $(HEADERS) crates/gridloom-capi/gridloom.pc $(CMAKE) $(FORTRAN) $(wildcard $(MANUAL)/*.py)
	mkdir -p target/capi/lib/pkgconfig target/capi/lib/cmake/gridloom target/capi/include
	install -m 755 target/release/libgridloom_capi.so target/capi/lib/libgridloom.so
	install -m 644 target/release/libgridloom_capi.a target/capi/lib/libgridloom.a
	install -m 644 $(HEADERS) $(FORTRAN) target/capi/include/
	install -m 644 crates/gridloom-capi/gridloom.pc target/capi/lib/pkgconfig/
	install -m 644 $(CMAKE) target/capi/lib/cmake/gridloom/
	rm -rf target/capi/share/man
	$(PYTHON) $(MANUAL)/pages.py --out target/capi/share/man --version $(VERSION) --program target/release/gridloom \
		$(filter %.h,$(HEADERS))
	@touch $@

install: capi
	mkdir -p $(DESTDIR)$(PREFIX)/bin
	install -m 755 target/release/gridloom $(DESTDIR)$(PREFIX)/bin/
	cp -RP target/capi/include target/capi/lib target/capi/share $(DESTDIR)$(PREFIX)/

$(VENV)/ready: requirements.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps scikit-image==0.26.0
	@touch $@

wheel: target/wheels/ready

target/wheels/ready: target/release/gridloom $(VENV)/ready $(PYSOURCES)
	mkdir -p $(PACKAGE)/python/gridloom/bin
	cp target/release/gridloom $(PACKAGE)/python/gridloom/bin/gridloom
	rm -rf target/wheels
	$(BIN)/maturin build --quiet --release --locked -m $(PACKAGE)/Cargo.toml -i $(BIN)/python -o target/wheels
	@touch $@

python: $(VENV)/installed

$(VENV)/installed: target/wheels/ready
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --force-reinstall --no-deps target/wheels/*.whl
	@touch $@

demo: python
	$(BIN)/python examples/demo/demo.py

test: test-rust test-python

test-rust:
	cargo test --release --locked

test-python: python capi
	$(BIN)/python -m pytest -q $(PACKAGE)/tests tests

bench: python
	cargo run --release --locked -p gridloom-bench
	$(BIN)/python bench/python_calls.py

lint: python
	cargo fmt --all --check
	cargo clippy --release --locked --all-targets -- -D warnings
	$(BIN)/ruff check $(PACKAGE) examples tests bench $(MANUAL)
	$(BIN)/python -m mypy --strict $(PACKAGE)/python/gridloom
	$(BIN)/python -m mypy.stubtest gridloom._gridloom

clean:
	rm -rf target $(VENV) out $(PACKAGE)/python/gridloom/bin
