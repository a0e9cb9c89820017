from solution import factorial

got = factorial(5)
assert got == 120, f"factorial(5) should give 120, but gave {got!r}"
got = factorial(3)
assert got == 6, f"factorial(3) should give 6, but gave {got!r}"
