"""Who may send to the receiver: loopback, token, TLS, and clients that hold a connection without using it."""

import hmac
import http.client
import os
import re
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import grpc
import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.x509.oid import NameOID
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcSpanExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from agenttrace.cli import main
from agenttrace.collectors import access, connections, otlp_grpc, otlp_http
from agenttrace.collectors.access import is_loopback, is_own_name, load_tls, read_token
from agenttrace.collectors.otlp import OTLPReceiver
from agenttrace.errors import UsageError
from agenttrace.guard import guard
from agenttrace.spool import spool_folder
from agenttrace.store import open_store

pytestmark = pytest.mark.usefixtures("unmeasured")

DEADLINE_S = 30.0
HOUR = timedelta(hours=1)
EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
BEARER = (("authorization", "Bearer s3cret"),)


class Files(NamedTuple):
    """Certificates of a server and of a client, each with its key, and what has signed both."""

    cert: Path
    key: Path
    ca: Path
    client_cert: Path
    client_key: Path


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    folder = tmp_path_factory.mktemp("tls")
    ca = trustme.CA()
    found = Files(*(folder / f"{name}.pem" for name in Files._fields))
    ca.cert_pem.write_to_path(str(found.ca))
    server, client = ca.issue_cert("127.0.0.1"), ca.issue_cert("agent@example.com")
    for issued, cert, key in ((server, found.cert, found.key), (client, found.client_cert, found.client_key)):
        cert.write_bytes(b"".join(part.bytes() for part in issued.cert_chain_pems))
        issued.private_key_pem.write_to_path(str(key))
    return found


@pytest.fixture(autouse=True)
def own_roots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Roots of the machine would go before those that a test names."""
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def unseen() -> Iterator[None]:
    """Warnings that come once for a process come in this test, whatever ran before it."""
    before = dict(guard._seen)
    guard._seen.clear()
    yield
    guard._seen.update(before)


@contextmanager
def receiving(db: Path, **options: Any) -> Iterator[OTLPReceiver]:
    with OTLPReceiver(db, http_port=0, **options) as receiver:
        yield receiver


def port(receiver: OTLPReceiver, number: int = 0) -> int:
    return urlsplit(receiver.urls[number]).port or 0


def connected(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S)


def is_dropped(client: socket.socket) -> bool:
    """Waits for the other side to end the connection."""
    try:
        while client.recv(4096):
            pass
    except ConnectionError:
        pass
    return True


def trusting(files: Files, *, with_certificate: bool = False) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(files.ca))
    if with_certificate:
        context.load_cert_chain(files.client_cert, files.client_key)
    return context


def until(condition: Callable[[], bool]) -> None:
    """Waits for a condition."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline
        threading.Event().wait(0.01)


def health(port: int, context: ssl.SSLContext) -> int:
    with closing(http.client.HTTPSConnection("127.0.0.1", port, context=context, timeout=DEADLINE_S)) as connection:
        connection.request("GET", "/healthz")
        return connection.getresponse().status


def send_span(exporter: Any, name: str) -> None:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    with provider.get_tracer("lib").start_as_current_span(name):
        pass
    provider.shutdown()


