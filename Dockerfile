# One static binary, run as nobody. Tools that agents start over stdio (npx, uvx, ...) are not in it: build an image
# on top of this one that has them, or reach such tools over HTTP.
FROM golang:1.26.8-bookworm AS build
ENV CGO_ENABLED=0 GOCACHE=/cache/build GOMODCACHE=/cache/mod
WORKDIR /src
COPY go.mod go.sum ./
RUN --mount=type=cache,target=/cache go mod download
COPY . .
RUN --mount=type=cache,target=/cache go build -trimpath -ldflags="-s -w" -o /out/runlog ./cmd/runlog

FROM debian:12.11-slim
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /out/runlog /usr/local/bin/runlog
USER 65532:65532
# 8080 serves clients; 9090 metrics and profiles, which clients must not reach.
EXPOSE 8080 9090
# SIGTERM drains: a worker hands its sessions over, an edge ends its streams so that clients resume elsewhere.
STOPSIGNAL SIGTERM
ENTRYPOINT ["runlog"]
