# Everything here runs on a bare machine with Go, and fetches what it needs. "make model" alone needs a tool that you install: it
# says how.
# A server for the tests is looked for in this order: REDIS_ADDRS, Docker, a local
# redis-server, an embedded one. PostgreSQL and etcd likewise: see CONTRIBUTING.md. REDIS_KIND=docker|process|embedded|given demands one,
# and REDIS_SERVER=redis-7.0|redis-8.0|redis-8.6|valkey-8.1|valkey-9.1 a version; what else there
# is, "go doc ./internal/testkit/redistest" says.

.DEFAULT_GOAL := help
.PHONY: help demo lessons exercises exercise play model test more fuzz faults mutants simulate soak editions check bench report release

export GO ?= go
TEST ?= $(GO) test

# Modules of their own, so that nobody who uses locks depends on what they need.
MODULES := cmd/locks lab lab/clients lab/stores lab/peers clients/goredis clients/rueidis clients/redisc clients/valkey clients/gocron stores/etcd stores/postgres telemetry/lockotel docs/use/fencing docs/run/telemetry .ci/release

BUILDING = echo "building, if anything is new; the first time that takes a minute or two" >&2

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: ## compare the locks, and hold a flash sale, on the most real Redis available
	@$(BUILDING)
	@cd lab && $(GO) mod download
	@$(GO) run -C lab ./cmd/lab compare
	@$(GO) run -C lab ./cmd/lab flashsale

lessons: ## how lock designs evolved: the list; ARGS='8 --predict' gives lesson 8, and asks first what will come
	@$(BUILDING)
	@cd lab && $(GO) mod download
	@$(GO) run -C lab ./cmd/lab lesson $(ARGS)

exercises: ## locks with one mistake each, for you to put right: the list
	@$(MAKE) --no-print-directory exercise N=

exercise: ## judge an exercise: make exercise N=3; ARGS=--solution shows what changes
	@$(BUILDING)
	@cd lab && $(GO) mod download
	@$(GO) run -C lab ./cmd/lab exercise $(N) $(ARGS)

play: ## write docs/learn/play.html, a page on which you break the locks by hand
	@$(BUILDING)
	@cd lab && $(GO) mod download
	@$(GO) run -C lab ./cmd/lab play -o $(CURDIR)/docs/learn/play.html

model: ## have a model checker look for a history that breaks RedLock; it needs spin and cc; ARGS='-DDRIFT=0' for a variant
	@$(GO) run ./docs/learn/model $(ARGS)

# Tests mostly wait, so more of them go on at a time than there are processors; the packages that
# take longest begin first. Of faults, simulations and the nemesis this plays a slice: see the targets faults, simulate and soak.
WIDE := -race -shuffle=on -p 4 -parallel 6 -timeout 15m
LONG := ./redlock ./lab/simulate ./lab/compare ./lab/cmd/lab ./internal/testkit/subjects ./setnxgetset ./lab/nemesis ./internal/testkit/rig ./docs/use/connecting

# What make test leaves out.
MORE := '^Test(ConformanceTwoDead|ConformanceLeastRightsOfAll|Guarantees)$$'

# One run for all modules keeps the processors busy. Two of them need a newer Go than the others.
IN_ALL := GOWORK=$(CURDIR)/.ci/all.work
NEWER := lab/peers .ci/release
TOGETHER := $(patsubst %,./%/...,$(filter-out $(NEWER),$(MODULES)))

test: ## run all tests, with the race detector, on real servers
	@set -e; for m in . cmd/locks lab; do ( cd $$m; $(GO) mod download ); done
	@$(GO) run -race ./internal/testkit/redistest/which
	$(IN_ALL) $(TEST) $(WIDE) -skip $(MORE) $(LONG) ./... ./cmd/locks ./lab/...

more: ## run what make test leaves out: other modules, RedLock with two dead servers, least rights, all simulations once
	@set -e; for m in . $(MODULES); do ( cd $$m; $(GO) mod download ); done
	@$(GO) run -race ./internal/testkit/redistest/which
	$(IN_ALL) $(TEST) $(WIDE) $(filter-out ./cmd/locks/... ./lab/...,$(TOGETHER))
	@set -e; for m in $(NEWER); do ( cd $$m; echo "module $$m"; $(TEST) $(WIDE) ./... ); done
	$(IN_ALL) $(TEST) $(WIDE) -run $(MORE) ./redlock ./lab/compare ./internal/testkit/subjects
	cd lab && $(TEST) -count=1 -timeout 20m ./simulate -all

