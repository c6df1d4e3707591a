// batch_loader_options.h: what a batch loader loads, and how samples vary.  Plain data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "engine/data/batches/augmentation.h"
#include "engine/data/batches/decoder.h"
#include "engine/data/batches/mix.h"
#include "engine/data/batches/sample_classes.h"
#include "engine/data/pictures/pixel_changes.h"
#include "engine/runtime/dtype.h"

namespace gyre {

struct LoadedArray {
  // Index in the data set.  With `weight`: or the number of its arrays, for a 1 for each sample.
  size_t array = 0;
  DType dtype = DType::kF32;
  Normalization normalization = {};
  // Varies by its position.  Only pictures [H, W, C] and masks [H, W] are moved and changed.
  bool augmented = false;
  // Mixed with another sample: pictures of augmented arrays, and reals of others.
  bool mixed = false;
  // Above 0: a class, an integer [], becomes reals [classes], 1 at the class and else 0.
  int64_t classes = 0;
  bool weight = false;  // a real [], multiplied by the weight of the sample's class
};

struct BatchLoaderOptions {
  std::vector<LoadedArray> arrays;  // at least one
  Augmentation augmentation = {};
  PixelChanges changes = {};  // of bytes of augmented arrays
  Mixing mixing = {};         // of mixed arrays
  // By which samples are weighed.  Null: all classes weigh alike.
  std::shared_ptr<const SampleClasses> weighed_by = {};
  uint64_t seed = 1;           // of augmentation and mixing
  int64_t first_position = 0;  // of this rank's first sample in the endless order
  int64_t count = 0;           // samples a batch on this rank, >= 0
  int64_t advance = 0;         // positions from one batch to the next, the global batch
  int depth = 3;               // batches in flight, >= 2
  int workers = 1;             // threads that decode, >= 1
};

}  // namespace gyre
