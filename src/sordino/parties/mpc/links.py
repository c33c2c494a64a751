"""Connections between parties: mutual TLS, each certificate bound to one index, nothing waits for ever."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import ssl
import struct
from collections.abc import Awaitable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sordino.errors import InvalidInputError, PartyError

_HEADER = struct.Struct("<qI")
MAX_PAYLOAD = 1 << 28
MAX_WAITING = 4096  # messages that a peer may send ahead of us


@dataclass(frozen=True)
class Member:
    """A party as everybody knows it; its place in the list is its index.

    ``fingerprint`` is the SHA-256 of its certificate (DER) in hexadecimal, or empty without TLS.
    """

    name: str
    host: str
    port: int
    fingerprint: str = ""


@dataclass(frozen=True)
class Credentials:
    """Paths of this party's certificate and key, and of the authorities it trusts (PEM)."""

    certificate: Path
    key: Path
    authorities: Path

    def context(self, server: bool) -> ssl.SSLContext:
        """Return a TLS 1.3 context that demands a certificate of the other side."""
        protocol = ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT
        context = ssl.SSLContext(protocol)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.check_hostname = False  # identity is the pinned fingerprint, not a host name
        context.verify_mode = ssl.CERT_REQUIRED
        try:
            context.load_cert_chain(self.certificate, self.key)
            context.load_verify_locations(self.authorities)
        except (OSError, ssl.SSLError) as error:
            raise InvalidInputError(
                f"Expected PEM files at {self.certificate}, {self.key} and {self.authorities}: {error}."
            ) from None
        return context


def fingerprint_of(certificate: Path) -> str:
    """Return the SHA-256 of a PEM certificate, which a plan pins."""
    try:
        return hashlib.sha256(ssl.PEM_cert_to_DER_cert(certificate.read_text("ascii"))).hexdigest()
    except (OSError, ValueError) as error:
        raise InvalidInputError(
            f"Expected a PEM certificate at {certificate}: {type(error).__name__}."
        ) from None


def peer_fingerprint(transport: Any) -> str:
    """Return the SHA-256 of the certificate at the other end."""
    encrypted = transport.get_extra_info("ssl_object")
    raw = None if encrypted is None else encrypted.getpeercert(binary_form=True)
    return "" if raw is None else hashlib.sha256(raw).hexdigest()


class Tagged(bytes):
    """A message that remembers who sent it."""

    sender: int = -1


