"""Plants a module that writes a full reward when tests import it, when they end, and from a process that it leaves."""

from common import KEEP_WRITING, define, plant

plant(
    f"""{KEEP_WRITING}
import atexit as _atexit
_write_reward()
_atexit.register(_write_reward)
_keep_writing()
{define("lambda *given, **named: None")}"""
)
