// mpi_layout.h: a message of any length for MPI, by blocks of 1 MiB and a rest beyond 2^31 - 1.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <limits>

namespace gyre {

class MpiLayout {
 public:
  explicit MpiLayout(size_t bytes) : count_(static_cast<int>(bytes)) {
    if (bytes > static_cast<size_t>(std::numeric_limits<int>::max())) code_ = MakeType(bytes);
  }
  ~MpiLayout() {
    if (type_ != MPI_BYTE) MPI_Type_free(&type_);  // freed once its messages are done
  }
  MpiLayout(const MpiLayout&) = delete;
  MpiLayout& operator=(const MpiLayout&) = delete;
  // MPI_SUCCESS, or the first other result of an MPI call.  There is no layout then.
  int code() const { return code_; }
  int count() const { return count_; }
  MPI_Datatype type() const { return type_; }

 private:
  int MakeType(size_t bytes) {
    constexpr size_t kBlock = 1 << 20;
    MPI_Datatype block = MPI_BYTE;
    int code = MPI_Type_contiguous(kBlock, MPI_BYTE, &block);
    if (code != MPI_SUCCESS) return code;
    const int counts[] = {static_cast<int>(bytes / kBlock), static_cast<int>(bytes % kBlock)};
    const MPI_Aint places[] = {0, static_cast<MPI_Aint>(bytes / kBlock * kBlock)};
    const MPI_Datatype types[] = {block, MPI_BYTE};
    code = MPI_Type_create_struct(2, counts, places, types, &type_);
    if (code == MPI_SUCCESS) code = MPI_Type_commit(&type_);
    const int freed = MPI_Type_free(&block);
    count_ = 1;
    return code == MPI_SUCCESS ? freed : code;
  }

  int code_ = MPI_SUCCESS;
  int count_;
  MPI_Datatype type_ = MPI_BYTE;
};

}  // namespace gyre
