#include "engine/training/checkpoint/byte_chain.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace gyre {
namespace {

// What a rank holds of what it passes on; a link is busy for far longer than a round starts.
constexpr uint64_t kSegmentBytes = 8 << 20;

}  // namespace

// In round r the k-th of the chain sends segment r - k to the next.
absl::Status PassBytes(ProcessGroup& communication, const std::string& what,
                       std::span<const int> chain, uint64_t bytes,
                       const std::function<absl::Status(std::string&)>& source,
                       const FileSink& sink) {
  const auto at = std::ranges::find(chain, communication.rank());
  const int64_t k = at - chain.begin();
  const bool sends = at != chain.end() && at + 1 != chain.end();
  const bool receives = at != chain.end() && k > 0;
  const auto segments = static_cast<int64_t>((bytes + kSegmentBytes - 1) / kSegmentBytes);
  const auto is_segment = [&](int64_t segment) { return segment >= 0 && segment < segments; };
  const std::string label = absl::StrCat("a segment of ", what);
  std::string held;
  for (int64_t round = 0; round < segments + static_cast<int64_t>(chain.size()) - 2; ++round) {
    if (sends && k == 0 && is_segment(round)) {
      held.resize(std::min(kSegmentBytes, bytes - static_cast<uint64_t>(round) * kSegmentBytes));
      RETURN_IF_ERROR(source(held));
    }
    Mail mail;
    if (sends && is_segment(round - k)) mail.outgoing.push_back({*(at + 1), held});
    if (receives && is_segment(round - k + 1)) mail.incoming.push_back({*(at - 1)});
    RETURN_IF_ERROR(communication.Wait(communication.Submit(label, &mail)).status());
    if (mail.incoming.empty()) continue;
    held = std::move(mail.incoming[0].bytes);
    RETURN_IF_ERROR(sink(held));
  }
  return absl::OkStatus();
}

}  // namespace gyre
