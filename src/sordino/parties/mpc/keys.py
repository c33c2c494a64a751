"""A member's key: made where it is used, shown to nobody, and what it signs."""

from __future__ import annotations

import datetime
import hashlib
import ssl
from pathlib import Path
from types import ModuleType
from typing import Any

from sordino.errors import InvalidInputError, require_extra
from sordino.parties.mpc.transcript import open_private

DAYS = 730


def _cryptography() -> tuple[ModuleType, ModuleType, Any, Any]:
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
    except ImportError:
        raise require_extra("cryptography", "mpc") from None
    return x509, serialization, ec, hashes.SHA256()


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
