// bad_samples.h: samples that could not be read, of an epoch or a test, up to a bound.  Each rank
// counts those of all ranks, and tells its own.  Used by one thread.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace gyre {

class BadSamples {
 public:
  // `most`: data.max_bad_samples.
  explicit BadSamples(int64_t most) : most_(most) {}

  // Counts samples of all ranks.  The count begins anew with each epoch.
  void Count(int64_t epoch, int64_t samples);
  int64_t count() const { return count_; }
  // Of messages of this rank, returns those that are new.
  std::vector<std::string> New(const std::vector<std::string>& faults);
  // FailedPrecondition, with the first messages, once an epoch has had more than `most`.
  const absl::Status& status() const { return status_; }

 private:
  const int64_t most_;
  int64_t epoch_ = 0, count_ = 0;
  std::set<std::string> told_;
  std::vector<std::string> first_;  // of told_
  absl::Status status_;
};

}  // namespace gyre