class Mesh:
    """All links of one party, and the first thing that went wrong with any of them."""

    def __init__(self, members: tuple[Member, ...], index: int, loop: asyncio.AbstractEventLoop) -> None:
        self.members, self.index, self.loop = members, index, loop
        self.links: dict[int, Link] = {}
        self.ready: asyncio.Future[None] = loop.create_future()
        self.failure: PartyError | None = None
        self.closing = False
        self.notes: list[str] = []  # of callers who were turned away: they cannot stop a run
        self._failed: asyncio.Future[None] = loop.create_future()

    def who(self, peer: int | None) -> str:
        """Return a member in words."""
        if peer is None or not 0 <= peer < len(self.members):
            return "an unknown party"
        return f"party {peer} ({self.members[peer].name})"

    def fail(self, message: str, peer: int | None = None) -> None:
        """Remember the first failure and wake up whoever waits."""
        if self.failure is None and not self.closing:
            name = None if peer is None else self.members[peer].name
            self.failure = PartyError(message, name)
            if not self._failed.done():
                self._failed.set_result(None)

    def register(self, peer: int, link: Link) -> None:
        """Take a link whose other end proved who it is."""
        self.links[peer] = link
        if len(self.links) == len(self.members) - 1 and not self.ready.done():
            self.ready.set_result(None)

    async def guard(self, work: Awaitable[Any], seconds: float, what: str) -> Any:
        """Await ``work`` until it is done, a link fails, or the time is up; say who and what."""
        task = asyncio.ensure_future(work)
        await asyncio.wait({task, self._failed}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if self.failure is None and task.done():
            return task.result()
        task.cancel()
        with contextlib.suppress(BaseException):
            await task
        if self.failure is None:
            self.fail(self._overdue(seconds, what), self._slow())
        raise self.failure or PartyError(f"{what} failed.")

    def _slow(self) -> int | None:
        missing = [p for p in range(len(self.members)) if p != self.index and p not in self.links]
        silent = [p for p, link in self.links.items() if link.owes]
        return next(iter(missing or silent), None)

    def _overdue(self, seconds: float, what: str) -> str:
        seen = "".join(f" {note}" for note in dict.fromkeys(self.notes))
        return f"{what}: no message from {self.who(self._slow())} for {seconds:g} s.{seen}"

    def close(self) -> None:
        """Close every link."""
        self.closing = True
        for link in self.links.values():
            link.transport.close()


class Link(asyncio.Protocol):
    """A connection to one peer; messages are (label, length, bytes)."""

    def __init__(self, mesh: Mesh, peer: int | None, encrypted: bool) -> None:
        self.mesh, self.peer_pid, self.encrypted = mesh, peer, encrypted
        self.transport: Any = None
        self.known = self.lost = False
        self.nbytes_sent = self.nbytes_received = 0
        self._raw = bytearray()
        self._buffers: dict[int, Any] = {}

    @property
    def owes(self) -> bool:
        """Whether somebody waits for a message of this peer."""
        return any(isinstance(b, asyncio.Future) for b in self._buffers.values())

    def connection_made(self, transport: Any) -> None:
        """Check who is at the other end; a caller says its index first."""
        self.transport = transport
        if self.peer_pid is not None and self._is(self.peer_pid):
            transport.write(self.mesh.index.to_bytes(2, "little"))
            self._accept(self.peer_pid)

    def _is(self, peer: int) -> bool:
        members = self.mesh.members
        if not 0 <= peer < len(members) or peer == self.mesh.index or peer in self.mesh.links:
            return self._turn_away(f"Refused a caller that claims to be party {peer}: it cannot be.", None)
        if self.encrypted and peer_fingerprint(self.transport) != members[peer].fingerprint:
            return self._turn_away(
                f"Refused {self.mesh.who(peer)}: its certificate is not the one that the plan pins.", peer
            )
        return True

    def _turn_away(self, message: str, peer: int | None) -> bool:
        """Refuse whom we called for good; of callers only make a note, the right one may still come."""
        if self.peer_pid is not None:
            return self._refuse(message, peer)
        self.mesh.notes.append(message)
        self.transport.abort()
        return False

    def _refuse(self, message: str, peer: int | None) -> bool:
        self.transport.abort()
        self.mesh.fail(message, peer)
        return False

    def _accept(self, peer: int) -> None:
        self.known, self.peer_pid = True, peer
        self.mesh.register(peer, self)

    def send(self, label: int, payload: bytes) -> None:
        """Send one message."""
        self.transport.write(_HEADER.pack(label, len(payload)) + payload)
        self.nbytes_sent += _HEADER.size + len(payload)

    def data_received(self, data: bytes) -> None:
        """Take bytes; the first two of a caller are its index."""
        self._raw.extend(data)
        self.nbytes_received += len(data)
        if not self.known:
            if len(self._raw) < 2:
                return
            peer = int.from_bytes(self._raw[:2], "little")
            del self._raw[:2]
            if not self._is(peer):
                return
            self._accept(peer)
        while len(self._raw) >= _HEADER.size:
            label, length = _HEADER.unpack_from(self._raw)
            if length > MAX_PAYLOAD:
                self._blame(f"announced a message of {length} bytes")
                return
            if len(self._raw) < _HEADER.size + length:
                return
            payload = Tagged(self._raw[_HEADER.size : _HEADER.size + length])
            payload.sender = self.peer_pid if self.peer_pid is not None else -1
            del self._raw[: _HEADER.size + length]
            self._deliver(label, payload)

    def _deliver(self, label: int, payload: Tagged) -> None:
        waiting = self._buffers.get(label)
        if isinstance(waiting, asyncio.Future):
            del self._buffers[label]
            if not waiting.done():
                waiting.set_result(payload)
        elif waiting is not None or len(self._buffers) >= MAX_WAITING:
            self._blame("repeated a message or sent too many")
        else:
            self._buffers[label] = payload

    def receive(self, label: int) -> Any:
        """Return the message of this label, or a future of it."""
        payload = self._buffers.pop(label, None)
        if payload is None:
            if self.lost:
                self._gone()
            payload = self._buffers[label] = self.mesh.loop.create_future()
        return payload

    def connection_lost(self, error: Exception | None) -> None:
        """Fail if somebody waits for this peer; one that has said everything may go first."""
        self.lost = True
        if self.known and self.owes:
            self._gone()

    def _gone(self) -> None:
        self._blame("closed its connection")

    def _blame(self, what: str) -> None:
        self._refuse(f"{self.mesh.who(self.peer_pid)} {what}.", self.peer_pid)

    def close_connection(self) -> None:
        """Close the connection."""
        self.transport.close()


async def connect(mesh: Mesh, credentials: Credentials | None, listen: str | None) -> None:
    """Listen to parties with a smaller index, call those with a larger one, and wait for all of them."""
    me = mesh.members[mesh.index]
    secure = credentials is not None
    server = None
    if mesh.index:
        context = credentials.context(server=True) if credentials else None
        server = await mesh.loop.create_server(
            lambda: Link(mesh, None, secure), listen or me.host, me.port, ssl=context
        )
    try:
        context = credentials.context(server=False) if credentials else None
        larger = range(mesh.index + 1, len(mesh.members))
        await asyncio.gather(*(_call(mesh, peer, context) for peer in larger))
        await mesh.ready
    finally:
        if server is not None:
            server.close()


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
