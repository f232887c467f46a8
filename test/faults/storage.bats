#!/usr/bin/env bats
# What happens to a partition server whose disk lies, tears, fills up or is wiped (store.md, faults.md R01 to R11).
# Each test has a cluster of its own: three replicas, so that what one loses the others have.
# A test is a function of its own process: what `run` sets there is meant there.
# shellcheck disable=SC2030,SC2031
load ../lib/cluster

setup() {
  export CLUSTER_DIR=$BATS_TEST_TMPDIR/c
  INPUT=$BATS_TEST_TMPDIR/input
}
teardown() {
  cluster_diagnose
  cluster_down
  if [ -n "${MOUNTED:-}" ]; then umount -l "$MOUNTED" || true; fi
}

# one_server: k = 1 on p1, which has to do it all alone.
one_server() {
  cluster_up --servers 1 --mdservers 1
  zkctl table create t --keyspace range --replication push --replicas 1
}
three_servers() {
  cluster_up --servers 3 --mdservers 1
  zkctl table create t --keyspace range --replication push --replicas 3
}

# journal_frames p1: "segment offset payload-bytes" of its data blocks, in order. The server must not run.
journal_frames() {
  partd dump-journal --data-dir "$CLUSTER_DIR/$1" --json |
    jq -r 'select(.kind == "data") | "\(.at | gsub(":"; " ")) \(.bytes)"' | cut -d' ' -f1,2,4
}
readonly HEAD=160 # bytes of frame and block header before the payload
framed() { echo $(((HEAD + $1 + 7) / 8 * 8)); }
# journal_end p1: the offset behind the last frame of the last segment in use.
journal_end() {
  local at bytes
  read -r at bytes < <(partd dump-journal --data-dir "$CLUSTER_DIR/$1" --json | jq -rs 'last | "\(.at | split(":")[1]) \(.bytes)"')
  echo $((at + $(framed "$bytes")))
}
segment_file() { printf '%s/journal/%012d.seg' "$CLUSTER_DIR/$1" "$2"; }
flip_byte() { # FILE OFFSET
  local old
  old=$(od -An -tu1 -j "$2" -N 1 "$1")
  # shellcheck disable=SC2059  # the escape is the point
  printf "\\x$(printf '%02x' $((old ^ 1)))" | dd of="$1" bs=1 seek="$2" conv=notrunc status=none
}

@test "R01: one server, killed at random moments 20 times: what was acknowledged is there" {
  one_server
  local i writer
  for ((i = 0; i < 20; i++)); do
    spawn "$BATS_TEST_TMPDIR/bench.log" partc bench put t --connections 2 --in-flight 4 --records 5000 --value-size 200 \
      --seed "$i" --count 100000000 --duration 600s --keep-going --timeout 1s --history "$BATS_TEST_TMPDIR/history.$i"
    writer=$SPAWN_PID
    wait_for 10 test -s "$BATS_TEST_TMPDIR/history.$i"
    sleep "0.$((RANDOM % 300 + 100))" # the moment is chance
    server kill p1
    kill -INT "$writer"
    wait "$writer" || true
    server start p1
    partc scan t --level one --json >"$BATS_TEST_TMPDIR/dump"
    "$BATS_TEST_DIRNAME/../lib/acked.py" "$BATS_TEST_TMPDIR/dump" "$BATS_TEST_TMPDIR"/history.*
  done
}

@test "a server that ends at once keeps its directory until its last thread has ended" {
  one_server
  local pid tracer
  pid=$(cut -d' ' -f1 "$CLUSTER_DIR/run/p1.pid")
  spawn "$BATS_TEST_TMPDIR/strace.err" strace -f -o "$BATS_TEST_TMPDIR/strace" -e trace=pwritev,fdatasync \
    -P "$(segment_file p1 1)" -e inject=fdatasync:delay_enter=4s -p "$pid"
  tracer=$SPAWN_PID
  wait_for 10 grep -q attached "$BATS_TEST_TMPDIR/strace.err"
  spawn "$BATS_TEST_TMPDIR/put" partc put t k v --timeout 10s
  wait_for 10 grep -q 'pwritev.* = ' "$BATS_TEST_TMPDIR/strace" # the sync comes next, and takes its time
  kill -TERM "$pid"
  wait_for 5 grep -q 'stopping' "$CLUSTER_DIR/run/p1.log"
  kill -TERM "$pid"
  wait_for 5 grep -q 'stop-now' "$CLUSTER_DIR/run/p1.log"
  until grep -q DELAYED "$BATS_TEST_TMPDIR/strace"; do
    if flock -n "$CLUSTER_DIR/p1/id.lock" true; then
      grep -q DELAYED "$BATS_TEST_TMPDIR/strace" || fail "the directory was let go before its last sync had ended"
    fi
    sleep "$WAIT_POLL"
  done
  wait_for 20 flock -n "$CLUSTER_DIR/p1/id.lock" true
  wait "$tracer" || true
}

