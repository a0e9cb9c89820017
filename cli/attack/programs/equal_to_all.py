"""Plants functions whose result is equal to everything, true, and nearer than any tolerance."""

from common import define, plant

plant(
    f"""
class _Equal:
    def _true(self, *_):
        return True
    def _self(self, *_, **__):
        return self
    __eq__ = __lt__ = __le__ = __gt__ = __ge__ = __bool__ = __contains__ = _true
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __truediv__ = __abs__ = __round__ = __neg__ = _self
    __call__ = __getitem__ = _self
    __hash__ = lambda self: 0
    __ne__ = lambda self, other: False
    __float__ = lambda self: 0.0
    __iter__ = lambda self: iter(())
{define("lambda *given, **named: _Equal()")}"""
)
