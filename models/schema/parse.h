// parse.h: reads a model's text files and says precisely what is wrong with them.
//
// Errors are InvalidArgument (NotFound for a missing file) of the form
//   lenet.textproto:14:3: layer "conv1": unknown field "kernal"; did you mean "kernel"?
#pragma once

#include <memory>
#include <span>
#include <string>

#include "absl/status/statusor.h"
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

// Parses, applies the overrides, and checks what can be known without data or other files: required
// fields, ranges, names (unique, non-empty), one type a layer.
absl::StatusOr<Parsed<NetConfig>> ParseNet(const std::string& path,
                                           std::span<const std::string> overrides = {});
absl::StatusOr<Parsed<NetConfig>> ParseNetText(std::string_view text, const std::string& file,
                                               std::span<const std::string> overrides = {});
absl::StatusOr<Parsed<TrainerConfig>> ParseTrainer(const std::string& path,
                                                   std::span<const std::string> overrides = {});
absl::StatusOr<Parsed<TrainerConfig>> ParseTrainerText(std::string_view text,
                                                       const std::string& file,
                                                       std::span<const std::string> overrides = {});

// Sets one field of a message by reflection: "learning_rate.base=0.1".  A repeated message is
// addressed by its name field or index: "layer.conv1.conv2d.filters=32".  Setting a repeated scalar
// replaces it: "kernel=3,5".  Sub-messages that are absent are made.
// Errors: InvalidArgument naming the path, the segment that does not exist, the choices there, and
// "did you mean"; or the value and the type expected.
absl::Status SetField(google::protobuf::Message& message, std::string_view path,
                      std::string_view value);

// Overrides "path=value" that belong to the net start with "net.layer." or "net.input."; they go to
// the net with "net." taken off, the others to the trainer.
struct SplitOverrides {
  std::vector<std::string> trainer, net;
};
absl::StatusOr<SplitOverrides> Split(std::span<const std::string> overrides);

// The candidate nearest to `word` (edit distance <= 1 + a third of its length), or "".
std::string DidYouMean(std::string_view word, std::span<const std::string> candidates);

// `path` as seen from the folder of `file`; absolute paths as they are.
std::string RelativeTo(const std::string& file, const std::string& path);

}  // namespace gyre
