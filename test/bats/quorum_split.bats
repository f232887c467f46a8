#!/usr/bin/env bats
# Splits of quorum tables on real processes, while clients write and leaders die. COORD=zk runs it on ZooKeeper.
# bats file_tags=san
load ../lib/cluster

setup() {
  export CLUSTER_DIR=$BATS_TEST_TMPDIR/c
}
teardown() {
  if [ -n "${PROXY:-}" ]; then kill "$PROXY" 2>/dev/null || true; fi
  cluster_diagnose
  cluster_down
}

clean() { zkctl fsck >/dev/null; }
# a_leader: one that leads a partition that is there now.
a_leader() {
  zkctl tree q --json | jq -er '[.tables[0].regions[] | select(.state == "active") | .government.leader | values][0]'
}
# counted: the counters are there; middle: where half of them are above.
counted() { [ "$(partc scan q --limit 50 -o name | wc -l)" = 40 ]; }
middle() { partc scan q --limit 21 -o name | tail -n 1; }
# count_up RATE COUNT: increments in the background; COUNTER is its pid.
count_up() {
  partc bench incr q --records 40 --in-flight 4 --rate "$1" --count "$2" --timeout 30s --json \
    --gap-log "$BATS_TEST_TMPDIR/gaps" >"$BATS_TEST_TMPDIR/bench.json" 2>"$BATS_TEST_TMPDIR/bench.err" 3>&- &
  COUNTER=$!
}
sum_is_exact() {
  local counted sum
  counted=$(jq .acknowledged "$BATS_TEST_TMPDIR/bench.json")
  sum=$(partc scan q --json | jq -s 'map(.value | tonumber) | add')
  echo "acknowledged $counted, sum $sum, longest gap $(jq .longest_gap_ms "$BATS_TEST_TMPDIR/bench.json") ms"
  [ "$counted" = "$1" ] && [ "$sum" = "$counted" ]
}

@test "a partition is split under load: every increment counts once, and the pause is short" {
  quorum_up
  count_up 400 2400
  wait_for 20 counted
  run -0 splitter split q 1 --at "$(middle)"
  wait "$COUNTER"
  sum_is_exact 2400
  # The cut, its report, FINALIZE_SPLIT, and the elections of two leaders.
  jq -e '.longest_gap_ms < 2000' "$BATS_TEST_TMPDIR/bench.json"
  wait_for 30 clean
  run -0 partc verify q --timeout 60s
  run -0 zkctl status
  assert_output --partial "all is well"
}

@test "split while its leaders are killed: nothing is lost and nothing done twice" {
  quorum_up
  count_up 300 3000
  wait_for 20 counted
  local old
  old=$(leader)
  splitter split q 1 --at "$(middle)" --no-wait
  server kill "$old"
  server start "$old"
  wait_for 40 no_splits
  wait_for 20 a_leader
  old=$(a_leader)
  server kill "$old"
  server start "$old"
  wait "$COUNTER"
  sum_is_exact 3000
  run -0 partc verify q --timeout 60s
}
no_splits() { [ -z "$(splitter status q -o name)" ]; }

@test "the children go on from the parent: series, sessions, servers that are started again" {
  quorum_up
  partc put q a 1
  partc put q x 1
  run -0 splitter split q 1 --at m
  for key in a x; do
    run -0 partc get q $key --level session
    assert_output 1
    run -0 partc put q $key 2 --timeout 20s
  done
  server kill p1 p2 p3
  server start p1 p2 p3
  for key in a x; do
    wait_for 20 partc get q $key --level linearizable
    run -0 partc get q $key
    assert_output 2
  done
  run -0 splitter split q key:x --at y
  run -0 partc put q z 1 --timeout 20s
  wait_for 30 clean
}

