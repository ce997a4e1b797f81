# Everything a developer needs. `make` alone lists it.
#
# "make run" and "make test" need Go 1.26, and a network for the first build. "make check" also takes what is there of a C compiler (race
# detector), Node 20 (the official AG-UI client), Java and Maven (Kafka), Python and Chromium, and ends with a list of what was missing.

GOLANGCI_LINT_VERSION := v2.15.0
GOTESTSUM_VERSION     := v1.13.0
BENCHSTAT_VERSION     := v0.0.0-20260908200009-22c9c6c9d4da
GORELEASER_VERSION    := v2.16.0
CYCLONEDX_VERSION     := v1.10.0
FUZZTIME              ?= 10s
COUNT                 ?= 6

TOOLS := $(CURDIR)/.cache/bin
KIT   := test/conformance

# Pebble compresses by Go in the image, which has no C. So do builds here: its C library takes a minute to compile.
export GOFLAGS := $(strip $(GOFLAGS) -tags=pebblegozstd)

GOTESTSUM := $(TOOLS)/gotestsum-$(GOTESTSUM_VERSION)

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+):.*## (.*)/  \1\t\2/' | expand -t 22

.PHONY: build
build: ## build the commands into bin/
	@mkdir -p bin
	@.ci/build

.PHONY: web
web: ## build the page into web/dist, which is committed
	cd web && npm ci --ignore-scripts --no-audit --no-fund --no-progress --loglevel=error && npm run check && npm run build

.PHONY: check-web
check-web: web ## say whether the committed files of the page are those of a fresh build
	@git diff --exit-code --stat -- web/dist && test -z "$$(git status --porcelain -- web/dist)" || \
	  { echo "web/dist is not what web/src builds: commit what make web made" >&2; exit 1; }

.PHONY: pictures
pictures: build ## take pictures of all views of the page, by Chromium, into .cache/pictures, and README's that moves, which is copied into docs/pictures
	SKEIN_TEST_BIN=$(CURDIR)/bin SKEIN_TEST_PICTURES=$(CURDIR)/.cache/pictures go test -count=1 -run Pictures ./test/page -page.long
	mkdir -p docs/pictures && cp .cache/pictures/tour.gif docs/pictures/

.PHONY: run
run: build ## start all stages on one folder (.skein), play example conversations, stay up until Ctrl-C
	@bin/skein demo

# Packages with tests, listed because "go test ./..." prints a line for each of those without any, too. Tests wait half of their time, so two
# packages run on each processor.
TESTED = $$(go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}' ./...)

.PHONY: test
test: ## run the tests that need Go alone: no race detector, no other program, no network once modules are here; minutes
	go test -short -vet=off -p $$((2 * $$(getconf _NPROCESSORS_ONLN))) $(TESTED)
	@echo 'Passed. Not run: the race detector, a real Kafka, ClickHouse, the official AG-UI client, a browser, whole processes, chaos, tests of scale.'
	@echo '"make check" runs all of it.'

# The commands that tests start are built once, and found there. Two groups run side by side on one Kafka, of three packages each, as each
# package waits a good part of its time. Tests of costs measure their own processor time. "make lint" vets, so tests do not.
check: export SKEIN_TEST_BIN := $(CURDIR)/bin
check: export SKEIN_TEST_SKIPPED := $(CURDIR)/.cache/skipped.txt
check: export SKEIN_TEST_SEED = $(TEST_SEED)
.PHONY: check
check: skipped-setup build conformance-setup race-setup $(GOTESTSUM) ## run all tests: with the race detector, what has one goroutine without, against the official client, end to end over real processes, under faults and in bad weather; samples are random, SEED=n for the same again
	go run ./test/broker $(MAKE) --no-print-directory -j2 -Otarget check-race check-beside SEED=$(TEST_SEED)
	@$(MAKE) --no-print-directory say-skipped

# What tests were skipped for, each reason once, with what would bring it in.
.PHONY: say-skipped
say-skipped:
	@if [ -s "$$SKEIN_TEST_SKIPPED" ]; then echo 'Passed, but what needs these parts was skipped:'; sort -u "$$SKEIN_TEST_SKIPPED" | sed 's/^/  /'; \
	else echo 'Passed, and no part was missing.'; fi
	@if ls .cache/rerun-*.txt >/dev/null 2>&1; then \
	  echo 'FLAKY: these failed beside all others and passed alone. Each is a defect of the test or of the code:'; cat .cache/rerun-*.txt | sed 's/^/  /'; fi

