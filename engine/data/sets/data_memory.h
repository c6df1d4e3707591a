// data_memory.h: decoded pictures that stay in memory, as many as fit.  They are kept in the order
// in which they are first read, and stay until their data set ends.  Any thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "engine/data/pictures/resize.h"

namespace gyre {

// Bytes that data sets of a run share.
class DataMemory {
 public:
  explicit DataMemory(size_t capacity_bytes) : capacity_bytes_(capacity_bytes) {}

  // Takes so many of the bytes, if there are as many left.
  bool Take(size_t bytes);
  void GiveBack(size_t bytes) { taken_ -= bytes; }
  size_t taken() const { return taken_; }
  // Pictures that are kept.
  int64_t pictures() const { return pictures_; }
  void AddPicture() { ++pictures_; }

 private:
  const size_t capacity_bytes_;
  std::atomic<size_t> taken_ = 0;
  std::atomic<int64_t> pictures_ = 0;
};

// A picture in memory that was taken.
class KeptPicture {
 public:
  // Null if it does not fit.
  static std::unique_ptr<KeptPicture> New(std::shared_ptr<DataMemory> memory, int64_t height,
                                          int64_t width, int channels);
  ~KeptPicture() { memory_->GiveBack(bytes_); }
  KeptPicture(const KeptPicture&) = delete;

  uint8_t* data() { return data_.get(); }
  Pixels pixels() const { return {height_, width_, channels_, data_.get()}; }

 private:
  KeptPicture(std::shared_ptr<DataMemory> memory, size_t bytes, int64_t height, int64_t width,
              int channels);

  const std::shared_ptr<DataMemory> memory_;
  const size_t bytes_;  // taken
  const int64_t height_, width_;
  const int channels_;
  const std::unique_ptr<uint8_t[]> data_;
};

// The pictures of one array of a data set, by sample.  8 bytes each, beside what they take.
class KeptPictures {
 public:
  KeptPictures(std::shared_ptr<DataMemory> memory, int64_t samples)
      : memory_(std::move(memory)), kept_(static_cast<size_t>(samples)) {}
  ~KeptPictures();

  // A picture to be filled, then kept.  Null if it does not fit.
  std::unique_ptr<KeptPicture> New(int64_t height, int64_t width, int channels) const {
    return KeptPicture::New(memory_, height, width, channels);
  }
  // Null if it is not kept.
  const KeptPicture* Find(int64_t sample) const {
    return kept_[static_cast<size_t>(sample)].load(std::memory_order_acquire);
  }
  // Returns it, or the one that another thread has kept meanwhile.
  const KeptPicture& Keep(int64_t sample, std::unique_ptr<KeptPicture> picture);

 private:
  const std::shared_ptr<DataMemory> memory_;
  std::vector<std::atomic<const KeptPicture*>> kept_;
};

}  // namespace gyre
