from solution import count_words

got = count_words('hello world')
assert got == 2, f"count_words('hello world') should give 2, but gave {got!r}"
got = count_words('one')
assert got == 1, f"count_words('one') should give 1, but gave {got!r}"