.PHONY: skipped-setup
skipped-setup:
	@mkdir -p .cache && rm -f .cache/skipped.txt .cache/rerun-*.txt

TEST_SEED := $(or $(SEED),$(shell od -An -N4 -tu4 /dev/urandom | tr -d ' '))

# $(call RERUN,packages) tests packages. Some thousand tests with real brokers and browsers share two cores here: where one or two fail, without a
# data race, they are run once more, alone, and must pass; say-skipped names them. Their random histories are then the same, by SKEIN_TEST_SEED. What
# has its seed on the command line is never run again.
RERUN = $(GOTESTSUM) --format standard-quiet --rerun-fails=1 --rerun-fails-max-failures=4 --rerun-fails-abort-on-data-race \
	  --rerun-fails-report=.cache/rerun-$@.txt --packages="$(1)" --

.PHONY: check-race
check-race:
	$(call RERUN,$$(go list ./... | grep -v -E '/($(subst $() ,|,$(SEQUENTIAL)))$$|$(DRIVERS)')) -vet=off $$($(HAS_C) && echo $(RACE)) -p 3 -parallel 8 -timeout 15m -skip '$(HEAVY)'
	cd $(KIT) && go test -vet=off -count=1 -timeout 15m -rapid.seed=$(TEST_SEED)
	go test -vet=off -v -count=1 -timeout 15m ./test/chaos -chaos.faults=6 -chaos.seed=$(TEST_SEED)
	go test -vet=off -v -count=1 -timeout 15m ./test/e2e

.PHONY: check-beside
check-beside:
	$(call RERUN,$$(go list ./... | grep -E '$(DRIVERS)' | grep -v -E '/test/(e2e|chaos|conformance)$$')) -vet=off -p 3 -timeout 15m
	go test -vet=off -timeout 10m $(patsubst %,./%,$(filter-out $(RANDOM_CRASHES),$(SEQUENTIAL)))
	go test -vet=off -timeout 10m ./$(RANDOM_CRASHES) -histories=5 -seed=$(TEST_SEED)
	go test -vet=off -timeout 10m -run '$(HEAVY)' ./pkg/compactor -faults.seed=$(TEST_SEED)
	$(MAKE) --no-print-directory clients-tests

# $(call WITHOUT,what,advice) says that tests are skipped for want of something, or fails with CI=true.
WITHOUT = if [ "$$CI" = true ]; then echo '$(1): needed with CI=true' >&2; exit 1; fi; echo 'Skipped: $(1)'; \
	  if [ -n "$$SKEIN_TEST_SKIPPED" ]; then echo '$(1); $(2)' >>"$$SKEIN_TEST_SKIPPED"; fi

# $(call NPM_CI,folder) installs what a folder's lock file names, where that is newer. The stamp is npm's own.
NPM_CI = { [ $(1)/node_modules/.package-lock.json -nt $(1)/package-lock.json ] || \
	 { npm ci --prefix $(1) --ignore-scripts --no-progress --loglevel=error && touch $(1)/node_modules/.package-lock.json; }; }

.PHONY: clients
clients: build clients-tests ## build the clients in TypeScript and Python, test them against skein dev, pack and install them

.PHONY: clients-tests
clients-tests: export SKEIN_TEST_BIN := $(CURDIR)/bin
clients-tests:
	@if ! command -v npm >/dev/null; then $(call WITHOUT,no Node: the TypeScript client was not tested,install Node 20 or later); else \
	  for dir in clients/typescript clients/typescript/test/react; do $(call NPM_CI,$$dir) && npm test --silent --prefix $$dir || exit; done; fi
	@if ! python3 -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	  $(call WITHOUT,no Python: its client was not tested,install Python 3.11 or later with venv); else clients/python/check; fi

