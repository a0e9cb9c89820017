from solution import largest

got = largest([3, 9, 2])
assert got == 9, f"largest([3, 9, 2]) should give 9, but gave {got!r}"
got = largest([-5, -2, -9])
assert got == -2, f"largest([-5, -2, -9]) should give -2, but gave {got!r}"
