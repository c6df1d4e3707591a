// parse.cc: the way from a file to a checked message: read, parse, override, validate.
#include "models/schema/parse.h"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "google/protobuf/text_format.h"
#include "models/schema/blocks.h"
#include "models/schema/first_error.h"
#include "models/schema/near_file.h"
#include "models/schema/number.h"
#include "models/schema/overrides.h"
#include "models/schema/syntax_error.h"
#include "models/schema/text_encoding.h"
#include "models/schema/validate.h"

namespace gyre {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using google::protobuf::TextFormat;

// usual: the file's name in a model's folder.
absl::StatusOr<std::string> ReadFile(const std::string& path, const char* usual) {
  constexpr uintmax_t kMostBytes = uintmax_t{64} << 20;  // of some 500,000 layers
  std::error_code error;
  const auto type = std::filesystem::status(path, error).type();
  // A pipe would be waited for, a device read for ever.
  if (std::filesystem::exists(path, error) && type != std::filesystem::file_type::regular) {
    const bool folder = type == std::filesystem::file_type::directory;
    const std::filesystem::path there = std::filesystem::path(path) / usual;
    return absl::FailedPreconditionError(absl::StrCat(
        path, ": is a ", folder ? "folder" : "pipe or a device", ", not a model's file",
        std::filesystem::exists(there, error) ? absl::StrCat("; did you mean ", there.string(), "?")
                                              : ""));
  }
  if (const uintmax_t bytes = std::filesystem::file_size(path, error);
      !error && bytes > kMostBytes) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", bytes,
                                                   " bytes are too many for a model's text, which "
                                                   "has at most ",
                                                   kMostBytes));
  }
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (!file) return WithNearFile(absl::ErrnoToStatus(errno, path), path);
  // Inserting nothing sets failbit, which is no error for an empty file.
  if (file.peek() != std::ifstream::traits_type::eof()) text << file.rdbuf();
  if (file.bad() || text.fail()) return absl::ErrnoToStatus(errno != 0 ? errno : EIO, path);
  return std::move(text).str();
}

// Binary data, told by a control character: the parser would complain about a code point.
absl::Status CheckIsText(std::string_view text, const std::string& file) {
  int line = 1, column = 1;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (absl::ascii_iscntrl(byte) && !absl::ascii_isspace(byte)) {
      return absl::InvalidArgumentError(absl::StrCat(
          file, ":", line, ":", column, ": the byte 0x", absl::Hex(byte, absl::kZeroPad2),
          " is no text; expected a file in protobuf's text format"));
    }
    column = c == '\n' ? 1 : column + 1;
    line += c == '\n' ? 1 : 0;
  }
  return absl::OkStatus();
}

// `tree` is what the parser recorded of `message`.  Messages that overrides made have none.
void AddPositions(const Message& message, const TextFormat::ParseInfoTree& tree,
                  SourceMap* source) {
  const Reflection& reflection = *message.GetReflection();
  std::vector<const FieldDescriptor*> fields;
  reflection.ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    const bool repeated = field->is_repeated();
    const int count = repeated ? reflection.FieldSize(message, field) : 1;
    // A list "[1, 2]" has one position, so where there is one, positions and elements do not match:
    // the first position then stands for all.
    const bool listed = repeated && tree.GetLocation(field, count - 1).line < 0;
    for (int i = 0; i < count; ++i) {
      const int index = repeated ? i : -1;
      const auto location = tree.GetLocation(field, listed ? 0 : index);
      if (location.line < 0) break;  // an override made it
      source->Add(message, field->name(), i, location.line + 1, location.column + 1);
      if (field->message_type() == nullptr) continue;
      const Message& child = repeated ? reflection.GetRepeatedMessage(message, field, i)
                                      : reflection.GetMessage(message, field);
      source->AddMessage(child, location.line + 1, location.column + 1);
      if (const auto* nested = tree.GetTreeForNested(field, index)) {
        AddPositions(child, *nested, source);
      }
    }
  }
}