# Beyond this machine


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.8.9.10", True),
        ("::1", True),
        ("localhost", True),
        ("127.1", True),
        ("0.0.0.0", False),
        ("0", False),
        ("::", False),
        ("", False),
        ("192.0.2.7", False),
    ],
)
def test_loopback_is_told_from_what_others_reach(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


@pytest.mark.parametrize("host", ["no.such.host.invalid", "a..b", "a" * 64, "127.0.0.1:80", "[::1]", "\udcff"])
def test_host_that_stands_for_nothing_is_named(host: str, store: Path) -> None:
    with pytest.raises(UsageError, match=f"^collect: cannot listen on {re.escape(host)}: "):
        OTLPReceiver(store, host, http_port=0, grpc_port=0).start()


@pytest.mark.parametrize(("host", "listens"), [("127.1", "127.0.0.1"), ("", "0.0.0.0")])
def test_short_form_of_an_address_is_listened_on_at_both_ports(host: str, listens: str, store: Path) -> None:
    with receiving(store, host=host, grpc_port=0, allow_anonymous=not host) as receiver:
        assert [urlsplit(url).hostname for url in receiver.urls] == [listens] * 2


@pytest.mark.parametrize("host", ["0.0.0.0", "::", ""])
def test_beyond_this_machine_nothing_listens_unless_it_is_said_who_may_send(host: str, store: Path) -> None:
    with pytest.raises(UsageError) as refused:
        OTLPReceiver(store, host, http_port=0, grpc_port=0).start()
    assert str(refused.value) == (
        f"collect: {host or 'every address'} is reached from other machines, and nothing says who may write into the "
        "store.\nSet a token (AGENTTRACE_TOKEN or --token-file), or ask for client certificates (--tls-client-ca), "
        "or say --allow-anonymous."
    )
    assert not spool_folder(store).exists()


def test_command_beyond_this_machine_ends_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["collect", "--host", "0.0.0.0", "--http-port", "0", "--grpc-port", "0"]) == 2
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("agenttrace: collect: 0.0.0.0 is reached from other machines")
    assert second.startswith("Set a token (AGENTTRACE_TOKEN or --token-file)")


def test_what_says_who_may_send_opens_the_door(store: Path, files: Files, caplog: pytest.LogCaptureFixture) -> None:
    one_way, both_ways = load_tls(files.cert, files.key, None), load_tls(files.cert, files.key, files.ca)
    found: list[str] = []
    for options in (
        {"token": "s3cret"},
        {"token": "s3cret", "tls": one_way},
        {"tls": both_ways},
        {"allow_anonymous": True},
        {"allow_anonymous": True, "tls": one_way},
    ):
        caplog.clear()
        receiver = OTLPReceiver(store, "0.0.0.0", http_port=0, **options)
        receiver.start()
        receiver.stop()
        found.append(caplog.text.partition("listening on ")[2].partition(":")[0])
    no_token, no_tls = "0.0.0.0 without a token", "0.0.0.0 without TLS"
    assert found == [no_tls, "", "", no_token, no_token]
    with pytest.raises(UsageError, match="nothing says who may write"):
        OTLPReceiver(store, "0.0.0.0", http_port=0, tls=one_way).start()


# Tokens


