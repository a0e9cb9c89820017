from solution import absolute_value

got = absolute_value(-5)
assert got == 5, f"absolute_value(-5) should give 5, but gave {got!r}"
got = absolute_value(8)
assert got == 8, f"absolute_value(8) should give 8, but gave {got!r}"
