#include "memory/pager/disk_copies.h"

#include <algorithm>
#include <utility>

#include "engine/runtime/check.h"
#include "engine/runtime/timeline.h"

namespace gyre {

DiskCopies::DiskCopies(const PagingContext& context)
    : context_(context),
      fetches_(context.schedule.fetches.size()),
      write_backs_(context.plan.stays.size()),
      fetched_(context.schedule.fetches.size()),
      left_(context.plan.stays.size()),
      stored_(context.plan.stays.size()) {}

absl::StatusOr<std::unique_ptr<DiskCopies>> DiskCopies::Create(Device& device,
                                                               const PagingContext& context) {
  std::unique_ptr<DiskCopies> made(new DiskCopies(context));
  const Staging& staging = context.plan.staging;
  std::byte* slots = context.pages + staging.offset;
  for (Lane* const lane : {&made->in_, &made->out_}) {
    ASSIGN_OR_RETURN(lane->stream, device.NewStream());
    lane->queue = std::make_unique<PageQueue>(context.file, staging.slots);
    for (int slot = 0; slot < staging.slots; ++slot) {
      ASSIGN_OR_RETURN(lane->copied.emplace_back(), device.NewEvent());
    }
    lane->slots = slots;
    slots += staging.bytes() / 2;
  }
  const auto start = [&made](Lane& lane, absl::Status (DiskCopies::*work)()) {
    lane.thread = std::thread([copies = made.get(), work] {
      const absl::Status status = (copies->*work)();
      if (!status.ok()) copies->Note([&] { copies->status_.Update(status); });
    });
  };
  start(made->in_, &DiskCopies::RunIn);
  start(made->out_, &DiskCopies::RunOut);
  return made;
}

DiskCopies::~DiskCopies() {
  Note([this] { stopping_ = true; });
  for (Lane* const lane : {&in_, &out_}) {
    if (lane->thread.joinable()) lane->thread.join();
  }
}

// --- The caller's --------------------------------------------------------------------------------

template <typename Change>
void DiskCopies::Note(Change change) {
  std::lock_guard lock(mutex_);
  change();
  changed_.notify_all();
}

template <typename Condition>
absl::Status DiskCopies::Await(Condition condition) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !status_.ok() || condition(); });
  return status_;
}

absl::Status DiskCopies::Tell(Lane& lane, Job job) {
  std::lock_guard lock(mutex_);
  RETURN_IF_ERROR(status_);
  lane.jobs.push_back(std::move(job));
  changed_.notify_all();
  return absl::OkStatus();
}

absl::Status DiskCopies::BeginIteration() {
  if (!std::exchange(homes_are_out_, false)) return absl::OkStatus();
  ++takes_;
  return Tell(in_, {.what = What::kTakeHomes});
}

absl::Status DiskCopies::Fetch(int index) {
  const PagingSchedule::ScheduledWork& fetch = context_.schedule.fetches[index];
  Job job = {.index = index};
  for (const int write : fetch.after_writes) {
    const bool of_page = context_.plan.stays[write].block == context_.plan.stays[fetch.stay].block;
    job.after.push_back({write, write_backs_[write], of_page && BlockOf(write).on_disk});
  }
  ++fetches_[index];
  return Tell(in_, std::move(job));
}

absl::Status DiskCopies::WriteBack(int stay) {
  ++write_backs_[stay];
  return Tell(out_, {.index = stay, .takes = takes_});
}

absl::Status DiskCopies::AwaitFetch(int index) {
  return Await([&] { return fetched_[index] == fetches_[index]; });
}

absl::Status DiskCopies::AwaitWriteBack(int stay) {
  return Await([&] { return left_[stay] == write_backs_[stay]; });
}

absl::Status DiskCopies::Finish(Lane& lane) {
  RETURN_IF_ERROR(Tell(lane, {.what = What::kFinish}));
  ++lane.told;
  return Await([&lane] { return lane.finished == lane.told; });
}

absl::Status DiskCopies::BringHome() {
  if (homes_are_out_) return Await([] { return true; });
  RETURN_IF_ERROR(Finish(out_));
  RETURN_IF_ERROR(Finish(in_));
  homes_are_out_ = true;
  return absl::OkStatus();
}

absl::Status DiskCopies::HandOver(DiskCopies* next) {
  if (!homes_are_out_) RETURN_IF_ERROR(Finish(out_));
  if (next != nullptr) next->homes_are_out_ = homes_are_out_;
  return absl::OkStatus();
}

// --- The threads' --------------------------------------------------------------------------------

