# Run `make` for the list of targets.
GO ?= go
STATICCHECK = $(GO) run honnef.co/go/tools/cmd/staticcheck@v0.8.2
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null)
CLANG ?= clang-19
CLANGXX ?= clang++-19
BUILD = $(GO) build -trimpath -ldflags "-s -w"

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## /{printf "  %-12s %s\n", $$1, $$2}' Makefile

build: ## bin/lorafuse, a static binary without cgo
	CGO_ENABLED=0 $(BUILD) -o bin/lorafuse ./cmd/lorafuse

build-cuda: cuda-kernels ## bin/lorafuse-cuda, with the backend for NVIDIA GPUs; needs a C compiler, and no driver
	eval "$$(sh scripts/cuda_env.sh)" && CGO_ENABLED=1 $(BUILD) -tags cuda -o bin/lorafuse-cuda ./cmd/lorafuse

build-metal: ## bin/lorafuse-metal, on a Mac: with the backend for Apple GPUs; needs Xcode's command-line tools
	CGO_ENABLED=1 $(BUILD) -o bin/lorafuse-metal ./cmd/lorafuse

example: ## fine-tune the shipped model on Go doc comments (about a minute)
	$(GO) run ./examples/godoc

test: ## all tests
	$(GO) test ./...

# Packages with concurrent code, and the names of their concurrent tests if a
# package has many others.
CONCURRENT = ./backend ./backend/null ./backend/telemetry ./backend/cpu/internal/pool ./tokenizer ./internal/data/... ./safetensors ./internal/model/hub ./internal/progress ./internal/fsatomic ./serve ./internal/serve/metrics ./internal/serve/share ./internal/serve/traces ./internal/serve/tinker ./internal/serve/tuning
KERNEL_RACES = ^Test(ConcurrentAndNested|ManyWorkers|RunAll|RunAfter|EvenTasks|SameBitsForAnyNumberOfWorkers|BothWaysOfBackwardAreUsed|Decode|Queries.*)$$
DEVICE_RACES = ^Test(FirstRun|JoinedSteps|Threads|ThreadsOfAProcess)$$|^TestConformance$$/^(device|contents|chaos)$$

race: race-kernels race-packages race-serving race-training ## tests of concurrent code under the race detector; -j 2 keeps two cores busy

# The detector sees only the Go code of the kernels, and the code around them is the
# same for all.
race-kernels:
	$(GO) test -race -timeout 30m -run '$(KERNEL_RACES)' -skip '/^avx(2|512)$$' ./backend/cpu/internal/gemm ./backend/cpu/internal/attention -rapid.checks 30
	$(GO) test -race -timeout 30m -run '$(DEVICE_RACES)' ./backend/cpu

race-packages:
	$(GO) test -race -timeout 30m $(CONCURRENT)
	$(GO) test -race -timeout 30m -run '^Test(Concurrent|Vocabularies|Accept)' ./internal/generate/constrain

race-serving:
	$(GO) test -race -timeout 30m -run '^Test(Serve|Door)' ./cmd/lorafuse/cli
	$(GO) test -race -timeout 30m ./internal/serve/batching -rapid.checks 20

race-training:
	$(GO) test -race -timeout 30m -run '^TestRegistry' ./lora
	$(GO) test -race -timeout 30m -run '^Test(Beside|Base)' ./internal/engine ./internal/train

race-all: ## all tests of the concurrent packages under the race detector
	$(GO) test -race -timeout 30m $(CONCURRENT) ./internal/generate/constrain ./backend/... ./graph/conformance
	$(GO) test -race -timeout 30m -run '^Test(Serve|Door)' ./cmd/lorafuse/cli
	$(GO) test -race -timeout 30m -run '^TestRegistry' ./lora
	$(GO) test -race -timeout 30m -run '^Test(Beside|Base)' ./internal/engine ./internal/train
	$(GO) test -race -timeout 30m ./internal/serve/batching

