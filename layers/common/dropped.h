// dropped.h: dropout.  Zeroes each element with probability `rate` and scales the others by
// 1 / (1 - rate).
//
// Backward computes the mask again.  An element's bits depend on (key, step, position of its sample
// in the endless sample order, element).  So they are the same on every device and rank count.
// Source: Srivastava et al. 2014, "Dropout: a simple way to prevent neural networks from
// overfitting", JMLR 15, in the inverted form.
#pragma once

#include "engine/runtime/math.h"
#include "engine/runtime/parallel/parallel.h"
#include "engine/runtime/random.h"
#include "layers/interface/layer.h"

namespace gyre {

constexpr int kDroppedWords = 4;  // elements that one Philox call serves

// Masks `from` into `to`, both [outer, N, inner], in groups of kDroppedWords elements of a sample.
// Element e of a sample is at [e / inner, sample, e % inner].  With kWhole, outer is 1 and
// kDroppedWords divides sample_elements.  Then groups are contiguous and their loop is vectorised.
template <typename T, bool kWhole>
struct DropElements {
  uint64_t key;
  uint32_t drop_below;
  AccumulateType<T> scale;
  int64_t sample_elements, sample_groups, samples, inner;
  const BatchPosition* position;
  const T* from;
  T* to;

  HOST_DEVICE void operator()(int64_t i) const {
    // Groups are counted through all samples.
    const uint64_t first = position->first_sample * static_cast<uint64_t>(sample_groups);
    const RandomBits bits = Philox(key, position->step, first + static_cast<uint64_t>(i));
    if constexpr (kWhole) {
      const int64_t at = i * kDroppedWords;
      Put(bits.v[0], at);
      Put(bits.v[1], at + 1);
      Put(bits.v[2], at + 2);
      Put(bits.v[3], at + 3);
    } else {
      const int64_t begin = i % sample_groups * kDroppedWords, sample = i / sample_groups;
      for (int word = 0; word < kDroppedWords && begin + word < sample_elements; ++word) {
        const int64_t e = begin + word;
        Put(bits.v[word], (e / inner * samples + sample) * inner + e % inner);
      }
    }
  }

  HOST_DEVICE void Put(uint32_t bits, int64_t at) const {
    const AccumulateType<T> kept = scale * from[at];  // read in any case: no branch
    to[at] = static_cast<T>(bits < drop_below ? 0 : kept);
  }
};

struct Dropped {
  double rate = 0;  // below 1
  uint64_t key = 0;
  int64_t samples = 0, sample_elements = 1, inner = 1;

  // Forward of x, and backward of dy.  May work in place.  Enqueues on stream.
  template <typename T>
  absl::Status Apply(Stream& stream, const BatchPosition* position, const T* from, T* to) const {
    const bool whole = inner == sample_elements && sample_elements % kDroppedWords == 0;
    return whole ? Apply<T, true>(stream, position, from, to)
                 : Apply<T, false>(stream, position, from, to);
  }

 private:
  template <typename T, bool kWhole>
  absl::Status Apply(Stream& stream, const BatchPosition* position, const T* from, T* to) const {
    const int64_t groups = CeilDiv<int64_t>(sample_elements, kDroppedWords);
    // rate < 1, so the product is below 2^32.
    const auto drop_below = static_cast<uint32_t>(rate * 4294967296.0);
    return ForEach(
        stream, samples * groups,
        DropElements<T, kWhole>{key, drop_below, static_cast<AccumulateType<T>>(1 / (1 - rate)),
                                sample_elements, groups, samples, inner, position, from, to});
  }
};

}  // namespace gyre
