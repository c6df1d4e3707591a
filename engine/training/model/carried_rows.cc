// Carried rows in checkpoint files.  Each rank writes its own rows, a tensor for each state and
// batch of a step.  "lstm.hidden_l0[6:12]" has rows 6 to 11 of the step's rows.  Each rank reads
// the rows that it needs from any rank's file.

#include <algorithm>
#include <cstring>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/training/model/model.h"

namespace gyre {
namespace {

// Rows [first, last) of a state, as one tensor of the files.
struct RowSlice {
  int64_t first = 0, last = 0;
  std::string name;
};

// The slices of a state in the order of their rows, as files have them.
std::vector<RowSlice> ListSlices(const TensorFiles& files, const std::string& state) {
  std::vector<RowSlice> slices;
  const std::string begin = state + "[";
  for (auto entry = files.entries().lower_bound(begin);
       entry != files.entries().end() && entry->first.starts_with(begin); ++entry) {
    RowSlice slice{.name = entry->first};
    const std::string rows = slice.name.substr(begin.size());
    const size_t colon = rows.find(':');
    if (colon != rows.npos && rows.back() == ']' &&
        absl::SimpleAtoi(rows.substr(0, colon), &slice.first) &&
        absl::SimpleAtoi(rows.substr(colon + 1, rows.size() - colon - 2), &slice.last)) {
      slices.push_back(std::move(slice));
    }
  }
  std::ranges::sort(slices, {},
                    [](const RowSlice& slice) { return std::pair(slice.first, slice.last); });
  return slices;
}

// The same, if they are all rows, each once, as this net has them.
absl::StatusOr<std::vector<RowSlice>> SlicesOf(const TensorFiles& files,
                                               const Net::Carried& carried) {
  const Tensor& to = carried.rows;
  std::vector<RowSlice> slices = ListSlices(files, carried.name);
  if (slices.empty()) {
    return absl::NotFoundError(
        absl::StrFormat("it holds no rows of \"%s\", so it belongs to another net", carried.name));
  }
  int64_t end = 0;
  for (const RowSlice& slice : slices) {
    if (slice.first != end || slice.last < slice.first) {
      return absl::DataLossError(
          absl::StrFormat("rows of \"%s\" are missing, or there twice: %d is followed by \"%s\"",
                          carried.name, end, slice.name));
    }
    end = slice.last;
  }
  if (end != carried.all_rows) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "it holds %d rows of \"%s\", and a step of this run has %d (batch x accumulate), which go "
        "on "
        "from them one by one; keep the batch, or start a new run from its weights with --weights",
        end, carried.name, carried.all_rows));
  }
  for (const RowSlice& slice : slices) {
    const Shape expected = to.shape.With(carried.batch_axis, slice.last - slice.first);
    const TensorFiles::TensorEntry& entry = files.entries().find(slice.name)->second;
    if (entry.shape != expected || entry.dtype != to.dtype) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "its rows \"%s\" are %s %s, the net expects %s %s, so it belongs to another net or "
          "precision",
          slice.name, std::string(DTypeName(entry.dtype)), entry.shape.ToString(),
          std::string(DTypeName(to.dtype)), expected.ToString()));
    }
  }
  return slices;
}

}  // namespace

std::string NameInFile(const Net::Carried& carried) {
  return absl::StrFormat("%s[%d:%d]", carried.name, carried.first,
                         carried.first + carried.rows.shape[carried.batch_axis]);
}

absl::Status CheckCarried(const ModelPlan& plan, const TensorFiles& carried) {
  for (const Net::Carried& rows : Net::CarriedBy(*plan.train)) {
    RETURN_IF_ERROR(SlicesOf(carried, rows).status());
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::byte>> ReadRows(const TensorFiles& files,
                                                const Net::Carried& carried) {
  const int axis = carried.batch_axis;
  const Tensor& to = carried.rows;
  const int64_t count = to.shape[axis];
  ASSIGN_OR_RETURN(const std::vector<RowSlice> slices, SlicesOf(files, carried));
  const size_t row_bytes = SizeOf(to.dtype) * to.shape.elements(axis + 1, to.shape.rank());
  std::vector<std::byte> bytes(to.bytes());
  for (const RowSlice& slice : slices) {
    const int64_t first = std::max(slice.first, carried.first);
    const int64_t last = std::min(slice.last, carried.first + count);
    if (first >= last) continue;
    ASSIGN_OR_RETURN(const TensorFile file, files.Read({&slice.name, 1}));
    const auto* from = static_cast<const std::byte*>(file.tensors()[0].tensor.data);
    for (int64_t block = 0; block < to.shape.elements(0, axis); ++block) {
      std::memcpy(&bytes[(block * count + first - carried.first) * row_bytes],
                  from + (block * (slice.last - slice.first) + first - slice.first) * row_bytes,
                  (last - first) * row_bytes);
    }
  }
  return bytes;
}

}  // namespace gyre
