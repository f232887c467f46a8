#!/usr/bin/env bats
# Splits of quorum tables on real processes, while clients write and leaders die. COORD=zk runs it on ZooKeeper.
# bats file_tags=san
load ../lib/cluster

setup() {
  export CLUSTER_DIR=$BATS_TEST_TMPDIR/c
}
teardown() {
  cluster_diagnose
  cluster_down
}

clean() { zkctl fsck >/dev/null; }
# a_leader: one that leads a partition that is there now.
a_leader() {
  zkctl tree q --json | jq -er '[.tables[0].regions[] | select(.state == "active") | .government.leader | values][0]'
}
# counted: the counters are there; middle: where half of them are above.
counted() { [ "$(partc scan q --limit 50 -o name | wc -l)" = 40 ]; }
middle() { partc scan q --limit 21 -o name | tail -n 1; }
# count_up RATE COUNT: increments in the background; COUNTER is its pid.
count_up() {
  partc bench incr q --records 40 --in-flight 4 --rate "$1" --count "$2" --timeout 30s --json \
    --gap-log "$BATS_TEST_TMPDIR/gaps" >"$BATS_TEST_TMPDIR/bench.json" 2>"$BATS_TEST_TMPDIR/bench.err" 3>&- &
  COUNTER=$!
}
sum_is_exact() {
  local counted sum
  counted=$(jq .acknowledged "$BATS_TEST_TMPDIR/bench.json")
  sum=$(partc scan q --json | jq -s 'map(.value | tonumber) | add')
  echo "acknowledged $counted, sum $sum, longest gap $(jq .longest_gap_ms "$BATS_TEST_TMPDIR/bench.json") ms"
  [ "$counted" = "$1" ] && [ "$sum" = "$counted" ]
}

@test "a partition is split under load: every increment counts once, and the pause is short" {
  quorum_up
  count_up 400 2400
  wait_for 20 counted
  run -0 splitter split q 1 --at "$(middle)"
  wait "$COUNTER"
  sum_is_exact 2400
  # The cut, its report, FINALIZE_SPLIT, and the elections of two leaders.
  jq -e '.longest_gap_ms < 2000' "$BATS_TEST_TMPDIR/bench.json"
  wait_for 30 clean
  run -0 partc verify q --timeout 60s
  run -0 zkctl status
  assert_output --partial "all is well"
}

@test "split while its leaders are killed: nothing is lost and nothing done twice" {
  quorum_up
  count_up 300 3000
  wait_for 20 counted
  local old
  old=$(leader)
  splitter split q 1 --at "$(middle)" --no-wait
  server kill "$old"
  server start "$old"
  wait_for 40 no_splits
  wait_for 20 a_leader
  old=$(a_leader)
  server kill "$old"
  server start "$old"
  wait "$COUNTER"
  sum_is_exact 3000
  run -0 partc verify q --timeout 60s
}
no_splits() { [ -z "$(splitter status q -o name)" ]; }

@test "the children go on from the parent: series, sessions, servers that are started again" {
  quorum_up
  partc put q a 1
  partc put q x 1
  run -0 splitter split q 1 --at m
  for key in a x; do
    run -0 partc get q $key --level session
    assert_output 1
    run -0 partc put q $key 2 --timeout 20s
  done
  server kill p1 p2 p3
  server start p1 p2 p3
  for key in a x; do
    wait_for 20 partc get q $key --level linearizable
    run -0 partc get q $key
    assert_output 2
  done
  run -0 splitter split q key:x --at y
  run -0 partc put q z 1 --timeout 20s
  wait_for 30 clean
}

@test "children elsewhere are refused by name" {
  cluster_up --servers 4 --mdservers 1
  zkctl table create q --keyspace range --replication quorum --replicas 3 --servers p1,p2,p3 >/dev/null
  run ! splitter split q 1 --at m --low p1,p2,p4
  assert_output --partial "move it first"
}
