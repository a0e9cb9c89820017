"""Plants a module that takes all memory when tests import it, so that the kernel ends a process."""

from common import plant

plant("_taken = []\nwhile True:\n    _taken.append(bytearray(2**24))\n")
