// overrides.h: "path=value" on top of a parsed message, and what each one touched.  A pure edit of
// the message: whether the result makes sense is validate.h's question.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/message.h"
#include "models/schema/parse.h"

namespace gyre {

// A field that an override set, or (field empty) a message that it made.  The address is good for
// looking up, not for reading: a later override may have replaced the message.
struct Touched {
  const google::protobuf::Message* message;
  std::string field;
  std::string override;  // as the user wrote it: "--set batch=0"
};

// SetField of parse.h without the path in its errors.  `touched` may be null; `override` is what it
// says of each field.
absl::Status Set(google::protobuf::Message& root, absl::string_view path, absl::string_view value,
                 absl::string_view override, std::vector<Touched>* touched);

// Applies the overrides in turn.  `prefix` is what was taken off each path ("net." or nothing), so
// that errors show the user's own words: `--set net.layer.c.filters=1: unknown field ...`, or those
// of `spellings`.
absl::Status ApplyOverrides(std::span<const std::string> overrides, absl::string_view prefix,
                            const Spellings& spellings, google::protobuf::Message& message,
                            std::vector<Touched>* touched);

}  // namespace gyre
