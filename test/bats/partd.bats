#!/usr/bin/env bats
# partd: what any MessagePack-RPC client meets, and the verbs on a data directory.
# bats file_tags=san
load ../lib/cluster

setup_file() {
  cluster_up --servers 4 --mdservers 1
  zkctl table create t --keyspace range --replication push --replicas 3
  zkctl table create scans --keyspace range --replication push --replicas 3
  zkctl table create solo --keyspace range --replication push --replicas 1
}
teardown_file() { cluster_down; }
teardown() { cluster_diagnose; }

# rpc SERVER METHOD [JSON]
rpc() {
  local socket=$CLUSTER_DIR/run/$1.sock
  shift
  "$BATS_TEST_DIRNAME/../lib/rpc.py" "$socket" "$@"
}
# holder TABLE: a server that holds its first partition; stranger TABLE: one that does not.
holder() { rpc p1 route "{\"table\":\"$1\",\"key\":\"k\"}" | jq -r '.partitions[0].servers[0].server'; }
stranger() {
  local holders s
  holders=$(rpc p1 route "{\"table\":\"$1\",\"key\":\"k\"}" | jq -r '.partitions[0].servers[].server')
  for s in p1 p2 p3 p4; do grep -qx "$s" <<<"$holders" || echo "$s"; done | head -1
}
fresh() { zkctl table create "$1" --keyspace range --replication push --replicas "${2:-3}" >/dev/null; }

@test "put, get and delete for anybody who speaks MessagePack-RPC" {
  local at
  at=$(holder t)
  run -0 rpc "$at" put '{"table":"t","key":"k","value":"v"}'
  run -0 jq -e '.lsn >= 1 and .epoch >= 1 and .txnseq >= 1 and (.version | length) == 20' <<<"$output"
  run -0 rpc "$at" get '{"table":"t","key":"k"}'
  run -0 jq -e '.value == "v"' <<<"$output"
  run -0 rpc "$at" delete '{"table":"t","key":"k","level":3}'
  run -1 rpc "$at" get '{"table":"t","key":"k","level":2}'
  assert_output --partial NOT_FOUND
}

@test "a server that does not hold the partition passes the request on, once, if it may" {
  local other
  other=$(stranger t)
  run -0 rpc "$other" put '{"table":"t","key":"hop","value":"v"}'
  run -0 rpc "$other" get '{"table":"t","key":"hop","level":2}'
  run -1 rpc "$other" get '{"table":"t","key":"hop","hop":false}'
  assert_output --partial STALE_ROUTE
  run -0 rpc "$other" scan '{"table":"t","begin":"hop","end":"hoq"}'
  run -0 jq -e '.records[0].value == "v"' <<<"$output"
}

@test "what is over a limit or of a wrong kind has its code, and nothing is stored" {
  local at long
  at=$(holder t)
  long=$(printf 'x%.0s' {1..481})
  run -1 rpc "$at" put "{\"table\":\"t\",\"key\":\"$long\",\"value\":\"v\"}"
  assert_output --partial TOO_LARGE
  run -1 rpc "$at" put '{"table":"t","key":"","value":"v"}'
  assert_output --partial INVALID
  run -1 rpc "$at" put '{"table":"t","key":7,"value":"v"}'
  assert_output --partial MALFORMED
  run -1 rpc "$at" put '{"table":"t","key":"lim","value":"v","level":9}'
  assert_output --partial INVALID
  run -1 rpc "$at" batch '{"table":"t","ops":[{"op":1,"key":"lim","value":"1"},{"op":1,"key":"lim","value":"2"}]}'
  assert_output --partial INVALID
  run -1 rpc "$at" batch '{"table":"t","ops":[]}'
  assert_output --partial INVALID
  run -1 rpc "$at" put '{"table":"nosuch","key":"lim","value":"v"}'
  assert_output --partial NO_SUCH_TABLE
  run -1 rpc "$at" frobnicate '{"table":"t"}'
  assert_output --partial INVALID
  run -1 rpc "$at" scan '{"table":"t","cursor":"nonsense"}'
  assert_output --partial INVALID
  run -1 rpc "$at" get '{"table":"t","key":"lim"}'
  assert_output --partial NOT_FOUND
}

