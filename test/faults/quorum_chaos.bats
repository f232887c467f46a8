#!/usr/bin/env bats
# R12, R19, R21, S18: servers of a quorum table are killed, hang, stop and start, one at a time and all at once, and
# replicas move from one to another, while clients read and write. What they saw is linearizable, and at the end every replica holds the same.
#
# CHAOS_SECONDS=300 is the long form (tag slow). SEED repeats the choices; the moments are the machine's.
load ../lib/cluster

setup() {
  export CLUSTER_DIR=$BATS_TEST_TMPDIR/c
  PATH=${CANTLE_BIN%/*}/test:$PATH
  RANDOM=${SEED:-$((SRANDOM % 32768))}
  echo "SEED=$RANDOM"
}
teardown() { own_cluster_down; }

random_pause() { sleep "$(awk -v ms=$((RANDOM % $1)) 'BEGIN { printf "%.3f", ms / 1000 }')"; }

# One round: something goes wrong, and is mended.
round() {
  local victim=p$((RANDOM % 4 + 1))
  case $((RANDOM % 6)) in
    0) # another leader, if it led; it follows when it is back
      server kill "$victim"
      random_pause 900
      server start "$victim"
      ;;
    1) # longer than a lease, and than a session: it comes back with what it believed
      server kill "$victim" --signal STOP
      random_pause 2500
      server kill "$victim" --signal CONT
      ;;
    2) # planned
      server stop "$victim"
      server start "$victim"
      ;;
    3) # the same election as ever, with what each had on its disk
      server kill p1 p2 p3 p4
      server start p1 p2 p3 p4
      ;;
    4) # who drives the table's map has nothing to do with it
      server kill m1
      server start m1
      ;;
    5) # begun, and left to whoever drives it: the next round finds it half done; now and then it is taken back
      zkctl node replace "$victim" "$(spare)" --detach || true
      if [ $((RANDOM % 4)) = 0 ]; then
        random_pause 900
        zkctl node replace "$victim" "$(spare)" --cancel --timeout 3s || true
      fi
      ;;
  esac
  random_pause 800
}

# spare: the server that does not hold the table; the one that is to, where a replacement is under way.
spare() {
  local held
  held=$(zkctl table show q --json | jq -r '.partitions[0].assignments | group_by(.slot) | map(.[0].server) | join(" ")')
  for id in p1 p2 p3 p4; do
    case " $held " in *" $id "*) ;; *) printf '%s' "$id" ;; esac
  done
}
at_rest() { [ "$(zkctl table show q --json | jq '.partitions[0].moves | length')" = 0 ]; }

chaos() { # COORD SECONDS
  COORD=$1 cluster_up --servers 4 --mdservers 1
  zkctl table create q --keyspace range --replication quorum --replicas 3 >/dev/null
  spawn "$BATS_TEST_TMPDIR/bench.log" partc bench mixed q --connections 16 --records 1000 --count 100000000 \
    --duration 3600s --keep-going --timeout 5s --history "$BATS_TEST_TMPDIR/history"
  WRITER=$SPAWN_PID
  wait_for 20 test -s "$BATS_TEST_TMPDIR/history"
  local until=$((SECONDS + $2)) rounds=0
  while [ "$SECONDS" -lt "$until" ]; do
    round
    rounds=$((rounds + 1))
    kill -0 "$WRITER"
  done
  kill -INT "$WRITER"
  wait "$WRITER" || true
  WRITER=
  server up
  wait_for 60 at_rest
  run -0 partc verify q --timeout 60s
  assert_line --regexp '^verdict +same'
  run -0 lincheck "$BATS_TEST_TMPDIR/history"
  assert_output --partial "linearizable: "
  echo "$rounds rounds, $output"
  run -0 zkctl fsck
}

@test "what clients of a quorum table saw is linearizable, whatever its servers went through" {
  chaos file "${CHAOS_SECONDS:-12}"
}

# bats test_tags=slow
@test "likewise on ZooKeeper" {
  [ -f /usr/share/java/zookeeper.jar ] || skip "no ZooKeeper (libzookeeper-java)"
  chaos zk "${CHAOS_SECONDS:-60}"
}

# bats test_tags=slow
@test "five minutes of it" {
  chaos file "${CHAOS_SECONDS:-300}"
}
