#include "tests/layers/slot.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace gyre {
namespace {

constexpr size_t kGuardBytes = 64;
constexpr auto kPoison = std::byte{0xFF};

template <typename T>
Doubles Widen(const void* bytes, int64_t n) {
  const T* elements = static_cast<const T*>(bytes);
  return Doubles(elements, elements + n);
}

template <typename T>
std::vector<std::byte> Narrow(const Doubles& values) {
  std::vector<std::byte> bytes(values.size() * sizeof(T));
  for (size_t i = 0; i < values.size(); ++i) {
    const T value = static_cast<T>(values[i]);  // 16 bits: by way of float
    std::memcpy(bytes.data() + i * sizeof(T), &value, sizeof(T));
  }
  return bytes;
}

}  // namespace

Doubles ToDoubles(const void* bytes, const Shape& shape, DType dtype) {
  if (dtype == DType::kI32) return Widen<int32_t>(bytes, shape.elements());
  GYRE_CHECK(IsReal(dtype));
  return VisitReal(dtype, [&]<typename T>() { return Widen<T>(bytes, shape.elements()); });
}

std::vector<std::byte> ToBytes(const Doubles& values, DType dtype) {
  if (dtype == DType::kI32) return Narrow<int32_t>(values);
  GYRE_CHECK(IsReal(dtype));
  return VisitReal(dtype, [&]<typename T>() { return Narrow<T>(values); });
}

Doubles RoundedTo(DType dtype, const Doubles& values) {
  return ToDoubles(ToBytes(values, dtype).data(), Shape{static_cast<int64_t>(values.size())},
                   dtype);
}

absl::Status Slot::Allocate(Device& device, Stream& stream, size_t bytes) {
  stream_ = &stream;
  bytes_ = bytes;
  ASSIGN_OR_RETURN(device_, Buffer::Allocate(device, MemoryKind::kDevice, bytes + kGuardBytes));
  ASSIGN_OR_RETURN(host_, Buffer::Allocate(device, MemoryKind::kPinnedHost, bytes + kGuardBytes));
  return Poison();
}

absl::Status Slot::Poison() {
  std::fill_n(host_.data(), host_.bytes(), kPoison);
  return Upload();
}

absl::Status Slot::Upload() {
  RETURN_IF_ERROR(stream_->Copy(device_.data(), host_.data(), host_.bytes()));
  return stream_->Synchronize();
}

absl::Status Slot::Download() {
  RETURN_IF_ERROR(stream_->Copy(host_.data(), device_.data(), host_.bytes()));
  RETURN_IF_ERROR(stream_->Synchronize());
  const std::byte* guard = host_.data() + bytes_;
  if (std::all_of(guard, guard + kGuardBytes, [](std::byte b) { return b == kPoison; })) {
    return absl::OkStatus();
  }
  return absl::InternalError("written beyond its end");
}

absl::Status Slot::Write(const std::vector<std::byte>& bytes, size_t offset) {
  GYRE_CHECK(offset <= bytes_ && bytes.size() <= bytes_ - offset);
  RETURN_IF_ERROR(Download());  // what is around
  std::copy(bytes.begin(), bytes.end(), host_.data() + offset);
  return Upload();
}

absl::StatusOr<std::vector<std::byte>> Slot::Read() {
  RETURN_IF_ERROR(Download());
  return std::vector<std::byte>(host_.data(), host_.data() + bytes_);
}

}  // namespace gyre
