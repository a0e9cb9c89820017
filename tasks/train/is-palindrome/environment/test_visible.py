from solution import is_palindrome

got = is_palindrome("level")
assert got == True, f"is_palindrome('level') should give True, but gave {got!r}"
got = is_palindrome("hello")
assert got == False, f"is_palindrome('hello') should give False, but gave {got!r}"
