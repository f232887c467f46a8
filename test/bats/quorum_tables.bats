#!/usr/bin/env bats
# What a quorum table has in the coordination service: made with the table, shown, checked, and gone with it.
# COORD=zk: on ZooKeeper.
load ../lib/cluster

setup_file() {
  cluster_up --servers 3 --mdservers 3
  zkctl table create q --replication quorum --replicas 3 --no-wait >/dev/null
  zkctl table create p --replicas 3 >/dev/null
}
teardown_file() { cluster_down; }
setup() { cluster_env; }
teardown() { cluster_diagnose; }

region=distribution/1_q/regions/1
voters_of_map() { zkctl cat q --json | jq -r '[.partitions[0].assignments[] | "\(.slot)/\(.server)/\(.assignment)"] | join(" ")'; }
government() { zkctl cat "$region/government"; }
force() { zkctl set "$1" - --force "${@:2}" >/dev/null; }

@test "a quorum table is made with a government and a place for votes in each region" {
  run -0 --separate-stderr zkctl table show q --json
  assert_equal "$(jq -r '.replication, .replicas' <<<"$output" | paste -sd' ')" "quorum 3"
  run -0 zkctl ls "$region" -o name
  assert_line government
  assert_line quorums
  run -0 government
  assert_line --regexp '^epoch: [1-9]'
  assert_line --regexp '^leader: ?[0-9a-f]*$'
  assert_line "voters: $(voters_of_map)"
  assert_line --regexp '^writer: .+'
  run -0 zkctl fsck q --offline
  run -0 zkctl fsck p --offline
}

@test "a push table has neither" {
  run -0 zkctl ls distribution/1_p/regions/1 -o name
  refute_output --partial government
  refute_output --partial quorums
}

@test "an even number of replicas, and more than seven, are refused" {
  run -1 zkctl table create even --replication quorum --replicas 2 --no-wait
  assert_output --partial "a quorum table has 1, 3, 5 or 7 replicas, not 2"
  run -64 zkctl table create other --replication raft --replicas 3 --no-wait
  assert_output --partial "neither push nor quorum"
  run -3 zkctl table show even
}

@test "tree shows who rules, and explain says it" {
  run -0 zkctl tree q
  assert_line --regexp '^      government  epoch [1-9][0-9]*  leader (none|p[1-3])  voters p[1-3] p[1-3] p[1-3]( |$)'
  run -0 zkctl tree p
  refute_output --partial government
  run -0 --separate-stderr zkctl tree q --json
  assert_equal "$(jq -c '.tables[0].regions[0].government | [(.epoch >= 1), (.voters | length), (.voters | map(.slot))]' <<<"$output")" '[true,3,[0,1,2]]'
  run -0 --separate-stderr zkctl tree p --json
  assert_equal "$(jq -c '.tables[0].regions[0].government' <<<"$output")" null
  run -0 zkctl explain q a
  assert_line --regexp '^Its government is that of epoch [1-9][0-9]*: (nobody|p[1-3]) leads; p[1-3], p[1-3], p[1-3] vote\.$'
}

# From here on nobody elects: what is written by hand stays.
@test "fsck finds a government that is none, and what does not belong" {
  server kill p1 p2 p3
  local was
  was=$(government)
  fsck_says() { # TEXT: once more as it was afterwards
    run -2 zkctl fsck q --offline
    assert_output --partial "$1"
    force "$region/government" <<<"$was"
    run -0 zkctl fsck q --offline
  }
  government | sed 's/^epoch:.*/epoch: 0/' | force "$region/government"
  fsck_says "epoch: 0 is none"
  government | sed 's,^\(voters: [^ ]*\) .*,\1,; s/^leader:.*/leader: /' | force "$region/government"
  fsck_says "its voters are not those that the map names"
  government | sed "s/^leader:.*/leader: 00000000000000000000000000000001/" | force "$region/government"
  fsck_says "leader: none of the voters"

  force "$region/government/odd" --create <<<""
  run -2 zkctl fsck q --offline
  assert_output --partial "$region/government/odd"
  force "$region/quorums/odd" --create <<<""
  run -2 zkctl fsck q --offline
  assert_output --partial "$region/quorums/odd"
  force "$region/quorums/1-7:p1" --create <<<"promise: 2"
  run -2 zkctl fsck q --offline
  assert_output --partial "$region/quorums/1-7:p1"
  assert_output --partial "is not ephemeral: it outlives its voter"
  assert_output --partial "token"

  force distribution/1_p/regions/1/government --create <<<"$was"
  run -2 zkctl fsck p --offline
  assert_output --partial "a push table has no governments"
}

@test "a dropped quorum table leaves nothing" {
  local id
  for id in p1 p2 p3; do zkctl node dead "$id" --mark-only --force; done
  run -0 zkctl table drop q --accept-loss
  run -0 zkctl wait table:q:gone --timeout 30s
  nothing_left() { ! zkctl ls distribution -o name | grep -qx 1_q; }
  wait_for 20 nothing_left
  run -0 zkctl tree --raw
  refute_output --partial 1_q
  refute_output --partial quorums
}
