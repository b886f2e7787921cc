# README's commands. Each target sets up what it needs (scripts/setup.sh) and nothing that is there already.

EXAMPLE ?= examples/mlp.ir

PREFIX ?= /usr/local

.PHONY: help setup build demo docs test test-torch test-python test-view test-update bench install-c dist

help:
	@echo 'make demo         set up, build, lower $(EXAMPLE) step by step, run it and compare with float64'
	@echo 'make test         set up and run all tests'
	@echo 'make test-torch   the same against PyTorch, in a virtual environment'
	@echo 'make test-python  import rc in a virtual environment without PyTorch'
	@echo 'make test-view    the page of rc-opt --view in headless Chromium'
	@echo 'make test-update  rewrite the expectations of the FileCheck-style tests; read the diff'
	@echo 'make docs         rewrite the reference pages from the declarations'
	@echo 'make bench        rc beside its peers'
	@echo 'make install-c    librc_runtime.so, rc.h and rc_runtime.pc under $(PREFIX); needs no LLVM'
	@echo 'make dist         a tarball of the tools and a wheel, with LLVM inside, tried where there is none'

setup:
	@bash scripts/setup.sh

build: setup
	cargo build --release --locked --package rc-tools

demo: build
	@bash scripts/demo.sh $(EXAMPLE)

test: setup
	cargo test --workspace --locked

test-update: setup
	RC_UPDATE=1 cargo test --package rc-test --test suite

docs: setup
	RC_UPDATE=1 cargo test --package rc-test --test docs
	RC_UPDATE=1 bash scripts/test-python.sh -k stubs

test-torch: setup
	bash scripts/test-torch.sh

test-python: setup
	bash scripts/test-python.sh

test-view: setup
	bash scripts/test-view.sh

dist: setup
	bash scripts/dist.sh

bench: build
	bash bench/run.sh

install-c:
	bash scripts/install-c.sh "$(DESTDIR)" "$(PREFIX)"
