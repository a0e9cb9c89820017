from solution import last_item

got = last_item([1, 2, 3])
assert got == 3, f"last_item([1, 2, 3]) should give 3, but gave {got!r}"
got = last_item([9, 4])
assert got == 4, f"last_item([9, 4]) should give 4, but gave {got!r}"
