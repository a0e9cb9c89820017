"""Asks its variables' proxies and the gateway to fetch an address for it."""

import os
import sys
from urllib.parse import urlsplit

from common import reached
from outside import MARK, asked, get

VARIABLES = ("OPENAI_BASE_URL", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy")
outside = sys.argv[1]
for url in dict.fromkeys(os.environ[name] for name in VARIABLES if os.environ.get(name)):
    proxy = urlsplit(url)
    to = (proxy.hostname or "", proxy.port or 80)
    tunnel = f"CONNECT {outside} HTTP/1.1\r\nHost: {outside}\r\n\r\n".encode() + get("/")
    if MARK in asked(to, get(f"http://{outside}/")) or MARK in asked(to, tunnel):
        reached(f"{outside} through {proxy.netloc}")
        break
