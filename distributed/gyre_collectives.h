// gyre_collectives.h: allreduce, reduce-scatter, allgather and broadcast for any MPI program, in
// place, in host or device memory, while the program computes.  Nothing else of Gyre is needed.
//
//   MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
//   auto started = gyre::Collectives::Start(MPI_COMM_WORLD);  // not OK: status() says why
//   gyre::Collectives& collectives = **started;
//   auto sum = collectives.Allreduce(gradient.data(), count, gyre::DType::kF32);
//   ...                                                       // meanwhile
//   absl::Status status = sum.Wait();                         // gradient holds the sum
//
// Each call begins an operation, which a thread of the library's carries out, or the caller while
// it waits, several at once.  All ranks begin the same operations in the same order: the same call,
// count, type and root.  All calls come from one thread.
//
// Errors.  Each is the error of all ranks, and the last: what one calls wrongly, or otherwise than
// the others, every rank hears of, in this operation or a later one.  Nothing hangs: a rank that
// is silent for the time limit is named.  After the first error every operation has it; memory that
// was handed over, and the device, stay the library's until the process ends; the program should
// end the job (MPI_Abort).
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

  // An operation that was begun; to be gone before the Collectives.
  class [[nodiscard]] Pending {
   public:
    Pending(Pending&& other) noexcept;
    Pending& operator=(Pending&& other) noexcept;  // waits for what it was
    ~Pending();                                    // waits

    // Whether Wait would return without waiting for other ranks.  Never blocks.  Errors: Wait's.
    absl::StatusOr<bool> Done();
    // Blocks until the result is in memory, for the host and every stream.  Again: the same answer.
    absl::Status Wait();

   private:
    friend class Collectives;
    Pending() = default;

    Collectives* owner_ = nullptr;  // null: it was waited for
    int64_t ticket_ = 0;
    int64_t staged_ = -1;  // in device memory: where in the staging
    absl::Status status_;
  };

  static constexpr int64_t kTimeoutMs = 300'000;

  // Over the ranks of `comm`, which is duplicated: messages of the program's own never meet the
  // library's.  Blocks until all its ranks have called it.  timeout_ms: how long a silent rank is
  // waited for.  Destroy the result before MPI_Finalize.
  // Errors: FailedPrecondition unless MPI runs with MPI_THREAD_MULTIPLE, because the library's
  // thread calls MPI beside the program; InvalidArgument if comm is MPI_COMM_NULL or an
  // intercommunicator; DeadlineExceeded if not all ranks come within two minutes.
  static absl::StatusOr<std::unique_ptr<Collectives>> Start(MPI_Comm comm,
                                                            int64_t timeout_ms = kTimeoutMs);
  // The same over mpirun's ranks, for a program that makes no call of MPI: starts it, and finishes
  // it in the end, on the library's thread.  Once in a process.
  // Errors: Unavailable if MPI was started before or does not start; FailedPrecondition if another
  // launcher than Open MPI's mpirun has started this process; DeadlineExceeded, likewise.
  static absl::StatusOr<std::unique_ptr<Collectives>> StartMpi(int64_t timeout_ms = kTimeoutMs);
  // Waits until MPI has parted from the other ranks; after an error leaves the thread behind.
  ~Collectives();

  int rank() const;  // in comm
  int size() const;

  // The elements [begin, end) that are `rank`'s of `count`: lengths differ by one at most.
  ElementRange Part(int64_t count, int rank) const { return EqualPart(count, size(), rank); }

  // Device memory from now on is that of `device`, which must outlive this object; for this rank
  // alone, others may have none.  Once.  Operations go through pinned host memory.  In a build
  // without CUDA there is no GPU to use: NewCudaDevice is Unimplemented.
  // Errors: FailedPrecondition the second time; those of the device.
  absl::Status UseDevice(Device& device);

  // All four begin an operation on `count` elements at `data`, 0 or more, in place, and return at
  // once.  What wrote the memory has finished, on every stream, as with MPI itself; until Wait
  // returns nobody touches it.
  // Errors, by Wait: InvalidArgument for a null pointer, a count or root out of range, a type that
  // is not for sums; FailedPrecondition where ranks disagree, with what each has begun, or for
  // device memory without UseDevice; Unavailable for a silent rank; those of MPI and the device.

  // Sums: F64, F32, F16, BF16; the latter two are added in F32.  The order of additions depends on
  // count, type and the ranks' places on hosts alone.

  // After it all ranks have the sum over all ranks, the same bits.
  Pending Allreduce(void* data, int64_t count, DType type, Memory memory = Memory::kHost);
  // After it rank r has Part(count, r) of the sum; the rest of its memory is undefined.
  Pending ReduceScatter(void* data, int64_t count, DType type, Memory memory = Memory::kHost);

  // Copies: elements of any type.

  // Before it rank r has Part(count, r); after it all ranks have all parts.
  Pending Allgather(void* data, int64_t count, DType type, Memory memory = Memory::kHost);
  // After it all ranks have what `root` had.
  Pending Broadcast(void* data, int64_t count, DType type, int root, Memory memory = Memory::kHost);

 private:
  struct Call;

  explicit Collectives(std::unique_ptr<ProcessGroup> group);
  Pending Begin(const Call& call);
  absl::Status Submit(const Call& call, Pending& pending);
  absl::Status Finish(const Pending& pending);

  std::unique_ptr<ProcessGroup> group_;
  std::unique_ptr<PinnedStaging> staging_;  // null: no device is in use
  std::string what_;                        // of the call in hand; kept for its memory
};

}  // namespace gyre
