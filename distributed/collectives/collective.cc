#include "distributed/collectives/collective.h"

#include "engine/runtime/check.h"

namespace gyre {

Collective::Collective(Communicator& communicator, int tag, std::vector<int> ranks)
    : channel_(communicator, tag, std::move(ranks)),
      ranks_(channel_.size()),
      rank_(channel_.rank()),
      owners_(ranks_) {}

absl::Status Collective::Start(const Claim& claim, Operation operation, Tensor inout, int root) {
  const bool sums = operation == Operation::kAllreduce || operation == Operation::kReduceScatter;
  if (sums) RETURN_IF_ERROR(CheckSummable(inout.dtype));
  GYRE_CHECK(!running_ && root >= 0 && root < ranks_);
  channel_.Open(claim);
  operation_ = operation;
  root_ = root;
  tensor_ = inout;
  size_ = static_cast<int64_t>(SizeOf(inout.dtype));
  squares_ = 0;
  running_ = true;
  finished_ = false;
  return Begin();
}

absl::StatusOr<Advance> Collective::Progress(double* sum_of_squares) {
  GYRE_CHECK(running_);
  if (!finished_) {
    ASSIGN_OR_RETURN(const Advance advance, Step());
    if (advance != Advance::kDone) return advance;
    finished_ = true;
  }
  ASSIGN_OR_RETURN(const bool settled, channel_.Settled());
  if (!settled) return Advance::kWaiting;
  running_ = false;
  *sum_of_squares = squares_;
  return Advance::kDone;
}

absl::Status Collective::Send(const void* data, size_t bytes, int to) {
  const auto* const from = static_cast<const std::byte*>(data);
  for (size_t begin = 0; begin < bytes; begin += kSegmentBytes) {
    ASSIGN_OR_RETURN(requests_.emplace_back(),
                     channel_.Send(from + begin, std::min(kSegmentBytes, bytes - begin), to));
  }
  return absl::OkStatus();
}

absl::Status Collective::Receive(void* data, size_t bytes, int from) {
  auto* const to = static_cast<std::byte*>(data);
  for (size_t begin = 0; begin < bytes; begin += kSegmentBytes) {
    ASSIGN_OR_RETURN(requests_.emplace_back(),
                     channel_.Receive(to + begin, std::min(kSegmentBytes, bytes - begin), from));
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> Collective::AllDone(std::vector<Request>& requests) {
  while (!requests.empty()) {
    ASSIGN_OR_RETURN(const bool done, channel_.Test(requests.back()));
    if (!done) return false;
    requests.pop_back();
  }
  return true;
}

absl::StatusOr<bool> Collective::EndDone(MessageWindow& window) {
  const int64_t before = window.done;
  for (; window.done < window.posted; ++window.done) {
    ASSIGN_OR_RETURN(const bool done,
                     channel_.Test(window.requests[window.done % MessageWindow::kMost]));
    if (!done) break;
  }
  return window.done > before;
}

std::byte* Collective::Staging(size_t bytes) {
  if (staging_bytes_ < bytes) {
    staging_ = std::make_unique_for_overwrite<std::byte[]>(bytes);
    staging_bytes_ = bytes;
  }
  return staging_.get();
}

InArena Locate(const SharedArenas& arenas, int index, const void* data) {
  const auto* const begin = static_cast<const std::byte*>(data);
  for (size_t i = 0; i < arenas.size(); ++i) {
    const std::byte* const arena = arenas[i]->of(index);
    if (begin < arena || begin >= arena + arenas[i]->bytes(index)) continue;
    return {.arena = static_cast<int64_t>(i), .offset = begin - arena};
  }
  return {};
}

absl::Status Collective::Lacks() const {
  return absl::UnimplementedError("this algorithm does not have this operation");
}

}  // namespace gyre
