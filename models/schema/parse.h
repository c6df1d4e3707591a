// parse.h: reads a model's text files and reports precisely where they are wrong.
//
// Errors: NotFound for a missing file, and InvalidArgument, also for a pipe, a device and more than
// 64 MiB, of the form
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
#include "models/schema/describe.h"  // IWYU pragma: export (DidYouMean)
#include "models/schema/net.pb.h"
#include "models/schema/source_map.h"

namespace gyre {

class TrainerConfig;  // of trainer.pb.h, for whoever has one

// A message with the positions of its fields.  Its address is the key of positions, hence stable.
template <typename Message>
struct Parsed {
  std::unique_ptr<Message> message;
  std::shared_ptr<const SourceMap> source;
};

// Overrides that the user did not write as "--set OVERRIDE", such as "batch=0" by "--batch=0".
using Spellings = std::map<std::string, std::string>;

// Parses, applies the overrides (as Split returns them, with the paths that overrides.h describes),
// and checks all that needs no data or other files.  The checks cover required fields, the
// trainer's ranges, finite numbers, one type a layer, and names (unique, non-empty, of allowed
// characters).  A layer's Infer checks its own ranges.  An error about an overridden field names
// the override as the user wrote it, as in
// `--set batch=0: batch must be >= 1, got 0`.
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

// Splits overrides into those of the net, which start with "net." (taken off), and the trainer's.
struct SplitOverrides {
  std::vector<std::string> trainer, net;
};
SplitOverrides Split(std::span<const std::string> overrides);

// `path` relative to the folder of `file`.  An absolute path stays.
std::string RelativeTo(const std::string& file, const std::string& path);

}  // namespace gyre
