#!/bin/bash
# Layering: every room of lib includes only the rooms that it leans on (lib/README.md), and the pure
# rooms (base excepted) touch no file, socket, clock or thread. Prints each offence; exit 1 if any.
set -euo pipefail
cd "$(dirname "$0")/../.."

allowed() {
  case $1 in
    base) echo "base" ;;
    model) echo "model base" ;;
    wire) echo "wire model base" ;;
    io) echo "io base" ;;
    rpc) echo "rpc io wire model base" ;;
    coord) echo "coord io model base" ;;
    store) echo "store wire model base" ;;
    proto) echo "proto model base" ;;
    route) echo "route model base" ;;
    meta) echo "meta store coord wire io proto model base" ;;
    daemon) echo "daemon coord rpc wire io model base" ;;
    client) echo "client daemon coord rpc wire io store proto model base" ;;
    *) echo "" ;;
  esac
}

bad=0
for room in lib/*/; do
  room=$(basename "$room")
  ok=$(allowed "$room")
  if [ -z "$ok" ]; then
    echo "lib/$room: a room that test/lint/layers.sh does not know"
    bad=1
    continue
  fi
  while IFS=: read -r file line text; do
    other=$(sed -E 's/.*"lib\/([a-z]+)\/.*/\1/' <<<"$text")
    if ! grep -qw "$other" <<<"$ok"; then
      echo "$file:$line: lib/$room must not lean on lib/$other"
      bad=1
    fi
  done < <(grep -nE '^#include "lib/' -r "lib/$room" --include='*.h' --include='*.cc' || true)
done

# Whatever decides is pure: no libuv, LMDB, ZooKeeper, MessagePack, file, socket, clock or thread.
impure='<(uv|lmdb|zookeeper[^>]*|msgpack[^>]*|fcntl|unistd|sys/[a-z]+|netinet/[a-z]+|thread|mutex|condition_variable|future|fstream|iostream|filesystem|time|ctime|pthread)(\.h(pp)?)?>'
for room in model proto route; do
  [ -d "lib/$room" ] || continue
  if grep -nE "^#include $impure" -r "lib/$room"; then
    echo "lib/$room must be pure: the includes above are not"
    bad=1
  fi
  if grep -nE '(steady_clock|system_clock|high_resolution_clock|SystemClock|SystemRandom|random_device|getenv)\b' -r "lib/$room" --include='*.cc' --include='*.h'; then
    echo "lib/$room must be pure: time and chance come in as inputs"
    bad=1
  fi
done

# Programs share through lib, not through each other.
while IFS=: read -r file line text; do
  mine=$(cut -d/ -f2 <<<"$file")
  other=$(sed -E 's/.*"cmd\/([a-z-]+)\/.*/\1/' <<<"$text")
  if [ "$mine" != "$other" ]; then
    echo "$file:$line: cmd/$mine must not lean on cmd/$other"
    bad=1
  fi
done < <(grep -nE '^#include "cmd/' -r cmd --include='*.h' --include='*.cc' || true)
exit $bad
