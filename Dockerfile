# The CPU image: one static binary and the certificates that downloads need;
# no shell, not root.
#   docker build -t lorafuse .
#   docker run --rm -v "$PWD:/data" lorafuse train train.yaml
# Models from the hub are kept in /models; mount a volume there to keep them.
FROM golang:1.26 AS build
WORKDIR /src
# No go mod download: it would fetch what only builds with CUDA need.
COPY . .
RUN make build && mkdir -p /out/models /out/data

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /src/bin/lorafuse /usr/local/bin/lorafuse
COPY --from=build --chown=65532:65532 /out/ /
ENV HF_HOME=/models
USER 65532:65532
WORKDIR /data
HEALTHCHECK --interval=1m CMD ["/usr/local/bin/lorafuse", "devices"]
ENTRYPOINT ["/usr/local/bin/lorafuse"]
CMD ["--help"]
