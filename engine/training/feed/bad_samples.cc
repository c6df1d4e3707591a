#include "engine/training/feed/bad_samples.h"

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "engine/runtime/count_text.h"

namespace gyre {

void BadSamples::Count(int64_t epoch, int64_t samples) {
  if (epoch != epoch_) count_ = 0;
  epoch_ = epoch;
  count_ += samples;
  if (count_ <= most_ || !status_.ok()) return;
  status_ = absl::FailedPreconditionError(absl::StrFormat(
      "%s could not be read, more than data.max_bad_samples, which is %d: %s; correct or remove "
      "the files, or raise it",
      Counted(count_, "sample"), most_,
      first_.empty() ? "other ranks name them" : absl::StrJoin(first_, "; ")));
}

std::vector<std::string> BadSamples::New(const std::vector<std::string>& faults) {
  constexpr size_t kNamed = 3;
  std::vector<std::string> added;
  for (const std::string& fault : faults) {
    if (!told_.insert(fault).second) continue;
    added.push_back(fault);
    if (first_.size() < kNamed) first_.push_back(fault);
  }
  return added;
}

}  // namespace gyre
