// max_and_exp_sum.h: what a softmax reduces a row to in one pass: its largest score and the sum of
// exponentials relative to that.  The functor that reduces defines Combine and Finish.
//
// Source: Milakov & Gimelshein 2018, arXiv:1805.02867, Alg. 3.
#pragma once

namespace gyre {

template <typename A>
struct MaxAndExpSum {
  A largest, sum;  // sum: of exp(score - largest)
};

}  // namespace gyre
