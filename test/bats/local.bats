#!/usr/bin/env bats
# cantle-local: a whole cluster on this machine, as a newcomer meets it.
load ../lib/cluster

setup() { DIR=$BATS_TEST_TMPDIR/c; }
teardown() {
  CLUSTER_DIR=$DIR cluster_diagnose
  if [ -d "$DIR/run" ]; then cantle-local --dir "$DIR" down --purge; fi
}

# A zombie does not run: whoever adopted it has not looked yet.
running() { [ -d "/proc/$1" ] && ! grep -q '^State:.*[ZX]' "/proc/$1/status"; }
pid_in() { cut -d' ' -f1 "$DIR/run/$1.pid"; }

@test "wrong usage is 64 and says what is wrong" {
  run -64 cantle-local
  assert_output --partial "usage:"
  run -64 cantle-local --dir "$DIR" sideways
  assert_output --partial "no verb 'sideways'"
  run -64 cantle-local --dir "$DIR" up --servers
  run -64 cantle-local --dir "$DIR" up --servers 0
  run -64 cantle-local --dir "$DIR" up --coord etcd
  run -64 cantle-local --dir "$DIR" up --bogus
  assert_not_exists "$DIR"
}

@test "without a cluster every verb says so with 3" {
  for verb in down status env "kill p1" "stop p1" "start p1" add; do
    # shellcheck disable=SC2086  # verb and argument
    run -3 cantle-local --dir "$DIR" $verb
    assert_output --partial "there is no cluster in $DIR"
  done
}