# proxied: what the metadata servers say to the coordination service goes through a proxy that says() tells what to do.
says() { printf '%s\n' "$*" | socat -t 5 - "UNIX-CONNECT:$BATS_TEST_TMPDIR/control" | head -1; }
proxied() {
  local port zk first
  first=$(awk '$1 == "zk1" {print $2}' "$CLUSTER_DIR/ports")
  spawn "$BATS_TEST_TMPDIR/proxy" "${CANTLE_BIN%/*}/test/zkproxy" 0 "$first" "$BATS_TEST_TMPDIR/control"
  PROXY=$SPAWN_PID
  wait_for 10 grep -q listening "$BATS_TEST_TMPDIR/proxy"
  port=$(awk '{print $2}' "$BATS_TEST_TMPDIR/proxy")
  cp "$CLUSTER_DIR/ports" "$BATS_TEST_TMPDIR/direct"
  for zk in zk1 zk2 zk3; do
    awk -v n="$zk" -v port="$port" '$1 == n { $2 = port } { print }' "$CLUSTER_DIR/ports" >"$BATS_TEST_TMPDIR/via"
    cp "$BATS_TEST_TMPDIR/via" "$CLUSTER_DIR/ports"
  done
  server stop m1 m2 m3
  server start m1 m2 m3
  cp "$BATS_TEST_TMPDIR/direct" "$CLUSTER_DIR/ports"
}
is_kept() { [ "$(says kept)" = 1 ]; }
# said WHAT: by some leader.
said() { grep -hE "^<[0-9]>[^ ]+ $1 " "$CLUSTER_DIR"/run/p?.log; }
reports_a_cut() { zkctl cat distribution/1_q/regions/1/government | grep -q '^cut:'; }

# The one that would end the split dies, or hangs, with its FINALIZE_SPLIT on the way to the coordination service, and the
# cut in the log. Nobody else drives it before the session of that one is over: the leader has it aborted by another
# metadata server, takes the cut back, and what waited is written.
nobody_ends_it() { # SIGNAL, to the one that drives it
  [ -f /usr/share/java/zookeeper.jar ] || skip "no ZooKeeper (libzookeeper-java)"
  COORD=zk cluster_up --servers 3 --mdservers 3
  zkctl table create q --keyspace range --replication quorum --replicas 3 >/dev/null
  wait_for 20 leads
  proxied
  count_up 200 4000
  wait_for 20 counted
  # SPLIT, INITIALIZE, and no further.
  says keep multi 2
  run -0 splitter split q 1 --at "$(middle)" --no-wait
  wait_for 20 is_kept
  DRIVER=$(basename "$(grep -l ' driving ' "$CLUSTER_DIR"/run/m?.log)" .log)
  server kill "$DRIVER" --signal "$1"
  wait_for 20 said "cut"
  wait_for 30 said "abort-split"
  wait_for 30 said "uncut"
  wait "$COUNTER"
  sum_is_exact 4000
  wait_for 30 no_splits
  assert_equal "$(partc route q -o name | wc -l)" 1
  run ! reports_a_cut
}
@test "a split that nobody ends is aborted by the leader, which takes the cut back" {
  nobody_ends_it KILL
  # Nothing is in the way of the next one.
  run -0 splitter split q 1 --at "$(middle)"
  run -0 partc verify q --timeout 60s
  wait_for 30 clean
}

# It takes connections and answers none, and when it goes on it goes on with what it had begun.
@test "a split whose driver hangs is aborted by the leader, and is not ended afterwards" {
  nobody_ends_it STOP
  says release
  server kill "$DRIVER" --signal CONT
  run -0 splitter split q 1 --at "$(middle)"
  wait_for 30 no_splits
  assert_equal "$(partc route q -o name | wc -l)" 2
  sum_is_exact 4000
  run -0 partc verify q --timeout 60s
  wait_for 30 clean
}

