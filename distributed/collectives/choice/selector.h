// selector.h: which algorithm is expected to sum a tensor soonest, by its bytes and the shape of
// the cluster.  A function of the two and of a calibration's text alone, so ranks agree without
// talking, and a run's choices can be written down.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "distributed/collectives/choice/sum_model.h"
#include "distributed/transport/communicator.h"

namespace gyre {

ClusterShape ShapeOf(const Communicator& communicator);

class Selector {
 public:
  // From these bytes on, to the next one's.
  struct Choice {
    size_t from_bytes = 0;
    std::string algorithm;
  };

  // What a sum by an algorithm was measured to take, about: so long whatever its length, and more
  // for each byte.
  struct Cost {
    std::string algorithm;
    double start_s = 0, byte_s = 0;
  };

  // What a model of messages expects: no measurement.
  static Selector Modelled(ClusterShape shape);
  // What was measured on a cluster of this shape, according to the text that WriteCalibration
  // makes; Modelled if there is none of it.  Errors: InvalidArgument saying what is wrong with the
  // text.
  static absl::StatusOr<Selector> Calibrated(std::string_view text, ClusterShape shape);

  // costs: of any algorithms.  Precondition: the first choice is from 0 bytes on, and each begins
  // beyond the one before.
  explicit Selector(std::vector<Choice> choices, std::vector<Cost> costs = {})
      : choices_(std::move(choices)), costs_(std::move(costs)) {}

  const std::string& Choose(size_t bytes) const;
  const std::vector<Choice>& choices() const { return choices_; }
  const std::vector<Cost>& costs() const { return costs_; }
  // Such as "recursive_doubling, from 8192 bytes on hierarchical".
  std::string Describe() const;

 private:
  std::vector<Choice> choices_;
  std::vector<Cost> costs_;
};

// The clusters that a calibration's text ("": none) is of.  Errors: Calibrated's.
absl::StatusOr<std::vector<ClusterShape>> CalibratedShapes(std::string_view text);

// A sum of so many bytes took so long.
struct MeasuredSum {
  double bytes = 0, seconds = 0;
};
// The line through them, neither part below 0.  A byte takes the median of what it does between two
// of them (Sen 1968): sums that a link carries at once, before its rate counts, do not count for
// more than others.  The start is that of which the errors' squares, each over what was measured,
// add up to the least.  Precondition: two of different bytes, and no two of the same.
Selector::Cost FitCost(std::string algorithm, std::span<const MeasuredSum> sums);

// From how many bytes on a sum's start is a small part of its time, so that to sum more at once
// would hardly save any: of `algorithm` ("auto": of what the selector chooses), by its measured
// cost, or where the selector has none by the model.
size_t WorthwhileBytes(std::string_view algorithm, const Selector& selector, ClusterShape shape);

// The names it may choose: those whose order of additions is promised, and that are not for tests.
bool IsSelectable(std::string_view algorithm);

// `text` (a calibration, or "") with choices and costs for this shape put in place of what it had.
// Errors: Calibrated's.
absl::StatusOr<std::string> WriteCalibration(std::string_view text, ClusterShape shape,
                                             const Selector& selector);

}  // namespace gyre
