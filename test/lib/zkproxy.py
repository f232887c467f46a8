#!/usr/bin/python3
"""zkproxy.py CONTROL LOG TARGET... : a proxy before a ZooKeeper ensemble that loses answers.

Listens on a free port of 127.0.0.1 for each TARGET (host:port) and prints the ports on one line. What CONTROL says,
read again for every request, is the share (0 to 1) of writes (create, set, multi) whose answer is lost: the request is
passed on, the answer is not, and the connection is cut, as when a network breaks in between. Each such loss is a line
in LOG: the kind of the request and the error code of the answer that was lost (0: it was done).
"""
import asyncio
import random
import struct
import sys

WRITES = {1: "create", 5: "set", 14: "multi", 15: "create"}


def share(control):
    try:
        with open(control, encoding="ascii") as f:
            return float(f.read().strip() or 0)
    except (OSError, ValueError):
        return 0.0


async def frame(reader):
    head = await reader.readexactly(4)
    return head + await reader.readexactly(struct.unpack(">i", head)[0])


async def requests(reader, out, control, doomed):
    out.write(await frame(reader))  # the handshake has no header
    while True:
        packet = await frame(reader)
        xid, kind = struct.unpack(">ii", packet[4:12])
        if kind in WRITES and random.random() < share(control):
            doomed[xid] = WRITES[kind]
        out.write(packet)
        await out.drain()


async def answers(reader, out, log, doomed):
    out.write(await frame(reader))
    while True:
        packet = await frame(reader)
        xid = struct.unpack(">i", packet[4:8])[0]
        if xid in doomed:
            with open(log, "a", encoding="ascii") as f:
                f.write(f"{doomed[xid]} {struct.unpack('>i', packet[16:20])[0]}\n")
            return
        out.write(packet)
        await out.drain()


async def serve(reader, writer, target, control, log):
    host, port = target.rsplit(":", 1)
    try:
        up_reader, up_writer = await asyncio.open_connection(host, int(port))
    except OSError:
        writer.close()
        return
    doomed = {}
    both = [
        asyncio.ensure_future(requests(reader, up_writer, control, doomed)),
        asyncio.ensure_future(answers(up_reader, writer, log, doomed)),
    ]
    _, pending = await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
    for task in pending:
        task.cancel()
    await asyncio.gather(*both, return_exceptions=True)
    up_writer.close()
    writer.close()


async def main():
    control, log, *targets = sys.argv[1:]
    ports = []
    servers = []
    for target in targets:
        server = await asyncio.start_server(lambda r, w, t=target: serve(r, w, t, control, log), "127.0.0.1", 0)
        servers.append(server)
        ports.append(str(server.sockets[0].getsockname()[1]))
    print(" ".join(ports), flush=True)
    await asyncio.gather(*(s.serve_forever() for s in servers))


asyncio.run(main())
