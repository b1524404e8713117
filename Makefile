# Everything here runs on a bare machine with Go: what it needs, it fetches.
# A server for the tests is looked for in this order: REDIS_ADDRS, Docker, a local
# redis-server, an embedded one. REDIS_KIND=docker|process|embedded|given demands one,
# and REDIS_SERVER=redis-7.0|redis-8.0|valkey-8.1|valkey-9.1 a version; what else there
# is, "go doc ./internal/redistest" says.

.DEFAULT_GOAL := help
.PHONY: help demo lessons test more fuzz faults mutants soak editions check bench report

GO ?= go

# CI has .ci/gotest here, which runs a test that fails once more, by itself.
TEST ?= $(GO) test

# Modules of their own, so that nobody who uses locks depends on what they need.
MODULES := lab lab/clients lab/peers lab/report/browser clients/goredis clients/rueidis clients/redisc telemetry/lockotel docs/fencing docs/telemetry

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: ## compare the locks, and hold a flash sale, on the most real Redis available
	@cd lab && $(GO) mod download
	@$(GO) run -C lab ./cmd/lab compare
	@$(GO) run -C lab ./cmd/lab flashsale

lessons: ## how lock designs evolved: the list; ARGS='8 --step' gives lesson 8, command by command
	@cd lab && $(GO) mod download
	@$(GO) run -C lab ./cmd/lab lesson $(ARGS)

# What takes longest begins first, and more tests than processors go on at a time: most of
# their time they wait. What breaks many servers at once has the machine for itself: one that is too slow lets
# locks lapse, and proves nothing.
test: ## run all tests, with the race detector, on real servers
	@$(GO) mod download
	@cd lab && $(GO) mod download
	@$(GO) run ./internal/redistest/which
	$(TEST) -race -shuffle=on -p 4 -parallel 4 -timeout 20m ./cmd/locks ./redlock $$($(GO) list ./... | grep -v -e /redlock$$ -e cmd/locks$$)
	cd lab && $(TEST) -race -shuffle=on -p 4 -parallel 4 -timeout 20m ./cmd/lab $$($(GO) list ./... | grep -v -e lab/mutants$$ -e lab/faults$$ -e lab/nemesis$$ -e cmd/lab$$)
	cd lab && $(GO) test -run '^Test(Properties|Apply|Operators)$$' ./mutants
	cd lab && $(GO) test -race -shuffle=on -p 1 -timeout 20m ./faults ./nemesis

more: ## run what make test leaves out: the other modules, and more variants
	@$(GO) mod download
	@$(GO) run ./internal/redistest/which
	@set -e; for m in $(filter-out lab,$(MODULES)); do ( cd $$m; echo "module $$m"; $(TEST) -race -shuffle=on -timeout 20m ./... ); done
	$(GO) test -race -timeout 20m -run '^TestConformanceLeastRights$$' ./internal/subjects -all
	$(GO) test -race -timeout 20m -run '^TestSentinel$$' ./docs/production -all

# One target at a time, as go test has it. What it finds it writes to testdata/fuzz, where
# make test runs it from then on.
fuzz: ## look for input that parsers cannot read, 10 s each; ARGS='-fuzztime 10m' for longer
	@$(GO) mod download
	@grep -r --include='*_test.go' '^func Fuzz' . | sed 's#^\(.*\)/[^/]*:func \(Fuzz[A-Za-z0-9]*\).*#\1 \2#' | while read -r pkg target; do \
		echo "$$target in $$pkg"; $(GO) test -C $$pkg -run '^$$' -fuzz "^$$target\$$" -fuzztime 10s -parallel 2 $(ARGS) . || exit 1; done

faults: ## the matrix of faults, on all strategies and, in every row, on all their variants
	@$(GO) mod download
	@$(GO) run ./internal/redistest/which
	cd lab && $(GO) test -race -count=1 -timeout 30m -run '^TestCells$$' ./faults -all

mutants: ## put faults into the sources, one at a time, and see the tests find each
	@$(GO) mod download
	@$(GO) run ./internal/redistest/which
	cd lab && $(GO) test -count=1 -timeout 30m ./mutants

soak: ## an hour of random faults on all strategies; ARGS='-for 10m -seed 7' for others
	@$(GO) mod download
	@$(GO) run ./internal/redistest/which
	cd lab && $(GO) test -count=1 -timeout 0 -v -run '^Test(Nemesis|NotSurvived)$$' ./nemesis -parallel 6 -for 1h $(ARGS)

editions: ## the suite on all strategies, and the lessons, on Redis 7.0, 8.0, Valkey 8.1, 9.1, in containers
	@$(GO) mod download
	@$(GO) run -C lab ./editions $(ARGS)

# Of lab/peers the tidiness is not checked: the tests of one peer import a module that
# the proxy has not got, so "go mod tidy" needs -e there.
check: ## formatting, vet, lint, known vulnerabilities, tidiness, directions of imports
	@test -z "$$(gofmt -l .)" || { echo "gofmt -w these:"; gofmt -l .; exit 1; }
	$(GO) vet ./...
	$(GO) tool -modfile=.ci/tools/go.mod staticcheck ./...
	GO=$(GO) .ci/govulncheck
	$(GO) mod tidy -diff
	@set -e; for m in $(MODULES); do ( cd $$m; echo "module $$m"; \
		$(GO) vet ./...; $(GO) tool -modfile=$(CURDIR)/.ci/tools/go.mod staticcheck ./...; GO=$(GO) $(CURDIR)/.ci/govulncheck; \
		test $$m = lab/peers || $(GO) mod tidy -diff ); done
	$(GO) test ./internal/layout

bench: ## measure the transport, the locks, and their peers; ARGS='-only solo -reps 9' for others
	@$(GO) mod download
	@$(GO) run ./internal/redistest/which
	$(GO) test -run '^$$' -bench . -benchmem ./...
	cd lab/peers && $(GO) run . $(ARGS)

report: ## write docs/report.html from a run on the most real Redis available
	@cd lab && $(GO) mod download
	$(GO) run -C lab ./cmd/lab report -o $(CURDIR)/docs/report.html
