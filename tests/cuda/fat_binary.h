// fat_binary.h: reads what nvcc embeds in an object file: the same kernels, once for each
// architecture as machine code (ELF) or as PTX, which a driver compiles for newer GPUs.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace gyre {

struct KernelImage {
  bool is_ptx;
  int architecture;  // 80 is sm_80, compute_80
  std::string_view bytes;

  std::string name() const;  // "sm_80", "compute_80"
  // Whether it defines the kernel of this mangled name.
  bool Defines(std::string_view kernel) const;
};

// The images in a fat binary as nvcc registers it; they live as long as the program.
// Aborts if it is not one, or if its images are compressed (nvcc --no-compress keeps them plain).
std::vector<KernelImage> ImagesOf(const void* fat_binary);

}  // namespace gyre