purego: ## tests without assembly of the packages that have some or compute with it
	$(GO) test -tags purego ./tensor ./internal/quant ./graph/... ./backend/... ./lora ./internal/model ./internal/generate/... ./internal/train/...

arm64: ## tests of the assembly for arm64, in an emulator (qemu-user) if need be
	sh scripts/arm64.sh

ci: ## what every change must pass
	bash .ci/run

nightly: ## what takes longer: all goldens, systems and architectures, long fuzzing
	bash .ci/nightly

fuzz: ## every fuzz target for a few seconds
	sh scripts/fuzz.sh 5s

bench: ## benchmarks of the CPU kernels and of the conversions
	$(GO) test -run '^$$' -bench . -benchtime 20x ./backend/cpu/... ./tensor

lint: ## gofmt, vet and staticcheck on every tag combination
	sh scripts/lint.sh

kernels: assembly cuda-kernels ## what is generated: the assembly from tools/, and the fat binaries of kernels/cuda (installs nvcc)

assembly: ## generate the assembly again from tools/
	$(GO) generate ./backend/cpu/... ./internal/vec ./tensor

cuda-kernels: ## fat binaries of kernels/cuda, for builds with -tags cuda (installs nvcc)
	sh scripts/cuda_kernels.sh

sim: ## the simulated CUDA driver, for machines without a GPU (needs g++)
	sh scripts/cuda_sim.sh

env: ## print the environment of builds with -tags cuda: eval "$(make -s env)"
	@sh scripts/cuda_env.sh

test-cuda: sim cuda-kernels ## all tests of -tags cuda, on the simulated driver
	eval "$$(sh scripts/cuda_env.sh)" && export LORAFUSE_CUDA_TEST=1 LORAFUSE_LIBCUDA=$(CURDIR)/kernels/sim/build/libcuda_sim.so && \
		$(GO) test -tags cuda -run TestStructures ./kernels/sim && \
		$(GO) test -timeout 30m -tags cuda ./kernels ./backend/cuda/... ./backend/telemetry/...
	sh scripts/cuda_goldens.sh $(GOLDENS)
	sh scripts/cuda_alone.sh

metal-sim: ## the fake Metal and lfmsl, which compiles shaders, for machines that are no Mac (needs clang-19 and GNUstep)
	CLANG=$(CLANG) CLANGXX=$(CLANGXX) sh scripts/metal_sim.sh

test-metal: metal-sim ## all tests of the backend for Apple GPUs, on the fake Metal (needs clang-19 and GNUstep)
	CC=$(CLANG) CXX=$(CLANGXX) CGO_ENABLED=1 $(GO) test -timeout 30m -tags 'metal metalfake' ./kernels ./backend/metal/...
	CC=$(CLANG) CXX=$(CLANGXX) sh scripts/metal_goldens.sh

test-metal-short: metal-sim ## the conformance suite and a few goldens on the fake Metal
	CC=$(CLANG) CXX=$(CLANGXX) CGO_ENABLED=1 $(GO) test -timeout 30m -tags 'metal metalfake' -run 'TestConformance' ./backend/metal
	CC=$(CLANG) CXX=$(CLANGXX) sh scripts/metal_goldens.sh few

check-darwin: ## the program for macOS and its tests: vet, build and link without a Mac (installs zig)
	sh scripts/check_darwin.sh

gpu-pack: ## output/gpu_pack, all files to carry to a machine with a GPU
	sh scripts/gpu_check.sh --pack output/gpu_pack

docker: ## both container images, with docker, podman or buildah
	sh scripts/docker_build.sh

install: ## lorafuse into GOBIN
	$(GO) install ./cmd/lorafuse

clean: ## remove what was built and trained here
	rm -rf bin examples/godoc/output

.PHONY: help build build-cuda example test race race-kernels race-packages race-serving race-training race-all purego arm64 ci nightly fuzz bench lint kernels assembly cuda-kernels sim env test-cuda build-metal metal-sim test-metal test-metal-short check-darwin gpu-pack docker install clean
.DEFAULT_GOAL := help