.PHONY: app-test
app-test: export SKEIN_APP := 1
app-test: build ## drive the example app in Chromium: reload in mid-answer, branch pickers, Stop, a killed runtime, ten tabs; make its picture, docs/pictures/app.gif. 1 GB of packages
	SKEIN_TEST_BIN=$(CURDIR)/bin SKEIN_TEST_PICTURES=$(CURDIR)/.cache/pictures go test -vet=off -v -count=1 -timeout 30m -run TestApp ./test/page
	cp .cache/pictures/app.gif docs/pictures/

.PHONY: sdks
sdks: export SKEIN_TEST_BIN := $(CURDIR)/bin
sdks: build ## put AG-UI's Go and Rust SDKs through Skein; Rust's is built in some minutes, with cargo
	SKEIN_SDKS=1 go test -vet=off -v -count=1 -timeout 30m ./test/sdks

.PHONY: faults
faults: ## put each fault at every request of the compactor ("make check": at every eleventh, from a random one on)
	go test -v -count=1 -timeout 30m -run AFaultAtEachRequest ./pkg/compactor -faults.all

.PHONY: laws
laws: ## hold 400 random histories, with batches and crashes, of one partition to each of its laws ("make check": 10); SEED=n for the same again
	go test -v -count=1 -timeout 2h ./$(RANDOM_CRASHES) -histories=400 -seed=$(or $(SEED),0)

# Packages of one goroutine. The race detector has nothing to find in them, and they take ten times as long with it.
SEQUENTIAL := internal/steps pkg/agui pkg/artifact pkg/compact pkg/compactor/partition pkg/fold pkg/lineage pkg/lineage/draw pkg/lint pkg/record \
	      pkg/timeline pkg/verify
# One of them takes random histories, batches and crashes: 10 for each law in "make check", 400 in "make laws".
RANDOM_CRASHES := pkg/compactor/partition
# Tests of the compactor that run without it, too: they put the same scenario through many faults, or work in child processes and on megabytes.
HEAVY := AFaultAtEachRequest|EndsWhereItsDiskIsFull|APartitionIsFetchedBesideLargeRecords
# What drives programs, clients and real parts from outside. The code that it meets has the race detector in its own packages.
DRIVERS    := /(test/(abuse|agents|api|containers|docs|e2e|chaos|conformance|page|parts|tenants)|cmd/[^/]*|examples/[^/]*|internal/(cli|clickhousetest)|pkg/kafka/kafkatest(/apache)?)$$
# SQLite's own code is C that was translated to Go, and compression only computes: the race detector has nothing of ours to find in either, and takes half
# of the time of the tests that use them. Neither has generic code: the linker would take that for other packages too, and report false races.
RACE := -race -gcflags=modernc.org/sqlite/lib=-race=false -gcflags=compress/...=-race=false

# True where the race detector can be built. "go env CC" may hold options behind the compiler's name.
HAS_C = { [ "$$(go env CGO_ENABLED)" = 1 ] && command -v $$(go env CC | cut -d ' ' -f 1); } >/dev/null

.PHONY: abuse
abuse: export SKEIN_TEST_BIN := $(CURDIR)/bin
abuse: build ## attack each stage as one tenant, under the chart's memory limits and on a real Kafka, while another one works; a row an attack
	go test -v -count=1 -p 1 -timeout 1h ./test/abuse -abuse.long

.PHONY: acls
acls: export SKEIN_TEST_BIN := $(CURDIR)/bin
acls: build ## run the stages on a real Kafka with its authorizer, without each one of the documented rules in turn
	go test -v -count=1 -timeout 20m ./test/e2e -run Authorizer -acls.each

.PHONY: fresh
fresh: export SKEIN_TEST_BIN := $(CURDIR)/bin
fresh: build ## read 1,000 runs right after their ends on a real Kafka and ClickHouse, and an open run of 10,000 events: no 404, no old answer
	go test -v -count=1 -timeout 20m ./test/e2e -run TestFresh -fresh.reads=1000

.PHONY: long-chains
long-chains: ## go on from a conversation of 100,001 runs, restore it, draw it
	go test -v -count=1 -timeout 1h ./pkg/compactor/partition -run LongChain -chain 100001
	go test -v -count=1 -timeout 1h ./pkg/query -run LongChain -chain 100001

