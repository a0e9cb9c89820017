from solution import smaller

got = smaller(2, 3)
assert got == 2, f"smaller(2, 3) should give 2, but gave {got!r}"
got = smaller(9, 4)
assert got == 4, f"smaller(9, 4) should give 4, but gave {got!r}"
