#include "memory/pager/disk_copies.h"

#include <algorithm>
#include <utility>

#include "engine/runtime/check.h"
#include "engine/runtime/timeline.h"

namespace gyre {

DiskCopies::DiskCopies(const Run& run)
    : run_(run),
      fetches_(run.schedule.fetches.size()),
      write_backs_(run.plan.stays.size()),
      fetched_(run.schedule.fetches.size()),
      left_(run.plan.stays.size()),
      stored_(run.plan.stays.size()) {}

absl::StatusOr<std::unique_ptr<DiskCopies>> DiskCopies::Create(Device& device, const Run& run) {
  std::unique_ptr<DiskCopies> made(new DiskCopies(run));
  const Staging& staging = run.plan.staging;
  std::byte* slots = run.pages + staging.offset;
  for (Lane* const lane : {&made->in_, &made->out_}) {
    ASSIGN_OR_RETURN(lane->stream, device.NewStream());
    lane->queue = std::make_unique<PageQueue>(run.file, staging.slots);
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
  const PagingSchedule::Fetch& fetch = run_.schedule.fetches[index];
  Job job = {.index = index};
  for (const int write : fetch.after_writes) {
    const bool of_page = run_.plan.stays[write].block == run_.plan.stays[fetch.stay].block;
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

std::optional<DiskCopies::Cut> DiskCopies::Next(Lane& lane, bool wait) {
  std::unique_lock lock(mutex_);
  const auto ready = [&] { return !lane.jobs.empty() && MayBegin(lane.jobs.front()); };
  if (wait) {
    changed_.wait(lock,
                  [&] { return !status_.ok() || ready() || (stopping_ && lane.jobs.empty()); });
  }
  if (!status_.ok() || !ready()) return std::nullopt;
  Cut next = {.job = std::move(lane.jobs.front())};
  lane.jobs.pop_front();
  return next;
}

// The next one, in the next slot if the page is on disk.
DiskCopies::Piece DiskCopies::CutPiece(Cut& cut, int stay, int& slot) const {
  const PagedBlock& block = BlockOf(stay);
  Piece piece = {.index = cut.job.index, .stay = stay, .at = cut.at};
  piece.bytes = block.page_bytes - cut.at;
  if (block.on_disk) {
    piece.bytes = std::min(piece.bytes, run_.plan.staging.slot_bytes);
    piece.slot = std::exchange(slot, (slot + 1) % run_.plan.staging.slots);
  }
  cut.at += piece.bytes;
  piece.last = cut.at == block.page_bytes;
  return piece;
}

absl::Status DiskCopies::RunIn() {
  const auto slots = static_cast<size_t>(run_.plan.staging.slots);
  std::deque<Piece> reading;
  std::optional<Cut> now;
  int slot = 0;  // the next
  for (;;) {
    if (!now) now = Next(in_, reading.empty());
    if (!now && reading.empty()) return absl::OkStatus();
    if (now && now->job.what != What::kCopy && reading.empty()) {
      if (now->job.what == What::kTakeHomes) {
        RETURN_IF_ERROR(run_.begun.Synchronize());  // whoever had them is done
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
    bool begin = now && now->job.what == What::kCopy && reading.size() < slots;
    if (begin && !reading.empty()) {
      ASSIGN_OR_RETURN(begin, in_.copied[slot]->Done());
    }
    if (begin) {
      reading.push_back(CutPiece(*now, run_.schedule.fetches[now->job.index].stay, slot));
      if (reading.back().last) now.reset();
      RETURN_IF_ERROR(BeginFetch(reading.back()));
      continue;
    }
    RETURN_IF_ERROR(EndFetch(reading.front()));
    reading.pop_front();
  }
}

absl::Status DiskCopies::BeginFetch(const Piece& piece) {
  if (piece.slot < 0) return absl::OkStatus();
  RETURN_IF_ERROR(in_.copied[piece.slot]->Synchronize());
  in_.queue->Read(piece.slot, BlockOf(piece.stay).page + piece.at, SlotOf(in_, piece.slot),
                  piece.bytes);
  return absl::OkStatus();
}

absl::Status DiskCopies::EndFetch(const Piece& piece) {
  const PagingSchedule::Fetch& fetch = run_.schedule.fetches[piece.index];
  if (piece.at == 0) {
    RETURN_IF_ERROR(
        in_.stream->Wait(fetch.after_step < 0 ? run_.begun : *run_.over[fetch.after_step]));
    for (const int write : fetch.after_writes) {
      RETURN_IF_ERROR(in_.stream->Wait(*run_.written[write]));
    }
  }
  const bool on_disk = piece.slot >= 0;
  if (on_disk) RETURN_IF_ERROR(Annotate(in_.queue->Await(piece.slot), BlockOf(piece.stay).name));
  std::byte* const from = on_disk ? SlotOf(in_, piece.slot) : run_.pages + BlockOf(piece.stay).page;
  const TimelineLabel label("fetch");
  RETURN_IF_ERROR(run_.copies.In(*in_.stream, piece.stay, piece.at, from, piece.bytes));
  if (on_disk) RETURN_IF_ERROR(in_.stream->Record(*in_.copied[piece.slot]));
  if (!piece.last) return absl::OkStatus();
  RETURN_IF_ERROR(in_.stream->Record(*run_.fetched[piece.index]));
  Note([&] { ++fetched_[piece.index]; });
  return absl::OkStatus();
}

absl::Status DiskCopies::CheckHomes() {
  const Staging& staging = run_.plan.staging;
  std::vector<const PagedBlock*> blocks(staging.slots);  // that are being read
  const auto await = [&](int slot) {
    if (blocks[slot] == nullptr) return absl::OkStatus();
    return Annotate(in_.queue->Await(slot), blocks[slot]->name);
  };
  int slot = 0;  // the next
  for (const PagedBlock& block : run_.plan.blocks) {
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
  const auto slots = static_cast<size_t>(run_.plan.staging.slots);
  std::deque<Piece> copying, writing;
  std::optional<Cut> now;
  int slot = 0;  // the next
  for (;;) {
    const bool idle = copying.empty() && writing.empty();
    if (!now) now = Next(out_, idle);
    if (!now && idle) return absl::OkStatus();
    if (now && now->job.what == What::kFinish && idle) {
      RETURN_IF_ERROR(out_.stream->Synchronize());
      Note([this] { ++out_.finished; });
      now.reset();
      continue;
    }
    if (now && now->job.what == What::kCopy && copying.size() + writing.size() < slots) {
      const Piece piece = CutPiece(*now, now->job.index, slot);
      if (piece.last) now.reset();
      RETURN_IF_ERROR(BeginWriteBack(piece));
      if (piece.slot >= 0) copying.push_back(piece);
      continue;
    }
    bool copied = !copying.empty();
    if (copied && !writing.empty()) {
      ASSIGN_OR_RETURN(copied, out_.copied[copying.front().slot]->Done());
    }
    if (copied) {
      // Of one place in the file the last write counts: one that is under way comes first.
      const size_t page = BlockOf(copying.front().stay).page + copying.front().at;
      while (std::ranges::any_of(writing, [&](const Piece& piece) {
        const size_t other = BlockOf(piece.stay).page + piece.at;
        return other < page + copying.front().bytes && page < other + piece.bytes;
      })) {
        RETURN_IF_ERROR(EndWrite(writing));
      }
      const Piece& piece = writing.emplace_back(copying.front());
      copying.pop_front();
      RETURN_IF_ERROR(out_.copied[piece.slot]->Synchronize());
      out_.queue->Write(piece.slot, BlockOf(piece.stay).page + piece.at, SlotOf(out_, piece.slot),
                        piece.bytes);
      continue;
    }
    RETURN_IF_ERROR(EndWrite(writing));
  }
}

// The first of them.
absl::Status DiskCopies::EndWrite(std::deque<Piece>& writing) {
  const Piece piece = writing.front();
  writing.pop_front();
  RETURN_IF_ERROR(Annotate(out_.queue->Await(piece.slot), BlockOf(piece.stay).name));
  if (piece.last) Note([&] { ++stored_[piece.stay]; });
  return absl::OkStatus();
}

absl::Status DiskCopies::BeginWriteBack(const Piece& piece) {
  const Stay& stay = run_.plan.stays[piece.stay];
  if (piece.at == 0) RETURN_IF_ERROR(out_.stream->Wait(*run_.over[stay.last_step]));
  std::byte* const to =
      piece.slot >= 0 ? SlotOf(out_, piece.slot) : run_.pages + BlockOf(piece.stay).page;
  const TimelineLabel label("write back");
  RETURN_IF_ERROR(run_.copies.Out(*out_.stream, piece.stay, piece.at, to, piece.bytes));
  if (piece.slot >= 0) RETURN_IF_ERROR(out_.stream->Record(*out_.copied[piece.slot]));
  if (!piece.last) return absl::OkStatus();
  RETURN_IF_ERROR(out_.stream->Record(*run_.written[piece.stay]));
  Note([&] { ++left_[piece.stay]; });
  return absl::OkStatus();
}

}  // namespace gyre
