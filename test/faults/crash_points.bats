#!/usr/bin/env bats
# Every crash point that there is (lib/base/testing.h), one by one: a program dies there by SIGKILL, under load where it
# is a daemon, and is started again. Then nothing acknowledged is lost, replicas are equal, and fsck is clean
# (faults.md, "Two helps"; R01, R24, R38).
#
# Needs a build with crash points: make TESTING=1 (CANTLE_TESTING_BIN says where). `make test-long` makes one.
# ONLY=journal.before_sync walks through that point alone.
CANTLE_BIN=${CANTLE_TESTING_BIN:-$BATS_TEST_DIRNAME/../../build/release-testing/bin}
export CANTLE_BIN
load ../lib/cluster

# Which program is to die where, by what makes it come there. A point without a line here fails the last test.
POINTS_START="partd:id.before_write partd:id.after_write partd:recovery.before_zero partd:recovery.after_zero
  partd:partd.before_ready mdserver:id.before_write mdserver:id.after_write"
POINTS_LOAD="partd:journal.before_write partd:journal.before_sync partd:journal.after_sync partd:partd.durable
  partd:partd.reply partd:partd.before_send partd:partd.received partd:apply.before_commit partd:apply.after_commit
  partd:index.before_commit partd:index.after_commit partd:root.before_write partd:root.before_sync
  partd:root.after_sync"
POINTS_PUSH="replpush:replpush.before_block replpush:replpush.block_answered replpush:replpush.before_end
  replpush:replpush.before_positions replpush:replpush.after_positions replpush:positions.before_commit"
POINTS_SPLIT="partd:partd.divided partd:partd.before_observed partd:partd.observed partd:state.before_write
  partd:state.after_write mdserver:metadata.before_commit mdserver:metadata.after_commit
  splitter:driver.before_change splitter:driver.change_answered"
POINTS_SEGMENT="partd:journal.segment_zeroed partd:journal.segment_named partd:journal.segment_recycled"
POINTS_MOVE="partd:partd.created partd:partd.before_available partd:partd.available partd:ingest.before_commit
  partd:partd.set_aside partd:partd.dropped replpush:replpush.before_drop zkctl:driver.before_change
  zkctl:driver.change_answered"

# Of quorum tables. Where a server has to lead or to follow it comes to that by elections.
POINTS_QUORUM_LOAD="partd:partd.before_build partd:partd.built_durable partd:partd.before_pipe
  partd:partd.taken_durable partd:partd.before_ack partd:partd.commit partd:partd.quorum_reply"
POINTS_QUORUM_ELECT="partd:partd.sealed partd:partd.voted partd:partd.before_government partd:partd.government"
POINTS_QUORUM_HAND_OVER="partd:partd.hand_over"
POINTS_QUORUM_CUT="partd:partd.truncated partd:trash.before_write partd:trash.after_write"
POINTS_QUORUM_SPLIT="partd:partd.before_divide partd:partd.quorum_divided"
POINTS_QUORUM_MERGE="partd:partd.before_merge partd:partd.quorum_merged"
POINTS_QUORUM_MOVE="partd:partd.quorum_created partd:partd.quorum_dropped"
POINTS_QUORUM_SNAPSHOT="partd:snapshot.part_durable partd:snapshot.before_install partd:snapshot.installed"
POINTS_QUORUM_DAMAGED="partd:recovery.end_kept"

setup() {
  [ -n "$(partd --list-crash-points 2>/dev/null)" ] || skip "no build with crash points in $CANTLE_BIN (make TESTING=1)"
  export CLUSTER_DIR=$BATS_TEST_TMPDIR/c
  LOADS=0
}
teardown() { own_cluster_down; }

