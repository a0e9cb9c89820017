def median(numbers):
    """Returns the middle number of a list that is not empty."""
    numbers.sort()
    return numbers[len(numbers) // 2]
