"""Who may send to the receiver, and what protects it on the way: loopback, bearer token, TLS."""

import hmac
import re
import ssl
from ipaddress import ip_address
from pathlib import Path
from socket import gaierror, getaddrinfo, inet_aton, inet_ntoa
from typing import NamedTuple
from urllib.parse import urlsplit

import grpc

from agenttrace.errors import UsageError

# What a header can carry as it is.
_TOKEN = re.compile(r"[\x21-\x7e]+")
_CERTIFICATE = re.compile(b"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
# How a certificate names the kinds of keys that gRPC's handshakes know: RSA, EC on P-256, EC on P-384.
_KNOWN_KEYS = (
    bytes.fromhex("06092a864886f70d010101"),
    bytes.fromhex("06072a8648ce3d020106082a8648ce3d030107"),
    bytes.fromhex("06072a8648ce3d020106052b81040022"),
)


class Tls(NamedTuple):
    """One certificate for both ports."""

    context: ssl.SSLContext
    credentials: grpc.ServerCredentials
    asks_for_certificates: bool


def is_loopback(host: str) -> bool:
    """Tells whether an address, or all that a name stands for, is of this machine alone.

    Raises:
        UsageError: The name stands for nothing.
    """
    try:
        # An empty name is every address there is.
        found = {str(address[0]) for *_, address in getaddrinfo(host or "0.0.0.0", None)}  # noqa: S104
    except (gaierror, UnicodeError) as err:
        reason = err.strerror if isinstance(err, gaierror) else "no such name can be"
        raise UsageError(f"collect: cannot listen on {host}: {reason}.") from err
    return all(ip_address(address.partition("%")[0]).is_loopback for address in found)


def plain_address(host: str) -> str:
    """Writes out an address in a short form (127.1), which gRPC does not know; returns any other host as it is."""
    try:
        return inet_ntoa(inet_aton(host))
    except (OSError, UnicodeError):
        return host


def is_own_name(authority: str, host: str) -> bool:
    """Tells whether a Host header names this machine such that nobody else can have said so.

    Args:
        authority: The header: a name or address, with or without a port.
        host: The name that is listened on.
    """
    try:
        name = urlsplit(f"//{authority}").hostname or ""
        return name in ("localhost", host.lower()) or ip_address(name).is_loopback
    except ValueError:
        return False


def is_bearer(authorization: str, token: str) -> bool:
    """Tells whether an Authorization header carries the token, in a time that says nothing about how much of it."""
    scheme, _, given = authorization.partition(" ")
    return hmac.compare_digest(given.strip().encode(), token.encode()) and scheme.lower() == "bearer"


def read_token(token: str | None, file: Path | None) -> str | None:
    """Returns the token that clients must send; None where none is set.

    Args:
        token: The token itself.
        file: A file that holds it, so that no list of processes shows it.

    Raises:
        UsageError: Both are given, the file cannot be read, or a header cannot carry what is given.
    """
    if file is not None:
        if token is not None:
            raise UsageError("collect: both --token-file and --token (or AGENTTRACE_TOKEN) are given; leave one out.")
        token = _read(file).decode("utf-8", "replace").strip()
    if token is not None and not _TOKEN.fullmatch(token):
        fault = "is empty" if not token.strip() else "has characters that a header cannot carry"
        raise UsageError(f"{file or 'collect'}: the token {fault}; expected visible ASCII without spaces.")
    return token


def load_tls(certificate: Path | None, key: Path | None, client_ca: Path | None) -> Tls | None:
    """Reads what TLS needs; None where nothing is given.

    Args:
        certificate: PEM of the certificate, and of those between it and its root.
        key: PEM of its private key.
        client_ca: PEM of the roots of clients' certificates, which are asked for then; None: they are not.

    Raises:
        UsageError: One is missing, cannot be read, holds something else, or does not belong to the other.
    """
    if certificate is None and key is None and client_ca is None:
        return None
    if certificate is None or key is None:
        missing, present = ("--tls-cert", key or client_ca) if certificate is None else ("--tls-key", certificate)
        raise UsageError(f"collect: {present} is given without {missing}; TLS needs both --tls-cert and --tls-key.")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # A client could keep the processor busy by asking again and again; TLS 1.3 has none.
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.set_alpn_protocols(["http/1.1"])
    chain = _certificates(certificate)
    secret = _read(key)
    _load_pair(context, certificate, key)
    first = _CERTIFICATE.search(chain)
    if first and not any(kind in ssl.PEM_cert_to_DER_cert(first[0].decode("ascii")) for kind in _KNOWN_KEYS):
        raise UsageError(f"{certificate}: gRPC does not know its key; expected RSA, or EC on P-256 or P-384.")
    roots = None
    if client_ca is not None:
        roots = _certificates(client_ca)
        context.load_verify_locations(client_ca)
        context.verify_mode = ssl.CERT_REQUIRED
    credentials = grpc.ssl_server_credentials(
        [(secret, chain)], root_certificates=roots, require_client_auth=roots is not None
    )
    return Tls(context, credentials, roots is not None)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as err:
        raise UsageError(f"{path}: cannot be read: {err.strerror or err}.") from err


def _certificates(path: Path) -> bytes:
    content = _read(path)
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(path)
    except ssl.SSLError as err:
        raise UsageError(f"{path}: holds no certificate; expected PEM (-----BEGIN CERTIFICATE-----).") from err
    return content


def _load_pair(context: ssl.SSLContext, certificate: Path, key: Path) -> None:
    def passphrase() -> str:
        raise UsageError(f"{key}: the key is encrypted; expected one without a passphrase, that only you can read.")

    try:
        context.load_cert_chain(certificate, key, passphrase)
    except ssl.SSLError as err:
        if err.reason in ("KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH", "NO_CERTIFICATE_ASSIGNED"):
            raise UsageError(f"{key}: is not the key of the certificate in {certificate}.") from err
        if err.reason:
            raise UsageError(f"{certificate}: is refused by OpenSSL: {err.reason.replace('_', ' ').lower()}.") from err
        raise UsageError(f"{key}: holds no private key; expected PEM (-----BEGIN PRIVATE KEY-----).") from err
