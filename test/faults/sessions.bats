#!/usr/bin/env bats
# Sessions that end under a living server, ephemerals of the life before, lost watches, the coordination service
# away, and clocks that jump (faults.md R26, R27, R29, R33; scenarios.md S34, S35).
load ../lib/cluster

setup() {
  export CLUSTER_DIR=$BATS_TEST_TMPDIR/c
  INPUT=$BATS_TEST_TMPDIR/input
}
teardown() { own_cluster_down; }

three_servers() {
  cluster_up --servers 3 --mdservers 1 --partd-arg --session-ms=1500
  zkctl table create t --keyspace range --replication push --replicas 3
}
pid() { cut -d' ' -f1 "$CLUSTER_DIR/run/$1.pid"; }
status() { "$BATS_TEST_DIRNAME/../lib/rpc.py" "$CLUSTER_DIR/run/$1.sock" status; }
incarnation() { zkctl cat "/cantle/nodes/active/$1" 2>/dev/null | sed -n 's/^incarnation: //p'; }
registered_as() { [ "$(incarnation "$1")" = "$2" ]; }
unregistered() { [ -z "$(incarnation "$1")" ]; }
writes_at() { # SERVER: it takes a write itself, at majority
  "$BATS_TEST_DIRNAME/../lib/rpc.py" "$CLUSTER_DIR/run/$1.sock" put "{\"table\":\"t\",\"key\":\"at-$1\",\"value\":\"v\",\"hop\":false}"
}
reads_at() { "$BATS_TEST_DIRNAME/../lib/rpc.py" "$CLUSTER_DIR/run/$1.sock" get '{"table":"t","key":"k0000001","hop":false}'; }
# start_writer: a load with a recorded history, at majority, until it is told to stop.
start_writer() {
  spawn "$BATS_TEST_TMPDIR/writer.log" partc bench put t --connections 2 --in-flight 4 --records 2000 --value-size 100 \
    --count 100000000 --duration 600s --keep-going --timeout 5s --history "$BATS_TEST_TMPDIR/history"
  WRITER=$SPAWN_PID
  wait_for 10 test -s "$BATS_TEST_TMPDIR/history"
}
# everything_is_there: ends the load; what was acknowledged is on every replica.
everything_is_there() {
  kill -INT "$WRITER"
  wait "$WRITER" || true
  WRITER=
  run -0 partc verify t --timeout 60s
  partc scan t --json | grep -v '"at-' >"$BATS_TEST_TMPDIR/dump" # what writes_at wrote is in no history
  "$BATS_TEST_DIRNAME/../lib/acked.py" "$BATS_TEST_TMPDIR/dump" "$BATS_TEST_TMPDIR/history"
  zkctl fsck
}

@test "R26: started again before its old session ended, a server is registered as its new life" {
  three_servers
  local life
  life=$(incarnation p2)
  for _ in 1 2 3 4 5; do
    life=$((life + 1))
    server kill p2
    server start p2 --no-wait
    wait_for 10 registered_as p2 "$life"
    # The old session ends meanwhile, and takes nothing of the new life with it.
    run wait_for 3 unregistered p2
    assert_failure
    registered_as p2 "$life"
  done
  wait_for 20 writes_at p2
}

@test "R27: a session that expires under a living server is followed by another one" {
  three_servers
  records "$INPUT" 500
  partc load t "$INPUT" --format tsv >/dev/null
  local before life
  before=$(pid p2)
  life=$(incarnation p2)
  for _ in 1 2 3; do
    server kill p2 --signal STOP
    wait_for 15 unregistered p2
    server kill p2 --signal CONT
    wait_for 5 registered_as p2 "$life"
    wait_for 5 writes_at p2
    wait_for 5 reads_at p2
  done
  assert_equal "$(pid p2)" "$before"
}

@test "R27: all sessions at once" {
  three_servers
  local s
  local -A life
  for s in p1 p2 p3; do life[$s]=$(incarnation "$s"); done
  for s in p1 p2 p3; do server kill "$s" --signal STOP; done
  wait_for 15 unregistered p3
  for s in p1 p2 p3; do server kill "$s" --signal CONT; done
  for s in p1 p2 p3; do
    wait_for 5 registered_as "$s" "${life[$s]}"
    wait_for 5 writes_at "$s"
  done
}

@test "R29: a server that was away while the map changed acts on it soon after" {
  three_servers
  server kill p3 --signal STOP
  run -0 splitter split t "$(partc route t -o name)" --at m --timeout 60s
  server kill p3 --signal CONT
  wait_for 5 sh -c "[ \$($BATS_TEST_DIRNAME/../lib/rpc.py $CLUSTER_DIR/run/p3.sock status | jq '[.tables[0].partitions[] | select(.role == \"available\")] | length') = 2 ]"
}

# jump SECONDS: sets p1's clock off by that much (libfaketime; the steady clocks stay).
jump() { printf '%+d' "$1" >"$BATS_TEST_TMPDIR/clock.new" && mv "$BATS_TEST_TMPDIR/clock.new" "$BATS_TEST_TMPDIR/clock"; }
clock_reason() { status p1 | jq -e '.read_only | test("clock")'; }
takes_writes() { status p1 | jq -e '.read_only == ""'; }

@test "R33: a clock that jumps stops only the server that has it, for as long as it is off" {
  local faketime
  faketime=$(echo /usr/lib/*/faketime/libfaketimeMT.so.1)
  [ -e "$faketime" ] || skip "libfaketime is not installed"
  three_servers
  server stop p1
  jump 0
  server start p1 --wrap "env LD_PRELOAD=$faketime FAKETIME_TIMESTAMP_FILE=$BATS_TEST_TMPDIR/clock FAKETIME_NO_CACHE=1 FAKETIME_DONT_FAKE_MONOTONIC=1"
  wait_for 20 takes_writes
  start_writer
  local off
  for off in 3600 -3600 315360000; do
    jump "$off"
    wait_for 5 clock_reason
    run -0 writes_at p2
    run -0 writes_at p3
    jump 0
    wait_for 10 takes_writes
    wait_for 5 writes_at p1
  done
  everything_is_there
}

@test "S35: without the coordination service reads and writes go on, and it comes back by itself" {
  export COORD=zk
  cluster_up --servers 3 --mdservers 1
  zkctl table create t --keyspace range --replication push --replicas 3
  start_writer
  local zk s before
  for zk in zk1 zk2 zk3; do server kill "$zk"; done
  wait_for 10 sh -c "$BATS_TEST_DIRNAME/../lib/rpc.py $CLUSTER_DIR/run/p1.sock status | jq -e '.coord == \"disconnected\"'"
  before=$(wc -l <"$BATS_TEST_TMPDIR/history")
  for s in p1 p2 p3; do run -0 writes_at "$s"; done
  wait_for 10 sh -c "[ \$(wc -l <'$BATS_TEST_TMPDIR/history') -gt $((before + 200)) ]"
  for zk in zk1 zk2 zk3; do server start "$zk" --no-wait; done
  for s in p1 p2 p3; do wait_for 40 sh -c "zkctl cat /cantle/nodes/active/$s | grep -q incarnation"; done
  run -0 splitter split t "$(partc route t -o name)" --at k5 --timeout 60s
  everything_is_there
}