@test "a map that is too old is sent back, one that is too new is waited for" {
  local at seq
  fresh stale
  at=$(holder stale)
  run -0 splitter split stale "$(partc route stale -o name)" --at m
  seq=$(rpc "$at" route '{"table":"stale","key":"k"}' | jq .txnseq)
  wait_for 5 sh -c "[ \$($BATS_TEST_DIRNAME/../lib/rpc.py $CLUSTER_DIR/run/$at.sock status '{\"table\":\"stale\"}' | jq '.tables[0].observed') -ge 4 ]"
  run -1 rpc "$at" put '{"table":"stale","key":"k","value":"v","txnseq":1}'
  assert_output --partial STALE_ROUTE
  assert_output --partial '"txnseq":'
  run -0 rpc "$at" put "{\"table\":\"stale\",\"key\":\"k\",\"value\":\"v\",\"txnseq\":$seq}"
  run -1 rpc "$at" put "{\"table\":\"stale\",\"key\":\"k\",\"value\":\"v\",\"txnseq\":$((seq + 50)),\"deadline_ms\":300}"
  assert_output --partial UNAVAILABLE
}

@test "a batch lies in one partition, is all or nothing, and has one version" {
  local at
  fresh batches
  at=$(holder batches)
  run -0 rpc "$at" batch '{"table":"batches","ops":[{"op":1,"key":"a","value":"1"},{"op":1,"key":"z","value":"2"},{"op":2,"key":"q"}]}'
  run -0 rpc "$at" scan '{"table":"batches"}'
  run -0 jq -e '.records | length == 2 and .[0].version == .[1].version' <<<"$output"
  run -0 splitter split batches "$(partc route batches -o name)" --at m
  wait_for 10 sh -c "[ \$($BATS_TEST_DIRNAME/../lib/rpc.py $CLUSTER_DIR/run/$at.sock route '{\"table\":\"batches\"}' | jq '.partitions | length') = 2 ]"
  run -1 rpc "$at" batch '{"table":"batches","ops":[{"op":1,"key":"a","value":"3"},{"op":1,"key":"z","value":"4"}]}'
  assert_output --partial INVALID
  run -0 rpc "$at" get '{"table":"batches","key":"a"}'
  run -0 jq -e '.value == "1"' <<<"$output"
}

@test "a write repeated with its version is the same write" {
  local at version
  at=$(holder solo)
  rpc "$at" put '{"table":"solo","key":"again","value":"old","level":1}' >/dev/null
  version=$(partc get solo again --json | jq -r '.version // empty')
  [ -n "$version" ] || skip "partc get --json says no version"
  rpc "$at" put '{"table":"solo","key":"again","value":"new","level":1}' >/dev/null
  run -0 rpc "$at" put "{\"table\":\"solo\",\"key\":\"again\",\"value\":\"old\",\"level\":1,\"version\":{\"hex\":\"$version\"}}"
  run -0 rpc "$at" get '{"table":"solo","key":"again"}'
  run -0 jq -e '.value == "new"' <<<"$output"
}

# all_keys SERVER DIRECTION LIMIT [COMMAND]: pages through the table `scans`; COMMAND runs after the second page.
all_keys() {
  local cursor="" page n=0 from
  while :; do
    from="{\"hex\":\"$cursor\"}"
    page=$(rpc "$1" scan "{\"table\":\"scans\",\"reverse\":$2,\"limit\":$3,\"level\":${LEVEL:-1},\"cursor\":$from}")
    jq -r '.records[].key' <<<"$page"
    cursor=$(jq -r '.cursor' <<<"$page" | python3 -c 'import sys; print(sys.stdin.read().rstrip("\n").encode("latin-1").hex())')
    n=$((n + 1))
    if [ "$n" = 2 ] && [ -n "${4:-}" ]; then eval "$4" >&2; fi
    [ -n "$cursor" ] || return 0
  done
}

