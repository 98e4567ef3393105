# The few commands a person types. All of it is CMake presets underneath: cmake --list-presets.
.NOTPARALLEL:
.DEFAULT_GOAL := help
MODEL ?=
checks := dev asan tsan no-io-uring no-rocksdb key-bits cuda fuzz
sources = $(shell git ls-files -co --exclude-standard '*.cpp' '*.hpp' '*.h' '*.cu' '*.cuh')

help:            ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):[^#]*## ?/  make \1\t/' | expand -t 24
	@echo '  make check-PRESET     one step of make test: $(checks)'

demo: deps-build ## one long prompt through every tier and back after a restart; MODEL=DIR for a Hugging Face directory
	@cmake --preset release >/dev/null
	@cmake --build --preset release --target terrace-serve terrace-demo
	@build/release/bin/terrace-demo --server build/release/bin/terrace-serve $(if $(MODEL),--model "$(MODEL)")

build: deps-build ## everything, optimised, into build/release/bin
	cmake --preset release
	cmake --build --preset release

test: deps-test check-start $(addprefix check-,$(checks)) check-total ## everything that must pass before a change is handed in

asan: deps-test check-asan ## tests under AddressSanitizer and UndefinedBehaviorSanitizer

tsan: deps-test check-tsan ## tests under ThreadSanitizer

check-%:
	@cmake/check.sh $*

format: deps-test ## clang-format over all sources
	clang-format -i $(sources)

lint: deps-test  ## clang-tidy over the library
	cmake --preset dev >/dev/null
	run-clang-tidy -quiet -p build/dev '$(CURDIR)/lib/.*'

docs: deps-test  ## writes code and output into the documents that show them
	@cmake --preset dev >/dev/null
	@cmake --build --preset dev --target terrace-serve terrace-tune example_trace_one_block
	python3 -B tests/tidy/tidy.py fill-source .
	python3 -B tests/tidy/tidy.py fill-output ARCHITECTURE.md trace_one_block -- build/dev/bin/example_trace_one_block
	python3 -B tests/tidy/tidy.py fill-output README.md serve_help -- build/dev/bin/terrace-serve --help
	python3 -B tests/tidy/tidy.py fill-output README.md inspect_help -- build/dev/bin/terrace-tune inspect --help

clean:           ## removes build/
	rm -rf build

deps-build deps-test: deps-%:
	@cmake/install-deps.sh $*

.PHONY: help demo build test asan tsan format lint docs clean deps-build deps-test
