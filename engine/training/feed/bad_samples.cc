#include "engine/training/feed/bad_samples.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "engine/runtime/count_text.h"

namespace gyre {

absl::Status WithFaultAdvice(const absl::Status& fault) {
  return absl::Status(
      fault.code(),
      absl::StrCat(fault.message(),
                   "; correct or remove the file, or raise data.max_bad_samples; tools/check_data "
                   "names all such files"));
}

void BadSamples::Count(int64_t epoch, int64_t samples) {
  if (epoch != epoch_) count_ = 0;
  epoch_ = epoch;
  const int64_t count = count_ + samples;
  if (samples == 0 || (count <= most_ && count < samples_)) {
    count_ = count;
    return;
  }
  const std::string named = first_.empty() ? "other ranks name them" : absl::StrJoin(first_, "; ");
  status_ = absl::FailedPreconditionError(
      count > most_ ? absl::StrFormat(
                          "%s could not be read, more than data.max_bad_samples, which is %d: %s; "
                          "correct or remove the files, all of which tools/check_data names, or "
                          "raise it",
                          Counted(count, "sample"), most_, named)
                    : absl::StrFormat("no sample of %d could be read: %s; correct the files, all "
                                      "of which tools/check_data names",
                                      samples_, named));
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
