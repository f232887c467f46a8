#!/usr/bin/env bats
# What a split that failed leaves behind (faults.md R38; scenarios.md S40): nothing, and the next try is not blocked.
load ../lib/cluster

setup() {
  export CLUSTER_DIR=$BATS_TEST_TMPDIR/c
  INPUT=$BATS_TEST_TMPDIR/input
}
teardown() { own_cluster_down; }

attempt_under_way() { splitter status t -o name | head -n 1; }
nothing_under_way() { [ -z "$(attempt_under_way)" ]; }
partitions() { partc route t -o name | wc -l; }
no_half_copies() { # every copy of every server is one that METADATA has, or none
  local s
  for s in p1 p2 p3 p4 p5; do
    "$BATS_TEST_DIRNAME/../lib/rpc.py" "$CLUSTER_DIR/run/$s.sock" status |
      jq -e '[.tables[]?.partitions[] | select(.role == "child" or .role == "unknown" or .role == "old")] == []' || return 1
  done
}

# Children elsewhere cannot be filled while every mover holds: the split stays where it is.
movers() { local r; for r in r1 r2 r3 r4 r5; do replpush "$1" --socket "$CLUSTER_DIR/run/$r.sock" >/dev/null; done; }
begun_at() { # SERVER: it has begun a copy of a child
  "$BATS_TEST_DIRNAME/../lib/rpc.py" "$CLUSTER_DIR/run/$1.sock" status |
    jq -e '[.tables[]?.partitions[] | select(.role == "child")] != []'
}

failed_tries() { # N
  cluster_up --servers 5 --mdservers 3
  zkctl table create t --keyspace range --replication push --replicas 3 --servers p1,p2,p3
  records "$INPUT" 3000 500
  partc load t "$INPUT" --format tsv >/dev/null
  spawn "$BATS_TEST_TMPDIR/writer.log" partc bench put t --connections 2 --in-flight 2 --records 2000 --value-size 100 --rate 500 \
    --count 100000000 --duration 600s --keep-going --timeout 10s --history "$BATS_TEST_TMPDIR/history"
  WRITER=$SPAWN_PID
  wait_for 10 test -s "$BATS_TEST_TMPDIR/history"
  movers hold
  local try attempt # not `i`: Bats' run has one of its own
  for ((try = 0; try < $1; try++)); do
    # Most of the high child goes elsewhere, so nothing is final before that is filled.
    spawn "$BATS_TEST_TMPDIR/splitter.log" splitter split t key:k0001500 --at k0001500 --high p4,p5,p3
    wait_for 20 begun_at p5
    if [ $((try % 3)) != 0 ]; then wait_for 20 begun_at p4; fi # else it may hear of it when it is back
    server kill p4
    kill -KILL "$SPAWN_PID"
    if [ $((try % 3)) = 2 ]; then server kill m1; fi
    attempt=$(attempt_under_way)
    run -0 splitter abort "$attempt" --timeout 60s
    server up
    wait_for 30 nothing_under_way
    assert_equal "$(partitions)" 1
    echo "try $try ended after $SECONDS s"
  done
  wait_for 30 no_half_copies
  # What was begun and given up is in the trash of its server, for the trash time; it is freed when room is short.
  zkctl fsck
  movers release
  # And now one that nobody stops.
  run -0 splitter split t key:k0001500 --at k0001500 --high p4,p5,p3 --timeout 60s
  assert_equal "$(partitions)" 2
  kill -INT "$WRITER"
  wait "$WRITER" || true
  WRITER=
  run -0 partc verify t --timeout 60s
  run -0 zkctl wait table:t:settled --timeout 60s
  wait_for 30 no_half_copies
  zkctl fsck
}

@test "R38: splits that fail leave nothing behind, and do not block the next one" {
  failed_tries 3
}

# bats test_tags=slow
@test "R38: 20 failed splits in a row" {
  failed_tries 20
}
