#!/usr/bin/env bats
# R01, R38, S40: SIGKILL at random moments to everything there is, while writers write at level majority and
# partitions are split. At the end every acknowledged record is on every replica, and fsck is clean.
#
# KILLS=200 is the long form (tag slow). SEED repeats the choices; the moments are the machine's.
load ../lib/cluster

setup() {
  export CLUSTER_DIR=$BATS_TEST_TMPDIR/c
  RANDOM=${SEED:-$((SRANDOM % 32768))}
  echo "SEED=$RANDOM"
}
teardown() {
  if [ -n "${WRITER:-}" ]; then kill -INT "$WRITER" 2>/dev/null || true; fi
  if [ -n "${SPLITTER:-}" ]; then kill -KILL "$SPLITTER" 2>/dev/null || true; fi
  cluster_diagnose
  cluster_down
}

# A pause of 0 to MS milliseconds: the moment of the next kill is chance, nothing is waited for.
random_pause() { sleep "$(awk -v ms=$((RANDOM % $1)) 'BEGIN { printf "%.3f", ms / 1000 }')"; }

begin_split() {
  local partition
  partition=$(partc route t -o name 2>/dev/null | shuf -n 1) || return 0
  [ -n "$partition" ] || return 0
  spawn "$BATS_TEST_TMPDIR/splitter.log" splitter split t "$partition"
  SPLITTER=$SPAWN_PID
}

# One round: something dies, and is started again.
round() {
  local names=(p1 p2 p3 r1 r2 r3 m1 m2 m3) victim
  if [ $((RANDOM % 3)) = 0 ] && [ "$(partc route t -o name 2>/dev/null | wc -l)" -lt 24 ]; then
    begin_split
    if [ $((RANDOM % 2)) = 0 ]; then
      random_pause 120
      kill -KILL "$SPLITTER" 2>/dev/null || true
    fi
  fi
  victim=${names[RANDOM % ${#names[@]}]}
  random_pause 250
  server kill "$victim"
  random_pause 150
  server start "$victim" --no-wait
}

everything_ended() { [ -z "$(splitter status t -o name)" ]; }

crash_loop() { # COORD KILLS
  COORD=$1 cluster_up --servers 3 --mdservers 3
  zkctl table create t --keyspace range --replication push --replicas 3
  spawn "$BATS_TEST_TMPDIR/bench.log" partc bench put t --connections 4 --in-flight 4 --records 20000 --value-size 300 \
    --count 100000000 --duration 3600s --keep-going --timeout 20s --history "$BATS_TEST_TMPDIR/history"
  WRITER=$SPAWN_PID
  local i
  for ((i = 0; i < $2; i++)); do
    round
    kill -0 "$WRITER" # the load goes on
  done
  kill -INT "$WRITER"
  wait "$WRITER" || { tail -5 "$BATS_TEST_TMPDIR/bench.log"; false; }
  WRITER=
  # kill by chance leaves something down: bring all of it up, and wait until it is ready
  server up
  wait_for 60 everything_ended
  run -0 partc verify t --timeout 120s
  partc scan t --json >"$BATS_TEST_TMPDIR/dump"
  "$BATS_TEST_DIRNAME/../lib/acked.py" "$BATS_TEST_TMPDIR/dump" "$BATS_TEST_TMPDIR/history"
  zkctl fsck
}

@test "20 kills lose nothing (embedded coordination)" {
  crash_loop file 20
}

# bats test_tags=slow
@test "20 kills lose nothing (ZooKeeper)" {
  [ -f /usr/share/java/zookeeper.jar ] || skip "no ZooKeeper (libzookeeper-java)"
  crash_loop zk 20
}

# bats test_tags=slow
@test "200 kills lose nothing (embedded coordination)" {
  crash_loop file "${KILLS:-200}"
}

# bats test_tags=slow
@test "200 kills lose nothing (ZooKeeper)" {
  [ -f /usr/share/java/zookeeper.jar ] || skip "no ZooKeeper (libzookeeper-java)"
  crash_loop zk "${KILLS:-200}"
}