bool DiskCopies::MayBegin(const Job& job) const {
  return job.takes <= taken_ && std::ranges::all_of(job.after, [this](const Job::Write& write) {
           return (write.in_file ? stored_ : left_)[write.stay] >= write.times;
         });
}

std::optional<DiskCopies::Job> DiskCopies::Next(Lane& lane, bool wait) {
  std::unique_lock lock(mutex_);
  const auto ready = [&] { return !lane.jobs.empty() && MayBegin(lane.jobs.front()); };
  if (wait) {
    changed_.wait(lock,
                  [&] { return !status_.ok() || ready() || (stopping_ && lane.jobs.empty()); });
  }
  if (!status_.ok() || !ready()) return std::nullopt;
  Job next = std::move(lane.jobs.front());
  lane.jobs.pop_front();
  return next;
}

// The next one, in the next slot if the page is on disk.
DiskCopies::PageSegment DiskCopies::CutSegment(Job& job, int stay, int& slot) const {
  const PagedBlock& block = BlockOf(stay);
  PageSegment segment = {.index = job.index, .stay = stay, .at = job.at};
  segment.bytes = block.page_bytes - job.at;
  if (block.on_disk) {
    segment.bytes = std::min(segment.bytes, context_.plan.staging.slot_bytes);
    segment.slot = std::exchange(slot, (slot + 1) % context_.plan.staging.slots);
  }
  job.at += segment.bytes;
  segment.last = job.at == block.page_bytes;
  return segment;
}

absl::Status DiskCopies::RunIn() {
  const auto slots = static_cast<size_t>(context_.plan.staging.slots);
  std::deque<PageSegment> reading;
  std::optional<Job> now;
  int slot = 0;  // the next
  for (;;) {
    if (!now) now = Next(in_, reading.empty());
    if (!now && reading.empty()) return absl::OkStatus();
    if (now && now->what != What::kCopy && reading.empty()) {
      if (now->what == What::kTakeHomes) {
        RETURN_IF_ERROR(context_.begun.Synchronize());  // whoever had them is done
        Note([this] { ++taken_; });
      } else {
        RETURN_IF_ERROR(in_.stream->Synchronize());
        RETURN_IF_ERROR(CheckHomes());
        Note([this] { ++in_.finished; });
      }
      now.reset();
      continue;
    }
    // Ahead of the copies as far as slots are free; what is there is copied before one is waited
    // for.
    bool begin = now && now->what == What::kCopy && reading.size() < slots;
    if (begin && !reading.empty()) {
      ASSIGN_OR_RETURN(begin, in_.copied[slot]->Done());
    }
    if (begin) {
      reading.push_back(CutSegment(*now, context_.schedule.fetches[now->index].stay, slot));
      if (reading.back().last) now.reset();
      RETURN_IF_ERROR(BeginFetch(reading.back()));
      continue;
    }
    RETURN_IF_ERROR(EndFetch(reading.front()));
    reading.pop_front();
  }
}

absl::Status DiskCopies::BeginFetch(const PageSegment& segment) {
  if (segment.slot < 0) return absl::OkStatus();
  RETURN_IF_ERROR(in_.copied[segment.slot]->Synchronize());
  in_.queue->Read(segment.slot, BlockOf(segment.stay).page + segment.at, SlotOf(in_, segment.slot),
                  segment.bytes);
  return absl::OkStatus();
}

absl::Status DiskCopies::EndFetch(const PageSegment& segment) {
  const PagingSchedule::ScheduledWork& fetch = context_.schedule.fetches[segment.index];
  if (segment.at == 0) {
    RETURN_IF_ERROR(
        in_.stream->Wait(fetch.after_step < 0 ? context_.begun : *context_.over[fetch.after_step]));
    for (const int write : fetch.after_writes) {
      RETURN_IF_ERROR(in_.stream->Wait(*context_.written[write]));
    }
  }
  const bool on_disk = segment.slot >= 0;
  if (on_disk)
    RETURN_IF_ERROR(Annotate(in_.queue->Await(segment.slot), BlockOf(segment.stay).name));
  std::byte* const from =
      on_disk ? SlotOf(in_, segment.slot) : context_.pages + BlockOf(segment.stay).page;
  const TimelineLabel label("fetch");
  RETURN_IF_ERROR(context_.copies.In(*in_.stream, segment.stay, segment.at, from, segment.bytes));
  if (on_disk) RETURN_IF_ERROR(in_.stream->Record(*in_.copied[segment.slot]));
  if (!segment.last) return absl::OkStatus();
  RETURN_IF_ERROR(in_.stream->Record(*context_.fetched[segment.index]));
  Note([&] { ++fetched_[segment.index]; });
  return absl::OkStatus();
}

