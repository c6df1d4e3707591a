#include "engine/data/batches/batch_loader.h"

#include <condition_variable>
#include <deque>
#include <limits>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/runtime/check.h"
#include "engine/runtime/device/buffer.h"

namespace gyre {

// A slot is memory for one batch.  It is free, then being decoded by the thread, then ready, then
// held by the user until Release.  Batches become ready in order.
class BatchLoader::Impl {
 public:
  Impl(const Dataset& dataset, SampleOrder order, const BatchLoaderOptions& options,
       const std::vector<Tensor>& arrays, Buffer memory)
      : dataset_(dataset),
        order_(std::move(order)),
        options_(options),
        memory_(std::move(memory)),
        slots_(static_cast<size_t>(options.depth)) {
    const size_t slot_bytes = BatchBytes(arrays);
    for (size_t i = 0; i < slots_.size(); ++i) {
      slots_[i] = BatchAt(memory_.data() + i * slot_bytes, arrays);
      free_.push_back(&slots_[i]);
    }
    for (const LoadedArray& loaded : options.arrays) {
      decoders_.emplace_back(dataset.arrays()[loaded.array].dtype, loaded.dtype,
                             loaded.normalization);
    }
    thread_ = std::thread([this] { DecodeAll(); });
  }

  ~Impl() {
    {
      std::lock_guard lock(mutex_);
      stop_ = true;
    }
    slot_freed_.notify_one();
    thread_.join();
  }

  absl::StatusOr<Batch> Next() {
    std::unique_lock lock(mutex_);
    GYRE_CHECK(held_ + 1 < options_.depth);
    batch_ready_.wait(lock, [this] { return failed_at_end_ || !ready_.empty(); });
    if (ready_.empty()) return failure_;
    const Batch batch = *ready_.front();
    ready_.pop_front();
    ++held_;
    return batch;
  }

  void Release(const Batch& batch) {
    Batch* slot = nullptr;
    for (Batch& candidate : slots_) {
      if (candidate.arrays[0].data == batch.arrays[0].data) slot = &candidate;
    }
    GYRE_CHECK(slot != nullptr);
    {
      std::lock_guard lock(mutex_);
      GYRE_CHECK(held_ > 0);
      --held_;
      free_.push_back(slot);
    }
    slot_freed_.notify_one();
  }

 private:
  void DecodeAll() {
    for (int64_t position = options_.first_position;; position += options_.advance) {
      Batch* slot = nullptr;
      {
        std::unique_lock lock(mutex_);
        slot_freed_.wait(lock, [this] { return stop_ || !free_.empty(); });
        if (stop_) return;
        slot = free_.front();
        free_.pop_front();
      }
      const absl::Status status = Decode(position, slot);
      {
        std::lock_guard lock(mutex_);
        if (status.ok()) {
          ready_.push_back(slot);
        } else {
          failure_ = status;
          failed_at_end_ = true;
        }
      }
      batch_ready_.notify_one();
      if (!status.ok()) return;
    }
  }

  absl::Status Decode(int64_t position, Batch* batch) {
    batch->first_position = position;
    batch->samples.resize(static_cast<size_t>(options_.count));
    for (int64_t i = 0; i < options_.count; ++i) {
      const int64_t sample = order_.At(position + i);
      const Move move = MoveAt(options_.augmentation, options_.seed, position + i);
      const bool begins = order_.BeginsAt(position + i);
      batch->samples[i] = sample;
      for (size_t k = 0; k < options_.arrays.size(); ++k) {
        const LoadedArray& loaded = options_.arrays[k];
        ASSIGN_OR_RETURN(const Tensor stored, dataset_.Read(sample, loaded.array));
        Tensor to{batch->arrays[k].data, stored.shape, loaded.dtype};
        to.data = static_cast<std::byte*>(to.data) + static_cast<size_t>(i) * to.bytes();
        const absl::Status decoded =
            decoders_[k].Decode(stored, loaded.augmented ? move : Move{}, to);
        if (!decoded.ok()) {
          return absl::InvalidArgumentError(absl::StrCat(dataset_.arrays()[loaded.array].file,
                                                         ": sample ", sample, " (the first is 0) ",
                                                         decoded.message()));
        }
        if (begins && dataset_.arrays()[loaded.array].reset) *to.as<int32_t>() = 1;
      }
    }
    return absl::OkStatus();
  }

  const Dataset& dataset_;
  SampleOrder order_;  // the thread's
  const BatchLoaderOptions options_;
  Buffer memory_;
  std::vector<Batch> slots_;
  std::vector<Decoder> decoders_;  // by array

  std::mutex mutex_;  // guards everything below
  std::condition_variable slot_freed_, batch_ready_;
  std::deque<Batch*> free_, ready_;
  int held_ = 0;
  absl::Status failure_;
  bool failed_at_end_ = false;  // failure_ comes after the last ready batch
  bool stop_ = false;
  std::thread thread_;
};

absl::StatusOr<std::unique_ptr<BatchLoader>> BatchLoader::Create(
    const Dataset& dataset, SampleOrder order, Device& device, const BatchLoaderOptions& options) {
  if (options.arrays.empty() || options.first_position < 0 || options.count < 0 ||
      options.advance < 0 || options.depth < 2) {
    return absl::InvalidArgumentError(
        absl::StrCat("a batch loader wants an array, first position, count and advance >= 0 and "
                     "depth >= 2, got ",
                     options.arrays.size(), ", ", options.first_position, ", ", options.count, ", ",
                     options.advance, " and ", options.depth));
  }
  using Wide = unsigned __int128;  // a count is a user's number: the products may exceed 64 bits
  const auto count = static_cast<Wide>(options.count);
  Wide most_bytes = 0;  // more than a batch has, padding to cache lines included
  std::vector<Tensor> arrays;
  for (const LoadedArray& loaded : options.arrays) {
    const DataArray& array = dataset.arrays()[loaded.array];
    if (!Decoder::CanDecode(array.dtype, loaded.dtype)) {
      return absl::InvalidArgumentError(absl::StrCat(array.file, ": cannot make ",
                                                     std::string(DTypeName(loaded.dtype)), " of ",
                                                     std::string(DTypeName(array.dtype))));
    }
    const Wide sample_bytes = static_cast<Wide>(array.shape.elements()) * SizeOf(loaded.dtype);
    most_bytes += sample_bytes * count + 64;
    if (most_bytes * static_cast<Wide>(options.depth) >
        static_cast<Wide>(std::numeric_limits<int64_t>::max())) {
      return absl::InvalidArgumentError(absl::StrCat("batches of ", options.count, " samples of ",
                                                     array.shape.ToString(),
                                                     " exceed the address space"));
    }
    std::vector<int64_t> dims = {options.count};
    dims.insert(dims.end(), array.shape.dims().begin(), array.shape.dims().end());
    arrays.push_back({nullptr, Shape(std::span<const int64_t>(dims)), loaded.dtype});
  }
  const size_t bytes = BatchBytes(arrays) * static_cast<size_t>(options.depth);
  ASSIGN_OR_RETURN(Buffer memory, Buffer::Allocate(device, MemoryKind::kPinnedHost, bytes));
  return std::unique_ptr<BatchLoader>(new BatchLoader(
      std::make_unique<Impl>(dataset, std::move(order), options, arrays, std::move(memory))));
}

BatchLoader::BatchLoader(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
BatchLoader::~BatchLoader() = default;

absl::StatusOr<Batch> BatchLoader::Next() { return impl_->Next(); }
void BatchLoader::Release(const Batch& batch) { impl_->Release(batch); }

}  // namespace gyre
