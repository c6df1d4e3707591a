// mix.h: how a training sample is mixed with another.  A mix depends on the draw alone.  Pure
// functions.  Any thread.
// Sources: Zhang et al. 2018, arXiv:1710.09412 (mixup); Yun et al. 2019, arXiv:1905.04899 (cutmix).
#pragma once

#include <cstdint>

#include "engine/data/sample_draw.h"
#include "engine/runtime/tensor.h"

namespace gyre {

// Probabilities of each, 0: off, and parameters of Beta(alpha, alpha).
struct Mixing {
  double mixup = 0, mixup_alpha = 1;
  double cutmix = 0, cutmix_alpha = 1;
  int64_t height = 0, width = 0;  // of the pictures

  bool any() const { return mixup > 0 || cutmix > 0; }
};

struct Mix {
  bool mixes = false;
  // Of the sample itself, in values and labels.  A multiple of 2^-16 without a window.
  double share = 1;
  bool window = false;  // pixels in it are the other's.  Else all are means, weighed by the share
  int64_t top = 0, left = 0, bottom = 0, right = 0;
};

// The mix of the sample at a draw's position.  With both kinds on, each sample draws one of the
// two. Source: torchvision's v2 MixUp and CutMix, whose window is cut at the picture's border.
Mix MixAt(const Mixing& mixing, const SampleDraw& draw);

// A deviate of Beta(alpha, alpha), from 0 to 1.  Precondition: alpha > 0.
double SymmetricBeta(const SampleDraw& draw, double alpha);

// sample <- the mix of a picture [H, W, C] with the other's, of equal shape.  Means of bytes are
// rounded to nearest.
void MixPicture(const Mix& mix, const Tensor& other, const Tensor& sample);
// sample <- the means of reals of any shape, weighed by the share.
void MixValues(double share, const Tensor& other, const Tensor& sample);

}  // namespace gyre
