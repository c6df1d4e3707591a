"""splitmix64, which makes cases, and Philox, by which Gyre orders samples and drops out.

Sources: Steele, Lea, Flood 2014; Salmon et al. 2011.
"""

_M32 = 0xFFFFFFFF


class Numbers:
    """splitmix64: the same numbers in every version of Python."""

    def __init__(self, seed):
        self.state = seed

    def bits(self):
        self.state = (self.state + 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF
        z = self.state
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & 0xFFFFFFFFFFFFFFFF
        z = (z ^ z >> 27) * 0x94D049BB133111EB & 0xFFFFFFFFFFFFFFFF
        return z ^ z >> 31

    def below(self, bound):
        return self.bits() * bound >> 64

    def between(self, first, last):
        return first + self.below(last - first + 1)

    def pick(self, values):
        return values[self.below(len(values))]

    def chance(self, percent):
        return self.below(100) < percent


def philox(key, high, low):
    k0, k1 = key & _M32, key >> 32
    c0, c1, c2, c3 = low & _M32, low >> 32, high & _M32, high >> 32
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = p1 >> 32 ^ c1 ^ k0, p1 & _M32, p0 >> 32 ^ c3 ^ k1, p0 & _M32
        k0, k1 = k0 + 0x9E3779B9 & _M32, k1 + 0xBB67AE85 & _M32
    return c0, c1, c2, c3


def random_key(seed, purpose):
    code = 0xCBF29CE484222325
    for byte in purpose.encode():
        code = (code ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    words = philox(seed, len(purpose), code)
    # The mixed key is words 1 and 0; see RandomKey in engine/runtime/random.h.
    return words[1] << 32 | words[0]


def sample_order(size, seed, count):
    key, order = random_key(seed, "sample order"), []
    for epoch in range(-(-count // size)):
        permutation = list(range(size))
        for i in range(size - 1, 0, -1):
            words = philox(key, epoch, i)
            j = (words[0] << 32 | words[1]) * (i + 1) >> 64
            permutation[i], permutation[j] = permutation[j], permutation[i]
        order += permutation
    return order[:count]


def divisors(number):
    return [d for d in range(1, number + 1) if number % d == 0]
