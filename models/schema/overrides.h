// overrides.h: applies "path=value" to a parsed message, and records the fields touched.  A pure
// edit of the message.  validate.h judges the result.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/message.h"
#include "models/schema/parse.h"

namespace gyre {

// A field that an override set, or (field empty) a message that it made.  The address serves as a
// key alone, since a later override may have replaced the message.
struct Touched {
  const google::protobuf::Message* message;
  std::string field;
  std::string override;  // as the user wrote it: "--set batch=0"
};

// Sets one field of a message by reflection.
//   "learning_rate.base", "0.1"
//   "layer.conv1.conv2d.filters", "32"  A repeated message is addressed by name field or index,
//   "data.normalization.mean", "0.3"    which may be left out where there is one or none
//   "kernel", "3,5"                     A repeated scalar is replaced
//   "learning_rate.constant", "{}"      Makes an empty message
// Makes absent messages, which switches a oneof, except a layer's type, which stays.  Appends to
// `touched` what it set and made, as of `override`.
// Errors: InvalidArgument naming the path's unknown segment (with choices or "did you mean"), the
// value and the expected type, or a layer's type.  The message is then unusable.
absl::Status Set(google::protobuf::Message& root, absl::string_view path, absl::string_view value,
                 absl::string_view override, std::vector<Touched>* touched);

// Applies the overrides in turn.  `prefix` ("net." or "") was taken off each path.  Errors show the
// user's words, from `spellings` or as `--set net.layer.c.filters=1: unknown field ...`.
absl::Status ApplyOverrides(std::span<const std::string> overrides, absl::string_view prefix,
                            const Spellings& spellings, google::protobuf::Message& message,
                            std::vector<Touched>* touched);

}  // namespace gyre
