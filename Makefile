# What can be done here; `make` alone says so.

GO       ?= go
# Debian keeps what root needs in sbin, which a plain user's PATH lacks.
export PATH := $(PATH):/usr/local/sbin:/usr/sbin:/sbin
# All but the race detector's is compiled in one way, that of the programs, and so once:
# each further way costs a minute and a half of two cores.
export CGO_ENABLED := 0
# gRPC's pages of traces bring html/template, and with it each method of each type of the
# program: 7 of 32 MB. Nothing shows those pages.
export GOFLAGS := $(GOFLAGS) -trimpath -tags=grpcnotrace
# Static programs. Version and commit are what Go records of the checkout, if
# this is one, and whatever GOFLAGS say of it.
STAMP    := $(shell git rev-parse -q --verify HEAD >/dev/null 2>&1 && echo -buildvcs=true)
PROGRAMS := $(GO) build -trimpath $(STAMP) -ldflags '-s -w' -o bin/
# Tests share two cores at the least, and most of them wait: more of a package run at
# once than there are cores. No result is kept: the programs that tests build are none
# of what Go looks at.
TEST     := -count=1 -timeout 30m -parallel 4
# Where nothing of ours runs beside anything else in the test's own process, the race
# detector can find nothing; what metrics read beside the loops they read in the daemon's CROWDS.
# A package is run with it unless it is listed here. Those that last begin first.
PLAIN    := ./storm ./systemd ./soak ./cmd/ipamd-cni ./docker ./examples/... ./packaging ./allocation ./api ./binding ./bridge/remains ./bridge/rtnl ./cmd/ipamctl ./config/... ./doctor \
	./internal/apidoc ./internal/broadcast ./internal/build ./internal/elapsed ./internal/holding ./internal/layout ./internal/manual ./internal/nearest ./internal/poolmap ./internal/ranges ./internal/realtest \
	./ipam ./metrics ./migrations ./netdb/free ./netdb/index ./netdb/salvage ./rebuild ./server/socket ./watchdog/owner ./workload
# SQLite and its C library are Go that was translated from C, have no goroutine of ours, and take
# ten times as long under the detector: they are compiled without it, and the driver, to which
# our values go, with it. What runs on at the end has a tenth of a second to be found, not one.
RACE     := -race -gcflags=modernc.org/sqlite/lib=-race=false -gcflags=modernc.org/libc/...=-race=false
export GORACE := atexit_sleep_ms=100
# What a change can wait for another test to find: those that boot, or last.
LONG     := /(docker|packaging|soak|storm|systemd|examples/.*|cmd/ipamd)$$
# Of the daemon's tests, which run all of its loops in the test's process, those in which many meet
# or each loop has work: under the race detector they find what the others would, in a third of the time.
CROWDS   := MetricsEqualARecount|UnderLoad|Under64|UnderPasses|Concurrent|Beside|TestM9|TestM1Allocate|TestM10Daemon|TestM11|TestZ13|TestZ18|TestR3|TestR4|TestW8|TestW3|TestF24|LostNews|TestE3Bind|TestE4|TestHistoryOfALife|TestL13Rebuild$$|TestIPv6Lives|TestAReloadOfPools|TestAPoolMoves|IdleScrapers
# Of the book, which has no goroutine of its own, the tests that begin some: in the others
# one goroutine calls it, often for long, on a disk that fails or against a model.
CALLERS  = $(shell scripts/callers netdb)
# The same of the server: a fuzzer's requests, one behind the other.
REQUESTS := FuzzRequest

.DEFAULT_GOAL := help
.PHONY: help deps build man install deb demo check test test-systemd storm soak fuzz runtime peers bench bench-docs growth lint run clean

help: ## This page
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

deps: ## Install what the demo needs (Debian; as root)
	@scripts/deps

build: ## Build bin/ipamd, bin/ipamctl, bin/ipamd-cni and bin/sandbox
	$(PROGRAMS) ./cmd/... ./examples/sandbox

man: build ## Write the manual pages and completions into bin/manual
	@GO=$(GO) scripts/manual

install: man ## Install everything below DESTDIR and PREFIX (/usr/local)
	@DESTDIR=$(DESTDIR) PREFIX=$(PREFIX) scripts/install

deb: man ## Build bin/ipamd_VERSION_ARCH.deb, …-cni and …-docker, the same bytes each time
	@GO=$(GO) scripts/deb

demo: deps build ## See it work on real containers, the incident included (as root)
	@$(PROGRAMS) ./examples/demo
	@bin/demo

check: formatted ## Build, vet, gofmt, and the quick tests: two minutes, after each change (as root)
	$(GO) build ./...
	$(GO) vet ./...
	$(GO) -C bench vet ./...
	$(GO) test -short $(TEST) $$($(GO) list ./... | grep -vE '$(LONG)')

.PHONY: formatted
formatted:
	@unformatted=$$(gofmt -l .); if [ -n "$$unformatted" ]; then \
		echo "gofmt -w these:"; echo "$$unformatted"; exit 1; fi

# What tests need and a checkout has not, made once: one part computes, another waits for the network.
PARTS := containerd2 $(if $(SHORT),,rootfs) cni promtool $(if $(CI),gotestsum)

