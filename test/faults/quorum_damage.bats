#!/usr/bin/env bats
# R16: bits flip on the disks of a quorum table's servers: in journals and in indexes, of one replica, of two, of all three
# (at different places). What is damaged on one comes from the others; nothing acknowledged is lost, replicas are equal.
# What is in an index is read from there, so that of the same servers the indexes go, too: they have only their journals.
load ../lib/cluster

setup() {
  export CLUSTER_DIR=$BATS_TEST_TMPDIR/c
  INPUT=$BATS_TEST_TMPDIR/input
}
teardown() { own_cluster_down; }

flip_byte() { # FILE OFFSET
  local old
  old=$(od -An -tu1 -j "$2" -N 1 "$1")
  # shellcheck disable=SC2059  # the escape is the point
  printf "\\x$(printf '%02x' $((old ^ 1)))" | dd of="$1" bs=1 seek="$2" conv=notrunc status=none
}
# flip_record SERVER N: one bit of record N's value, where it stands last in the journal of a server that does not run.
flip_record() {
  local file at
  IFS=: read -r file at _ < <(grep -abo "v1\.$2\.x" "$CLUSTER_DIR/$1"/journal/*.seg | tail -n 1)
  flip_byte "$file" $((at + 1))
}
# flip_index SERVER: one bit of each of the two pages that an index begins with, by which it is found at all.
flip_index() {
  local data=$CLUSTER_DIR/$1/index/data.mdb page
  page=$(getconf PAGESIZE)
  flip_byte "$data" 16
  flip_byte "$data" $((page + 16))
}

# filled COUNT: the table q with that many records, acknowledged, on all three; then they are killed.
filled() {
  quorum_up
  records "$INPUT" "$1" 100
  partc load q "$INPUT" --format tsv --batch 20 --timeout 300s >/dev/null
  verified q
  server kill p1 p2 p3
}
damaged() { grep -q 'journal-damaged' "$CLUSTER_DIR/run/$1.log"; }
whole() { # SERVER…: nothing is missing there any more
  local s
  for s; do
    zkctl quorum show q "#1" --json | jq -e --arg s "$s" '[.copies[] | select(.server == $s) | .whole] == [true]' >/dev/null || return 1
  done
}
leads_now() { [ "$(leader)" = "$1" ]; }
# hand_to SERVER: whoever leads stops and starts, until that one does.
hand_to() {
  local deadline=$((SECONDS + 120)) now
  until leads_now "$1"; do
    [ "$SECONDS" -lt "$deadline" ]
    if now=$(leader) && [ "$now" != "$1" ]; then
      server stop "$now"
      wait_for 20 leader_is_not "$now"
      server start "$now"
    fi
  done
}
# everything_is_there SERVER…: those were damaged, and noticed it. Each server in turn leads with all of it.
everything_is_there() {
  local s
  server start p1 p2 p3
  wait_for 60 leads
  for s; do damaged "$s"; done
  wait_for 60 whole p1 p2 p3
  run -0 partc verify q --against "$INPUT" --format tsv --timeout 120s
  for s in p1 p2 p3; do
    hand_to "$s"
    partc put q after "$s" --timeout 20s
    run -0 partc get q after
    assert_output "$s"
    partc delete q after --timeout 20s
  done
  run -0 partc verify q --against "$INPUT" --format tsv --timeout 120s
  wait_for 30 zkctl fsck
}

one() { # RECORDS
  filled "$1"
  local n
  for ((n = 1; n <= 20; n++)); do flip_record p1 $((n * $1 / 21)); done
  flip_index p1
  everything_is_there p1
}
two() {
  filled "$1"
  local n
  for ((n = 1; n <= 20; n++)); do flip_record p1 $((n * $1 / 21)); done
  flip_record p2 $(($1 / 42))
  flip_index p1
  flip_index p2
  everything_is_there p1 p2
}
three() {
  filled "$1"
  local n
  for ((n = 1; n <= 5; n++)); do
    flip_record p1 $((n * $1 / 16))
    flip_record p2 $(((n + 5) * $1 / 16))
    flip_record p3 $(((n + 10) * $1 / 16))
  done
  flip_index p1
  flip_index p2
  everything_is_there p1 p2
}

@test "R16: bits flip in the journal of one replica" { one "${DAMAGE_RECORDS:-2000}"; }
@test "R16: in the journals of two, and in an index" { two "${DAMAGE_RECORDS:-2000}"; }
@test "R16: in all three, at different places" { three "${DAMAGE_RECORDS:-2000}"; }

# bats test_tags=slow
@test "R16: 50,000 records, one replica" { one 50000; }
# bats test_tags=slow
@test "R16: 50,000 records, two replicas" { two 50000; }
# bats test_tags=slow
@test "R16: 50,000 records, all three" { three 50000; }

# bats test_tags=slow
# The last block, which no root block has seen yet: the live page knows that it was durable.
@test "a damaged end of a journal is no torn one: report says so, recovery keeps what stood there, and the others have it" {
  quorum_up
  records "$INPUT" 50 100
  partc load q "$INPUT" --format tsv --batch 1 --window 1 >/dev/null
  server kill p1 p2 p3 # at once: what is in the index is not missed
  local at end file report=$BATS_TEST_TMPDIR/report
  run -0 partd report --data-dir "$CLUSTER_DIR/p1"
  assert_line "whole: yes"
  refute_line --partial "damaged"
  end=$(partd dump-journal --data-dir "$CLUSTER_DIR/p1" --json | jq -r 'select(.kind != "record") | .at' | tail -n 1)
  IFS=: read -r file at _ <<<"$end"
  file=$(printf '%s/p1/journal/%012d.seg' "$CLUSTER_DIR" "$file")
  flip_byte "$file" $((at + 4)) # not even its header is readable
  run -0 partd report --data-dir "$CLUSTER_DIR/p1"
  assert_line --partial "# damaged: journal $end"
  assert_line "whole: no"
  partd report --data-dir "$CLUSTER_DIR/p1" --json >"$report"
  jq -e '.whole == false and (.damaged | startswith("1:"))' "$report"
  run -2 partd verify --data-dir "$CLUSTER_DIR/p1"
  server start p1 p2 p3
  wait_for 60 leads
  damaged p1
  run -0 find "$CLUSTER_DIR/p1/trash" -name 'journal-*.damaged' -size +0
  assert_output
  run -0 partc verify q --against "$INPUT" --format tsv --timeout 60s
  hand_to p1
  run -0 partc verify q --against "$INPUT" --format tsv --timeout 60s
  wait_for 30 zkctl fsck
}

@test "R16: what came from another replica is written: who dies right after that does not lack it again" {
  quorum_up
  records "$INPUT" 50 100
  partc load q "$INPUT" --format tsv --batch 1 --window 1 >/dev/null
  server kill p1 p2 p3 # at once: it is in no index
  flip_record p1 25
  run -0 partd report --data-dir "$CLUSTER_DIR/p1"
  assert_line --partial "# damaged: journal "
  assert_line "whole: no"
  server start p1 p2 p3
  wait_for 60 whole p1 p2 p3
  server kill p1
  run -0 partd report --data-dir "$CLUSTER_DIR/p1"
  refute_line --partial "damaged"
  assert_line "whole: yes"
  run -2 partd dump-journal --data-dir "$CLUSTER_DIR/p1" # the place itself stays as it is
  assert_line --partial "mended-data"
  server start p1
  wait_for 30 zkctl fsck
  run -0 partc verify q --against "$INPUT" --format tsv --timeout 60s
}
