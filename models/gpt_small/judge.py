#!/usr/bin/env python3
"""What gpt_small and lstm_lm_small are measured by: an interpolated modified Kneser-Ney model of
order 5.

    bible -f gen1:1-rev22:21 | models/gpt_small/judge.py [WORDS]

prints its bits per character of the test books, of the characters that gpt_small has to say: all but
a book's first; or, where so many words are known, its perplexity, of the same tokens as those of the
data set `text`.  Source: Chen & Goodman 1998, "An empirical study of smoothing techniques for language
modeling", section 4; below the unigrams all codes are equally likely.
"""

import math
import re
import sys
from collections import Counter, defaultdict

from characters import ALPHABET, split

ORDER = 5
START = bytes(ORDER - 1)  # lines' ends; of words `<unk>`, which no text begins with


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
    """Grams of 1 to ORDER characters or words."""
    counts = Counter()
    for book in books:
        text = type(book)(START) + book
        counts.update(text[i:i + ORDER] for i in range(len(book)))
    model = [Grams(counts)]
    while len(model) < ORDER:
        counts = Counter(gram[1:] for gram in counts)
        model.insert(0, Grams(counts))
    return model


def probability(model, gram, codes=len(ALPHABET)):
    """Of the last of ORDER characters or words, where there are so many."""
    p = 1 / codes
    for length, grams in enumerate(model, 1):
        suffix = gram[ORDER - length:]
        total = grams.total.get(suffix[:-1])
        if total is None:  # nor is any longer history known
            return p
        count = grams.counts.get(suffix, 0)
        p = (count - grams.discounts[min(count, 3)] + grams.taken[suffix[:-1]] * p) / total
    return p


def words(books):
    """The words of texts of codes."""
    for book in books:
        text = "".join(ALPHABET[code] for code in book).replace("\n", " <eos> ")
        yield re.findall(r"<eos>|[A-Za-z']+|[^\s]", text)


def numbered(training, testing, known):
    """Books of words as tuples of their numbers; 0 is any that is not among the most frequent."""
    counts = Counter(word for book in training for word in book)
    frequent = sorted(counts, key=lambda word: (-counts[word], word))[:known - 1]
    numbers = {word: i for i, word in enumerate(frequent, 1)}
    return ([tuple(numbers.get(word, 0) for word in book) for book in part]
            for part in (training, testing))


def main():
    training, testing = split(sys.stdin)
    codes = len(ALPHABET)
    if len(sys.argv) > 1:
        codes = int(sys.argv[1])
        training, testing = numbered(list(words(training)), list(words(testing)), codes)
    model = train(training)
    bits = count = 0
    for book in testing:
        text = type(book)(START) + book
        for i in range(1, len(book)):
            bits -= math.log2(probability(model, text[i:i + ORDER], codes))
        count += len(book) - 1
    if len(sys.argv) > 1:
        print(f"perplexity {2 ** (bits / count):.2f} of words, {count}")
    else:
        print(f"{bits / count:.4f} bits per character of {count}")


if __name__ == "__main__":
    main()
