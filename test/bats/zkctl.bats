#!/usr/bin/env bats
# zkctl on the coordination service alone: no daemon runs here. COORD=zk runs it on a private ZooKeeper.
load ../lib/cluster
# shellcheck source=test/lib/zk.sh
source "$BATS_TEST_DIRNAME/../lib/zk.sh"

setup_file() {
  if [ "${COORD:-file}" = zk ]; then
    zk_have 2>/dev/null || skip "no ZooKeeper here"
    # shellcheck disable=SC2046
    zk_start "$BATS_FILE_TMPDIR/zk" $(zk_free_ports 1)
  fi
}
teardown_file() {
  if [ -d "$BATS_FILE_TMPDIR/zk" ]; then zk_stop "$BATS_FILE_TMPDIR/zk"; fi
}
setup() {
  if [ "${COORD:-file}" = zk ]; then
    CANTLE_COORD=$(zk_url "$BATS_FILE_TMPDIR/zk")/t$BATS_TEST_NUMBER
  else
    CANTLE_COORD=file://$BATS_TEST_TMPDIR/coord
  fi
  export CANTLE_COORD
  unset CANTLE_CLUSTER
}

@test "a cluster is made once" {
  run -3 zkctl tree
  assert_output --partial "zkctl init makes one"
  run -0 zkctl init
  assert_output --regexp 'uuid +[0-9a-f]{32}'
  run -4 zkctl init
  assert_output --partial "already"
  run -0 zkctl init --if-missing
  run -0 zkctl --cluster other init
  run -0 zkctl ls /
  assert_line --regexp '^cantle '
  assert_line --regexp '^other '
  run -64 zkctl --cluster 'not/a/name' init
}

@test "znodes are listed, shown and written at the version that was read" {
  zkctl init
  run -3 zkctl set tasks/x one
  run -0 zkctl set tasks/x one --create
  run -0 zkctl cat tasks/x
  assert_output one
  run -0 zkctl set tasks/x two --version 0
  run -4 zkctl set tasks/x three --version 0
  run -0 zkctl cat /cantle/tasks/x
  assert_output two
  printf 'from stdin' | zkctl set tasks/x -
  run -0 --separate-stderr zkctl cat tasks/x --json
  assert_equal "$(jq -r '.value, .version, .owner' <<<"$output" | paste -sd' ')" "from stdin 2 null"
  run -0 --separate-stderr zkctl ls tasks --json
  assert_equal "$(jq -r '.name, .bytes' <<<"$output" | paste -sd' ')" "x 10"
  run -0 zkctl ls -o name
  assert_line format
  run -3 zkctl cat no/such
  run -3 zkctl ls no/such
  run -64 zkctl cat a//b
}

@test "what belongs to the servers is not written by accident" {
  zkctl init
  run -5 zkctl set format junk
  assert_output --partial "--force"
  run -5 zkctl set distribution/1_t/config x --create
  run -0 zkctl cat format
  assert_line "layout: 1"
}

@test "a newer layout is not touched" {
  zkctl init
  zkctl set format $'layout: 99\ncluster: 00000000000000000000000000000001' --force
  run -78 zkctl tree
  assert_output --partial "layout 99"
  run -78 zkctl init
}

@test "wrong usage" {
  run -64 zkctl
  run -64 zkctl nonsense
  run -64 zkctl table
  run -64 zkctl ls --nonsense
  run -64 env -u CANTLE_COORD zkctl --config /dev/null ls
  run -64 zkctl --coord http://x ls
  assert_output --partial "zk://"
  run -64 zkctl frob
  assert_output --partial "there is no verb 'frob'; verbs: init, tree,"
  run -64 zkctl --coord file:///x table frob
  assert_output --partial "there is no verb 'frob'; verbs: create, list,"
  run -64 zkctl table
  assert_output --partial "a verb is required: create, list,"
  run -78 zkctl --config /nonexistent/none ls
  assert_output --partial "configuration /nonexistent/none was not readable"
  run -0 zkctl --help
  assert_output --partial "--config"
  run -0 zkctl table create --help
  assert_output --partial "example:"
}

@test "a table needs servers, and a name" {
  zkctl init
  run -64 zkctl table create 'Not a name'
  run -69 zkctl table create t
  assert_output --partial "3 servers are needed, 0 can take a replica"
  run -3 zkctl table create t --replicas 1 --servers p1
  assert_output --partial "p1"
  run -64 zkctl table create t --replicas 2 --servers p1
  run -3 zkctl table show t
  run -3 zkctl table drop t --accept-loss
  run -0 zkctl table list -o name
  assert_output ""
}

@test "waiting ends when it is so, or when its time is over, and says what is missing" {
  zkctl init
  run -0 zkctl wait table:t:gone node:p1:gone op:00000000000000000000000000000001:done
  local before
  before=$(now_ms)
  run -75 zkctl wait node:p1:active --timeout 300ms
  assert_output --partial "p1 is not registered"
  [ $(($(now_ms) - before)) -lt 5000 ]
  for bad in nonsense table:t table:t:green node:p1:settled color:x:blue op:zz:done; do run -64 zkctl wait "$bad"; done
}

@test "fsck of an empty cluster is clean, and finds what does not belong" {
  zkctl init
  run -0 zkctl fsck
  assert_output --partial "clean"
  zkctl set junk x --create
  zkctl set nodes/active/p1 $'readwrite\nrole: partd\nincarnation: 1' --create --force
  zkctl set nodes/info/p1 'number: seven' --create
  zkctl set tasks/op-1 'driver: nobody' --create
  run -2 zkctl fsck
  assert_line --regexp '^/cantle/junk +belongs to nothing'
  assert_line --regexp '^/cantle/nodes/active/p1 +is not ephemeral'
  assert_line --regexp '^/cantle/nodes/info/p1 +number: no number'
  assert_line --regexp '^/cantle/tasks/op-1 +is not ephemeral'
  run -2 --separate-stderr zkctl fsck --json
  assert_equal "$(jq -r 'select(.where == "/cantle/junk").finding' <<<"$output")" "belongs to nothing that this version knows"
}

@test "two servers of one number are found, and a number that no arrival has" {
  zkctl init
  zkctl set nodes/info/p1 'number: 7' --create
  zkctl set nodes/info/p2 'number: 7' --create
  run -2 zkctl fsck
  assert_line --partial "has server number 7, as p1"
  assert_line --partial "which no arrival of it has"
}

@test "a dead server that nobody has heard of is not there" {
  zkctl init
  run -3 zkctl node dead p9
  run -3 zkctl node show p9
  run -3 zkctl node replace p8 p9
  run -64 zkctl node replace p9 p9
  run -3 zkctl explain p9
  run -3 zkctl md join t m1
}

@test "a server is marked dead, once, and the log of arrivals says so" {
  zkctl init
  zkctl set nodes/info/p1 $'number: 1\nrack: r1\nweight: 50' --create
  run -0 zkctl node dead p1 --mark-only
  run -0 zkctl node dead p1 --mark-only
  run -0 zkctl node list
  assert_line --regexp '^p1 +partd +dead +r1 +50 +dead'
  run -0 --separate-stderr zkctl arrivals --json
  assert_equal "$(jq -r '[.number, .event, .server, .rack, .weight] | join(" ")' <<<"$output")" "0 departure p1 r1 50"
}
