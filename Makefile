# cantle. `make help` lists the targets; README.md says the rest.
#
#   SAN=address,undefined | thread    build and test with sanitizers, in a directory of its own
#   TESTING=1                         with crash points and mutants, in a directory of its own
#   PREFIX=/usr/local SYSCONFDIR=/etc DESTDIR=    where `make install` puts things
#   COORD=file|zk KEEP=1              for `make demo`

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := all
.DELETE_ON_ERROR:

# --- what it needs (Debian 12) ---------------------------------------------------------------
BUILD_DEPS := g++ make ccache lld pkg-config libuv1-dev liblmdb-dev libzookeeper-st-dev libmsgpack-cxx-dev \
  libcli11-dev libexpected-dev libabsl-dev libxxhash-dev libssl-dev libgoogle-perftools-dev
RUN_DEPS := default-jre-headless libzookeeper-java libslf4j-java apt-utils procps util-linux jq
TEST_DEPS := libgtest-dev bats bats-support bats-assert bats-file parallel strace faketime lmdb-utils socat \
  netcat-openbsd iproute2 nftables e2fsprogs python3 python3-msgpack mandoc shellcheck clang clang-format clang-tidy \
  libclang-rt-14-dev
ALL_DEPS := $(BUILD_DEPS) $(RUN_DEPS) $(TEST_DEPS)
PEERS_DEPS := redis-server etcd-server libnghttp2-dev

# --- kinds of build ----------------------------------------------------------------------------
SAN ?=
TESTING ?=
comma := ,
KIND := $(if $(SAN),$(subst $(comma),-,$(SAN)),release)$(if $(TESTING),-testing)
B := build/$(KIND)
CCACHE := $(shell command -v ccache 2>/dev/null)
# Sources are named relative to this directory: another clone finds what is cached.
export CCACHE_NOHASHDIR := 1
CXX := g++
VERSION := 0.1.0
CXXFLAGS := -std=c++20 -O2 -g1 -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion -Werror \
  -fno-omit-frame-pointer -fstack-protector-strong -pthread
CPPFLAGS := -I. -DMSGPACK_NO_BOOST -DCANTLE_VERSION='"$(VERSION)"'
LDFLAGS := -pthread -fuse-ld=lld
ABSL_LIBS := $(shell pkg-config --libs absl_btree absl_flat_hash_map 2>/dev/null)
LDLIBS := -luv -llmdb -lzookeeper_st -lcrypto -lxxhash $(ABSL_LIBS)
# In the place of glibc's malloc, but not of a sanitizer's; the simulation has an allocator of its own.
ALLOCATOR := $(if $(SAN),,-ltcmalloc_minimal)
ifneq ($(TESTING),)
CPPFLAGS += -DCANTLE_TESTING
endif
ifneq ($(SAN),)
CXXFLAGS += -O1 -fsanitize=$(SAN) -fno-sanitize-recover=all
# Linked in: as shared libraries the two do not share their settings, and what `undefined` finds goes to stderr only.
LDFLAGS += -fsanitize=$(SAN) $(if $(findstring undefined,$(SAN)),-static-libasan -static-libubsan)
endif

