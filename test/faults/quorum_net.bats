#!/usr/bin/env bats
# Quorum tables on real processes, each machine in a network namespace of its own, with a real three-server ZooKeeper
# (faults.md R12, R14, R19, R21, R31, R32; scenarios.md S6, S8, S18, S21, S26, S35). 16 clients read and write 1,000 keys and
# others count while it happens: the recorded history is linearizable, the counters are exact, the replicas equal.
#
# Skipped where namespaces cannot be made. The long forms are tagged slow: R21_ROUNDS=50, R32_SECONDS=30, CHAOS_SECONDS=300.
load ../lib/cluster
load ../lib/netns

setup() {
  net_have || skip "$(net_why)"
  PATH=${CANTLE_BIN%/*}/test:$PATH
  RANDOM=${SEED:-$((SRANDOM % 32768))}
  echo "SEED=$RANDOM"
  net_up 3
  zkctl table create q --keyspace range --replication quorum --replicas 3 >/dev/null
  zkctl table create n --keyspace range --replication quorum --replicas 3 >/dev/null
  wait_for 30 leads
}
teardown() {
  # shellcheck disable=SC2086
  if [ -n "${CLIENTS:-}" ]; then kill -INT $CLIENTS 2>/dev/null || true; fi
  net_diagnose
  net_down
}

load_on() { # 16 clients on 1,000 keys of q, 4 that count in n
  client "$BATS_TEST_TMPDIR/mixed.log" "$CANTLE_BIN/partc" bench mixed q --connections 16 --records 1000 --count 100000000 \
    --duration 3600s --keep-going --rate "${LOAD_RATE:-2000}" --timeout 5s --history "$BATS_TEST_TMPDIR/history" --json
  CLIENTS=$SPAWN_PID
  client "$BATS_TEST_TMPDIR/count.log" "$CANTLE_BIN/partc" bench incr n --connections 2 --in-flight 4 --records 20 \
    --duration 3600s --rate 500 --timeout 120s --history "$BATS_TEST_TMPDIR/counts" --json
  CLIENTS="$CLIENTS $SPAWN_PID"
  acknowledged_since 0
}
# acknowledged_since LINES: the history has grown behind so many lines by one that says ok.
written() { wc -l <"$BATS_TEST_TMPDIR/history"; }
went_on() { tail -n +"$(($1 + 1))" "$BATS_TEST_TMPDIR/history" | grep '"op":"put"' | grep -q '"outcome":"ok"'; }
acknowledged_since() { wait_for "${2:-20}" went_on "$1"; }

# settle: everything is healed and up; then what the clients were told holds.
settle() {
  heal
  local name
  for name in "${!NET_PID[@]}"; do net_kill CONT "$name"; done
  net_start zk1 zk2 zk3 m1 p1 p2 p3 r1 r2 r3
  net_ready p1 p2 p3
  # shellcheck disable=SC2086
  kill -INT $CLIENTS
  # shellcheck disable=SC2086
  wait $CLIENTS || true
  CLIENTS=
  run -0 partc verify q --timeout 90s
  assert_line --regexp '^verdict +same'
  run -0 partc verify n --timeout 90s
  run -0 lincheck "$BATS_TEST_TMPDIR/history"
  assert_output --partial "linearizable: "
  echo "$output"
  run -0 lincheck "$BATS_TEST_TMPDIR/counts"
  local sum acknowledged unknown
  sum=$(partc scan n -o json | jq -s 'map(.value | tonumber) | add // 0')
  acknowledged=$(grep '^{' "$BATS_TEST_TMPDIR/count.log" | jq '.acknowledged')
  unknown=$(grep '^{' "$BATS_TEST_TMPDIR/count.log" | jq '.unknown + .failed')
  echo "sum $sum acknowledged $acknowledged unknown $unknown"
  [ "$sum" -ge "$acknowledged" ] && [ "$sum" -le $((acknowledged + unknown)) ]
  run -0 zkctl fsck
}
epoch_of() { zkctl cat "distribution/1_$1/regions/1/government" | sed -n 's/^epoch: //p'; }
leader_of() { zkctl cat "distribution/1_$1/regions/1/government" | awk '
    $1 == "leader:" { who = $2 }
    $1 == "voters:" { for (i = 2; i <= NF; i++) { split($i, v, "/"); if (v[3] == who) name = v[2] } }
    END { print name; exit name == "" }'; }
leader() { leader_of q; }
others() { printf 'p1\np2\np3\n' | grep -v "^$1$" | paste -sd' '; }

@test "R12: all three are killed within a moment, and started in each of the six orders" {
  load_on
  local order before
  for order in "p1 p2 p3" "p1 p3 p2" "p2 p1 p3" "p2 p3 p1" "p3 p1 p2" "p3 p2 p1"; do
    net_kill KILL p1 p2 p3
    before=$(written)
    for p in $order; do
      net_start "$p"
      sleep 0.2 # the order, not the time, is meant
    done
    acknowledged_since "$before" 30
  done
  settle
}

@test "R14: a follower that came back a little behind takes over; leaders change without a write; all converge" {
  load_on
  local old second before
  wait_for 20 leads
  old=$(leader)
  second=$(others "$old" | cut -d' ' -f1)
  net_kill KILL "$second"
  acknowledged_since "$(written)"
  net_start "$second"
  net_kill KILL "$old"
  acknowledged_since "$(written)" 30
  net_start "$old"
  net_ready "$old"
  # shellcheck disable=SC2086
  kill -STOP $CLIENTS
  for _ in 1 2 3 4 5; do
    wait_for 20 leads
    old=$(leader)
    net_kill TERM "$old"
    wait_for 20 leader_is_not "$old"
    net_start "$old"
    net_ready "$old"
  done
  # shellcheck disable=SC2086
  kill -CONT $CLIENTS
  acknowledged_since "$(written)"
  settle
}

@test "R19: one that missed the last writes starts alone: it serves nothing as a leader, and loses nothing" {
  local stale rest
  stale=$(leader)
  partc put q a 1
  net_kill KILL "$stale" "r${stale#p}"
  rest=$(others "$stale")
  records "$BATS_TEST_TMPDIR/in" 1000 100
  run -0 partc load q "$BATS_TEST_TMPDIR/in" --format tsv --json
  # shellcheck disable=SC2086
  net_kill KILL $rest
  net_start "$stale"
  run partc put q b 2 --timeout 4s
  [ "$status" != 0 ]
  run partc get q k0000999 --level linearizable --timeout 2s
  [ "$status" != 0 ]
  local first=${rest%% *} last=${rest##* }
  net_start "$first" "r${stale#p}"
  run -0 partc put q b 2 --timeout 30s
  run -0 partc get q k0000999
  net_start "$last"
  run -0 partc verify q --timeout 60s
  assert_equal "$(partc scan q -o name | wc -l)" 1002
}

pauses() { # ROUNDS
  load_on
  local before round victim
  for ((round = 0; round < $1; round++)); do
    victim=$(leader || echo p1)
    [ $((round % 3)) != 2 ] || victim="$victim $(others "$victim" | cut -d' ' -f1)"
    before=$(written)
    # shellcheck disable=SC2086
    net_kill STOP $victim
    # Whatever the rest does in that time; a lone one elects nobody.
    sleep "$((RANDOM % 5)).$((5 + RANDOM % 5))"
    # shellcheck disable=SC2086
    net_kill CONT $victim
    acknowledged_since "$before" 30
  done
  settle
}

@test "R21: leaders and others hang for longer than a lease and a session; nothing stale is read" {
  pauses "${R21_ROUNDS:-4}"
}

# bats test_tags=slow
@test "R21: fifty rounds of it" {
  pauses "${R21_ROUNDS:-50}"
}

@test "R31: a leader whose disk stands still for 10 s is replaced, and commits nothing late" {
  load_on
  local old before
  old=$(leader)
  spawn "$BATS_TEST_TMPDIR/strace.err" strace -f -o "$BATS_TEST_TMPDIR/strace" -e trace=fdatasync \
    -e inject=fdatasync:delay_enter=10s -p "${NET_PID[$old]}"
  local tracer=$SPAWN_PID
  wait_for 10 grep -q attached "$BATS_TEST_TMPDIR/strace.err"
  wait_for 10 leader_is_not "$old"
  before=$(written)
  acknowledged_since "$before"
  kill -INT "$tracer"
  wait "$tracer" || true
  settle
}

one_way_cuts() { # SECONDS
  load_on
  local lead a b before cuts
  for cuts in "lead>a" "a>lead" "lead>b a>lead" "lead>zk" "zk>lead" "lead>a lead>b" "lead>b b>lead"; do
    lead=$(leader || echo p1)
    # shellcheck disable=SC2034 # named by the cuts
    read -r a b <<<"$(others "$lead")"
    local way from to
    for way in $cuts; do
      from=${way%>*} to=${way#*>}
      [ "$from" = zk ] || from=${!from}
      [ "$to" = zk ] || to=${!to}
      lose "$from" "$to"
    done
    before=$(written)
    acknowledged_since "$before" 20 # design: 10 s; the clients' own patience with the other one comes on top
    sleep "$1"
    before=$(written)
    acknowledged_since "$before" 20
    heal
  done
  settle
}

@test "R32: packets get lost one way, each way: one leader at a time, and writes where a majority is connected" {
  one_way_cuts "${R32_SECONDS:-3}"
}

# bats test_tags=slow
@test "R32: thirty seconds of each cut" {
  one_way_cuts "${R32_SECONDS:-30}"
}

@test "S35: the whole of ZooKeeper stands still for 20 s: reads and writes go on without a gap" {
  records "$BATS_TEST_TMPDIR/in" 12500 100
  load_on
  local was
  was=$(epoch_of q)
  client "$BATS_TEST_TMPDIR/gaps.json" "$CANTLE_BIN/partc" load q "$BATS_TEST_TMPDIR/in" --format tsv --rate 500 --batch 1 --json
  local loader=$SPAWN_PID
  there() { partc get q k0000100; }
  wait_for 20 there
  net_kill STOP zk1 zk2 zk3
  sleep 20 # what is tested is that time
  net_kill CONT zk1 zk2 zk3
  wait "$loader"
  cat "$BATS_TEST_TMPDIR/gaps.json"
  grep '^{' "$BATS_TEST_TMPDIR/gaps.json" | jq -e '.records == 12500 and .rejected == 0 and .longest_gap_ms < 500'
  assert_equal "$(epoch_of q)" "$was"
  settle
}

@test "S6: a server whose disk was wiped does not vote, nor start under its old name" {
  load_on
  local victim before
  victim=$(others "$(leader)" | cut -d' ' -f1)
  net_kill KILL "$victim" "r${victim#p}"
  rm -rf "${NET_DIR:?}/$victim"
  net_start "$victim"
  ended() { ! net_alive "$victim"; }
  wait_for 30 ended
  grep -q "holds partition .*, and this data directory is new" "$NET_DIR"/run/"$victim".*.log
  local status=0
  wait "${NET_PID[$victim]}" || status=$?
  assert_equal "$status" 78
  before=$(written)
  acknowledged_since "$before"
  # The two that are left are a majority; the wiped one is replaced by another name.
  zkctl quorum show q "#1" | grep -q "2 of 3 voters can elect"
  unset "NET_PID[$victim]"
  # shellcheck disable=SC2086
  kill -INT $CLIENTS
  # shellcheck disable=SC2086
  wait $CLIENTS || true
  CLIENTS=
  run -0 lincheck "$BATS_TEST_TMPDIR/history"
}

# bats test_tags=slow
@test "everything at once, for five minutes" {
  LOAD_RATE=${LOAD_RATE:-1500} load_on
  local until=$((SECONDS + ${CHAOS_SECONDS:-300})) rounds=0 victim lead
  while [ "$SECONDS" -lt "$until" ]; do
    victim=p$((RANDOM % 3 + 1))
    lead=$(leader || echo p1)
    [ $((RANDOM % 2)) = 0 ] || victim=$lead
    case $((RANDOM % 7)) in
      0) net_kill KILL "$victim" ;;
      1) net_kill STOP "$victim" ;;
      2) net_kill TERM "$victim" ;;
      3) net_kill KILL p1 p2 p3 ;;
      4) lose "$victim" "p$((RANDOM % 3 + 1))" ;;
      5) lose "$victim" zk ;;
      6) net_kill STOP zk1 zk2 zk3 ;;
    esac
    sleep "$((RANDOM % 3)).$((RANDOM % 10))"
    heal
    for name in "${!NET_PID[@]}"; do net_kill CONT "$name"; done
    net_start p1 p2 p3
    sleep "$((RANDOM % 2)).$((RANDOM % 10))"
    rounds=$((rounds + 1))
  done
  echo "$rounds rounds"
  settle
}
