# cantle. `make help` lists the targets; README.md says the rest.
#
#   SAN=address,undefined | thread    build and test with sanitizers, in a directory of its own
#   PREFIX=/usr/local DESTDIR=        where `make install` puts things
#   COORD=file|zk KEEP=1              for `make demo`

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := all
.DELETE_ON_ERROR:

# --- what it needs (Debian 12) ---------------------------------------------------------------
BUILD_DEPS := g++ make ccache lld pkg-config libuv1-dev liblmdb-dev libzookeeper-st-dev libmsgpack-cxx-dev \
  libcli11-dev libexpected-dev libabsl-dev libxxhash-dev libssl-dev
RUN_DEPS := default-jre-headless libzookeeper-java libslf4j-java apt-utils procps util-linux jq
TEST_DEPS := libgtest-dev bats bats-support bats-assert bats-file parallel strace faketime lmdb-utils socat \
  netcat-openbsd iproute2 nftables e2fsprogs python3 python3-msgpack mandoc shellcheck clang clang-format clang-tidy \
  libclang-rt-14-dev
ALL_DEPS := $(BUILD_DEPS) $(RUN_DEPS) $(TEST_DEPS)

# --- kinds of build ----------------------------------------------------------------------------
SAN ?=
KIND := $(if $(SAN),$(subst $(comma),-,$(SAN)),release)
comma := ,
KIND := $(if $(SAN),$(subst $(comma),-,$(SAN)),release)
B := build/$(KIND)
CCACHE := $(shell command -v ccache 2>/dev/null)
CXX := g++
VERSION := 0.1.0
CXXFLAGS := -std=c++20 -O2 -g1 -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion -Werror \
  -fno-omit-frame-pointer -fstack-protector-strong -pthread
CPPFLAGS := -I. -DMSGPACK_NO_BOOST -DCANTLE_VERSION='"$(VERSION)"'
LDFLAGS := -pthread -fuse-ld=lld
ABSL_LIBS := $(shell pkg-config --libs absl_btree absl_flat_hash_map 2>/dev/null)
LDLIBS := -luv -llmdb -lzookeeper_st -lcrypto -lxxhash $(ABSL_LIBS)
ifneq ($(SAN),)
CXXFLAGS += -O1 -fsanitize=$(SAN) -fno-sanitize-recover=all
LDFLAGS += -fsanitize=$(SAN)
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
NEEDS_daemon := coord wire io model base
NEEDS_client := daemon coord wire io proto model base
archive = $(B)/lib$(1).a
archives = $(foreach r,$(1) $(NEEDS_$(1)),$(call archive,$(r)))
ALL_ARCHIVES := $(foreach r,client daemon store coord wire io proto model base,$(if $(wildcard lib/$(r)/*.cc),$(call archive,$(r))))
obj = $(patsubst %.cc,$(B)/obj/%.o,$(1))

BINARIES := $(notdir $(patsubst %/,%,$(dir $(wildcard cmd/*/main.cc))))
SCRIPTS := $(notdir $(wildcard cmd/cantle-local/cantle-local))
UNIT_ROOMS := $(notdir $(patsubst %/,%,$(dir $(wildcard test/unit/*/*.cc))))
UNIT_ROOMS := $(sort $(UNIT_ROOMS))

.PHONY: all deps deps-check demo test test-unit test-sim test-conformance test-bats test-faults test-long bench lint fmt install clean help
all: $(addprefix $(B)/bin/,$(BINARIES) $(SCRIPTS)) ## build every binary

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 20

deps: ## install what is needed to build, run and test (apt, as root or through sudo)
	@missing=$$(for p in $(ALL_DEPS); do dpkg-query -W -f='$${Status}' $$p 2>/dev/null | grep -q 'ok installed' || echo $$p; done); \
	if [ -n "$$missing" ]; then \
	  sudo=$$([ "$$(id -u)" = 0 ] || echo sudo); \
	  $$sudo apt-get update -qq; \
	  $$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing >/dev/null; \
	fi

# --- compiling. Outputs are written aside and renamed, so that two makes at once do no harm. -----
$(B)/obj/%.o: %.cc
	@mkdir -p $(@D)
	@echo "  CXX   $<"
	@$(CCACHE) $(CXX) $(CPPFLAGS) $(CXXFLAGS) -MMD -MP -MT $@ -MF $@.$$$$.d -c $< -o $@.$$$$.o && mv $@.$$$$.d $(@:.o=.d) && mv $@.$$$$.o $@

define room_rules
$(call archive,$(1)): $(call obj,$(wildcard lib/$(1)/*.cc))
	@mkdir -p $$(@D)
	@rm -f $$@.$$$$$$$$ && ar rcs $$@.$$$$$$$$ $$^ && mv $$@.$$$$$$$$ $$@
endef
$(foreach r,$(ROOMS),$(eval $(call room_rules,$(r))))

link = @mkdir -p $(@D); echo "  LINK  $@"; $(CXX) $(LDFLAGS) $(filter %.o,$^) -Wl,--start-group $(filter %.a,$^) -Wl,--end-group $(1) $(LDLIBS) -o $@.$$$$ && mv $@.$$$$ $@

define binary_rules
$(B)/bin/$(1): $(call obj,$(wildcard cmd/$(1)/*.cc)) $(ALL_ARCHIVES)
	$$(call link)
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

$(B)/test/sim: $(call obj,$(wildcard test/sim/*.cc)) $(ALL_ARCHIVES)
	$(call link,-lgtest)
$(B)/test/conformance: $(call obj,$(wildcard test/conformance/*.cc)) $(ALL_ARCHIVES)
	$(call link,-lgtest)
$(B)/test/bench: $(call obj,$(wildcard test/bench/*.cc)) $(ALL_ARCHIVES)
	$(call link)

clean: ## remove what was built
	rm -rf build

-include $(shell find $(B)/obj -name '*.d' 2>/dev/null)
