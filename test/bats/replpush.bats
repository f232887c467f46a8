#!/usr/bin/env bats
# replpush: who is behind, why, and what an operator can do about it.
# bats file_tags=san
load ../lib/cluster

setup_file() {
  cluster_up --servers 3 --mdservers 1
  zkctl table create t --keyspace range --replication push --replicas 3
}
teardown_file() { cluster_down; }
teardown() { cluster_diagnose; }

push() { # SERVER VERB [ARGS]: to the replpush that runs beside it
  local name=r${1#p}
  shift
  replpush "$@" --socket "$CLUSTER_DIR/run/$name.sock"
}
# to FROM TO: one field of the row that tells how far TO is with FROM's log.
to() { push "$1" list --json | jq -r --arg to "$2" "select(.server == \$to) | .$3"; }
through() { [ "$(to "$1" "$2" state)" = through ]; }
held() { [ "$(to "$1" "$2" state)" = held ]; }
once() { replpush once --id "$1" --data-dir "$CLUSTER_DIR/$1" --partd "unix:$CLUSTER_DIR/run/$1.sock" --socket "$CLUSTER_DIR/run/r${1#p}.sock" "${@:2}"; }

@test "list says how far each target is, as a table and as JSON" {
  records "$BATS_TEST_TMPDIR/in" 500
  partc load t "$BATS_TEST_TMPDIR/in" --format tsv
  wait_for 20 through p1 p2
  wait_for 20 through p1 p3
  run -0 push p1 list
  assert_line --index 0 --regexp '^target +table +partition +server +state'
  run -0 jq -e -s 'length == 2 and all(.[]; .table == "t" and .confirmed == .end)' <<<"$(push p1 list --json)"
  run -0 push p1 list --waiting -o name
  assert_output ""
}

@test "a held target gets nothing, across a restart, until it is released" {
  run -0 push p1 hold p3
  run -0 push p2 hold p3
  server kill p3
  records "$BATS_TEST_TMPDIR/in" 300 64 2
  partc load t "$BATS_TEST_TMPDIR/in" --format tsv
  server kill r1
  server start r1
  wait_for 20 held p1 p3
  run -0 push p1 list
  assert_output --partial "held by an operator"
  assert_output --partial "held: p3"
  [ "$(to p1 p3 confirmed)" -lt "$(to p1 p3 end)" ]
  run -0 push p1 release p3
  run -0 push p2 release p3
  server start p3
  wait_for 30 through p1 p3
  run -0 verified t
}

@test "why a target waits is told, with its name" {
  server kill p2
  partc put t waits v --level one
  named() { push p1 list --waiting | grep -q 'p2: '; }
  wait_for 20 named
  run -75 once p1 --timeout 1s
  assert_output --partial "to p2"
  server start p2
  wait_for 30 through p1 p2
}

@test "once beside one that runs waits for it; alone it does the work itself" {
  run -0 once p1 --timeout 30s
  server kill r1
  partc put t once v
  run -0 once p1 --timeout 30s
  server start r1
  wait_for 20 through p1 p2
}

@test "only one works on a data directory" {
  run -4 timeout 20 replpush run --id p1 --data-dir "$CLUSTER_DIR/p1" --partd "unix:$CLUSTER_DIR/run/p1.sock" --socket "$BATS_TEST_TMPDIR/s"
  assert_output --partial "another replpush"
}

@test "nothing begins before the partition server's first start" {
  mkdir "$BATS_TEST_TMPDIR/empty"
  spawn "$BATS_TEST_TMPDIR/log" replpush run --id p9 --data-dir "$BATS_TEST_TMPDIR/empty" --socket "$BATS_TEST_TMPDIR/s"
  local pid=$SPAWN_PID
  waits() { replpush list --socket "$BATS_TEST_TMPDIR/s" 2>&1 | grep -q "first start"; }
  wait_for 20 waits
  run -75 partc status --at "unix:$BATS_TEST_TMPDIR/s" --ready
  assert_not_exists "$BATS_TEST_TMPDIR/empty/push"
  kill "$pid"
  gone() { ! kill -0 "$pid" 2>/dev/null; }
  wait_for 10 gone
}

@test "another server's directory is refused for good" {
  run -78 timeout 20 replpush run --id p2 --data-dir "$CLUSTER_DIR/p1" --socket "$BATS_TEST_TMPDIR/s"
  assert_output --partial "belongs to p1"
}

@test "killed in the middle of its work it goes on where it was" {
  server kill p3
  records "$BATS_TEST_TMPDIR/in" 5000 900 3
  partc load t "$BATS_TEST_TMPDIR/in" --format tsv
  server kill r1 r2
  server start r1 r2
  spawn "$BATS_TEST_TMPDIR/start.log" cantle-local --dir "$CLUSTER_DIR" start p3
  under_way() { [ "$(push p1 list --json | jq -r 'select(.server == "p3") | .confirmed')" -gt 900 ]; }
  wait_for 60 under_way
  server kill r1 r2
  server start r1 r2
  wait_for 60 through p1 p3
  run -0 verified t
}

@test "a server that comes back is not asked in vain while it reads its maps" {
  for _ in 1 2 3; do
    server kill p3
    server start p3
  done
  wait_for 30 through p1 p3
  run -1 grep NO_SUCH_TABLE "$CLUSTER_DIR/run/r1.log" "$CLUSTER_DIR/run/r2.log"
}

@test "requeue begins from the beginning, and harms nothing" {
  wait_for 20 through p1 p3
  run -0 push p1 requeue p3
  assert_output --partial 1
  wait_for 60 through p1 p3
  run -0 verified t
  run -3 push p1 requeue nobody
  run -0 push p1 wake
}

@test "wrong usage and a replpush that is not there have their statuses" {
  run -64 replpush run --id p1
  run -64 replpush list
  run -64 replpush nonsense
  run -3 replpush list --socket "$BATS_TEST_TMPDIR/none"
  run -0 replpush --help
  run -0 replpush list --help
}
