"""Runs in a sandbox, tries to reach targets that an agent must not reach, and writes the names of those that answered.

network.py TARGETS, where TARGETS is JSON:
{"output": path, "owned": {...}, "tcp": {name: port}, "udp": ..., "abstract": ...}
"""

from __future__ import annotations

import json
import socket
import struct
import sys
import urllib.error
import urllib.request

TARGETS = json.loads(sys.argv[1])
reached: list[str] = []


def report(name: str) -> None:
    reached.append(name)
    save()


def save() -> None:
    with open(TARGETS["output"], "w", encoding="utf-8") as file:
        json.dump(reached, file)


def attempt(name: str, family: int, kind: int, address: object, data: bytes = b"") -> None:
    """Reports a target that answers a few bytes, or that accepts a connection if nothing is sent."""
    with socket.socket(family, kind) as connection:
        connection.settimeout(1)
        try:
            connection.connect(address)
            if data:
                connection.send(data)
                if not connection.recv(16):
                    return
        except OSError:
            return
        report(name)


def listening_ports() -> set[int]:
    """Returns all ports on which something in this network namespace listens."""
    ports = set()
    for file in ("/proc/net/tcp", "/proc/net/tcp6"):
        with open(file, encoding="ascii") as rows:
            for row in list(rows)[1:]:
                fields = row.split()
                if fields[3] == "0A":
                    ports.add(int(fields[1].rpartition(":")[2], 16))
    return ports


def own_temporal() -> None:
    """Starts a workflow through Temporal's HTTP API on any port. The API asks for no password."""
    body = json.dumps(TARGETS["owned"]["request"]).encode()
    for port in listening_ports() | set(TARGETS["tcp"].values()):
        url = f"http://127.0.0.1:{port}/api/v1/namespaces/default/workflows/{TARGETS['owned']['id']}"
        request = urllib.request.Request(url, body, {"content-type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=0.3) as reply:
                reply.read()
        except (OSError, ValueError, urllib.error.URLError):
            continue
        except Exception:  # Something that is not HTTP answered.
            continue


def clients_of(server: int) -> list[int]:
    """Returns the ports of the connections to a port of this network namespace."""
    with open("/proc/net/tcp", encoding="ascii") as rows:
        ends = [row.split()[1:3] for row in list(rows)[1:]]
    return [int(local.rpartition(":")[2], 16) for local, remote in ends if int(remote.rpartition(":")[2], 16) == server]


def temporal_as_a_worker() -> None:
    """Speaks to Temporal from the ports of allowed connections, but from other addresses."""
    server = TARGETS["tcp"]["temporal"]
    for port in clients_of(server)[:4]:
        for last in range(2, 18):
            with socket.socket() as connection:
                connection.settimeout(1)
                try:
                    connection.bind((f"127.0.0.{last}", port))
                    connection.connect(("127.0.0.1", server))
                    connection.send(HTTP2)
                    if connection.recv(16):
                        report("temporal as a worker")
                        return
                except OSError:
                    continue


def enter_postgres() -> None:
    """Begins a session as Trialgate's user of the database, without the password."""
    names = b"user\0trialgate\0database\0trialgate\0\0"
    with socket.socket() as connection:
        connection.settimeout(3)
        try:
            connection.connect(("127.0.0.1", TARGETS["tcp"]["postgres"]))
            connection.send(struct.pack("!ii", 8 + len(names), 196608) + names)
            if connection.recv(9) == b"R" + struct.pack("!ii", 8, 0):
                report("postgres entered")
        except OSError:
            return


HTTP2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"
POSTGRES_SSL_REQUEST = b"\x00\x00\x00\x08\x04\xd2\x16\x2f"
FIRST_BYTES = {"temporal": HTTP2, "postgres": POSTGRES_SSL_REQUEST}

save()
for name, port in TARGETS["tcp"].items():
    attempt(f"tcp {name}", socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", port), FIRST_BYTES.get(name, b""))
for name, port in TARGETS["udp"].items():
    attempt(f"udp {name}", socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", port), b"hello")
for name, path in TARGETS["abstract"].items():
    attempt(f"abstract {name}", socket.AF_UNIX, socket.SOCK_STREAM, "\0" + path)
# No packet is sent. A connect succeeds only if the address has a route.
attempt("route outside", socket.AF_INET, socket.SOCK_DGRAM, ("192.0.2.1", 53))
own_temporal()
temporal_as_a_worker()
enter_postgres()
