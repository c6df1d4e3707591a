// mpi_layout.h: a number of bytes as MPI counts them, to 2^31 - 1: beyond, in blocks and a rest.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <limits>

namespace gyre {

class MpiLayout {
 public:
  explicit MpiLayout(size_t bytes) : count_(static_cast<int>(bytes)) {
    if (bytes <= static_cast<size_t>(std::numeric_limits<int>::max())) return;
    constexpr size_t kBlock = 1 << 20;
    MPI_Datatype block = MPI_BYTE;
    MPI_Type_contiguous(kBlock, MPI_BYTE, &block);
    const int counts[] = {static_cast<int>(bytes / kBlock), static_cast<int>(bytes % kBlock)};
    const MPI_Aint places[] = {0, static_cast<MPI_Aint>(bytes / kBlock * kBlock)};
    const MPI_Datatype types[] = {block, MPI_BYTE};
    MPI_Type_create_struct(2, counts, places, types, &type_);
    MPI_Type_commit(&type_);
    MPI_Type_free(&block);
    count_ = 1;
  }
  ~MpiLayout() {
    if (type_ != MPI_BYTE) MPI_Type_free(&type_);  // once what uses it is done
  }
  MpiLayout(const MpiLayout&) = delete;
  MpiLayout& operator=(const MpiLayout&) = delete;
  int count() const { return count_; }
  MPI_Datatype type() const { return type_; }

 private:
  int count_;
  MPI_Datatype type_ = MPI_BYTE;
};

}  // namespace gyre