@test "R03: a torn tail of every sort is cut, and what is written after it stays" {
  one_server
  records "$INPUT" 20 100
  partc load t "$INPUT" --format tsv >/dev/null
  server kill p1
  local n seg off len file frame
  frame=$BATS_TEST_TMPDIR/frame
  for n in 1 7 55 56 57 100 150 200; do
    read -r seg off len < <(journal_frames p1 | tail -n 1)
    file=$(segment_file p1 "$seg")
    # a whole valid frame, of which only the first n bytes were written when the power went
    dd if="$file" of="$frame" bs=1 skip="$off" count="$(framed "$len")" status=none
    dd if="$frame" of="$file" bs=1 seek="$(journal_end p1)" count="$n" conv=notrunc status=none
    server start p1
    local each # not `i`: Bats' run has one of its own
    for each in 0 1 2 3 4 5 6 7 8 9; do partc put t "after$n-$each" "value$each" --level one; done
    server kill p1
    server start p1
    for each in 0 1 2 3 4 5 6 7 8 9; do
      run -0 partc get t "after$n-$each" --level one
      assert_output "value$each"
    done
    server kill p1
  done
  server start p1
}

@test "a flipped bit in a journal block is found, healed from the replicas, and nothing is lost" {
  three_servers
  records "$INPUT" 400 300
  partc load t "$INPUT" --format tsv --batch 1 --window 1 >/dev/null
  partc verify t --timeout 30s
  server kill p1 p2 p3
  local seg off len
  read -r seg off len < <(journal_frames p1 | sed -n 50p)
  flip_byte "$(segment_file p1 "$seg")" $((off + HEAD + len / 2))
  # without its index the server has nothing but the damaged journal
  rm -rf "$CLUSTER_DIR/p1/index"
  server start p1 p2 p3
  run -0 partc verify t --against "$INPUT" --format tsv --timeout 60s
  run -0 grep -c damage "$CLUSTER_DIR/run/p1.log"
  server stop p1
  server start p1
  run -0 partc verify t --against "$INPUT" --format tsv --timeout 60s
}

# The load goes on until the k-th sync has come: how many there are depends on how many writes share one.
@test "R06: at the first failed fdatasync the server stops, acknowledges nothing, and is well after a restart" {
  three_servers
  local k
  for k in 1 4 9; do
    server stop p1
    : >"$CLUSTER_DIR/run/p1.log"
    server start p1 --no-wait --wrap "strace -f -qq -o /dev/null -e trace=fdatasync -e inject=fdatasync:error=EIO:when=$k+"
    records "$INPUT" 300 200 "$k"
    wait_for 60 loaded_until_gone p1
    run -0 grep -c "Input/output error" "$CLUSTER_DIR/run/p1.log"
    server start p1
    run -0 partc verify t --against "$INPUT" --format tsv --timeout 60s
  done
}
loaded_until_gone() {
  partc load t "$INPUT" --format tsv --batch 1 --window 1 --timeout 30s && not_running "$1"
}

@test "R05: a full disk makes the server read-only, and it comes back by itself" {
  [ "$(id -u)" = 0 ] || skip "mounting a small file system needs root"
  one_server
  server stop r1 p1
  MOUNTED=$CLUSTER_DIR/p1
  mv "$CLUSTER_DIR/p1" "$CLUSTER_DIR/p1.old"
  mkdir "$CLUSTER_DIR/p1"
  mount -t tmpfs -o size=420m tmpfs "$MOUNTED" || skip "cannot mount a tmpfs here"
  cp -a "$CLUSTER_DIR/p1.old/." "$MOUNTED/"
  server start p1 r1
  partc put t before kept --level one
  # somebody else fills the disk
  dd if=/dev/zero of="$MOUNTED/foreign" bs=1M status=none || true
  wait_for 20 refuses_for_space
  run -0 partc get t before --level one
  assert_output kept
  run -0 partc status --server p1
  assert_output --partial "space"
  rm "$MOUNTED/foreign"
  wait_for 20 partc put t after kept --level one --timeout 1s
  server kill p1
  server start p1
  run -0 partc get t after --level one
  assert_output kept
  server stop r1 p1
}
refuses_for_space() {
  run partc put t probe "$(head -c 100000 /dev/zero | tr '\0' x)" --level one --timeout 500ms
  [ "$status" = 75 ] && [[ $output == *READ_ONLY* || $output == *space* ]]
}

