#!/usr/bin/python3
"""rpc.py ADDRESS METHOD [PARAMS]: one MessagePack-RPC request, as any client could send it.

ADDRESS is host:port or the path of a Unix socket; PARAMS a JSON object. Prints the result as JSON, bytes as
text (latin-1); an error goes to stderr as "CODE: text" and the exit status is 1. `--raw HEX` sends bytes
as they are and prints the answers until the server closes.
"""
import json
import socket
import sys

import msgpack

TIMEOUT = 15


def connect(address):
    if address.startswith("/"):
        s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        s.connect(address)
    else:
        host, port = address.rsplit(":", 1)
        s = socket.create_connection((host, int(port)))
    s.settimeout(TIMEOUT)
    return s


def plain(value):
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if isinstance(value, list):
        return [plain(v) for v in value]
    if isinstance(value, dict):
        return {plain(k): plain(v) for k, v in value.items()}
    return value


def answers(s):
    unpacker = msgpack.Unpacker(raw=True, strict_map_key=False, max_buffer_size=64 << 20)
    while True:
        data = s.recv(1 << 16)
        if not data:
            return
        unpacker.feed(data)
        yield from unpacker


def main():
    address, method = sys.argv[1:3]
    s = connect(address)
    if method == "--raw":
        s.sendall(bytes.fromhex(sys.argv[3]))
        for answer in answers(s):
            print(json.dumps(plain(answer)))
        return 0
    params = json.loads(sys.argv[3]) if len(sys.argv) > 3 else {}
    # Hex ids are given as {"hex": "..."}.
    params = {k: bytes.fromhex(v["hex"]) if isinstance(v, dict) and set(v) == {"hex"} else v for k, v in params.items()}
    s.sendall(msgpack.packb([0, 1, method, [params]], use_bin_type=True))
    for answer in answers(s):
        _, _, error, result = plain(answer)
        if error is not None:
            print(f"{error['code']}: {error['text']} {json.dumps({k: v for k, v in error.items() if k not in ('code', 'text')})}", file=sys.stderr)
            return 1
        print(json.dumps(result))
        return 0
    print("closed without an answer", file=sys.stderr)
    return 2


sys.exit(main())
