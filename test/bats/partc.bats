#!/usr/bin/env bats
# partc: the client's verbs against a cluster of three servers.
# bats file_tags=san
load ../lib/cluster

setup_file() {
  cluster_up --servers 3 --mdservers 1
  zkctl table create t --keyspace range --replication push --replicas 3
}
teardown_file() { cluster_down; }
teardown() { cluster_diagnose; }

# new_table NAME: a table of its own for a test.
new_table() { zkctl table create "$1" --keyspace range --replication push --replicas 3; }

@test "put, get, delete" {
  run -0 partc put t fruit "3 apples"
  assert_output ""
  run -0 partc get t fruit
  assert_output "3 apples"
  run -0 partc delete t fruit
  run -3 partc get t fruit
  assert_output "partc: table t, key fruit: no such key (NOT_FOUND)"
  run -0 partc delete t fruit # deleting what is not there is fine
}

@test "every level, for writes and reads" {
  for level in one majority all; do
    run -0 partc put t "level-$level" "$level" --level "$level"
    run -0 partc get t "level-$level" --level "$level"
    assert_output "$level"
  done
  run -64 partc put t k v --level most
  assert_output --partial "none of one, majority, all"
}

@test "values are bytes, from the command line or stdin, and come back as they were" {
  head -c 100000 /dev/urandom >"$BATS_TEST_TMPDIR/value"
  run -0 partc put t binary - <"$BATS_TEST_TMPDIR/value"
  partc get t binary --raw >"$BATS_TEST_TMPDIR/back"
  run -0 cmp "$BATS_TEST_TMPDIR/value" "$BATS_TEST_TMPDIR/back"
  run -0 partc put t empty ""
  run -0 partc get t empty --raw
  assert_output ""
}

@test "keys are bytes: %XX on the command line, --hex, and the same in what is printed" {
  run -0 partc put t 'a%00b%20c%25' v
  run -0 partc get t --hex 610062206325
  assert_output v
  run -0 partc scan t 'a%00' 'a%01' --keys-only -o name
  assert_output 'a%00b c%25'
  run -64 partc get t 'a%0'
  run -64 partc get t --hex xyz
}

@test "limits: key, value, batch" {
  local long
  long=$(printf 'k%.0s' {1..481})
  run -1 partc put t "$long" v
  assert_output --regexp 'TOO_LARGE|INVALID'
  run -0 partc put t "${long:1}" v
  head -c $((1048576 + 1)) /dev/zero >"$BATS_TEST_TMPDIR/big"
  run -1 partc put t big - <"$BATS_TEST_TMPDIR/big"
  assert_output --partial TOO_LARGE
  run -3 partc get t big
  run -1 partc put t "" v
  run -3 partc get nosuchtable k
  assert_output --partial NO_SUCH_TABLE
}

@test "--json on each verb is JSON" {
  partc put t json1 '{"x":1}' --json | jq -e '.version | length == 40'
  partc get t json1 --json | jq -e '.key == "json1" and .value == "{\"x\":1}"'
  partc scan t --prefix json1 --json | jq -e '.key == "json1"'
  partc route t --json | jq -e '.servers | length == 3'
  partc hash t --json | jq -es 'length == 3 and (map(.hash) | unique | length <= 2)'
  partc status --json | jq -es 'length == 3 and all(.state == "ready")'
  partc status --server p1 --json | jq -e '.role == "partd" and .ready'
  partc verify t --json | jq -e '.verdict == "same"'
}

@test "several keys at once, and keys from stdin" {
  partc put t m1 one
  partc put t m2 two
  run -0 partc get t m1 m2 -o tsv
  assert_line --index 0 --regexp $'^m1\tone\t'
  assert_line --index 1 --regexp $'^m2\ttwo\t'
  run -3 partc get t m1 m-none -o tsv
  assert_line --partial "m-none: NOT_FOUND"
  printf 'm1\nm2\n' | partc delete t -
  run -3 partc get t m1
}

