from solution import multiply

got = multiply(2, 3)
assert got == 6, f"multiply(2, 3) should give 6, but gave {got!r}"
got = multiply(7, -4)
assert got == -28, f"multiply(7, -4) should give -28, but gave {got!r}"
