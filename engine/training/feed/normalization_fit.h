// normalization_fit.h: normalization by means and deviations of the training samples, which
// NormalizationConfig.auto asks for.  Pure functions.  Any thread.
//
// The text normalization.txt of a fit has a line for each channel of each such input:
//   INPUT TAB CHANNEL TAB MEAN TAB STD
#pragma once

#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/data/batches/decoder.h"
#include "engine/data/sets/dataset.h"
#include "engine/training/run_shape.h"
#include "models/schema/net.pb.h"
#include "models/schema/trainer.pb.h"

namespace gyre {

inline constexpr char kNormalizationFile[] = "normalization.txt";

// A warning about weights trained with auto where the trainer's text has no auto.
inline constexpr char kOtherNormalization[] =
    "its inputs were normalized by its training samples, and those here are not; write "
    "normalization { auto: true }";

// The extent of an input's last axis, or 1.
int64_t ChannelsOf(const google::protobuf::RepeatedField<int64_t>& dims);
// The net input that a setting is of.
const std::string& InputOf(const NormalizationConfig& config, const DataConfig& data);
// Whether some setting is auto.
bool HasAuto(const DataConfig& data);

// Reads 10,000 samples of data.train, evenly spread, or all if there are fewer.  The std of a
// channel whose values are equal is 1.  A channel of reals that are 0 or 1 is left as it is: else
// the 1 of a rare word would be large.  Appends notes for people.
// Precondition: an array of bytes or reals feeds each input that a setting is of.
// Errors: those of StatisticsOf.
absl::StatusOr<std::string> MakeNormalization(const DataConfig& data, const Dataset& training,
                                              std::vector<std::string>& notes);

// Errors: InvalidArgument for a text that lacks the input, or has other channels or no numbers.
absl::StatusOr<Normalization> ParseNormalization(const std::string& text, const std::string& input,
                                                 int64_t channels);

// Of a setting that is not auto.
Normalization StatedNormalization(const NormalizationConfig& config);

// How the data normalize an input, which `net` has.  `fit` is that of the weights.
// Errors: those of ParseNormalization.
absl::StatusOr<Normalization> NormalizationOf(const DataConfig& data, const Fit& fit,
                                              const NetConfig& net, const std::string& input);

// Undoes it.  `values` are rows of the input's channels.
void Unnormalize(const Normalization& normalization, std::span<double> values);

// For people, such as `normalization of the training samples: "image" by mean 0.286, std 0.353`.
std::string DescribeNormalization(const DataConfig& data, const Feed& feed);

}  // namespace gyre