@pytest.mark.parametrize(
    ("token", "content", "message"),
    [
        ("", None, "collect: the token is empty; expected visible ASCII without spaces."),
        (" ", None, "collect: the token is empty; expected visible ASCII without spaces."),
        ("a b", None, "collect: the token has characters that a header cannot carry; expected visible ASCII"),
        ("schlüssel", None, "collect: the token has characters that a header cannot carry; expected visible ASCII"),
        (None, b"\n", "{}: the token is empty; expected visible ASCII without spaces."),
        (None, b"two\nlines", "{}: the token has characters that a header cannot carry"),
        (None, b"\xff", "{}: the token has characters that a header cannot carry"),
        ("s3cret", b"s3cret", "collect: both --token-file and --token (or AGENTTRACE_TOKEN) are given; leave one out."),
    ],
)
def test_token_that_protects_nothing_is_refused(
    token: str | None, content: bytes | None, message: str, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(UsageError) as refused:
        read_token(token, file if content is not None else None)
    assert message.format(file) in str(refused.value)
    assert "s3cret" not in str(refused.value)


def test_token_comes_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("s3cret\n")
    assert read_token(None, tmp_path / "token") == "s3cret"
    assert read_token("s3cret", None) == "s3cret"
    assert read_token(None, None) is None
    with pytest.raises(UsageError, match=r"missing: cannot be read: No such file or directory\.$"):
        read_token(None, tmp_path / "missing")


def test_every_door_compares_the_token_in_constant_time(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[bytes, bytes]] = []

    class Watched:
        @staticmethod
        def compare_digest(given: bytes, expected: bytes) -> bool:
            compared.append((given, expected))
            return hmac.compare_digest(given, expected)

    monkeypatch.setattr(access, "hmac", Watched)
    with receiving(store, grpc_port=0, token="s3cret") as receiver:
        with closing(http.client.HTTPConnection("127.0.0.1", port(receiver), timeout=DEADLINE_S)) as connection:
            connection.request("POST", "/v1/traces", b"{}", {"Authorization": "Bearer wrong"})
            assert connection.getresponse().status == 401
        with (
            grpc.insecure_channel(f"127.0.0.1:{port(receiver, 1)}") as channel,
            pytest.raises(grpc.RpcError) as refused,
        ):
            channel.unary_unary(EXPORT)(b"", metadata=(("authorization", "Bearer wrong"),), timeout=DEADLINE_S)
    assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
    assert compared == [(b"wrong", b"s3cret")] * 2


@pytest.mark.parametrize(("token", "status"), [(None, 403), ("s3cret", 200)])
def test_web_page_cannot_send_to_a_receiver_without_token(token: str | None, status: int, store: Path) -> None:
    headers = {"Content-Type": "application/json", "Origin": "http://rebound.example:4318"}
    headers |= {"Authorization": "Bearer s3cret"}
    with (
        receiving(store, token=token) as receiver,
        closing(http.client.HTTPConnection("127.0.0.1", port(receiver), timeout=DEADLINE_S)) as connection,
    ):
        connection.request("POST", "/v1/traces", b"{}", headers)
        answer = connection.getresponse()
        assert answer.status == status
        assert (b"web pages may not send here" in answer.read()) == (status == 403)


@pytest.mark.parametrize(
    ("name", "is_own"),
    [
        ("localhost", True),
        ("LOCALHOST:4318", True),
        ("127.0.0.1:4318", True),
        ("127.8.9.10", True),
        ("[::1]:4318", True),
        ("rebound.example:4318", False),
        ("localhost.rebound.example", False),
        ("127.0.0.1.rebound.example", False),
        ("localhost@rebound.example", False),
        ("192.0.2.7", False),
        ("[::1", False),
        ("", False),
    ],
)
def test_host_that_a_web_page_can_have_rebound_is_refused(name: str, is_own: bool, store: Path) -> None:
    assert is_own_name(name, "127.0.0.1") == is_own
    assert is_own_name("shop.internal:4318", "Shop.internal")


@pytest.mark.parametrize(
    ("options", "expected"),
    [({}, [403, 403, 200]), ({"token": "s3cret"}, [200] * 3), ({"allow_anonymous": True}, [200] * 3)],
    ids=["nothing", "token", "anonymous"],
)
def test_web_page_with_a_rebound_name_reads_and_sends_nothing(
    options: dict[str, Any], expected: list[int], store: Path
) -> None:
    headers = {"Host": "rebound.example:4318", "Content-Type": "application/json", "Authorization": "Bearer s3cret"}
    found: list[int] = []
    with receiving(store, **options) as receiver:
        for method, path in (("POST", "/v1/traces"), ("GET", "/metrics"), ("GET", "/healthz")):
            with closing(http.client.HTTPConnection("127.0.0.1", port(receiver), timeout=DEADLINE_S)) as connection:
                connection.request(method, path, b"{}" if method == "POST" else None, headers)
                found.append(connection.getresponse().status)
    assert found == expected


# TLS


def broken(files: Files, folder: Path, fault: str) -> tuple[Path | None, Path | None, Path | None]:
    """Certificate, key and root, one of which has a fault; the faulty file is named `bad`."""
    bad = folder / "bad"
    if fault == "text":
        bad.write_text("no PEM\n")
    elif fault == "folder":
        bad.mkdir()
    elif fault == "encrypted":
        key = serialization.load_pem_private_key(files.key.read_bytes(), None)
        form = serialization.BestAvailableEncryption(b"passphrase")
        bad.write_bytes(
            key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, form)
        )
    elif fault == "other":
        bad.write_bytes(files.client_key.read_bytes())
    return (bad, bad, bad)


