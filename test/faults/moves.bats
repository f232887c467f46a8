#!/usr/bin/env bats
# Replicas that are moved one after the other, until none of those is left that saw the writes (scenarios.md S22, S54).
load ../lib/cluster

setup() { export CLUSTER_DIR=$BATS_TEST_TMPDIR/c; }
teardown() { own_cluster_down; }

journals_begin_later() {
  local s
  for s in p1 p2 p3; do [ ! -e "$CLUSTER_DIR/$s/journal/000000000001.seg" ] || return 1; done
}
# holds SERVER N FROM TO: so many keys of eight bytes, or of two, are in its own copy.
holds() { [ "$(partc scan t "$3" ${4:+"$4"} --keys-only --direct "$CLUSTER_DIR/$1" -o tsv | awk 'length($1) == 8 || length($1) == 2' | wc -l)" = "$2" ]; }
holders() { zkctl cat t --json | jq -r '[.partitions[0].assignments[].server] | sort | join(" ")'; }

# What a replica got by a snapshot is in no log of it: it has to give it on by a snapshot, too.
@test "after as many moves as there are replicas, by snapshots, all of it is on all of them" {
  cluster_up --servers 4 --mdservers 1 --partd-arg --retention-mib=1 --partd-arg --retention-hours=0
  zkctl table create t --keyspace range --replication push --replicas 3 --servers p1,p2,p3
  records "$BATS_TEST_TMPDIR/old" 2000 100
  partc load t "$BATS_TEST_TMPDIR/old" --format tsv >/dev/null
  local deadline=$((SECONDS + 120))
  until journals_begin_later; do
    [ "$SECONDS" -lt "$deadline" ]
    load_big t
  done
  spawn "$BATS_TEST_TMPDIR/load.log" partc bench put t --connections 2 --in-flight 2 --records 500 --key-size 6 --value-size 100 --rate 500 \
    --count 100000000 --duration 600s --keep-going --timeout 10s
  WRITER=$SPAWN_PID
  local from to
  for from in p3 p2 p1; do
    to=p4
    if [ "$from" != p3 ]; then to=p$((${from#p} + 1)); fi # whom the last move left without one
    run -0 zkctl node replace "$from" "$to" --table t --timeout 100s
    wait_for 60 grep -q "dropped" "$CLUSTER_DIR/run/$from.log" # proved on all others
  done
  run -0 zkctl node replace p4 p1 --table t --timeout 100s
  kill -INT "$WRITER"
  wait "$WRITER" || true
  WRITER=
  run -0 holders
  assert_output "p1 p2 p3"
  run -0 partc verify t --timeout 60s
  # What was there before the first move: the load's keys are shorter.
  local s
  for s in p1 p2 p3; do
    wait_for 10 holds "$s" 2000 k l
    wait_for 10 holds "$s" 8 z ''
  done
  wait_for 60 grep -q "dropped" "$CLUSTER_DIR/run/p4.log"
  zkctl fsck
}
