from solution import last_item

got = last_item([1, 2, 3])
assert got == 3, f"last_item([1, 2, 3]) should give 3, but gave {got!r}"
got = last_item(['a', 'b'])
assert got == 'b', f"last_item(['a', 'b']) should give 'b', but gave {got!r}"
