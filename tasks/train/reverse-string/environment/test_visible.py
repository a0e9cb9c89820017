from solution import reverse_string

got = reverse_string("abc")
assert got == "cba", f"reverse_string('abc') should give 'cba', but gave {got!r}"
got = reverse_string("hello")
assert got == "olleh", f"reverse_string('hello') should give 'olleh', but gave {got!r}"
