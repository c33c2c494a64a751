"""Connections between parties: mutual TLS, each certificate bound to one index, nothing waits for ever.

A member beats while it works, so that one who takes long is told from one who is gone. What a peer, or a
caller whom nobody knows, can make a member hold is bounded: see the constants.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import hashlib
import socket
import ssl
import struct
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from sordino.errors import InvalidInputError, PartyError, import_extra
from sordino.parties.mpc.transcript import open_private

_HEADER = struct.Struct("<qI")
MAX_PAYLOAD = 1 << 24  # bytes of one message
MAX_AHEAD = 1 << 26  # bytes that a peer may send ahead of us, in all its messages together
MAX_WAITING = 4096  # messages that a peer may send ahead of us
MAX_CALLERS = 32  # connections whose other end has not shown yet who it is; the oldest gives way
INTRODUCTION = 10.0  # seconds for the TLS handshake and the first two bytes
BEAT = 0.5  # seconds between two signs of life
_BEATING = -(2**63)  # the label of a sign of life
_FAREWELL = _BEATING + 1  # the label of the last word of a member that will not come back


class PartyLostError(PartyError):
    """A member cannot be reached; it may come back."""


@dataclass(frozen=True)
class Member:
    """A party as everybody knows it; its place in the list is its index.

    ``fingerprint`` is the SHA-256 of its certificate (DER) in hexadecimal, or empty without TLS; ``second``
    is one that is in use meanwhile.
    """

    name: str
    host: str
    port: int
    fingerprint: str = ""
    second: str = ""

    @property
    def pins(self) -> tuple[str, ...]:
        return (self.fingerprint, self.second) if self.second else (self.fingerprint,)


@dataclass(frozen=True)
class Limits:
    """How many seconds to wait for the others.

    ``connect`` is for all of them to appear, ``message`` for a sign of life of one that owes a message, and
    ``work`` for the message itself: a member that works on its own records beats meanwhile. ``patience`` is
    for a member that was there, has booked, and is gone: whether it comes back.
    """

    connect: float = 30.0
    message: float = 30.0
    work: float = 3600.0
    patience: float = 3600.0


@dataclass(frozen=True)
class Credentials:
    """Paths of this party's certificate and key, and of the authorities it trusts (PEM).

    With a charter the certificates of its members are the only ones that are trusted: ``pinned``.
    """

    certificate: Path
    key: Path
    authorities: Path | None
    pinned: str = ""

    def context(self, server: bool) -> ssl.SSLContext:
        protocol = ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT
        context = ssl.SSLContext(protocol)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.check_hostname = False  # identity is the pinned fingerprint, not a host name
        context.verify_mode = ssl.CERT_REQUIRED
        try:
            context.load_cert_chain(self.certificate, self.key)
            context.load_verify_locations(self.authorities, cadata=self.pinned or None)
            if self.pinned:
                context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # a pinned one needs no issuer
        except (OSError, ssl.SSLError) as error:
            raise InvalidInputError(
                f"Expected PEM files at {self.certificate}, {self.key} and {self.authorities}: {error}."
            ) from None
        return context


def peer_fingerprint(encrypted: Any) -> str:
    raw = None if encrypted is None else encrypted.getpeercert(True)
    return "" if raw is None else hashlib.sha256(raw).hexdigest()


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
        if peer is None or not 0 <= peer < len(self.members):
            return "an unknown party"
        return f"party {peer} ({self.members[peer].name})"

    def fail(self, message: str, peer: int | None = None, lost: bool = False) -> None:
        """Remember the first failure and wake up whoever waits; one who is ``lost`` may come back."""
        if self.failure is None and not self.closing:
            name = None if peer is None else self.members[peer].name
            self.failure = (PartyLostError if lost else PartyError)(message, name)
            if not self._failed.done():
                self._failed.set_result(None)

    def register(self, peer: int, link: Link) -> None:
        self.links[peer] = link
        if len(self.links) == len(self.members) - 1 and not self.ready.done():
            self.ready.set_result(None)

    async def guard(self, work: Awaitable[Any], limits: Limits, what: str) -> Any:
        """Await ``work`` until it is done, a link fails, or somebody is overdue; say who and what."""
        task, began = asyncio.ensure_future(work), self.loop.time()
        while self.failure is None and not task.done():
            tick = min(BEAT, limits.connect / 4, limits.message / 4)
            await asyncio.wait({task, self._failed}, timeout=tick, return_when=asyncio.FIRST_COMPLETED)
            if self.failure is None and not task.done():
                self._check_time(limits, what, began)
        if self.failure is None:
            return task.result()
        task.cancel()
        with contextlib.suppress(BaseException):
            await task
        raise self.failure

    def _check_time(self, limits: Limits, what: str, began: float) -> None:
        """Fail where a member is missing, silent, or only beats, for too long."""
        now = self.loop.time()
        missing = [p for p in range(len(self.members)) if p != self.index and p not in self.links]
        if missing:
            late = {missing[0]: limits.connect} if now - began > limits.connect else {}
        else:
            owing = {peer: link for peer, link in self.links.items() if link.owes}
            late = {p: limits.work for p, k in owing.items() if now - max(began, k.moved) > limits.work}
            silent = {p for p, k in owing.items() if now - max(began, k.heard) > limits.message}
            late |= dict.fromkeys(silent, limits.message)
        for peer, seconds in late.items():
            seen = "".join(f" {note}" for note in dict.fromkeys(self.notes))
            self.fail(f"{what}: no message from {self.who(peer)} for {seconds:g} s.{seen}", peer, lost=True)

    async def beat(self) -> None:
        while not self.closing:
            for link in self.links.values():
                if not link.lost:
                    link.send(_BEATING, b"")
            await asyncio.sleep(BEAT)

    def note(self, message: str) -> None:
        if len(self.notes) < MAX_CALLERS:
            self.notes.append(message)

    def close(self, farewell: bool = False) -> None:
        self.closing = True
        for link in self.links.values():
            if farewell and not link.lost:
                link.send(_FAREWELL, b"")
            link.transport.close()


class Link(asyncio.Protocol):
    """A connection to one peer; messages are (label, length, bytes)."""

    def __init__(self, mesh: Mesh, peer: int | None, encrypted: bool) -> None:
        self.mesh, self.peer_pid, self.encrypted = mesh, peer, encrypted
        self.transport: Any = None
        self.known = self.lost = self.gone = False
        self.introduced: asyncio.Future[None] = mesh.loop.create_future()
        self.nbytes_sent = self._ahead = 0
        self.heard = self.moved = mesh.loop.time()  # the last sign of life, and the last message
        self._raw = bytearray()
        self._buffers: dict[int, Any] = {}

    @property
    def owes(self) -> bool:
        return any(isinstance(b, asyncio.Future) for b in self._buffers.values())

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        if self.peer_pid is not None and self._is(self.peer_pid):
            transport.write(self.mesh.index.to_bytes(2, "little"))
            self._accept(self.peer_pid)

    def _is(self, peer: int) -> bool:
        members = self.mesh.members
        if not 0 <= peer < len(members) or peer == self.mesh.index or peer in self.mesh.links:
            return self._turn_away(f"Refused a caller that claims to be party {peer}: it cannot be.", None)
        found = peer_fingerprint(self.transport.get_extra_info("ssl_object"))
        if self.encrypted and found not in members[peer].pins:
            return self._turn_away(
                f"Refused {self.mesh.who(peer)}: its certificate is not the one that the plan pins.", peer
            )
        return True

    def _turn_away(self, message: str, peer: int | None) -> bool:
        """Refuse whom we called for good; of callers only make a note, the right one may still come."""
        if self.peer_pid is not None:
            return self._refuse(message, peer)
        self.mesh.note(message)
        self._end_introduction()
        self.transport.abort()
        return False

    def _end_introduction(self) -> None:
        if not self.introduced.done():
            self.introduced.set_result(None)

    def _refuse(self, message: str, peer: int | None) -> bool:
        self.transport.abort()
        self.mesh.fail(message, peer)
        return False

    def _accept(self, peer: int) -> None:
        self.known, self.peer_pid = True, peer
        self._end_introduction()
        self.mesh.register(peer, self)

    def send(self, label: int, payload: bytes) -> None:
        self.transport.write(_HEADER.pack(label, len(payload)) + payload)
        self.nbytes_sent += _HEADER.size + len(payload)

    def data_received(self, data: bytes) -> None:
        """Take bytes; the first two of a caller are its index."""
        self._raw.extend(data)
        self.heard = self.mesh.loop.time()
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
            payload = bytes(self._raw[_HEADER.size : _HEADER.size + length])
            del self._raw[: _HEADER.size + length]
            self._deliver(label, payload)

    def _deliver(self, label: int, payload: bytes) -> None:
        if label == _BEATING:
            return
        if label == _FAREWELL:
            self.gone = True
            return
        self.moved = self.heard
        waiting = self._buffers.get(label)
        if isinstance(waiting, asyncio.Future):
            del self._buffers[label]
            if not waiting.done():
                waiting.set_result(payload)
            return
        self._ahead += len(payload)
        if waiting is not None or len(self._buffers) >= MAX_WAITING or self._ahead > MAX_AHEAD:
            self._blame("repeated a message or sent too many")
        else:
            self._buffers[label] = payload

    def receive(self, label: int) -> Any:
        payload = self._buffers.pop(label, None)
        if payload is None:
            if self.lost:
                self._lose()
            payload = self._buffers[label] = self.mesh.loop.create_future()
        else:
            self._ahead -= len(payload)
        return payload

    def connection_lost(self, error: Exception | None) -> None:
        """Fail if somebody waits for this peer; one that has said everything may go first."""
        self.lost = True
        self._end_introduction()
        if self.known and self.owes:
            self._lose()

    def _lose(self) -> None:
        what = "ended the run" if self.gone else "closed its connection"
        self.mesh.fail(f"{self.mesh.who(self.peer_pid)} {what}.", self.peer_pid, lost=not self.gone)

    def _blame(self, what: str) -> None:
        self._refuse(f"{self.mesh.who(self.peer_pid)} {what}.", self.peer_pid)


# How the members of a run find each other: some listen, some call, and strangers cannot fill the house.


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


async def accept(server: socket.socket, hear: Callable[[socket.socket], Coroutine[Any, Any, None]]) -> None:
    """Hear callers until cancelled, a bounded number at once: the oldest gives way to a new one."""
    loop, callers = asyncio.get_running_loop(), dict[asyncio.Task[None], None]()
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
            task = loop.create_task(hear(raw))
            callers[task] = None
            task.add_done_callback(lambda done: callers.pop(done, None))
            await asyncio.sleep(0)  # it begins: who is cancelled before that never closes its connection
    finally:
        for task in callers:
            task.cancel()


async def _listen(mesh: Mesh, address: tuple[str, int], context: ssl.SSLContext | None) -> None:
    host, port = address
    found = await mesh.loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    with socket.create_server(found[0][4][:2], family=found[0][0], backlog=MAX_CALLERS) as server:
        await accept(server, lambda raw: _hear(mesh, raw, context))


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


# ---------------------------------- A member's key: made where it is used, shown to nobody, and what it signs

DAYS = 730


def _cryptography() -> tuple[ModuleType, ModuleType, Any, Any]:
    within = "cryptography.hazmat.primitives"
    names = "cryptography.x509", f"{within}.serialization", f"{within}.asymmetric.ec", f"{within}.hashes"
    *modules, hashes = (import_extra(name, "mpc") for name in names)
    return (*modules, hashes.SHA256())


def make_key(folder: Path, name: str, suffix: str = "") -> tuple[Path, Path, Path]:
    """Write a new key, a certificate signed by itself, and a request for those who have an authority.

    The paths are returned in this order. Nothing is overwritten; the key is readable by its owner alone.
    """
    x509, serialization, ec, sha = _cryptography()
    paths = tuple(folder / f"{what}{suffix}.pem" for what in ("key", "certificate", "request"))
    for path in paths:
        if path.exists():
            raise InvalidInputError(f"{path} exists. Move it away first: a key is never overwritten.")
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now, pem = datetime.datetime.now(datetime.UTC), serialization.Encoding.PEM
    certificate = (
        x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=DAYS))
        .sign(key, sha)
    )
    private = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    request = x509.CertificateSigningRequestBuilder(subject).sign(key, sha)
    for path, text in zip(
        paths, (key.private_bytes(pem, *private), certificate.public_bytes(pem), request.public_bytes(pem))
    ):
        with open_private(path, "xb") as file:
            file.write(text)
    return paths[0], paths[1], paths[2]


def sign(key: Path, message: bytes) -> str:
    _, serialization, ec, sha = _cryptography()
    try:
        private = serialization.load_pem_private_key(key.read_bytes(), None)
        signature: bytes = private.sign(message, ec.ECDSA(sha))
        return signature.hex()
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise InvalidInputError(
            f"Expected an elliptic-curve key without a password at {key}: {type(error).__name__}."
        ) from None


def has_signed(certificate: str, message: bytes, signature: str) -> bool:
    x509, _, ec, sha = _cryptography()
    try:
        public = x509.load_pem_x509_certificate(certificate.encode()).public_key()
        public.verify(bytes.fromhex(signature), message, ec.ECDSA(sha))
    except Exception:  # a broken certificate, another kind of key, or no signature of it
        return False
    return True


def fingerprint(certificate: str) -> str:
    """Return the SHA-256 of a certificate (PEM), which plans, settings and charters pin."""
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(certificate.strip())).hexdigest()


def fingerprint_of(path: Path) -> str:
    try:
        return fingerprint(path.read_text("ascii"))
    except (OSError, ValueError) as error:
        raise InvalidInputError(f"Expected a PEM certificate at {path}: {type(error).__name__}.") from None
