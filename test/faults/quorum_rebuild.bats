#!/usr/bin/env bats
# A replica of a quorum table that was away for longer than the journal goes back, or is new then, gets a snapshot, and the
# log behind it: it is equal to the others, and what was counted once stays counted once.
load ../lib/cluster

setup() { export CLUSTER_DIR=$BATS_TEST_TMPDIR/c; }
teardown() {
  cluster_diagnose
  cluster_down
}

follower() { printf 'p1\np2\np3\n' | grep -v "$(leader)" | head -1; }
begins_later() { # SERVER…: none has the first segment of its journal any more
  local s
  for s; do [ ! -e "$CLUSTER_DIR/$s/journal/000000000001.seg" ] || return 1; done
}
fill_until_later() { # SERVER…
  local deadline=$((SECONDS + 120))
  until begins_later "$@"; do
    [ "$SECONDS" -lt "$deadline" ]
    partc bench put q --connections 4 --records 50 --value-size 400000 --count 100 --timeout 30s >/dev/null
  done
}

@test "a replica that was away beyond the journal's retention is rebuilt by a snapshot, and increments stay exact" {
  cluster_up --servers 3 --mdservers 1 --partd-arg --retention-mib=1 --partd-arg --retention-hours=0
  zkctl table create q --keyspace range --replication quorum --replicas 3 >/dev/null
  wait_for 20 leads
  local _
  for _ in 1 2 3 4 5; do partc incr q n1 >/dev/null; done
  local away others
  away=$(follower)
  others=$(printf 'p1\np2\np3\n' | grep -v "$away")
  server kill "$away"
  # shellcheck disable=SC2086 # words
  fill_until_later $others
  # Increments go on while it is rebuilt.
  spawn "$BATS_TEST_TMPDIR/incr" partc bench incr q --connections 2 --in-flight 10 --records 20 --key-size 3 --count 3000 --timeout 60s --json
  local bench=$SPAWN_PID
  server start "$away"
  wait_for 90 grep -q "rebuilt" "$CLUSTER_DIR/run/$away.log"
  wait "$bench"
  jq -e '.acknowledged == 3000 and .unknown == 0' "$BATS_TEST_TMPDIR/incr"
  run -0 partc verify q --timeout 60s
  run -0 partc get q n1
  assert_output 5
  # It serves what it has: now it leads, alone with one of those that gave it the snapshot.
  local gone
  gone=$(leader)
  server kill "$gone"
  wait_for 30 leads
  run -0 partc incr q n1
  run -0 partc get q n1
  assert_output 6
  server start "$gone"
  run -0 partc verify q --timeout 60s
  run -0 zkctl status
}
