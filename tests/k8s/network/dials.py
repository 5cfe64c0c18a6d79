"""Tries connections from where it runs: [[address, port], ...] on stdin; what became of each, as JSON, on stdout.

python dials.py                       # TCP: connected, prohibited (by a policy), refused (nobody listens), silent
python dials.py --tls [CERT KEY]      # then a handshake: welcome, turned away, silent
python dials.py --shown               # the certificate that is shown, PEM
python dials.py --scrape NAME CA      # HTTPS from a server of that name: metrics, plain (HTTP), turned away, silent
"""

from __future__ import annotations

import errno
import json
import socket
import ssl
import sys

TIMEOUT_S = 5.0
NAMES = {errno.EHOSTUNREACH: "prohibited", errno.ECONNREFUSED: "refused"}


def dial(address: str, port: int) -> str:
    """A TCP connection, closed again."""
    try:
        socket.create_connection((address, port), TIMEOUT_S).close()
    except TimeoutError:
        return "silent"
    except OSError as error:
        return NAMES.get(error.errno or 0, str(error))
    return "connected"


def greet(address: str, port: int, certificate: list[str]) -> str:
    """A TLS handshake, as gRPC does it, up to the server's first bytes: only they say that a client is taken."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    if certificate:
        context.load_cert_chain(*certificate)
    with socket.create_connection((address, port), TIMEOUT_S) as plain:
        try:
            with context.wrap_socket(plain) as link:
                return "welcome" if link.recv(1) else "turned away"
        except TimeoutError:
            return "silent"
        except (ssl.SSLError, ConnectionError):
            return "turned away"


def scrape(address: str, port: int, name: str, ca: str) -> str:
    """A reading of /metrics, as Prometheus does it, and once more without TLS."""
    context = ssl.create_default_context(cafile=ca)
    try:
        with (
            socket.create_connection((address, port), TIMEOUT_S) as plain,
            context.wrap_socket(plain, server_hostname=name) as link,
        ):
            found = _metrics_over(link)
        with socket.create_connection((address, port), TIMEOUT_S) as plain:
            return "plain" if _metrics_over(plain) else "metrics" if found else "turned away"
    except TimeoutError:
        return "silent"
    except (ssl.SSLError, ConnectionError) as error:
        return f"turned away: {error}"


def _metrics_over(connection: socket.socket) -> bool:
    connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: metrics\r\n\r\n")
    said = b"".join(iter(lambda: connection.recv(1 << 16), b""))
    return said.startswith(b"HTTP/1.0 200 ") and b"\nprocess_cpu_seconds_total " in said


def main() -> None:
    """Answers in the order of the targets."""
    targets = json.load(sys.stdin)
    if "--scrape" in sys.argv:
        name, ca = sys.argv[sys.argv.index("--scrape") + 1 :]
        answers = [scrape(address, port, name, ca) for address, port in targets]
    elif "--shown" in sys.argv:
        answers = [
            ssl.get_server_certificate((address, port), timeout=TIMEOUT_S) for address, port in targets
        ]
    elif "--tls" in sys.argv:
        certificate = sys.argv[sys.argv.index("--tls") + 1 :]
        answers = [greet(address, port, certificate) for address, port in targets]
    else:
        answers = [dial(address, port) for address, port in targets]
    print(json.dumps(answers))


if __name__ == "__main__":
    main()
