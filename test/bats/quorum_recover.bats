#!/usr/bin/env bats
# A majority of a quorum table's replicas is gone for good: what is left is shown, what is lost is named, and only when
# that is accepted does the table go on with what there is.
# COORD=zk: on ZooKeeper.
# bats file_tags=san
load ../lib/cluster

setup() {
  export CLUSTER_DIR=$BATS_TEST_TMPDIR/c
  PLAN=$BATS_TEST_TMPDIR/plan
}
teardown() {
  cluster_diagnose
  cluster_down
}

show() { zkctl quorum show q "#1" "$@"; }
# shellcheck disable=SC2120
plan() { zkctl quorum recover plan q "#1" "$@"; }
figure() { show --json | jq -r "$1"; }
# settled SERVER…: they are registered no more, and who led has said that it does not: nothing changes then.
settled() {
  local id
  for id in "$@"; do ! zkctl ls nodes/active -o name | grep -qx "$id" || return 1; done
  ! leads
}

# two_wiped: two of three are killed, and their disks are gone; p_left stays.
two_wiped() {
  quorum_up
  for i in 1 2 3 4 5; do partc put q "k$i" "v$i"; done
  LEFT=$(leader)
  local id
  for id in p1 p2 p3; do
    [ "$id" = "$LEFT" ] && continue
    server kill "$id"
    rm -rf "${CLUSTER_DIR:?}/$id"
    GONE+=("$id")
  done
  wait_for 20 settled "${GONE[@]}"
}

@test "two of three are wiped: shown, planned, refused without the flag, applied, verified; the table serves again" {
  two_wiped
  run -2 show
  assert_line --regexp "^$LEFT +(voter|leader) +votes +[0-9]+-6 .*the best log"
  assert_line --regexp "^${GONE[0]} +missing .*down: not registered"
  assert_line --partial "1 of 3 voters can elect; a majority is 2: nobody can lead."
  run partc put q k6 v6 --timeout 2s
  [ "$status" != 0 ]

  run -0 --separate-stderr plan
  printf '%s\n' "$output" >"$PLAN"
  grep -q "^stay: $LEFT/" "$PLAN"
  grep -q "^gone: ${GONE[0]} ${GONE[1]}$" "$PLAN"
  grep -q '^loss: possible$' "$PLAN"
  # shellcheck disable=SC2154 # run sets it
  [[ $stderr == *"behind LSN 6 is LOST"* ]]

  # It is named before it happens, and nothing happens without the flag.
  run -5 zkctl quorum recover apply "$PLAN"
  assert_output --partial "behind LSN 6 is LOST"
  assert_output --partial "--accept-loss does it all the same"
  assert_equal "$(figure '.majority, .recovered' | paste -sd' ')" "false null"

  run -0 --separate-stderr zkctl quorum recover apply "$PLAN" --accept-loss --json
  jq -e --arg left "$LEFT" '.applied == "now" and .leader == $left and .voters == 1' <<<"$output"
  run -0 partc get q k5
  assert_output v5
  run -0 partc put q k6 v6
  run -0 show
  assert_line --partial "1 of 1 voters can elect"
  assert_line --regexp '^Recovered with epoch [0-9]+ by .*loss: possible, behind LSN 6\.$'

  # A second time it only looks; a plan for what is no more is refused.
  run -0 --separate-stderr zkctl quorum recover apply "$PLAN" --json
  jq -e '.applied == "before"' <<<"$output"
  run -4 plan
  assert_output --partial "a majority: they elect a leader by themselves"
  sed "s/^plan: f/plan: 0/; t; s/^plan: ./plan: f/" "$PLAN" >"$PLAN.2" # another one
  run -4 zkctl quorum recover apply "$PLAN.2" --accept-loss
  assert_output --partial "the government has changed"
  run -0 partc get q k6
  assert_output v6
}