# up [FLAGS]: a cluster with table t on p1, p2, p3.
up() {
  cluster_up --servers "${SERVERS:-3}" --mdservers 3 "$@"
  zkctl table create t --keyspace range --replication push --replicas 3 --servers p1,p2,p3 >/dev/null
}
# start_load: one at a time: what another one has had acknowledged since the table was read would be missed there.
start_load() {
  [ -z "${WRITER:-}" ] || return 0
  LOADS=$((LOADS + 1))
  spawn "$BATS_TEST_TMPDIR/load.log" partc bench put t --connections 4 --in-flight 2 --records 3000 --value-size 200 \
    --rate 2000 --seed "$LOADS" --count 100000000 --duration 600s --keep-going --timeout 10s \
    --history "$BATS_TEST_TMPDIR/history.$LOADS"
  WRITER=$SPAWN_PID
  wait_for 20 test -s "$BATS_TEST_TMPDIR/history.$LOADS"
}
end_load() {
  [ -n "${WRITER:-}" ] || return 0
  kill -INT "$WRITER"
  wait "$WRITER" || true
  WRITER=
}
everything_ended() { [ -z "$(splitter status t -o name)" ]; }
nothing_is_lost() {
  end_load
  wait_for 60 everything_ended
  run -0 partc verify t --timeout 120s
  partc scan t k l --json >"$BATS_TEST_TMPDIR/dump"
  "$BATS_TEST_DIRNAME/../lib/acked.py" "$BATS_TEST_TMPDIR/dump" "$BATS_TEST_TMPDIR"/history.*
  run -0 zkctl wait table:t:settled --timeout 60s
  zkctl fsck
}
ready() { partc status --at "unix:$CLUSTER_DIR/run/$1.sock" --ready --timeout 1s; }
# What ended before may have something to be committed yet, and bring it to its point by that.
ready_or_dead() { ready "$1" || not_running "$1"; }
# arm NAME POINT [TIMES]: started again, it dies when it comes there (the TIMES-th time).
arm() {
  if ! not_running "$1"; then server kill "$1"; fi
  : >"$CLUSTER_DIR/run/$1.log"
  server start "$1" --no-wait --wrap "env CANTLE_CRASH_AT=$2:${3:-1}"
}
# died NAME: it came there, and nothing else ended it; it may have been told to stop.
died() {
  wait_for "${DIE_WITHIN:-60}" not_running "$1"
  run ! grep -E '^<[0-2]>|Z (stopped|drain-cut-short) |^(partd|mdserver|replpush):' "$CLUSTER_DIR/run/$1.log"
}
# killed_at POINT COMMAND…: it dies there.
killed_at() {
  local point=$1 code=0
  shift
  CANTLE_CRASH_AT=$point "$@" || code=$?
  [ "$code" = 137 ]
}
wanted() { [ -z "${ONLY:-}" ] || [ "${1#*:}" = "$ONLY" ]; }
# each "POINTS" COMMAND: COMMAND PROGRAM POINT for each of them, then everything is checked.
each() {
  local point
  for point in $1; do
    wanted "$point" || continue
    echo "--- $point"
    "$2" "${point%%:*}" "${point#*:}"
    nothing_is_lost
  done
}
name_of() { case $1 in partd) echo p1 ;; replpush) echo r1 ;; mdserver) echo m1 ;; esac }

at_start() { # PROGRAM POINT
  local name
  name=$(name_of "$1")
  start_load
  arm "$name" "$2"
  died "$name"
  server start "$name"
}
# bats test_tags=slow
@test "crash points: while a daemon starts" {
  up
  each "$POINTS_START" at_start
}

under_load() {
  start_load
  arm p1 "$2" $((RANDOM % 3 + 1))
  died p1
  server start p1
}
# bats test_tags=slow
@test "crash points: a partition server under load" {
  up
  each "$POINTS_LOAD" under_load
}

while_pushing() { # p2 was away and is behind
  start_load
  server kill p2
  arm r1 "$2"
  server start p2
  died r1
  server start r1
}
# bats test_tags=slow
@test "crash points: a pusher that brings a replica up to date" {
  up
  each "$POINTS_PUSH" while_pushing
}

in_a_split() {
  local name split
  start_load
  local partition
  partition=$(partc route t -o name | shuf -n 1)
  if [ "$1" = splitter ]; then
    killed_at "$2" splitter split t "$partition" --timeout 60s # and a metadata server goes on with it
    return
  fi
  name=$(name_of "$1")
  arm "$name" "$2"
  if [ "${2%%.*}" != state ]; then wait_for 60 ready_or_dead "$name"; fi
  spawn "$BATS_TEST_TMPDIR/splitter.log" splitter split t "$partition" --timeout 120s
  split=$SPAWN_PID
  died "$name"
  server start "$name"
  wait "$split" || { cat "$BATS_TEST_TMPDIR/splitter.log" && false; }
}
# bats test_tags=slow
@test "crash points: in a split" {
  up
  each "$POINTS_SPLIT" in_a_split
}