# --- what there is -----------------------------------------------------------------------------
# Each room of lib is an archive; a room lists the rooms that it leans on (lib/README.md).
ROOMS := $(notdir $(patsubst %/,%,$(wildcard lib/*/)))
NEEDS_base :=
NEEDS_model := base
NEEDS_wire := model base
NEEDS_io := base
NEEDS_proto := model base
NEEDS_coord := io model base
NEEDS_store := wire model base
NEEDS_rpc := io wire model base
NEEDS_daemon := coord rpc wire io model base
NEEDS_meta := store coord wire io proto model base
NEEDS_client := daemon coord rpc wire io proto model base
# What tests share (test/support) is an archive, too, linked into its unit tests, the simulation and the tools.
NEEDS_support := base
archive = $(B)/lib$(1).a
archives = $(foreach r,$(1) $(NEEDS_$(1)),$(call archive,$(r)))
ALL_ARCHIVES := $(foreach r,client meta daemon store coord rpc wire io proto model base,$(if $(wildcard lib/$(r)/*.cc),$(call archive,$(r))))
obj = $(patsubst %.cc,$(B)/obj/%.o,$(1))

BINARIES := $(notdir $(patsubst %/,%,$(dir $(wildcard cmd/*/main.cc))))
SCRIPTS := $(notdir $(wildcard cmd/cantle-local/cantle-local))
UNIT_ROOMS := $(notdir $(patsubst %/,%,$(dir $(wildcard test/unit/*/*.cc))))
UNIT_ROOMS := $(sort $(UNIT_ROOMS))

.PHONY: all deps peers-deps demo test test-build test-san fuzz tidy test-unit test-sim test-conformance test-bats test-faults test-long bench bench-peers lint fmt install clean help
all: $(addprefix $(B)/bin/,$(BINARIES) $(SCRIPTS)) ## build every binary

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 20

# What is not there of the packages named.
define install
	@missing=$$(for p in $(1); do dpkg-query -W -f='$${Status}' $$p 2>/dev/null | grep -q 'ok installed' || echo $$p; done); \
	if [ -n "$$missing" ]; then \
	  sudo=$$([ "$$(id -u)" = 0 ] || echo sudo); \
	  $(2) \
	  $$sudo apt-get update -qq; \
	  $$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing >/dev/null; \
	fi
endef
deps: ## install what is needed to build, run and test (apt, as root or through sudo)
	$(call install,$(ALL_DEPS))
# Their packages start a server of their own when they are installed, unless a policy forbids it; one that is there is
# left as it is.
policy := /usr/sbin/policy-rc.d
forbid_start = if [ ! -e $(policy) ]; then trap "$$sudo rm -f $(policy)" EXIT; printf '\043!/bin/sh\nexit 101\n' | $$sudo tee $(policy) >/dev/null; $$sudo chmod 755 $(policy); fi;
peers-deps: deps
	$(call install,$(PEERS_DEPS),$(forbid_start))

# --- compiling. Outputs are written aside and renamed, so that two makes at once do no harm; the lock has the
# second wait for the first, whose result it then finds in the compiler's cache.
$(B)/obj/%.o: %.cc
	@mkdir -p $(@D)
	@echo "  CXX   $<"
	@flock $@.lock $(CCACHE) $(CXX) $(CPPFLAGS) $(CXXFLAGS) -MMD -MP -MT $@ -MF $@.$$$$.d -c $< -o $@.$$$$.o && mv $@.$$$$.d $(@:.o=.d) && mv $@.$$$$.o $@

define room_rules
$(call archive,$(1)): $(call obj,$(wildcard $(2)/*.cc))
	@mkdir -p $$(@D)
	@rm -f $$@.$$$$$$$$ && ar rcs $$@.$$$$$$$$ $$^ && mv $$@.$$$$$$$$ $$@
endef
$(foreach r,$(ROOMS),$(eval $(call room_rules,$(r),lib/$(r))))
$(eval $(call room_rules,support,test/support))

link = @mkdir -p $(@D); echo "  LINK  $@"; $(CXX) $(LDFLAGS) $(filter %.o,$^) -Wl,--start-group $(filter %.a,$^) -Wl,--end-group $(1) $(LDLIBS) -o $@.$$$$ && mv $@.$$$$ $@

define binary_rules
$(B)/bin/$(1): $(call obj,$(wildcard cmd/$(1)/*.cc)) $(ALL_ARCHIVES)
	$$(call link,$$(ALLOCATOR))
endef
$(foreach b,$(BINARIES),$(eval $(call binary_rules,$(b))))

$(B)/bin/cantle-local: cmd/cantle-local/cantle-local
	@install -D -m 755 $< $@

# One test program a room, so that a room is tested alone.
define unit_rules
$(B)/test/unit_$(1): $(call obj,$(wildcard test/unit/$(1)/*.cc)) $(call archives,$(1))
	$$(call link,-lgtest_main -lgtest)
endef
$(foreach r,$(UNIT_ROOMS),$(eval $(call unit_rules,$(r))))
UNIT_TESTS := $(foreach r,$(UNIT_ROOMS),$(B)/test/unit_$(r))

# What of a shell has logic worth simulating is linked in.
$(B)/test/sim: $(call obj,$(wildcard test/sim/*.cc) cmd/replpush/log_batch.cc) $(ALL_ARCHIVES) $(call archive,support)
	$(call link,-lgtest)
$(B)/test/models: $(call obj,$(wildcard test/models/*.cc))
	$(call link,-lgtest_main -lgtest)
$(B)/test/conformance: $(call obj,$(wildcard test/conformance/*.cc)) $(call archives,coord)
	$(call link,-lgtest)
$(B)/test/bench: $(call obj,$(wildcard test/bench/*.cc)) $(ALL_ARCHIVES)
	$(call link,$(ALLOCATOR))
# Not among what `make test` builds: it needs packages of its own.
$(B)/test/peers: $(call obj,$(wildcard test/peers/*.cc) test/bench/bench.cc test/bench/local_cluster.cc) $(ALL_ARCHIVES)
	$(call link,-lnghttp2 $(ALLOCATOR))

# --- the demonstration -------------------------------------------------------------------------------
COORD ?= file
KEEP ?= 0
demo: deps ## the main job, end to end, on this machine (COORD=file|zk, KEEP=1)
	@$(MAKE) --no-print-directory -j2 all
	@COORD=$(COORD) KEEP=$(KEEP) CANTLE_BIN=$(CURDIR)/$(B)/bin test/demo/demo.sh

# --- tests. Each ends with one line, N passed, N failed, N skipped; see test/README.md. -----------
TEST_PROGRAMS := $(UNIT_TESTS) $(B)/test/models $(if $(wildcard test/sim/*.cc),$(B)/test/sim) $(if $(wildcard test/conformance/*.cc),$(B)/test/conformance)
TEST_TOOLS := $(patsubst test/tools/%.cc,$(B)/test/%,$(wildcard test/tools/*.cc))
$(B)/test/%: $(B)/obj/test/tools/%.o $(ALL_ARCHIVES) $(call archive,support)
	$(call link)

test-build: all $(TEST_PROGRAMS) $(TEST_TOOLS)
# Seeds of each simulation in `make test`.
TEST_SEEDS := 2000
test: deps ## everything but the long tests; ends with N passed, N failed, N skipped
	@$(MAKE) --no-print-directory -j2 test-build
	@test/run.sh $(B) unit models conformance beside=sim:$(TEST_SEEDS) bats:'!slow' faults:'!slow'
test-unit: deps ## unit tests alone
	@$(MAKE) --no-print-directory -j2 $(UNIT_TESTS)
	@test/run.sh $(B) unit
test-sim: deps ## the simulation (SEEDS=n for more or fewer seeds)
	@$(MAKE) --no-print-directory -j2 $(B)/test/sim
	@test/run.sh $(B) sim:$(or $(SEEDS),$(TEST_SEEDS))
test-conformance: deps ## the coordination backends, ZooKeeper among them
	@$(MAKE) --no-print-directory -j2 $(B)/test/conformance $(TEST_TOOLS)
	@test/run.sh $(B) conformance
test-bats: deps ## the binaries as an operator meets them
	@$(MAKE) --no-print-directory -j2 all $(TEST_TOOLS)
	@test/run.sh $(B) bats faults:'!slow'
# What catches mutants (test/sim/mutants.cc).
MUTANT_TESTS := sim unit_proto unit_store
test-long: deps ## the long tests: many seeds, mutants, sanitizers, faults
	@$(MAKE) --no-print-directory -j2 test-build
	@$(MAKE) --no-print-directory -j2 TESTING=1 all $(MUTANT_TESTS:%=build/release-testing/test/%)
	@$(build_san)
	@SUITE_TIMEOUT=14400 BATS_TEST_TIMEOUT=1800 test/run.sh $(B) models:long sim:100000 bats:slow faults:slow \
	  build/release-testing mutants $(SAN_SUITES)
test-san: deps ## what is run with sanitizers, with both sorts of them (SAN=thread: with one)
	@$(build_san)
	@test/run.sh $(SAN_SUITES)
# Sorts of sanitizers, and what is run with each: the simulation has one thread, so that a few seeds will do for `thread`.
SANS := $(or $(SAN),address$(comma)undefined thread)
build_san = for san in $(SANS); do $(MAKE) --no-print-directory -j2 SAN=$$san test-build; done
SAN_SUITES = $(foreach san,$(SANS),build/$(subst $(comma),-,$(san)) unit conformance sim:$(if $(findstring thread,$(san)),20,100) bats:san)
bench: deps ## the figures, as ratios in one run
	@$(MAKE) --no-print-directory -j2 all $(B)/test/bench
	@$(B)/test/bench
bench-peers: peers-deps ## the figures of quorum tables beside etcd's and Redis's, which it installs, starts and stops
	@$(MAKE) --no-print-directory -j2 all $(B)/test/peers
	@$(B)/test/peers

# --- fuzzers: one a decoder (test/fuzz/fuzz_*.cc), with its corpus beside it. FUZZ_SECONDS=300 each. --
FUZZERS := $(patsubst test/fuzz/%.cc,%,$(wildcard test/fuzz/fuzz_*.cc))
FUZZ_SECONDS ?= 300
FUZZ_SOURCES := $(wildcard lib/base/*.cc lib/model/*.cc lib/wire/*.cc lib/store/*.cc lib/io/*.cc lib/rpc/*.cc)
FUZZ_SOURCES += $(addprefix lib/client/,split_plan.cc json.cc $(notdir $(wildcard lib/client/format*.cc))) lib/daemon/json.cc
FUZZ_SOURCES += $(wildcard lib/coord/layout*.cc) lib/coord/recovery_text.cc $(addprefix lib/proto/,quorum_recovery.cc quorum_log.cc)
FUZZ_OBJ := build/fuzz/obj
.PRECIOUS: $(FUZZ_OBJ)/%.o
$(FUZZ_OBJ)/%.o: %.cc
	@mkdir -p $(@D)
	@echo "  FUZZ  $<"
	@$(CCACHE) clang++ $(CPPFLAGS) -std=c++20 -O1 -g1 -pthread -fsanitize=fuzzer-no-link,address,undefined -MMD -MP -c $< -o $@.$$$$.o -MF $(@:.o=.d) -MT $@ && mv $@.$$$$.o $@
build/fuzz/bin/%: $(FUZZ_OBJ)/test/fuzz/%.o $(patsubst %.cc,$(FUZZ_OBJ)/%.o,$(FUZZ_SOURCES))
	@mkdir -p $(@D)
	@clang++ -fsanitize=fuzzer,address,undefined -pthread $^ $(LDLIBS) -o $@
fuzz: deps ## run every fuzzer for FUZZ_SECONDS
	@$(MAKE) --no-print-directory -j2 $(addprefix build/fuzz/bin/,$(FUZZERS))
	@for f in $(FUZZERS); do mkdir -p build/fuzz/new/$$f; echo "  RUN   $$f"; \
	  build/fuzz/bin/$$f -max_total_time=$(FUZZ_SECONDS) -print_final_stats=1 build/fuzz/new/$$f test/fuzz/corpus/$${f#fuzz_} 2>build/fuzz/$$f.log \
	    || { tail -40 build/fuzz/$$f.log; exit 1; }; grep -E 'number_of_executed_units' build/fuzz/$$f.log; done; echo "fuzz: ok"

# --- quality ---------------------------------------------------------------------------------------
SOURCES := $(shell git ls-files 'lib/*.h' 'lib/*.cc' 'cmd/*.h' 'cmd/*.cc' 'test/*.h' 'test/*.cc' 2>/dev/null)
SHELL_SOURCES := $(shell git ls-files 'cmd/cantle-local/*' 'test/*.sh' 'test/*.bash' 'test/*.bats' .ci/run 2>/dev/null)
TIDY := $(patsubst %.cc,build/tidy/%.ok,$(filter lib/%.cc cmd/%.cc,$(SOURCES)))
lint: deps ## formatting, clang-tidy, shellcheck, man pages, layering
	@clang-format --dry-run -Werror $(SOURCES)
	@test/lint/layers.sh
	@test/lint/mutants.sh
	@shellcheck -x $(SHELL_SOURCES)
	@for p in man/*.[1-8]; do mandoc -T lint -W warning $$p; done
	@$(MAKE) --no-print-directory -j2 tidy
	@echo "lint: ok"
tidy: $(TIDY)
build/tidy/%.ok: %.cc .clang-tidy
	@mkdir -p $(@D)
	@echo "  TIDY  $<"
	@clang-tidy --quiet $< -- $(CPPFLAGS) -std=c++20 2>$@.log || { cat $@.log; exit 1; }
	@touch $@
fmt: deps ## format the sources in place
	@clang-format -i $(SOURCES)

# --- installing ------------------------------------------------------------------------------------
PREFIX ?= /usr/local
DESTDIR ?=
# Not outside the home of somebody who installs there.
SYSCONFDIR ?= $(if $(filter /usr /usr/local,$(PREFIX:/=)),/etc,$(PREFIX)/etc)
install: all ## install to PREFIX and SYSCONFDIR, below DESTDIR
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/share/man $(DESTDIR)$(SYSCONFDIR)/cantle $(DESTDIR)$(PREFIX)/lib/systemd/system
	install -m 755 $(addprefix $(B)/bin/,$(BINARIES) $(SCRIPTS)) $(DESTDIR)$(PREFIX)/bin
	for p in man/*.[1-8]; do install -D -m 644 $$p $(DESTDIR)$(PREFIX)/share/man/man$${p##*.}/$${p##*/}; done
	for u in systemd/*.service systemd/*.target; do sed 's|@PREFIX@|$(PREFIX)|g; s|/etc/cantle/|$(SYSCONFDIR)/cantle/|g' $$u >$(DESTDIR)$(PREFIX)/lib/systemd/system/$${u##*/}; done
	install -D -m 644 systemd/cantle.sysusers $(DESTDIR)$(PREFIX)/lib/sysusers.d/cantle.conf
	for c in etc/*; do [ -e $(DESTDIR)$(SYSCONFDIR)/cantle/$${c##*/} ] || install -m 644 $$c $(DESTDIR)$(SYSCONFDIR)/cantle; done

clean: ## remove what was built
	rm -rf build

-include $(shell find $(B)/obj $(FUZZ_OBJ) -name '*.d' 2>/dev/null)
