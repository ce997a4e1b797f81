# One image with all commands: ingest, compactor, indexer, query and skein. It holds nothing else, not
# even a shell, and runs as nobody. Whether it was ever built: docs/proven.md.
#
#   docker build --build-arg VERSION=v1.2.3 -t skein:v1.2.3 .
FROM golang:1.26.8-bookworm AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=
# Static: no C library is in the image. The binary says its version, and where its sources lay is
# nobody's business.
RUN CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X github.com/skeinhq/skein/internal/app.version=${VERSION}" -o /out/ ./cmd/...
# A new volume takes its owner from the folder that it is mounted on.
RUN mkdir -p /data

# No base: what one could be named by, without its digest, would be another thing tomorrow. The commands
# need nothing but the authorities that vouch for brokers and databases.
FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /out/ /usr/local/bin/
COPY --from=build --chown=65532:65532 /data /var/lib/skein
USER 65532:65532
WORKDIR /var/lib/skein
CMD ["/usr/local/bin/skein", "--help"]
