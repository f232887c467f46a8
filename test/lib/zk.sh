# shellcheck shell=bash
# Private ZooKeeper servers for tests, on 127.0.0.1. Sourced by Bats files and by the conformance suite.
#
#   zk_have                    is there a JVM and a ZooKeeper? says what is missing
#   zk_free_ports N            N free TCP ports, one a line
#   zk_start DIR PORT...       one port: a standalone server; three: an ensemble. Ready when it returns.
#                              DIR/zk<i>/ holds each server's zoo.cfg, data, log and pid
#   zk_start_one DIR I         starts server I again with the configuration that it had; does not wait
#   zk_wait DIR I [SECONDS]    until it serves
#   zk_kill DIR I [SIGNAL]     KILL by default; waits until it is gone, for KILL and TERM
#   zk_leader DIR              number of the server that leads (1 for a standalone one)
#   zk_stop DIR                ends all of them
#   zk_url DIR                 zk://127.0.0.1:p1,…
#   ZK_FORCE_SYNC=yes          transactions reach the disk (default: no, tests claim nothing of ZooKeeper's own)
#
# Only processes that these functions started are signalled: the pid's command line must name its zoo.cfg.

ZK_JARS=/usr/share/java/zookeeper.jar:/usr/share/java/slf4j-simple.jar

zk_have() {
  command -v java >/dev/null || { echo "no java" >&2; return 1; }
  [ -e /usr/share/java/zookeeper.jar ] || { echo "no /usr/share/java/zookeeper.jar (libzookeeper-java)" >&2; return 1; }
}

zk_free_ports() {
  python3 - "$1" <<'PY'
import socket, sys
held = [socket.socket() for _ in range(int(sys.argv[1]))]
for s in held:
    s.bind(("127.0.0.1", 0))
for s in held:
    print(s.getsockname()[1])
PY
}

zk_start() {
  local dir=$1 i=0 peers=() port
  shift
  zk_have || return 1
  if [ $# -gt 1 ]; then mapfile -t peers < <(zk_free_ports $((2 * $#))); fi
  for port in "$@"; do
    i=$((i + 1))
    zk_configure "$dir/zk$i" "$i" "$port" $# "${peers[@]}"
  done
  for ((i = 1; i <= $#; i++)); do zk_start_one "$dir" "$i" || return 1; done
  for ((i = 1; i <= $#; i++)); do zk_wait "$dir" "$i" || return 1; done
}

# DIR I PORT COUNT [PEER-AND-ELECTION-PORTS...]
zk_configure() {
  local home=$1 i=$2 port=$3 count=$4 n
  shift 4
  mkdir -p "$home/data"
  echo "$port" >"$home/port"
  echo "$i" >"$home/data/myid"
  {
    printf '%s\n' tickTime=200 initLimit=50 syncLimit=10 "dataDir=$home/data" "clientPort=$port" \
      clientPortAddress=127.0.0.1 admin.enableServer=false '4lw.commands.whitelist=*' maxClientCnxns=0 \
      maxSessionTimeout=60000
    if [ "$count" -gt 1 ]; then
      for ((n = 1; n <= count; n++)); do echo "server.$n=127.0.0.1:$1:$2"; shift 2; done
    fi
  } >"$home/zoo.cfg"
}

# The subshell closes what it inherited: a server that holds a test's pipe keeps the test from ending.
zk_start_one() {
  local home=$1/zk$2 n
  (
    exec </dev/null >>"$home/log" 2>&1
    for fd in /proc/self/fd/*; do
      n=${fd##*/}
      if [ "$n" -gt 2 ]; then eval "exec $n>&-"; fi
    done
    exec setsid java -Xmx128m -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Dzookeeper.forceSync="${ZK_FORCE_SYNC:-no}" \
      -Dorg.slf4j.simpleLogger.defaultLogLevel=warn -cp "$ZK_JARS" org.apache.zookeeper.server.quorum.QuorumPeerMain "$home/zoo.cfg"
  ) &
  echo $! >"$home/pid"
  disown $! 2>/dev/null  # its death is no news for this shell
  for ((n = 0; n < 200; n++)); do  # until the subshell has become java, and zk_alive knows it
    if zk_alive "$1" "$2"; then return 0; fi
    sleep 0.01
  done
  echo "zk$2 did not start" >&2
  return 1
}

# What the server says of itself; "ruok" would be answered before it serves.
zk_srvr() {
  local port
  port=$(<"$1/zk$2/port")
  timeout 2 bash -c "exec 3<>/dev/tcp/127.0.0.1/$port && printf srvr >&3 && cat <&3" 2>/dev/null
}

zk_wait() {
  local deadline=$((SECONDS + ${3:-60}))
  until zk_srvr "$1" "$2" | grep -q '^Mode:'; do
    if ! zk_alive "$1" "$2" || [ $SECONDS -ge $deadline ]; then
      echo "zk$2 does not serve:" >&2
      tail -5 "$1/zk$2/log" >&2
      return 1
    fi
    sleep 0.05
  done
}

# Its process is there, and is the one we started.
zk_alive() {
  local home=$1/zk$2 pid
  pid=$(cat "$home/pid" 2>/dev/null) || return 1
  tr '\0' '\n' 2>/dev/null <"/proc/$pid/cmdline" | grep -qxF "$home/zoo.cfg"
}

zk_kill() {
  local home=$1/zk$2 signal=${3:-KILL} pid
  zk_alive "$1" "$2" || return 0
  pid=$(<"$home/pid")
  kill -s "$signal" "$pid" 2>/dev/null
  case $signal in
    KILL | TERM) while zk_alive "$1" "$2"; do sleep 0.02; done ;;
  esac
}

zk_leader() {
  local home i
  for home in "$1"/zk*; do
    i=${home##*/zk}
    if zk_srvr "$1" "$i" | grep -qE '^Mode: (leader|standalone)'; then echo "$i"; return 0; fi
  done
  return 1
}

zk_stop() {
  local home
  for home in "$1"/zk*; do
    [ -e "$home/pid" ] || continue
    zk_kill "$1" "${home##*/zk}" CONT
    zk_kill "$1" "${home##*/zk}" KILL
  done
}

zk_url() {
  local home list=
  for home in "$1"/zk*; do list+=127.0.0.1:$(<"$home/port"),; done
  echo "zk://${list%,}"
}
