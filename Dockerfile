# One image with all commands: ingest, compactor, indexer, query and skein. It holds nothing else, not
# even a shell, and runs as nobody. Without VERSION it says the commit of a clone.
#
#   docker build --build-arg VERSION=v1.2.3 -t skein:v1.2.3 .
FROM golang:1.26.8-bookworm AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=
# Static: no C library is in the image. The binary says its version, and where its sources lay is
# nobody's business. Of .git the context has what names the commit.
RUN --mount=type=cache,target=/root/.cache/go-build \
    { ref=$(sed 's/^ref: //' .git/HEAD); \
      commit=$(cat ".git/$ref" || grep " $ref\$" .git/packed-refs || echo "${ref:-unknown}"); } 2>/dev/null; \
    version=${VERSION:-devel-$(echo "$commit" | cut -c 1-12)}; \
    CGO_ENABLED=0 go build -buildvcs=false -trimpath -ldflags "-s -w -X github.com/skeinhq/skein/internal/app.version=$version" -o /out/ ./cmd/...
# A new volume takes its owner from the folder that it is mounted on.
RUN mkdir -p /data

# No base: what one could be named by, without its digest, would be another thing tomorrow. The commands
# need nothing but the authorities that vouch for brokers and databases.
FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /out/ /usr/local/bin/
# Made here, the folders above are root's.
WORKDIR /var/lib
COPY --from=build --chown=65532:65532 /data /var/lib/skein
ARG VERSION=
LABEL org.opencontainers.image.title="Skein" \
      org.opencontainers.image.source="https://github.com/skeinhq/skein" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="$VERSION"
USER 65532:65532
WORKDIR /var/lib/skein
CMD ["/usr/local/bin/skein", "--help"]
