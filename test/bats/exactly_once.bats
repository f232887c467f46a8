#!/usr/bin/env bats
# Writes to quorum tables that take effect once, whoever leads and whatever answer was lost: cas, append, incr.
# COORD=zk runs it on ZooKeeper.
# bats file_tags=san
load ../lib/cluster

setup() {
  export CLUSTER_DIR=$BATS_TEST_TMPDIR/c
  PATH=${CANTLE_BIN%/*}/test:$PATH # lincheck
}
teardown() {
  cluster_diagnose
  cluster_down
}

# depose VERB: the leader is stopped (it hands over) or killed; another leads, and the old one is back.
depose() {
  local old
  old=$(leader)
  server "$1" "$old"
  wait_for 20 leader_is_not "$old"
  server start "$old"
}
# sum TABLE [FLAGS of scan]: of all counters.
sum() { partc scan "$@" -o json | jq -s 'map(.value | tonumber) | add'; }

@test "incr, append and cas do what they say, and say what they did" {
  quorum_up
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
  quorum_up
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
  for verb in "incr p k" "append p k v" "cas p k v --expect-absent" "bench incr p --count 1"; do
    # shellcheck disable=SC2086 # words
    run -1 partc $verb
    assert_output --partial "cas, append and incr are for quorum tables"
  done
}

@test "of eight that want a lock at once, one gets it" {
  quorum_up
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

# Three processes, each with lanes of its own, while leaders are killed and hand over.
@test "increments add up to what was acknowledged, through leaders that die and hand over" {
  quorum_up
  local i pids
  for i in 1 2 3; do
    spawn "$BATS_TEST_TMPDIR/bench$i" partc bench incr q --connections 2 --in-flight 50 --records 40 --duration 120s \
      --timeout 60s --history "$BATS_TEST_TMPDIR/h$i" --json --seed "$i"
    pids[i]=$SPAWN_PID
  done
  at_work() { [ "$(sum q)" -gt "$1" ]; }
  wait_for 20 at_work 1000
  local verb before
  for verb in kill stop kill stop; do
    before=$(sum q)
    depose "$verb"
    wait_for 30 at_work "$((before + 1000))"
  done
  for i in 1 2 3; do kill -INT "${pids[i]}"; done
  for i in 1 2 3; do wait "${pids[i]}"; done
  cat "$BATS_TEST_TMPDIR"/bench?
  local acknowledged
  acknowledged=$(jq -s 'map(.acknowledged) | add' "$BATS_TEST_TMPDIR"/bench?)
  assert_equal "$(jq -s 'map(.unknown + .failed) | add' "$BATS_TEST_TMPDIR"/bench?)" 0
  assert_equal "$(sum q)" "$acknowledged"
  # No sum was answered twice.
  assert_equal "$(jq -s 'group_by(.key) | map(map(.result) | unique | length) | add' "$BATS_TEST_TMPDIR"/h?)" "$acknowledged"
  run -0 lincheck "$BATS_TEST_TMPDIR"/h?
  run -0 partc verify q --timeout 60s
  run -0 zkctl fsck q
}

@test "what a leader that hangs has in hand is written by the next one, and once" {
  quorum_up
  run -0 partc incr q n
  assert_output 1
  local old bench
  old=$(leader)
  server kill "$old" --signal STOP
  spawn "$BATS_TEST_TMPDIR/bench" partc bench incr q --records 1 --key-size 2 --in-flight 50 --count 50 --timeout 60s --json
  bench=$SPAWN_PID
  wait_for 20 leader_is_not "$old"
  wait "$bench"
  jq -e '.acknowledged == 50 and .unknown == 0' "$BATS_TEST_TMPDIR/bench"
  server kill "$old" --signal CONT
  # It has read by then what was sent to it, and follows.
  run -0 partc verify q --timeout 60s
  run -0 partc get q k0
  assert_output 50
}

@test "puts and deletes go under numbers too: a history through leaders that die is linearizable" {
  quorum_up
  local h=$BATS_TEST_TMPDIR/h
  spawn "$BATS_TEST_TMPDIR/bench" partc bench mixed q --connections 4 --in-flight 4 --records 20 --duration 120s \
    --timeout 60s --history "$h" --json
  local bench=$SPAWN_PID
  answered() { [ "$(wc -l <"$h")" -gt "$1" ]; }
  wait_for 20 answered 500
  local verb
  for verb in kill stop kill; do
    depose "$verb"
    wait_for 30 answered $(($(wc -l <"$h") + 1000))
  done
  kill -INT "$bench"
  wait "$bench"
  jq -e '.unknown == 0 and .failed == 0' "$BATS_TEST_TMPDIR/bench"
  run -0 lincheck "$h"
}
