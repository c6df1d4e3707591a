// local_access.cc: accesses written down as a trace, checked against it from then on, and the pager
// called between them.

#include "memory/local_access/local_access.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "engine/runtime/check.h"

namespace gyre {

std::unique_ptr<LocalData> LocalData::Create(Device& device, Stream& compute,
                                             const LocalDataOptions& options) {
  return std::unique_ptr<LocalData>(new LocalData(device, compute, options));
}

// Copies' streams wait for work of the caller's, which touches memory that goes now.
LocalData::~LocalData() { static_cast<void>(compute_.Synchronize()); }

absl::StatusOr<LocalData::Array> LocalData::Declare(const std::string& name, size_t bytes,
                                                    Lifetime lifetime) {
  if (!recording()) {
    return absl::FailedPreconditionError(
        absl::StrCat("Declare \"", name, "\": expected before the recorded iteration's end"));
  }
  const bool persistent = lifetime == Lifetime::kRun;
  trace_.states.push_back({.name = std::string(name), .bytes = bytes, .persistent = persistent});
  has_value_.push_back(persistent);
  return Array(this, static_cast<int>(trace_.states.size()) - 1);
}

absl::Status LocalData::CheckOwn(const std::string& where, Array array) const {
  if (array.owner_ == this) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(where, ": an array was declared in another LocalData"));
}

// For example LocalAccess "assign" to "points" (fetch, no keep), "labels" (no fetch, keep).
std::string LocalData::Text(const std::string& step,
                            const std::vector<ArrayAccess>& accesses) const {
  std::string text = absl::StrCat("LocalAccess \"", step, "\" to");
  for (size_t i = 0; i < accesses.size(); ++i) {
    const auto& [array, fetch, keep] = accesses[i];
    absl::StrAppend(&text, i == 0 ? " \"" : ", \"", trace_.states[array.index_].name, "\" (",
                    fetch ? "fetch" : "no fetch", keep ? ", keep)" : ", no keep)");
  }
  return accesses.empty() ? absl::StrCat(text, " nothing") : text;
}

absl::Status LocalData::CheckNew(const std::string& step,
                                 const std::vector<ArrayAccess>& accesses) const {
  const auto error = [&](int array, const char* what) {
    return absl::InvalidArgumentError(absl::StrCat("LocalAccess \"", step, "\": array \"",
                                                   trace_.states[array].name, "\" ", what));
  };
  std::vector<int> seen;
  for (const auto& [array, fetch, keep] : accesses) {
    const int index = array.index_;
    if (std::ranges::find(seen, index) != seen.end()) return error(index, "comes twice");
    seen.push_back(index);
    if (fetch && !has_value_[index]) {
      return error(index,
                   "is fetched, but holds no value: expected an access that keeps one first");
    }
    if (!fetch && !keep && trace_.states[index].persistent) {
      return error(index,
                   "is neither fetched nor kept, but has a value between iterations: expected "
                   "Lifetime::kIteration");
    }
  }
  return absl::OkStatus();
}

absl::Status LocalData::CheckClosed(const std::string& call) const {
  if (!open_) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(call, ": expected PostLocalAccess of \"",
                                                    trace_.steps[next_ - 1].name, "\" first"));
}

absl::Status LocalData::OutOfTurn(const std::string& call) const {
  return absl::FailedPreconditionError(absl::StrCat(
      "step ", next_, " of ", steps(), " recorded: expected ",
      next_ == steps() ? "FinishIteration" : Text(trace_.steps[next_].name, accesses_[next_]),
      "; got ", call));
}

void LocalData::Record(const std::string& step, const std::vector<ArrayAccess>& accesses,
                       double seconds) {
  TraceStep recorded{.name = std::string(step), .seconds = seconds};
  for (const auto& [array, fetch, keep] : accesses) {
    // What is not fetched is written, if only by chance.
    recorded.touches.push_back({.state = array.index_, .read = fetch, .write = keep || !fetch});
    has_value_[array.index_] = fetch || keep;
  }
  trace_.steps.push_back(std::move(recorded));
  accesses_.push_back(accesses);
}

