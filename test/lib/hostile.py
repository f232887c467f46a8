#!/usr/bin/python3
"""What a peer may do wrong, for test/bats/hostile.bats (R40). Each verb prints what it saw and exits 0 only if
every connection ended as it must.

  hostile.py flood ADDRESS COUNT SECONDS    opens COUNT idle connections, holds them, closes them
  hostile.py frames ADDRESS                 frames that are none: each must be answered MALFORMED or closed
  hostile.py blobs ADDRESS COUNT            random bytes, half of them behind the beginning of a good frame
  hostile.py slow ADDRESS                   a good request one byte at a time: must be answered
  hostile.py half ADDRESS SECONDS           half a frame and silence: must be closed within SECONDS
  hostile.py huge ADDRESS                   frames that promise gigabytes and send a little of them
  hostile.py call ADDRESS METHOD JSON       one request; prints the error's code, or the result's fields
  hostile.py limits ADDRESS TABLE           keys, values, batches, tables over their limits, wrong types: prints the codes
  hostile.py write ADDRESS TABLE SECONDS    fifty puts a second on one connection; each must succeed
  hostile.py ping ADDRESS SECONDS           `status` again and again; prints the 99th percentile in microseconds

ADDRESS: host:port or the path of a Unix socket.
"""
import json
import os
import random
import socket
import struct
import sys
import time

import msgpack

DEADLINE = 20.0


def connect(address):
    if address.startswith("/"):
        s = socket.socket(socket.AF_UNIX)
        s.settimeout(DEADLINE)
        s.connect(address)
        return s
    host, port = address.rsplit(":", 1)
    s = socket.create_connection((host, int(port)), timeout=DEADLINE)
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return s


def send(s, data):
    try:
        s.sendall(data)
    except (BrokenPipeError, ConnectionResetError):
        pass


def read_to_end(s):
    """All that comes until the server closes; None if it does not."""
    got = b""
    try:
        while True:
            part = s.recv(65536)
            if not part:
                return got
            got += part
    except ConnectionResetError:
        return got
    except socket.timeout:
        return None


def answers(data):
    unpacker = msgpack.Unpacker(raw=False, strict_map_key=False)
    unpacker.feed(data)
    return list(unpacker)


def request(method, params, msgid=1):
    return msgpack.packb([0, msgid, method, [params]])


def must_end(address, data, what):
    s = connect(address)
    send(s, data)
    got = read_to_end(s)
    s.close()
    if got is None:
        sys.exit(f"{what}: the connection stayed open")
    for answer in answers(got):
        if answer[0] != 1 or answer[2] is None:
            sys.exit(f"{what}: answered {answer}")
    codes = [a[2]["code"] for a in answers(got)]
    if codes and codes[-1] != "MALFORMED":
        sys.exit(f"{what}: answered {codes}")
    return codes


def frames(address):
    head = b"\x94\x00\x01\xa3put\x91"
    cases = {"HTTP": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "TLS": bytes.fromhex("160301020001fc0303")}
    for n in (0, 1, 8 << 20, (8 << 20) + 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF):
        cases[f"length {n} in front"] = struct.pack(">I", n) + b"x" * 16
    for n in (8 << 20, (8 << 20) + 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF):
        for tag, kind in ((b"\xc6", "bin"), (b"\xdb", "str"), (b"\xc9", "ext"), (b"\xdd", "array"), (b"\xdf", "map")):
            cases[f"{kind} of {n}"] = head + tag + struct.pack(">I", n) + b"x" * 16
    cases["deep"] = head + b"\x91" * 20
    cases["never used"] = head + b"\xc1"
    cases["a response"] = msgpack.packb([1, 5, None, {}])
    cases["type 7"] = msgpack.packb([7, 5, "get", [{}]])
    cases["an id too long"] = msgpack.packb([0, 1 << 40, "get", [{}]])
    for what, data in cases.items():
        codes = must_end(address, data, what)
        if codes != ["MALFORMED"]:
            sys.exit(f"{what}: closed without a word")
    print(f"{len(cases)} frames answered MALFORMED and closed")


def blobs(address, count):
    rng = random.Random(40)
    good = request("get", {"table": "t", "key": b"k"})
    for _ in range(count):
        data = rng.randbytes(rng.randint(1, 400))
        if rng.random() < 0.5:
            data = good[: rng.randint(1, len(good))] + data
        s = connect(address)
        send(s, data)
        s.shutdown(socket.SHUT_WR)
        if read_to_end(s) is None:
            sys.exit(f"stayed open after {data.hex()}")
        s.close()
    print(f"{count} blobs")


def slow(address):
    s = connect(address)
    for byte in request("status", {}):
        s.sendall(bytes([byte]))
    unpacker = msgpack.Unpacker(raw=False)
    while True:
        unpacker.feed(s.recv(65536))
        for answer in unpacker:
            if answer[2] is not None:
                sys.exit(f"answered {answer[2]}")
            print("answered")
            return


def half(address, seconds):
    s = connect(address)
    s.settimeout(seconds)
    s.sendall(request("status", {})[:-2])
    begin = time.monotonic()
    if read_to_end(s) is None:
        sys.exit("half a frame was kept for ever")
    print(f"closed after {time.monotonic() - begin:.1f} s")


def huge(address):
    """Each within the frame limit, and never finished: what the server keeps of them is bounded."""
    held = []
    for _ in range(20):
        s = connect(address)
        data = b"\x94\x00\x01\xa3put\x91\x81\xa5value\xc6" + struct.pack(">I", (8 << 20) - 64) + b"x" * 200000
        send(s, data)
        held.append(s)
    print("held 20 of 200 kB")
    for s in held:
        s.close()


