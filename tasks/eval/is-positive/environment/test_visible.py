from solution import is_positive

got = is_positive(4)
assert got == True, f"is_positive(4) should give True, but gave {got!r}"
got = is_positive(-7)
assert got == False, f"is_positive(-7) should give False, but gave {got!r}"
