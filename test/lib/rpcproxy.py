#!/usr/bin/python3
"""rpcproxy.py PORT CONTROL LOG : stands between a machine's MessagePack-RPC clients and the servers that they call.

Connections that the kernel redirects to PORT (lib/netns.bash, net_proxy) go on to where they were meant for, by a
socket with the mark MARK, which is not redirected. Each answer that passes is looked at:

* One to a method that CONTROL names ("SHARE METHOD,METHOD…", read again for every answer) is lost with that
  probability: the server has acted, the answer is not passed on, and the connection is cut. It is a line in LOG, "lost
  METHOD ok" or "lost METHOD error".
* A part of a snapshot is a line "part BYTES", or "last BYTES" if nothing comes behind it.
"""
import asyncio
import random
import socket
import struct
import sys

import msgpack

MARK = 7
SO_ORIGINAL_DST = 80


class Frames:
    """Splits a stream into messages, each with its bytes."""

    def __init__(self):
        self.unpacker = msgpack.Unpacker(raw=True, strict_map_key=False, max_buffer_size=64 << 20)
        self.bytes = bytearray()
        self.begin = 0

    def feed(self, data):
        self.unpacker.feed(data)
        self.bytes += data
        for message in self.unpacker:
            size = self.unpacker.tell() - self.begin
            yield message, bytes(self.bytes[:size])
            del self.bytes[:size]
            self.begin += size


class Proxy:
    def __init__(self, control, log):
        self.control, self.log = control, log

    def loses(self, method):
        try:
            with open(self.control, encoding="ascii") as f:
                share, methods = f.read().split()
        except (OSError, ValueError):
            return False
        return method in methods.split(",") and random.random() < float(share)

    def note(self, *words):
        with open(self.log, "a", encoding="ascii") as f:
            print(*words, file=f)

    async def requests(self, reader, out, asked):
        frames = Frames()
        while data := await reader.read(1 << 16):
            for message, raw in frames.feed(data):
                if message[0] == 0:
                    asked[message[1]] = message[2].decode()
                out.write(raw)
            await out.drain()

    async def answers(self, reader, out, asked):
        frames = Frames()
        while data := await reader.read(1 << 18):
            for message, raw in frames.feed(data):
                method = asked.pop(message[1], "") if message[0] == 1 else ""
                if method and self.loses(method):
                    self.note("lost", method, "ok" if message[2] is None else "error")
                    return
                if method == "quorum.snapshot" and message[2] is None:
                    place = message[3][b"place"]
                    self.note("last" if place[b"all"] else "part", len(raw))
                out.write(raw)
            await out.drain()

    async def serve(self, reader, writer):
        raw = writer.get_extra_info("socket").getsockopt(socket.SOL_IP, SO_ORIGINAL_DST, 16)
        port, address = struct.unpack("!2xH4s8x", raw)
        onward = socket.socket()
        onward.setblocking(False)
        onward.setsockopt(socket.SOL_SOCKET, socket.SO_MARK, MARK)
        onward.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            await asyncio.get_running_loop().sock_connect(onward, (socket.inet_ntoa(address), port))
        except OSError:
            onward.close()
            writer.transport.abort()
            return
        up_reader, up_writer = await asyncio.open_connection(sock=onward)
        asked = {}
        both = [
            asyncio.ensure_future(self.requests(reader, up_writer, asked)),
            asyncio.ensure_future(self.answers(up_reader, writer, asked)),
        ]
        _, pending = await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel()
        await asyncio.gather(*both, return_exceptions=True)
        up_writer.transport.abort()
        writer.transport.abort()


async def main():
    port, control, log = sys.argv[1:]
    proxy = Proxy(control, log)
    server = await asyncio.start_server(proxy.serve, "0.0.0.0", int(port), backlog=1024)
    print("listening", flush=True)
    await server.serve_forever()


asyncio.run(main())
