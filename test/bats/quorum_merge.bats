#!/usr/bin/env bats
# Merges of quorum tables' partitions on real processes, while clients write, servers are away and leaders die.
# COORD=zk runs it on ZooKeeper.
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
counted() { [ "$(partc scan q --limit 50 -o name | wc -l)" = 40 ]; }
middle() { partc scan q --limit 21 -o name | tail -n 1; }
partitions() { zkctl cat q --json | jq -r '.partitions | length'; }
# neighbours: the partitions that hold the first and the last key.
neighbours() { printf 'key:%s key:%s' "$(partc scan q --limit 1 -o name)" "$(partc scan q --reverse --limit 1 -o name)"; }
nothing_going_on() { [ -z "$(splitter status "${1:-q}" -o name)" ]; }
all_led() {
  zkctl tree q --json |
    jq -e '[.tables[0].regions[] | select(.state == "active") | .government.leader | type == "string"] | all' >/dev/null
}
# not_leading: one that leads no partition that is there now.
not_leading() {
  local led
  led=$(zkctl tree q --json | jq -r '.tables[0].regions[] | select(.state == "active") | .government.leader | values')
  printf 'p1\np2\np3\n' | grep -vxF "$led" | head -n 1
}
a_leader() {
  zkctl tree q --json | jq -er '[.tables[0].regions[] | select(.state == "active") | .government.leader | values][0]'
}
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
# merge_all: has the two merged, however often a leader's death has it aborted.
merge_all() {
  # shellcheck disable=SC2046
  splitter merge q $(neighbours) || [ "$(partitions)" = 1 ]
}

@test "split and merged again under load: every increment counts once, and the pauses are short" {
  quorum_up
  count_up 400 3600
  wait_for 20 counted
  run -0 splitter split q 1 --at "$(middle)"
  wait_for 20 all_led
  # shellcheck disable=SC2046
  run -0 splitter merge q $(neighbours) --json
  jq -e '.outcome == "done"' <<<"$output"
  wait "$COUNTER"
  sum_is_exact 3600
  [ "$(partitions)" = 1 ]
  # Two cuts, their reports, FINALIZE_MERGE, and the election of a leader.
  jq -e '.longest_gap_ms < 2000' "$BATS_TEST_TMPDIR/bench.json"
  wait_for 30 clean
  run -0 partc verify q --timeout 60s
  run -0 zkctl status
  assert_output --partial "all is well"
  run -0 zkctl tree q
  assert_output --partial "merged into region 4"
}

@test "who was away through a merge is filled when it is back" {
  quorum_up
  count_up 300 3600
  wait_for 20 counted
  run -0 splitter split q 1 --at "$(middle)"
  wait_for 20 all_led
  local away
  away=$(not_leading)
  server kill "$away"
  wait_for 30 merge_all
  server start "$away"
  wait "$COUNTER"
  sum_is_exact 3600
  run -0 partc verify q --timeout 60s
  wait_for 30 clean
  # What became of it counts: with another one away it is of the majority.
  server kill "$(a_leader)"
  wait_for 20 partc incr q n
}

@test "merged while leaders are killed: nothing is lost and nothing done twice" {
  quorum_up
  count_up 300 4500
  wait_for 20 counted
  run -0 splitter split q 1 --at "$(middle)"
  wait_for 20 all_led
  local old
  old=$(a_leader)
  # Nobody drives it: the leaders cut, and it is finished or aborted by whoever comes.
  # shellcheck disable=SC2046
  splitter merge q $(neighbours) --no-wait
  server kill "$old"
  server start "$old"
  wait_for 40 nothing_going_on
  wait_for 20 all_led
  wait_for 30 merge_all
  wait_for 20 a_leader
  old=$(a_leader)
  server kill "$old"
  server start "$old"
  wait "$COUNTER"
  sum_is_exact 4500
  run -0 partc verify q --timeout 60s
}

@test "a merge is gone back on, and writes go on in both" {
  quorum_up
  partc put q a 1
  partc put q x 1
  run -0 splitter split q 1 --at m
  wait_for 20 all_led
  run -0 splitter merge q key:a key:x --dry-run --json
  local target
  target=$(jq -r .target <<<"$output")
  [ "$(partitions)" = 2 ]
  run -0 --separate-stderr splitter merge q key:x key:a --no-wait --json
  local attempt
  attempt=$(jq -r .attempt <<<"$output")
  [ "$(jq -r .target <<<"$output")" != "$target" ]
  run -0 splitter abort "$attempt"
  run -1 splitter wait "$attempt"
  assert_output --partial "aborted"
  [ "$(partitions)" = 2 ]
  for key in a x; do
    run -0 partc put q $key 2 --timeout 20s
    run -0 partc get q $key
    assert_output 2
  done
  wait_for 30 clean
  # And then it is done after all, and its series and sessions go on from both.
  run -0 splitter merge q key:a key:x
  for key in a x; do
    run -0 partc get q $key --level session
    assert_output 2
    run -0 partc put q $key 3 --timeout 20s
  done
  server kill p1 p2 p3
  server start p1 p2 p3
  for key in a x; do
    wait_for 20 partc get q $key --level linearizable
    run -0 partc get q $key
    assert_output 3
  done
  # What was merged is split again, elsewhere.
  run -0 splitter split q key:a --at b
  run -0 partc put q c 1 --timeout 20s
  run -0 partc get q x
  assert_output 3
  wait_for 30 clean
}

@test "neighbours on different servers are merged where the first one stands" {
  cluster_up --servers 5 --mdservers 1
  local table
  for table in q p; do
    zkctl table create $table --keyspace range --replication "$([ $table = q ] && echo quorum || echo push)" --replicas 3 \
      --servers p1,p2,p3 >/dev/null
    for k in a b x y; do run -0 partc put $table $k "of $k" --timeout 20s; done
  done
  run -0 splitter split q 1 --at m --low p4,p5,p3 --timeout 60s
  run -0 splitter split p 1 --at m --low p4,p5,p3 --timeout 60s
  for table in q p; do
    wait_for 30 nothing_going_on $table
    run -0 splitter merge $table key:b key:y --dry-run --json
    assert_equal "$(jq -r .moves <<<"$output")" "p1 -> p4, p2 -> p5"
    run -64 splitter merge $table key:b key:y --no-wait
    run -0 splitter merge $table key:b key:y --timeout 60s
    run -0 jq -r '[.partitions[] | [.assignments[].server] | sort | join(",")] | join(" ")' <(zkctl cat $table --json)
    assert_output "p3,p4,p5"
    for k in a b x y; do
      run -0 partc get $table $k --timeout 20s
      assert_output "of $k"
    done
  done
  wait_for 30 clean
}

@test "what cannot be merged is refused by name" {
  cluster_up --servers 4 --mdservers 1
  zkctl table create q --keyspace range --replication quorum --replicas 3 --servers p1,p2,p3 >/dev/null
  zkctl table create p --keyspace range --replication push --replicas 3 --servers p1,p2,p3 >/dev/null
  for table in q p; do
    run -0 splitter split $table 1 --at m
    run -0 splitter split $table key:x --at t
  done
  run ! splitter merge p key:a key:x
  assert_output --partial "no neighbours"
  run ! splitter merge q key:a key:x
  assert_output --partial "no neighbours"
  run ! splitter merge q key:a key:b
  assert_output --partial "both words name"
  run -4 splitter abort "$(splitter merge q key:a key:n --json | jq -r .attempt)"
  assert_output --partial "finished"
}
