#include "engine/training/step/row_exchange.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "engine/runtime/parallel/parallel.h"
#include "engine/training/net/run/row_kernels.h"

namespace gyre {
namespace {

// Columns added at once, in registers or the nearest cache.
constexpr int64_t kSpan = 256;

// A found row's sum over the ranks that have one.
template <typename T>
struct AddRow {
  int64_t width;
  const int32_t *first, *next;
  const T* values;
  T* sums;
  double* squares;
  void operator()(int64_t row) const {
    using A = AccumulateType<T>;
    squares[row] = 0;
    for (int64_t begin = 0; begin < width; begin += kSpan) {
      const int64_t count = std::min(kSpan, width - begin);
      A sum[kSpan] = {};
      for (int32_t k = first[row]; k >= 0; k = next[k]) {
        const T* const of_rank = values + k * width + begin;
        for (int64_t i = 0; i < count; ++i) sum[i] += static_cast<A>(of_rank[i]);
      }
      for (int64_t i = 0; i < count; ++i) {
        const T rounded = static_cast<T>(sum[i]);
        sums[row * width + begin + i] = rounded;
        squares[row] += static_cast<double>(static_cast<A>(rounded)) *
                        static_cast<double>(static_cast<A>(rounded));
      }
    }
  }
};

}  // namespace

absl::StatusOr<std::unique_ptr<RowExchange>> RowExchange::Create(
    Device& device, ProcessGroup& communication, const TouchedTable& table,
    const Net::TableTensors& memory, Tensor gradient, const std::string& parameter) {
  std::unique_ptr<RowExchange> rows(new RowExchange(communication, table, memory, gradient));
  rows->names_label_ = absl::StrCat("touched rows of ", parameter, ", ", rows->all());
  rows->values_label_ = absl::StrCat("allgather of touched rows of ", parameter, ", ", rows->all());
  ASSIGN_OR_RETURN(rows->ready_, device.NewEvent());
  const auto all = static_cast<size_t>(rows->all());
  const auto allocate = [&](size_t bytes) {
    return Buffer::Allocate(device, MemoryKind::kPinnedHost, bytes);
  };
  ASSIGN_OR_RETURN(rows->names_, allocate(all * sizeof(double)));
  ASSIGN_OR_RETURN(rows->rows_, allocate(memory.rows.bytes()));
  rows->next_.resize(all);
  rows->first_.reserve(all);
  rows->last_.reserve(all);
  rows->found_.assign(static_cast<size_t>(table.rows), -1);
  if (!table.sent_by_rows) return rows;
  ASSIGN_OR_RETURN(rows->values_, allocate(memory.values.bytes()));
  ASSIGN_OR_RETURN(rows->sums_, allocate(memory.values.bytes()));
  rows->squares_.resize(all);
  return rows;
}

absl::Status RowExchange::Start(Stream& compute, int urgency) {
  const int64_t own = table_.step_indices, begin = communication_.rank() * own;
  const Tensor names{names_.data(), Shape({all()}), DType::kF64};
  std::memset(names_.data(), 0, names_.bytes());
  RETURN_IF_ERROR(NameRows(compute, memory_.kept, memory_.first, memory_.names));
  RETURN_IF_ERROR(
      compute.Copy(names.as<double>() + begin, memory_.names.data, memory_.names.bytes()));
  const Tensor values{values_.data(), memory_.values.shape, memory_.values.dtype};
  if (sends_values()) {
    const Tensor packed = Slice(memory_.values, 0, own * table_.width);
    RETURN_IF_ERROR(PackRows(compute, memory_.names, table_.width, gradient_, packed));
    RETURN_IF_ERROR(
        compute.Copy(Slice(values, begin * table_.width, 0).data, packed.data, packed.bytes()));
  }
  RETURN_IF_ERROR(compute.Record(*ready_));
  const auto submit = [&](const std::string& label, Operation operation, const Tensor& tensor) {
    tickets_[sent_++] =
        communication_.Submit(label, operation, /*root=*/0, tensor, ready_.get(), urgency);
  };
  sent_ = 0;
  submit(names_label_, Operation::kAllreduce, names);
  if (sends_values()) submit(values_label_, Operation::kAllgather, values);
  taken_ = 0;
  return absl::OkStatus();
}

absl::StatusOr<bool> RowExchange::Arrived() {
  for (; taken_ < sent_; ++taken_) {
    ASSIGN_OR_RETURN(const bool done, communication_.Done(tickets_[taken_]));
    if (!done) return false;
    RETURN_IF_ERROR(communication_.Wait(tickets_[taken_]).status());
  }
  return true;
}

absl::Status RowExchange::Await() {
  for (; taken_ < sent_; ++taken_) {
    RETURN_IF_ERROR(communication_.Wait(tickets_[taken_]).status());
  }
  return absl::OkStatus();
}

absl::StatusOr<double> RowExchange::Finish(Stream& compute) {
  RETURN_IF_ERROR(Await());
  // The last upload is over, as this time's values came after it.
  FindRows();
  RETURN_IF_ERROR(compute.Copy(memory_.rows.data, rows_.data(), memory_.rows.bytes()));
  if (!sends_values()) return 0;
  const double squares = AddValues();
  const auto found = static_cast<int64_t>(first_.size());
  const Tensor values = Slice(memory_.values, 0, found * table_.width);
  RETURN_IF_ERROR(compute.Copy(values.data, sums_.data(), values.bytes()));
  RETURN_IF_ERROR(
      UnpackRows(compute, Slice(memory_.rows, 0, found), table_.width, values, gradient_));
  return squares;
}

// Numbers the rows in the order in which ranks name them.
void RowExchange::FindRows() {
  const auto* const names = reinterpret_cast<const double*>(names_.data());
  auto* const rows = reinterpret_cast<int32_t*>(rows_.data());
  first_.clear();
  last_.clear();
  std::fill_n(rows, all(), -1);
  for (int32_t k = 0; k < static_cast<int32_t>(all()); ++k) {
    const auto row = static_cast<int32_t>(names[k]);
    if (row < 0) continue;
    int32_t& found = found_[static_cast<size_t>(row)];
    next_[k] = -1;
    if (found < 0) {
      found = static_cast<int32_t>(first_.size());
      rows[found] = row;
      first_.push_back(k);
      last_.push_back(k);
    } else {
      next_[last_[found]] = k;
      last_[found] = k;
    }
  }
  for (size_t i = 0; i < first_.size(); ++i) found_[rows[i]] = -1;
}

double RowExchange::AddValues() {
  const auto found = static_cast<int64_t>(first_.size());
  VisitReal(gradient_.dtype, [&]<typename T>() {
    ForEachOnHost(found, AddRow<T>{table_.width, first_.data(), next_.data(),
                                   reinterpret_cast<const T*>(values_.data()),
                                   reinterpret_cast<T*>(sums_.data()), squares_.data()});
  });
  return std::accumulate(squares_.begin(), squares_.begin() + found, 0.0);
}

}  // namespace gyre
