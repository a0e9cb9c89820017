"""Plants a module that never returns when tests import it."""

from common import plant

plant("import time as _time\nwhile True:\n    _time.sleep(60)\n")
