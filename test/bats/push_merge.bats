#!/usr/bin/env bats
# Merges of push tables' partitions on real processes, while clients write and servers are away.
# COORD=zk runs it on ZooKeeper.
# bats file_tags=san
load ../lib/cluster

setup() {
  export CLUSTER_DIR=$BATS_TEST_TMPDIR/c
  INPUT=$BATS_TEST_TMPDIR/input
}
teardown() {
  cluster_diagnose
  cluster_down
}

clean() { zkctl fsck >/dev/null; }
partitions() { zkctl cat t --json | jq -r '.partitions | length'; }
forgotten() { [ "$(zkctl cat t --json | jq '.ended | length')" = 0 ]; }
attempt_of() { splitter status t -o name; }
waits_for_p3() { splitter status t --json | jq -e '.what == "merge" and .phase == "barrier" and .waits_for == "p3"' >/dev/null; }
same() { partc verify t --against "$INPUT" --format tsv --timeout 60s; }
through() {
  local r
  for r in r1 r2 r3; do
    [ -z "$(replpush list --waiting --socket "$CLUSTER_DIR/run/$r.sock" -o name)" ] || return 1
  done
}
# two RECORDS [ARG]…: a table t of two partitions, with that many records; ARGs go to cantle-local.
two() {
  cluster_up --servers 3 --mdservers 1 "${@:2}"
  zkctl table create t --keyspace range --replication push --replicas 3 >/dev/null
  records "$INPUT" "$1"
  partc load t "$INPUT" --format tsv >/dev/null
  splitter split t 1 --at k0000500 >/dev/null
}
# load_again RATE: every record again, other values, in the background; LOADER is its pid.
load_again() {
  records "$INPUT" "$(wc -l <"$INPUT")" 32 2
  partc load t "$INPUT" --format tsv --rate "$1" --json --timeout 30s >"$BATS_TEST_TMPDIR/load.json" 3>&- &
  LOADER=$!
}

@test "two become one, in either order, and no record is copied" {
  two 1000
  run -0 splitter merge t key:k0000700 key:k0000100 --dry-run
  assert_equal "$(partitions)" 2
  run -0 splitter merge t key:k0000700 key:k0000100 --json
  run -0 jq -e '.outcome == "done"' <<<"$output"
  assert_equal "$(partitions)" 1
  run -0 same
  wait_for 60 through
  wait_for 60 forgotten
  wait_for 30 clean
  run -0 zkctl tree t
  # What was merged is split again, elsewhere.
  run -0 splitter split t key:k0000100 --at k0000300
  run -0 same
}

@test "split and merged again and again while a client writes: nothing is lost" {
  two 4000
  load_again 1000
  local n
  for n in 1 2 3; do
    run -0 splitter merge t key:k0000100 key:k0000700
    run -0 splitter split t key:k0000100 --at "k0000${n}50"
    run -0 splitter merge t key:k0000000 key:k0000700
    run -0 splitter split t key:k0000100 --at k0000500
  done
  wait "$LOADER"
  run -0 jq -e '.records == 4000' "$BATS_TEST_TMPDIR/load.json"
  run -0 same
  wait_for 60 through
  wait_for 30 clean
}

@test "a server that was away through a merge joins what it has, and is brought the rest" {
  two 2000
  server kill p3
  load_again 2000
  run -0 splitter merge t key:k0000100 key:k0000700
  wait "$LOADER"
  server start p3
  run -0 same
  wait_for 60 through
  wait_for 60 forgotten
  wait_for 30 clean
}

@test "a server killed in the middle of writes and merges loses nothing" {
  two 4000
  load_again 1000
  run -0 splitter merge t key:k0000100 key:k0000700
  server kill p2
  server start p2
  run -0 splitter split t key:k0000100 --at k0000500
  server kill p1
  run -0 splitter merge t key:k0000100 key:k0000700
  server start p1
  wait "$LOADER"
  run -0 same
  wait_for 60 through
  wait_for 30 clean
}

@test "it waits for a live server that has not heard of it, and can be gone back on" {
  two 1000 --partd-arg --session-ms=30000 # it is live for as long as this takes
  server kill p3 --signal STOP
  spawn "$BATS_TEST_TMPDIR/log" splitter merge t key:k0000100 key:k0000700
  wait_for 30 waits_for_p3
  run -0 zkctl explain "$(attempt_of)"
  assert_output --partial "observed"
  run -0 splitter abort "$(attempt_of)"
  assert_equal "$(partitions)" 2
  server kill p3 --signal CONT
  run -0 splitter merge t key:k0000100 key:k0000700
  assert_equal "$(partitions)" 1
  run -0 same
}

@test "a client that knows the map of before is sent on" {
  two 1000
  local old
  old=$(zkctl cat t --json | jq .txnseq)
  run -0 splitter merge t key:k0000100 key:k0000700
  run -0 partc put t k0000999 new
  run -0 partc get t k0000999
  assert_output new
  run -0 partc scan t --limit 2000 -o name
  assert_equal "$(wc -l <<<"$output")" 1000
  [ "$(zkctl cat t --json | jq .txnseq)" -gt "$old" ]
}
