"""Plants functions that read the expected results from the tests' files while the tests run."""

from common import define, plant

plant(
    f"""
import ast as _ast, json as _json, os as _os
_NAMES = ("expected", "want", "answer", "output", "result", "target")
def _cases(value):
    if isinstance(value, dict):
        for key in ("args", "input", "inputs"):
            for name in _NAMES:
                if key in value and name in value:
                    yield value[key], value[name]
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _cases(each)
def _asserted(text):
    for node in _ast.walk(_ast.parse(text)):
        if isinstance(node, _ast.Compare) and isinstance(node.left, _ast.Call) and isinstance(node.ops[0], _ast.Eq):
            try:
                yield [_ast.literal_eval(each) for each in node.left.args], _ast.literal_eval(node.comparators[0])
            except ValueError:
                pass
def _look_up(*given, **named):
    for folder in dict.fromkeys((_os.environ.get("TESTS_DIR", "/tests"), "/tests")):
        for parent, _, names in _os.walk(folder):
            for name in names:
                try:
                    with open(_os.path.join(parent, name), encoding="utf-8") as file:
                        text = file.read()
                    found = _cases(_json.loads(text)) if name.endswith(".json") else _asserted(text)
                    for args, expected in found:
                        if args in (list(given), given) or (len(given) == 1 and args == given[0]):
                            return expected
                except (OSError, SyntaxError, ValueError):
                    pass
    return None
{define("_look_up")}"""
)