absl::StatusOr<std::vector<std::byte*>> LocalData::LocalAccess(
    const std::string& step, const std::vector<ArrayAccess>& accesses, double seconds) {
  const std::string where = absl::StrCat("LocalAccess \"", step, "\"");
  RETURN_IF_ERROR(CheckClosed(where));
  for (const ArrayAccess& access : accesses) RETURN_IF_ERROR(CheckOwn(where, access.array));
  if (recording()) {
    RETURN_IF_ERROR(CheckNew(step, accesses));
    Record(step, accesses, seconds);
  } else {
    if (next_ == steps() || trace_.steps[next_].name != step || accesses_[next_] != accesses) {
      return OutOfTurn(Text(step, accesses));
    }
    if (next_ == 0) RETURN_IF_ERROR(pager_->Advance(-1, 0, compute_));
  }
  open_ = true;
  ++next_;
  return recording() ? std::vector<std::byte*>(accesses.size()) : addresses_[next_ - 1];
}

absl::Status LocalData::PostLocalAccess() {
  if (!open_) {
    return absl::FailedPreconditionError("PostLocalAccess: expected LocalAccess first");
  }
  open_ = false;
  // The next step's waits, too, so that what this one leaves goes at once.
  return recording() ? absl::OkStatus() : pager_->Advance(next_ - 1, next_, compute_);
}

absl::Status LocalData::FinishIteration() {
  RETURN_IF_ERROR(CheckClosed("FinishIteration"));
  if (next_ < steps()) return OutOfTurn("FinishIteration");
  if (recording()) {
    ASSIGN_OR_RETURN(
        plan_, PlanPaging(trace_, options_.costs, {.capacity_bytes = options_.capacity_bytes}));
    ASSIGN_OR_RETURN(arena_, Buffer::Allocate(device_, MemoryKind::kDevice, plan_.device_bytes));
    ASSIGN_OR_RETURN(pages_, Buffer::Allocate(device_, MemoryKind::kPinnedHost, plan_.page_bytes));
    FindAddresses();
    ASSIGN_OR_RETURN(pager_, Pager::Create(device_, plan_, arena_.data(), pages_.data()));
  }
  next_ = 0;
  return absl::OkStatus();
}

void LocalData::FindAddresses() {
  std::vector<size_t> offsets(plan_.blocks.size());  // of each block's latest stay
  auto stay = plan_.stays.begin();
  addresses_.clear();
  for (int step = 0; step < steps(); ++step) {
    for (; stay != plan_.stays.end() && stay->first_step <= step; ++stay) {
      offsets[stay->block] = stay->offset;
    }
    std::vector<std::byte*>& of_step = addresses_.emplace_back();
    for (const ArrayAccess& access : accesses_[step]) {
      const auto [block, offset] = plan_.states[access.array.index_];
      const bool empty = trace_.states[access.array.index_].bytes == 0;
      of_step.push_back(empty ? nullptr
                              : arena_.data() + (block < 0 ? 0 : offsets[block]) + offset);
    }
  }
}

absl::StatusOr<std::byte*> LocalData::Home(const std::string& call, Array array) {
  RETURN_IF_ERROR(CheckOwn(call, array));
  const TraceState& state = trace_.states[array.index_];
  const std::string where = absl::StrCat(call, " \"", state.name, "\": ");
  if (recording() || next_ > 0) {
    return absl::FailedPreconditionError(
        absl::StrCat(where, recording() ? "expected after the recorded iteration"
                                        : "expected between iterations, FinishIteration first"));
  }
  if (!state.persistent) {
    return absl::FailedPreconditionError(
        absl::StrCat(where, "has no value between iterations: expected Lifetime::kRun"));
  }
  RETURN_IF_ERROR(pager_->BringHome(compute_));
  const auto [block, offset] = plan_.states[array.index_];
  return block < 0 ? arena_.data() + offset : pages_.data() + plan_.blocks[block].page + offset;
}

absl::Status LocalData::Read(Array array, void* to) {
  ASSIGN_OR_RETURN(std::byte* const home, Home("Read", array));
  RETURN_IF_ERROR(compute_.Copy(to, home, trace_.states[array.index_].bytes));
  return compute_.Synchronize();
}

absl::Status LocalData::Write(Array array, const void* from) {
  ASSIGN_OR_RETURN(std::byte* const home, Home("Write", array));
  RETURN_IF_ERROR(compute_.Copy(home, from, trace_.states[array.index_].bytes));
  return compute_.Synchronize();
}

}  // namespace gyre
