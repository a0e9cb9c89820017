from solution import sum_list

got = sum_list([1, 2, 3])
assert got == 6, f"sum_list([1, 2, 3]) should give 6, but gave {got!r}"
got = sum_list([10, -4])
assert got == 6, f"sum_list([10, -4]) should give 6, but gave {got!r}"