# big_until COMMAND…: until it succeeds.
big_until() {
  local deadline=$((SECONDS + 180))
  until "$@"; do
    [ "$SECONDS" -lt "$deadline" ] || { echo "after 180 s still not: $*" && false; }
    load_big t
  done
}
fill_segments() {
  start_load
  arm p1 "$2"
  wait_for 60 ready p1
  big_until not_running p1
  died p1
  server start p1
}
# bats test_tags=slow
@test "crash points: a journal segment is made, or used again" {
  # A cluster each: where segments have been retired they are used again, and none is made.
  local point
  for point in $POINTS_SEGMENT; do
    wanted "$point" || continue
    up --partd-arg --retention-mib=1 --partd-arg --retention-hours=0
    each "$point" fill_segments
    cluster_down
    rm -rf "$CLUSTER_DIR" "$BATS_TEST_TMPDIR"/history.*
  done
}

holders() { zkctl cat t --json | jq -r '.partitions[0].assignments[].server' | sort; }
journals_begin_later() {
  local s
  for s in p1 p2 p3; do [ ! -e "$CLUSTER_DIR/$s/journal/000000000001.seg" ] || return 1; done
}
in_a_move() { # of one replica to the server that has none
  local from to name replace
  from=$(holders | shuf -n 1)
  to=$(comm -13 <(holders) <(printf '%s\n' p1 p2 p3 p4) | head -n 1)
  start_load
  if [ "$1" = zkctl ]; then
    killed_at "$2" zkctl node replace "$from" "$to" --table t --timeout 60s # and a metadata server goes on with it
    return
  fi
  case $2 in
    partd.set_aside | partd.dropped) name=$from ;;
    replpush.before_drop) name=r${from#p} ;;
    *) name=$to ;;
  esac
  arm "$name" "$2"
  wait_for 60 ready "$name"
  spawn "$BATS_TEST_TMPDIR/replace.log" zkctl node replace "$from" "$to" --table t --timeout 120s
  replace=$SPAWN_PID
  died "$name"
  server start "$name"
  wait "$replace" || { cat "$BATS_TEST_TMPDIR/replace.log" && false; }
}
# bats test_tags=slow
@test "crash points: while a replica is moved, by a snapshot" {
  SERVERS=4 up --partd-arg --retention-mib=1 --partd-arg --retention-hours=0
  start_load
  big_until journals_begin_later
  nothing_is_lost
  each "$POINTS_MOVE" in_a_move
}

# --- quorum tables --------------------------------------------------------------------------------------------------

# quorum SERVERS [FLAGS]: table t is a quorum table on p1, p2, p3.
quorum() {
  local servers=$1
  shift
  cluster_up --servers "$servers" --mdservers 1 "$@"
  zkctl table create t --keyspace range --replication quorum --replicas 3 --servers p1,p2,p3 >/dev/null
  wait_for 20 led
}
# led: somebody leads each partition that is there now; t_leader: who leads the first of them.
governments() { zkctl tree t --json | jq -r '.tables[0].regions[] | select(.state == "active") | .government.leader // "none"'; }
led() { [ -n "$(governments)" ] && ! governments | grep -qx none; }
t_leader() { governments | grep -vx none | head -n 1; }
leads_t() { [ "$(t_leader)" = "$1" ]; }
# until_dead NAME COMMAND…: until that has died.
until_dead() {
  local name=$1 deadline=$((SECONDS + 120))
  shift
  until not_running "$name"; do
    [ "$SECONDS" -lt "$deadline" ] || { echo "after 120 s $name has not come there" && false; }
    "$@"
  done
}
# another_leads: whoever leads stops, and starts again; if that is p1, it may die of it.
another_leads() {
  local now
  now=$(t_leader) || now=
  if [ -n "$now" ] && [ "$now" != p1 ]; then
    server stop "$now"
    server start "$now"
  elif [ "$now" = p1 ]; then
    # It follows for a while.
    server kill p1 --signal STOP || true
    wait_for 10 not_led_by p1 || true
    server kill p1 --signal CONT || true
  fi
  wait_for 20 led_or_dead
}
not_led_by() { ! leads_t "$1"; }
led_or_dead() { not_running p1 || led; }

