#!/usr/bin/env bats
# A metadata server whose own change is reported lost (faults.md R24; scenarios.md S31): the coordination service did
# it, the answer did not come back, and the client library asks again or says "connection lost".
load ../lib/cluster

setup() {
  export CLUSTER_DIR=$BATS_TEST_TMPDIR/c
}
teardown() {
  cluster_diagnose
  cluster_down
  if [ -n "${PROXY:-}" ]; then kill "$PROXY" 2>/dev/null || true; fi
}

option() { zkctl table show t --json --timeout 20s | jq -r ".options[\"$1\"]"; }
# change OPTION N A B: sets it to A and B in turn, N times. One that was acknowledged is there; one that was not may be.
change() {
  local name=$1 value code acked=0 i
  for ((i = 0; i < $2; i++)); do
    if [ $((i % 2)) = 0 ]; then value=$3; else value=$4; fi
    code=0
    zkctl table set t "$name" "$value" --timeout 30s >/dev/null 2>>"$BATS_TEST_TMPDIR/$name.err" || code=$?
    if [ "$code" = 0 ]; then
      acked=$((acked + 1))
      [ "$(option "$name")" = "$value" ] || { echo "$name=$value was acknowledged, and it is $(option "$name")" && return 1; }
    fi
  done
  echo "$acked" >"$BATS_TEST_TMPDIR/$name.acked"
}

rounds() { # N
  COORD=zk cluster_up --servers 1 --mdservers 3
  zkctl table create t --keyspace range --replication push --replicas 1
  # From here on the metadata servers see the ensemble through the proxy only.
  local control=$BATS_TEST_TMPDIR/share lost=$BATS_TEST_TMPDIR/lost ports zk i
  echo 0 >"$control"
  local -a targets=()
  for zk in zk1 zk2 zk3; do targets+=("127.0.0.1:$(awk -v n=$zk '$1 == n {print $2}' "$CLUSTER_DIR/ports")"); done
  spawn "$BATS_TEST_TMPDIR/ports" "$BATS_TEST_DIRNAME/../lib/zkproxy.py" "$control" "$lost" "${targets[@]}"
  PROXY=$SPAWN_PID
  wait_for 10 grep -q . "$BATS_TEST_TMPDIR/ports"
  read -ra ports <"$BATS_TEST_TMPDIR/ports"
  cp "$CLUSTER_DIR/ports" "$BATS_TEST_TMPDIR/direct"
  for i in 1 2 3; do
    awk -v n="zk$i" -v port="${ports[i - 1]}" '$1 == n { $2 = port } { print }' "$CLUSTER_DIR/ports" >"$BATS_TEST_TMPDIR/via"
    cp "$BATS_TEST_TMPDIR/via" "$CLUSTER_DIR/ports"
  done
  server stop m1 m2 m3
  server start m1 m2 m3
  cp "$BATS_TEST_TMPDIR/direct" "$CLUSTER_DIR/ports"
  local before
  before=$(zkctl table show t --json | jq .txnseq)
  echo 0.3 >"$control"
  # two at once, so that now and then another server's change is really first
  change read_level "$1" majority one >"$BATS_TEST_TMPDIR/other" 2>&1 &
  local other=$!
  change write_level "$1" one majority
  wait "$other" || { cat "$BATS_TEST_TMPDIR/other" && false; }
  echo 0 >"$control"
  local acked after
  acked=$(($(cat "$BATS_TEST_TMPDIR/read_level.acked") + $(cat "$BATS_TEST_TMPDIR/write_level.acked")))
  after=$(zkctl table show t --json | jq .txnseq)
  echo "acknowledged=$acked transactions=$((after - before)) answers_lost=$(wc -l <"$lost") done_and_lost=$(grep -c ' 0$' "$lost")"
  # Each acknowledged change is a transaction of its own, and none is there twice but for changes whose outcome was not
  # told; most were acknowledged although every third answer was lost.
  [ "$after" -ge $((before + acked)) ] && [ "$after" -le $((before + 2 * $1)) ]
  [ "$acked" -ge "$1" ]
  [ "$(grep -c 'multi 0$' "$lost")" -ge $(($1 / 4)) ]
  run -0 zkctl wait table:t:settled --timeout 60s
  zkctl fsck # follows the chain: no two files of one transaction
  run -0 partc put t k v
}

@test "R24: changes whose answer is lost are told apart from those that somebody else was first with" {
  [ -f /usr/share/java/zookeeper.jar ] || skip "no ZooKeeper (libzookeeper-java)"
  rounds 20
}

# bats test_tags=slow
@test "R24: 200 rounds" {
  [ -f /usr/share/java/zookeeper.jar ] || skip "no ZooKeeper (libzookeeper-java)"
  rounds 100
}
