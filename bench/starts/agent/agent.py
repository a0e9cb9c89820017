"""An agent that makes one call through the gateway and ends: as a program (`agent.py URL`) and as a function."""

import http.client
import sys


def call(url: str) -> None:
    _, _, rest = url.partition("//")
    address, _, path = rest.partition("/")
    host, _, port = address.rpartition(":")
    connection = http.client.HTTPConnection(host, int(port))
    connection.request("GET", f"/{path}/models")
    connection.getresponse().read()


def run(task, model) -> None:
    call(model.base_url)


if __name__ == "__main__":
    call(sys.argv[1])
