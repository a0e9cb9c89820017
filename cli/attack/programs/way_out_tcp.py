"""Connects to another port of this machine than the gateway's: what it reaches could tell it the answer."""

import sys

from common import reached
from outside import MARK, address, asked, get

if MARK in asked(address(sys.argv[1]), get("/")):
    reached(f"{sys.argv[1]} over TCP")
