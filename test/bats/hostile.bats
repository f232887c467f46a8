#!/usr/bin/env bats
# Peers that know no rules, and descriptors that run out (faults.md, R40): whatever comes, the server goes on, other
# connections are not harmed, and nothing is stored that should not be.
# bats file_tags=san
load ../lib/cluster

setup_file() {
  cluster_up --servers 1 --mdservers 1
  zkctl table create t --keyspace range --replication push --replicas 1
  partc put t before 1
}
teardown_file() { cluster_down; }
teardown() { cluster_diagnose; }

hostile() { "$BATS_TEST_DIRNAME/../lib/hostile.py" "$@"; }
address() { printf '127.0.0.1:%s' "$(awk -v name="$1" '$1 == name { print $2 }' "$CLUSTER_DIR/ports")"; }
pid_of() { cut -d' ' -f1 "$CLUSTER_DIR/run/$1.pid"; }
every_door() { printf '%s\n' "$(address p1)" "$(address m1)" "$CLUSTER_DIR"/run/{p1,m1,r1}.sock; }
rss_kib() { awk '/^RssAnon/ { print $2 }' "/proc/$(pid_of "$1")/status"; }
# Ticks of processor time that it has used.
ticks() { sed 's/.*) //' "/proc/$(pid_of "$1")/stat" | awk '{ print $12 + $13 }'; }
alive() {
  for name in p1 m1 r1; do running "$name" || return 1; done
  run -0 partc get t before
  assert_output 1
}

@test "R40: frames that are none are answered MALFORMED and closed, at every door" {
  local door
  for door in $(every_door); do
    run -0 hostile frames "$door"
    run -0 hostile blobs "$door" 200
    run -0 hostile slow "$door"
  done
  alive
}

@test "R40: half a frame and silence ends after the stated time" {
  local door
  for door in $(every_door); do
    spawn "$BATS_TEST_TMPDIR/half.$(basename "$door")" "$BATS_TEST_DIRNAME/../lib/hostile.py" half "$door" 60
  done
  for door in $(every_door); do
    wait_for 60 grep -q '^closed after 3[0-9]' "$BATS_TEST_TMPDIR/half.$(basename "$door")"
  done
  alive
}

@test "R40: frames that promise gigabytes cost nothing" {
  local name before
  for name in p1 m1; do
    before=$(rss_kib "$name")
    run -0 hostile huge "$(address "$name")"
    run -0 hostile frames "$(address "$name")"
    wait_for 5 test "$(rss_kib "$name")" -lt $((before + 16384))
  done
}

@test "R40: other clients do not notice" {
  local quiet busy
  quiet=$(hostile ping "$(address p1)" 3)
  spawn "$BATS_TEST_TMPDIR/blobs" "$BATS_TEST_DIRNAME/../lib/hostile.py" blobs "$(address p1)" 100000
  busy=$(hostile ping "$(address p1)" 3)
  kill "$SPAWN_PID"
  echo "p99: $quiet us, under attack $busy us"
  # The attacker takes a processor too: what it costs beyond that is what counts.
  [ "$busy" -lt $((2 * quiet + 20000)) ]
}

@test "R40: 64 descriptors and 500 idle connections: little work, few lines, and it comes back" {
  local name good before_ticks before_rss before_lines used lines seconds=6
  for name in p1 m1; do
    before_rss=$(rss_kib "$name")
    before_lines=$(wc -l <"$CLUSTER_DIR/run/$name.log")
    spawn "$BATS_TEST_TMPDIR/good" "$BATS_TEST_DIRNAME/../lib/hostile.py" write "$(address p1)" t $((seconds + 3))
    good=$SPAWN_PID
    wait_for 5 grep -q began "$BATS_TEST_TMPDIR/good"
    prlimit --pid "$(pid_of "$name")" --nofile=64:
    spawn "$BATS_TEST_TMPDIR/flood" "$BATS_TEST_DIRNAME/../lib/hostile.py" flood "$(address "$name")" 500 "$seconds"
    wait_for 20 grep -q connected "$BATS_TEST_TMPDIR/flood"
    before_ticks=$(ticks "$name")
    wait "$SPAWN_PID"
    used=$(($(ticks "$name") - before_ticks))
    echo "$name used $used ticks in $seconds s"
    [ "$used" -lt $((seconds * $(getconf CLK_TCK) / 5)) ]
    lines=$(($(wc -l <"$CLUSTER_DIR/run/$name.log") - before_lines))
    [ "$lines" -le $((seconds + 20)) ]
    wait_for 2 hostile slow "$(address "$name")"
    wait "$good" # who was there before goes on
    [ "$(rss_kib "$name")" -lt $((before_rss + 16384)) ]
    prlimit --pid "$(pid_of "$name")" --nofile=1024:
  done
  alive
}

@test "over the limits, wrong types, what is not there: the right code, and nothing stored" {
  run -0 hostile limits "$(address p1)" t
  assert_output - <<'END'
empty key: INVALID
key of 480: OK
key of 481: TOO_LARGE
value of 1 MiB: OK
value of 1 MiB + 1: TOO_LARGE
value of 7 MiB: TOO_LARGE
batch of 10001: TOO_LARGE
empty batch: INVALID
batch with a key twice: INVALID
batch with op 9: INVALID
batch beyond a block: TOO_LARGE
level 9: INVALID
key that is a number: MALFORMED
txnseq below zero: MALFORMED
version of 5 bytes: INVALID
table that is not there: NO_SUCH_TABLE
table name of 64: NO_SUCH_TABLE
table name with a slash: NO_SUCH_TABLE
method that is not there: INVALID
scan with a foreign cursor: INVALID
scan backwards in its bounds: OK
unknown field: OK
END
  run -0 partc scan t -o name
  assert_line big
  assert_line before
  refute_line bigger
  refute_line level
  refute_line x
  refute_output --partial b0
  refute_output --partial c0
}

@test "messages between servers from somebody who is none are refused" {
  local method
  for method in push.write push.read push.scan bulk.begin bulk.block bulk.end digest epochs; do
    run -0 hostile call "$(address p1)" "$method" '{"envelope": {"table": "t", "txnseq": 1, "from": "p9"}, "records": "x", "count": 1}'
    refute_output --partial ok
  done
  for method in md.store md.change; do
    run -0 hostile call "$(address m1)" "$method" '{"table": "t", "ops": "x"}'
    refute_output --partial ok
  done
  alive
}
