#!/usr/bin/env bats
# What all programs do alike: flags, configuration, exit statuses, readiness, sockets from the service manager, units.
load ../lib/cluster

PROGRAMS=(mdserver partd replpush splitter zkctl partc)
DAEMONS=(mdserver partd replpush)

setup() {
  DIR=$BATS_TEST_TMPDIR
  export CANTLE_CONFIG=$DIR/conf # not the machine's own
  : >"$CANTLE_CONFIG"
}
teardown() {
  if [ -n "${STARTED:-}" ] && kill -TERM "$STARTED" 2>/dev/null; then wait "$STARTED" || true; fi
}

@test "every program says what it is and how it is used" {
  local program
  for program in "${PROGRAMS[@]}"; do
    run -0 "$program" --version
    assert_output --regexp "^$program [0-9]+\.[0-9]+"
    run -0 "$program" --help
    assert_output --partial config
    run -0 "$program" --list-crash-points
    run -64 "$program"
    run -64 "$program" --no-such-flag
    assert_output --partial "$program: "
    run -64 "$program" no-such-verb
    run -64 "$program" config -o xml
    run -64 "$program" config --log-level loud
  done
}

@test "settings come from the command line, the environment, the file, in this order" {
  local program
  cat >"$CANTLE_CONFIG" <<'END'
cluster = "from-file"
coord = "file:///from-file"
log-level = "warn"
data-dir = "/from-file"
[partd]
overlay-mib = 7
END
  for program in "${PROGRAMS[@]}"; do
    CANTLE_COORD=file:///from-env CANTLE_LOG_LEVEL=error run -0 "$program" config --log-level info -o tsv
    assert_line "$(printf 'cluster\tfrom-file\tfile %s' "$CANTLE_CONFIG")"
    assert_line "$(printf 'coord\tfile:///from-env\tenvironment CANTLE_COORD')"
    assert_line "$(printf 'log-level\tinfo\tcommand line')"
  done
  run -0 partd config --json
  assert_equal "$(jq -r 'select(.setting == "overlay-mib") | .value' <<<"$output")" 7
  assert_equal "$(jq -r 'select(.setting == "data-dir") | .from' <<<"$output")" "file $CANTLE_CONFIG"
}

@test "a wrong configuration is 78, whatever is wrong with it" {
  local program
  for program in "${PROGRAMS[@]}"; do
    echo 'no-such-setting = 1' >"$CANTLE_CONFIG"
    run -78 "$program" config
    assert_output --partial "no setting is called no-such-setting"
    run -0 "$program" --help
    run -78 "$program" config --config "$DIR/missing"
    printf '[nobody]\nid = 1\n' >"$CANTLE_CONFIG"
    run -78 "$program" config
    : >"$CANTLE_CONFIG"
  done
  echo 'overlay-mib = "lots"' >"$CANTLE_CONFIG"
  run -78 partd config
}

@test "the configuration file that is shipped is good, also with every setting in it switched on" {
  local program
  cp "$BATS_TEST_DIRNAME/../../etc/cantle.conf" "$CANTLE_CONFIG"
  for program in "${PROGRAMS[@]}"; do run -0 "$program" config; done
  sed -E 's/^#([a-z-]+ = )/\1/' "$BATS_TEST_DIRNAME/../../etc/cantle.conf" >"$CANTLE_CONFIG"
  [ "$(grep -c '^[a-z-]* = ' "$CANTLE_CONFIG")" -gt 20 ]
  for program in "${PROGRAMS[@]}"; do run -0 "$program" config; done
}