absl::Status DiskCopies::CheckHomes() {
  const Staging& staging = context_.plan.staging;
  std::vector<const PagedBlock*> blocks(staging.slots);  // that are being read
  const auto await = [&](int slot) {
    if (blocks[slot] == nullptr) return absl::OkStatus();
    return Annotate(in_.queue->Await(slot), blocks[slot]->name);
  };
  int slot = 0;  // the next
  for (const PagedBlock& block : context_.plan.blocks) {
    if (!block.persistent || !block.on_disk) continue;
    for (size_t at = 0; at < block.page_bytes; at += staging.slot_bytes) {
      RETURN_IF_ERROR(await(slot));
      blocks[slot] = &block;
      in_.queue->Read(slot, block.page + at, SlotOf(in_, slot),
                      std::min(staging.slot_bytes, block.page_bytes - at));
      slot = (slot + 1) % staging.slots;
    }
  }
  for (slot = 0; slot < staging.slots; ++slot) RETURN_IF_ERROR(await(slot));
  return absl::OkStatus();
}

absl::Status DiskCopies::RunOut() {
  const auto slots = static_cast<size_t>(context_.plan.staging.slots);
  std::deque<PageSegment> copying, writing;
  std::optional<Job> now;
  int slot = 0;  // the next
  for (;;) {
    const bool idle = copying.empty() && writing.empty();
    if (!now) now = Next(out_, idle);
    if (!now && idle) return absl::OkStatus();
    if (now && now->what == What::kFinish && idle) {
      RETURN_IF_ERROR(out_.stream->Synchronize());
      Note([this] { ++out_.finished; });
      now.reset();
      continue;
    }
    if (now && now->what == What::kCopy && copying.size() + writing.size() < slots) {
      const PageSegment segment = CutSegment(*now, now->index, slot);
      if (segment.last) now.reset();
      RETURN_IF_ERROR(BeginWriteBack(segment));
      if (segment.slot >= 0) copying.push_back(segment);
      continue;
    }
    bool copied = !copying.empty();
    if (copied && !writing.empty()) {
      ASSIGN_OR_RETURN(copied, out_.copied[copying.front().slot]->Done());
    }
    if (copied) {
      // Of one place in the file the last write counts: one that is under way comes first.
      const size_t page = BlockOf(copying.front().stay).page + copying.front().at;
      while (std::ranges::any_of(writing, [&](const PageSegment& segment) {
        const size_t other = BlockOf(segment.stay).page + segment.at;
        return other < page + copying.front().bytes && page < other + segment.bytes;
      })) {
        RETURN_IF_ERROR(EndWrite(writing));
      }
      const PageSegment& segment = writing.emplace_back(copying.front());
      copying.pop_front();
      RETURN_IF_ERROR(out_.copied[segment.slot]->Synchronize());
      out_.queue->Write(segment.slot, BlockOf(segment.stay).page + segment.at,
                        SlotOf(out_, segment.slot), segment.bytes);
      continue;
    }
    RETURN_IF_ERROR(EndWrite(writing));
  }
}

// The first of them.
absl::Status DiskCopies::EndWrite(std::deque<PageSegment>& writing) {
  const PageSegment segment = writing.front();
  writing.pop_front();
  RETURN_IF_ERROR(Annotate(out_.queue->Await(segment.slot), BlockOf(segment.stay).name));
  if (segment.last) Note([&] { ++stored_[segment.stay]; });
  return absl::OkStatus();
}

absl::Status DiskCopies::BeginWriteBack(const PageSegment& segment) {
  const Stay& stay = context_.plan.stays[segment.stay];
  if (segment.at == 0) RETURN_IF_ERROR(out_.stream->Wait(*context_.over[stay.last_step]));
  std::byte* const to =
      segment.slot >= 0 ? SlotOf(out_, segment.slot) : context_.pages + BlockOf(segment.stay).page;
  const TimelineLabel label("write back");
  RETURN_IF_ERROR(context_.copies.Out(*out_.stream, segment.stay, segment.at, to, segment.bytes));
  if (segment.slot >= 0) RETURN_IF_ERROR(out_.stream->Record(*out_.copied[segment.slot]));
  if (!segment.last) return absl::OkStatus();
  RETURN_IF_ERROR(out_.stream->Record(*context_.written[segment.stay]));
  Note([&] { ++left_[segment.stay]; });
  return absl::OkStatus();
}

}  // namespace gyre
