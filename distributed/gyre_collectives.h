// gyre_collectives.h: allreduce, reduce-scatter, allgather and broadcast for any MPI program.
//
// Operations work in place, in host or device memory, while the program computes.  A thread of the
// library carries out several at once, or the caller does while it waits.  All ranks begin the same
// operations (call, count, type, root) in the same order.  All calls come from one thread.
// docs/collectives.md has an example.  No other header of Gyre is needed.
//
// Errors.  The first error is that of every rank and of every later operation.  It may appear in a
// later operation than its cause.  Nothing hangs, and a rank silent for the time limit is named.
// After an error the library owns the device and all memory of operations until the process ends.
// The program should then end the job (MPI_Abort).
#pragma once

#include <mpi.h>

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "distributed/collectives/reduction.h"
#include "engine/runtime/dtype.h"

namespace gyre {

class Device;  // engine/runtime/device/device.h; NewCudaDevice opens a GPU (cuda_device.h)
class PinnedStaging;
class ProcessGroup;

class Collectives {
 public:
  enum class Memory : uint8_t { kHost, kDevice };

  // An operation under way.  Destroyed before the Collectives.
  class [[nodiscard]] Pending {
   public:
    Pending(Pending&& other) noexcept;
    Pending& operator=(Pending&& other) noexcept;  // waits for its former operation
    ~Pending();                                    // waits

    // Whether Wait would return without waiting for other ranks.  Never blocks.  Errors: as Wait's.
    absl::StatusOr<bool> Done();
    // Blocks until the host and every stream can read the result.  May be called again.
    absl::Status Wait();

   private:
    friend class Collectives;
    Pending() = default;

    Collectives* owner_ = nullptr;  // null after Wait
    int64_t ticket_ = 0;
    int64_t staged_ = -1;  // slot of the staging, for device memory
    absl::Status status_;
  };

  static constexpr int64_t kTimeoutMs = 300'000;

  // Blocks until all ranks of `comm` have called it.  It duplicates `comm`, so messages of the
  // program and the library do not mix.  timeout_ms limits the wait for a silent rank.  Destroy the
  // result before MPI_Finalize.
  // Errors: FailedPrecondition unless MPI runs with MPI_THREAD_MULTIPLE, since the library's thread
  // calls MPI beside the program.  InvalidArgument for MPI_COMM_NULL or an intercommunicator.
  // DeadlineExceeded if not all ranks call it within two minutes.
  static absl::StatusOr<std::unique_ptr<Collectives>> Start(MPI_Comm comm,
                                                            int64_t timeout_ms = kTimeoutMs);
  // Likewise over all ranks, for a program that does not call MPI.  The library's thread starts and
  // finishes MPI.  Once in a process.
  // Errors: Unavailable if MPI was started before or does not start.  FailedPrecondition if several
  // processes were started neither by mpirun nor by srun --mpi=pmix.  DeadlineExceeded as above.
  static absl::StatusOr<std::unique_ptr<Collectives>> StartMpi(int64_t timeout_ms = kTimeoutMs);
  // Waits until the library has finished with MPI.  After an error it leaves the thread behind.
  ~Collectives();

  int rank() const;  // in `comm`
  int size() const;

  // The elements that are `rank`'s of `count`.  Lengths differ by at most one.
  ElementRange Part(int64_t count, int rank) const { return EqualPart(count, size(), rank); }

  // Lets operations use memory of `device`, by copies through pinned host memory.  Called once, by
  // this rank alone, and others may have no device.  The device outlives this object.
  // NewCudaDevice is Unimplemented in a build without CUDA.
  // Errors: FailedPrecondition the second time, and those of the device.
  absl::Status UseDevice(Device& device);

  // All four begin an operation on `count` >= 0 elements at `data`, in place, and return at once.
  // Precondition: work that wrote the memory has finished on every stream, as with MPI.
  // The caller does not touch the memory until Wait has returned.
  // Errors, from Wait:
  //   InvalidArgument     null data, count or root out of range, a type that cannot be summed
  //   FailedPrecondition  ranks began other operations (names both), or no UseDevice
  //   Unavailable         a silent rank
  //   others              those of MPI and of the device

  // Sums take F64, F32, F16 and BF16, and add the latter two in F32.  The order of additions
  // depends only on count, type and the ranks' hosts.

  // All ranks get the sum, with the same bits.
  Pending Allreduce(void* data, int64_t count, DType type, Memory memory = Memory::kHost);
  // Rank r gets Part(count, r) of the sum.  The rest of its memory is undefined.
  Pending ReduceScatter(void* data, int64_t count, DType type, Memory memory = Memory::kHost);

  // Copies take elements of any type.  Rank r has Part(count, r) before, and all ranks have all
  // parts after.
  Pending Allgather(void* data, int64_t count, DType type, Memory memory = Memory::kHost);
  // All ranks get the values of `root`.
  Pending Broadcast(void* data, int64_t count, DType type, int root, Memory memory = Memory::kHost);

 private:
  struct Call;

  explicit Collectives(std::unique_ptr<ProcessGroup> group);
  Pending Begin(const Call& call);
  absl::Status Submit(const Call& call, Pending& pending);
  absl::Status Finish(const Pending& pending);

  std::unique_ptr<ProcessGroup> group_;
  std::unique_ptr<PinnedStaging> staging_;  // null before UseDevice
  std::string what_;                        // label of the current call; reused memory
};

}  // namespace gyre