@test "a scan, forward and reverse, goes on by key across splits" {
  local at want=$BATS_TEST_TMPDIR/want
  records "$BATS_TEST_TMPDIR/in" 300
  partc load scans "$BATS_TEST_TMPDIR/in" --format tsv >/dev/null
  cut -f1 "$BATS_TEST_TMPDIR/in" >"$want"
  at=$(holder scans)
  # shellcheck disable=SC2016  # expanded in the middle of the scan
  all_keys "$at" false 37 'splitter split scans "$(partc route scans -o name | head -1)" --at k0000100' >"$BATS_TEST_TMPDIR/forward"
  run -0 diff "$want" "$BATS_TEST_TMPDIR/forward"
  # shellcheck disable=SC2016
  all_keys "$at" true 41 'splitter split scans "$(partc route scans -o name | tail -1)" --at k0000200' >"$BATS_TEST_TMPDIR/reverse"
  run -0 diff <(sort -r "$want") "$BATS_TEST_TMPDIR/reverse"
  LEVEL=2 all_keys "$at" false 50 >"$BATS_TEST_TMPDIR/majority"
  run -0 diff "$want" "$BATS_TEST_TMPDIR/majority"
  LEVEL=2 all_keys "$at" true 50 >"$BATS_TEST_TMPDIR/majority-reverse"
  run -0 diff <(sort -r "$want") "$BATS_TEST_TMPDIR/majority-reverse"
}

@test "sample cuts by bytes, never at the first or last key" {
  local at id
  fresh sampled
  records "$BATS_TEST_TMPDIR/in" 2000 200
  partc load sampled "$BATS_TEST_TMPDIR/in" --format tsv >/dev/null
  at=$(holder sampled)
  id=$(rpc "$at" status '{"table":"sampled"}' | jq -r '.tables[0].partitions[0].id' | python3 -c 'import sys; print(sys.stdin.read()[:-1].encode("latin-1").hex())')
  run -0 rpc "$at" sample "{\"table\":\"sampled\",\"partition\":{\"hex\":\"$id\"},\"points\":1}"
  run -0 jq -e '.first == "k0000000" and .last == "k0001999" and (.points[0].key > "k0000800") and (.points[0].key < "k0001200")' <<<"$output"
}

@test "a drained server refuses writes with the reason and takes them again" {
  local at
  at=$(holder t)
  rpc "$at" drain '{"on":true}' >/dev/null
  run -1 rpc "$at" put '{"table":"t","key":"d","value":"v","hop":false}'
  assert_output --partial READ_ONLY
  assert_output --partial draining
  rpc "$at" drain '{"on":false}' >/dev/null
  run -0 rpc "$at" put '{"table":"t","key":"d","value":"v","hop":false}'
}

@test "between servers: a message to another tenure, of an older life or to nobody changes nothing" {
  local at
  at=$(holder t)
  run -1 rpc "$at" push.read '{"key":"k"}'
  assert_output --partial NO_SUCH_TABLE
  run -1 rpc "$at" push.write '{"envelope":{"table":"t"},"records":"","count":1}'
  run -1 rpc "$at" bulk.block '{"kind":2}'
  run -1 rpc "$at" bulk.block '{"kind":7}'
  assert_output --partial INVALID
  run -0 rpc "$at" drop '{"table":"t"}'
  run -0 jq -e '.dropped == false' <<<"$output"
  run -0 rpc "$at" status
  run -0 jq -e '.ready' <<<"$output"
}

