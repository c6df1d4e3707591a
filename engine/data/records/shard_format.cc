#include "engine/data/records/shard_format.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <span>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "engine/runtime/check.h"

namespace gyre {
namespace {

absl::Status OtherSize() {
  return absl::DataLossError("its arrays are not as large as the header says");
}

}  // namespace

absl::StatusOr<RecordLayout> RecordLayout::Of(const RecordSet& set) {
  const auto invalid = [](const std::string& what) { return absl::InvalidArgumentError(what); };
  if (set.array_size() == 0) return invalid("expected arrays in its header, got none");
  RecordLayout layout;
  for (const RecordSet::Array& array : set.array()) {
    Part& part = layout.parts_.emplace_back();
    part.file = array.content() != RecordSet::Array::VALUES;
    if (array.reset() && (part.file || array.dtype() != DTypeName(DType::kI32))) {
      return invalid(
          absl::StrFormat("expected resets of type I32 in its header, got \"%s\"", array.dtype()));
    }
    if (part.file) continue;
    const std::vector<int64_t> dims(array.dims().begin(), array.dims().end());
    constexpr DType kTypes[] = {DType::kU8, DType::kI32, DType::kF32, DType::kF64};
    const auto* const dtype =
        std::ranges::find_if(kTypes, [&](DType type) { return DTypeName(type) == array.dtype(); });
    const bool positive = std::ranges::all_of(dims, [](int64_t extent) { return extent >= 1; });
    if (dtype == std::end(kTypes) || dims.size() > Shape::kMaxRank || !positive ||
        !Shape(std::span<const int64_t>(dims)).IsCountable()) {
      return invalid(absl::StrFormat("expected values in its header, got type \"%s\" and dims [%s]",
                                     array.dtype(), absl::StrJoin(dims, ", ")));
    }
    part.dtype = *dtype;
    part.shape = Shape(std::span<const int64_t>(dims));
    part.bytes = static_cast<size_t>(part.shape.elements()) * SizeOf(part.dtype);
  }
  if (!set.has_indexed()) return layout;
  const int64_t indexed = set.indexed();
  if (indexed < 0 || indexed >= set.array_size() ||
      layout.parts_[static_cast<size_t>(indexed)].file ||
      layout.parts_[static_cast<size_t>(indexed)].bytes > sizeof(ShardEntry::indexed)) {
    return invalid(absl::StrCat("expected values of at most 4 bytes in its index, got array ",
                                indexed, " of its header"));
  }
  layout.parts_[static_cast<size_t>(indexed)].indexed = true;
  return layout;
}

absl::StatusOr<std::string_view> RecordLayout::Find(std::string_view sample, size_t array) const {
  std::string_view found;
  for (size_t i = 0; i < parts_.size(); ++i) {
    if (parts_[i].indexed) continue;
    size_t bytes = parts_[i].bytes;
    if (parts_[i].file) {
      uint32_t stored = 0;
      if (sample.size() < sizeof(stored)) return OtherSize();
      std::memcpy(&stored, sample.data(), sizeof(stored));
      sample.remove_prefix(sizeof(stored));
      bytes = stored;
    }
    if (sample.size() < bytes) return OtherSize();
    if (i == array) found = sample.substr(0, bytes);
    sample.remove_prefix(bytes);
  }
  if (!sample.empty()) return OtherSize();
  return found;
}

std::string ShardName(const RecordSet& set, int64_t shard) {
  return absl::StrFormat("%s-%05d-of-%05d.rec", set.name(), shard, set.shards());
}

}  // namespace gyre
