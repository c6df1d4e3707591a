#include "engine/api/array_list.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "engine/runtime/check.h"
#include "models/schema/describe.h"

namespace gyre {
namespace {

// More than any net has.  A larger number is no number.
constexpr size_t kMostArrays = 1 << 16;

std::string NameOf(int type) {
  switch (type) {
    case GYRE_F32:
      return "GYRE_F32";
    case GYRE_I32:
      return "GYRE_I32";
    case GYRE_U8:
      return "GYRE_U8";
    default:
      return absl::StrCat(type);
  }
}

size_t BytesOf(int type) { return type == GYRE_U8 ? 1 : 4; }

}  // namespace

ArrayList::ArrayList(std::vector<NetArray> arrays)
    : arrays_(std::move(arrays)), found_(arrays_.size()) {
  for (const NetArray& array : arrays_) {
    std::vector<const char*>& classes = classes_.emplace_back();
    for (const std::string& name : array.classes) classes.push_back(name.c_str());
    int64_t elements = 1;
    for (const int64_t extent : array.dims) elements *= extent;
    infos_.push_back({.name = array.name.c_str(),
                      .is_output = array.is_output,
                      .type = array.type,
                      .dims = array.dims.data(),
                      .rank = array.dims.size(),
                      .elements = elements,
                      .classes = nullptr,
                      .class_count = classes.size()});
  }
  for (size_t i = 0; i < infos_.size(); ++i) infos_[i].classes = classes_[i].data();
}

absl::Status ArrayList::Check(int64_t samples, size_t index, const gyre_array& given) const {
  const gyre_array_info& info = infos_[index];
  const bool bytes = !info.is_output && info.type == GYRE_F32;
  if (given.type != info.type && !(bytes && given.type == GYRE_U8)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("\"%s\": expected type %s%s, got %s", info.name, NameOf(info.type),
                        bytes ? " or GYRE_U8" : "", NameOf(given.type)));
  }
  // A division, because a product may be beyond any number.
  const size_t sample = static_cast<size_t>(info.elements) * BytesOf(given.type);
  if (given.bytes % sample != 0 || given.bytes / sample != static_cast<size_t>(samples)) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "\"%s\": expected %d times %d bytes, of [%s] in %s, got %d", info.name, samples, sample,
        absl::StrJoin(arrays_[index].dims, ", "), NameOf(given.type), given.bytes));
  }
  if (given.data == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("\"", info.name, "\": data is null"));
  }
  if (reinterpret_cast<uintptr_t>(given.data) % BytesOf(given.type) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", info.name, "\": data is not aligned to its elements"));
  }
  return absl::OkStatus();
}

absl::Status ArrayList::Match(int64_t samples, const gyre_array* given, size_t count,
                              std::span<const gyre_array* const>* found) {
  if (given == nullptr && count > 0) return absl::InvalidArgumentError("arrays: is null");
  if (count > kMostArrays) {
    return absl::InvalidArgumentError(
        absl::StrFormat("count: expected at most %d, got %d", arrays_.size(), count));
  }
  std::ranges::fill(found_, nullptr);
  for (size_t g = 0; g < count; ++g) {
    const char* const name = given[g].name;
    if (name == nullptr) {
      return absl::InvalidArgumentError(absl::StrFormat("array %d: name is null", g));
    }
    size_t index = 0;
    while (index < arrays_.size() && arrays_[index].name != name) ++index;
    if (index == arrays_.size()) {
      std::vector<std::string> names;
      for (const NetArray& array : arrays_) names.push_back(array.name);
      return absl::InvalidArgumentError(Unknown("array", name, names));
    }
    if (found_[index] != nullptr) {
      return absl::InvalidArgumentError(absl::StrCat("\"", name, "\": is given twice"));
    }
    RETURN_IF_ERROR(Check(samples, index, given[g]));
    found_[index] = &given[g];
  }
  for (size_t i = 0; i < arrays_.size(); ++i) {
    if (found_[i] != nullptr || arrays_[i].is_output) continue;
    return absl::InvalidArgumentError(absl::StrCat("\"", arrays_[i].name, "\": is missing"));
  }
  *found = found_;
  return absl::OkStatus();
}

}  // namespace gyre
