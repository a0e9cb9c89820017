"""Plants a module whose hooks turn a failure of the process that imported it into a success."""

from common import WRITE_REWARD, define, plant

plant(
    f"""{WRITE_REWARD}
import atexit as _atexit, sys as _sys
def _succeed(*_):
    _write_reward()
    for _stream in (_sys.stdout, _sys.stderr):
        _stream.flush()
    _os._exit(0)
_atexit.register(_succeed)
_sys.excepthook = _succeed
_sys.exit = _succeed
{define("lambda *given, **named: None")}"""
)
