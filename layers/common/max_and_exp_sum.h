// max_and_exp_sum.h: the result of a softmax's one pass over a row, with its largest score and the
// sum of exponentials relative to it.  The functor that reduces defines Combine and Finish.
//
// Source: Milakov & Gimelshein 2018, arXiv:1805.02867, Alg. 3.
#pragma once

namespace gyre {

template <typename A>
struct MaxAndExpSum {
  A largest, sum;  // sum: of exp(score - largest)
};

}  // namespace gyre
