#include "engine/data/batches/batch_loader.h"

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <iterator>
#include <limits>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/data/batches/read_ahead.h"
#include "engine/data/batches/sample_writer.h"
#include "engine/runtime/check.h"
#include "engine/runtime/device/buffer.h"

namespace gyre {

// Of the workers, beside 0 of threads that compute, which go first where both want a core.  With 10
// and more, decoding hardly begins before a step waits for it: see docs/benchmarks/pictures.md.
constexpr int kNice = 5;

// A slot is memory for one batch.  It is free, then being decoded, then held by the user until
// Release.  Workers take ranges of samples in the order of positions, across slots.  So a batch is
// decoded by all of them, and batches are complete in about their order.
class BatchLoader::Impl {
 public:
  Impl(const Dataset& dataset, SampleOrder order, const BatchLoaderOptions& options,
       SampleWriter writer, const std::vector<Tensor>& arrays, Buffer memory)
      : dataset_(dataset),
        options_(options),
        writer_(std::move(writer)),
        memory_(std::move(memory)),
        slots_(static_cast<size_t>(options.depth)),
        order_(std::move(order)),
        next_position_(options.first_position) {
    const size_t slot_bytes = BatchBytes(arrays);
    for (size_t i = 0; i < slots_.size(); ++i) {
      slots_[i].batch = BatchAt(memory_.data() + i * slot_bytes, arrays);
      free_.push_back(&slots_[i]);
    }
    if (order_.WindowEnd(0) > 0 && options.advance > 0) {
      ahead_.emplace(order_, options.first_position, options.count, options.advance);
    }
    for (int i = 0; i < options.workers; ++i) workers_.emplace_back([this] { Work(); });
  }

  ~Impl() {
    {
      std::lock_guard lock(mutex_);
      stop_ = true;
    }
    slot_freed_.notify_all();
    for (std::thread& worker : workers_) worker.join();
  }

  Batch Next() {
    std::unique_lock lock(mutex_);
    GYRE_CHECK(held_ + 1 < options_.depth);
    const Clock::time_point began = Clock::now();
    decoded_.wait(lock, [this] { return !begun_.empty() && begun_.front()->complete(); });
    times_.next_waited += SecondsSince(began);
    BatchSlot& slot = *begun_.front();
    std::ranges::sort(slot.batch.faults, {}, &Batch::FaultySample::sample);
    begun_.pop_front();
    ++held_;
    return slot.batch;
  }

  LoaderTimes times() {
    std::lock_guard lock(mutex_);
    return times_;
  }

  void Release(const Batch& batch) {
    const auto slot = std::ranges::find(slots_, batch.arrays[0].data,
                                        [](const BatchSlot& s) { return s.batch.arrays[0].data; });
    GYRE_CHECK(slot != slots_.end());
    {
      std::lock_guard lock(mutex_);
      GYRE_CHECK(held_ > 0);
      --held_;
      free_.push_back(&*slot);
    }
    slot_freed_.notify_one();
  }

 private:
  using Clock = std::chrono::steady_clock;
  static double SecondsSince(Clock::time_point then) {
    return std::chrono::duration<double>(Clock::now() - then).count();
  }

  struct BatchSlot {
    Batch batch = {};
    int64_t taken = 0, decoded = 0;  // samples
    std::vector<OrderedSample> samples = {};
    std::vector<int64_t> soon = {};  // samples to ask for

    int64_t count() const { return static_cast<int64_t>(batch.samples.size()); }
    bool complete() const { return decoded == count(); }
  };
  struct WorkerMemory {
    SampleWriter::SampleBuffers sample;
    std::vector<Tensor> to;                   // where the sample's arrays go
    std::vector<Batch::FaultySample> faults;  // of the range being decoded
  };
  struct SampleRange {
    BatchSlot* slot;
    int64_t first, last;
  };

  // Waits for samples to decode, and takes some.  None: the loader ends.
  std::optional<SampleRange> Take(std::unique_lock<std::mutex>& lock) {
    for (;;) {
      const Clock::time_point began = Clock::now();
      slot_freed_.wait(lock, [this] {
        return stop_ || (filling_ != nullptr && filling_->taken < filling_->count()) ||
               !free_.empty();
      });
      times_.workers_waited += SecondsSince(began);
      if (stop_) return std::nullopt;
      if (filling_ == nullptr || filling_->taken == filling_->count()) {
        Begin();
        slot_freed_.notify_all();
        continue;
      }
      // A few ranges for each worker, so that they end a batch at about the same time.
      constexpr int64_t kRanges = 4;
      const int64_t most = options_.workers == 1
                               ? options_.count
                               : CeilDiv(options_.count, kRanges * int64_t{options_.workers});
      const int64_t first = filling_->taken;
      filling_->taken = std::min(filling_->count(), first + most);
      return SampleRange{filling_, first, filling_->taken};
    }
  }

  // Begins the next batch in a free slot.
  void Begin() {
    filling_ = free_.front();
    free_.pop_front();
    filling_->batch.first_position = next_position_;
    filling_->batch.samples.resize(static_cast<size_t>(options_.count));
    filling_->samples.resize(static_cast<size_t>(options_.count));
    filling_->taken = filling_->decoded = 0;
    filling_->batch.faults.clear();
    for (int64_t i = 0; i < options_.count; ++i) {
      OrderedSample& sample = filling_->samples[i];
      sample.position = next_position_ + i;
      if (options_.mixing.any()) {
        sample.position_beside = order_.Beside(sample.position);
        sample.beside = order_.At(sample.position_beside);
      }
      sample.sample = filling_->batch.samples[i] = order_.At(sample.position);
      sample.begins = order_.BeginsAt(sample.position);
    }
    if (ahead_) filling_->soon = ahead_->Next();
    next_position_ += options_.advance;
    begun_.push_back(filling_);
    if (options_.count == 0) decoded_.notify_one();
  }