// Overrides of what the text says, and those of layers that come out of blocks.
struct OrderedOverrides {
  std::vector<std::string> first, later;
};
OrderedOverrides SplitByBlocks(std::span<const std::string> overrides, const Message& message) {
  OrderedOverrides split;
  const auto* net = dynamic_cast<const NetConfig*>(&message);
  for (const std::string& override : overrides) {
    const std::vector<std::string> path = absl::StrSplit(override, absl::ByAnyChar(".="));
    const bool of_layer = path.size() > 2 && path[0] == "layer" && net != nullptr;
    const bool of_text =
        !of_layer || net->block_size() == 0 || std::ranges::all_of(path[1], absl::ascii_isdigit) ||
        std::ranges::any_of(net->layer(), [&](const auto& l) { return l.name() == path[1]; });
    (of_text ? split.first : split.later).push_back(override);
  }
  return split;
}

// `prefix`: what Split takes off the paths of this message's overrides.
template <typename Config>
absl::StatusOr<Parsed<Config>> ParseText(std::string_view text, const std::string& file,
                                         std::span<const std::string> overrides,
                                         absl::string_view prefix, const Spellings& spellings) {
  const auto unmarked = WithoutMark(text);
  if (!unmarked.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(file, ":1:1: ", unmarked.status().message()));
  }
  text = *unmarked;
  if (absl::Status status = CheckIsText(text, file); !status.ok()) return status;
  auto message = std::make_unique<Config>();
  TextFormat::ParseInfoTree tree;
  FirstError error;
  TextFormat::Parser parser;
  parser.WriteLocationsTo(&tree);
  parser.RecordErrorsTo(&error);
  google::protobuf::io::ArrayInputStream input(text.data(), static_cast<int>(text.size()));
  if (!parser.Parse(&input, message.get())) {
    absl::Status status = FindSyntaxError(text, file, *Config::descriptor());
    if (!status.ok()) return status;
    return absl::InvalidArgumentError(
        absl::StrCat(file, ":", error.line + 1, ":", error.column + 1, ": ", error.text));
  }
  if (absl::Status status = CheckNumbers(text, file); !status.ok()) return status;

  std::vector<Touched> touched;
  const auto [first, later] = SplitByBlocks(overrides, *message);
  absl::Status status = ApplyOverrides(first, prefix, spellings, *message, &touched);
  if (!status.ok()) return status;

  // Only now, since an override may free a message and another may get its address.
  auto source = std::make_shared<SourceMap>(file);
  source->AddMessage(*message, 1, 1);
  AddPositions(*message, tree, source.get());
  for (const Touched& t : touched) source->AddOverride(*t.message, t.field, t.override);

  if constexpr (std::is_same_v<Config, NetConfig>) {
    status = ExpandBlocks(*message, *source);
    if (!status.ok()) return status;
  }
  touched.clear();
  status = ApplyOverrides(later, prefix, spellings, *message, &touched);
  if (!status.ok()) return status;
  for (const Touched& t : touched) source->AddOverride(*t.message, t.field, t.override);

  status = Validate(*message, *source);
  if (!status.ok()) return status;
  return Parsed<Config>{std::move(message), std::move(source)};
}

}  // namespace

absl::StatusOr<Parsed<NetConfig>> ParseNetText(std::string_view text, const std::string& file,
                                               std::span<const std::string> overrides,
                                               const Spellings& spellings) {
  return ParseText<NetConfig>(text, file, overrides, "net.", spellings);
}

absl::StatusOr<Parsed<NetConfig>> ParseNet(const std::string& path,
                                           std::span<const std::string> overrides,
                                           const Spellings& spellings) {
  absl::StatusOr<std::string> text = ReadFile(path, "net.textproto");
  if (!text.ok()) return text.status();
  return ParseNetText(*text, path, overrides, spellings);
}

absl::StatusOr<Parsed<TrainerConfig>> ParseTrainerText(std::string_view text,
                                                       const std::string& file,
                                                       std::span<const std::string> overrides,
                                                       const Spellings& spellings) {
  return ParseText<TrainerConfig>(text, file, overrides, "", spellings);
}

absl::StatusOr<Parsed<TrainerConfig>> ParseTrainer(const std::string& path,
                                                   std::span<const std::string> overrides,
                                                   const Spellings& spellings) {
  absl::StatusOr<std::string> text = ReadFile(path, "trainer.textproto");
  if (!text.ok()) return text.status();
  return ParseTrainerText(*text, path, overrides, spellings);
}

std::string RelativeTo(const std::string& file, const std::string& path) {
  return (std::filesystem::path(file).parent_path() / path).string();
}

}  // namespace gyre
