"""Sends datagrams to another port of this machine than the gateway's."""

import sys

from common import reached
from outside import MARK, address, sent

if MARK in sent(address(sys.argv[2]), b"hello"):
    reached(f"{sys.argv[2]} over UDP")