@pytest.mark.parametrize(
    ("fault", "place", "message"),
    [
        ("missing", 0, "{bad}: cannot be read: No such file or directory."),
        ("folder", 0, "{bad}: cannot be read: Is a directory."),
        ("text", 0, "{bad}: holds no certificate; expected PEM (-----BEGIN CERTIFICATE-----)."),
        ("missing", 1, "{bad}: cannot be read: No such file or directory."),
        ("text", 1, "{bad}: holds no private key; expected PEM (-----BEGIN PRIVATE KEY-----)."),
        ("other", 1, "{bad}: is not the key of the certificate in {cert}."),
        ("encrypted", 1, "{bad}: the key is encrypted; expected one without a passphrase, that only you can read."),
        ("missing", 2, "{bad}: cannot be read: No such file or directory."),
        ("text", 2, "{bad}: holds no certificate; expected PEM (-----BEGIN CERTIFICATE-----)."),
    ],
)
def test_fault_of_a_tls_file_is_named_with_the_file(
    fault: str, place: int, message: str, files: Files, tmp_path: Path
) -> None:
    given: list[Path | None] = [files.cert, files.key, files.ca]
    given[place] = broken(files, tmp_path, fault)[place]
    with pytest.raises(UsageError) as refused:
        load_tls(*given)
    assert str(refused.value) == message.format(bad=tmp_path / "bad", cert=files.cert)


def write_pair(key: Any, folder: Path) -> tuple[Path, Path]:
    """Writes a certificate of a key, and the key."""
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    own = x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1"))])
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), now, now + HOUR)
    builder = builder.add_extension(own, critical=False)
    pem, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    digest = None if isinstance(key, Ed25519PrivateKey) else hashes.SHA256()
    (folder / "cert").write_bytes(builder.sign(key, digest).public_bytes(pem))
    (folder / "key").write_bytes(key.private_bytes(pem, form, serialization.NoEncryption()))
    return folder / "cert", folder / "key"


@pytest.mark.parametrize("curve", [ec.SECP256K1, ec.SECP521R1, None])
def test_key_that_grpc_does_not_know_is_refused_at_the_start(
    curve: type[ec.EllipticCurve] | None, tmp_path: Path
) -> None:
    cert, key = write_pair(ec.generate_private_key(curve()) if curve else Ed25519PrivateKey.generate(), tmp_path)
    with pytest.raises(UsageError) as refused:
        load_tls(cert, key, None)
    assert str(refused.value) == f"{cert}: gRPC does not know its key; expected RSA, or EC on P-256 or P-384."


@pytest.mark.parametrize("curve", [ec.SECP384R1, ec.SECP256R1, None])
def test_key_that_is_taken_serves_both_doors(curve: type[ec.EllipticCurve] | None, store: Path, tmp_path: Path) -> None:
    cert, key = write_pair(
        ec.generate_private_key(curve()) if curve else rsa.generate_private_key(65537, 2048), tmp_path
    )
    with receiving(store, grpc_port=0, tls=load_tls(cert, key, None)) as receiver:
        assert health(port(receiver), ssl.create_default_context(cafile=str(cert))) == 200
        credentials = grpc.ssl_channel_credentials(cert.read_bytes())
        with grpc.secure_channel(f"127.0.0.1:{port(receiver, 1)}", credentials) as channel:
            assert channel.unary_unary(EXPORT)(b"", timeout=DEADLINE_S) == b""


def test_key_of_another_kind_or_too_small_is_named(files: Files, tmp_path: Path) -> None:
    weak = write_pair(rsa.generate_private_key(65537, 1024), tmp_path)
    with pytest.raises(UsageError, match=r"cert: is refused by OpenSSL: ee key too small\.$"):
        load_tls(*weak, None)
    with pytest.raises(UsageError, match="key: is not the key of the certificate in"):
        load_tls(files.cert, weak[1], None)


