#!/usr/bin/env bats
# zkctl on a cluster: tables, placement, replacing servers, checks and explanations. COORD=zk: on ZooKeeper.
load ../lib/cluster

setup_file() { cluster_up --servers 4 --mdservers 3; }
teardown_file() { cluster_down; }
setup() { cluster_env; }
teardown() { cluster_diagnose; }

new_table() { zkctl table create "$@" >/dev/null; }
partition_of() { partc route "$1" "${2:-a}" -o json | jq -r .partition; }
servers_of() { zkctl cat "$1" --json | jq -r '[.partitions[0].assignments[].server] | sort | join(",")'; }
set_rack() { zkctl cat "nodes/info/$1" | sed "s/^rack:.*/rack: $2/" | zkctl set "nodes/info/$1" - >/dev/null; }

@test "a table is created, served at once, shown, and dropped" {
  run -0 zkctl table create made --replicas 3
  assert_output --regexp 'servers +p[1-4],p[1-4],p[1-4]'
  run -0 partc put made a 1
  run -4 zkctl table create made --replicas 3
  run -0 --separate-stderr zkctl table show made --json
  assert_equal "$(jq -r '.keyspace, .replication, .replicas, (.partitions | length), .dropped' <<<"$output" | paste -sd' ')" "range push 3 1 false"
  run -0 zkctl cat made
  assert_line --regexp '^partition [0-9a-f]{32}  region [0-9]+  \[, \)  active'
  run -0 zkctl table list -o name
  assert_line made
  run -5 zkctl table drop made
  assert_output --partial "--accept-loss"
  run -0 zkctl table drop made --accept-loss
  run -0 zkctl wait table:made:gone --timeout 30s
}

@test "a dry run says where a table would go, and makes nothing" {
  run -0 zkctl table create dry --replicas 2 --dry-run
  assert_output --regexp 'servers +p[1-4],p[1-4]'
  run -3 zkctl table show dry
}

@test "unknown options are refused, by create and by set" {
  run -1 zkctl table create odd --replicas 1 --option colour=blue
  assert_output --partial "no option colour"
  new_table opt --replicas 1
  run -1 zkctl table set opt colour blue
  run -64 zkctl table set opt colour
  run -3 zkctl table set none colour blue
}

@test "more replicas than servers are refused" {
  run -69 zkctl table create wide --replicas 5
  assert_output --partial "5 servers are needed, 4 can take a replica"
}

@test "unused servers come first, then the least loaded, on different racks" {
  new_table one --replicas 1
  new_table two --replicas 1
  new_table three --replicas 1
  new_table four --replicas 1
  # With what was there before: where all hold as much, the one with the most space comes next, which may be any.
  run -0 sort -u <(zkctl table list -o name | while read -r t; do servers_of "$t" | tr , '\n'; done)
  assert_equal "${#lines[@]}" 4
  for i in 1 2 3; do set_rack "p$i" r1; done
  set_rack p4 r2
  new_table racks --replicas 2 # p4 must be among them, however loaded it is
  run -0 servers_of racks
  assert_output --partial p4
  run -0 zkctl fsck
  for i in 1 2 3 4; do set_rack "p$i" ""; done
  new_table unracked --replicas 3 # at once: a metadata server looks at the racks again before it refuses
}

@test "explain tells of a key, a region, a partition, a server, a table, and of what is not there" {
  new_table ex --replicas 3
  run -0 zkctl explain ex a
  assert_line --partial 'holds [, )'
  assert_line "Reads and writes work at every level."
  assert_line "3 of 3 replicas serve; a majority is 2."
  run -0 zkctl explain ex 7 # a key like any other
  assert_line --partial 'region 7 is written #7'
  local id
  id=$(partition_of ex)
  run -0 zkctl explain "$id"
  assert_line --partial "of table ex"
  run -0 zkctl explain ex "#$(partc route ex -o name)"
  assert_line --partial "$id"
  run -0 zkctl explain ex
  assert_line "All of it can be read and written at every level."
  assert_line "No split, no merge and no replacement is under way in it."
  run -0 zkctl explain p1
  assert_line "It is ready."
  assert_line "A replpush runs beside it."
  run -0 zkctl explain m1
  assert_line --partial "metadata server"
  run -0 --separate-stderr zkctl explain ex a --json
  assert_equal "$(jq -r .kind <<<"$output")" partition
  run -3 zkctl explain 00000000000000000000000000000001
  run -3 zkctl explain nothing-of-that-name
  run -3 zkctl explain ex "#99"
}

