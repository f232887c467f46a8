#!/usr/bin/env bats
# Quorum tables on real processes: one log, a leader, writes on a majority; leaders that die, hand over, come back.
# COORD=zk runs it on ZooKeeper; two tests do so by themselves.
# bats file_tags=san
load ../lib/cluster

setup() {
  export CLUSTER_DIR=$BATS_TEST_TMPDIR/c
  INPUT=$BATS_TEST_TMPDIR/input
}
teardown() {
  cluster_diagnose
  cluster_down
}

# follower: one that does not lead.
follower() { printf 'p1\np2\np3\n' | grep -v "$(leader)" | head -1; }
figures() { grep '^{' "$1" | jq -e "$2"; }
written() { partc get q "$1" >/dev/null; }

@test "what was put is read at every level, deleted is gone, a scan goes on by key" {
  quorum_up
  run -0 partc put q a 1 --json
  run -0 partc put q b 2
  run -0 partc put q c 3
  run -0 partc delete q b
  for level in one majority all linearizable; do
    run -0 partc get q a --level $level
    assert_output 1
    run -3 partc get q b --level linearizable
  done
  run -0 partc scan q --limit 10 -o name
  assert_output "$(printf 'a\nc')"
  run -0 partc scan q --reverse --limit 1 -o name
  assert_output c
  # Any replica's answer says how old it may be.
  run -0 partc get q a --level any --json
  jq -e '.value == "1" and .lsn >= 5 and .lag_ms >= 0' <<<"$output"
  # A write is on a majority, neither on less nor on all.
  run -1 partc put q a 1 --level all
  assert_output --partial "on a majority"
  run -1 partc put q a 1 --level session
  assert_output --partial "is for reads"
  run -0 zkctl status
  assert_output --partial "all is well"
}

@test "a push table has no levels of quorum tables" {
  cluster_up --servers 1 --mdservers 1
  zkctl table create p --keyspace range --replication push --replicas 1
  partc put p a 1
  run -1 partc get p a --level linearizable
  assert_output --partial "is for quorum tables"
  run -1 partc scan p --level any
  assert_output --partial "is for quorum tables"
}

# rpc SERVER METHOD [JSON]
rpc() {
  local socket=$CLUSTER_DIR/run/$1.sock
  shift
  "$BATS_TEST_DIRNAME/../lib/rpc.py" "$socket" "$@"
}

@test "a server that does not lead passes requests on, once, and names the leader to who forbids that" {
  quorum_up
  local other who
  who=$(leader)
  other=$(follower)
  run -0 rpc "$other" put '{"table":"q","key":"k","value":"v"}'
  run -0 rpc "$other" get '{"table":"q","key":"k","level":4}'
  assert_output --partial '"v"'
  run -0 rpc "$other" scan '{"table":"q","begin":"k","end":"l","level":4}'
  assert_output --partial '"v"'
  run -1 rpc "$other" put '{"table":"q","key":"k","value":"v","hop":false}'
  assert_output --partial NOT_LEADER
  assert_output --partial "$who leads"
  # Its own copy answers who asks for no more; who has seen more than it has is sent elsewhere.
  run -0 rpc "$other" get '{"table":"q","key":"k","level":6}'
  run -0 rpc "$other" get '{"table":"q","key":"k","level":5,"session":2}'
  run -1 rpc "$other" get '{"table":"q","key":"k","level":5,"session":1000000}'
  assert_output --partial CATCHING_UP
}

@test "conditions are judged by the end of the log, and a repeated write is the write that it repeats" {
  quorum_up
  local other
  other=$(follower)
  run -0 rpc "$other" incr '{"table":"q","key":"n","by":5,"client":7,"series":1}'
  jq -e '.result == 5 and .repeat == null' <<<"$output"
  run -0 rpc "$other" incr '{"table":"q","key":"n","by":-2,"client":7,"series":2}'
  jq -e '.result == 3' <<<"$output"
  run -0 rpc "$other" incr '{"table":"q","key":"n","by":5,"client":7,"series":1}'
  jq -e '.result == 5 and .repeat' <<<"$output"
  run -0 partc get q n
  assert_output 3
  run -0 rpc "$other" append '{"table":"q","key":"a","value":"xy"}'
  run -0 rpc "$other" append '{"table":"q","key":"a","value":"z"}'
  jq -e '.result == 3' <<<"$output"
  run -0 partc get q a
  assert_output xyz
  run -1 rpc "$other" incr '{"table":"q","key":"a"}'
  assert_output --partial INVALID
  run -0 rpc "$other" cas '{"table":"q","key":"l","value":"me","expect":{"absent":true}}'
  run -1 rpc "$other" cas '{"table":"q","key":"l","value":"you","expect":{"absent":true}}'
  assert_output --partial CONDITION_FAILED
  run -0 rpc "$other" cas '{"table":"q","key":"l","op":2,"expect":{"value":"me"}}'
  run -3 partc get q l
  # Another leader knows them, and so does one that was started again: what was answered stands in the log.
  local old
  old=$(leader)
  server kill "$old"
  wait_for 20 leader_is_not "$old"
  server start "$old"
  repeated() { rpc p1 incr '{"table":"q","key":"n","by":-2,"client":7,"series":2}' | jq -e '.result == 3 and .repeat'; }
  wait_for 20 repeated
  run -0 partc get q n
  assert_output 3
}

