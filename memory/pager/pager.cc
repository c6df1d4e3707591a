#include "memory/pager/pager.h"

#include <algorithm>

#include "engine/runtime/check.h"
#include "engine/runtime/timeline.h"

namespace gyre {

absl::StatusOr<std::unique_ptr<Pager>> Pager::Create(Device& device, const PagingPlan& plan,
                                                     std::byte* arena, std::byte* pages,
                                                     PageFile* file, NarrowKernels kernels) {
  std::unique_ptr<Pager> pager(
      new Pager(plan, SchedulePaging(plan), pages, PageCopies(plan, arena, std::move(kernels))));
  ASSIGN_OR_RETURN(pager->in_, device.NewStream());
  ASSIGN_OR_RETURN(pager->out_, device.NewStream());
  ASSIGN_OR_RETURN(pager->begun_, device.NewEvent());
  pager->over_.resize(plan.order.size());
  pager->written_.resize(plan.stays.size());
  const auto make = [&device](std::unique_ptr<Event>& event) -> absl::Status {
    if (event != nullptr) return absl::OkStatus();
    ASSIGN_OR_RETURN(event, device.NewEvent());
    return absl::OkStatus();
  };
  for (size_t s = 0; s < plan.stays.size(); ++s) {
    const Stay& stay = plan.stays[s];
    if (!stay.written_back) continue;
    RETURN_IF_ERROR(make(pager->written_[s]));
    RETURN_IF_ERROR(make(pager->over_[stay.last_step]));
  }
  if (!plan.host_steps.empty()) {
    ASSIGN_OR_RETURN(pager->host_, device.NewStream());
  }
  for (const PagingSchedule::ScheduledWork& host : pager->schedule_.host_steps) {
    RETURN_IF_ERROR(make(pager->hosted_.emplace_back()));
    if (host.after_step >= 0) RETURN_IF_ERROR(make(pager->over_[host.after_step]));
  }
  for (const PagingSchedule::ScheduledWork& fetch : pager->schedule_.fetches) {
    RETURN_IF_ERROR(make(pager->fetched_.emplace_back()));
    if (fetch.after_step >= 0) RETURN_IF_ERROR(make(pager->over_[fetch.after_step]));
  }
  if (plan.disk_bytes > 0) {
    GYRE_CHECK(plan.host_steps.empty());
    // Homes that only training has, what it adds up over a step's batches, are the last ones.
    GYRE_CHECK(file != nullptr && file->bytes() >= plan.disk_bytes &&
               file->home_bytes() >= plan.disk_home_bytes);
    ASSIGN_OR_RETURN(pager->disk_, DiskCopies::Create(device, plan, *file, pager->copies_, pages));
  }
  return pager;
}

bool Pager::advances(int from, int to) const {
  const int steps = static_cast<int>(over_.size());
  for (int step = std::max(from, 0); step <= to; ++step) {
    if (step > from && step < steps) {
      const PagingSchedule::ScheduledStep& of = schedule_.steps[step];
      if (step == 0 || !of.fetches.empty() || !of.writes.empty()) return true;
    }
    if (step < to && over_[step] != nullptr) return true;
  }
  return to == steps && schedule_.last_write >= 0;
}

absl::Status Pager::Advance(int from, int to, Stream& compute) {
  if (from >= 0) RETURN_IF_ERROR(End(from, compute));
  for (int step = from + 1; step < to; ++step) {
    RETURN_IF_ERROR(Begin(step, compute));
    RETURN_IF_ERROR(End(step, compute));
  }
  if (to < static_cast<int>(over_.size())) return Begin(to, compute);
  if (schedule_.last_write < 0) return absl::OkStatus();
  return Await({}, std::span(&schedule_.last_write, 1), compute);
}

template <typename Waits>
absl::Status Pager::Time(Stream& compute, Waits waits) {
  if (compute.kind() == DeviceKind::kCuda) return waits();
  RETURN_IF_ERROR(compute.Call([stalls = stalls_] {
    stalls->Begin();
    return absl::OkStatus();
  }));
  RETURN_IF_ERROR(waits());
  return compute.Call([stalls = stalls_] {
    stalls->End();
    return absl::OkStatus();
  });
}

absl::Status Pager::Begin(int step, Stream& compute) {
  const PagingSchedule::ScheduledStep& of = schedule_.steps[step];
  if (step == 0) {
    RETURN_IF_ERROR(compute.Record(*begun_));
    // A stream that nothing comes back from would not be a captured one's.
    if (!fetched_.empty()) RETURN_IF_ERROR(in_->Wait(*begun_));
    if (disk_) RETURN_IF_ERROR(disk_->TakeHomes(*begun_));
    for (const int fetch : schedule_.fetches_before) RETURN_IF_ERROR(Fetch(fetch));
  }
  return Await(of.fetches, of.writes, compute);
}

absl::Status Pager::Await(std::span<const int> fetches, std::span<const int> writes,
                          Stream& compute) {
  if (fetches.empty() && writes.empty()) return absl::OkStatus();
  return Time(compute, [&]() -> absl::Status {
    for (const int fetch : fetches) {
      if (disk_) RETURN_IF_ERROR(disk_->AwaitRead(schedule_.fetches[fetch].stay));
      RETURN_IF_ERROR(compute.Wait(*fetched_[fetch]));
    }
    for (const int write : writes) RETURN_IF_ERROR(compute.Wait(*written_[write]));
    return absl::OkStatus();
  });
}

absl::Status Pager::RunOnHost(int step, std::function<absl::Status()> work) {
  const int index = plan_.HostStepAt(step);
  GYRE_CHECK(index >= 0);
  const PagingSchedule::ScheduledWork& host = schedule_.host_steps[index];
  RETURN_IF_ERROR(host_->Wait(host.after_step < 0 ? *begun_ : *over_[host.after_step]));
  for (const int write : host.after_writes) RETURN_IF_ERROR(host_->Wait(*written_[write]));
  RETURN_IF_ERROR(host_->CallOnHost([times = host_times_, work = std::move(work)] {
    times->Begin();
    const absl::Status status = work();
    times->End();
    return status;
  }));
  ++host_steps_run_;
  last_hosted_ = hosted_[index].get();
  return host_->Record(*hosted_[index]);
}

double Pager::stalled_seconds() const {
  return std::chrono::duration<double>(stalls_->sum.load()).count();
}

double Pager::hosted_seconds() const {
  if (host_steps_run_ == 0) return 0;
  const double iterations =
      static_cast<double>(host_steps_run_) / static_cast<double>(plan_.host_steps.size());
  return std::chrono::duration<double>(host_times_->sum.load()).count() / iterations;
}

absl::Status Pager::End(int step, Stream& compute) {
  if (over_[step] == nullptr) return absl::OkStatus();
  const PagingSchedule::ScheduledStep& of = schedule_.steps[step];
  RETURN_IF_ERROR(compute.Record(*over_[step]));
  if (!of.write_backs.empty()) RETURN_IF_ERROR(out_->Wait(*over_[step]));
  for (const int stay : of.write_backs) RETURN_IF_ERROR(WriteBack(stay));
  for (const int fetch : of.fetches_after) RETURN_IF_ERROR(Fetch(fetch));
  return absl::OkStatus();
}

absl::Status Pager::Fetch(int index) {
  const PagingSchedule::ScheduledWork& fetch = schedule_.fetches[index];
  if (fetch.after_step >= 0) RETURN_IF_ERROR(in_->Wait(*over_[fetch.after_step]));
  for (const int write : fetch.after_writes) RETURN_IF_ERROR(in_->Wait(*written_[write]));
  if (fetch.after_host >= 0) RETURN_IF_ERROR(in_->Wait(*hosted_[fetch.after_host]));
  const PagedBlock& block = plan_.BlockOf(fetch.stay);
  const TimelineLabel label("fetch");
  RETURN_IF_ERROR(block.on_disk
                      ? disk_->Fetch(fetch, *in_)
                      : copies_.In(*in_, fetch.stay, 0, pages_ + block.page, block.page_bytes));
  return in_->Record(*fetched_[index]);
}

absl::Status Pager::WriteBack(int index) {
  const PagedBlock& block = plan_.BlockOf(index);
  const int host = schedule_.host_before_write[index];
  if (host >= 0) RETURN_IF_ERROR(out_->Wait(*hosted_[host]));
  const TimelineLabel label("write back");
  RETURN_IF_ERROR(block.on_disk
                      ? disk_->WriteBack(index, *out_)
                      : copies_.Out(*out_, index, 0, pages_ + block.page, block.page_bytes));
  last_written_ = written_[index].get();
  return out_->Record(*written_[index]);
}

absl::Status Pager::BringHome(Stream& compute) {
  if (disk_) return disk_->BringHome(*in_, *out_);
  if (plan_.self_contained) return absl::OkStatus();  // the iteration's end has waited for all
  for (const Event* const last : {last_written_, last_hosted_}) {
    if (last != nullptr) RETURN_IF_ERROR(compute.Wait(*last));
  }
  return absl::OkStatus();
}

// Its fetches have been waited for by its steps.
absl::Status Pager::HandOver(Pager& next, Stream& compute) {
  if (disk_) return disk_->HandOver(next.disk_.get(), *in_, *out_);
  if (plan_.self_contained) return absl::OkStatus();
  return Time(compute, [&] { return BringHome(compute); });
}

}  // namespace gyre