# The whole of the coordination service goes away with the cut in the log: neither time nor silence takes the cut back, no
# read is answered by what may not be the partition's any more; and when it is back the split ends, or is aborted.
@test "without the coordination service a cut stands, and afterwards the split ends or is aborted" {
  [ -f /usr/share/java/zookeeper.jar ] || skip "no ZooKeeper (libzookeeper-java)"
  COORD=zk cluster_up --servers 3 --mdservers 3
  zkctl table create q --keyspace range --replication quorum --replicas 3 >/dev/null
  wait_for 20 leads
  proxied
  count_up 200 4000
  wait_for 20 counted
  says keep multi 2
  run -0 splitter split q 1 --at "$(middle)" --no-wait
  wait_for 20 is_kept
  wait_for 20 reports_a_cut
  server kill zk1 zk2 zk3 --signal STOP
  local asked=$SECONDS
  while [ $((SECONDS - asked)) -lt 4 ]; do # what is tested is that time
    run partc get q k0 --level linearizable --timeout 500ms
    [ "$status" != 0 ]
  done
  [ -z "$(said uncut)" ]
  server kill zk1 zk2 zk3 --signal CONT
  says release
  wait "$COUNTER"
  sum_is_exact 4000
  wait_for 40 no_splits
  run -0 partc verify q --timeout 60s
  wait_for 30 clean
}

# S47: pages of a scan are asked for by key: what is split before, at and behind where it has come is neither left out
# nor shown twice, whichever way it goes.
@test "a scan goes on by key while its partition is split, forward and reverse" {
  quorum_up
  local value n way fifo=$BATS_TEST_TMPDIR/fifo
  value=$(head -c 100000 /dev/zero | tr '\0' x)
  for ((n = 10; n < 90; n++)); do printf 'k%d\t%s\n' "$n" "$value"; done >"$BATS_TEST_TMPDIR/in"
  partc load q "$BATS_TEST_TMPDIR/in" --format tsv --timeout 60s >/dev/null
  cut -f1 "$BATS_TEST_TMPDIR/in" >"$BATS_TEST_TMPDIR/keys"
  mkfifo "$fifo"
  for way in "" --reverse; do
    # Into a pipe that nobody empties: its first page is under way, and the next is not asked for.
    # shellcheck disable=SC2016
    spawn "$BATS_TEST_TMPDIR/scan$way.err" bash -c 'partc scan q -o tsv $1 >"$0"; echo "status=$?" >&2' "$fifo" "$way"
    exec 7<"$fifo"
    IFS= read -r -u 7 first
    if [ -z "$way" ]; then
      splitter split q 1 --at k12
      splitter split q key:k40 --at k50
    else
      splitter split q key:k60 --at k70
      splitter split q key:k13 --at k15
    fi
    (printf '%s\n' "$first"; cat <&7) | cut -f1 >"$BATS_TEST_TMPDIR/out$way"
    exec 7<&-
    wait_for 30 grep -q '^status=' "$BATS_TEST_TMPDIR/scan$way.err"
    cat "$BATS_TEST_TMPDIR/scan$way.err"
    if [ -n "$way" ]; then sort -r "$BATS_TEST_TMPDIR/keys"; else cat "$BATS_TEST_TMPDIR/keys"; fi | cmp - "$BATS_TEST_TMPDIR/out$way"
  done
  assert_equal "$(partc route q -o name | wc -l)" 5
}

@test "children of a quorum table go to other servers once they are split" {
  cluster_up --servers 4 --mdservers 1
  zkctl table create q --keyspace range --replication quorum --replicas 3 --servers p1,p2,p3 >/dev/null
  for k in a b x y; do run -0 partc put q $k "of $k" --timeout 20s; done
  run ! splitter plan q 1 --at m --low p4,p2,p3
  assert_output --partial "splitter split does both"
  run -64 splitter split q 1 --at m --low p4,p2,p3 --no-wait
  run ! splitter split q 1 --at m --low p5,p2,p3
  assert_output --partial "p5 is not there"
  run -0 splitter split q 1 --at m --low p4,p2,p3 --high p1,p3,p2 --timeout 60s
  run -0 jq -r '[.partitions[] | [.assignments[].server] | join(",")] | join(" ")' <(zkctl cat q --json)
  assert_output "p4,p2,p3 p1,p3,p2"
  for k in a b x y; do
    run -0 partc get q $k --timeout 20s
    assert_output "of $k"
  done
  run -0 zkctl fsck
}