@test "scan: ranges, prefixes, limits, both directions" {
  new_table scans
  records "$BATS_TEST_TMPDIR/in" 2500 600
  partc load scans "$BATS_TEST_TMPDIR/in" --format tsv >/dev/null
  run -0 partc scan scans --keys-only -o name
  assert_equal "${#lines[@]}" 2500
  assert_equal "$(sort <<<"$output")" "$output"
  run -0 partc scan scans k0000010 k0000020 --keys-only -o name
  assert_equal "${#lines[@]}" 10
  assert_line --index 0 k0000010
  run -0 partc scan scans --prefix k00001 --keys-only -o name
  assert_equal "${#lines[@]}" 100
  run -0 partc scan scans --reverse --limit 3 --keys-only -o name
  assert_equal "$output" $'k0002499\nk0002498\nk0002497'
  run -0 partc scan scans --reverse --keys-only -o name
  assert_equal "$(sort -r <<<"$output")" "$output"
  run -64 partc scan scans a b --prefix k
}

@test "batch: all or nothing, one version" {
  printf 'b1\t1\nb2\t2\n' | partc batch t --format tsv
  assert_equal "$(partc get t b1 --json | jq -r .version)" "$(partc get t b2 --json | jq -r .version)"
  printf '{"key":"b1","deleted":true}\n{"key":"b3","value":"3"}\n' | partc batch t
  run -3 partc get t b1
  run -0 partc get t b3
  assert_output 3
  # A line that cannot be read: nothing is written.
  run -1 partc batch t <<<$'{"key":"b4","value":"4"}\nnonsense'
  assert_output --partial "line 2"
  run -3 partc get t b4
  run -1 partc batch t --format tsv <<<$'b5\t1\nb5\t2'
}

@test "load counts what it rejects, names it, and goes on" {
  run -1 partc load t --format jsonl --json <<<$'{"key":"l1","value":"1"}\n{"key":"","value":"2"}\nnonsense\n{"key":"l2","value":"2"}'
  assert_line --partial "line 2 rejected: the key is empty"
  assert_line --partial "line 3 rejected: not JSON"
  assert_equal "$(grep '^{' <<<"$output" | jq -r '"\(.records) \(.rejected)"')" "2 2"
  run -0 partc get t l2
}

@test "load: what cannot begin says why, and an input of another format is not read to its end" {
  run -3 partc load nosuchtable <<<'{"key":"a","value":"1"}'
  assert_output --partial NO_SUCH_TABLE
  assert_equal "${#lines[@]}" 1 # no figures of nothing
  run -1 partc load t "$BATS_TEST_TMPDIR"
  assert_output --partial "directory"
  assert_equal "${#lines[@]}" 1

  records "$BATS_TEST_TMPDIR/in" 250
  run -1 partc load t "$BATS_TEST_TMPDIR/in"
  assert_equal "${#lines[@]}" 2
  assert_line --index 0 --partial "line 1 rejected: not JSON"
  assert_line --index 1 --partial "as jsonl, the default --format; is this deb822 or tsv? (--keep-going"
  run -1 partc load t "$BATS_TEST_TMPDIR/in" --keep-going --show-rejected 1
  assert_line --regexp '^rejected +250'
  assert_line --regexp '^longest_gap_end_unix_ms +-$'
  # One that can be read, and it is the input that is bad, not the format.
  { echo '{"key":"good","value":"1"}' && cat "$BATS_TEST_TMPDIR/in"; } >"$BATS_TEST_TMPDIR/mixed"
  run -1 partc load t "$BATS_TEST_TMPDIR/mixed" --show-rejected 1
  assert_line --regexp '^records +1$'
  assert_line --regexp '^rejected +250'
}