.PHONY: chaos
chaos: export SKEIN_TEST_BIN := $(CURDIR)/bin
chaos: build ## put the compactor through 20 faults on a real Kafka of the version KAFKA=3.9.2; SEED=n for the same again
	SKEIN_TEST_KAFKA=$(KAFKA) go test -v -count=1 -timeout 30m ./test/chaos -run TestChaos -chaos.seed=$(or $(SEED),0)

.PHONY: chaos-long
chaos-long: ## put the compactor through 200 faults on a real Kafka, and mutants, write docs/bench/chaos.md; SEED=n for the same again
	@mkdir -p docs/bench
	SKEIN_MUTANTS=1 go test -v -count=1 -timeout 3h ./test/chaos -chaos.faults=200 -chaos.seed=$(or $(SEED),0) -chaos.report=$(CURDIR)/docs/bench/chaos.md

.PHONY: alerts-recorded
alerts-recorded: build ## record what the alerts look at from real stages, through a calm hour (2 minutes) and under faults, in 10 minutes
	SKEIN_TEST_BIN=$(CURDIR)/bin go test -v -count=1 -timeout 1h ./test/chaos -run TestAlerts -chaos.alerts=$(CURDIR)/deploy/testdata/faults.txt

.PHONY: failover
failover: ## kill a Kafka cluster under two minutes of load, and go on in a mirror of it ("make check": three seconds)
	go test -v -count=1 -timeout 30m ./internal/cli -run TopicsAdopt -failover.load=2m

.PHONY: chaos-mutants
chaos-mutants: ## take a protection out of the compactor; the same faults have to break it
	SKEIN_MUTANTS=1 go test -v -count=1 -timeout 1h ./test/chaos -run TestMutants -chaos.seed=$(or $(SEED),0)

.PHONY: copilotkit
copilotkit: build conformance-setup ## put an unchanged CopilotKit runtime (300 MB of packages) before the proxy and a real agent, and run it with SkeinRunner in two processes
	$(call NPM_CI,test/agents/copilotkit) && $(call NPM_CI,clients/typescript)
	SKEIN_COPILOTKIT=1 go test -vet=off -v -count=1 ./test/agents -run CopilotKit
	SKEIN_TEST_BIN=$(CURDIR)/bin npm run --silent --prefix clients/typescript test:copilotkit

.PHONY: race-setup
race-setup:
	@if $(HAS_C); then :; \
	elif [ "$$CI" = true ]; then echo 'A C compiler is needed with CI=true: the race detector is built with it.' >&2; exit 1; \
	else echo 'No C compiler here: tests run without the race detector.'; \
		if [ -n "$$SKEIN_TEST_SKIPPED" ]; then echo 'no C compiler: the race detector was off; install gcc or clang' >>"$$SKEIN_TEST_SKIPPED"; fi; fi

.PHONY: real-parts
real-parts: ## fetch and start what the tests call real, Kafka, its clients and ClickHouse, and say which versions they are
	go test -vet=off -v -count=1 -timeout 15m -run 'TestReal_GivesEachTestItsOwnTopics|TestStart_GivesEachTestADatabaseOfItsOwn|TestPrograms_AreThere' ./pkg/kafka/kafkatest ./internal/clickhousetest ./examples/producers

test-deploy: export SKEIN_TEST_BIN := $(CURDIR)/bin
.PHONY: test-deploy
test-deploy: build ## check the Compose file and render the Helm chart, with a line for each object (a module of its own: Helm's and Kubernetes' packages)
	cd deploy && go mod verify && go test -vet=off -v -count=1 -timeout 15m ./...

# Etcd, API server, controllers and scheduler, built from the module deploy/cluster and kept by version.
KUBERNETES_VERSION := $(shell sed -n 's|.*k8s.io/kubernetes \(v[0-9.]*\).*|\1|p' deploy/cluster/go.mod)
CLUSTER            := .cache/cluster/$(KUBERNETES_VERSION)

.PHONY: test-cluster
test-cluster: $(CLUSTER) ## install, upgrade, roll back and uninstall the chart on a real Kubernetes control plane, with each of its values; FROM=commit for the chart to upgrade from. Builds Kubernetes once: ten minutes
	cd deploy && go vet -tags cluster . && go test -tags cluster -v -count=1 -timeout 1h -run TestCluster . -cluster.bin $(CURDIR)/$(CLUSTER) -cluster.from '$(FROM)'

