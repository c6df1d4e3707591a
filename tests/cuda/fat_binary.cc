#include "tests/cuda/fat_binary.h"

#include <cstdint>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "engine/runtime/check.h"

namespace gyre {
namespace {

// As found by looking at what nvcc 13 writes; all little-endian.
struct FatBinaryHeader {
  uint32_t magic;
  uint16_t version, header_bytes;
  uint64_t image_bytes;  // of all images with their headers
};
constexpr uint32_t kMagic = 0xBA55ED50;

struct ImageHeader {
  uint16_t kind, version;  // kPtx or kElf
  uint32_t header_bytes;
  uint64_t bytes;
  uint32_t compressed_bytes;  // 0: the image is plain
  uint32_t unused[2];
  uint32_t architecture;
};
constexpr uint16_t kPtx = 1, kElf = 2;

template <typename T>
T Read(const char* at) {
  T value;
  std::memcpy(&value, at, sizeof(value));
  return value;
}

}  // namespace

std::string KernelImage::name() const {
  return absl::StrCat(is_ptx ? "compute_" : "sm_", architecture);
}

bool KernelImage::Defines(std::string_view kernel) const {
  // PTX declares an entry; machine code has a section for each kernel, whose name ends with a zero.
  std::string definition = is_ptx ? ".entry " : ".text.";
  definition.append(kernel);
  definition.push_back(is_ptx ? '(' : '\0');
  return bytes.find(definition) != bytes.npos;
}

std::vector<KernelImage> ImagesOf(const void* fat_binary) {
  const char* at = static_cast<const char*>(fat_binary);
  const auto header = Read<FatBinaryHeader>(at);
  GYRE_CHECK(header.magic == kMagic);
  at += header.header_bytes;
  const char* const end = at + header.image_bytes;
  std::vector<KernelImage> images;
  while (at < end) {
    const auto image = Read<ImageHeader>(at);
    GYRE_CHECK(image.kind == kPtx || image.kind == kElf);
    GYRE_CHECK(image.compressed_bytes == 0);
    images.push_back({.is_ptx = image.kind == kPtx,
                      .architecture = static_cast<int>(image.architecture),
                      .bytes = {at + image.header_bytes, image.bytes}});
    at += image.header_bytes + image.bytes;
  }
  return images;
}

}  // namespace gyre
