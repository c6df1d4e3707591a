// augment_feed.h: how training samples vary and mix, as data.augmentation says.  It is a part of
// feed_of.cc with the errors that they share.  Pure functions.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/training/run_shape.h"
#include "models/schema/net.pb.h"
#include "models/schema/parse.h"
#include "models/schema/trainer.pb.h"

namespace gyre {

// A feed that is being made.
struct FeedDraft {
  const Parsed<NetConfig>& net;
  const Parsed<TrainerConfig>& trainer;
  const DataConfig& data = trainer.message->data();
  Feed feed = {};
  std::vector<std::string> no_bytes = {};  // inputs that a data set does not feed with bytes

  // InvalidArgument with the position of a field.
  template <typename... Args>
  absl::Status Error(const google::protobuf::Message& at, const char* field,
                     const absl::FormatSpec<Args...>& what, const Args&... args) const {
    return absl::InvalidArgumentError(
        absl::StrCat(trainer.source->Where(at, field), ": ", absl::StrFormat(what, args...)));
  }
  // The input of this name, which `who` names.  Errors: Error.
  absl::StatusOr<FedInput*> Find(const std::string& name, const google::protobuf::Message& at,
                                 const char* field, const std::string& who);
  // The input of this name, or null.
  FedInput* FedOf(const std::string& name);
  const google::protobuf::RepeatedField<int64_t>& Dims(const FedInput& fed) const {
    return net.message->input(static_cast<int>(&fed - feed.inputs.data())).dims();
  }
};

// Sets what varies in a feed that has its inputs and their normalization.  Errors: Error.
absl::Status AugmentFeed(FeedDraft& draft);

}  // namespace gyre