@test "a split is nested in the tree, and its attempt can be explained when it is over" {
  new_table sp --replicas 3
  partc put sp a 1
  partc put sp z 1
  local parent
  parent=$(partition_of sp)
  run -0 splitter split sp "$(partc route sp -o name)" --at m
  local attempt
  attempt=$(awk '$1 == "attempt" {print $2}' <<<"$output")
  run -0 zkctl wait "op:$attempt:done" table:sp:settled --timeout 30s
  run -0 zkctl tree sp
  assert_line --regexp '^    region [0-9]+  split  \[, \)  split at "m"$'
  assert_line --regexp '^      region [0-9]+  active  \[, m\)  p'
  assert_line --regexp '^      region [0-9]+  active  \[m, \)  p'
  run -0 --separate-stderr zkctl tree sp --json
  assert_equal "$(jq -c '[.tables[0].regions[] | .state] | sort' <<<"$output")" '["active","active","split"]'
  run -0 zkctl explain "$parent" # long after the map has forgotten it
  assert_line --regexp "^Partition $parent was region [0-9]+ of table sp"
  run -0 zkctl fsck

  # What is left of a split that was aborted is below its parent, and shown when asked for.
  local child
  child=$(zkctl cat "distribution/1_sp/regions/$(partc route sp a -o name)")
  zkctl set distribution/1_sp/regions/88 "${child/state: active/state: aborted}" --create --force
  run -0 zkctl tree sp
  refute_output --partial "region 88"
  run -0 zkctl tree sp --all
  assert_line --regexp '^      region 88  aborted'
}

@test "fsck: a child that was split itself is as METADATA says, while METADATA still names it" {
  new_table deep --replicas 3 --servers p1,p2,p4
  server kill p4 # METADATA names what has ended until p4 has seen it
  run -0 zkctl wait node:p4:gone --timeout 20s
  partc put deep a 1
  run -0 splitter split deep "$(partc route deep a -o name)" --at m --timeout 60s
  run -0 splitter split deep "$(partc route deep a -o name)" --at f --timeout 60s
  run -0 zkctl cat deep --json
  assert_equal "$(jq '.ended | length' <<<"$output")" 2
  run -0 zkctl fsck deep
  server start p4
  run -0 zkctl wait node:p4:ready table:deep:settled --timeout 60s
  run -0 zkctl fsck deep
}

@test "fsck finds an orphan region, a changed one, and a missing one" {
  new_table fs --replicas 1
  local region config
  region=$(partc route fs -o name)
  config=distribution/1_fs
  run -0 zkctl fsck fs
  local good
  good=$(zkctl cat "$config/regions/$region")
  zkctl set "$config/regions/77" "$good" --create --force
  run -2 zkctl fsck fs
  assert_line --regexp '/regions/77 +is an orphan'
  zkctl set "$config/regions/77" "${good/state: active/state: split}" --force # as what is left of a split
  run -0 zkctl fsck fs
  zkctl set "$config/regions/$region" "${good/state: active/state: splitting}" --force
  run -2 zkctl fsck fs
  assert_line --regexp "/regions/$region +state is splitting, METADATA says active"
  zkctl set "$config/regions/$region" "$good" --force
  zkctl set "$config/observed/p9" 'txnseq: 999' --create --force
  run -2 zkctl fsck fs
  assert_line --partial "the coordination service went backwards"
  zkctl set "$config/observed/p9" 'txnseq: 1' --force
  run -0 zkctl fsck fs
}

@test "a table is not made with its map on one metadata server by chance" {
  server stop m2 m3
  run -69 zkctl table create few --replicas 1
  assert_output --partial "of 3 metadata servers 1 lives (down: m2,m3)"
  run -0 zkctl table create few --replicas 1 --metadata-servers m1
  server start m2
  run -0 zkctl table create more --replicas 1
  assert_output --partial "m3 will not have the map until zkctl md join"
  server start m3
}

@test "metadata servers leave and join" {
  new_table md --replicas 1
  run -0 zkctl md list
  assert_line --regexp '^m1 +md +yes +current'
  run -0 zkctl md leave md m3
  assert_line --regexp '^metadata_servers +m1,m2$'
  run -0 zkctl md join md m3
  assert_output --partial m3
  run -0 zkctl wait md:m3:current --timeout 20s
  run -3 zkctl md join none m1
  run -0 zkctl fsck md
}