@test "a server says READY when it serves, drains on TERM, and ends with 0" {
  local messages=$DIR/messages
  zkctl init --coord "file://$DIR/coord" >/dev/null
  spawn "$DIR/socat.log" socat -u "UNIX-RECV:$DIR/notify" "OPEN:$messages,creat,append"
  STARTED=$SPAWN_PID
  wait_for 5 test -S "$DIR/notify"
  NOTIFY_SOCKET=$DIR/notify WATCHDOG_USEC=200000 spawn "$DIR/log" mdserver run --id m1 --data-dir "$DIR/m1" \
    --coord "file://$DIR/coord" --listen 127.0.0.1:0 --socket "$DIR/m1.sock"
  local server=$SPAWN_PID
  wait_for 20 grep -aq READY=1 "$messages"
  wait_for 5 grep -aq WATCHDOG=1 "$messages"
  run -0 "$BATS_TEST_DIRNAME/../lib/hostile.py" slow "$DIR/m1.sock"
  kill -TERM "$server"
  local status=0
  wait "$server" || status=$?
  assert_equal "$status" 0
  grep -aq STOPPING=1 "$messages"
  assert_not_exists "$DIR/m1.sock"
}

@test "a server takes its sockets from the service manager" {
  command -v systemd-socket-activate >/dev/null || skip "no systemd-socket-activate"
  local port
  port=$(free_port)
  zkctl init --coord "file://$DIR/coord" >/dev/null
  spawn "$DIR/log" systemd-socket-activate -l "127.0.0.1:$port" -l "$DIR/passed.sock" -E PATH="$PATH" -E CANTLE_CONFIG="$CANTLE_CONFIG" \
    "$CANTLE_BIN/mdserver" run --id m1 --data-dir "$DIR/m1" --coord "file://$DIR/coord"
  STARTED=$SPAWN_PID
  wait_for 5 test -S "$DIR/passed.sock"
  run -0 "$BATS_TEST_DIRNAME/../lib/hostile.py" slow "127.0.0.1:$port"
  run -0 "$BATS_TEST_DIRNAME/../lib/hostile.py" slow "$DIR/passed.sock"
}

@test "two servers do not share a socket, and one left behind by a crash is taken over" {
  zkctl init --coord "file://$DIR/coord" >/dev/null
  start() {
    spawn "$DIR/$1.log" mdserver run --id "$1" --data-dir "$DIR/$1" --coord "file://$DIR/coord" --listen 127.0.0.1:0 \
      --socket "$DIR/shared.sock"
    STARTED=$SPAWN_PID
  }
  start m1
  local first=$STARTED status=0
  wait_for 20 grep -Eq '^<5>20[0-9-]{8}T[0-9:.]{12}Z ready' "$DIR/m1.log"
  start m2
  wait "$STARTED" || status=$?
  assert_equal "$status" 4
  assert_file_contains "$DIR/m2.log" "another process"
  kill -KILL "$first"
  wait "$first" || true
  assert_exists "$DIR/shared.sock"
  start m2
  wait_for 20 grep -Eq '^<5>20[0-9-]{8}T[0-9:.]{12}Z ready' "$DIR/m2.log"
}

@test "the unit files are good and hardened" {
  command -v systemd-analyze >/dev/null || skip "no systemd-analyze"
  local units=$DIR/units unit program
  mkdir -p "$units/bin"
  for program in "${DAEMONS[@]}"; do
    ln -s "$CANTLE_BIN/$program" "$units/bin/$program"
    sed "s|@PREFIX@|$units|g" "$BATS_TEST_DIRNAME/../../systemd/$program@.service" >"$units/$program@x1.service"
    # --pusher, --partd and the like are what the programs know.
    run -0 "$program" --help
    while read -r flag; do assert_output --partial -- "$flag "; done < <(grep -oE -- ' --[a-z-]+' "$units/$program@x1.service" | sort -u)
  done
  cp "$BATS_TEST_DIRNAME/../../systemd/cantle.target" "$units"
  for unit in "$units"/*.service "$units"/*.target; do
    run -0 env SYSTEMD_UNIT_PATH="$units:" systemd-analyze verify --man=no "$unit"
    assert_output ""
  done
  for unit in "$units"/*.service; do
    run -0 systemd-analyze security --offline=yes --threshold=20 "$unit"
    assert_file_contains "$unit" "RestartPreventExitStatus=78"
  done
}
