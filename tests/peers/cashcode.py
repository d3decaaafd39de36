#!/usr/bin/env python3
"""A client of CashCode's WebSocket protocol, in the way its users write them.

    cashcode.py PORT           the daemon that listens there, whatever model it has
    cashcode.py PORT --stop    and stops an answer while it runs

Needs the package `websockets`. Sends nothing but what the published example sends (a message to the
chat of `ready`, no metadata), so a daemon that passes serves clients that were written for CashCode.
Prints one line for each check; the exit code is 0 only if all passed.
"""

import asyncio
import json
import sys

import websockets

PATIENCE_S = 120


async def receive(ws):
    return json.loads(await asyncio.wait_for(ws.recv(), PATIENCE_S))


async def until(ws, *ends):
    frames = []
    while True:
        frames.append(await receive(ws))
        if frames[-1]["event"] in ends:
            return frames


def check(what, passed, seen):
    print(("ok    " if passed else "FAILED"), what)
    if not passed:
        print("      ", seen)
        sys.exit(1)


async def example(address):
    async with websockets.connect(address) as ws:
        ready = await receive(ws)
        check("a connection is greeted", ready["event"] == "ready" and ready["client_id"], ready)
        chat = ready["chat_id"]
        message = {"type": "message", "chat_id": chat, "content": "Hello, I am Cash."}
        await ws.send(json.dumps(message))
        frames = await until(ws, "done", "error")
        events = [frame["event"] for frame in frames]
        check("the first message gives a title", events[0] == "session_updated", frames[0])
        check("words come before the end", "delta" in events, events)
        check("the stream ends, then the turn", events[-2:] == ["stream_end", "done"], events)
        check("the end says how long it took", frames[-1]["duration_sec"] >= 0, frames[-1])
        foreign = [frame for frame in frames if frame["chat_id"] != chat]
        check("every frame names its chat", not foreign, foreign)
        streams = {frame["stream_id"] for frame in frames if "stream_id" in frame}
        check("a turn is one stream", len(streams) == 1, streams)


async def frames(address):
    async with websockets.connect(address) as ws:
        await receive(ws)
        await ws.send(json.dumps({"type": "ping"}))
        check("ping", (await receive(ws)) == {"event": "pong"}, None)
        await ws.send(json.dumps({"type": "new_chat"}))
        fresh = await receive(ws)
        check("new_chat", fresh["event"] == "attached", fresh)
        await ws.send(json.dumps({"type": "attach", "chat_id": "a\n"}))
        wrong = await receive(ws)
        check("a newline is no part of a name", wrong["detail"] == "invalid chat_id", wrong)
        await ws.send(b'{"type":"ping"}')
        check("text in a binary frame", (await receive(ws)) == {"event": "pong"}, None)
        await ws.send("not json")
        wrong = await receive(ws)
        check("no envelope", wrong["detail"] == "typed JSON envelope required", wrong)
    async with websockets.connect(address, max_size=None) as ws:
        await receive(ws)
        await ws.send("x" * (1024 * 1024 + 1))
        try:
            while True:
                await receive(ws)
        except websockets.ConnectionClosed as closed:
            check("more than 1 MiB closes with 1009", closed.rcvd and closed.rcvd.code == 1009, closed)


async def stop(address):
    async with websockets.connect(address) as ws:
        chat = (await receive(ws))["chat_id"]
        content = "Tell me a very long story."
        await ws.send(json.dumps({"type": "message", "chat_id": chat, "content": content}))
        await until(ws, "delta", "done", "error")
        await ws.send(json.dumps({"type": "cancel", "chat_id": chat}))
        told = [frame["event"] for frame in await until(ws, "error")]
        check("a stop is acknowledged", "stop_ack" in told, told)
        check("and the turn ends", "cancelled" in told and "done" not in told, told)
        await ws.send(json.dumps({"type": "message", "chat_id": chat, "content": "Thank you."}))
        end = (await until(ws, "done", "error"))[-1]
        check("the next message is answered", end["event"] == "done", end)


async def two(address):
    async with websockets.connect(address) as one, websockets.connect(address) as other:
        chat = (await receive(one))["chat_id"]
        await receive(other)
        await other.send(json.dumps({"type": "attach", "chat_id": chat}))
        await until(other, "attached")
        await one.send(json.dumps({"type": "message", "chat_id": chat, "content": "Hi."}))
        heard = [await until(ws, "done", "error") for ws in (one, other)]
        texts = ["".join(f["text"] for f in frames if f["event"] == "delta") for frames in heard]
        check("two connections hear the same words", texts[0] == texts[1] and texts[0], texts)
        echo = [frame for frame in heard[1] if frame["event"] == "user"]
        check("the other one sees the message", len(echo) == 1, heard[1])


async def main():
    address = f"ws://127.0.0.1:{int(sys.argv[1])}"
    await example(address)
    await frames(address)
    await two(address)
    if "--stop" in sys.argv[2:]:
        await stop(address)


asyncio.run(main())
