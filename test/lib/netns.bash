# A cluster in which each machine has a network namespace of its own: partition servers p1… (with their pushers), a
# metadata server m1, three ZooKeeper servers zk1 zk2 zk3, and c, where tools and clients run. Load it behind cluster.bash.
#
#   setup() { net_have || skip "$(net_why)"; net_up 3; }
#   teardown() { net_diagnose; net_down; }
#
#   on MACHINE COMMAND…            runs it there; zkctl and partc are run on c
#   lose A B                       drops what A sends to B, silently; `lose A zk`: to all of ZooKeeper, `lose zk A`: from it
#   heal                           nothing is dropped any more
#   net_start NAME…                daemons, also after net_kill; does not wait
#   net_kill SIGNAL NAME…          and waits for the end, if it is KILL or TERM
#   net_ready p1…                  registered, caught up, serving
#   net_proxy MACHINE              what is called from there goes through rpcproxy.py, and so do the calls of daemons on it;
#                                  `lose_answers MACHINE SHARE METHOD,METHOD…`; passed MACHINE prints what it noted
#   NET_PARTD_ARGS                 an array: further flags of each partd
#
# Machines share the disk and nothing else: each has its sockets in a directory that only it sees, so that servers talk
# over the network. Everything is named after the test's process, so that two runs do no harm to one another; namespaces
# that a killed run left behind are named in `ip netns`.
# shellcheck shell=bash

NET_PREFIX=ct$$
NET_SUBNET=10.$((200 + $$ % 50)).$(($$ / 50 % 250))
declare -gA NET_HOLDER=() NET_PID=()
declare -ga NET_PARTD_ARGS=() NET_PROXIES=()

net_why() { echo "needs root, ip netns and nft, bridges, java and libzookeeper-java"; }
net_have() {
  [ "$(id -u)" = 0 ] && [ -f /usr/share/java/zookeeper.jar ] && command -v java nft ip nsenter unshare >/dev/null || return 1
  ip netns add "$NET_PREFIX-t" 2>/dev/null || return 1
  local status=0
  ip netns exec "$NET_PREFIX-t" nft add table inet t 2>/dev/null || status=1
  ip netns del "$NET_PREFIX-t"
  [ "$status" = 0 ] && ip link add "$NET_PREFIX" type bridge 2>/dev/null && ip link del "$NET_PREFIX"
}

net_number() { # MACHINE: the last part of its address
  case $1 in
    zk*) echo $((${1#zk})) ;;
    m*) echo $((10 + ${1#m})) ;;
    p*) echo $((20 + ${1#p})) ;;
    c) echo 99 ;;
  esac
}
net_ip() { echo "$NET_SUBNET.$(net_number "$1")"; }
net_host() { case $1 in r*) echo "p${1#r}" ;; *) echo "$1" ;; esac; }

on() { # MACHINE COMMAND…
  local host=$1
  shift
  nsenter -t "${NET_HOLDER[$host]}" -n -m -- "$@"
}
zkctl() { on c "$CANTLE_BIN/zkctl" "$@"; }
partc() { on c "$CANTLE_BIN/partc" "$@"; }
# client LOG COMMAND…: in the background on c; sets SPAWN_PID.
client() {
  local log=$1
  shift
  spawn "$log" nsenter -t "${NET_HOLDER[c]}" -n -m -- "$@"
}

net_machine() { # NAME
  local name=$1 ns=$NET_PREFIX-$1 number
  number=$(net_number "$name")
  ip netns add "$ns"
  ip link add "${NET_PREFIX}v$number" type veth peer name eth0 netns "$ns"
  ip link set "${NET_PREFIX}v$number" master "$NET_PREFIX" up
  ip -n "$ns" addr add "$(net_ip "$name")/24" dev eth0
  ip -n "$ns" link set eth0 up
  ip -n "$ns" link set lo up
  ip netns exec "$ns" nft 'add table inet t; add chain inet t in { type filter hook input priority 0; }'
  # shellcheck disable=SC2016
  spawn "$NET_DIR/run/$name.holder" ip netns exec "$ns" unshare -m --propagation private sh -c \
    'mount -t tmpfs none "$0" && : >"$0/here" && exec sleep infinity' "$NET_DIR/sock"
  NET_HOLDER[$name]=$SPAWN_PID
  wait_for 10 on "$name" test -e "$NET_DIR/sock/here"
}

net_up() { # SERVERS
  NET_DIR=$BATS_TEST_TMPDIR/net
  NET_SERVERS=$1
  mkdir -p "$NET_DIR/run" "$NET_DIR/sock"
  ip link add "$NET_PREFIX" type bridge
  ip link set "$NET_PREFIX" up
  local i
  for i in c m1 zk1 zk2 zk3 $(seq -f 'p%g' "$NET_SERVERS"); do net_machine "$i"; done
  export CANTLE_COORD CANTLE_CLUSTER=cantle
  CANTLE_COORD=zk://$(net_ip zk1):2181,$(net_ip zk2):2181,$(net_ip zk3):2181
  net_start zk1 zk2 zk3
  wait_for 60 zkctl init --if-missing
  # shellcheck disable=SC2046
  net_start m1 $(seq -f 'p%g' "$NET_SERVERS") $(seq -f 'r%g' "$NET_SERVERS")
  # shellcheck disable=SC2046
  net_ready $(seq -f 'p%g' "$NET_SERVERS")
  zkctl wait node:m1:active --timeout 60s
}
net_ready() {
  local -a want=()
  local id
  for id in "$@"; do want+=("node:$id:ready"); done
  wait_for 90 zkctl wait "${want[@]}" --timeout 5s
}

net_start() {
  local name
  for name in "$@"; do
    if [ -n "${NET_PID[$name]:-}" ] && kill -0 "${NET_PID[$name]}" 2>/dev/null; then continue; fi
    local host number=${name##*[a-z]}
    host=$(net_host "$name")
    local -a run=(nsenter -t "${NET_HOLDER[$host]}" -n -m --)
    case $name in
      zk*)
        net_zookeeper "$name"
        run+=(java -Xmx128m -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Dzookeeper.extendedTypesEnabled=true
          -Dorg.slf4j.simpleLogger.defaultLogLevel=warn -cp /usr/share/java/zookeeper.jar:/usr/share/java/slf4j-simple.jar
          org.apache.zookeeper.server.quorum.QuorumPeerMain "$NET_DIR/$name/zoo.cfg")
        ;;
      m*) run+=("$CANTLE_BIN/mdserver" run --id "$name" --data-dir "$NET_DIR/$name" --listen "$(net_ip "$host"):7400") ;;
      p*) run+=("$CANTLE_BIN/partd" run --id "$name" --data-dir "$NET_DIR/$name" --listen "$(net_ip "$host"):7410"
        --session-ms 2000 "${NET_PARTD_ARGS[@]}") ;;
      r*) run+=("$CANTLE_BIN/replpush" run --id "p$number" --data-dir "$NET_DIR/p$number") ;;
    esac
    if [[ $name != zk* ]]; then run+=(--socket "$NET_DIR/sock/$name.sock"); fi
    NET_LIFE=$((${NET_LIFE:-0} + 1))
    spawn "$NET_DIR/run/$name.$NET_LIFE.log" "${run[@]}"
    NET_PID[$name]=$SPAWN_PID
  done
}
net_zookeeper() { # NAME
  local dir=$NET_DIR/$1 peer
  mkdir -p "$dir/data"
  echo "${1#zk}" >"$dir/data/myid"
  {
    printf '%s\n' tickTime=200 initLimit=50 syncLimit=25 "dataDir=$dir/data" clientPort=2181 \
      "clientPortAddress=$(net_ip "$1")" admin.enableServer=false maxClientCnxns=0 maxSessionTimeout=60000
    for peer in zk1 zk2 zk3; do echo "server.${peer#zk}=$(net_ip "$peer"):2888:3888"; done
  } >"$dir/zoo.cfg"
}

