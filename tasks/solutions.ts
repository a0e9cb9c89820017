/** A correct solution for each bundled task. The tests show with them that the tasks can be solved. */
export const SOLUTIONS: Record<string, string> = {
  'absolute-value': 'def absolute_value(n): return -n if n < 0 else n',
  add: 'def add(a, b): return a + b',
  average: 'def average(numbers): return sum(numbers) / len(numbers)',
  'count-vowels': 'def count_vowels(s): return sum(c in "aeiou" for c in s.lower())',
  factorial: 'def factorial(n): return 1 if n < 2 else n * factorial(n - 1)',
  'first-char': 'def first_char(s): return s[0]',
  'is-even': 'def is_even(n): return n % 2 == 0',
  'is-palindrome': 'def is_palindrome(s): return s == s[::-1]',
  'is-positive': 'def is_positive(n): return n > 0',
  largest: 'largest = max',
  'last-item': 'def last_item(numbers): return numbers[-1]',
  multiply: 'def multiply(a, b): return a * b',
  'reverse-string': 'def reverse_string(s): return s[::-1]',
  smaller: 'smaller = min',
  square: 'def square(n): return n * n',
  'sum-list': 'sum_list = sum',
};