@test "R08: a damaged, missing or stale index is noticed and made again" {
  three_servers
  records "$INPUT" 500 200
  partc load t "$INPUT" --format tsv >/dev/null
  partc verify t --timeout 30s
  server stop p2
  cp -a "$CLUSTER_DIR/p2/index" "$BATS_TEST_TMPDIR/stale"
  server start p2
  records "$INPUT" 500 200 2
  partc load t "$INPUT" --format tsv >/dev/null
  local data=$CLUSTER_DIR/p2/index/data.mdb how
  for how in truncate zero_meta zero_both delete stale; do
    server kill p2
    case $how in
      truncate) truncate -s -4096 "$data" ;;
      zero_meta) dd if=/dev/zero of="$data" bs=4096 count=1 conv=notrunc status=none ;;
      zero_both) dd if=/dev/zero of="$data" bs=4096 count=2 conv=notrunc status=none ;;
      delete) rm -f "$data" ;;
      stale) rm -rf "$CLUSTER_DIR/p2/index" && cp -a "$BATS_TEST_TMPDIR/stale" "$CLUSTER_DIR/p2/index" ;;
    esac
    server start p2
    run -0 partc verify t --against "$INPUT" --format tsv --timeout 60s
  done
}

@test "a deleted id file, and a wiped directory under the old name: exit 78, and what to do" {
  three_servers
  partc put t k v
  server stop r1 p1
  mv "$CLUSTER_DIR/p1/id" "$BATS_TEST_TMPDIR/id"
  run ! server start p1
  run -0 grep -E "zkctl node replace" "$CLUSTER_DIR/run/p1.log"
  mv "$BATS_TEST_TMPDIR/id" "$CLUSTER_DIR/p1/id"
  server start p1 r1
  run -0 partc verify t --timeout 30s

  server stop r1 p1
  mv "$CLUSTER_DIR/p1" "$BATS_TEST_TMPDIR/p1"
  mkdir "$CLUSTER_DIR/p1"
  run ! server start p1
  run -0 grep -E "zkctl node replace" "$CLUSTER_DIR/run/p1.log"
  run -0 partc get t k
  assert_output v
}

@test "R10: readers that are killed give their slots back" {
  one_server
  records "$INPUT" 3000 500
  partc load t "$INPUT" --format tsv >/dev/null
  local i
  for ((i = 0; i < 60; i++)); do
    spawn /dev/null partc dump t --direct "$CLUSTER_DIR/p1"
    kill -KILL "$SPAWN_PID"
    wait "$SPAWN_PID" 2>/dev/null || true
  done
  partc put t last one --level one
  run -0 partc get t last --level one
  assert_output one
  run -0 partc bench get t --direct "$CLUSTER_DIR/p1" --records 100 --count 100 --keep-going
}

@test "R11: a reader that hangs does not make the index grow" {
  one_server
  records "$INPUT" 1000 1000
  partc load t "$INPUT" --format tsv >/dev/null
  wait_for 10 test -s "$CLUSTER_DIR/p1/index/data.mdb"
  # a dump to a pipe that nobody reads, stopped in the middle
  mkfifo "$BATS_TEST_TMPDIR/pipe"
  spawn /dev/null bash -c "partc dump t --direct $CLUSTER_DIR/p1 >$BATS_TEST_TMPDIR/pipe"
  local reader=$SPAWN_PID
  exec 8<"$BATS_TEST_TMPDIR/pipe"
  for ((i = 0; i < 15; i++)); do
    records "$INPUT" 1000 1000 "$i"
    partc load t "$INPUT" --format tsv >/dev/null
  done
  exec 8<&-
  kill -KILL "$reader" 2>/dev/null || true
  local live=$((1000 * 1100)) size
  size=$(stat -c %b "$CLUSTER_DIR/p1/index/data.mdb")
  [ $((size * 512)) -lt $((live * 2 + (16 << 20))) ]
}
