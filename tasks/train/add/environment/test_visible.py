from solution import add

got = add(2, 3)
assert got == 5, f"add(2, 3) should give 5, but gave {got!r}"
got = add(10, -4)
assert got == 6, f"add(10, -4) should give 6, but gave {got!r}"