def test_half_of_a_pair_is_not_enough(files: Files) -> None:
    assert load_tls(None, None, None) is None
    for given, missing in (
        ((files.cert, None, None), "key"),
        ((None, files.key, None), "cert"),
        ((None, None, files.ca), "cert"),
    ):
        with pytest.raises(UsageError, match=f"is given without --tls-{missing}; TLS needs both"):
            load_tls(*given)


def test_old_tls_and_renegotiation_are_off(files: Files) -> None:
    tls = load_tls(files.cert, files.key, None)
    assert tls
    assert tls.context.minimum_version >= ssl.TLSVersion.TLSv1_2
    assert tls.context.options & ssl.OP_NO_RENEGOTIATION


def test_client_without_a_certificate_gets_nowhere_where_one_is_asked_for(files: Files, store: Path) -> None:
    with receiving(store, grpc_port=0, tls=load_tls(files.cert, files.key, files.ca)) as receiver:
        roots = files.ca.read_bytes()
        pair = files.client_key.read_bytes(), files.client_cert.read_bytes()
        assert health(port(receiver), trusting(files, with_certificate=True)) == 200
        with pytest.raises((ssl.SSLError, ConnectionError, http.client.RemoteDisconnected)):
            health(port(receiver), trusting(files))
        target = f"127.0.0.1:{port(receiver, 1)}"
        with grpc.secure_channel(target, grpc.ssl_channel_credentials(roots, *pair)) as channel:
            assert channel.unary_unary(EXPORT)(b"", timeout=DEADLINE_S) == b""
        anonymous = grpc.ssl_channel_credentials(roots)
        with grpc.secure_channel(target, anonymous) as channel, pytest.raises(grpc.RpcError) as refused:
            channel.unary_unary(EXPORT)(b"", timeout=DEADLINE_S)
        assert refused.value.code() is grpc.StatusCode.UNAVAILABLE


def test_client_that_does_not_shake_hands_is_dropped_and_counted(
    files: Files, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "HEADER_TIMEOUT_S", 1.0)
    monkeypatch.setattr(connections, "MAX_CONNECTIONS", 2)
    with receiving(store, tls=load_tls(files.cert, files.key, None)) as receiver:
        silent = [connected(port(receiver)) for _ in range(2)]
        with closing(connected(port(receiver))) as third:
            assert is_dropped(third)
        for client in silent:
            # Still there: there was no room for the third.
            client.setblocking(False)
            with pytest.raises(BlockingIOError):
                client.recv(1)
            client.setblocking(True)
            client.sendall(b"\x16\x03\x01")
        # They are dropped by time, and then there is room again.
        for client in silent:
            assert is_dropped(client)
            client.close()
        assert health(port(receiver), trusting(files)) == 200


def test_resting_tls_clients_do_not_hold_up_the_end(files: Files, store: Path) -> None:
    with receiving(store, tls=load_tls(files.cert, files.key, None)) as receiver:
        resting = http.client.HTTPSConnection("127.0.0.1", port(receiver), context=trusting(files), timeout=DEADLINE_S)
        resting.request("GET", "/healthz")
        assert resting.getresponse().read()
        half_open = connected(port(receiver))
        stopping_at = time.monotonic()
    # TLS would wait 30 s for an answer to its goodbye, and Uvicorn 10 s for TLS.
    assert time.monotonic() - stopping_at < 7
    for client in (resting, half_open):
        client.close()


@pytest.mark.usefixtures("unseen")
def test_client_that_mistakes_tls_is_named_once(files: Files, store: Path, caplog: pytest.LogCaptureFixture) -> None:
    with receiving(store, tls=load_tls(files.cert, files.key, None)) as receiver:
        for _ in range(2):
            with closing(connected(port(receiver))) as client:
                client.sendall(b"GET /healthz HTTP/1.1\r\n\r\n")
                assert is_dropped(client)
    with receiving(store) as receiver:
        for _ in range(2):
            with pytest.raises((ssl.SSLError, ConnectionError)):
                health(port(receiver), trusting(files))
    assert [record.getMessage() for record in caplog.records] == [
        "a client speaks plain HTTP to the port of TLS; its endpoint is https://",
        "a client speaks TLS to a port without it; its endpoint must begin with http://, or set --tls-cert",
    ]