@test "an interrupted load can be run again: 75, with the figures of what was acknowledged" {
  new_table paused
  records "$BATS_TEST_TMPDIR/in" 100000
  spawn "$BATS_TEST_TMPDIR/log" partc load paused "$BATS_TEST_TMPDIR/in" --format tsv --rate 500
  wait_for 20 partc get paused k0000010
  kill -INT "$SPAWN_PID"
  local ended=0
  wait "$SPAWN_PID" || ended=$?
  assert_equal "$ended" 75
  assert_file_contains "$BATS_TEST_TMPDIR/log" "interrupted: what was acknowledged is in the table"
  assert_file_contains "$BATS_TEST_TMPDIR/log" "^records "
}

@test "load and dump: jsonl, tsv and deb822 come back as they were" {
  printf 'Package: a\nDescription: one\n two\n\nPackage: b\nX: y\n\nPackage: a\nDescription: last\n' >"$BATS_TEST_TMPDIR/deb"
  new_table deb
  partc load deb "$BATS_TEST_TMPDIR/deb" --format deb822 >/dev/null
  run -0 partc get deb a
  assert_output $'Package: a\nDescription: last'
  run -0 partc dump deb --format deb822
  assert_output $'Package: a\nDescription: last\n\nPackage: b\nX: y'

  new_table copy
  partc put copy 'x%00%FF' - <<<$'tab\there'
  for format in jsonl tsv; do
    partc dump copy --format "$format" >"$BATS_TEST_TMPDIR/$format"
    partc delete copy 'x%00%FF'
    partc load copy "$BATS_TEST_TMPDIR/$format" --format "$format" >/dev/null
    assert_equal "$(partc get copy 'x%00%FF')" $'tab\there'
  done
}

@test "the last record of a key wins, whatever the window" {
  new_table last
  for i in {1..3000}; do printf 'k%d\t%d\n' $((i % 7)) "$i"; done >"$BATS_TEST_TMPDIR/in"
  partc load last "$BATS_TEST_TMPDIR/in" --format tsv --window 500 --batch 50 >/dev/null
  run -0 partc verify last --against "$BATS_TEST_TMPDIR/in" --format tsv
  assert_line --regexp 'records +7'
}

@test "load keeps to a rate, and logs its gaps" {
  records "$BATS_TEST_TMPDIR/in" 300
  new_table paced
  partc load paced "$BATS_TEST_TMPDIR/in" --format tsv --rate 200 --gap-log "$BATS_TEST_TMPDIR/gaps" --json >"$BATS_TEST_TMPDIR/out"
  jq -e '.records == 300 and .records_per_second < 260 and .longest_gap_ms > 0' "$BATS_TEST_TMPDIR/out"
  awk 'NF != 2 || $1 < 1e15 || $2 < 0 { bad = 1 } END { exit bad || NR < 100 }' "$BATS_TEST_TMPDIR/gaps"
}

@test "verify finds what is missing, what is too much, and what differs" {
  new_table v
  printf 'a\t1\nb\t2\nc\t3\n' >"$BATS_TEST_TMPDIR/in"
  partc load v "$BATS_TEST_TMPDIR/in" --format tsv >/dev/null
  run -0 partc verify v --against "$BATS_TEST_TMPDIR/in" --format tsv
  assert_line --regexp 'verdict +same'
  partc put v b other
  partc delete v c
  partc put v d new
  run -1 partc verify v --against "$BATS_TEST_TMPDIR/in"
  assert_output --partial "none of the 3 entries of $BATS_TEST_TMPDIR/in can be read as jsonl, the default --format"
  run -2 partc verify v --against "$BATS_TEST_TMPDIR/in" --format tsv
  assert_line --partial "another value: b (line 2)"
  assert_line --partial "missing: c (line 3)"
  assert_line --partial "not in the input: d"
  assert_line --regexp 'verdict +different'
}

@test "direct reads see what the index has" {
  new_table d
  partc put d k v
  direct() { [ "$(partc get d k --direct "$CLUSTER_DIR/p1")" = v ]; }
  wait_for 10 direct
  run -0 partc scan d --direct "$CLUSTER_DIR/p1" --keys-only -o name
  assert_output k
  run -0 partc bench get d --records 10 --direct "$CLUSTER_DIR/p1" --count 1000 --json
  jq -e '.operations == 1000' <<<"$output"
}

