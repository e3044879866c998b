"""Key pairs: made, and read from PEM files. Ed25519, or ECDSA on the curve P-256."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from qunlearn.errors import UserError
from qunlearn.evidence.extra import needed
from qunlearn.store.files import write_bytes
from qunlearn.store.secret import check_new, read_key, write_secret

KINDS = ("ed25519", "ecdsa")
PUBLIC, CERTIFICATE = ".pub", ".crt"
"""Suffixes of the public key and of its certificate, which says how long the key is valid."""


@dataclass(frozen=True)
class KeyFiles:
    """The files of a new key pair.

    Attributes:
        private: The private key, readable by its owner only.
        public: The public key, to hand out.
        certificate: The public key with the time until which it is valid.
        key_id: The fingerprint that records name the key by.
        expires: The last day of its validity.
    """

    private: Path
    public: Path
    certificate: Path
    key_id: str
    expires: str


def new_keys(path: Path, *, kind: str = "ed25519", days: int = 730) -> KeyFiles:
    """Make a key pair: `path` (private, mode 0600), and beside it the .pub and .crt files."""
    if kind not in KINDS:
        raise UserError(f"The kind of key {kind!r} is unknown; choose {' or '.join(KINDS)}.")
    if not 1 <= days <= 36500:
        raise UserError(f"A key cannot be valid for {days} days; choose 1 to 36500.")
    files = path, path.with_suffix(PUBLIC), path.with_suffix(CERTIFICATE)
    if len(set(files)) < 3:
        raise UserError(f"The private key cannot be called {path.name!r}; call it NAME.pem.")
    check_new(*files)
    serialization = needed("cryptography.hazmat.primitives.serialization")
    private = _generated(kind)
    certificate = _certificate(private, path.stem, days)
    plain = private.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    write_secret(files[0], plain)
    write_bytes(files[1], _public_pem(private.public_key()))
    write_bytes(files[2], certificate.public_bytes(serialization.Encoding.PEM))
    expires = certificate.not_valid_after_utc.date().isoformat()
    return KeyFiles(*files, key_of(private.public_key()).keyid, expires)


def _generated(kind: str) -> Any:
    if kind == "ed25519":
        return needed(
            "cryptography.hazmat.primitives.asymmetric.ed25519"
        ).Ed25519PrivateKey.generate()
    curves = needed("cryptography.hazmat.primitives.asymmetric.ec")
    return curves.generate_private_key(curves.SECP256R1())


def _certificate(private: Any, name: str, days: int) -> Any:
    """A self-signed certificate: it says nothing but the key and its validity."""
    x509, oid = needed("cryptography.x509"), needed("cryptography.x509.oid")
    hashes = needed("cryptography.hazmat.primitives.hashes")
    ed25519 = needed("cryptography.hazmat.primitives.asymmetric.ed25519")
    who = x509.Name([x509.NameAttribute(oid.NameOID.COMMON_NAME, name[:64])])
    now = datetime.now(UTC).replace(microsecond=0)
    draft = (
        x509.CertificateBuilder(who, who)
        .public_key(private.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + timedelta(days=days))
    )
    hashes_itself = isinstance(private, ed25519.Ed25519PrivateKey)
    return draft.sign(private, None if hashes_itself else hashes.SHA256())


@dataclass(frozen=True, eq=False)
class SigningKey:
    """A private key, to sign with, and its public key as PEM."""

    signer: Any
    pem: str

    @property
    def key_id(self) -> str:
        """The fingerprint of the key."""
        return str(self.signer.public_key.keyid)


def read_signer(path: Path, now: datetime | None = None) -> SigningKey:
    """A private key, to sign with; refused if others can read it, or if it has expired."""
    signers = needed("securesystemslib.signer")
    serialization = needed("cryptography.hazmat.primitives.serialization")
    try:
        private = serialization.load_pem_private_key(read_key(path, secret=True), None)
        signer = signers.CryptoSigner(private, key_of(private.public_key()))
    except UserError:
        raise
    except Exception as error:  # readers of keys raise nearly anything on damaged ones
        raise UserError(
            f"{str(path)!r} is not a private key that can sign ({_short(error)}); name an "
            "unencrypted PEM file, as `qunlearn keys new` makes."
        ) from None
    beside = path.with_suffix(CERTIFICATE)
    if beside.is_file():
        certificate = read_certificate(beside)
        if certificate.key.keyid != signer.public_key.keyid:
            raise UserError(
                f"The certificate {str(beside)!r} belongs to another key than {str(path)!r}; move "
                "it away, or restore the right one."
            )
        check_valid(certificate, str(path), now)
    return SigningKey(signer, _public_pem(private.public_key()).decode())


@dataclass(frozen=True, eq=False)
class PublicKey:
    """A public key, also as PEM, and when it is valid where a certificate says so."""

    key: Any
    pem: str
    begins: datetime | None = None
    expires: datetime | None = None


def check_valid(key: PublicKey, name: str, now: datetime | None = None) -> None:
    """Raise if a key has expired, or is not valid yet."""
    now = now or datetime.now(UTC)
    if key.expires is not None and now > key.expires:
        raise UserError(
            f"The key {name!r} expired on {key.expires.date()}; make a new one with `qunlearn "
            "keys new`."
        )
    if key.begins is not None and now < key.begins:
        raise UserError(f"The key {name!r} is not valid before {key.begins}; check the clock.")


def read_public(path: Path) -> PublicKey:
    """A public key from a PEM file, or from a certificate."""
    content = read_key(path, secret=False)
    if b"BEGIN CERTIFICATE" in content:
        return read_certificate(path)
    return public_from(content, str(path))


def public_from(pem: bytes, name: str) -> PublicKey:
    """A public key from PEM, which must be written as keys are: any changed byte is refused."""
    serialization = needed("cryptography.hazmat.primitives.serialization")
    try:
        loaded = serialization.load_pem_public_key(pem)
        if _public_pem(loaded) != pem:
            raise ValueError("it is not written as PEM files are")
        return PublicKey(key_of(loaded), pem.decode())
    except UserError:
        raise
    except Exception as error:  # cryptography raises many kinds of error for a damaged file
        raise UserError(
            f"{name!r} is not an intact public key ({_short(error)}); name the .pub or .crt file "
            "of the signer."
        ) from None


def read_certificate(path: Path) -> PublicKey:
    """A public key with its validity, from a certificate."""
    x509 = needed("cryptography.x509")
    serialization = needed("cryptography.hazmat.primitives.serialization")
    content = read_key(path, secret=False)
    try:
        certificate = x509.load_pem_x509_certificate(content)
        if certificate.public_bytes(serialization.Encoding.PEM) != content:
            raise ValueError("it is not written as PEM files are")
        # Only a key's own signature can be checked: of one that somebody else issued, any byte
        # beside the key might have been changed.
        certificate.verify_directly_issued_by(certificate)
        key = key_of(certificate.public_key())
    except Exception as error:  # cryptography raises many kinds of error for a damaged file
        raise UserError(
            f"{str(path)!r} is not an intact certificate ({_short(error)}); name the .pub or .crt "
            "file of the signer."
        ) from None
    pem = _public_pem(certificate.public_key()).decode()
    return PublicKey(key, pem, certificate.not_valid_before_utc, certificate.not_valid_after_utc)


def key_of(public: Any) -> Any:
    """A public key as securesystemslib has it; kinds that cannot sign records are refused."""
    ec = needed("cryptography.hazmat.primitives.asymmetric.ec")
    ed25519 = needed("cryptography.hazmat.primitives.asymmetric.ed25519")
    p256 = isinstance(public, ec.EllipticCurvePublicKey) and public.curve.name == "secp256r1"
    if not p256 and not isinstance(public, ed25519.Ed25519PublicKey):
        raise ValueError("it is neither Ed25519 nor ECDSA P-256")
    return needed("securesystemslib.signer").SSlibKey.from_crypto(public)


def _public_pem(public: Any) -> bytes:
    serialization = needed("cryptography.hazmat.primitives.serialization")
    pem: bytes = public.public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return pem


def _short(error: Exception) -> str:
    return str(error).split(". ")[0].rstrip(".") or type(error).__name__
