#!/usr/bin/env python3
"""What gpt_small is measured by: an interpolated modified Kneser-Ney model of order 5.

    bible -f gen1:1-rev22:21 | models/gpt_small/judge.py

prints its bits per character of the test books, of the characters that gpt_small has to say: all but
a book's first.  Source: Chen & Goodman 1998, "An empirical study of smoothing techniques for language
modeling", section 4; below the unigrams all codes are equally likely.
"""

import math
import sys
from collections import Counter, defaultdict

from characters import ALPHABET, split

ORDER = 5
START = bytes(ORDER - 1)  # lines' ends


def discounts(counts):
    """What is taken off counts of 1, 2 and more; index 0 is not used."""
    n = Counter(counts.values())
    y = n[1] / (n[1] + 2 * n[2]) if n[1] else 0
    found = [k - (k + 1) * y * n[k + 1] / n[k] if n[k] else 0 for k in (1, 2, 3)]
    if all(0 < d < k for k, d in enumerate(found, 1)):
        return [0] + found
    return [0, 0.5, 0.5, 0.5]  # of grams too few for it


class Grams:
    """The grams of one length: counts of the longest; else of how many characters come before."""

    def __init__(self, counts):
        self.counts, self.discounts = counts, discounts(counts)
        self.total, self.taken = defaultdict(int), defaultdict(float)  # by history
        for gram, count in counts.items():
            self.total[gram[:-1]] += count
            self.taken[gram[:-1]] += self.discounts[min(count, 3)]


def train(books):
    """Grams of 1 to ORDER characters."""
    counts = Counter()
    for book in books:
        text = START + book
        counts.update(text[i:i + ORDER] for i in range(len(book)))
    model = [Grams(counts)]
    while len(model) < ORDER:
        counts = Counter(gram[1:] for gram in counts)
        model.insert(0, Grams(counts))
    return model


def probability(model, gram):
    """Of the last character of ORDER."""
    p = 1 / len(ALPHABET)
    for length, grams in enumerate(model, 1):
        suffix = gram[ORDER - length:]
        total = grams.total.get(suffix[:-1])
        if total is None:  # nor is any longer history known
            return p
        count = grams.counts.get(suffix, 0)
        p = (count - grams.discounts[min(count, 3)] + grams.taken[suffix[:-1]] * p) / total
    return p


def main():
    training, testing = split(sys.stdin)
    model = train(training)
    bits = characters = 0
    for book in testing:
        text = START + book
        for i in range(1, len(book)):
            bits -= math.log2(probability(model, text[i:i + ORDER]))
        characters += len(book) - 1
    print(f"{bits / characters:.4f} bits per character of {characters}")


if __name__ == "__main__":
    main()