# One target at a time, as go test has it. What it finds it writes to testdata/fuzz, where
# make test runs it from then on.
fuzz: ## look for input that parsers cannot read, 10 s each; ARGS='-fuzztime 10m' for longer
	@$(GO) mod download
	@grep -r --include='*_test.go' '^func Fuzz' . | sed 's#^\(.*\)/[^/]*:func \(Fuzz[A-Za-z0-9]*\).*#\1 \2#' | while read -r pkg target; do \
		echo "$$target in $$pkg"; $(GO) test -C $$pkg -run '^$$' -fuzz "^$$target\$$" -fuzztime 10s -parallel 2 $(ARGS) . || exit 1; done

faults: ## the matrix of faults, on all strategies and, in every row, on all their variants
	@$(GO) mod download
	@$(GO) run -race ./internal/testkit/redistest/which
	cd lab && $(GO) test -race -count=1 -timeout 60m ./faults -all

mutants: ## put faults into the sources, one at a time: the tests must kill 97 %; ARGS='-since HEAD~3', ARGS=engine
	@$(GO) mod download
	@cd lab && $(GO) mod download
	$(GO) run -C lab ./mutants $(ARGS)
	$(GO) run -C lab ./mutants -properties

# No race detector: it would take five times as long, and make test plays a slice with it.
simulate: ## random faults on virtual time: ten minutes, in which all strategies live through hours; ARGS='-for 8h' for a night
	@cd lab && $(GO) mod download
	cd lab && $(GO) test -count=1 -timeout 0 -v -run '^TestSimulate$$' ./simulate -for 10m $(ARGS)

soak: ## random faults on real servers: an hour, half an hour on each strategy; ARGS='-for 10m -seed 7' for others
	@$(GO) mod download
	@$(GO) run -race ./internal/testkit/redistest/which
	cd lab && $(GO) test -count=1 -timeout 0 -v -run '^TestNemesis$$' ./nemesis -parallel 6 -for 30m $(ARGS)

editions: ## the tests of all that speaks to servers on Redis 7.0, 8.0, 8.6, Valkey 8.1, 9.1, in containers
	@$(GO) mod download
	@lab/editions/run $(ARGS)

# Of lab/peers the tidiness is not checked: the tests of one peer import a module that
# the proxy has not got, so "go mod tidy" needs -e there.
check: ## formatting, vet, lint, English, known vulnerabilities, tidiness, directions of imports, the API
	@test -z "$$(gofmt -l .)" || { echo "gofmt -w these:"; gofmt -l .; exit 1; }
	$(GO) build -modfile=.ci/tools/go.mod -o bin/ tool
	$(IN_ALL) .ci/lint ./... $(TOGETHER)
	@set -e; for m in $(NEWER); do ( cd $$m; echo "module $$m"; $(CURDIR)/.ci/lint ./... ); done
	@set -e; for m in . $(MODULES); do ( cd $$m; $(GO) build -o /dev/null ./...; test $$m = lab/peers || $(GO) mod tidy -diff ); done
	GOOS=js GOARCH=wasm $(GO) build -C lab -o /dev/null ./play/wasm
	$(GO) tool -modfile=.ci/vale/go.mod vale --config .ci/vale/vale.ini --output line .
	$(GO) test ./internal/layout
	$(GO) run -C .ci/release . -api

bench: ## measure the transport, the locks, and their peers; ARGS='-only solo -reps 9' for others
	@$(GO) mod download
	@$(GO) run -race ./internal/testkit/redistest/which
	$(GO) test -run '^$$' -bench . -benchmem ./...
	cd lab/peers && $(GO) run . $(ARGS)

report: ## write docs/learn/report.html from a run on the most real Redis available
	@cd lab && $(GO) mod download
	$(GO) run -C lab ./cmd/lab report -o $(CURDIR)/docs/learn/report.html

# It pushes nothing: it commits and tags here, and prints the push.
release: ## prepare a release of all modules: make release VERSION=v0.1.0; ARGS=-n only says what it would do
	@$(GO) run -C .ci/release . $(ARGS) $(VERSION)
