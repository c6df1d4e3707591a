// row_index.h: the places of all rows that a rank moves, built once, in its device's memory.
#pragma once

#include <vector>

#include "distributed/parameter_server/row_kernels.h"
#include "distributed/parameter_server/tables.h"
#include "engine/runtime/device/buffer.h"

namespace gyre {

class RowIndex {
 public:
  // Returns a number for the places, before Upload.  Consecutive places take no memory.
  int Add(const RowList& places);
  // Blocks.  Errors: those of the device.
  absl::Status Upload(Device& device, Stream& stream);
  RowIndices operator[](int number) const;

 private:
  struct Entry {
    RowIndices places;    // `index` is not set
    int64_t offset = -1;  // in all_; -1: consecutive
  };
  std::vector<Entry> entries_;
  std::vector<int32_t> all_;
  Buffer memory_;
};

}  // namespace gyre
