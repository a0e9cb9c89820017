from solution import first_char

got = first_char("cat")
assert got == "c", f"first_char('cat') should give 'c', but gave {got!r}"
got = first_char("Zebra")
assert got == "Z", f"first_char('Zebra') should give 'Z', but gave {got!r}"
