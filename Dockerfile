# Four images, each for amd64 and arm64, made by the commands that developers use:
#   docker build -t lorafuse .                              for the CPU: a static binary and certificates, no shell
#   docker build -t lorafuse:cuda --target cuda .           with CUDA; without a GPU it computes on the CPU too
#   docker build -t lorafuse:mpi --target mpi .             for the CPUs of several hosts, with Open MPI and an ssh server
#   docker build -t lorafuse:mpi-cuda --target mpi-cuda .   for the GPUs of several hosts
#   docker run --rm -v "$PWD:/data" lorafuse train train.yaml
#   docker run --rm -v "$PWD:/data" -p 127.0.0.1:8000:8000 lorafuse serve --listen :8000 --model /data/model
#   docker run --rm --gpus all -v "$PWD:/data" lorafuse:cuda train train.yaml
#   docker run --rm -v "$PWD:/data" lorafuse:mpi mpirun --bind-to none -np 2 lorafuse train train.yaml
# compose.yaml runs the first two, deploy/train the others. Models from the hub are kept in /models: mount a volume
# there to keep them.

# No step runs go mod download: it would fetch what only tests need.
FROM --platform=$BUILDPLATFORM golang:1.26-bookworm AS build
ARG TARGETARCH
WORKDIR /src
COPY . .
RUN GOARCH=$TARGETARCH make build
# Any user that runs the image (--user) may write to these.
RUN mkdir -p -m 1777 out/models out/data

FROM build AS build-mpi
ARG TARGETARCH
RUN GOARCH=$TARGETARCH make build-mpi

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

# Open MPI, and the ssh server through which mpirun starts ranks on other hosts. The
# server runs without root, on port 2222. Its keys are mounted: a Kubeflow TrainJob
# has a pair of its own, which is the key of users and hosts. Variables of an image do
# not reach a session of ssh, so HF_HOME is set for these too.
# mpirun waits odls_base_sigkill_timeout seconds before it passes SIGTERM on to the
# ranks, and again before it kills them; one second is too short for a checkpoint.
# Containers may forbid the system calls by which Open MPI copies between processes.
# The file of these parameters does not end with a new line.
FROM debian:bookworm-slim AS launcher
RUN apt-get update && apt-get install -y --no-install-recommends openmpi-bin openssh-client openssh-server && \
    rm -rf /var/lib/apt/lists/* /etc/ssh/ssh_host_*
RUN groupadd --gid 65532 lorafuse && useradd --uid 65532 --gid 65532 --create-home --home-dir /var/lib/lorafuse --shell /bin/sh lorafuse && \
    printf '%s\n' 'Port 2222' 'HostKey /var/lib/lorafuse/.ssh/id_rsa' 'AuthorizedKeysFile .ssh/authorized_keys' \
      'PidFile none' 'StrictModes no' 'PasswordAuthentication no' 'KbdInteractiveAuthentication no' \
      'SetEnv HF_HOME=/models' > /etc/ssh/sshd_config && \
    printf '%s\n' 'Host *' 'Port 2222' 'StrictHostKeyChecking no' 'UserKnownHostsFile /dev/null' 'LogLevel ERROR' \
      > /etc/ssh/ssh_config.d/lorafuse.conf && \
    printf '%s\n' '' 'odls_base_sigkill_timeout = 15' 'btl_vader_single_copy_mechanism = none' \
      >> /etc/openmpi/openmpi-mca-params.conf
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build --chown=65532:65532 /src/out/ /
ENV HF_HOME=/models
USER 65532:65532
WORKDIR /data
EXPOSE 2222 9400
CMD ["lorafuse", "--help"]

FROM launcher AS mpi
COPY --from=build-mpi /src/bin/lorafuse-mpi /usr/local/bin/lorafuse

FROM launcher AS mpi-cuda
COPY --from=build-cuda /src/bin/lorafuse-cuda /usr/local/bin/lorafuse
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility

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
