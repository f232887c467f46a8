#!/usr/bin/env bats
# splitter: a split as an operator begins, follows, leaves and undoes it.
# bats file_tags=san
load ../lib/cluster

setup_file() { cluster_up --servers 5 --mdservers 2; }
teardown_file() { cluster_down; }
teardown() { cluster_diagnose; }

# fresh TABLE [REPLICAS [RECORDS]]: its servers are p1, p2, … as placement has it.
fresh() {
  zkctl table create "$1" --keyspace range --replication push --replicas "${2:-3}" >/dev/null
  records "$BATS_TEST_TMPDIR/$1" "${3:-1000}"
  partc load "$1" "$BATS_TEST_TMPDIR/$1" --format tsv >/dev/null
}
region() { partc route "$1" -o name | head -1; }
partitions() { partc route "$1" -o name | wc -l; }
holders() { partc route "$1" --json | jq -r -s '.[0].servers | if type == "array" then map(.server? // .) | join(" ") else gsub(",";" ") end'; }
others() { # TABLE: servers that do not hold its first partition
  local s
  for s in p1 p2 p3 p4 p5; do
    case " $(holders "$1") " in *" $s "*) ;; *) echo "$s" ;; esac
  done
}
same() { partc verify "$1" --against "$BATS_TEST_TMPDIR/$1" --format tsv --timeout 60s; }
# Children elsewhere cannot be filled while every mover holds: the split stays where it is.
hold_all() { local r; for r in r1 r2 r3 r4 r5; do replpush hold --socket "$CLUSTER_DIR/run/$r.sock" >/dev/null; done; }
release_all() { local r; for r in r1 r2 r3 r4 r5; do replpush release --socket "$CLUSTER_DIR/run/$r.sock" >/dev/null; done; }
attempt_of() { splitter status "$1" -o name; }
phase_is() { [ "$(splitter status "$1" --json | jq -r .phase)" = "$2" ]; }
ended() { [ -z "$(attempt_of "$1")" ]; }
forgotten() { [ "$(zkctl cat "$1" --json | jq '.ended | length')" = 0 ]; } # TABLE

@test "where the bytes halve, in place, and nothing is lost" {
  fresh a
  run -0 splitter split a "#$(region a)" --json
  run -0 jq -e '.outcome == "done" and .low_servers == .high_servers and (.point | test("^k00000?[45]"))' <<<"$output"
  assert_equal "$(partitions a)" 2
  run -0 same a
}

@test "at a key, after a dry run that changes nothing" {
  fresh b
  run -0 splitter split b key:k0000500 --at k0000700 --dry-run
  assert_line --regexp 'point +k0000700'
  assert_equal "$(partitions b)" 1
  run -0 splitter split b key:k0000500 --at k0000700
  run -0 partc route b k0000699
  assert_output --partial "k0000700)"
  run -0 same b
}

@test "a plan is applied on the map it was made for, and on no other" {
  fresh c
  splitter plan c "$(region c)" >"$BATS_TEST_TMPDIR/one" || [ $? = 2 ]
  splitter plan c "$(region c)" --at k0000100 >"$BATS_TEST_TMPDIR/two" || [ $? = 2 ]
  run -0 splitter apply "$BATS_TEST_TMPDIR/one" --dry-run
  assert_equal "$(partitions c)" 1
  run -0 splitter apply "$BATS_TEST_TMPDIR/one"
  run -4 splitter apply "$BATS_TEST_TMPDIR/two"
  assert_output --partial "has changed"
  run -4 splitter apply "$BATS_TEST_TMPDIR/one"
  run -1 splitter apply - <<<"not a plan"
  assert_equal "$(partitions c)" 2
}

@test "what cannot be split is refused, with the reason" { # S50
  zkctl table create d --keyspace range --replication push --replicas 3 >/dev/null
  run -1 splitter split d "$(region d)"
  assert_output --partial "empty"
  partc put d only record
  sampled() { splitter split d "$(region d)" 2>&1 | grep -q "one record"; }
  wait_for 20 sampled
  run -1 splitter split d "$(region d)"
  run -64 splitter split d "$(region d)" --at %zz
  assert_equal "$(partitions d)" 1
}

@test "names that mean nothing have their statuses" {
  run -3 splitter split nosuch 1
  fresh e
  run -3 splitter split e 99999
  run -3 splitter split e '#99999'
  run -3 splitter split e ffffffff
  run -64 splitter split e key:%zz
  run -64 splitter split e "$(region e)" --low p1
  run -64 splitter split e "$(region e)" --low p1,p1,p2
  run -4 splitter split e "$(region e)" --low p1,p2,p9
  assert_output --partial "p9 is not there"
  run -64 splitter wait nonsense
  run -3 splitter wait 00000000000000000000000000000001
  run -64 splitter
  run -0 splitter split --help
}

