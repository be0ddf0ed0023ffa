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

build-cuda: cuda-kernels ## bin/lorafuse-cuda, with the backend for NVIDIA GPUs; needs a C compiler but no driver
	eval "$$(sh scripts/cuda_env.sh)" && CGO_ENABLED=1 $(BUILD) -tags cuda -o bin/lorafuse-cuda ./cmd/lorafuse

build-mpi: ## bin/lorafuse-mpi, whose processes an MPI launcher connects; the library is loaded at run time
	CGO_ENABLED=0 $(BUILD) -tags mpi -o bin/lorafuse-mpi ./cmd/lorafuse

build-metal: ## bin/lorafuse-metal, on a Mac, with the backend for Apple GPUs; needs Xcode's command-line tools
	CGO_ENABLED=1 $(BUILD) -o bin/lorafuse-metal ./cmd/lorafuse

example: ## fine-tune the shipped model on Go doc comments (about a minute)
	$(GO) run ./examples/godoc

test: ## all tests
	$(GO) test ./...

# Packages with concurrent code, and their concurrent tests where the others take long.
CONCURRENT = ./dist/... ./backend ./backend/null ./backend/telemetry ./backend/cpu/internal/pool ./internal/data/... ./internal/model/hub ./internal/progress ./internal/fsatomic ./serve ./internal/serve/metrics ./internal/serve/share ./internal/serve/store ./internal/serve/traces ./internal/serve/web
PARTLY_CONCURRENT = ./tokenizer ./safetensors ./internal/serve/tinker ./internal/serve/tuning
FILE_RACES = ^Test(Concurrent|Hold|Forgotten|Load|HostBuffer|Ring|Stage|Lanes|Populate|Writers|Close|CutShortWhile|OverwrittenWhile|CacheIsBounded)
NO_SERVING_RACES = ^Test(Gap|RecordedClients|EightBits|Killed|StorageLimit|Types|MixedOnAnyDevice|Models|PackedModels|AnyCompany)
CLI_RACES = ^Test(Door|Serve($$|Ends|Signals|AdaptersDir|Traces|Tinker|Owners|Page|TLS|Guard))
KERNEL_RACES = ^Test(ConcurrentAndNested|ManyWorkers|RunAll|RunAfter|EvenTasks|SameBitsForAnyNumberOfWorkers|BothWaysOfBackwardAreUsed|Decode|Queries.*)$$
DEVICE_RACES = ^Test(FirstRun|JoinedSteps|ThreadsOfAProcess)$$|^TestConformance$$/^(device|contents|chaos)$$

race: race-packages race-serving race-training ## tests of concurrent code under the race detector; -j 2 keeps two cores busy

# The detector sees only the kernels written in Go. The code around them is the same for
# all instruction sets.
race-kernels:
	$(GO) test -race -timeout 30m -run '$(KERNEL_RACES)' -skip '/^avx(2|512)$$' ./backend/cpu/internal/gemm ./backend/cpu/internal/attention -rapid.checks 10
	$(GO) test -race -timeout 30m -run '$(DEVICE_RACES)' ./backend/cpu

race-packages:
	$(GO) test -race -timeout 30m $(CONCURRENT)
	$(GO) test -race -timeout 30m -run '$(FILE_RACES)' ./tokenizer ./safetensors
	$(GO) test -race -timeout 30m -run '^Test(Concurrent|Vocabularies|Accept)' ./internal/generate/constrain

race-serving:
	$(GO) test -race -timeout 30m -run '$(CLI_RACES)' ./cmd/lorafuse/cli
	$(GO) test -race -timeout 30m -skip '$(NO_SERVING_RACES)' ./internal/serve/tinker ./internal/serve/tuning
	$(GO) test -race -timeout 30m -skip '$(NO_SERVING_RACES)' ./internal/serve/batching -rapid.checks 5

race-training:
	$(GO) test -race -timeout 30m -run '^TestRegistry' ./lora
	$(GO) test -race -timeout 30m -run '^Test(Beside|Base$$|BaseStops|Together|ShareOf(Runs|Jobs$$|Devices))' ./internal/engine ./internal/train ./internal/train/session

race-all: race-kernels ## all tests of the concurrent packages under the race detector
	$(GO) test -race -timeout 30m $(CONCURRENT) $(PARTLY_CONCURRENT) ./internal/generate/constrain ./backend/cpu ./backend/gpu
	$(GO) test -race -timeout 30m -run '^Test(Serve|Door)' ./cmd/lorafuse/cli
	$(GO) test -race -timeout 30m -run '^TestRegistry' ./lora
	$(GO) test -race -timeout 30m -run '^Test(Beside|Base)' ./internal/engine ./internal/train
	$(GO) test -race -timeout 30m ./internal/serve/batching

