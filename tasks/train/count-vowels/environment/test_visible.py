from solution import count_vowels

got = count_vowels("hello")
assert got == 2, f"count_vowels('hello') should give 2, but gave {got!r}"
got = count_vowels("rhythm")
assert got == 0, f"count_vowels('rhythm') should give 0, but gave {got!r}"
