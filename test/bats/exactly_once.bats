#!/usr/bin/env bats
# Writes to quorum tables that take effect once, whoever leads and whatever answer was lost: cas, append, incr.
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

up() {
  cluster_up --servers 3 --mdservers 1
  zkctl table create q --keyspace range --replication quorum --replicas 3 >/dev/null
  wait_for 20 leads
}
# leader: the server that leads the table's only partition, as its government says; fails when none does.
leader() {
  zkctl cat distribution/1_q/regions/1/government | awk '
    $1 == "leader:" { who = $2 }
    $1 == "voters:" { for (i = 2; i <= NF; i++) { split($i, v, "/"); if (v[3] == who) name = v[2] } }
    END { print name; exit name == "" }'
}
leads() { leader >/dev/null; }

@test "incr, append and cas do what they say, and say what they did" {
  up
  run -0 partc incr q n
  assert_output 1
  run -0 partc incr q n --by 41
  assert_output 42
  run -0 partc incr q n --by=-50
  assert_output -- -8
  run -0 partc incr q n -o json
  jq -e '.key == "n" and .result == -7 and .repeat == false and .lsn > 0 and (.version | length) == 40' <<<"$output"
  run -0 partc get q n
  assert_output -- -7
  run -0 partc append q s abc
  assert_output 3
  run -0 bash -c 'printf def | partc append q s -'
  assert_output 6
  run -0 partc get q s
  assert_output abcdef
  run -1 partc incr q s
  assert_output --partial "not a decimal number"
  run -0 partc cas q l me --expect-absent
  assert_output ""
  run -4 partc cas q l you --expect-absent
  assert_output --partial CONDITION_FAILED
  assert_output --partial "the value me"
  run -4 partc cas q l you --expect-value him
  assert_output --partial "the value me"
  run -0 partc cas q l you --expect-value me -o json
  run -4 partc cas q l --delete --expect-version "$(printf '%040d' 0)"
  assert_output --partial "the value you"
  run -0 partc cas q l --delete --expect-version "$(partc get q l -o json | jq -r .version)"
  run -3 partc get q l
  run -4 partc cas q l --delete --expect-value you
  assert_output --partial "not there"
}

@test "what cannot be meant is refused: no condition, two, no value, a version that is none; a push table" {
  up
  run -64 partc cas q k v
  run -64 partc cas q k v --expect-absent --expect-value a
  run -64 partc cas q k --expect-absent
  run -64 partc cas q k v --delete --expect-value a
  run -64 partc cas q k v --expect-version 12
  assert_output --partial "expect-version"
  run -64 partc incr q k --by x
  run -3 partc get q k
  zkctl table create p --keyspace range --replication push --replicas 1 >/dev/null
  local verb
  for verb in "incr p k" "append p k v" "cas p k v --expect-absent"; do
    # shellcheck disable=SC2086 # words
    run -1 partc $verb
    assert_output --partial "cas, append and incr are for quorum tables"
  done
}

@test "of eight that want a lock at once, one gets it" {
  up
  local i round won pids
  for round in 1 2 3; do
    for i in 1 2 3 4 5 6 7 8; do
      spawn "$BATS_TEST_TMPDIR/$i" partc cas q "lock$round" "host$i" --expect-absent
      pids[i]=$SPAWN_PID
    done
    won=""
    for i in 1 2 3 4 5 6 7 8; do
      status=0
      wait "${pids[i]}" || status=$?
      [ "$status" = 0 ] || assert_equal "$status" 4
      [ "$status" != 0 ] || won="$won host$i"
    done
    assert_equal "$won" " $(partc get q "lock$round")"
  done
}