in_an_election() { # PROGRAM POINT
  start_load
  arm p1 "$2" $((RANDOM % 2 + 1))
  until_dead p1 another_leads
  died p1
  server start p1
}
# bats test_tags=slow
@test "crash points: quorum tables, a leader and a follower under load" {
  quorum 3
  each "$POINTS_QUORUM_LOAD" in_an_election
}
# bats test_tags=slow
@test "crash points: quorum tables, between promise, vote and government" {
  quorum 3
  each "$POINTS_QUORUM_ELECT" in_an_election
}

# It says so itself: of one that was started again within a lease the others still say that it leads.
says_it_leads() {
  partc status --at "unix:$CLUSTER_DIR/run/$1.sock" --json --timeout 1s |
    jq -e 'any(.tables[].partitions[]; .role == "leader")' >/dev/null
}
# p1_leads: it does, whoever did before.
p1_leads() {
  local deadline=$((SECONDS + 120)) now
  until leads_t p1 && says_it_leads p1; do
    [ "$SECONDS" -lt "$deadline" ]
    now=$(t_leader) || now=
    if [ -n "$now" ] && [ "$now" != p1 ]; then
      server stop "$now"
      server start "$now"
    fi
    wait_for 20 led
  done
}
in_a_hand_over() {
  start_load
  arm p1 "$2"
  wait_for 60 ready p1
  p1_leads
  server stop p1 || true
  died p1
  server start p1
}
# bats test_tags=slow
@test "crash points: quorum tables, a leader that is stopped" {
  quorum 3
  each "$POINTS_QUORUM_HAND_OVER" in_a_hand_over
}

