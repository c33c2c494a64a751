"""How the members of a run find each other: some listen, some call, and strangers cannot fill the house."""

from __future__ import annotations

import asyncio
import socket
import ssl
from typing import Any

from sordino.parties.mpc.links import INTRODUCTION, MAX_CALLERS, Credentials, Link, Mesh


async def connect(mesh: Mesh, credentials: Credentials | None, listen: str | None) -> None:
    """Listen to parties with a smaller index, call those with a larger one, and wait for all of them."""
    me = mesh.members[mesh.index]
    listeners: list[asyncio.Future[Any]] = []
    if mesh.index:
        context = credentials.context(server=True) if credentials else None
        listeners.append(asyncio.ensure_future(_listen(mesh, (listen or me.host, me.port), context)))
    context = credentials.context(server=False) if credentials else None
    larger = range(mesh.index + 1, len(mesh.members))
    called: asyncio.Future[Any] = asyncio.gather(*(_call(mesh, peer, context) for peer in larger), mesh.ready)
    try:
        await asyncio.wait({called, *listeners}, return_when=asyncio.FIRST_COMPLETED)
        for listener in listeners:
            if listener.done():
                listener.result()  # raises: the address is taken, or not ours
        await called
    finally:
        for work in (called, *listeners):
            work.cancel()


async def _listen(mesh: Mesh, address: tuple[str, int], context: ssl.SSLContext | None) -> None:
    """Take callers until cancelled; of those who do not say who they are, a bounded number is heard."""
    loop, (host, port) = mesh.loop, address
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    callers: dict[asyncio.Task[None], None] = {}
    with socket.create_server(found[0][4][:2], family=found[0][0], backlog=MAX_CALLERS) as server:
        server.setblocking(False)
        try:
            while True:
                try:
                    raw, _ = await loop.sock_accept(server)
                except OSError:  # too many files, or a caller that hung up
                    await asyncio.sleep(0.1)
                    continue
                if len(callers) >= MAX_CALLERS:
                    next(iter(callers)).cancel()
                task = loop.create_task(_hear(mesh, raw, context))
                callers[task] = None
                task.add_done_callback(lambda done: callers.pop(done, None))
        finally:
            for task in callers:
                task.cancel()


async def _hear(mesh: Mesh, raw: socket.socket, context: ssl.SSLContext | None) -> None:
    """Give a caller a little time to show its certificate and say its index."""
    link = Link(mesh, None, context is not None)
    wait = INTRODUCTION if context is not None else None
    try:
        async with asyncio.timeout(INTRODUCTION):
            await mesh.loop.connect_accepted_socket(
                lambda: link, raw, ssl=context, ssl_handshake_timeout=wait
            )
            await link.introduced
    except ssl.SSLError as error:
        mesh.note(f"A caller failed the TLS handshake ({error.reason}).")
    except (OSError, TimeoutError):
        mesh.note("A caller did not say who it is.")
    finally:
        if not link.known:
            raw.close() if link.transport is None else link.transport.abort()


async def _call(mesh: Mesh, peer: int, context: ssl.SSLContext | None) -> None:
    member = mesh.members[peer]
    while True:  # until the other process is up; the guard of the caller ends it
        try:
            await mesh.loop.create_connection(
                lambda: Link(mesh, peer, context is not None), member.host, member.port, ssl=context
            )
            return
        except ssl.SSLError as error:
            mesh.fail(f"TLS with {mesh.who(peer)} failed: {error.reason or 'refused'}.", peer)
            return
        except OSError:
            await asyncio.sleep(0.05)
