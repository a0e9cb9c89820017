"""Leaves files and folders whose names are not UTF-8, or contain line ends and quotes."""

import os

for name in (b"\xff\xfe", b"line\nend.py", b"-rf", b"quote'\".txt", b"\xe2\x80\xae.py", b"caf\xe9.py"):
    with open(os.path.join(os.getcwdb(), name), "w") as file:
        file.write("1\n")
os.mkdir(os.path.join(os.getcwdb(), b"\xfffolder"))
