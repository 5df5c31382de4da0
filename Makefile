# make check, then make test, is what CI does: see .ci/run.

# Packages tested at once. Each may start servers of its own; more than 4 only make each other slow.
P ?= $(shell n=$$(nproc 2>/dev/null || echo 2); [ $$n -le 4 ] || n=4; echo $$n)
PKG ?= ./...
SOAKTIME ?= 10m
CHAOSTIME ?= 5m
CHURNTIME ?= 2m
FUZZTIME ?= 10s

.PHONY: build test check bench soak fuzz tools servers services fmt up down

build:
	CGO_ENABLED=0 go build -trimpath -o bin/runlog ./cmd/runlog

# vet is left to `make check`, which runs all of it.
test: services servers
	go test -race -vet=off -timeout 30m -p $(P) $(PKG)

# golangci-lint contains staticcheck, with all its checks: it is not run a second time on its own.
check: bin/golangci-lint
	@unformatted=$$(git -c safe.directory='*' ls-files '*.go' | xargs gofmt -l); \
	  [ -z "$$unformatted" ] || { echo "gofmt these (make fmt):"; echo "$$unformatted"; exit 1; }
	go vet ./...
	bin/golangci-lint run ./...
	go test -vet=off -count=1 ./internal/housetest

fmt:
	git ls-files '*.go' | xargs gofmt -w

# The figures of docs/benchmarks.md, in some six minutes. bench/run.sh compares with other servers.
bench: build servers
	cd bench && go run ./cmd/figures

# Workers are killed and paused at every frame of a run, which takes some 10 minutes on two processors, then at random for
# SOAKTIME. Then a cluster suffers under fifty sessions for CHAOSTIME, clients come and go for CHURNTIME, and edges are
# restarted under 3000 of them: half an hour in all.
soak: servers
	RUNLOG_SOAK=$(SOAKTIME) go test -vet=off -count=1 -timeout 3h -run TestCrashMatrix ./internal/crashtest
	RUNLOG_CHAOS=$(CHAOSTIME) go test -vet=off -count=1 -timeout 1h -run TestAClusterBearsItsFaults ./internal/systemtest
	RUNLOG_SOAK=$(CHURNTIME) go test -vet=off -count=1 -timeout 1h -run TestChurn ./edge/stream
	RUNLOG_SOAK=$(CHURNTIME) go test -vet=off -count=1 -timeout 1h -run TestRandomViewers ./edge
	RUNLOG_NODES=3 RUNLOG_SOAK=$(CHURNTIME) go test -vet=off -count=1 -timeout 1h -run TestRandomViewers ./edge
	RUNLOG_SOAK=$(CHURNTIME) go test -vet=off -count=1 -timeout 1h -run TestEdgesRestartUnderLoad ./deploy

# Every fuzz target for FUZZTIME.
fuzz:
	tools/fuzz $(FUZZTIME)

# The topology of production as local processes: see deploy/local.
up: build servers
	deploy/local/up

down:
	deploy/local/down

# What tests start as processes. Their versions are pinned in modules of their own, so that none of their
# dependencies reaches go.mod.
tools: servers bin/golangci-lint

servers: bin/nats-server bin/versitygw bin/caddy

bin/nats-server: tools/go.mod tools/go.sum
	cd tools && go build -trimpath -o ../$@ github.com/nats-io/nats-server/v2

bin/versitygw: tools/go.mod tools/go.sum
	cd tools && go build -trimpath -o ../$@ github.com/versity/versitygw/cmd/versitygw

# The distribution's may be older than 2.8, before which it ends politely what broke off.
bin/caddy: tools/caddy/go.mod tools/caddy/go.sum
	cd tools/caddy && go build -trimpath -o ../../$@ github.com/caddyserver/caddy/v2/cmd/caddy

bin/golangci-lint: tools/lint/go.mod tools/lint/go.sum
	cd tools/lint && go build -trimpath -o ../../$@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint

# What tests need of the distribution. Without root or apt it is left to you; tests that miss something say so.
services:
	@tools/services
