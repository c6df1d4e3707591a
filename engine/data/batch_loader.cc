#include "engine/data/batch_loader.h"

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
       const Shape& images, Buffer memory)
      : dataset_(dataset),
        order_(std::move(order)),
        options_(options),
        memory_(std::move(memory)),
        slots_(static_cast<size_t>(options.depth)) {
    const size_t slot_bytes = BatchBytes(images, options.dtype);
    for (size_t i = 0; i < slots_.size(); ++i) {
      slots_[i] = BatchAt(memory_.data() + i * slot_bytes, images, options.dtype);
      if (options.dtype == DType::kU8) slots_[i].pixel_values = &dataset.pixel_values();
      free_.push_back(&slots_[i]);
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
      if (candidate.images.data == batch.images.data) slot = &candidate;
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
    const Shape& sample = dataset_.sample_shape();
    Tensor image = {batch->images.data, sample, options_.dtype};
    int32_t* labels = batch->labels.as<int32_t>();
    batch->samples.resize(static_cast<size_t>(options_.count));
    for (int64_t i = 0; i < options_.count; ++i) {
      batch->samples[i] = order_.At(position + i);
      RETURN_IF_ERROR(dataset_.Read(batch->samples[i], image, &labels[i]));
      image.data = static_cast<std::byte*>(image.data) + image.bytes();
    }
    return absl::OkStatus();
  }

  const Dataset& dataset_;
  SampleOrder order_;  // the thread's
  const BatchLoaderOptions options_;
  Buffer memory_;
  std::vector<Batch> slots_;

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
  if ((!IsComputeType(options.dtype) && options.dtype != DType::kU8) ||
      options.first_position < 0 || options.count < 0 || options.advance < 0 || options.depth < 2) {
    return absl::InvalidArgumentError(
        absl::StrCat("a batch loader wants F32, F64 or U8, first position, count and advance >= 0 "
                     "and depth >= 2, "
                     "got ",
                     std::string(DTypeName(options.dtype)), ", ", options.first_position, ", ",
                     options.count, ", ", options.advance, " and ", options.depth));
  }
  using Wide = unsigned __int128;  // a count is a user's number: the products may exceed 64 bits
  const Shape& sample = dataset.sample_shape();
  const auto depth = static_cast<Wide>(options.depth);
  const Wide sample_bytes = static_cast<Wide>(sample.elements()) * SizeOf(options.dtype);
  // More than a batch has, padding to cache lines included.
  const Wide most_bytes =
      (sample_bytes + 2 * sizeof(int32_t)) * static_cast<Wide>(options.count) + 2 * 64;
  if (most_bytes * depth > static_cast<Wide>(std::numeric_limits<int64_t>::max())) {
    return absl::InvalidArgumentError(absl::StrCat("batches of ", options.count, " samples of ",
                                                   sample.ToString(), " exceed the address space"));
  }
  const Shape images{options.count, sample[0], sample[1], sample[2]};
  const size_t bytes = BatchBytes(images, options.dtype) * static_cast<size_t>(options.depth);
  ASSIGN_OR_RETURN(Buffer memory, Buffer::Allocate(device, MemoryKind::kPinnedHost, bytes));
  return std::unique_ptr<BatchLoader>(new BatchLoader(
      std::make_unique<Impl>(dataset, std::move(order), options, images, std::move(memory))));
}

BatchLoader::BatchLoader(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
BatchLoader::~BatchLoader() = default;

absl::StatusOr<Batch> BatchLoader::Next() { return impl_->Next(); }
void BatchLoader::Release(const Batch& batch) { impl_->Release(batch); }

}  // namespace gyre