purego: ## tests without assembly, of packages that have some and of models that compute with it
	$(GO) test -tags purego ./tensor ./internal/vec ./internal/quant ./graph ./backend/cpu/... ./lora ./internal/model ./internal/generate
	$(GO) test -tags purego -run 'Traces|TestResumeIsExact' ./internal/train

arm64: ## tests of the assembly for arm64, elsewhere in an emulator (qemu-user)
	sh scripts/arm64.sh

ci: ## the checks that every change must pass
	bash .ci/run

nightly: ## longer checks: all goldens, systems and architectures, long fuzzing
	bash .ci/nightly

fuzz: ## every fuzz target for a few seconds
	sh scripts/fuzz.sh 5s

bench: ## benchmarks of the CPU kernels and of the conversions
	$(GO) test -run '^$$' -bench . -benchtime 20x ./backend/cpu/... ./tensor

lint: ## gofmt, vet and staticcheck on every tag combination
	sh scripts/lint.sh

kernels: assembly cuda-kernels ## generated files: the assembly from tools/, and the fat binaries of kernels/cuda (installs nvcc)

assembly: ## generate the assembly again from tools/
	$(GO) generate ./backend/cpu/... ./internal/vec ./tensor

cuda-kernels: ## fat binaries of kernels/cuda, for builds with -tags cuda (installs nvcc)
	sh scripts/cuda_kernels.sh

sim: ## the simulated CUDA driver, for machines without a GPU (needs g++)
	sh scripts/cuda_sim.sh

env: ## print the environment of builds with -tags cuda: eval "$(make -s env)"
	@sh scripts/cuda_env.sh

test-cuda: sim cuda-kernels ## all tests of -tags cuda, on the simulated driver
	[ "$(GOLDENS)" = few ] || sh scripts/cuda_sim.sh count
	eval "$$(sh scripts/cuda_env.sh)" && export LORAFUSE_CUDA_TEST=1 LORAFUSE_LIBCUDA=$(CURDIR)/kernels/sim/build/libcuda_sim.so && \
		$(GO) test -tags cuda -run TestStructures ./kernels/sim && \
		$(GO) test -timeout 120m -tags cuda ./kernels ./backend/cuda/... ./backend/telemetry/...
	sh scripts/cuda_goldens.sh $(GOLDENS)
	sh scripts/cuda_alone.sh

test-mpi: ## tests on the ranks of MPI launchers (needs openmpi-bin); MPI=all: of all MPI libraries
	sh scripts/test_mpi.sh $(MPI)

metal-sim: ## the fake Metal and lfmsl, which compiles shaders, for machines other than Macs (needs clang-19 and GNUstep)
	CLANG=$(CLANG) CLANGXX=$(CLANGXX) sh scripts/metal_sim.sh

test-metal: metal-sim ## all tests of the backend for Apple GPUs, on the fake Metal (needs clang-19 and GNUstep)
	CC=$(CLANG) CXX=$(CLANGXX) CGO_ENABLED=1 $(GO) test -timeout 120m -tags 'metal metalfake' ./kernels ./backend/metal/...
	CC=$(CLANG) CXX=$(CLANGXX) sh scripts/metal_goldens.sh

test-metal-short: metal-sim ## the conformance suite and a few goldens on the fake Metal
	CC=$(CLANG) CXX=$(CLANGXX) CGO_ENABLED=1 $(GO) test -timeout 30m -tags 'metal metalfake' -run 'TestConformance' ./backend/metal
	CC=$(CLANG) CXX=$(CLANGXX) sh scripts/metal_goldens.sh few

check-darwin: ## the program for macOS and its tests: vet, build and link without a Mac (installs zig)
	sh scripts/check_darwin.sh

gpu-pack: ## output/gpu_pack, the checks that need a GPU, to be copied to a machine that has one
	sh scripts/gpu_check.sh --pack output/gpu_pack

docker: ## all container images, with docker, podman or buildah
	sh scripts/docker_build.sh

install: ## lorafuse into GOBIN
	$(GO) install ./cmd/lorafuse

clean: ## remove built programs and trained adapters
	rm -rf bin examples/godoc/output

.PHONY: help build build-cuda build-mpi test-mpi example test race race-kernels race-packages race-serving race-training race-all purego arm64 ci nightly fuzz bench lint kernels assembly cuda-kernels sim env test-cuda build-metal metal-sim test-metal test-metal-short check-darwin gpu-pack docker install clean
.DEFAULT_GOAL := help
