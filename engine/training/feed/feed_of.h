// feed_of.h: how arrays of a data set become a net's inputs, as the texts say.  Pure functions.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "engine/data/sets/dataset.h"
#include "engine/runtime/device/device.h"
#include "engine/training/run_shape.h"
#include "models/schema/parse.h"
#include "models/schema/trainer.pb.h"

namespace gyre {

// Either data set may be null.  `normalization` is the text of a fit for settings that are auto.
// Without it their mean is 0 and their std 1.  Errors: InvalidArgument with the position in the
// net's or the trainer's file, for
//   a net input   that no array feeds
//   an array      that feeds no input, or has another shape or type than the input
//   a setting     normalization or augmentation that does not fit its input
absl::StatusOr<Feed> FeedOf(const Parsed<NetConfig>& net, const Parsed<TrainerConfig>& trainer,
                            const Dataset* train, const Dataset* test,
                            const std::string& normalization = "");
// The feed of a net with made-up data.  Real inputs are bytes that stand for -1 to 1.
Feed FeedOfBytes(const NetConfig& net);
// The feed of a net whose arrays have its inputs' values: reals, and integers of labels.
Feed FeedOfValues(const NetConfig& net);
// The same feed, with `ahead` set for the device.
Feed FeedOn(DeviceKind device, Feed feed);

// Whether an array of classes, integers [], feeds an input of reals [classes].
bool IsClassOf(const FedInput& fed, const Dataset& dataset);
// The index of the array that feeds a net's input, or the number of arrays.
size_t ArrayOf(const Dataset& dataset, const std::string& input);
// Whether its samples are pictures: reals [height, width, 1, 3 or 4].
bool IsPicture(const InputConfig& input);
// Whether some samples are padded to the length of others.
bool IsPadded(const Dataset& dataset);

// Layers whose last input may be the samples' weights, and whose first is what the net predicts.
inline bool IsLoss(const LayerConfig& layer) {
  return layer.has_softmax_cross_entropy() || layer.has_sigmoid_cross_entropy() ||
         layer.has_binary_cross_entropy() || layer.has_mean_squared_error() || layer.has_hinge() ||
         layer.has_binary_hinge() || layer.has_max_hinge() || layer.has_time_to_event();
}

}  // namespace gyre
