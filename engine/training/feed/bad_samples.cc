#include "engine/training/feed/bad_samples.h"

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "engine/runtime/count_text.h"

namespace gyre {

void BadSamples::Count(int64_t epoch, int64_t samples) {
  if (epoch != epoch_) count_ = 0;
  epoch_ = epoch;
  const int64_t count = count_ + samples;
  if (samples == 0 || count <= most_) {
    count_ = count;
    return;
  }
  status_ = absl::FailedPreconditionError(absl::StrFormat(
      "%s could not be read, more than data.max_bad_samples, which is %d: %s; correct or remove "
      "the files, all of which tools/check_data names, or raise it",
      Counted(count, "sample"), most_,
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