@test "status says what is wrong, and -x exits with 2 for it" {
  new_table st --replicas 3 --servers p1,p2,p3
  run -0 zkctl status -x
  assert_output "all is well"
  server kill p3
  run -0 zkctl wait node:p3:gone --timeout 20s
  run -2 zkctl status -x
  assert_line "p3 is down"
  assert_line --partial "short of a replica"
  refute_line --partial "table st: 1 partition without a majority"
  run -0 zkctl status
  assert_line --regexp '^ +p3 +partd +down'
  run -0 --separate-stderr zkctl status --json
  assert_equal "$(jq -r .healthy <<<"$output")" false
  run -0 zkctl explain st a
  assert_line "Reads and writes work at one and majority: p3 is down."
  assert_line "2 of 3 replicas serve; a majority is 2."
  assert_line --regexp 'slot [0-2]: p3 is down: .*; the map has it as available'

  server kill p2
  run -0 zkctl explain st
  assert_line --regexp 'Reads and writes work at one, not at majority, the default: .*p3 is down'
  run -2 zkctl status -x
  assert_line --regexp 'table st: 1 partition without a majority of replicas: .*p3 is down'
  run -0 zkctl status
  assert_line --regexp '^ +st .* no majority$'

  server kill p1
  run -0 zkctl explain st
  assert_line "It is unavailable: none of it can be read or written."
  run -0 zkctl explain st a
  assert_line --partial "It is unavailable: neither reads nor writes work"
  refute_line --partial "It says"
  run -0 zkctl status
  assert_line --regexp '^ +st .* unavailable$'
  run -75 partc verify st --timeout 100ms # nothing could be compared
  server start p1 p2 p3
  run -0 zkctl wait node:p1:ready node:p2:ready node:p3:ready table:st:settled --timeout 60s
  wait_for 30 zkctl status -x
}

@test "wait sees a server that comes while it waits" {
  server kill p4
  gone() { ! zkctl ls nodes/active -o name | grep -qx p4; }
  wait_for 20 gone
  spawn "$BATS_TEST_TMPDIR/waiter" zkctl wait node:p4:ready --timeout 30s
  local waiter=$SPAWN_PID
  looks() { find "/proc/$waiter/fd" -lname "*/coord/*" | grep -q .; }
  if [ "${COORD:-file}" = file ]; then wait_for 10 looks; fi
  server start p4
  wait "$waiter"
}

@test "a server without a replpush beside it is named, by those that wait for it too" {
  attached() { zkctl explain p1 | grep -q "A replpush runs beside it"; }
  missing() { zkctl status -x | grep -q "no replpush runs beside p1"; }
  wait_for 30 attached
  server stop r1
  wait_for 30 missing
  run -0 zkctl explain p1
  assert_line --regexp 'no replpush runs beside p1, for [0-9]+ s.*Start replpush there'
  run -0 partc status
  assert_line --regexp '^p1 .*no replpush beside it'
  run -0 --separate-stderr zkctl status --json
  assert_equal "$(jq -r '.nodes[] | select(.id == "p1").pusher' <<<"$output")" missing
  server start r1
  wait_for 30 attached
  wait_for 30 zkctl status -x
}

@test "a live server is replaced, and nothing is lost" {
  new_table mv --replicas 3 --servers p1,p2,p3
  records "$BATS_TEST_TMPDIR/in" 500
  partc load mv "$BATS_TEST_TMPDIR/in" --format tsv >/dev/null
  run -2 zkctl node replace p2 p4 --table mv --dry-run
  assert_line --regexp '^mv .* p2 +p4'
  run -0 zkctl node replace p2 p4 --table mv --timeout 60s
  assert_line --regexp 'mv .* p2 +p4 +done'
  run -0 servers_of mv
  assert_output p1,p3,p4
  run -0 partc verify mv --against "$BATS_TEST_TMPDIR/in" --format tsv
  run -4 zkctl node replace p1 p3 --table mv # it holds the partition already
  run -0 zkctl wait table:mv:settled --timeout 60s
  run -0 zkctl fsck mv
}

@test "a server that is gone for good is replaced where there is room, and the rest is named" {
  new_table gone --replicas 3 --servers p1,p2,p4
  new_table full --replicas 4
  new_table sole --replicas 1 --servers p4
  partc put gone a 1
  partc put full a 1
  partc put sole a 1
  run -5 zkctl node dead p4
  assert_output --partial "it is alive"
  server kill p4
  run -0 zkctl wait node:p4:gone --timeout 20s
  run -2 zkctl node dead p4 --timeout 120s
  assert_line --regexp 'gone .* p4 +p3 +done'
  assert_line --partial "stays as it is: full"
  assert_line --regexp 'stays as it is: sole,.* no live replica has its data' # its only one was there
  run -0 servers_of gone
  assert_output p1,p2,p3
  run -0 partc verify gone
  run -0 zkctl arrivals
  assert_line --regexp 'departure +p4 .* 20[0-9]{2}-[0-9]{2}-[0-9]{2}T[0-9:]{8}Z'
  run -0 zkctl node list
  assert_line --regexp '^p4 +partd +dead'
}

# Whichever it is: the one that is asked first is among them, and stays there as long as its session does.
@test "a metadata server that hangs takes its share of a change's time, and the change is made within it" {
  new_table hangs --replicas 1
  local md level=one
  for md in m1 m2 m3; do
    server kill "$md" --signal STOP
    run zkctl table set hangs read_level "$level" --timeout 3s
    server kill "$md" --signal CONT
    assert_success
    run -0 zkctl table show hangs --json
    assert_equal "$(jq -r .options.read_level <<<"$output")" "$level"
    if [ "$level" = one ]; then level=majority; else level=one; fi
  done
}
