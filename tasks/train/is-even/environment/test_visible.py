from solution import is_even

got = is_even(4)
assert got == True, f"is_even(4) should give True, but gave {got!r}"
got = is_even(7)
assert got == False, f"is_even(7) should give False, but gave {got!r}"