# gRPC clients that do not do as they should


def test_message_that_does_not_arrive_ends_the_call(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otlp_grpc, "_MESSAGE_TIMEOUT_S", 0.1)
    monkeypatch.setattr(otlp_grpc, "_LOOK_S", 0.05)
    given_up = threading.Event()

    def never() -> Iterator[bytes]:
        given_up.wait(DEADLINE_S)
        yield from ()

    with receiving(store, grpc_port=0, token="s3cret") as receiver:
        target = f"127.0.0.1:{port(receiver, 1)}"
        with grpc.insecure_channel(target) as channel:
            slow = channel.stream_unary(EXPORT)
            calls = [slow.future(never(), metadata=BEARER, timeout=DEADLINE_S) for _ in range(otlp_grpc._THREADS)]
            assert {call.code() for call in calls} == {grpc.StatusCode.CANCELLED}
        monkeypatch.setattr(otlp_grpc, "_MESSAGE_TIMEOUT_S", DEADLINE_S)
        # Over another connection: on the first one the client may not know yet that its calls are over.
        with grpc.insecure_channel(target, [("grpc.use_local_subchannel_pool", 1)]) as channel:
            slow = channel.stream_unary(EXPORT)
            # A wrong token is told before a message is waited for, and a call without one what it lacks.
            assert slow.future(never(), timeout=DEADLINE_S).code() is grpc.StatusCode.UNAUTHENTICATED
            assert slow.future(iter([]), metadata=BEARER).code() is grpc.StatusCode.INVALID_ARGUMENT
            assert channel.unary_unary(EXPORT)(b"", metadata=BEARER, timeout=DEADLINE_S) == b""
        given_up.set()
        assert receiver.counts.refused == {"CANCELLED": 17, "UNAUTHENTICATED": 1}


def test_grpc_connections_are_bounded_in_number_and_time(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otlp_grpc, "HEADER_TIMEOUT_S", 0.5)
    monkeypatch.setattr(otlp_grpc, "MAX_CONNECTIONS", 2)
    monkeypatch.setattr(otlp_grpc, "KEEP_ALIVE_S", 1)
    with receiving(store, grpc_port=0) as receiver:
        silent = [connected(port(receiver, 1)) for _ in range(2)]
        with closing(connected(port(receiver, 1))) as third:
            third.settimeout(0.4)
            assert is_dropped(third)
        for client in silent:
            assert is_dropped(client)
            client.close()
        with grpc.insecure_channel(f"127.0.0.1:{port(receiver, 1)}") as channel:
            states: list[grpc.ChannelConnectivity] = []
            rested = threading.Event()

            def changed(state: grpc.ChannelConnectivity) -> None:
                states.append(state)
                if grpc.ChannelConnectivity.READY in states and state is grpc.ChannelConnectivity.IDLE:
                    rested.set()

            channel.subscribe(changed)
            assert channel.unary_unary(EXPORT)(b"", timeout=DEADLINE_S) == b""
            # It is sent away once it has rested for long, and may come again.
            assert rested.wait(DEADLINE_S)
            assert channel.unary_unary(EXPORT)(b"", timeout=DEADLINE_S) == b""