@test "a push table takes no conditions" {
  cluster_up --servers 1 --mdservers 1
  zkctl table create p --keyspace range --replication push --replicas 1
  wait_for 10 partc put p a 1
  for method in incr 'append","value":"x'; do
    run -1 rpc p1 "${method%%\"*}" '{"table":"p","key":"a","value":"x"}'
    assert_output --partial "is for quorum tables"
  done
}

@test "a load goes on through whoever leads, and every replica has the same" {
  quorum_up
  records "$INPUT" 3000 300
  run -0 partc load q "$INPUT" --format tsv --json
  run -0 partc verify q --against "$INPUT" --format tsv
  assert_line --regexp 'records +3000'
  run -0 zkctl fsck
}

# load_while COMMAND…: with writers at work, whose longest gap is in $BATS_TEST_TMPDIR/load.json afterwards.
load_while() {
  records "$INPUT" 3000 200
  spawn "$BATS_TEST_TMPDIR/load.json" partc load q "$INPUT" --format tsv --rate 1000 --batch 1 --json --log-level error
  local loader=$SPAWN_PID
  wait_for 20 written k0000300
  "$@"
  wait "$loader"
  figures "$BATS_TEST_TMPDIR/load.json" '.records == 3000 and .rejected == 0'
}

@test "the leader is killed: another leads, writers go on, the old one follows when it is back" {
  quorum_up
  local old
  old=$(leader)
  load_while server kill "$old"
  # Nobody hears the old leader any more after 600 ms; the rest is an election.
  figures "$BATS_TEST_TMPDIR/load.json" '.longest_gap_ms < 5000'
  run leader
  refute_output "$old"
  server start "$old"
  run -0 partc verify q --against "$INPUT" --format tsv --timeout 60s
}

@test "a leader that is stopped hands over: nobody waits for a suspicion" {
  quorum_up
  local old
  old=$(leader)
  load_while server stop "$old"
  figures "$BATS_TEST_TMPDIR/load.json" '.longest_gap_ms < 500'
  server start "$old"
  run -0 partc verify q --against "$INPUT" --format tsv --timeout 60s
}

@test "a leader that hangs is replaced, and answers nothing as one when it goes on" {
  quorum_up
  local old
  old=$(leader)
  partc put q a 1
  server kill "$old" --signal STOP
  wait_for 20 leader_is_not "$old"
  run -0 partc put q a 2 --timeout 20s
  server kill "$old" --signal CONT
  for _ in 1 2 3 4 5; do
    run -0 partc get q a --level linearizable
    assert_output 2
  done
  run -0 partc verify q --timeout 60s
}

@test "every server is killed at once: what was acknowledged is there" {
  quorum_up
  records "$INPUT" 2000 300
  run -0 partc load q "$INPUT" --format tsv --json
  server kill p1 p2 p3
  server start p1 p2 p3
  run -0 partc verify q --against "$INPUT" --format tsv --timeout 60s
  run -0 partc put q after 1 --timeout 20s
}

@test "without a majority nothing is written, what was committed can still be read" {
  quorum_up
  partc put q a 1
  local left
  left=$(follower)
  for server in p1 p2 p3; do [ "$server" = "$left" ] || server kill "$server"; done
  run partc put q a 2 --timeout 3s
  [[ $status == 75 || $status == 7 || $status == 69 ]]
  run partc get q a --level linearizable --timeout 2s
  [[ $status == 75 || $status == 69 ]]
  run -0 partc get q a --level any
  assert_output 1
  for server in p1 p2 p3; do [ "$server" = "$left" ] || server start "$server"; done
  run -0 partc put q a 3 --timeout 20s
  run -0 partc verify q --timeout 60s
}

