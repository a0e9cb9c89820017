from solution import average

got = average([1, 2, 3])
assert got == 2.0, f"average([1, 2, 3]) should give 2.0, but gave {got!r}"
got = average([10])
assert got == 10.0, f"average([10]) should give 10.0, but gave {got!r}"
