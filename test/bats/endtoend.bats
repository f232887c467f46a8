#!/usr/bin/env bats
# The main job: load, split while the load goes on, lose a server, take it back, prove that nothing was lost.
# COORD=zk runs it on ZooKeeper; the last test does so by itself.
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

# figures FILTER: of the loader's figures; what it said besides is in the same file.
figures() { grep '^{' "$BATS_TEST_TMPDIR/load.json" | jq -e "$1"; }

# main_job RATE: with a loader at that rate while things happen.
main_job() {
  zkctl table create t --keyspace range --replication push --replicas 3
  records "$INPUT" 4000 500
  partc load t "$INPUT" --format tsv >/dev/null
  run -0 partc verify t --against "$INPUT" --format tsv

  records "$INPUT" 4000 500 2
  spawn "$BATS_TEST_TMPDIR/load.json" partc load t "$INPUT" --format tsv --rate "$1" --batch 1 --json --log-level error
  local loader=$SPAWN_PID
  wait_for 10 newer_than_first_load
  run -0 splitter split t "$(partc route t -o name)"
  run -0 partc route t -o name
  assert_equal "${#lines[@]}" 2
  server kill p2
  wait_for 10 kill -0 "$loader" # still at it
  server start p2
  wait "$loader"
  figures '.records == 4000 and .rejected == 0'

  run -0 partc verify t --against "$INPUT" --format tsv --timeout 60s
  assert_line --regexp 'records +4000'
  run -0 zkctl fsck
}
newer_than_first_load() { partc get t k0000100 | grep -q '^v2\.'; }

@test "load, split, kill, start again, verify" {
  cluster_up --servers 3 --mdservers 3
  main_job 1000
}

@test "a server that was away for a whole load catches up" {
  cluster_up --servers 3 --mdservers 1
  zkctl table create t --keyspace range --replication push --replicas 3
  server kill p3
  records "$INPUT" 3000 800
  run -0 partc load t "$INPUT" --format tsv --json
  run -75 partc verify t --timeout 1s
  assert_line --regexp 'not compared: .* p3: it is down'
  assert_line --regexp '^verdict +incomplete'
  server start p3
  run -0 partc verify t --against "$INPUT" --format tsv --timeout 60s
}

@test "without a majority writes end as unknown or are refused, and reads of what is there go on" {
  cluster_up --servers 3 --mdservers 1
  zkctl table create t --keyspace range --replication push --replicas 3
  partc put t k v
  server kill p2 p3
  run partc put t k w --timeout 3s
  [[ $status == 75 || $status == 7 ]]
  # Which level, where, and who is not there.
  named() { partc put t k w --timeout 1s 2>&1 | grep -q "level majority; region [0-9]* of table t is on p1, p2, p3, of which p2, p3 are down"; }
  wait_for 30 named
  run -0 partc put t other x --level one
  run -0 partc get t other --level one
  assert_output x
  server start p2 p3
  run -0 partc verify t --timeout 60s
}

@test "the coordination service may be away: reads and writes go on" {
  [ -f /usr/share/java/zookeeper.jar ] || skip "no ZooKeeper (libzookeeper-java)"
  COORD=zk cluster_up --servers 3 --mdservers 1
  zkctl table create t --keyspace range --replication push --replicas 3
  records "$INPUT" 2000
  spawn "$BATS_TEST_TMPDIR/load.json" partc load t "$INPUT" --format tsv --rate 400 --json
  local loader=$SPAWN_PID
  written() { [ -n "$(partc get t k0000050)" ]; }
  wait_for 20 written
  server kill zk1 zk2 zk3
  wait "$loader"
  figures '.records == 2000'
  server start zk1 zk2 zk3
  run -0 partc verify t --against "$INPUT" --format tsv --timeout 60s
}

# bats test_tags=slow
@test "the main job on ZooKeeper" {
  [ -f /usr/share/java/zookeeper.jar ] || skip "no ZooKeeper (libzookeeper-java)"
  COORD=zk cluster_up --servers 3 --mdservers 3
  main_job 1000
}