test: ## Run every test, on real kernels and containerds (as root; SHORT=1: boot no Debian)
	@scripts/deps test
	@printf '%s\n' $(PARTS) | xargs -P 2 -I {} bash scripts/{}
	@rm -f .cache/run-twice-*
	@$(MAKE) --no-print-directory -k -j$(GROUPS_AT_ONCE) $(GROUPS)
	@cat .cache/run-twice-* 2>/dev/null || true

# $(call tested,FLAGS,PACKAGES). Under CI, where one verdict is spoken on a machine that
# others share, a test that fails is run once more by itself, and the end tells which were.
# The run fails if a test fails twice, more than five fail, a data race is found, or a
# package panics or does not end.
tested = $(if $(CI),$(CURDIR)/.cache/gotestsum/gotestsum --format standard-quiet --rerun-fails=1 --rerun-fails-run-root-test \
	--rerun-fails-max-failures=5 --rerun-fails-abort-on-data-race --rerun-fails-report $(CURDIR)/.cache/run-twice-$@ \
	--packages "$(2)" -- $(1),$(GO) test $(1) $(2))
# Side by side, as each of them waits a lot; one after the other where others share the
# machine, which is where a verdict is final.
GROUPS_AT_ONCE := $(if $(CI),1,3)
RACED = $(shell $(GO) list ./... | grep -vxF "$$($(GO) list $(PLAIN) ./cmd/ipamd ./netdb)" | tr '\n' ' ')
# Those that last begin first.
GROUPS := test-daemon test-plain test-race test-crowds test-bench test-alone test-callers test-requests
.PHONY: $(GROUPS)
test-alone:
	$(call tested,$(TEST) -skip '$(CALLERS)',./netdb)
test-requests:
	$(call tested,$(TEST) -run '$(REQUESTS)',./server)
test-plain:
	$(call tested,$(TEST) -p 2,$(PLAIN))
test-daemon:
	$(call tested,$(TEST) -skip '$(CROWDS)',./cmd/ipamd)
test-race:
	export CGO_ENABLED=1; $(call tested,$(RACE) $(TEST) -skip '$(REQUESTS)',$(RACED))
test-callers:
	export CGO_ENABLED=1; $(call tested,$(RACE) $(TEST) -run '$(CALLERS)',./netdb)
test-crowds:
	export CGO_ENABLED=1; $(call tested,$(RACE) $(TEST) -run '$(CROWDS)',./cmd/ipamd)
test-bench:
	cd bench && $(call tested,$(TEST),./...)

test-systemd: ## The service's life in a Debian that is booted for it (as root)
	@scripts/deps test
	@scripts/rootfs
	$(GO) test -v $(TEST) ./systemd

storm: build ## Three minutes of kill -9, stepped clocks and strangers, as long a check of histories, and a flood (as root)
	@scripts/deps test
	@scripts/containerd2
	$(GO) test -v $(TEST) ./storm -storm.alone -storm.for=3m -storm.linear=3m
	$(GO) test -v $(TEST) ./cmd/ipamd -run 'TestFloodAtFullRate|TestF2NewsAtFullRate' -alone

soak: build ## Ten minutes of 64 clients and 1 000 idle ones, five of a large pool, 10 000 ADDs of CNI; what is left (as root)
	@scripts/deps test
	@scripts/cni
	$(GO) test -count=1 -v -timeout 30m ./soak -run Soak -soak.for=10m
	ROUNDS=1000 $(GO) test -count=1 -timeout 20m ./cmd/ipamd -run 'TestZ18|TestW10|TestThousandPorts'
	$(GO) test -count=1 -v -timeout 30m ./cmd/ipamd-cni -run TestN5RandomKills -churn=10000

fuzz: ## Each fuzz function of the tree, 30 s (FUZZ=5m: for longer), each random test 20 000 times, and each fault of a disk
	@GO=$(GO) scripts/fuzz $(FUZZ)

runtime: ## Build the containerd 2.x of tests and `make bench`, into .cache/containerd-2
	@scripts/deps
	@scripts/containerd2

peers: ## Build the plugin that `make bench` compares ipamd with, into .cache/peers
	@mkdir -p .cache/peers
	@$(GO) -C bench build -o ../.cache/peers/ tool

bench: build runtime peers ## Measure ipamd against this machine, and beside its peers (as root)
	$(GO) -C bench run .

bench-docs: build runtime peers ## The same, and write the figures into docs/BENCHMARKS.md (as root)
	$(GO) -C bench run . -docs docs/BENCHMARKS.md

growth: build runtime ## Measure how ipamd grows, and draw docs/growth.svg (as root)
	$(GO) -C bench run . -growth docs/growth

lint: formatted ## gofmt, go vet, staticcheck
	$(GO) vet ./...
	$(GO) vet -tags man ./cmd/...
	$(GO) -C bench vet ./...
	@mkdir -p .cache
	@cd tools/lint && $(GO) build -o ../../.cache/lint/ tool
	.cache/lint/staticcheck ./...
	cd bench && ../.cache/lint/staticcheck ./...

run: ## Run a development daemon in the foreground (as root)
	@$(PROGRAMS) ./cmd/...
	@bin/ipamd run --dev

clean: ## Remove what was built; containerd 2.x and the Debian stay in .cache
	rm -rf bin .cache/lint .cache/peers .cache/run-twice-*