def call(address, method, params):
    s = connect(address)
    s.sendall(request(method, params))
    unpacker = msgpack.Unpacker(raw=False)
    while True:
        part = s.recv(65536)
        if not part:
            print("CLOSED")
            return
        unpacker.feed(part)
        for answer in unpacker:
            print(answer[2]["code"] if answer[2] else "ok " + " ".join(sorted(answer[3])))
            return


def code_of(address, method, params):
    s = connect(address)
    send(s, request(method, params))
    unpacker = msgpack.Unpacker(raw=False, max_buffer_size=1 << 26)
    while True:
        part = s.recv(1 << 20)
        if not part:
            return "CLOSED"
        unpacker.feed(part)
        for answer in unpacker:
            return answer[2]["code"] if answer[2] else "OK"


def limits(address, table):
    put = {"table": table, "value": b"v", "level": 1}
    batch = {"table": table, "level": 1}
    cases = [
        ("empty key", "put", {**put, "key": b""}),
        ("key of 480", "put", {**put, "key": b"k" * 480}),
        ("key of 481", "put", {**put, "key": b"k" * 481}),
        ("value of 1 MiB", "put", {**put, "key": b"big", "value": b"v" * (1 << 20)}),
        ("value of 1 MiB + 1", "put", {**put, "key": b"bigger", "value": b"v" * ((1 << 20) + 1)}),
        ("value of 7 MiB", "put", {**put, "key": b"bigger", "value": b"v" * (7 << 20)}),
        ("batch of 10001", "batch", {**batch, "ops": [{"op": 1, "key": b"b%d" % i, "value": b""} for i in range(10001)]}),
        ("empty batch", "batch", {**batch, "ops": []}),
        ("batch with a key twice", "batch", {**batch, "ops": [{"op": 1, "key": b"x", "value": b""}] * 2}),
        ("batch with op 9", "batch", {**batch, "ops": [{"op": 9, "key": b"x", "value": b""}]}),
        ("batch beyond a block", "batch", {**batch, "ops": [{"op": 1, "key": b"c%d" % i, "value": b"v" * 900000} for i in range(6)]}),
        ("level 9", "put", {**put, "key": b"level", "level": 9}),
        ("key that is a number", "put", {**put, "key": 5}),
        ("txnseq below zero", "put", {**put, "key": b"x", "txnseq": -1}),
        ("version of 5 bytes", "put", {**put, "key": b"x", "version": b"12345"}),
        ("table that is not there", "put", {**put, "key": b"x", "table": "nowhere"}),
        ("table name of 64", "put", {**put, "key": b"x", "table": "t" * 64}),
        ("table name with a slash", "get", {"table": "../t", "key": b"x"}),
        ("method that is not there", "puts", {**put, "key": b"x"}),
        ("scan with a foreign cursor", "scan", {"table": table, "cursor": b"nonsense"}),
        ("scan backwards in its bounds", "scan", {"table": table, "begin": b"z", "end": b"a"}),
        ("unknown field", "get", {"table": table, "key": b"k" * 480, "from the future": [1, {"a": None}]}),
    ]
    for what, method, params in cases:
        print(f"{what}: {code_of(address, method, params)}")


def ping(address, seconds):
    s = connect(address)
    unpacker = msgpack.Unpacker(raw=False)
    took = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        begin = time.monotonic()
        s.sendall(request("status", {}))
        answered = False
        while not answered:
            part = s.recv(1 << 20)
            if not part:
                sys.exit("the connection of a good client was closed")
            unpacker.feed(part)
            for _ in unpacker:
                answered = True
        took.append(time.monotonic() - begin)
    took.sort()
    print(int(took[int(len(took) * 0.99)] * 1e6))


def write(address, table, seconds):
    s = connect(address)
    unpacker = msgpack.Unpacker(raw=False)
    end = time.monotonic() + seconds
    count = 0
    while time.monotonic() < end:
        s.sendall(request("put", {"table": table, "key": b"w%d" % count, "value": b"v", "level": 1}))
        answered = False
        while not answered:
            part = s.recv(65536)
            if not part:
                sys.exit("the connection of a good client was closed")
            unpacker.feed(part)
            for answer in unpacker:
                if answer[2]:
                    sys.exit(f"answered {answer[2]}")
                answered = True
        count += 1
        if count == 1:
            print("began", flush=True)
        # At a rate: a fast disk must not make this client the work that the test measures.
        time.sleep(1 / 50)
    print(f"{count} writes")


def flood(address, count, seconds):
    open_, refused = [], 0
    for _ in range(count):
        try:
            open_.append(connect(address))
        except OSError:
            refused += 1
    print(f"{len(open_)} connected", flush=True)
    time.sleep(seconds)
    for s in open_:
        s.close()


def main():
    verb, address, *rest = sys.argv[1:]
    if address.startswith("unix:"):
        address = address[5:]
    if verb == "flood":
        flood(address, int(rest[0]), float(rest[1]))
    elif verb == "frames":
        frames(address)
    elif verb == "blobs":
        blobs(address, int(rest[0]))
    elif verb == "slow":
        slow(address)
    elif verb == "half":
        half(address, float(rest[0]))
    elif verb == "huge":
        huge(address)
    elif verb == "call":
        call(address, rest[0], json.loads(rest[1]))
    elif verb == "limits":
        limits(address, rest[0])
    elif verb == "write":
        write(address, rest[0], float(rest[1]))
    elif verb == "ping":
        ping(address, float(rest[0]))
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    main()