net_kill() { # SIGNAL NAME…
  local signal=$1 name
  shift
  for name in "$@"; do kill -s "$signal" "${NET_PID[$name]}" 2>/dev/null || true; done
  case $signal in
    KILL | TERM)
      for name in "$@"; do
        wait "${NET_PID[$name]}" 2>/dev/null || true
        unset "NET_PID[$name]"
      done
      ;;
  esac
}
net_alive() { kill -0 "${NET_PID[$1]:-0}" 2>/dev/null; }

net_proxy() { # MACHINE
  spawn "$NET_DIR/run/$1.proxy" nsenter -t "${NET_HOLDER[$1]}" -n -m -- \
    "$BATS_TEST_DIRNAME/../lib/rpcproxy.py" 7999 "$NET_DIR/run/$1.control" "$NET_DIR/run/$1.passed"
  NET_PROXIES+=("$SPAWN_PID")
  : >"$NET_DIR/run/$1.passed"
  wait_for 10 grep -q listening "$NET_DIR/run/$1.proxy"
  on "$1" nft 'add table ip n; add chain ip n out { type nat hook output priority -100; }; add rule ip n out tcp dport 7410 meta mark != 7 redirect to :7999'
}
lose_answers() { echo "$2 $3" >"$NET_DIR/run/$1.control"; }
passed() { cat "$NET_DIR/run/$1.passed"; }

lose() { # A B
  local -a from=("$1") to=("$2")
  [ "$1" != zk ] || from=(zk1 zk2 zk3)
  [ "$2" != zk ] || to=(zk1 zk2 zk3)
  local a b
  for a in "${from[@]}"; do
    for b in "${to[@]}"; do on "$b" nft add rule inet t in ip saddr "$(net_ip "$a")" drop; done
  done
}
heal() {
  local name
  for name in "${!NET_HOLDER[@]}"; do on "$name" nft flush chain inet t in; done
}

net_down() {
  local name
  for name in "${!NET_PID[@]}"; do kill -CONT "${NET_PID[$name]}" 2>/dev/null || true; done
  for name in "${!NET_PID[@]}"; do [[ $name == zk* ]] || kill -TERM "${NET_PID[$name]}" 2>/dev/null || true; done
  for name in "${!NET_PID[@]}"; do [[ $name == zk* ]] || wait "${NET_PID[$name]}" 2>/dev/null || true; done
  for name in "${!NET_PID[@]}"; do [[ $name != zk* ]] || kill -KILL "${NET_PID[$name]}" 2>/dev/null || true; done
  for name in "${NET_PROXIES[@]}"; do kill -KILL "$name" 2>/dev/null || true; done
  for name in "${!NET_HOLDER[@]}"; do
    kill -KILL "${NET_HOLDER[$name]}" 2>/dev/null || true
    wait "${NET_HOLDER[$name]}" 2>/dev/null || true
    ip netns del "$NET_PREFIX-$name" 2>/dev/null || true
  done
  ip link del "$NET_PREFIX" 2>/dev/null || true
  NET_HOLDER=() NET_PID=() NET_PROXIES=()
  sanitizers_silent
}
net_diagnose() {
  [ "${BATS_TEST_COMPLETED:-}" != 1 ] && [ -d "${NET_DIR:-/nonexistent}/run" ] || return 0
  local log
  for log in "$NET_DIR"/run/[mpr]*.log; do
    echo "--- $log"
    tail -n "${DIAGNOSE_LINES:-25}" "$log"
  done
}
