#!/usr/bin/env bats
# scan --consistent: all pages of a partition of a quorum table show one state, whatever is written between them.
# bats file_tags=san
load ../lib/cluster

setup() {
  export CLUSTER_DIR=$BATS_TEST_TMPDIR/c
  FIFO=$BATS_TEST_TMPDIR/fifo
  mkfifo "$FIFO"
}
teardown() {
  cluster_diagnose
  cluster_down
}

# fill WORD: 40 records of 100 kB, four pages, each beginning with WORD.
fill() {
  local value n
  value=$(head -c 100000 /dev/zero | tr '\0' x)
  for ((n = 10; n < 50; n++)); do printf 'k%d\t%s%s\n' "$n" "$1" "$value"; done >"$BATS_TEST_TMPDIR/$1"
  partc load q "$BATS_TEST_TMPDIR/$1" --format tsv --timeout 60s >/dev/null
}

# begin_scan [FLAGS]: prints into a pipe that nobody empties: its first page is under way, and the next is not asked for.
begin_scan() {
  # shellcheck disable=SC2016
  spawn "$BATS_TEST_TMPDIR/scan.err" bash -c 'partc scan q -o tsv "$@" >"$0"; echo "status=$?" >&2' "$FIFO" "$@"
  exec 7<"$FIFO"
  IFS= read -r -u 7 FIRST
}
# end_scan: the rest. Sets WORDS, what the values begin with, in one line.
end_scan() {
  WORDS=$( (printf '%s\n' "$FIRST"; cat <&7) | cut -f2 | cut -c1-3 | sort | uniq -c | awk '{ printf "%s%s=%s", sep, $2, $1; sep = " " }')
  exec 7<&-
  wait_for 20 grep -q '^status=' "$BATS_TEST_TMPDIR/scan.err"
  cat "$BATS_TEST_TMPDIR/scan.err"
}
rpc() {
  local socket=$CLUSTER_DIR/run/$1.sock
  shift
  "$BATS_TEST_DIRNAME/../lib/rpc.py" "$socket" "$@"
}
kept_by() { rpc "$1" status '{}' | jq '.counts[] | select(.name == "scans_kept") | .value'; }
keeps() { [ "$(kept_by "$1")" = "$2" ]; }

@test "pages of a consistent scan show one state; those of another show each its own" {
  quorum_up
  fill old
  begin_scan --consistent
  wait_for 10 keeps "$(leader)" 1
  fill new
  end_scan
  assert_equal "$WORDS" "old=40"
  grep -qx 'from "": as of LSN [0-9]*' "$BATS_TEST_TMPDIR/scan.err"
  grep -qx 'status=0' "$BATS_TEST_TMPDIR/scan.err"
  keeps "$(leader)" 0
  fill old
  begin_scan
  fill new
  end_scan
  [[ $WORDS == *new=* ]]
  # Downwards, and what was just written is in it.
  begin_scan --consistent --reverse
  fill old
  end_scan
  assert_equal "$WORDS" "new=40"
}

@test "whoever leads by then, the scan goes on where its state is kept; without that server it ends" {
  quorum_up
  fill old
  local old
  old=$(leader)
  begin_scan --consistent
  # Another leads while the old one is stopped; what it kept is there when it goes on.
  server kill "$old" --signal STOP
  wait_for 20 leader_is_not "$old"
  fill new
  server kill "$old" --signal CONT
  end_scan
  assert_equal "$WORDS" "old=40"
  begin_scan --consistent
  server kill "$(leader)"
  end_scan
  grep -q 'SNAPSHOT_TOO_OLD' "$BATS_TEST_TMPDIR/scan.err"
  grep -qx 'status=1' "$BATS_TEST_TMPDIR/scan.err"
}

@test "a state is not kept for ever, and not for push tables" {
  quorum_up
  fill old
  begin_scan --consistent
  wait_for 10 keeps "$(leader)" 1
  wait_for 30 keeps "$(leader)" 0
  end_scan
  grep -q 'the state that the scan began in is not kept any more.*SNAPSHOT_TOO_OLD' "$BATS_TEST_TMPDIR/scan.err"
  zkctl table create p --keyspace range --replication push --replicas 1
  wait_for 10 partc put p a 1
  run -1 partc scan p --consistent
  assert_output --partial "a consistent scan is for quorum tables"
  run -64 partc scan q --consistent --direct "$CLUSTER_DIR/p1"
}

@test "status says what a replica is at, and what it promised" {
  quorum_up
  partc put q a 1
  local who
  who=$(leader)
  run -0 rpc "$who" status '{"table":"q"}'
  jq -e '.tables[0].partitions[0].quorum | .run == "join" and .whole and .promised >= 2' <<<"$output"
  jq -e '[.counts[].name] | index("tail_bytes") and index("cut_blocks") and index("kept_bytes")' <<<"$output"
  for id in p1 p2 p3; do [ "$id" = "$who" ] || server kill "$id"; done
  seeks() { rpc "$who" status '{"table":"q"}' | jq -e '.tables[0].partitions[0].quorum.run == "seek"'; }
  wait_for 20 seeks
}
