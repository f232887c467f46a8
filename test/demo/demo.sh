#!/usr/bin/env bash
# The main job, end to end, on this machine: `make demo` (COORD=zk, KEEP=1, RATE=3000).
#
# A cluster of three servers takes this machine's own Debian package index twice. During the second load a
# partition is split and a server is killed and started again. At the end every record must be on every replica.
# Then several clients increment counters in a quorum table while its leaders are killed and stopped, and it is split and
# merged again: the sum is exact.
set -euo pipefail

COORD=${COORD:-file}   # file | zk: the embedded coordination service, or a private ZooKeeper ensemble
KEEP=${KEEP:-0}        # 1: leave the cluster up
RATE=${RATE:-3000}     # records a second of the second load
BIN=${CANTLE_BIN:-$(cd "$(dirname "$0")/../.." && pwd)/build/release/bin}
export PATH=$BIN:$PATH

WORK=$(mktemp -d "${TMPDIR:-/tmp}/cantle-demo.XXXXXX")
INPUT=$WORK/packages.deb822
export CANTLE_LOCAL_DIR=$WORK/cluster

main() {
  trap finish EXIT
  trap 'exit 130' INT TERM
  step "the input: this machine's package index"
  fetch_input
  step "a cluster of three servers, coordination service: $COORD"
  cantle-local up --servers 3 --mdservers 3 --coord "$COORD"
  eval "$(cantle-local env)"
  step "a table: range keyspace, push replication, three replicas"
  zkctl table create packages --keyspace range --replication push --replicas 3
  zkctl table show packages

  step "first load: as fast as it can"
  partc load packages "$INPUT" --format deb822 --json >"$WORK/load1.json"
  figures_of load1
  step "second load: $RATE records/s, while a partition is split and a server dies"
  second_load
  step "all replicas hold the same, and it is what was loaded"
  check_result
  step "a quorum table: counters, while leaders are killed and stopped, and they are split and merged again"
  count_through_failures
  step "a look around"
  look_around
  step "figures"
  print_figures
  done_well=1
}

step() { printf '\n== %s\n' "$*"; }
fail() {
  printf 'demo: failed: %s\n' "$*" >&2
  exit 1
}
now_us() { printf '%s' "${EPOCHREALTIME/[.,]/}"; }
seconds_since() { awk -v from="$1" -v to="$(now_us)" 'BEGIN { printf "%.2f", (to - from) / 1e6 }'; }
value_of() { jq -r ".$2" "$WORK/$1.json"; } # NAME FIELD

# --- the input -----------------------------------------------------------------------------------------
fetch_input() {
  apt-cache dumpavail >"$INPUT" || true
  if [ "$(grep -c '^Package:' "$INPUT")" -lt 1000 ]; then
    echo "the package lists are empty: apt-get update"
    if [ "$(id -u)" = 0 ]; then apt-get update -qq; else sudo apt-get update -qq; fi
    apt-cache dumpavail >"$INPUT"
  fi
  [ "$(grep -c '^Package:' "$INPUT")" -ge 1000 ] || fail "apt-cache dumpavail gives no packages"
  printf '%s records, %s bytes\n' "$(grep -c '^Package:' "$INPUT")" "$(stat -c %s "$INPUT")"
}

# --- the second load: a steady writer, and what happens to it ----------------------------------------------
second_load() {
  partc load packages "$INPUT" --format deb822 --json --rate "$RATE" --window 64 --batch 1 \
    --gap-log "$WORK/gaps" >"$WORK/load2.json" 2>"$WORK/load2.err" &
  LOADER=$!
  run_for 4 "the load alone, to compare with"
  split_begun=$(now_us)
  splitter split packages "$(partc route packages -o name)"
  split_ended=$(now_us)
  partc route packages
  run_for 2 "the load on two partitions"
  echo "SIGKILL to p2"
  cantle-local kill p2
  run_for 3 "the load without p2"
  local begun
  begun=$(now_us)
  cantle-local start p2 # returns when p2 is ready: caught up with the other replicas
  back_seconds=$(seconds_since "$begun")
  echo "p2 is back and caught up after $back_seconds s"
  wait "$LOADER" || fail "the second load: $(cat "$WORK/load2.err")"
  LOADER=
  load2_ended=$(now_us)
  figures_of load2
}

# The load goes on meanwhile; that it does not end before is part of the demonstration.
run_for() { # SECONDS WHY
  echo "$2: $1 s"
  local deadline=$(($(now_us) + $1 * 1000000))
  while [ "$(now_us)" -lt "$deadline" ]; do
    kill -0 "$LOADER" 2>/dev/null || fail "the second load ended too early; a lower RATE gives it more time ($(cat "$WORK/load2.err"))"
    sleep 0.1
  done
}

figures_of() { # NAME
  jq -r '"\(.records) records in \(.seconds * 10 | round / 10) s: \(.records_per_second | round) records/s, "
    + "\(.megabytes_per_second * 10 | round / 10) MB/s; \(.rejected) rejected, \(.retries) retries"' "$WORK/$1.json"
}

# --- the result -----------------------------------------------------------------------------------------------
check_result() {
  partc verify packages --against "$INPUT" --format deb822 --timeout 120s --json >"$WORK/verify.json" ||
    fail "verify: $(cat "$WORK/verify.json")"
  agree_seconds=$(seconds_since "$load2_ended")
  jq -r 'to_entries[] | "\(.key)  \(.value)"' "$WORK/verify.json" | column -t
  zkctl fsck
}