$(CLUSTER):
	@echo 'Building etcd and Kubernetes $(KUBERNETES_VERSION) into $@: ten minutes on two cores.'
	rm -rf $@.tmp && mkdir -p $@.tmp
	cd deploy/cluster && CGO_ENABLED=0 go build -trimpath -o $(CURDIR)/$@.tmp/ -ldflags "-s -w -X k8s.io/component-base/version.gitVersion=$(KUBERNETES_VERSION) \
	  -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=$(word 2,$(subst ., ,$(KUBERNETES_VERSION)))" tool
	mv $@.tmp/server $@.tmp/etcd
	mv $@.tmp $@

# What stand-ins for images are made of is fetched before: inside nothing is reached.
test-containers: export SKEIN_TEST_BIN := $(CURDIR)/bin
.PHONY: test-containers
test-containers: build ## build the image and run the Compose file on a container engine, fetched from Debian where none answers (root): kill -9 of each container, restart, upgrade from BEFORE=HEAD~; 20 minutes
	go mod download
	go test -count=1 -run 'TestReal_GivesEachTestItsOwnTopics|TestStart_GivesEachTestADatabaseOfItsOwn' ./pkg/kafka/kafkatest ./internal/clickhousetest
	test/containers/engine.sh go test -v -count=1 -timeout 3h ./test/containers -containers.long -containers.before=$(or $(BEFORE),HEAD~)

# What makes a release: the second one is called by its name, so its version is that of its folder.
RELEASER := $(TOOLS)/goreleaser-$(GORELEASER_VERSION)/goreleaser $(TOOLS)/cyclonedx-gomod-$(CYCLONEDX_VERSION)/cyclonedx-gomod
release release-snapshot: export PATH := $(subst $() ,:,$(patsubst %/,%,$(dir $(RELEASER)))):$(PATH)

.PHONY: release
release: $(RELEASER) ## build the release of the tag that is checked out, and publish it: what .github/workflows/release.yml does
	@grep -q "^## \[$$(git describe --exact-match --tags | sed 's/^v//')\] - 20" CHANGELOG.md || { echo "CHANGELOG.md has no dated section of the tag" >&2; exit 1; }
	$(firstword $(RELEASER)) release --clean --parallelism=1

.PHONY: release-snapshot
release-snapshot: $(RELEASER) ## build what a release of this commit would be twice and compare the bytes; install it by go install, compile it for Windows
	.ci/release

