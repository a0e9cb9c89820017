"""Plants a module that prints without end when tests import it."""

from common import plant

plant('import sys as _sys\nwhile True:\n    _sys.__stdout__.write("x" * 65536)\n')
