# All commands of the project. Each needs only Debian and Rust, and installs what it needs besides.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory
CARGO ?= cargo
X := $(CARGO) x
NOWAIT := dist/bin/nowait

# A new list of packages, or another machine, makes another stamp.
STAMP := .stamps/setup-$(shell cat xtask/setup.sh /etc/os-release /etc/machine-id 2>/dev/null \
	| cksum | cut -d' ' -f1)

.PHONY: help setup demo test test-full lint fmt dist install uninstall docs bench bench-submit \
	bench-posix bench-cache bench-serve bench-programs \
	loom miri sanitize fuzz soak clean

help: ## Print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(STAMP) ## Install what the tests need: system packages and toolchain components
	@:

$(STAMP):
	@bash xtask/setup.sh
	@mkdir -p $(@D) && rm -f $(@D)/setup-* && touch $@

# arm64 in ARCH or musl in LIBC: what `make dist` builds for, other than this machine.
ARCH :=
LIBC :=
OTHER := $(filter-out glibc,$(ARCH) $(LIBC))

dist: ## Build dist/: programs, libraries, C API; ARCH=arm64, LIBC=musl: for another
	@bash xtask/setup.sh build
ifneq ($(OTHER),)
	@bash xtask/setup.sh $(OTHER)
endif
	@$(X) dist $(OTHER)

# No build of its own: root installs what a user has built.
install: ## Install what `make dist` has built: DESTDIR=, PREFIX= (/usr/local), LIBDIR= (PREFIX/lib)
	@bash packaging/install.sh install "$(DESTDIR)" "$(PREFIX)" "$(LIBDIR)"

uninstall: ## Remove what `make install` with the same variables has installed
	@bash packaging/install.sh uninstall "$(DESTDIR)" "$(PREFIX)" "$(LIBDIR)"

PACKAGES := deb rpm tarball oci sbom
.PHONY: $(PACKAGES) packages test-packages
$(PACKAGES): dist ## Pack what dist/ holds into dist/packages
	@bash xtask/setup.sh packages
	@bash packaging/pack.sh $@

.PHONY: bare
bare: dist ## Pack one command that measures any x86-64 machine, with all that it needs (29 MB)
	@bash xtask/setup.sh bare
	@bash packaging/pack.sh bare

.PHONY: crates
crates: setup ## Pack the crates that are published, each built from its package
	@bash packaging/crates.sh

packages: $(PACKAGES) crates ## All of these, an image with what the deb packages hold

oci: deb

test-packages: packages ## Install, use, upgrade and remove them in fresh systems (5 minutes)
	@bash packaging/test/run.sh

.PHONY: test-reproducible
test-reproducible: setup ## Build dist/ and packages twice, elsewhere, and compare all bytes
	@bash xtask/setup.sh packages
	@bash packaging/test/reproducible.sh

.PHONY: wheel
wheel: setup ## Build the Python package as wheels in dist/wheels; TARGETS=TRIPLE: some of them
	@bash xtask/setup.sh wheel $(TARGETS)
	@$(X) wheel $(TARGETS)

.PHONY: test-pythons test-musl test-kernels
test-pythons: setup dist ## Test the Python package with each CPython here (2 minutes for each)
	@$(X) ci --quick pythons

test-musl: setup ## Run programs of musl's under dist/musl, on every backend
	@bash xtask/setup.sh musl
	@$(X) dist musl
	@bash packaging/musl/run.sh

test-kernels: setup dist ## Run the tests on other kernels: KERNELS="5.10 arm64", or all (hours)
	@bash xtask/setup.sh kernels
ifneq ($(filter arm64,$(KERNELS)),)
	@bash xtask/setup.sh kernels-arm64
	@$(MAKE) dist ARCH=arm64
endif
	@bash packaging/kernels/run.sh $(KERNELS)

docs: setup ## Build the documentation as a book, with rustdoc beside: dist/docs
	@bash xtask/docs.sh

# Only what it runs is built: neither the servers nor the C API.
demo: ## Show an unmodified fio with and without nowait (a minute after the build)
	@echo "demo: builds the two libraries and nowait-bench; then fio runs with each libaio"
	@bash xtask/setup.sh demo
	@$(X) dist demo
	@target/demo/nowait-bench demo --budget 50s --size 2G --html target/demo/report.html $(DEMO_ARGS)

test: setup ## Run every test in its quick form, and the checks
	@$(X) ci

test-full: setup dist ## Run every test at full length (hours)
	@$(X) ci test random

lint: setup ## Check format, clippy, tidy, packages of crates and documentation
	@$(X) ci fmt tidy prose crates clippy doc
	@python3 -m doctest docs/data/figures.py && docs/data/figures.py --check

fmt: setup ## Format the code
	@$(CARGO) fmt --all

bench: ## Run the benchmarks at their quick size, with a report (9 minutes)
	@$(MAKE) bench-submit BENCH_ARGS="--quick $(BENCH_ARGS)"
	@$(MAKE) bench-posix BENCH_ARGS="--quick $(BENCH_ARGS)"
	@$(MAKE) bench-cache BENCH_ARGS="--quick $(BENCH_ARGS)"

bench-submit: setup dist ## Measure the time inside io_submit against the system's libaio
	@mkdir -p target/bench
	@$(NOWAIT) bench submit --json target/bench/submit.json --html target/bench/submit.html \
		$(BENCH_ARGS)

bench-posix: setup dist ## Measure POSIX AIO against the C library's
	@mkdir -p target/bench
	@$(NOWAIT) bench posix --json target/bench/posix.json --html target/bench/posix.html \
		$(BENCH_ARGS)

bench-cache: setup dist ## Measure the page cache of nowait against every peer
	@mkdir -p target/bench
	@$(NOWAIT) bench cached --json target/bench/cached.json --html target/bench/cached.html \
		$(BENCH_ARGS)

bench-serve: setup dist ## Measure nowait's servers against qemu-nbd, nbdkit, QEMU's FUSE and loop
	@mkdir -p target/bench
	@$(NOWAIT) bench serve --json target/bench/serve.json --html target/bench/serve.html \
		$(BENCH_ARGS)

bench-programs: setup dist ## Measure real programs as installed, with and without nowait
	@mkdir -p target/bench
	@$(NOWAIT) bench programs --json target/bench/programs.json \
		--html target/bench/programs.html $(BENCH_ARGS)

loom: setup ## Check the lock-free parts in all interleavings
	@$(X) ci loom

miri: setup ## Look for undefined behaviour in the engine
	@$(X) ci miri

sanitize: setup ## Run the tests under the address and thread sanitizers
	@$(X) ci asan tsan

fuzz: setup ## Fuzz each target for FUZZ_SECONDS (60)
	@$(X) ci fuzz

soak: setup ## Random operations at length: real files, two simulations (SOAK_SEEDS of one)
	@$(X) ci soak

clean: ## Remove everything that was built
	@$(CARGO) clean
	@rm -rf dist
