# Clusters for Bats files. Load it with `load ../lib/cluster` (test/bats, test/faults).
#
#   setup_file() { cluster_up --servers 3; }
#   teardown_file() { cluster_down; }
#   teardown() { cluster_diagnose; }          # what the daemons said, when a test failed
#
# cluster_up makes one cluster a file, in the file's temporary directory, with ports of its own, and sets
# CLUSTER_DIR, CANTLE_COORD, CANTLE_CLUSTER and PATH. COORD=zk runs the file on a private ZooKeeper ensemble.
#
# Nothing here sleeps to wait for something: wait_for has a deadline and tries again.
# shellcheck shell=bash

bats_require_minimum_version 1.5.0
bats_load_library bats-support
bats_load_library bats-assert
bats_load_library bats-file

export CANTLE_BIN=${CANTLE_BIN:-$(cd "$BATS_TEST_DIRNAME/../.." && pwd)/build/release/bin}
export PATH=$CANTLE_BIN:$PATH

# Sanitizers report to files, each Bats file's to a directory of its own (test/run.sh says where).
if [ -n "${SAN_REPORTS:-}" ]; then
  export SAN_FILE_REPORTS=$SAN_REPORTS/${BATS_TEST_FILENAME##*/}
  mkdir -p "$SAN_FILE_REPORTS"
  for options in {ASAN,LSAN,UBSAN,TSAN}_OPTIONS; do
    export "$options=${!options:-$SAN_FLAGS}:log_path=$SAN_FILE_REPORTS/report" # the last path counts
  done
fi

readonly WAIT_POLL=0.05

# now_ms: the monotonic enough clock of the tests.
now_ms() {
  local us=${EPOCHREALTIME/[.,]/}
  printf '%s' "$((us / 1000))"
}

# wait_for SECONDS COMMAND…: until it succeeds; fails, and says what it waited for, at the deadline.
wait_for() {
  local seconds=$1 deadline
  deadline=$(($(now_ms) + seconds * 1000))
  shift
  until "$@" >/dev/null 2>&1; do
    if [ "$(now_ms)" -ge "$deadline" ]; then
      echo "waited $seconds s for: $*" >&2
      return 1
    fi
    sleep "$WAIT_POLL"
  done
}

# spawn LOG COMMAND…: in the background with nothing inherited but the log (a process that holds Bats'
# descriptors 3 and 4 keeps Bats waiting for ever). Sets SPAWN_PID.
spawn() {
  local log=$1 fd n
  shift
  (
    exec </dev/null >"$log" 2>&1
    for fd in "/proc/$BASHPID/fd"/*; do
      n=${fd##*/}
      if [ "$n" -gt 2 ]; then eval "exec $n>&-" 2>/dev/null || true; fi
    done
    exec "$@"
  ) &
  export SPAWN_PID=$!
}

