#include "engine/data/tensors/safetensors_header.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/runtime/check.h"

namespace gyre {
namespace {

using Json = nlohmann::json;

std::optional<DType> DTypeNamed(std::string_view name) {
  for (DType dtype : {DType::kF64, DType::kF32, DType::kF16, DType::kBF16, DType::kI32, DType::kI64,
                      DType::kU8}) {
    if (DTypeName(dtype) == name) return dtype;
  }
  return std::nullopt;
}

// One tensor's object as it stands in the header.
struct RawEntry {
  std::string name;
  std::optional<std::string> dtype;
  std::optional<std::vector<uint64_t>> shape, offsets;
};

// Follows the parser through
//   {"__metadata__": {KEY: STRING, ...}, NAME: {"dtype": STRING, "shape": [COUNT, ...],
//    "data_offsets": [COUNT, COUNT]}, ...}
// and stops it, with `problem`, at the first token that does not fit.
class HeaderReader : public nlohmann::json_sax<Json> {
 public:
  std::vector<RawEntry> entries;
  std::map<std::string, std::string> metadata;
  std::string problem;

  bool start_object(size_t) override {
    if (depth_ >= 2) return Unexpected("an object");
    if (depth_ == 1 && !InMetadata()) entries.emplace_back().name = name_;
    ++depth_;
    return true;
  }

  bool end_object() override {
    --depth_;
    return true;
  }

  bool key(string_t& key) override {
    if (depth_ == 1) {
      name_ = key;
      key_.clear();
      return names_.insert(key).second || Problem(absl::StrCat("\"", key, "\" is there twice"));
    }
    key_ = key;
    if (InMetadata()) {
      return metadata.try_emplace(key).second || Problem(absl::StrCat(Where(), " is there twice"));
    }
    const RawEntry& entry = entries.back();
    const bool again = (key == "dtype" && entry.dtype) || (key == "shape" && entry.shape) ||
                       (key == "data_offsets" && entry.offsets);
    return !again || Problem(absl::StrCat(Where(), " is there twice"));
  }

  bool string(string_t& value) override {
    if (depth_ == 2 && InMetadata()) {
      metadata[key_] = value;
    } else if (depth_ == 2 && key_ == "dtype") {
      entries.back().dtype = value;
    } else {
      return Unexpected("a string");
    }
    return true;
  }

  bool start_array(size_t) override {
    if (depth_ != 2 || InMetadata()) return Unexpected("an array");
    if (key_ == "shape") {
      array_ = &entries.back().shape.emplace();
    } else if (key_ == "data_offsets") {
      array_ = &entries.back().offsets.emplace();
    } else {
      return Unexpected("an array");
    }
    ++depth_;
    return true;
  }

  bool end_array() override {
    --depth_;
    return true;
  }

  bool number_unsigned(number_unsigned_t value) override {
    if (depth_ != 3) return Unexpected("a number");
    array_->push_back(value);
    return true;
  }

  bool null() override { return Unexpected("null"); }
  bool boolean(bool) override { return Unexpected("a boolean"); }
  bool number_integer(number_integer_t) override { return Unexpected("a negative number"); }
  bool number_float(number_float_t, const string_t&) override {
    return Unexpected("a number that is not a 64-bit integer");
  }
  bool binary(binary_t&) override { return Unexpected("binary"); }
  bool parse_error(size_t position, const std::string&, const Json::exception&) override {
    return Problem(absl::StrCat("not valid JSON at byte ", position));
  }

 private:
  bool InMetadata() const { return name_ == kSafetensorsMetadata; }

  std::string Where() const {
    if (depth_ == 0) return "the top";
    return key_.empty() ? absl::StrCat("\"", name_, "\"")
                        : absl::StrCat("\"", name_, "\", key \"", key_, "\"");
  }

  bool Problem(std::string what) {
    problem = std::move(what);
    return false;
  }
  bool Unexpected(const char* what) {
    return Problem(absl::StrCat("unexpected ", what, " at ", Where()));
  }

