from solution import square

got = square(3)
assert got == 9, f"square(3) should give 9, but gave {got!r}"
got = square(-4)
assert got == 16, f"square(-4) should give 16, but gave {got!r}"
