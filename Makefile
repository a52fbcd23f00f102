# `make` lists the targets. Tests that mount need root; each runs in a mount
# namespace of its own and leaves nothing behind.

GO      ?= go
TOOL    := $(GO) tool -modfile=hack/tools/go.mod
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
FUZZTIME ?= 30s
BIN     := bin/csi-volmgr

.DEFAULT_GOAL := help
.PHONY: vet staticcheck gofumpt arch test-tools demo-tools unraced $(shell awk -F: '/^[a-z-]+:.*## / {print $$1}' Makefile)

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# Without the tag grpc imports golang.org/x/net/trace, whose templates call methods by name.
# The linker then keeps every method of every type: a fifth of the program.
build: ## build bin/csi-volmgr
	CGO_ENABLED=0 $(GO) build -trimpath -tags grpcnotrace -ldflags '-X main.release=$(VERSION)' -o $(BIN) ./cmd/csi-volmgr

agent: ## build bin/agent from examples/agent: a node agent that runs pods of a cluster, with csi-volmgr in its process
	cd examples/agent && CGO_ENABLED=0 $(GO) build -trimpath -o $(CURDIR)/bin/agent .

PREFIX ?= /usr/local

install: build ## install the program, its units, manual pages, completion and examples below DESTDIR, and a configuration if there is none; PREFIX is /usr/local
	install -D -m 755 $(BIN) $(DESTDIR)$(PREFIX)/bin/csi-volmgr
	install -d $(DESTDIR)/usr/sbin $(DESTDIR)$(PREFIX)/lib/csi-volmgr/nomad
	ln -sf $(PREFIX)/bin/csi-volmgr $(DESTDIR)/usr/sbin/mount.csi # where mount(8) looks for it
	ln -sf $(PREFIX)/bin/csi-volmgr $(DESTDIR)$(PREFIX)/lib/csi-volmgr/nomad/csi-volmgr-nomad
	install -d $(DESTDIR)$(PREFIX)/lib/systemd/system
	for u in $(notdir $(wildcard deploy/systemd/*.service deploy/systemd/*.socket deploy/systemd/*.timer)); do \
		sed 's#/usr/bin/csi-volmgr#$(PREFIX)/bin/csi-volmgr#' deploy/systemd/$$u > $(DESTDIR)$(PREFIX)/lib/systemd/system/$$u; done
	[ -e $(DESTDIR)/etc/containers/containers.conf.d/csi-volmgr.conf ] || install -D -m 644 deploy/containers/csi-volmgr.conf $(DESTDIR)/etc/containers/containers.conf.d/csi-volmgr.conf
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/share/csi-volmgr deploy/config/*.yaml
	install -m 755 deploy/config/first-config $(DESTDIR)$(PREFIX)/share/csi-volmgr
	$(DESTDIR)$(PREFIX)/share/csi-volmgr/first-config $(DESTDIR)
	for d in compose quadlet systemd; do install -D -m 644 -t $(DESTDIR)$(PREFIX)/share/csi-volmgr/examples/$$d examples/$$d/*; done
	hack/man.sh $(BIN) $(DESTDIR)$(PREFIX)/share/man/man1
	install -d $(DESTDIR)$(PREFIX)/share/bash-completion/completions $(DESTDIR)$(PREFIX)/share/zsh/site-functions $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d
	$(BIN) completion bash > $(DESTDIR)$(PREFIX)/share/bash-completion/completions/csi-volmgr
	$(BIN) completion zsh > $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_csi-volmgr
	$(BIN) completion fish > $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/csi-volmgr.fish

deb: build ## build a Debian package in bin/, with its checksum; the same commit gives the same bytes
	hack/deb/build.sh $(BIN) $(VERSION) $(CURDIR)/bin

image: build ## build an image of the program alone in bin/image, an OCI archive for podman load; needs no registry
	hack/image.sh $(BIN) $(shell $(GO) env GOARCH) $(VERSION) $(shell git log -1 --format=%ct) $(CURDIR)/bin/image/csi-volmgr.oci.tar

dist: ## build archives and images of the commit for each architecture in bin/dist, twice, with their checksums, and fail if the two differ
	hack/dist.sh $(VERSION) $(CURDIR)/bin/dist

sbom: build ## list the program's modules in bin/sbom.json (CycloneDX)
	$(TOOL) cyclonedx-gomod bin -json -std -noserial -output bin/sbom.json bin/csi-volmgr

dist-test: ## build a release for this machine twice, compare the two, and run the image (root; podman)
	@hack/host-tools.sh --docs
	hack/dist-test.sh

deb-test: ## install, upgrade with volumes mounted, remove and purge the package, in a bare Debian, and type the first commands of the pages (root, a minute)
	hack/deb/test.sh

bare-test: ## type the README's two commands in a bare Debian, the tests up to the first of each package (root, Debian)
	@hack/host-tools.sh --bare
	hack/bare-test.sh

# Each test has one run, under the race detector where it has something to see: .ci/run sets RACE=1.
RACE ?=
TESTFLAGS ?=

test: ## run every test (root, under 10 minutes on 2 cores); RACE=1 runs each once, as race does or without the detector
	@hack/host-tools.sh $(if $(RACE),--race)
ifeq ($(RACE),)
	$(GO) test $(TESTFLAGS) -shuffle=on -timeout 20m ./...
	cd examples/agent && $(GO) test $(TESTFLAGS) -shuffle=on ./...
else
	+@$(MAKE) --no-print-directory -j2 --output-sync=target race unraced
endif

# What the race detector does not run: the planted bugs are built without it, after a power cut one
# goroutine opens thousands of journals, a driver that is killed does not say what the detector saw,
# pkg/manager/plan is functions of values, and the tests of hack read the tree.
UNRACED_TESTS := ^(TestPlantedBugsAreFound|TestNothingDurableIsLostInAPowerCut|TestKilledAtAnyMomentEveryCallCanBeRepeated)$$
UNRACED_ROOMS := -e /test/crash -e /test/faults -e /hack/ -e /manager/plan

# By default a program under the race detector sleeps a second before it exits, and the tests start many.
race: ## run the tests under the race detector (needs a C compiler), except those that kill or break the program or read the tree
	@hack/host-tools.sh --race --list
	GORACE=atexit_sleep_ms=0 E2E_RACE=1 $(GO) test $(TESTFLAGS) -race -shuffle=on -timeout 30m -skip '$(UNRACED_TESTS)' $$($(GO) list ./... | grep -v $(UNRACED_ROOMS))
	cd examples/agent && $(GO) test $(TESTFLAGS) -race -shuffle=on ./...

unraced:
	$(GO) test $(TESTFLAGS) -shuffle=on -timeout 20m $$($(GO) list ./... | grep $(UNRACED_ROOMS))
	$(GO) test $(TESTFLAGS) -shuffle=on -timeout 20m -run '$(UNRACED_TESTS)' ./test/sim ./internal/journal ./internal/localdriver

check: vet staticcheck gofumpt arch race ## vet, staticcheck, gofumpt, the rules of the tree, and race

vet: arches
	$(GO) vet ./...
	$(GO) vet -tags cluster ./test/cluster
	cd hack/bench && $(GO) vet ./... # builds nothing that the program does not, and knows whether its go.mod is stale
	cd examples/agent && $(GO) vet ./...
	cd test/csi-sanity && $(GO) vet ./...

arches: ## check the types of the program and its tests for each architecture that it is built for
	$(GO) run ./hack/arches ./cmd/... ./internal/... ./pkg/... ./test/...

staticcheck:
	$(TOOL) staticcheck ./...
	cd examples/agent && $(GO) tool -modfile=../../hack/tools/go.mod staticcheck ./...
	cd test/csi-sanity && $(GO) tool -modfile=../../hack/tools/go.mod staticcheck ./...

gofumpt:
	@out="$$($(TOOL) gofumpt -l cmd examples hack/arch hack/arches hack/items hack/parity hack/fields hack/faults hack/api internal pkg test)"; if [ -n "$$out" ]; then echo "not formatted (run '$(TOOL) gofumpt -w' on them):"; echo "$$out"; exit 1; fi

arch: ## check imports, sizes, banned calls, what pkg exports, documents and parity's citations
	$(GO) test -count=1 ./hack/arch ./hack/api ./hack/parity

cover: ## print coverage per package; pkg/manager/plan must have 100 %
	hack/cover.sh

fuzz: ## run each fuzz target for FUZZTIME (30s)
	hack/fuzz.sh $(FUZZTIME)

bench: ## compare with the kubelet and the bare driver calls, and print which goals are reached (root, an hour)
	hack/bench/run.sh --suite=goals,disk,api,intree --reps=5 --out=$(CURDIR)/bin/bench/results.jsonl

bench-quick: ## run the most telling part of bench (root, under 2 minutes)
	hack/bench/run.sh --suite=quick --reps=1 --retries=0 --quiet-wait=600ms --out=$(CURDIR)/bin/bench/quick-$(shell date +%s).jsonl

BEFORE ?= HEAD~1
bench-before: ## compare with the revision BEFORE (HEAD~1) in one run, five alternations of the quick suite (root, 8 minutes)
	hack/bench/before.sh $(BEFORE) --reps=5 --out=$(CURDIR)/bin/bench/before-$(shell date +%s).jsonl

PROFILE := $(CURDIR)/bin/bench/profile
bench-profile: ## print where the library's CPU goes: shares of a profile of 4,000 pods and of a restart (root, 5 minutes)
	rm -rf $(PROFILE) && for cells in full/bind/4000x1 restart; do \
	  hack/bench/run.sh --suite=goals --only=$$cells --reps=5 --retries=0 --direct-concurrency=32 --out=$(CURDIR)/bin/bench/profile.jsonl \
	    --systems='volmgr=volmgrbench --profile-dir=$(PROFILE)' || exit; done
	bin/bench/shares $(PROFILE)

benchstat: ## run the benchmarks of the parts, and compare them with hack/bench/baseline.txt (root, 3 minutes)
	hack/bench/parts.sh

bench-baseline: ## run the benchmarks of the parts and write hack/bench/baseline.txt
	hack/bench/parts.sh --write

bench-journal: ## compare bbolt, pebble and a preallocated log as the journal's store, on the disk of JOURNAL_DIR (the tree)
	cd hack/bench/journal && JOURNAL_DIR=$${JOURNAL_DIR:-$(CURDIR)/bin} $(GO) test -count=1 . && JOURNAL_DIR=$${JOURNAL_DIR:-$(CURDIR)/bin} $(GO) test -run '^$$' -bench . -count=5 .

SEEDS      ?= 100000
FIRST_SEED ?= 1

sim: ## simulate SEEDS (100000) seeds from FIRST_SEED (1) on: faults, crashes, reboots; the rules checked after every step
	$(GO) test -count=1 -timeout 60m -v -run '^(TestSeeds|TestScripts)$$' ./test/sim -seeds $(SEEDS) -first-seed $(FIRST_SEED)

mends: ## plant each bug of test/sim and revert the fix of each of its scripts, and print what finds each (2 minutes)
	$(GO) test -count=1 -timeout 60m -v -run '^(TestScriptsFailWithoutTheirMends|TestPlantedBugsAreFound)$$' ./test/sim

moments: test-tools ## make 200 group snapshots with each kind of driver while a program writes: their clones must show one moment (root, 12 minutes)
	E2E_SNAPSHOTS=200 $(GO) test -count=1 -timeout 30m -v -run '^TestSnapshotsOfAGroup$$' ./test/e2e

# Rooms whose tests make no mounts and start no second program, which an emulated process cannot.
EMULATED := ./pkg/state ./pkg/translate ./pkg/manager/plan ./internal/host/beneath ./internal/host/pathname \
	./internal/wants/kind ./internal/wants/resolve ./internal/wants/content ./internal/provision/controller
EMULATED_JOURNAL := ^(TestAJournalOfTheOtherByteOrderIsNamedAndLeftAlone|TestJournalOfAnOlderProgramIsReadAndKept|TestTheRoomOfALargeDisk|TestAJournalOfAKernelWithOtherPages)$$

test-emulated: ## run tests that make no mounts on emulated processors: arm64, arm of 32 bits, s390x of the other byte order (Debian)
	@hack/host-tools.sh --emulated
	for arch in arm64:aarch64 arm:arm s390x:s390x; do \
		export CGO_ENABLED=0 GOARM=7 GOARCH=$${arch%:*}; \
		$(GO) test -exec qemu-$${arch#*:} -timeout 30m $(EMULATED) && \
		$(GO) test -exec qemu-$${arch#*:} -timeout 30m -run '$(EMULATED_JOURNAL)' ./internal/journal || exit; done

# Rooms that open paths which others may change. Tests say by name which call the kernel lacks.
KERNEL_ROOMS := ./internal/host/beneath ./internal/host/leftover ./internal/host/mount ./internal/kinds/files \
	$(addprefix ./internal/kinds/,fsgroup image/unpack ownership payload poddir quota subpath)
KERNELS ?= 4.18 5.4 filtered 5.10 5.15 6.1 6.6 6.7

test-kernels: test-tools ## run tests on each of KERNELS, played by a filter that answers ENOSYS to newer system calls (root, 5 minutes)
	CGO_ENABLED=0 $(GO) build -o bin/oldkernel ./test/oldkernel
	for kernel in $(KERNELS); do echo "Linux $$kernel:" && $(GO) test -count=1 -exec '$(CURDIR)/bin/oldkernel '$$kernel $(KERNEL_ROOMS) || exit; done

crash: test-tools ## kill the program with SIGKILL at every place where it changes the host; it must converge (root, up to an hour)
	$(GO) test -count=1 -timeout 90m -v -run '(AtEveryPlaceItConverges|TestEveryPlaceIsReachedOrListed)$$' ./test/crash -every

restarts: test-tools ## restart the daemon 100 times with 100 idle pods: no call may be made, no mount change (root)
	$(GO) test -count=1 -timeout 30m -v -run '^TestRestartsTouchNothing$$' ./test/faults -restarts 100 -idle-pods 100

bench-frozen: test-tools ## print what frozen mounts cost others: 1 of FROZEN_PODS (200), and 50 at the start (root, 3 minutes)
	$(GO) test -count=1 -timeout 30m -v -run '^TestBenchFrozen$$' ./test/faults -frozen-bench $${FROZEN_PODS:-200}

sanity: test-tools ## run csi-sanity against the local driver, or against CSI_ENDPOINT=unix:///...
	cd test/csi-sanity && $(GO) test -count=1 -v -timeout 20m ./...

test-strict: test-tools ## run the end-to-end suite and 10,000 random calls of the controller against the strict driver; its verdict ends the output of each (root, 2 minutes)
	E2E_DRIVER=strict $(GO) test -count=1 -v -timeout 20m ./test/e2e
	STRICT_CALLS=10000 $(GO) test -count=1 -v -timeout 10m -run RandomCalls ./test/csi-strict

test-driver: test-tools ## run the end-to-end suite against DRIVER_BINARY=path [REGISTRAR_BINARY=path] [DRIVER_ARGS="--flag ..."]
	@[ -x '$(DRIVER_BINARY)' ] || { echo "test-driver: DRIVER_BINARY=path/to/driver is missing, or is no program (csi-driver-host-path: its hostpathplugin)" >&2; exit 2; }
	@[ -z '$(REGISTRAR_BINARY)' ] || [ -x '$(REGISTRAR_BINARY)' ] || { echo "test-driver: REGISTRAR_BINARY is no program" >&2; exit 2; }
	DRIVER_BINARY='$(abspath $(DRIVER_BINARY))' REGISTRAR_BINARY='$(abspath $(REGISTRAR_BINARY))' DRIVER_ARGS='$(DRIVER_ARGS)' $(GO) test -count=1 -timeout 20m ./test/e2e/...

test-vm: ## run tests of nfs and similar kinds on the stock kernel of this Debian (6.1 on Debian 12), in QEMU (Debian, under 4 minutes; builds the machine in bin/vm first)
	@hack/host-tools.sh --vm
	$(GO) vet -tags vm ./test/vm/...
	$(GO) test -tags vm -count=1 -v -timeout 60m ./test/vm

# Processes that killed engines leave end with the PID namespace, whose init reaps at
# once: podman waits 20 seconds for a monitor that has ended and is not reaped.
OWN_PROCESSES := unshare --pid --fork --kill-child --mount-proc tini --

test-docker: ## run containers of dockerd, docker-compose and podman on the volume plugin, and kill each at every step (root, Debian)
	@hack/host-tools.sh --docker
	$(GO) vet -tags docker ./test/docker
	$(OWN_PROCESSES) $(GO) test -tags docker -count=1 -v -parallel 4 -timeout 30m ./test/docker

bench-docker: ## time docker run with a csi volume that is staged, one that is not, and a local one (root, Debian)
	@hack/host-tools.sh --docker
	BENCH_RUNS=$${BENCH_RUNS:-30} $(OWN_PROCESSES) $(GO) test -tags docker -count=1 -v -timeout 30m -run '^TestBenchRun$$' ./test/docker

test-attacks: test-tools ## run the attack tests (links, swaps, names, paths) and print the result of each; includes a race of 20 s (root)
	$(GO) run ./hack/faults -list=Attacks
	$(GO) test -count=1 -v -run '^TestAttackExchangeRace$$' ./internal/kinds/subpath -race-binds 5000 -race-time 20s

UPDATES ?= 10000

torture: ## read configMap, secret and projected volumes during UPDATES (10000) updates: readers may miss nothing; kill the writer before each system call (root, 6 minutes)
	$(GO) test -count=1 -timeout 60m -run '^(TestReaderSeesOneSetOrTheOther|TestReadersOfUpdatesMissNothing)$$' ./internal/kinds/payload ./internal/kinds/files -updates $(UPDATES)
	$(GO) test -count=1 -v -run '^TestKilledAtEverySystemCall$$' ./internal/kinds/payload

faults: test-tools ## run the tests of faults (a driver that lies, hangs, dies...) and print the result of each (root; needs what test-cluster and test-vm need)
	@hack/host-tools.sh --vm --cluster
	test/cluster/kube/build.sh $(CURDIR)/bin/kube
	test/cluster/sidecars/build.sh $(CURDIR)/bin/sidecars
	$(MAKE) --no-print-directory agent
	UPGRADE_FROM=$(UPGRADE_FROM) KUBE_BINARY=$(CURDIR)/bin/kube SIDECARS=$(CURDIR)/bin/sidecars AGENT_BINARY=$(CURDIR)/bin/agent $(GO) run ./hack/faults

# The previous release or, before the first one, an older commit.
UPGRADE_FROM ?= $(shell git describe --tags --abbrev=0 HEAD^ 2>/dev/null || git rev-list --first-parent --skip=100 -n 1 HEAD)

upgrade: test-tools ## replace the program of UPGRADE_FROM by this one and back, with volumes of each kind mounted (root, a minute)
	UPGRADE_FROM=$(UPGRADE_FROM) $(GO) test -count=1 -v -run '^TestUpgradeAndBack' ./test/faults

vendors: ## compare the requests of vendors' classes in test/faults/testdata with those of the real sidecars (WRITE=1 writes them anew; the first build takes minutes)
	cd test/cluster/sidecars && $(GO) test -count=1 . $(if $(WRITE),-args -write)

parity: vendors ## run the tests that show what a host of CSI drivers must do, and print the result of each item; fail on an item without a test or reason, or on a case of the sidecars' tests that has none (root)
	$(GO) run ./hack/parity -run $(if $(SEED),-seed $(SEED))

parity-mutants: ## remove behaviours, one at a time, and fail if the test cited for one still passes
	$(GO) run ./hack/parity -holes -mutants

parity-docs: ## rewrite the tables of docs/parity.md, docs/sidecars.md and docs/upstream-scenarios.md
	$(GO) run ./hack/parity -write >/dev/null

asserted: ## compare the table of docs/upstream-scenarios.md with the strings that Kubernetes' storage tests look for, and with the program's
	version=v1$$($(GO) list -m -f '{{.Version}}' k8s.io/api | sed 's/^v0//') && \
		cd / && source=$$($(GO) mod download -json k8s.io/kubernetes@$$version | sed -n 's/^.*"Dir": "\(.*\)".*$$/\1/p') && cd - >/dev/null && \
		KUBERNETES_SOURCE=$${source:?} $(GO) test -count=1 -v -run '^TestWhatKubernetesTestsLookFor' ./hack/parity

fields-docs: ## rewrite docs/reference/fields.md: what csi-volmgr does with each field of Kubernetes' objects
	$(GO) run ./hack/fields

api: ## rewrite docs/reference/go-api.txt: the exported names of the packages below pkg
	$(GO) run ./hack/api

test-handshake: ## walk every state of two nodes, a controller and csi-volmgr about one attached volume, and check that every planted bug is found
	EXPLORE=full $(GO) test -count=1 -v -timeout 20m -run OfTheHandshake ./internal/cluster/report

test-flips: ## flip 10,000 bits, bytes and sectors each of a journal: every start must succeed, and nothing may be silently missing (10 minutes)
	EXPLORE=full $(GO) test -count=1 -v -timeout 60m -run TestAFlipInTheFile ./internal/journal

# The release of Kubernetes that test-cluster runs; empty means that of test/cluster/kube/go.mod, 1.36 the one before.
KUBE ?=

test-cluster: ## run against a real Kubernetes control plane with the real sidecars, which it builds first (root; the first build takes 6 to 8 minutes; KUBE=1.36 runs the previous release)
	@hack/host-tools.sh --cluster
	test/cluster/kube/build.sh $(CURDIR)/bin/kube $(KUBE)
	test/cluster/sidecars/build.sh $(CURDIR)/bin/sidecars
	$(MAKE) --no-print-directory agent
	KUBE_BINARY=$(CURDIR)/bin/kube SIDECARS=$(CURDIR)/bin/sidecars AGENT_BINARY=$(CURDIR)/bin/agent $(GO) test -tags cluster -count=1 -v -shuffle=on -timeout 15m ./test/cluster

test-scale: ## count the requests of 2,000 pods on a node, and have 500 nodes come back to their API server, in virtual time (10 minutes)
	SCALE=full $(GO) test -count=1 -v -timeout 60m -run '^(TestRequestsOfManyPods|TestManyNodesComeBack)$$' ./test/outage

demo: demo-tools build ## see it work: a daemon, a driver and a pod's volumes, in a namespace of their own (root)
	hack/demo.sh $(BIN)

demo-picture: build ## draw what the demo prints into docs/images/demo.svg (root)
	hack/demo-picture.sh $(BIN) > docs/images/demo.svg.new && mv docs/images/demo.svg.new docs/images/demo.svg

screenshots: ## run ui-test, and rewrite docs/images/page-*.png
	$(MAKE) --no-print-directory ui-test UI_DOCS=$(CURDIR)/docs/images

docs: build ## rewrite docs/reference/cli.md, config.md and openapi.yaml
	hack/cli-docs.sh $(BIN) > docs/reference/cli.md
	$(GO) test -count=1 -run '^TestConfigurationPageHasEveryField$$' ./cmd/csi-volmgr -update >/dev/null
	$(GO) test -count=1 -run '^TestOpenAPIDocumentIsOfThisServer$$' ./internal/serve/server -update-openapi >/dev/null

docs-test: build ## run the commands of README.md and of the pages in docs/, in namespaces of their own (root)
	@hack/host-tools.sh --docs
	hack/docs-test.sh $(BIN)

ui-test: build ## drive the status page in a headless Chromium; screenshots go to bin/ui (root)
	@hack/host-tools.sh --ui
	cd test/ui && CSI_VOLMGR=$(CURDIR)/$(BIN) UI_SHOTS=$(CURDIR)/bin/ui UI_DOCS=$(UI_DOCS) $(GO) test -count=1 -v .

metrics-test: ## test the metrics, and the alerts with promtool (package prometheus)
	@hack/host-tools.sh --metrics
	$(GO) test -count=1 ./internal/serve/metrics
	promtool check rules deploy/prometheus/alerts.yaml
	promtool test rules deploy/prometheus/alerts_test.yaml

host-tools: ## list programs that the tests and the local driver lack, and how to get them
	@hack/host-tools.sh --list

# What the tests lack is installed as root on Debian; NO_INSTALL=1 only lists it.
test-tools:
	@hack/host-tools.sh

demo-tools:
	@hack/host-tools.sh --demo

clean: ## remove the files that builds made
	rm -rf bin
