// row_exchange.h: finds the rows of a table that ranks touched, and may sum only these rows.  A sum
// announces the rows, with 0 for other ranks' entries.  An allgather sends their values.  Each rank
// adds values in the order of ranks, in AccumulateType, and rounds once, so all get the same bits.
// A rank sends N-1 times the bytes of its rows, through pinned memory.  Used by the compute
// stream's thread.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "distributed/process_group.h"
#include "engine/runtime/device/buffer.h"
#include "engine/training/net/run/net.h"

namespace gyre {

class RowExchange {
 public:
  // `memory` and `gradient`, which is flat, are the table's.  They and the first arguments outlive
  // the result.  `parameter` is its name for errors, the same on all ranks.
  // Errors: those of allocation.
  static absl::StatusOr<std::unique_ptr<RowExchange>> Create(
      Device& device, ProcessGroup& communication, const TouchedTable& table,
      const Net::TableTensors& memory, Tensor gradient, const std::string& parameter);

  bool sends_values() const { return table_.sent_by_rows; }
  // Precondition: the step's indices and gradient are on `compute`.  All ranks make the same calls.
  absl::Status Start(Stream& compute, int urgency);
  // Whether Finish would return at once.  Errors: as Finish's.
  absl::StatusOr<bool> Arrived();
  // Blocks until Finish would return at once.
  absl::Status Await();
  // Called once after each Start.  Blocks until the exchange is complete.  Later work on `compute`
  // finds all ranks' rows and, if values were sent, their sums in the gradient.  Returns the sums'
  // sum of squares, else 0.  Errors: those of ranks.
  absl::StatusOr<double> Finish(Stream& compute);

 private:
  RowExchange(ProcessGroup& communication, const TouchedTable& table,
              const Net::TableTensors& memory, Tensor gradient)
      : communication_(communication), table_(table), memory_(memory), gradient_(gradient) {}
  int64_t all() const { return memory_.rows.elements(); }
  void FindRows();
  double AddValues();

  ProcessGroup& communication_;
  const TouchedTable& table_;
  const Net::TableTensors memory_;
  const Tensor gradient_;
  std::string names_label_, values_label_;
  std::unique_ptr<Event> ready_;
  // Pinned.  names_ and values_ hold all ranks' entries.  rows_ and sums_ are uploaded.
  Buffer names_, values_, rows_, sums_;
  std::array<ProcessGroup::Ticket, 2> tickets_ = {};
  int sent_ = 0, taken_ = 0;
  // By row found: its first and last entry in names_.  next_ chains them in the order of ranks.
  std::vector<int32_t> first_, last_, next_;
  std::vector<int32_t> found_;  // by row of the table: index in first_; -1: not found
  std::vector<double> squares_;
};

}  // namespace gyre
