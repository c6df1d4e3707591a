// parse.h: reads a model's text files and says precisely what is wrong with them.
//
// Errors are InvalidArgument (NotFound for a missing file; a pipe, a device and more than 64 MiB
// are no model) of the form
//   lenet.textproto:14:3: layer "conv1": unknown field "kernal"; did you mean "kernel"?
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "google/protobuf/message.h"
#include "models/schema/describe.h"  // IWYU pragma: export (DidYouMean)
#include "models/schema/net.pb.h"
#include "models/schema/source_map.h"
#include "models/schema/trainer.pb.h"

namespace gyre {

// A message with the positions of its fields.  The message's address is stable, since positions are
// keyed by it.
template <typename Message>
struct Parsed {
  std::unique_ptr<Message> message;
  std::shared_ptr<const SourceMap> source;
};

// How the user wrote an override, where that was not "--set OVERRIDE": "batch=0" by "--batch=0".
using Spellings = std::map<std::string, std::string>;

// Parses, applies the overrides (as Split hands them out), and checks what can be known without
// data or other files: required fields, the trainer's ranges, finite numbers, names (unique,
// non-empty, of few characters), one type a layer.  A layer's own ranges are its Infer's affair. An
// error about a field that an override set names the override as the user wrote it: `--set batch=0:
// batch must be >= 1, got 0`.  Both read numbers by one rule (number.h).
absl::StatusOr<Parsed<NetConfig>> ParseNet(const std::string& path,
                                           std::span<const std::string> overrides = {},
                                           const Spellings& spellings = {});
absl::StatusOr<Parsed<NetConfig>> ParseNetText(std::string_view text, const std::string& file,
                                               std::span<const std::string> overrides = {},
                                               const Spellings& spellings = {});
absl::StatusOr<Parsed<TrainerConfig>> ParseTrainer(const std::string& path,
                                                   std::span<const std::string> overrides = {},
                                                   const Spellings& spellings = {});
absl::StatusOr<Parsed<TrainerConfig>> ParseTrainerText(std::string_view text,
                                                       const std::string& file,
                                                       std::span<const std::string> overrides = {},
                                                       const Spellings& spellings = {});

// Sets one field of a message by reflection: "learning_rate.base", "0.1".  A repeated message is
// addressed by its name field or index: "layer.conv1.conv2d.filters", "32"; where there is one, or
// none yet, neither need be said: "data.normalization.mean", "0.3".  Setting a repeated
// scalar replaces it: "kernel", "3,5".  Sub-messages that are absent are made, which switches a
// oneof, but for a layer's type, which stays; the value "{}" makes one empty:
// "learning_rate.constant", "{}".
// Errors: InvalidArgument naming the path, the segment that does not exist, the choices there or
// "did you mean"; the value and the type expected; or a layer's type.  The message is then of no
// use.
absl::Status SetField(google::protobuf::Message& message, std::string_view path,
                      std::string_view value);

// Overrides "path=value" that start with "net." belong to the net and go there with "net." taken
// off, the others to the trainer.  Errors: InvalidArgument for one without a path or "=".
struct SplitOverrides {
  std::vector<std::string> trainer, net;
};
absl::StatusOr<SplitOverrides> Split(std::span<const std::string> overrides);

// `path` as seen from the folder of `file`; an absolute path as it is.
std::string RelativeTo(const std::string& file, const std::string& path);

}  // namespace gyre