# What it has in its log nobody else has; it is cut when it is back. The others are killed: whoever only stands still finds
# what was sent to it when it goes on. One of them may have had all of it in its journal when it was killed: then nothing
# is cut, and it is done again.
in_a_cut() {
  local deadline=$((SECONDS + 300))
  start_load
  until has_come_to_a_cut "$2"; do [ "$SECONDS" -lt "$deadline" ]; done
  died p1
  server start p1
}
has_come_to_a_cut() { # POINT
  p1_leads
  server kill p2 p3
  until_tail
  server kill p1
  server start p2 p3
  wait_for 30 led_by_another
  arm p1 "$1"
  wait_for 20 not_running p1
}
# until_tail: it leads alone for a second, and writes may come late to it.
until_tail() {
  local deadline=$((SECONDS + 120))
  until wait_for 5 has_tail; do
    [ "$SECONDS" -lt "$deadline" ]
    server start p2 p3
    p1_leads
    server kill p2 p3
  done
}
has_tail() { [ "$(zkctl quorum show t "#1" --json | jq '.copies[] | select(.server == "p1") | .lsn > .commit')" = true ]; }
led_by_another() { led && ! leads_t p1; }
# bats test_tags=slow
@test "crash points: quorum tables, between a cut and the trash" {
  quorum 3
  each "$POINTS_QUORUM_CUT" in_a_cut
}

in_a_reshaping() { # COMMAND PROGRAM POINT
  local reshape
  start_load
  arm p1 "$3"
  wait_for 60 ready p1
  wait_for 60 led
  "$1" >"$BATS_TEST_TMPDIR/reshape.log" 2>&1 3>&- &
  reshape=$!
  died p1
  server start p1
  wait "$reshape" || { cat "$BATS_TEST_TMPDIR/reshape.log" && false; }
}
parts() { partc route t -o name; }
# Until it was done: one that leads may die of it, and then it is aborted.
split_once() {
  local before
  before=$(parts | wc -l)
  until [ "$(parts | wc -l)" -gt "$before" ]; do splitter split t "$(parts | head -n 1)" --timeout 60s || true; done
}
merge_once() {
  local before
  before=$(parts | wc -l)
  # shellcheck disable=SC2046 # words
  until [ "$(parts | wc -l)" -lt "$before" ]; do splitter merge t $(parts | head -n 2) --timeout 60s || true; done
}
in_a_quorum_split() { in_a_reshaping split_once "$@"; }
in_a_quorum_merge() {
  split_once
  in_a_reshaping merge_once "$@"
}
# bats test_tags=slow
@test "crash points: quorum tables, between the cut and the copies that come of it" {
  quorum 3
  start_load
  each "$POINTS_QUORUM_SPLIT" in_a_quorum_split
  each "$POINTS_QUORUM_MERGE" in_a_quorum_merge
}

in_a_quorum_move() {
  local from to name replace
  from=$(holders | shuf -n 1)
  to=$(comm -13 <(holders) <(printf '%s\n' p1 p2 p3 p4) | head -n 1)
  start_load
  if [ "$2" = partd.quorum_dropped ]; then name=$from; else name=$to; fi
  arm "$name" "$2"
  wait_for 60 ready "$name"
  spawn "$BATS_TEST_TMPDIR/replace.log" zkctl node replace "$from" "$to" --table t --timeout 120s
  replace=$SPAWN_PID
  died "$name"
  server start "$name"
  wait "$replace" || { cat "$BATS_TEST_TMPDIR/replace.log" && false; }
}
# bats test_tags=slow
@test "crash points: quorum tables, while a replica is moved" {
  quorum 4
  each "$POINTS_QUORUM_MOVE" in_a_quorum_move
}

# journals_are_later SERVER…: they go back no further than their second segment.
journals_are_later() {
  local s
  for s; do [ ! -e "$CLUSTER_DIR/$s/journal/$FIRST" ] || return 1; done
}
in_a_rebuild() { # p1 is away for longer than the others' journals go back
  local s
  server kill p1
  for s in p2 p3; do
    FIRST=$(cd "$CLUSTER_DIR/$s/journal" && printf '%s\n' *.seg | tail -n 1)
    big_until journals_are_later "$s"
  done
  start_load
  arm p1 "$2"
  died p1
  server start p1
}
# bats test_tags=slow
@test "crash points: quorum tables, while a copy is rebuilt by a snapshot" {
  quorum 3 --partd-arg --retention-mib=1 --partd-arg --retention-hours=0
  start_load
  each "$POINTS_QUORUM_SNAPSHOT" in_a_rebuild
}

# The last block in its journal is damaged, and had been durable.
with_a_damaged_end() {
  local file at
  start_load
  end_load
  server kill p1
  IFS=: read -r file at _ < <(partd dump-journal --data-dir "$CLUSTER_DIR/p1" --json | jq -r 'select(.kind != "record") | .at' | tail -n 1)
  printf '\377\377' | dd of="$(printf '%s/p1/journal/%012d.seg' "$CLUSTER_DIR" "$file")" bs=1 seek=$((at + 4)) conv=notrunc status=none
  arm p1 "$2"
  died p1
  server start p1
}
# bats test_tags=slow
@test "crash points: quorum tables, between the trash and a new end of a damaged journal" {
  quorum 3
  each "$POINTS_QUORUM_DAMAGED" with_a_damaged_end
}

# bats test_tags=slow
@test "crash points: none is left out" {
  local program point
  for program in partd mdserver replpush splitter zkctl partc; do
    for point in $("$program" --list-crash-points); do
      [[ "$POINTS_START $POINTS_LOAD $POINTS_PUSH $POINTS_SPLIT $POINTS_SEGMENT $POINTS_MOVE $POINTS_QUORUM_LOAD \
        $POINTS_QUORUM_ELECT $POINTS_QUORUM_HAND_OVER $POINTS_QUORUM_CUT $POINTS_QUORUM_SPLIT $POINTS_QUORUM_MERGE \
        $POINTS_QUORUM_MOVE $POINTS_QUORUM_SNAPSHOT $POINTS_QUORUM_DAMAGED " =~ :${point}[[:space:]] ]] ||
        { echo "$point of $program is in no scenario" && false; }
    done
  done
}