# --- the second act: exactly once ----------------------------------------------------------------------------
leader_of_counters() {
  zkctl tree counters --json |
    jq -er '[.tables[0].regions[] | select(.state == "active") | .government.leader | values][0] // empty'
}

count_through_failures() {
  zkctl table create counters --keyspace range --replication quorum --replicas 3
  local clients=() n
  for n in 1 2 3 4; do
    partc bench incr counters --records 20 --in-flight 4 --count 5500 --rate 500 --timeout 30s --seed "$n" --json \
      --gap-log "$WORK/gaps$n" >"$WORK/counting$n.json" 2>"$WORK/counting$n.err" &
    clients+=($!)
  done
  CLIENTS="${clients[*]}"
  local what who
  for what in kill split kill merge stop; do
    pause 1.5
    if [ "$what" = split ]; then
      splitter split counters 1 --at "$(partc scan counters --limit 11 -o name | tail -n 1)"
      continue
    fi
    if [ "$what" = merge ]; then
      merge_counters
      continue
    fi
    who=$(leader_of_counters) || fail "nobody leads the counters"
    echo "$what $who, which leads"
    cantle-local "$what" "$who"
    pause 0.5
    cantle-local start "$who"
  done
  for n in 0 1 2 3; do
    wait "${clients[n]}" || fail "a client: $(cat "$WORK/counting$((n + 1)).err" "$WORK/counting$((n + 1)).json")"
  done
  CLIENTS=
  counted=$(cat "$WORK"/counting?.json | jq -s 'map(.acknowledged) | add')
  repeats=$(cat "$WORK"/counting?.json | jq -s 'map(.repeats) | add')
  count_gap=$(cat "$WORK"/counting?.json | jq -s 'map(.longest_gap_ms) | max | round')
  sum=$(partc scan counters --json | jq -s 'map(.value | tonumber) | add')
  echo "increments acknowledged: $counted; sum of the counters: $sum; answered as repeats: $repeats"
  if [ "$counted" != 22000 ] || [ "$sum" != "$counted" ]; then fail "the sum is not what was acknowledged"; fi
  partc verify counters --timeout 60s
}

# A leader that is too slow has a merge aborted, rather than let clients wait: then it is begun again.
merge_counters() {
  local try first last
  first=$(partc scan counters --limit 1 -o name)
  last=$(partc scan counters --reverse --limit 1 -o name)
  for try in 1 2 3; do
    if splitter merge counters "key:$first" "key:$last"; then return; fi
    echo "merge, try $try: aborted"
  done
  fail "the counters were not merged"
}

pause() { sleep "$1"; } # so that the clients are at work: part of what is shown, nothing is waited for

look_around() {
  for key in bash libc6 zlib1g; do partc get packages "$key" | head -n 3; done
  partc scan packages --prefix libc --limit 5 --keys-only
  zkctl status
  zkctl tree
}

longest_gap() { # FROM_US TO_US: in ms
  awk -v from="$1" -v to="$2" '$1 >= from && $1 - $2 <= to && $2 > longest { longest = $2 }
    END { printf "%.1f", longest / 1000 }' "$WORK/gaps"
}

print_figures() {
  local length=$((split_ended - split_begun))
  {
    echo "first load|$(value_of load1 records_per_second | cut -d. -f1) records/s, $(value_of load1 megabytes_per_second | cut -c1-5) MB/s"
    echo "second load|$(value_of load2 records_per_second | cut -d. -f1) records/s asked for: $RATE"
    echo "split|$((length / 1000)) ms"
    echo "longest gap of the writer in as long a time before the split|$(longest_gap $((split_begun - length)) "$split_begun") ms"
    echo "longest gap of the writer during the split|$(longest_gap "$split_begun" "$split_ended") ms"
    echo "longest gap of the writer in all (p2 was killed)|$(value_of load2 longest_gap_ms | cut -d. -f1) ms"
    echo "p2 ready again after its start|$back_seconds s"
    echo "all replicas the same after the last write|$agree_seconds s"
    echo "counters: increments acknowledged, and their sum|$counted, $sum"
    echo "counters: longest gap of a client (two leaders killed, one stopped, a split, a merge)|$count_gap ms"
  } | column -t -s '|'
}

# --- the end ---------------------------------------------------------------------------------------------------
done_well=0
LOADER=
CLIENTS=
finish() {
  local status=$?
  trap - EXIT
  for client in $LOADER $CLIENTS; do kill "$client" 2>/dev/null || true; done
  if [ "$done_well" = 0 ]; then
    for log in "$CANTLE_LOCAL_DIR"/run/*.log; do
      [ -s "$log" ] && printf -- '--- %s\n' "$log" && tail -n 15 "$log"
    done >&2 || true
  fi
  if [ "$KEEP" = 1 ] && [ -d "$CANTLE_LOCAL_DIR/run" ]; then
    # shellcheck disable=SC2016  # for the reader's shell
    printf '\nThe cluster is still up. To talk to it:\n  export CANTLE_LOCAL_DIR=%q PATH=%q:$PATH\n' "$CANTLE_LOCAL_DIR" "$BIN"
    # shellcheck disable=SC2016
    printf '  eval "$(cantle-local env)"\n  partc get packages bash\n  cantle-local down --purge\n'
  else
    if [ -d "$CANTLE_LOCAL_DIR/run" ]; then cantle-local down --purge; fi
    rm -rf "$WORK"
  fi
  if [ "$done_well" = 1 ]; then
    echo "demo: ok"
    exit 0
  fi
  echo "demo: failed" >&2
  exit $((status ? status : 1))
}

main "$@"