@test "killed and started again it has every write it acknowledged" {
  local at life
  at=$(holder solo)
  for life in 1 2 3; do
    rpc "$at" put "{\"table\":\"solo\",\"key\":\"crash$life\",\"value\":\"v$life\",\"level\":1}" >/dev/null
    server kill "$at"
    server start "$at"
    run -0 partc get solo "crash$life"
    assert_output "v$life"
  done
}

@test "hash, verify, dump-journal, snapshot and restore on a data directory" {
  local at dir id
  at=$(holder solo)
  dir=$CLUSTER_DIR/$at
  rpc "$at" put '{"table":"solo","key":"snap","value":"kept","level":1}' >/dev/null
  id=$(rpc "$at" status '{"table":"solo"}' | jq -r '.tables[0].partitions[0].id' | python3 -c 'import sys; print(sys.stdin.read()[:-1].encode("latin-1").hex())')
  run -0 partd dump-journal --data-dir "$dir" --partition "$id" --records -o tsv
  assert_line --partial snap
  wait_for 10 sh -c "partd snapshot --data-dir $dir --partition $id | grep -q snap"
  partd snapshot --data-dir "$dir" --partition "$id" >"$BATS_TEST_TMPDIR/snap"
  run -64 partd snapshot --data-dir "$dir" --partition "${id:0:3}"
  run partd restore --data-dir "$dir" --partition "$id" <"$BATS_TEST_TMPDIR/snap"
  assert_failure # it runs

  rpc "$at" delete '{"table":"solo","key":"snap","level":1}' >/dev/null
  server stop "$at"
  run -0 partd verify --data-dir "$dir"
  run -0 partd restore --data-dir "$dir" --partition "$id" --json --log-level error <"$BATS_TEST_TMPDIR/snap"
  run -0 jq -e '.restored >= 1' <<<"$output"
  head -c 100 "$BATS_TEST_TMPDIR/snap" >"$BATS_TEST_TMPDIR/cut"
  run -1 partd restore --data-dir "$dir" --partition "$id" <"$BATS_TEST_TMPDIR/cut"
  run -0 partd verify --data-dir "$dir"
  server start "$at"
  run -3 partc get solo snap # the deletion is newer
}

@test "a restore whose disk refuses a sync ends with an error, whichever file it is of" {
  local at dir id segment file
  at=$(holder solo)
  dir=$CLUSTER_DIR/$at
  id=$(rpc "$at" status '{"table":"solo"}' | jq -r '.tables[0].partitions[0].id' | python3 -c 'import sys; print(sys.stdin.read()[:-1].encode("latin-1").hex())')
  rpc "$at" put '{"table":"solo","key":"synced","value":"kept","level":1}' >/dev/null
  wait_for 10 sh -c "partd snapshot --data-dir $dir --partition $id | grep -q synced"
  partd snapshot --data-dir "$dir" --partition "$id" >"$BATS_TEST_TMPDIR/snap"
  server stop "$at"
  segment=$(partd dump-journal --data-dir "$dir" --json | jq -rs 'last | .at | split(":")[0]')
  for file in "$(printf '%s/journal/%012d.seg' "$dir" "$segment")" "$dir/index/data.mdb" "$dir/journal/root"; do
    # LeakSanitizer does not work under strace.
    run env ASAN_OPTIONS="${ASAN_OPTIONS:-}:detect_leaks=0" timeout 20 strace -f -qq -o "$BATS_TEST_TMPDIR/strace" -P "$file" -e trace=fdatasync,fsync \
      -e inject=fdatasync,fsync:error=EIO partd restore --data-dir "$dir" --partition "$id" --log-level error <"$BATS_TEST_TMPDIR/snap"
    assert grep -q INJECTED "$BATS_TEST_TMPDIR/strace"
    assert_failure
    [ "$status" != 124 ] || fail "it waits for what will not come: $file"
  done
  run -0 partd verify --data-dir "$dir"
  server start "$at"
  run -0 partc get solo synced
}

