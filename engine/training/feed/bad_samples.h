// bad_samples.h: samples that could not be read, of an epoch or a test, up to a bound.  One must be
// sound.  Each rank counts those of all ranks, and tells its own.  Used by one thread.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace gyre {

// An error about one sample, where none may be faulty, with what to do.
absl::Status WithFaultAdvice(const absl::Status& fault);

class BadSamples {
 public:
  // `most`: data.max_bad_samples.  `samples`: all that are counted of an epoch or a test.  `count`:
  // of `epoch` so far, where a run resumes.
  BadSamples(int64_t most, int64_t samples, int64_t epoch = 0, int64_t count = 0)
      : most_(most), samples_(samples), epoch_(epoch), count_(count) {}

  // Of messages of this rank, returns those that are new.  Called before they are counted.
  std::vector<std::string> New(const std::vector<std::string>& faults);
  // Counts samples of all ranks, unless an epoch then had more than `most`, or no sound one.  The
  // count begins anew with each epoch, and epochs ascend.
  void Count(int64_t epoch, int64_t samples);
  int64_t count() const { return count_; }  // of the last epoch counted
  int64_t CountOf(int64_t epoch) const { return epoch == epoch_ ? count_ : 0; }
  // FailedPrecondition, with the first messages, once samples were too many to be counted.
  const absl::Status& status() const { return status_; }

 private:
  int64_t most_, samples_, epoch_, count_;
  std::set<std::string> told_;
  std::vector<std::string> first_;  // of told_
  absl::Status status_;
};

}  // namespace gyre