# Kafka, ClickHouse and the tests that start commands run on this processor, the commands and the tests of the core as on the other one.
ARM64 := .cache/arm64
QEMU  := $(or $(shell command -v qemu-aarch64-static),$(CURDIR)/$(ARM64)/usr/bin/qemu-aarch64-static)
.PHONY: arm64
arm64: $(QEMU) ## build the commands and the core's tests for arm64 and run them under qemu, which is fetched from Debian: skein dev with kill -9, the four stages on a real Kafka and ClickHouse
	@mkdir -p $(ARM64)/commands $(ARM64)/bin
	CGO_ENABLED=0 GOARCH=arm64 go build -o $(ARM64)/commands/ ./cmd/...
	@for name in $(notdir $(wildcard cmd/*)); do \
	  printf '#!/bin/sh\nexec %s %s "$$@"\n' '$(QEMU)' "$(CURDIR)/$(ARM64)/commands/$$name" >$(ARM64)/bin/$$name && chmod +x $(ARM64)/bin/$$name || exit; done
	$(ARM64)/bin/skein version
	CGO_ENABLED=0 GOARCH=arm64 go test -short -vet=off -count=1 -timeout 30m -exec $(QEMU) ./pkg/agui ./pkg/artifact ./pkg/compact ./pkg/compactor/runstore \
	  ./pkg/fold ./pkg/lineage ./pkg/record ./pkg/store/sqlite ./pkg/timeline ./pkg/verify
	SKEIN_TEST_BIN=$(CURDIR)/$(ARM64)/bin go test -v -count=1 -timeout 30m ./cmd/skein -run TestDev_KillNineInTheMiddleOfRuns
	CI=true SKEIN_TEST_BIN=$(CURDIR)/$(ARM64)/bin go test -v -count=1 -timeout 30m ./test/e2e -run TestREADME_ProductionBlockRuns

$(CURDIR)/$(ARM64)/usr/bin/qemu-aarch64-static:
	@mkdir -p $(ARM64)
	cd $(ARM64) && apt-get download qemu-user-static && dpkg -x qemu-user-static_*.deb . && rm qemu-user-static_*.deb

.PHONY: mutants
mutants: conformance-setup ## put faults into the fold; the generated streams have to catch each of them
	SKEIN_MUTANTS=1 go test -count=1 -v -timeout 3h -run TestMutants_AreCaught ./$(KIT)

# Run in the kit's own folder, so that go test shows the kit's summary. "make check" takes 700 threads.
SEEDED = $(if $(SEED),-rapid.seed=$(SEED))
.PHONY: conformance
conformance: conformance-setup ## compare with the official AG-UI client: recordings, cases, 10,000 generated threads; SEED=n for the same again
	cd $(KIT) && go test -count=1 -timeout 30m -rapid.checks=10000 -variants.all $(SEEDED)

.PHONY: conformance-long
conformance-long: conformance-setup ## the same with 100,000 generated threads, for every night; SEED=n for the same again
	cd $(KIT) && go test -count=1 -timeout 3h -rapid.checks=100000 -steps.all -variants.all $(SEEDED)

.PHONY: corpus
corpus: ## fold and lint AG-UI's own conformance corpus: make corpus AGUI_CORPUS=…/ag-ui/spec/1.1/conformance/streams
	AGUI_CORPUS='$(abspath $(AGUI_CORPUS))' go test -v -count=1 ./$(KIT) -run TestCorpus

.PHONY: conformance-update
conformance-update: conformance-setup ## write expected results anew from the official client
	go test -count=1 ./$(KIT) -run 'TestExpected|OnCases' -update

# The packages of the official client, where Node is at hand.
.PHONY: conformance-setup
conformance-setup:
	@if ! command -v node >/dev/null || ! command -v npm >/dev/null; then \
		if [ "$$CI" = true ]; then echo 'Node 20 or later is needed with CI=true.' >&2; exit 1; fi; \
		echo 'No Node here: tests compare with checked-in results of the official client.'; \
		if [ -n "$$SKEIN_TEST_SKIPPED" ]; then echo 'no Node: the official client was compared by its checked-in results; install Node 20 or later' >>"$$SKEIN_TEST_SKIPPED"; fi; \
	else for dir in $(KIT) test/api; do $(call NPM_CI,$$dir) || exit; done; fi

.PHONY: first-hour
first-hour: ## do a newcomer's first hour on a clean clone with an empty HOME and only Go, make, git and curl, with TESTS=1 make test as well; takes ports 8420, 8492 and 8000
	@mkdir -p .cache
	go test -v -count=1 -timeout 3h ./test/docs -run TestFirstHour -hour $(if $(TESTS),-hour.tests)

.PHONY: configuration
configuration: ## write docs/configuration.md anew from the help of the commands
	go test -count=1 ./test/docs -run TestConfiguration -update

.PHONY: figures
figures: ## count what "how large is it, how far does a reader walk" asks for; COMMENTS=seed adds 40 doc comments at random to be judged
	@test/figures.sh $(COMMENTS)

# The linter spends a third of its processor time on collecting garbage otherwise.
FEWER_COLLECTIONS := GOGC=400 GOMEMLIMIT=6GiB
.PHONY: lint
lint: $(TOOLS)/golangci-lint-$(GOLANGCI_LINT_VERSION) ## check style, import directions and the usual mistakes
	@files=$$(gofmt -l $$(git ls-files -co --exclude-standard '*.go')); \
	if [ -n "$$files" ]; then echo "Not gofmt-ed (make fmt):"; echo "$$files"; exit 1; fi
	$(FEWER_COLLECTIONS) $< run --allow-parallel-runners ./...
	cd deploy && $(FEWER_COLLECTIONS) $< run --allow-parallel-runners ./...

.PHONY: fmt
fmt: $(TOOLS)/golangci-lint-$(GOLANGCI_LINT_VERSION) ## format all Go code
	$< fmt ./...

.PHONY: bench
bench: $(TOOLS)/benchstat-$(BENCHSTAT_VERSION) ## run the benchmarks COUNT=6 times and summarise them
	@mkdir -p .cache
	go test -run '^$$' -bench . -benchmem -count $(COUNT) -timeout 1h ./... | tee .cache/bench.txt
	@$< .cache/bench.txt

.PHONY: bench-peers
bench-peers: build conformance-setup ## the compactor beside a bare consumer, a bare echo, Kafka Streams and the official client on a real Kafka, with Java, Maven and Node; 15 minutes on a quiet machine
	go run ./bench/peers $(PEERS)

.PHONY: bench-memory
bench-memory: ## the compactor's memory with 2 million ended and 100,000 open runs, and its start after kill -9
	go test ./bench -run '^$$' -bench Memory -benchtime 1x -v -ended-runs 2000000 -ended-threads 1000 -open-runs 100000 -timeout 3h

.PHONY: bench-verify
bench-verify: ## skein verify --all of 1.6 million records beside refold and a plain read; docs/bench/verify.md tells more
	go test ./bench -run '^$$' -bench 'Verify$$' -benchtime 1x -v -verify-records 1600000 -rounds 3 -timeout 1h

.PHONY: bench-live
bench-live: ## live streams: first byte, added delay with 1,000 readers, memory a reader, 10,000 that wait; docs/bench/live.md tells more
	go test ./bench -run '^$$' -bench 'Attach$$' -benchtime 1x -v -readers 1000 -waiting 10000 -seconds 30 -timeout 1h

.PHONY: bench-tenants
bench-tenants: export SKEIN_TEST_BIN := $(CURDIR)/bin
bench-tenants: build ## 10,000 tenants with keys and quotas at Zipf's load on a real Kafka and ClickHouse: memory, metrics, lag; docs/bench/tenants.md tells more
	go test -v -count=1 -timeout 20m ./test/abuse -run ManyTenants -abuse.long -abuse.tenants=10000 -abuse.tenants-for=60s -abuse.tenants-runs=100

.PHONY: bench-page
bench-page: ## the page in Chromium: a thread of 10,000 runs, runs of 36,000 and 5,000 events, ten tabs, rest; docs/bench/page.md tells more
	go test -count=1 -v -timeout 1h -run 'IsQuick|ManyRuns|TenTabs|StateIsTheServers|StateAtAnEvent' ./test/page -page.long

.PHONY: live-long
live-long: ## cut live streams at 1,000 random points on a real Kafka, join each recorded run behind each of its events, connect 9,000 clients at once
	go test ./test/live -run CutAtRandom -count=1 -v -timeout 1h -args -cuts=1000
	go test ./test/live -run AStockClient -count=1 -v -timeout 1h -args -joins.all
	go test ./test/live -run Connect_JoinsARun -count=1 -v -timeout 1h -args -connects=9000

.PHONY: fuzz
fuzz: ## run every fuzz test for FUZZTIME=10s
	@go list ./... | while read -r pkg; do \
		go test -list '^Fuzz' $$pkg | grep '^Fuzz' | while read -r name; do \
			echo "$$pkg $$name"; \
			go test $$pkg -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) </dev/null || exit 1; \
		done || exit 1; \
	done

.PHONY: clean
clean: ## remove what was built and installed; data in .skein stays
	rm -rf bin .cache $(KIT)/node_modules

# Tools are built by the machine's own Go into the tree, one file a version.
$(GOTESTSUM):
	@mkdir -p $(@D)
	GOBIN=$(@D) go install gotest.tools/gotestsum@$(GOTESTSUM_VERSION)
	mv $(@D)/gotestsum $@

$(TOOLS)/golangci-lint-$(GOLANGCI_LINT_VERSION):
	@mkdir -p $(@D)
	GOBIN=$(@D) go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_LINT_VERSION)
	mv $(@D)/golangci-lint $@

$(RELEASER):
	GOBIN=$(@D) go install $(if $(filter %/goreleaser,$@),github.com/goreleaser/goreleaser/v2@$(GORELEASER_VERSION),github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@$(CYCLONEDX_VERSION))

$(TOOLS)/benchstat-$(BENCHSTAT_VERSION):
	@mkdir -p $(@D)
	GOBIN=$(@D) go install golang.org/x/perf/cmd/benchstat@$(BENCHSTAT_VERSION)
	mv $(@D)/benchstat $@
