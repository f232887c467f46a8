#!/usr/bin/env bats
# Quorum tables on real processes with a proxy between (faults.md R18, R34; scenarios.md S22, S23): answers are lost after
# the server has acted, and a replica or its source dies at a given point of a snapshot. Each machine has a network
# namespace of its own, with a real three-server ZooKeeper.
#
# Long forms (tag slow): R18_MIB=500, and R34_SECONDS=600 between a write and its repeat.
load ../lib/cluster
load ../lib/netns

setup_file() { export BATS_TEST_TIMEOUT=1800; } # two segments of three journals are written for each snapshot
setup() {
  net_have || skip "$(net_why)"
  PATH=${CANTLE_BIN%/*}/test:$PATH
  RANDOM=${SEED:-$((SRANDOM % 32768))}
  echo "SEED=$RANDOM"
}
teardown() {
  if [ -n "${LOADER:-}" ]; then kill -INT "$LOADER" 2>/dev/null || true; fi
  net_diagnose
  net_down
}
table_up() {
  net_up 3
  zkctl table create q --keyspace range --replication quorum --replicas 3 >/dev/null
  wait_for 30 leads
}
# said BENCH FILTER: of what it came to.
said() { grep '^{' "$BATS_TEST_TMPDIR/$1.json" | jq "$2"; }
others() { printf 'p1\np2\np3\n' | grep -v "^$1$" | paste -sd' '; }

# --- R18 -------------------------------------------------------------------------------------------

newest() { find "$NET_DIR/$1/journal" -name '*.seg' | sort | tail -1; } # segment of a server's journal
parts() { passed "$AWAY" | tail -n +"$((PASSED + 1))" | grep -cE '^(part|last)' || true; }
has_parts() { [ "$(parts)" -ge "$1" ]; }
said_rebuilt() { cat "$NET_DIR"/run/"$AWAY".*.log | grep -c rebuilt || true; }
is_rebuilt() { [ "$(said_rebuilt)" -gt "$1" ]; }
# log_goes_on: what the one that is away misses is in nobody's log any more.
log_goes_on() { # MIB
  local deadline=$((SECONDS + 240 + $1)) a b
  read -r a b <<<"$(others "$AWAY")"
  a=$(newest "$a") b=$(newest "$b")
  while [ -e "$a" ] || [ -e "$b" ]; do
    [ "$SECONDS" -lt "$deadline" ]
    partc bench put q --connections 4 --in-flight 4 --records 20 --key-size 6 --value-size 900000 --count 40 --timeout 60s >/dev/null
  done
}
# falls_behind: dies, and the log goes on without it.
falls_behind() {
  net_kill KILL "$AWAY" "r${AWAY#p}"
  log_goes_on "$MIB"
  PASSED=$(passed "$AWAY" | wc -l)
}
comes_back() { net_start "$AWAY" "r${AWAY#p}"; }
equal() {
  run -0 partc verify q --timeout 120s
  assert_line --regexp '^verdict +same'
}

# Each time the log has to go on by a segment of the journal or two, which is most of what this takes.
snapshots_survive() { # MIB PERCENT…
  local MIB=$1 AWAY PASSED=0 whole victim
  # shellcheck disable=SC2034 # of netns.bash
  NET_PARTD_ARGS=(--retention-mib=1 --retention-hours=0)
  table_up
  AWAY=$(others "$(leader)" | cut -d' ' -f1)
  net_proxy "$AWAY"
  # What there is: MIB records of a MiB, and a counter that goes up while everything else happens.
  local value n
  value=$(head -c 1000000 /dev/zero | tr '\0' x)
  for ((n = 0; n < MIB; n++)); do printf 's%05d\t%s%s\n' "$n" "$n." "$value"; done >"$BATS_TEST_TMPDIR/in"
  run -0 partc load q "$BATS_TEST_TMPDIR/in" --format tsv --batch 1 --window 4 --timeout 120s
  client "$BATS_TEST_TMPDIR/counts.json" "$CANTLE_BIN/partc" bench incr q --connections 2 --in-flight 4 --records 10 --key-size 3 --rate 200 --keep-going \
    --count 100000000 --duration 3600s --timeout 120s --history "$BATS_TEST_TMPDIR/counts" --json
  LOADER=$SPAWN_PID
  wait_for 20 test -s "$BATS_TEST_TMPDIR/counts"

  # Undisturbed: so many parts there are.
  local before
  before=$(said_rebuilt)
  falls_behind
  comes_back
  wait_for $((60 + MIB)) is_rebuilt "$before"
  whole=$(parts)
  echo "$whole parts"
  [ "$whole" -ge $((MIB / 2)) ]

  # The receiver dies at 10, 50, 90, 99 % of one and right behind the last byte: it goes on in its next life, or begins
  # anew, and comes to an end.
  local percent at
  for percent in "${@:2}"; do
    before=$(said_rebuilt)
    falls_behind
    comes_back
    at=$((whole * percent / 100))
    wait_for $((60 + MIB)) has_parts "$((at > 0 ? at : 1))"
    net_kill KILL "$AWAY" "r${AWAY#p}"
    # It has not said anything that it does not have: the old copy is the copy until then.
    comes_back
    wait_for $((60 + MIB)) is_rebuilt "$before"
    echo "killed at $percent %: $(parts) parts"
    [ "$(parts)" -le $((3 * whole + 10)) ]
  done

  # The giver dies at 50 %, and another one leads.
  before=$(said_rebuilt)
  falls_behind
  comes_back
  wait_for $((60 + MIB)) has_parts $((whole / 2))
  victim=$(leader)
  net_kill KILL "$victim" "r${victim#p}"
  wait_for 30 leader_is_not "$victim"
  net_start "$victim" "r${victim#p}"
  wait_for $((120 + MIB)) is_rebuilt "$before"
  echo "the giver killed: $(parts) parts"

  # So much is written that the log has gone on beyond the snapshot before it is through: it ends all the same.
  if [ "$MIB" -ge 100 ]; then # with less it is through before
    before=$(said_rebuilt)
    falls_behind
    comes_back
    wait_for $((60 + MIB)) has_parts 1
    log_goes_on "$MIB"
    wait_for $((120 + MIB)) is_rebuilt "$before"
    echo "overtaken by the log: $(parts) parts"
  fi

  kill -INT "$LOADER"
  wait "$LOADER" || true
  LOADER=
  net_ready p1 p2 p3
  equal
  # It counts: it leads with one of the others, and nothing counted was lost or done twice.
  victim=$(leader)
  if [ "$victim" = "$AWAY" ]; then victim=$(others "$AWAY" | cut -d' ' -f1); fi
  net_kill KILL "$victim" "r${victim#p}"
  wait_for 30 partc put q after 1
  run -0 lincheck "$BATS_TEST_TMPDIR/counts"
  local sum acknowledged unknown
  sum=$(partc scan q --prefix k -o json | jq -s 'map(select(.key | length == 3) | .value | tonumber) | add')
  acknowledged=$(said counts .acknowledged)
  unknown=$(said counts '.unknown + .failed')
  echo "sum $sum, acknowledged $acknowledged, unknown $unknown"
  [ "$sum" -ge "$acknowledged" ] && [ "$sum" -le $((acknowledged + unknown)) ]
  net_start "$victim" "r${victim#p}"
  net_ready p1 p2 p3
  equal
  run -0 zkctl fsck
}

@test "R18: a snapshot whose receiver or giver dies at any point of it ends, and nothing of two states is mixed" {
  snapshots_survive "${R18_MIB:-12}" 50
}

# bats test_tags=slow
@test "R18: likewise with 500 MB" {
  snapshots_survive "${R18_MIB:-500}" 10 50 90 99 100
}

# --- R34 -------------------------------------------------------------------------------------------

WRITES=put,delete,batch,cas,append,incr

# once SERVER: an increment under a number of its own, past the proxy; what it came to, or the error.
once() { # SERVER CLIENT SERIES [AGE_MS]
  on m1 "$BATS_TEST_DIRNAME/../lib/rpc.py" "$(net_ip "$1"):7410" incr \
    "{\"table\":\"q\",\"key\":\"once\",\"by\":1,\"client\":$2,\"series\":$3,\"series_low\":$3,\"age_ms\":${4:-0},\"deadline_ms\":5000}"
}
# By whoever takes it: the one that leads the key's partition, or passes it on.
once_anywhere() { # CLIENT SERIES [AGE_MS]
  local s deadline=$((SECONDS + 30))
  while :; do
    for s in p1 p2 p3; do
      if once "$s" "$@" 2>"$BATS_TEST_TMPDIR/once.err"; then return; fi
      if grep -q "^SERIES_" "$BATS_TEST_TMPDIR/once.err"; then
        cat "$BATS_TEST_TMPDIR/once.err" >&2
        return 1
      fi
    done
    if [ "$SECONDS" -ge "$deadline" ]; then
      cat "$BATS_TEST_TMPDIR/once.err" >&2
      return 1
    fi
    sleep 0.1
  done
}
lost_ok() { passed c | grep -c "^lost incr ok"; }
no_splits() { [ -z "$(splitter status q -o name)" ]; }
splitter() { on c "$CANTLE_BIN/splitter" "$@"; }
counted() { [ "$(partc scan q --prefix k --limit 50 -o name | wc -l)" = 40 ]; }
# a_leader KEY-OF-REGION: who leads some partition that is there now.
a_leader() { zkctl tree q --json | jq -er '[.tables[0].regions[] | select(.state == "active") | .government.leader | values][0]'; }

repeats_do_nothing() { # SECONDS
  table_up
  net_proxy c
  # A write whose answer is at hand, to be sent again after all that comes.
  local first last
  first=$(once_anywhere 4711 1)
  echo "$first"
  jq -e '(.result | tostring) == "1" and .repeat != true' <<<"$first"

  lose_answers c 0.2 "$WRITES"
  client "$BATS_TEST_TMPDIR/bench.json" "$CANTLE_BIN/partc" bench incr q --connections 8 --in-flight 2 --records 40 --key-size 3 --rate 150 \
    --count 100000000 --duration 3600s --timeout 120s --history "$BATS_TEST_TMPDIR/h" --json
  LOADER=$SPAWN_PID
  wait_for 60 counted
  # The next leader, and the one after that, are asked what the one before has done.
  local old _
  for _ in 1 2; do
    old=$(leader)
    net_kill KILL "$old" "r${old#p}"
    wait_for 30 leader_is_not "$old"
    net_start "$old" "r${old#p}"
    net_ready "$old"
  done
  # Across a split, and another leader of a child.
  run -0 splitter split q 1 --at k20 --timeout 60s
  wait_for 40 no_splits
  wait_for 30 a_leader
  old=$(a_leader)
  net_kill KILL "$old" "r${old#p}"
  net_start "$old" "r${old#p}"
  sleep "$1" # what is tested is that time, in which others write
  local lost
  lost=$(lost_ok)
  lose_answers c 0 "$WRITES"
  kill -INT "$LOADER"
  wait "$LOADER" || true
  LOADER=
  cat "$BATS_TEST_TMPDIR/bench.json"
  echo "$lost answers of writes that were done were lost"
  [ "$lost" -ge 50 ]

  # Each once, and nobody was told what another one got.
  local sum acknowledged unknown
  sum=$(partc scan q --prefix k -o json | jq -s 'map(.value | tonumber) | add')
  acknowledged=$(said bench .acknowledged)
  unknown=$(said bench '.unknown + .failed')
  echo "sum $sum, acknowledged $acknowledged, unknown $unknown"
  [ "$sum" -ge "$acknowledged" ] && [ "$sum" -le $((acknowledged + unknown)) ]
  assert_equal "$(jq -s '[.[] | select(.outcome == "ok")] | group_by(.key) | map(map(.result) | unique | length) | add' "$BATS_TEST_TMPDIR/h")" "$acknowledged"
  run -0 lincheck "$BATS_TEST_TMPDIR/h"

  # The same number again: the same place in the log, and nothing done.
  last=$(once_anywhere 4711 1)
  echo "$last"
  jq -e '(.result | tostring) == "1" and .repeat == true' <<<"$last"
  assert_equal "$(jq -c '[.version, .lsn]' <<<"$last")" "$(jq -c '[.version, .lsn]' <<<"$first")"
  # Beyond the 64 numbers that are kept of a client, and beyond half an hour, it is refused.
  local n
  for ((n = 2; n <= 66; n++)); do once_anywhere 4711 "$n" >/dev/null; done
  run -1 once_anywhere 4711 1
  assert_output --partial "SERIES_OLD"
  run -1 once_anywhere 4712 1 1900000
  assert_output --partial "SERIES_EXPIRED"
  run -0 partc get q once
  assert_output 66
  net_ready p1 p2 p3
  run -0 partc verify q --timeout 90s
  run -0 zkctl fsck
}

@test "R34: a fifth of the answers is lost: what is sent again, whoever leads then, is done once" {
  repeats_do_nothing "${R34_SECONDS:-3}"
}

# bats test_tags=slow
@test "R34: likewise after ten minutes of other traffic" {
  repeats_do_nothing "${R34_SECONDS:-600}"
}
