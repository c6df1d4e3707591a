// selector.h: the algorithm with the shortest expected time for a tensor, by its bytes and the
// shape of the cluster.  A pure function of both and of a calibration, so ranks agree without
// messages and a run can record its choices.
#pragma once

#include <cstddef>
#include <functional>
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
  // Applies from these bytes on, up to the next choice's.
  struct Choice {
    size_t from_bytes = 0;
    std::string algorithm;
  };

  // Line through the measured times of an algorithm.
  struct Cost {
    std::string algorithm;
    double start_s = 0, byte_s = 0;
  };

  // fastest(bytes) names the algorithm.  Asked for powers of two, of 64 bytes to 1 GiB.
  static Selector Of(const std::function<std::string_view(double bytes)>& fastest);
  // Chooses by the cost model.
  static Selector Modelled(ClusterShape shape);
  // Chooses by the measurements for this shape in `text`, which WriteCalibration wrote, or by the
  // model if it has none.  Errors: InvalidArgument for the first fault of the text.
  static absl::StatusOr<Selector> Calibrated(std::string_view text, ClusterShape shape);

  // `costs` may be of any algorithms.  Precondition: choices begin with 0 bytes, and increase.
  explicit Selector(std::vector<Choice> choices, std::vector<Cost> costs = {})
      : choices_(std::move(choices)), costs_(std::move(costs)) {}

  const std::string& Choose(size_t bytes) const;
  const std::vector<Choice>& choices() const { return choices_; }
  const std::vector<Cost>& costs() const { return costs_; }
  // For example "recursive_doubling, from 8192 bytes on hierarchical".
  std::string Describe() const;

 private:
  std::vector<Choice> choices_;
  std::vector<Cost> costs_;
};

struct MeasuredCluster {
  ClusterShape shape;
  Selector selector;
};
// All of a calibration's text, or "".  Errors: those of Calibrated.
absl::StatusOr<std::vector<MeasuredCluster>> ReadCalibration(std::string_view text);

struct MeasuredSum {
  double bytes = 0, seconds = 0;
};
// Fits a line with no negative part.  The cost of a byte is the median slope between two sums (Sen
// 1968).  So short sums, which a link carries at once, weigh no more than others.  The start gives
// the least sum of squared relative errors.  Precondition: at least two sums, of different bytes.
Selector::Cost FitCost(std::string algorithm, std::span<const MeasuredSum> sums);

// The bytes from which a sum's start is so small a part of its time that larger sums save little.
// For "auto" the selector's choice.  By its measured cost, or by the model if it has none.
size_t WorthwhileBytes(std::string_view algorithm, const Selector& selector, ClusterShape shape);

// Whether `auto` may choose it.  The order of its additions is promised, and it is not for tests.
bool IsSelectable(std::string_view algorithm);

// Returns `text` (a calibration or "") with this selector's choices and costs for this shape.
// Errors: those of Calibrated.
absl::StatusOr<std::string> WriteCalibration(std::string_view text, ClusterShape shape,
                                             const Selector& selector);

}  // namespace gyre