  int depth_ = 0;           // 1: names, 2: a tensor's or the metadata's keys, 3: an array
  std::string name_, key_;  // the last of each
  std::set<std::string> names_;
  std::vector<uint64_t>* array_ = nullptr;  // being filled
};

absl::Status Broken(const std::string& name, const std::string& what) {
  return absl::DataLossError(absl::StrCat("tensor \"", name, "\" ", what));
}

// The bytes of a shape; nothing if the extents' product, zeros aside, is beyond int64.
std::optional<uint64_t> BytesOf(const std::vector<uint64_t>& shape, DType dtype) {
  int64_t product = static_cast<int64_t>(SizeOf(dtype));
  bool empty = false;
  for (uint64_t extent : shape) {
    empty |= extent == 0;
    if (__builtin_mul_overflow(product, std::max<uint64_t>(extent, 1), &product)) {
      return std::nullopt;
    }
  }
  return empty ? 0 : static_cast<uint64_t>(product);
}

absl::StatusOr<SafetensorsEntry> CheckEntry(const RawEntry& raw) {
  if (!raw.dtype || !raw.shape || !raw.offsets) {
    return Broken(raw.name, absl::StrCat("lacks ", !raw.dtype   ? "dtype"
                                                   : !raw.shape ? "shape"
                                                                : "data_offsets"));
  }
  if (raw.offsets->size() != 2 || (*raw.offsets)[0] > (*raw.offsets)[1]) {
    return Broken(raw.name, absl::StrCat("has data_offsets [", absl::StrJoin(*raw.offsets, ", "),
                                         "], expected a first and a last"));
  }
  const uint64_t first = (*raw.offsets)[0], last = (*raw.offsets)[1];
  SafetensorsEntry entry{.name = raw.name, .first = first, .last = last};
  const std::optional<DType> dtype = DTypeNamed(*raw.dtype);
  if (!dtype) {
    entry.unreadable = absl::StrCat("has the unknown dtype \"", *raw.dtype, "\"");
    return entry;
  }
  const std::optional<uint64_t> bytes = BytesOf(*raw.shape, *dtype);
  if (!bytes || *bytes != last - first) {
    return Broken(raw.name,
                  absl::StrCat("of ", *raw.dtype, " [", absl::StrJoin(*raw.shape, ", "), "] takes ",
                               bytes ? absl::StrCat(*bytes) : "more than 2^63",
                               " bytes, but its data_offsets span ", last - first));
  }
  if (raw.shape->size() > Shape::kMaxRank) {
    entry.unreadable =
        absl::StrCat("has ", raw.shape->size(), " extents, more than ", Shape::kMaxRank);
    return entry;
  }
  const std::vector<int64_t> dims(raw.shape->begin(), raw.shape->end());
  entry.dtype = *dtype;
  entry.shape = Shape(std::span<const int64_t>(dims));
  return entry;
}

}  // namespace

absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(std::string_view text,
                                                         uint64_t data_bytes) {
  if (text.empty() || text[0] != '{') {
    return absl::DataLossError("the header does not begin with '{'");
  }
  HeaderReader reader;
  if (!Json::sax_parse(text, &reader)) {
    return absl::DataLossError(absl::StrCat("broken header: ", reader.problem));
  }
  SafetensorsHeader header;
  header.metadata = std::move(reader.metadata);
  for (const RawEntry& raw : reader.entries) {
    ASSIGN_OR_RETURN(SafetensorsEntry entry, CheckEntry(raw));
    header.entries.push_back(std::move(entry));
  }
  std::sort(header.entries.begin(), header.entries.end(),
            [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
              return std::tie(a.first, a.last, a.name) < std::tie(b.first, b.last, b.name);
            });
  uint64_t end = 0;  // of the entries so far
  for (const SafetensorsEntry& entry : header.entries) {
    if (entry.first != end) {
      return Broken(entry.name, absl::StrCat("begins at byte ", entry.first, ", but the data ",
                                             entry.first > end ? "before it ends at byte "
                                                               : "before it reaches to byte ",
                                             end));
    }
    end = entry.last;
  }
  if (end != data_bytes) {
    return absl::DataLossError(absl::StrCat("the tensors take ", end, " bytes, but the file holds ",
                                            data_bytes, " after its header"));
  }
  return header;
}

}  // namespace gyre
