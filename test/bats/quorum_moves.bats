#!/usr/bin/env bats
# Replicas of quorum tables get other homes: under load, the leader too, dead servers and wiped ones, and back again.
# bats file_tags=san
load ../lib/cluster

setup() {
  export CLUSTER_DIR=$BATS_TEST_TMPDIR/c
}
teardown() {
  cluster_diagnose
  cluster_down
}

# up SERVERS REPLICAS: with the quorum table q on the first of them.
up() {
  cluster_up --servers "$1" --mdservers 1
  local first
  first=$(seq -f 'p%.0f' "$2" | paste -sd,)
  zkctl table create q --keyspace range --replication quorum --replicas "$2" --servers "$first" >/dev/null
  wait_for 20 leads
}
voters() {
  zkctl cat distribution/1_q/regions/1/government | awk '
    $1 == "voters:" { for (i = 2; i <= NF; i++) { split($i, v, "/"); print v[2] } }' | sort | paste -sd' '
}
holders() { zkctl table show q --json | jq -r '.partitions[0].assignments[].server' | sort | paste -sd' '; }
is() { [ "$($1)" = "$2" ]; }
not_leading() { holders | tr ' ' '\n' | grep -vx "$(leader)" | head -1; }
all_the_same() { partc verify q >/dev/null; }

# count N: N increments of 8 counters by 4 clients, in the background; counted() waits for them and checks the sum.
count() {
  COUNTED=$1
  spawn "$BATS_TEST_TMPDIR/bench" partc bench incr q --connections 4 --records 8 --count "$1" --rate 2000 --timeout 30s
  BENCH=$SPAWN_PID
  wait_for 10 adds
}
adds() { partc scan q --limit 1 -o name | grep -q .; }
counted() {
  wait "$BENCH" || { cat "$BATS_TEST_TMPDIR/bench"; return 1; }
  assert_equal "$(partc scan q -o json | jq -s 'map(.value | tonumber) | add')" "$COUNTED"
}

@test "replicas are replaced under load, the leader's too, and every replica has the same" {
  up 4 3
  count 12000
  local spare=p4 old i
  for i in 1 2 3; do
    if [ "$i" = 2 ]; then old=$(leader); else old=$(not_leading); fi
    if [ "$i" = 3 ]; then zkctl table set q pipeline star; fi
    run -0 zkctl node replace "$old" "$spare" --timeout 60s
    assert_output --partial "done"
    run holders
    refute_output --partial "$old"
    assert_equal "$(voters)" "$(holders)"
    spare=$old
  done
  counted
  wait_for 20 all_the_same
  run -0 zkctl fsck q
  run -0 zkctl explain q k
  refute_output --partial replace
}

@test "the only replica of a table goes to another server" {
  up 2 1
  count 4000
  run -0 zkctl node replace p1 p2 --timeout 60s
  assert_equal "$(voters)" p2
  assert_equal "$(leader)" p2
  counted
  run -0 zkctl fsck q
}

@test "a dead server's replica gets another home, and the old one lets go when it is back" {
  up 4 3
  count 6000
  local dead
  dead=$(leader)
  server kill "$dead"
  run -0 zkctl node replace "$dead" p4 --timeout 60s
  assert_equal "$(voters)" "$(holders)"
  run holders
  refute_output --partial "$dead"
  counted
  server start "$dead"
  wait_for 20 grep -q "dropped partition" "$CLUSTER_DIR/run/$dead.log"
  wait_for 20 all_the_same
  run -0 zkctl fsck q
}

@test "a wiped server does not vote: another takes its place" {
  up 4 3
  partc bench put q --count 2000 --records 1000 >/dev/null
  local wiped
  wiped=$(not_leading)
  server kill "$wiped"
  rm -rf "${CLUSTER_DIR:?}/$wiped"
  run -0 zkctl node replace "$wiped" p4 --timeout 60s
  run holders
  refute_output --partial "$wiped"
  wait_for 20 all_the_same
}

@test "a replacement that cannot go on says why, and is cancelled" {
  up 4 3
  partc put q a 1
  local old
  old=$(not_leading)
  server kill p4
  server start p4
  server kill p4 --signal STOP
  run -0 zkctl node replace "$old" p4 --detach
  initializing() { zkctl explain q a | grep -q "initializing"; }
  wait_for 20 initializing
  run -0 zkctl explain q a
  assert_output --partial "the new replica is being filled; then it gets the vote of the old one (for p4)"
  assert_equal "$(voters)" "p1 p2 p3"
  run -0 zkctl node replace "$old" p4 --cancel --timeout 30s
  assert_output --partial cancelled
  assert_equal "$(holders)" "p1 p2 p3"
  kill -CONT "$(cut -d" " -f1 "$CLUSTER_DIR/run/p4.pid")"
  run -0 zkctl fsck q --offline
}