@test "a replica that was away for a load gets what it missed" {
  quorum_up
  local away
  away=$(follower)
  server kill "$away"
  records "$INPUT" 3000 800
  run -0 partc load q "$INPUT" --format tsv --json
  server start "$away"
  run -0 partc verify q --against "$INPUT" --format tsv --timeout 60s
}

@test "a replica that no leader has spoken to yet answers no session" {
  quorum_up
  local left
  left=$(follower)
  run -0 partc put q a 1
  server kill p1 p2 p3
  server start "$left"
  # What it knows to be committed is from its journal; the rest may be committed, too.
  run -1 rpc "$left" get '{"table":"q","key":"a","level":5}'
  assert_output --partial CATCHING_UP
  for server in p1 p2 p3; do [ "$server" = "$left" ] || server start "$server"; done
  answered() { rpc "$left" get '{"table":"q","key":"a","level":5}' | grep -q '"1"'; }
  wait_for 20 answered
}

@test "reads of a session go to any replica" {
  quorum_up
  run -0 partc bench mixed q --connections 4 --in-flight 4 --records 50 --count 4000 --level session --json
  jq -e '.failed == 0 and .unknown == 0 and .reads > 1000' <<<"$output"
}

@test "explain and status say who leads, who is behind, and what does not work without a leader" {
  quorum_up
  partc put q a 1
  local lead other
  lead=$(leader)
  other=$(follower)
  run -0 zkctl explain q a
  assert_line "Reads and writes work, $lead leads."
  assert_line --regexp "$lead is available.* It says: leader of epoch [0-9]+ for [0-9.]+ s, serving, with a lease of [0-9]+ ms; its log ends at LSN 2, committed is 2"
  assert_line --regexp "$other is available.* It says: follower, epoch [0-9]+: $lead leads, and said how far the log is"
  server kill "$other"
  behind() { zkctl explain q a | grep -q "; $other waiting ("; }
  wait_for 20 behind
  run -0 zkctl status
  assert_line --regexp "^ +q .*short of replicas"
  for server in p1 p2 p3; do [ "$server" = "$lead" ] || [ "$server" = "$other" ] || server kill "$server"; done
  nobody() { zkctl explain q a | grep -q "^Nothing can be written, and reads work at level any alone; nobody leads it"; }
  wait_for 20 nobody
  run -0 zkctl status
  assert_line --partial "without a majority of replicas: nobody leads it"
}

@test "a dropped quorum table is gone, and another one of its name begins empty" {
  quorum_up
  partc put q a 1
  run -0 zkctl table drop q --accept-loss
  run -3 partc get q a
  no_copies() { [ "$(partc status --json | jq -s 'map(.partitions) | add')" = 0 ]; }
  wait_for 20 no_copies
  again() { zkctl table create q --keyspace range --replication quorum --replicas 3; }
  wait_for 30 again
  wait_for 20 leads
  run -3 partc get q a
}

@test "the coordination service is away: reads and writes go on under the leader there is" {
  [ -f /usr/share/java/zookeeper.jar ] || skip "no ZooKeeper (libzookeeper-java)"
  COORD=zk quorum_up
  local old
  old=$(leader)
  records "$INPUT" 2000 200
  spawn "$BATS_TEST_TMPDIR/load.json" partc load q "$INPUT" --format tsv --rate 500 --batch 1 --json
  local loader=$SPAWN_PID
  wait_for 20 written k0000050
  server kill zk1 zk2 zk3
  wait "$loader"
  figures "$BATS_TEST_TMPDIR/load.json" '.records == 2000 and .rejected == 0'
  server start zk1 zk2 zk3
  run -0 partc verify q --against "$INPUT" --format tsv --timeout 60s
}

@test "on ZooKeeper a dead leader is replaced" {
  [ -f /usr/share/java/zookeeper.jar ] || skip "no ZooKeeper (libzookeeper-java)"
  COORD=zk quorum_up
  local old
  old=$(leader)
  load_while server kill "$old"
  figures "$BATS_TEST_TMPDIR/load.json" '.longest_gap_ms < 5000'
  server start "$old"
  run -0 partc verify q --against "$INPUT" --format tsv --timeout 60s
}
