// row_exchange.h: which rows of a table several ranks' batches have touched, and, where that is
// less to send than a sum of the whole gradient, those rows' sums.
//
// Each rank tells which rows it has touched (a sum in which all others' places are 0) and gives its
// values of them to all (an allgather); each adds them in the order of ranks, in AccumulateType,
// and rounds once: the same bits on all.  Bytes sent: N-1 times a rank's rows.  Through pinned
// memory, whatever the device.  Used by the thread that owns the compute stream.
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
  // memory: of the table; gradient: of it, flat.  All arguments outlive the result.  Errors: those
  // of allocation.
  static absl::StatusOr<std::unique_ptr<RowExchange>> Create(Device& device,
                                                             ProcessGroup& communication,
                                                             const TouchedTable& table,
                                                             const Net::TableTensors& memory,
                                                             Tensor gradient);

  bool sends_values() const { return table_.sent_by_rows; }
  // In errors; before Start, the same on all ranks.
  void Name(const std::string& parameter);
  // The indices of the step and the gradient are on `compute`.  The same calls on all ranks.
  absl::Status Start(Stream& compute, int urgency);
  // Whether Finish would return at once.  Errors: as Finish's.
  absl::StatusOr<bool> Arrived();
  // Blocks until then.
  absl::Status Await();
  // Once after Start: what comes after on `compute` finds the rows of all ranks and, if they were
  // sent, their sums in the gradient.  Returns these' sum of squares, else 0.  Blocks.  Errors:
  // those of ranks.
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
  // Pinned.  What ranks tell and give, by rank; what goes back to the device.
  Buffer names_, values_, rows_, sums_;
  std::array<ProcessGroup::Ticket, 2> tickets_ = {};
  int sent_ = 0, taken_ = 0;
  // Of the rows found: the places in names_ of the ranks that have one, chained in their order.
  std::vector<int32_t> first_, last_, next_;
  std::vector<int32_t> found_;  // by row of the table; -1: not
  std::vector<double> squares_;
};

}  // namespace gyre