@test "up, status, env, down: every process serves, and none is left" {
  run -0 cantle-local up --servers 2 --mdservers 1 --dir "$DIR"
  run -0 cantle-local --dir "$DIR" status
  assert_equal "$(grep -c serving <<<"$output")" 5
  run -0 cantle-local --dir "$DIR" status --json
  assert_equal "$(jq -r 'select(.state == "serving") | .name' <<<"$output" | sort | tr '\n' ' ')" "m1 p1 p2 r1 r2 "

  eval "$(cantle-local --dir "$DIR" env)"
  assert_equal "$CANTLE_COORD" "file://$DIR/coord"
  run -0 partc status -o name
  assert_line p1
  assert_line p2

  local pids
  pids=$(cut -d' ' -f1 "$DIR"/run/*.pid)
  run -0 cantle-local --dir "$DIR" down
  for pid in $pids; do run ! running "$pid"; done
  run -3 cantle-local --dir "$DIR" status
  run -0 cantle-local --dir "$DIR" down --purge
  assert_not_exists "$DIR"
}

@test "kill, start and stop one process; the others stay" {
  cantle-local --dir "$DIR" up --servers 1 --mdservers 1
  local before
  before=$(pid_in m1)
  run -0 cantle-local --dir "$DIR" kill p1
  run -3 cantle-local --dir "$DIR" status
  assert_line --regexp '^p1 +down'
  run -3 cantle-local --dir "$DIR" kill p1
  assert_output --partial "p1 does not run"
  run -0 cantle-local --dir "$DIR" start p1
  run -0 cantle-local --dir "$DIR" stop p1 r1
  run -0 cantle-local --dir "$DIR" start p1 r1
  run -0 cantle-local --dir "$DIR" status
  assert_equal "$(pid_in m1)" "$before"
  run -3 cantle-local --dir "$DIR" kill p9
  assert_output --partial "there is no p9"
}

@test "a stopped process goes on after CONT, and down ends one that is stopped" {
  cantle-local --dir "$DIR" up --servers 1 --mdservers 1
  run -0 cantle-local --dir "$DIR" kill --signal STOP p1
  run -0 grep -E '^State:\s+T' "/proc/$(pid_in p1)/status"
  run -0 cantle-local --dir "$DIR" kill --signal CONT p1
  run -0 cantle-local --dir "$DIR" kill -s STOP p1
  run -0 cantle-local --dir "$DIR" down
}

@test "nobody is stopped in a commit of the coordination service, so that nobody else stands still" {
  cantle-local --dir "$DIR" up --servers 1 --mdservers 1
  eval "$(cantle-local --dir "$DIR" env)"
  # In place of p1, one that is in a commit nearly always. The lock is as fcntl(2) has it: F_SETLKW, F_WRLCK or F_UNLCK.
  cat >"$BATS_TEST_TMPDIR/busy" <<EOF
#!/usr/bin/perl
open(my \$writer, "+<", "$DIR/coord/writer") or die;
sub ask { my \$lock = pack("s! s! x4 q q i x4", \$_[1], 0, 0, 0, 0); fcntl(\$writer, \$_[0], \$lock) or die; }
for (;;) {
  ask(7, 1);
  select(undef, undef, undef, 0.05);
  ask(6, 2);
  select(undef, undef, undef, 0.005);
}
EOF
  chmod +x "$BATS_TEST_TMPDIR/busy"
  cantle-local --dir "$DIR" stop p1
  cantle-local --dir "$DIR" start p1 --no-wait --wrap "$BATS_TEST_TMPDIR/busy"
  local pid
  pid=$(pid_in p1)
  in_a_commit() { grep -E " WRITE +$pid +[^ ]+:$(stat -c %i "$DIR/coord/writer") " /proc/locks; }
  wait_for 10 in_a_commit
  for _ in {1..5}; do
    run -0 cantle-local --dir "$DIR" kill --signal STOP p1
    run -1 in_a_commit
    cantle-local --dir "$DIR" kill --signal CONT p1
  done
}

@test "up again starts what is down, with the same ports and data" {
  cantle-local --dir "$DIR" up --servers 1 --mdservers 1
  eval "$(cantle-local --dir "$DIR" env)"
  zkctl table create t --keyspace range --replication push --replicas 1
  partc put t k v
  local ports
  ports=$(cat "$DIR/ports")
  cantle-local --dir "$DIR" down
  run -0 cantle-local --dir "$DIR" up
  assert_equal "$(cat "$DIR/ports")" "$ports"
  run -0 partc get t k
  assert_output v
  run -4 cantle-local --dir "$DIR" up --servers 3
  assert_output --partial "has a cluster already"
}

@test "add brings one more server, and one more metadata server" {
  cantle-local --dir "$DIR" up --servers 1 --mdservers 1
  eval "$(cantle-local --dir "$DIR" env)"
  run -0 --separate-stderr cantle-local --dir "$DIR" add
  assert_output p2
  run -0 --separate-stderr cantle-local --dir "$DIR" add mdserver
  assert_output m2
  run -0 partc status -o name
  assert_line p2
}

@test "a base port is used as given" {
  local base
  base=$(($(free_port) - 64))
  cantle-local --dir "$DIR" up --servers 1 --mdservers 1 --base-port "$base"
  assert_equal "$(awk '$1 == "m1" { print $2 }' "$DIR/ports")" $((base + 1))
  assert_equal "$(awk '$1 == "p1" { print $2 }' "$DIR/ports")" $((base + 21))
}

@test "a process that dies at start is named, with the end of its log, and the rest is stopped" {
  run -1 cantle-local --dir "$DIR" up --servers 1 --mdservers 1 --partd-arg --no-such-flag
  assert_output --partial "p1 has died"
  assert_output --partial "no-such-flag"
  run -3 cantle-local --dir "$DIR" status
  refute_line --regexp 'serving'
}

@test "a pid file that names somebody else's process harms nobody" {
  cantle-local --dir "$DIR" up --servers 1 --mdservers 1
  cantle-local --dir "$DIR" kill r1
  spawn /dev/null sleep 60
  local other=$SPAWN_PID
  echo "$other 12345" >"$DIR/run/r1.pid" # its pid, and another start time
  run -3 cantle-local --dir "$DIR" kill r1
  run -0 cantle-local --dir "$DIR" down
  run -0 kill -0 "$other"
  kill "$other"
}

@test "the same on a private ZooKeeper ensemble, whose servers can be killed one at a time" {
  [ -f /usr/share/java/zookeeper.jar ] || skip "no ZooKeeper (libzookeeper-java)"
  cantle-local --dir "$DIR" up --servers 1 --mdservers 1 --coord zk
  eval "$(cantle-local --dir "$DIR" env)"
  [[ $CANTLE_COORD == zk://127.0.0.1:*,127.0.0.1:*,127.0.0.1:* ]]
  run -0 cantle-local --dir "$DIR" kill zk1
  run -0 zkctl ls /
  run -0 cantle-local --dir "$DIR" start zk1
  run -0 cantle-local --dir "$DIR" status
  assert_equal "$(grep -c serving <<<"$output")" 6
}
