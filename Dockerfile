# The CPU image: one static binary, no shell, not root.
#   docker build -t lorafuse .
#   docker run --rm -v "$PWD:/data" -w /data lorafuse train train.yaml
FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN make build

FROM gcr.io/distroless/static-debian12:nonroot
COPY --from=build /src/bin/lorafuse /usr/local/bin/lorafuse
ENTRYPOINT ["/usr/local/bin/lorafuse"]
CMD ["--help"]
HEALTHCHECK --interval=1m CMD ["/usr/local/bin/lorafuse", "devices"]
