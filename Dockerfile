# Two images, each for amd64 and arm64, made by the commands that developers use:
#   docker build -t lorafuse .                      for the CPU: a static binary and certificates, no shell
#   docker build -t lorafuse:cuda --target cuda .   with CUDA; without a GPU it computes on the CPU too
#   docker run --rm -v "$PWD:/data" lorafuse train train.yaml
#   docker run --rm -v "$PWD:/data" -p 127.0.0.1:8000:8000 lorafuse serve --listen :8000 --model /data/model
#   docker run --rm --gpus all -v "$PWD:/data" lorafuse:cuda train train.yaml
# compose.yaml runs both. Models from the hub are kept in /models: mount a volume
# there to keep them.

# No step runs go mod download: it would fetch what only tests need.
FROM --platform=$BUILDPLATFORM golang:1.26-bookworm AS build
ARG TARGETARCH
WORKDIR /src
COPY . .
RUN GOARCH=$TARGETARCH make build
# Any user that runs the image (--user) may write to these.
RUN mkdir -p -m 1777 out/models out/data

# Machine code for GPUs is the same on every host, so this stage never runs in
# an emulator. It installs nvcc as scripts/cuda_toolchain.sh says.
FROM --platform=$BUILDPLATFORM python:3.13-bookworm AS kernels
WORKDIR /src
COPY scripts/cuda_toolchain.sh scripts/cuda_kernels.sh scripts/cuda_arch.sh scripts/
COPY kernels/cuda kernels/cuda
COPY kernels/shared kernels/shared
RUN sh scripts/cuda_kernels.sh

# cgo wants a compiler for the image's architecture: the one of this stage.
FROM golang:1.26-bookworm AS build-cuda
WORKDIR /src
COPY . .
COPY --from=kernels /src/output/cuda output/cuda
COPY --from=kernels /src/kernels/cuda/build kernels/cuda/build
RUN make build-cuda

# The driver's libraries are mounted by NVIDIA's container runtime: compute for
# libcuda, utility for NVML. NVIDIA_REQUIRE_CUDA is left out, since it would keep
# the image from starting without a GPU.
FROM debian:bookworm-slim AS cuda
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build-cuda /src/bin/lorafuse-cuda /usr/local/bin/lorafuse
COPY --from=build --chown=65532:65532 /src/out/ /
ENV HF_HOME=/models NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
USER 65532:65532
WORKDIR /data
EXPOSE 8000 9400
HEALTHCHECK --interval=1m --timeout=10s --start-period=10s CMD ["/usr/local/bin/lorafuse", "health"]
ENTRYPOINT ["/usr/local/bin/lorafuse"]
CMD ["--help"]

# The last one is what a build without --target makes.
FROM scratch AS cpu
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /src/bin/lorafuse /usr/local/bin/lorafuse
COPY --from=build --chown=65532:65532 /src/out/ /
ENV HF_HOME=/models
USER 65532:65532
WORKDIR /data
EXPOSE 8000 9400
HEALTHCHECK --interval=1m --timeout=10s --start-period=10s CMD ["/usr/local/bin/lorafuse", "health"]
ENTRYPOINT ["/usr/local/bin/lorafuse"]
CMD ["--help"]