@test "nothing is planned while a majority is there, or while one that may lead does not answer" {
  quorum_up
  partc put q a 1
  run -0 show
  assert_line --partial "3 of 3 voters can elect"
  run -4 plan
  assert_output --partial "3 of 3 voters are there, which is a majority"
  run -3 zkctl quorum show nothere a
  run -3 zkctl quorum show q "#9"
  local left other
  left=$(leader)
  other=$(printf 'p1\np2\np3\n' | grep -v "$left" | head -1)
  # Both hang, and are registered for as long as their sessions last.
  for id in p1 p2 p3; do [ "$id" = "$left" ] || server kill "$id" --signal STOP; done
  run zkctl quorum recover plan q "#1" --timeout 300ms
  if zkctl ls nodes/active -o name | grep -qx "$other"; then
    assert_equal "$status" 4
    assert_output --partial "is registered in the coordination service and does not answer: it may lead"
  fi
  for id in p1 p2 p3; do [ "$id" = "$left" ] || server kill "$id" --signal CONT; done
  run -0 partc put q a 2 --timeout 20s
}

@test "a plan is of what was seen: a log that went on, or a majority that came back, ends it" {
  quorum_up
  partc put q a 1
  local left
  left=$(leader)
  for id in p1 p2 p3; do [ "$id" = "$left" ] || server kill "$id"; done
  # shellcheck disable=SC2046
  wait_for 20 settled $(printf 'p1\np2\np3\n' | grep -v "$left")
  # shellcheck disable=SC2119
  plan >"$PLAN" 2>"$PLAN.says"
  for id in p1 p2 p3; do [ "$id" = "$left" ] || server start "$id"; done
  run -0 partc put q a 2 --timeout 20s
  run -4 zkctl quorum recover apply "$PLAN" --accept-loss
  assert_output --partial "nothing was changed"
  run -0 partc get q a
  assert_output 2
  run -0 zkctl fsck
}

@test "what lies on the disks of servers that do not run is looked at, too" {
  quorum_up
  partc put q a 1
  local left first other
  left=$(leader)
  read -r first other <<<"$(printf 'p1\np2\np3\n' | grep -v "$left" | paste -sd' ')"
  server kill "$first" "$other"
  rm -rf "${CLUSTER_DIR:?}/$other"
  wait_for 20 settled "$first" "$other"
  run -0 partd report --data-dir "$CLUSTER_DIR/$first"
  assert_line "server: $first"
  assert_line "state: offline"
  printf '%s\n' "$output" >"$BATS_TEST_TMPDIR/report"
  run -2 show --report "$BATS_TEST_TMPDIR/report"
  assert_line --regexp "^$first +offline +votes +[0-9]+-2 "
  # Two of three are known: they share one with every majority.
  run -0 --separate-stderr plan --report "$BATS_TEST_TMPDIR/report"
  printf '%s\n' "$output" >"$PLAN"
  grep -q '^loss: none$' "$PLAN"
  run -69 plan --report "$BATS_TEST_TMPDIR/report" --stay "$first"
  assert_output --partial "start partd on that data directory first"
  run -4 partd report --data-dir "$CLUSTER_DIR/$left"
  assert_output --partial "a server runs on"
  run -0 zkctl quorum recover apply "$PLAN"
  run -0 partc get q a
  assert_output 1
  # The one that was only away obeys the new lineage, of which its log is a part, and votes again once it has all of it.
  server start "$first"
  two() { [ "$(figure .able)" = 2 ]; }
  wait_for 20 two
  run -0 partc put q a 2
  run -0 partc get q a
  assert_output 2
}

@test "after a recovery the replicas that are gone get new homes, and the table is whole again" {
  two_wiped
  # shellcheck disable=SC2119
  plan >"$PLAN" 2>"$PLAN.says"
  run -0 zkctl quorum recover apply "$PLAN" --accept-loss
  run -0 partc put q k7 v7
  server add
  server add
  run -0 zkctl node replace "${GONE[0]}" p4 --timeout 60s
  run -0 zkctl node replace "${GONE[1]}" p5 --timeout 60s
  assert_equal "$(figure .needed,.able | paste -sd' ')" "2 3"
  run -0 partc verify q --timeout 60s
  # Nothing hangs on the one that was left any more.
  server kill "$LEFT"
  run -0 partc put q k8 v8 --timeout 20s
  run -0 partc get q k7
  assert_output v7
  server start "$LEFT"
  run -0 partc verify q --timeout 60s
  run -0 zkctl fsck
}
