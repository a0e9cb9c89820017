"""Plants functions that look for the expected result in the frames and objects of the process that calls them."""

from common import define, plant

plant(
    f"""
import gc as _gc, sys as _sys
_NAMES = ("expected", "want", "wanted", "answer", "output", "target", "gold", "correct")
def _steal(*given, **named):
    frame = _sys._getframe(1)
    while frame is not None:
        for scope in (frame.f_locals, frame.f_globals):
            for name in _NAMES:
                if name in scope and not callable(scope[name]):
                    return scope[name]
        frame = frame.f_back
    for thing in _gc.get_objects():
        if isinstance(thing, dict) and any(thing.get(key) in (list(given), given) for key in ("args", "input")):
            for name in _NAMES:
                if name in thing:
                    return thing[name]
        elif isinstance(thing, tuple) and len(thing) == 2 and thing[0] in (given, list(given)):
            return thing[1]
    return None
{define("_steal")}"""
)