@test "onto other servers: the children are filled, the parent's copies go" {
  fresh f 1 3000
  local other
  other=$(others f)
  # shellcheck disable=SC2086
  set -- $other
  run -0 splitter split f "$(region f)" --low "$1" --high "$2" --progress
  run -0 same f
  gone() { [ -z "$(replpush list --socket "$CLUSTER_DIR/run/r${1#p}.sock" --json | jq -r 'select(.table == "f")')" ]; }
  local s
  for s in p1 p2 p3 p4 p5; do
    if [ "$s" != "$1" ] && [ "$s" != "$2" ]; then wait_for 60 gone "$s"; fi
  done
  run -0 same f
}

@test "begun and left alone it ends all the same" {
  fresh g
  local begun attempt
  begun=$(splitter split g "$(region g)" --no-wait --json 2>/dev/null)
  attempt=$(jq -r .attempt <<<"$begun")
  wait_for 30 ended g
  # How it ended is known when METADATA has forgotten it, too.
  wait_for 30 forgotten g
  run -0 splitter wait "$attempt"
  assert_output --partial 'done'
  run -4 splitter abort "$attempt"
  assert_equal "$(partitions g)" 2
  run -0 same g
}

@test "aborted while it waits, it leaves what was there" { # S60, R38
  fresh h 1
  hold_all
  # shellcheck disable=SC2046
  set -- $(others h)
  splitter split h "$(region h)" --low "$1" --high "$2" --no-wait
  local attempt
  attempt=$(attempt_of h)
  wait_for 30 phase_is h filling
  run -0 splitter status h
  assert_output --partial "$1,$2"
  run -4 splitter split h "$(region h)"
  assert_output --partial "being split already"
  run -0 splitter abort "$attempt"
  assert_equal "$(partitions h)" 1
  run -0 splitter abort "$attempt"
  run -1 splitter wait "$attempt"
  assert_output --partial aborted
  release_all
  run -0 same h
  run -0 splitter split h "$(region h)"
  run -0 same h
}

@test "killed, left by Ctrl-C, and taken up again" { # S38, S42
  fresh i 1
  hold_all
  # shellcheck disable=SC2046
  set -- $(others i)
  spawn "$BATS_TEST_TMPDIR/log" splitter split i "$(region i)" --low "$1" --high "$2"
  local first=$SPAWN_PID attempt
  wait_for 30 phase_is i filling
  attempt=$(attempt_of i)
  kill -9 "$first"
  run -75 timeout --preserve-status -s INT 10 splitter wait "$attempt"
  assert_output --partial "goes on"
  run -75 splitter resume "$attempt" --timeout 1s
  release_all
  run -0 splitter resume "$attempt" --timeout 60s
  assert_equal "$(partitions i)" 2
  run -0 same i
}

@test "when nobody drives it a metadata server does" {
  fresh j 1
  hold_all
  # shellcheck disable=SC2046
  set -- $(others j)
  spawn "$BATS_TEST_TMPDIR/log" splitter split j "$(region j)" --low "$1" --high "$2"
  local first=$SPAWN_PID
  wait_for 30 phase_is j filling
  kill -9 "$first"
  release_all
  wait_for 60 ended j
  assert_equal "$(partitions j)" 2
  run -0 same j
}

@test "left by Ctrl-C before anybody has answered, it says that it may have begun" {
  fresh k
  server kill m2 --signal STOP
  spawn "$BATS_TEST_TMPDIR/log" splitter split k "$(region k)" --at k000500
  wait_for 20 grep -q "waiting for a majority" "$BATS_TEST_TMPDIR/log"
  kill -INT "$SPAWN_PID"
  local left=0
  wait "$SPAWN_PID" || left=$?
  assert_equal "$left" 7
  server kill m2 --signal CONT
  run cat "$BATS_TEST_TMPDIR/log"
  assert_output --partial "it may have begun: splitter wait "
  local attempt=${output##*splitter wait }
  attempt=${attempt%% *}
  # It does: the metadata server had it.
  wait_for 20 splitter wait "$attempt"
  assert_equal "$(partitions k)" 2
  # The time limit holds for that, too.
  server kill m2 --signal STOP
  local start=$SECONDS
  run splitter split k "$(region k)" --at k000200 --timeout 500ms
  server kill m2 --signal CONT
  [ "$status" = 7 ] || [ "$status" = 69 ]
  [ $((SECONDS - start)) -lt 15 ]
}

@test "a mistyped place of the coordination service is not made" {
  local url
  for url in "file://$BATS_TEST_TMPDIR/typo" "file://$BATS_TEST_TMPDIR/no/such/place"; do
    run -3 splitter --coord "$url" status
    assert_output --partial "there is no coordination service at $url"
    run -3 partc --coord "$url" status
    run -3 zkctl --coord "$url" tree
    run -78 partd run --coord "$url" --id p9 --data-dir "$BATS_TEST_TMPDIR/d" --socket "$BATS_TEST_TMPDIR/s"
    run -78 mdserver run --coord "$url" --id m9 --data-dir "$BATS_TEST_TMPDIR/m" --socket "$BATS_TEST_TMPDIR/s2"
  done
  assert_not_exist "$BATS_TEST_TMPDIR/typo"
  assert_not_exist "$BATS_TEST_TMPDIR/no"
}