@test "bench: puts and gets, a history, figures" {
  new_table bench
  run -0 partc bench put bench --records 200 --count 400 --connections 2 --in-flight 4 --history "$BATS_TEST_TMPDIR/h" --json
  jq -e '.operations == 400 and .failed == 0 and .latency_us_p50 > 0' <<<"$output"
  jq -es 'length == 400 and all(.outcome == "ok" and .op == "put" and .begin_ns < .end_ns)' "$BATS_TEST_TMPDIR/h"
  run -0 partc bench get bench --records 200 --count 300 --level one --json
  jq -e '.reads == 300 and .not_found == 0' <<<"$output"
  run -64 partc bench walk bench
}

@test "bench: the history of a table with one copy is linearizable" {
  zkctl table create single --keyspace range --replication push --replicas 1
  local h=$BATS_TEST_TMPDIR/h
  run -0 partc bench mixed single --records 20 --count 2000 --connections 4 --in-flight 4 --history "$h" --json
  run -0 "${CANTLE_BIN%/*}/test/lincheck" "$h"
  assert_output --partial "linearizable: 2000 operations, 20 keys, "
  # A read that is not what it was.
  jq -c 'if .op == "get" and .value != null then .value = "1.0.0.never" else . end' "$h" >"$h.wrong"
  run -1 "${CANTLE_BIN%/*}/test/lincheck" "$h.wrong"
  assert_line --partial '1.0.0.never'
}

@test "status at an address asks that daemon alone" {
  run -0 partc status --at "unix:$CLUSTER_DIR/run/m1.sock" --json
  jq -e '.server == "m1"' <<<"$output"
  run -0 partc status --at "unix:$CLUSTER_DIR/run/p1.sock" --ready
  run -69 partc status --at unix:/nonexistent.sock --ready
  run -69 partc status --at unix:/nonexistent.sock --ready --wait 100ms
  run -64 partc status --at "unix:$CLUSTER_DIR/run/p1.sock" --wait 1s
  run -0 partc status --at "127.0.0.1:$(awk '$1 == "p2" { print $2 }' "$CLUSTER_DIR/ports")" --json
  jq -e '.server == "p2"' <<<"$output"
}

@test "status waits for a server that is starting" {
  server kill p3
  run -69 partc status --at "unix:$CLUSTER_DIR/run/p3.sock" --ready --wait 100ms
  server start p3 --no-wait
  run -0 partc status --at "unix:$CLUSTER_DIR/run/p3.sock" --ready --wait 20s
}

@test "status names a server that is down, and the others serve on" {
  partc put t before down
  server kill p3
  gone() { [ "$(partc status -o tsv | awk -F'\t' '$1 == "p3" { print $2 }')" = down ]; }
  wait_for 15 gone
  run -3 partc status
  assert_line --regexp '^p1 +ready'
  run -0 partc get t before
  assert_output down
  run -0 partc put t while down
  run -75 --separate-stderr partc verify t --timeout 5s --json
  assert_equal "$(jq -r '"\(.verdict) \(.partitions_differing) \(.partitions_not_compared)"' <<<"$output")" "incomplete 0 1"
  # shellcheck disable=SC2154  # set by run
  assert_regex "$stderr" 'waiting, at most 5s: .*p3: it is down' # once, before the time is over
  assert_regex "$stderr" 'not compared: partition .*: p3: it is down'
  server start p3
  run -0 partc status
}

@test "wrong usage is 64; no cluster is 3; no coordination service at all is said so" {
  run -64 partc
  run -64 partc get
  run -64 partc get t k --no-such-flag
  run -0 partc --help
  run -0 partc load --help
  assert_output --partial "example:"
  run -0 partc --version
  run -3 env CANTLE_CLUSTER=other partc get t k
  assert_output --partial "there is no cluster other"
  run -64 env -u CANTLE_COORD partc get t k
  assert_output --partial coord
}