  void Work() {
    // Of this thread alone, on Linux, above what the program itself was started with.
    setpriority(PRIO_PROCESS, 0, getpriority(PRIO_PROCESS, 0) + kNice);
    WorkerMemory memory;
    std::unique_lock lock(mutex_);
    while (const std::optional<SampleRange> range = Take(lock)) {
      lock.unlock();
      const Clock::time_point began = Clock::now();
      if (range->first == 0 && !range->slot->soon.empty()) dataset_.ReadSoon(range->slot->soon);
      for (int64_t i = range->first; i < range->last; ++i) Decode(*range->slot, i, memory);
      const double seconds = SecondsSince(began);
      lock.lock();
      times_.workers_worked += seconds;
      BatchSlot& slot = *range->slot;
      std::ranges::move(memory.faults, std::back_inserter(slot.batch.faults));
      memory.faults.clear();
      slot.decoded += range->last - range->first;
      if (slot.complete()) decoded_.notify_one();
    }
  }

  // Decodes sample i of a batch, which becomes zeros if it cannot be.
  void Decode(const BatchSlot& slot, int64_t i, WorkerMemory& memory) const {
    memory.to = slot.batch.arrays;
    for (Tensor& to : memory.to) {
      to.shape = Shape(to.shape.dims().subspan(1));
      to.data = static_cast<std::byte*>(to.data) + static_cast<size_t>(i) * to.bytes();
    }
    const absl::Status status = writer_.Write(slot.samples[i], memory.sample, memory.to);
    if (status.ok()) return;
    for (const Tensor& to : memory.to) std::memset(to.data, 0, to.bytes());
    memory.faults.push_back({i, std::string(status.message())});
  }

  const Dataset& dataset_;
  const BatchLoaderOptions options_;
  const SampleWriter writer_;
  Buffer memory_;
  std::vector<BatchSlot> slots_;

  std::mutex mutex_;  // guards everything below, and a slot's numbers
  std::condition_variable slot_freed_, decoded_;
  SampleOrder order_;
  int64_t next_position_;  // of the next batch
  std::optional<ReadAhead> ahead_;
  std::deque<BatchSlot*> free_;
  std::deque<BatchSlot*> begun_;  // in the order of positions
  BatchSlot* filling_ = nullptr;  // of begun_, the last
  int held_ = 0;
  bool stop_ = false;
  LoaderTimes times_;
  std::vector<std::thread> workers_;
};

absl::StatusOr<std::unique_ptr<BatchLoader>> BatchLoader::Create(
    const Dataset& dataset, SampleOrder order, Device& device, const BatchLoaderOptions& options) {
  if (options.arrays.empty() || options.first_position < 0 || options.count < 0 ||
      options.advance < 0 || options.depth < 2 || options.workers < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("a batch loader wants an array, first position, count and advance >= 0, "
                     "depth >= 2 and workers >= 1, got ",
                     options.arrays.size(), ", ", options.first_position, ", ", options.count, ", ",
                     options.advance, ", ", options.depth, " and ", options.workers));
  }
  using Wide = unsigned __int128;  // a count is a user's number: the products may exceed 64 bits
  const auto count = static_cast<Wide>(options.count);
  Wide most_bytes = 0;  // more than a batch has, padding to cache lines included
  std::vector<Tensor> arrays;
  ASSIGN_OR_RETURN(SampleWriter writer, SampleWriter::Create(dataset, options));
  const std::vector<Shape> shapes = writer.shapes();
  for (size_t k = 0; k < shapes.size(); ++k) {
    const DType dtype = options.arrays[k].dtype;
    const Wide sample_bytes = static_cast<Wide>(shapes[k].elements()) * SizeOf(dtype);
    most_bytes += sample_bytes * count + 64;
    if (most_bytes * static_cast<Wide>(options.depth) >
        static_cast<Wide>(std::numeric_limits<int64_t>::max())) {
      return absl::InvalidArgumentError(absl::StrCat("batches of ", options.count, " samples of ",
                                                     shapes[k].ToString(),
                                                     " exceed the address space"));
    }
    std::vector<int64_t> dims = {options.count};
    dims.insert(dims.end(), shapes[k].dims().begin(), shapes[k].dims().end());
    arrays.push_back({nullptr, Shape(std::span<const int64_t>(dims)), dtype});
  }
  const size_t bytes = BatchBytes(arrays) * static_cast<size_t>(options.depth);
  ASSIGN_OR_RETURN(Buffer memory, Buffer::Allocate(device, MemoryKind::kPinnedHost, bytes));
  return std::unique_ptr<BatchLoader>(new BatchLoader(std::make_unique<Impl>(
      dataset, std::move(order), options, std::move(writer), arrays, std::move(memory))));
}

BatchLoader::BatchLoader(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
BatchLoader::~BatchLoader() = default;

Batch BatchLoader::Next() { return impl_->Next(); }
void BatchLoader::Release(const Batch& batch) { impl_->Release(batch); }
LoaderTimes BatchLoader::times() const { return impl_->times(); }

}  // namespace gyre
