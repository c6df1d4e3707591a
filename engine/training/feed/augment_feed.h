// augment_feed.h: how training samples vary and mix, as data.augmentation says.  It is a part of
// feed_of.cc with the errors that they share.  Pure functions.
#pragma once

#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "engine/training/run_shape.h"
#include "models/schema/net.pb.h"
#include "models/schema/parse.h"
#include "models/schema/trainer.pb.h"

namespace gyre {

// Sets what varies in a feed that has its inputs and their normalization.  `no_bytes` are inputs
// that a data set does not feed with bytes.
// Errors: InvalidArgument with the position in the trainer's file.
absl::Status AugmentFeed(const Parsed<NetConfig>& net, const Parsed<TrainerConfig>& trainer,
                         std::span<const std::string> no_bytes, Feed& feed);

// InvalidArgument with the position of a field.
absl::Status ErrorAt(const Parsed<TrainerConfig>& trainer, const google::protobuf::Message& at,
                     const char* field, const std::string& what);
// The index of the feed's input of this name, which `who` names.
absl::StatusOr<size_t> FindInput(const Parsed<TrainerConfig>& trainer, const Feed& feed,
                                 const std::string& name, const google::protobuf::Message& at,
                                 const char* field, const std::string& who);

}  // namespace gyre
