#include "engine/data/sets/data_memory.h"

#include <utility>

#include "engine/runtime/math.h"

namespace gyre {
namespace {

// What glibc's malloc takes for so many bytes: a header and multiples of 16, or whole pages.
size_t TakenFor(size_t bytes) {
  constexpr size_t kHeader = 16, kPages = size_t{128} << 10, kPage = 4096;
  return RoundUp(bytes + kHeader, bytes + kHeader >= kPages ? kPage : kHeader);
}

}  // namespace

bool DataMemory::Take(size_t bytes) {
  size_t taken = taken_;
  do {
    if (bytes > capacity_bytes_ - taken) return false;
  } while (!taken_.compare_exchange_weak(taken, taken + bytes));
  return true;
}

std::unique_ptr<KeptPicture> KeptPicture::New(std::shared_ptr<DataMemory> memory, int64_t height,
                                              int64_t width, int channels) {
  const size_t bytes =
      TakenFor(static_cast<size_t>(height * width * channels)) + TakenFor(sizeof(KeptPicture));
  if (!memory->Take(bytes)) return nullptr;
  return std::unique_ptr<KeptPicture>(
      new KeptPicture(std::move(memory), bytes, height, width, channels));
}

KeptPicture::KeptPicture(std::shared_ptr<DataMemory> memory, size_t bytes, int64_t height,
                         int64_t width, int channels)
    : memory_(std::move(memory)),
      bytes_(bytes),
      height_(height),
      width_(width),
      channels_(channels),
      data_(std::make_unique_for_overwrite<uint8_t[]>(
          static_cast<size_t>(height * width * channels))) {}

KeptPictures::~KeptPictures() {
  for (const auto& picture : kept_) delete picture.load();
}

const KeptPicture& KeptPictures::Keep(int64_t sample, std::unique_ptr<KeptPicture> picture) {
  const KeptPicture* kept = nullptr;
  auto& place = kept_[static_cast<size_t>(sample)];
  if (!place.compare_exchange_strong(kept, picture.get(), std::memory_order_acq_rel)) return *kept;
  memory_->AddPicture();
  return *picture.release();
}

}  // namespace gyre