@test "a wiped directory under an old name, and a missing id file, end with status 78" {
  local at dir
  fresh gone
  at=$(holder gone)
  dir=$CLUSTER_DIR/$at
  partc put gone k v
  server stop "$at"
  mv "$dir" "$dir.away"
  mkdir "$dir"
  run -78 timeout 20 partd run --id "$at" --data-dir "$dir" --listen "127.0.0.1:$(free_port)" --socket "$BATS_TEST_TMPDIR/x.sock"
  assert_output --partial "node replace"
  rm -r "$dir"
  mv "$dir.away" "$dir"
  mv "$dir/id" "$dir/id.away"
  run -78 timeout 20 partd run --id "$at" --data-dir "$dir" --listen "127.0.0.1:$(free_port)" --socket "$BATS_TEST_TMPDIR/x.sock"
  assert_output --partial id
  mv "$dir/id.away" "$dir/id"
  server start "$at"
  run -0 partc get gone k
}

@test "another cluster's directory, and another server's, are refused with status 78" {
  local dir=$CLUSTER_DIR/p1
  server stop p1
  run -78 timeout 20 partd run --id p9 --data-dir "$dir" --listen "127.0.0.1:$(free_port)" --socket "$BATS_TEST_TMPDIR/x.sock"
  zkctl --coord "file://$BATS_TEST_TMPDIR/other" init >/dev/null
  run -78 timeout 20 partd run --id p1 --coord "file://$BATS_TEST_TMPDIR/other" --data-dir "$dir" --listen "127.0.0.1:$(free_port)" --socket "$BATS_TEST_TMPDIR/x.sock"
  server start p1
}

@test "a dropped table's data goes, and its name may be used again" {
  fresh dropme
  partc put dropme k v
  zkctl table drop dropme --accept-loss
  wait_for 10 sh -c "! partc get dropme k"
  run partc get dropme k
  assert_output --partial NO_SUCH_TABLE
  wait_for 20 fresh dropme
  run -3 partc get dropme k
}

@test "an emptied directory under a name that holds nothing is a new server, however often the old one had started" {
  local dir=$BATS_TEST_TMPDIR/p9 socket=$CLUSTER_DIR/run/p9.sock from life
  p9() {
    spawn "$BATS_TEST_TMPDIR/p9.log" partd run --id p9 --data-dir "$dir" --listen "127.0.0.1:$(free_port)" --socket "$socket"
    wait_for 20 partc status --at "unix:$socket" --ready
    # Whoever is to talk to it has heard of this life.
    wait_for 20 sh -c "$BATS_TEST_DIRNAME/../lib/rpc.py $CLUSTER_DIR/run/p1.sock mover.view '{\"have\":{}}' | jq -e '.peers[] | select(.server == \"p9\" and .live)'"
  }
  fresh free
  partc put free k v
  for life in 1 2 3; do
    p9
    kill -KILL "$SPAWN_PID"
    wait "$SPAWN_PID" || true
  done
  rm -r "$dir"
  p9
  from=$(holder free)
  run -0 zkctl node replace "$from" p9 --table free --timeout 60s
  wait_for 10 rpc p9 get '{"table":"free","key":"k","level":3,"hop":false}' # as soon as it reaches the others
  run -0 zkctl table drop free --accept-loss
  kill "$SPAWN_PID"
  wait "$SPAWN_PID" || true
}

@test "who cannot listen does not become a member" {
  local taken
  taken=$(zkctl node list --json | jq -rs '[flatten[] | select(.server == "p1" or .id == "p1")][0] | .tcp // .address')
  run -4 partd run --id p8 --data-dir "$BATS_TEST_TMPDIR/p8" --listen "$taken" --socket "$BATS_TEST_TMPDIR/p8.sock"
  assert_output --partial "$taken"
  assert_output --partial "in use"
  run -0 zkctl node list
  refute_output --partial p8
}