# free_port: a TCP port of 127.0.0.1 that nobody listens on now.
free_port() {
  local port
  while :; do
    port=$((32700 - SRANDOM % 2000))
    if ! (exec 9<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
      printf '%s' "$port"
      return
    fi
  done
}

# cluster_up [FLAGS of cantle-local up]: once a file, in setup_file (or in a test, after cluster_down).
# Closes Bats' descriptors for what it starts: cantle-local does.
cluster_up() {
  export CLUSTER_DIR=${CLUSTER_DIR:-$BATS_FILE_TMPDIR/c}
  cantle-local --dir "$CLUSTER_DIR" up --coord "${COORD:-file}" "$@" >"$BATS_FILE_TMPDIR/up.log" 2>&1 || {
    cat "$BATS_FILE_TMPDIR/up.log" >&2
    return 1
  }
  cluster_env
}

cluster_env() {
  export CANTLE_LOCAL_DIR=$CLUSTER_DIR
  eval "$(cantle-local env)"
}

cluster_down() {
  if [ -n "${CLUSTER_DIR:-}" ] && [ -d "$CLUSTER_DIR/run" ]; then cantle-local --dir "$CLUSTER_DIR" down; fi
  sanitizers_silent
}

# sanitizers_silent: no program of this file has reported anything that was not told yet. Asked when the daemons have
# ended: what they leaked is known then.
sanitizers_silent() {
  [ -n "${SAN_FILE_REPORTS:-}" ] || return 0
  local report new=0
  for report in "$SAN_FILE_REPORTS"/report.*; do
    if [ ! -s "$report" ] || [ -e "$SAN_FILE_REPORTS/told.${report##*/report.}" ]; then continue; fi
    : >"$SAN_FILE_REPORTS/told.${report##*/report.}"
    echo "--- $report"
    head -n 60 "$report"
    new=1
  done
  [ "$new" = 0 ]
}

# server VERB NAME…: cantle-local on this file's cluster: `server kill p2`, `server start p2`.
server() {
  cantle-local --dir "$CLUSTER_DIR" "$@"
}

# running NAME: its process does, by the rules of cantle-local. One that only has its pid may be another's: pids come
# round in minutes.
running() {
  local pid start stat
  { read -r pid start <"$CLUSTER_DIR/run/$1.pid" && read -r stat <"/proc/$pid/stat"; } 2>/dev/null || return 1
  # shellcheck disable=SC2086  # the fields behind "(name) ", split on purpose
  set -- ${stat##*) }
  [ "${20}" = "$start" ] && { [ "$1" != Z ] || [ "${18}" -gt 1 ]; } && [ "$1" != X ]
}
not_running() { ! running "$1"; }

# cluster_diagnose: in teardown(). Says what the daemons logged, if the test failed.
cluster_diagnose() {
  [ "${BATS_TEST_COMPLETED:-}" != 1 ] && [ -d "${CLUSTER_DIR:-/nonexistent}/run" ] || return 0
  echo "--- the cluster in $CLUSTER_DIR after a failed test:"
  cantle-local --dir "$CLUSTER_DIR" status || true
  local log
  for log in "$CLUSTER_DIR"/run/*.log; do
    echo "--- $log"
    tail -n "${DIAGNOSE_LINES:-25}" "$log"
  done
}

# verified TABLE [FLAGS]: every replica holds the same; what differs goes to stderr.
verified() {
  partc verify "$@" --timeout "${VERIFY_TIMEOUT:-60s}"
}

# own_cluster_down: teardown() of a test with a cluster of its own; ends the load that WRITER names first.
own_cluster_down() {
  if [ -n "${WRITER:-}" ]; then kill -INT "$WRITER" 2>/dev/null || true; fi
  cluster_diagnose
  cluster_down
}

# load_big TABLE: 48 MiB of log in eight records, z0 to z7: the journals soon do not reach back to what came before.
load_big() {
  local value n
  value=$(head -c 500000 /dev/zero | tr '\0' x)
  for ((n = 0; n < 96; n++)); do printf 'z%d\t%s\n' $((n % 8)) "$value"; done >"$BATS_TEST_TMPDIR/big"
  partc load "$1" "$BATS_TEST_TMPDIR/big" --format tsv --batch 1 --timeout 120s >/dev/null
}

# quorum_up: three servers with the quorum table q, which somebody leads.
quorum_up() {
  cluster_up --servers 3 --mdservers 1
  zkctl table create q --keyspace range --replication quorum --replicas 3 >/dev/null
  wait_for 20 leads
}

# leader: the server that leads q's only partition, as its government says; fails when none does.
leader() {
  zkctl cat distribution/1_q/regions/1/government | awk '
    $1 == "leader:" { who = $2 }
    $1 == "voters:" { for (i = 2; i <= NF; i++) { split($i, v, "/"); if (v[3] == who) name = v[2] } }
    END { print name; exit name == "" }'
}
leads() { leader >/dev/null; }
leader_is_not() { [ -n "$(leader)" ] && [ "$(leader)" != "$1" ]; }

# records FILE COUNT [VALUE_BYTES [SEED]]: COUNT records as tsv, keys k0000000…, values that name key and seed.
records() {
  awk -v count="$2" -v size="${3:-32}" -v seed="${4:-1}" 'BEGIN {
    for (i = 0; i < count; i++) {
      value = sprintf("v%d.%d.", seed, i)
      while (length(value) < size) value = value "x"
      printf "k%07d\t%s\n", i, value
    }
  }' >"$1"
}