def test_call_too_many_waits_at_the_client(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Beyond _MAX_CALLS gRPC answers RESOURCE_EXHAUSTED, after which exporters do not send again.
    assert otlp_grpc._MAX_CALLS >= connections.MAX_CONNECTIONS * otlp_grpc._MAX_CALLS_OF_A_CONNECTION
    monkeypatch.setattr(otlp_grpc, "_MAX_CALLS_OF_A_CONNECTION", 2)
    monkeypatch.setattr(otlp_grpc, "_MAX_CALLS", 2)
    begun: list[int] = []
    let_go = threading.Event()

    with receiving(store, grpc_port=0) as receiver, grpc.insecure_channel(f"127.0.0.1:{port(receiver, 1)}") as channel:
        export, take = channel.unary_unary(EXPORT), receiver._intake.take
        # One call first: until then a client does not know how many it may make.
        assert export(b"", timeout=DEADLINE_S) == b""

        def slowly(*request: Any) -> Any:
            begun.append(1)
            let_go.wait(DEADLINE_S)
            return take(*request)

        monkeypatch.setattr(receiver._intake, "take", slowly)
        calls = [export.future(b"", timeout=DEADLINE_S) for _ in range(4)]
        until(lambda: len(begun) == 2)
        let_go.set()
        # UNAVAILABLE, to be sent again, where a client's next call overtakes the end of its last one.
        assert {call.code() for call in calls} <= {grpc.StatusCode.OK, grpc.StatusCode.UNAVAILABLE}


# HTTP clients that do not do as they should


HEAD = b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 1000000\r\n\r\n"


@pytest.mark.parametrize(
    ("path", "bound", "answer"),
    [
        (b"/v1/traces", "_BODY_TIMEOUT_S", b"HTTP/1.1 408 "),
        # What is refused is read on, for a client that still sends would take the answer for a fault of the network.
        (b"/nowhere", "_DRAIN_TIMEOUT_S", b"HTTP/1.1 404 "),
    ],
)
def test_body_that_trickles_for_ever_has_an_end(
    path: bytes, bound: str, answer: bytes, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(otlp_http, bound, 0.3)
    with receiving(store) as receiver, closing(connected(port(receiver))) as client:
        client.sendall(HEAD % path)
        client.settimeout(0.02)
        received = b""
        deadline = time.monotonic() + 4
        while not received.startswith(answer):
            assert time.monotonic() < deadline
            client.sendall(b" ")
            with suppress(TimeoutError):
                received += client.recv(4096)
        assert b"connection: close" in received


def test_headers_are_bounded(store: Path) -> None:
    with receiving(store) as receiver, closing(connected(port(receiver))) as client:
        client.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\nx: " + b"x" * (40 << 10))
        assert client.recv(4096).startswith(b"HTTP/1.1 400 ")


# The command


def collect(folder: Path, *options: str, **environment: str) -> "subprocess.Popen[str]":
    command = [
        str(Path(sys.executable).with_name("agenttrace")),
        "collect",
        "--http-port",
        "0",
        "--grpc-port",
        "0",
        *options,
    ]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, cwd=folder, env=os.environ | environment, **pipes)


def test_stock_exporters_reach_the_command_with_tls_and_token(files: Files, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("s3cret\n")
    options = ["--tls-cert", str(files.cert), "--tls-key", str(files.key), "--token-file", str(token)]
    with collect(tmp_path, *options, "--host", "0.0.0.0") as process:
        assert process.stdout
        assert process.stderr
        urls = [process.stdout.readline().split()[2].replace("0.0.0.0", "127.0.0.1") for _ in range(2)]
        assert [url.partition("://")[0] for url in urls] == ["https", "grpcs"]
        headers = {"authorization": "Bearer s3cret"}
        send_span(OTLPSpanExporter(f"{urls[0]}/v1/traces", certificate_file=str(files.ca), headers=headers), "http")
        credentials = grpc.ssl_channel_credentials(files.ca.read_bytes())
        target = urls[1].removeprefix("grpcs://")
        send_span(GrpcSpanExporter(f"https://{target}", credentials=credentials, headers=headers), "grpc")
        with grpc.insecure_channel(target) as channel, pytest.raises(grpc.RpcError):
            channel.unary_unary(EXPORT)(b"", timeout=DEADLINE_S)
        process.terminate()
        assert process.wait(DEADLINE_S) == 0
        assert process.stderr.read() == "2 spans received; 0 skipped\n"
    with open_store(tmp_path / "agenttrace.duckdb") as con:
        assert con.execute("SELECT name FROM spans ORDER BY name").fetchall() == [("grpc",), ("http",)]
