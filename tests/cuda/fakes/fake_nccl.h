// fake_nccl.h: NCCL without a GPU: its ranks are threads of this process, device memory is host
// memory, and a sum is done in rank order once all ranks have asked for it.
//
// It checks what NCCL checks or demands: one thread for each communicator, no call while it is in
// progress, equal counts and types, one GPU for each rank.  It never blocks, and finishes
// everything some polls later than it could.  Thread-safe.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

namespace gyre {

struct Nccl;

class FakeNccl {
 public:
  FakeNccl();
  ~FakeNccl();  // one of a kind at a time
  FakeNccl(const FakeNccl&) = delete;
  FakeNccl& operator=(const FakeNccl&) = delete;

  const Nccl& table() const;

  // Before ranks start.
  // The GPU that a rank's thread has chosen; by default each rank has its own.
  std::function<int(int rank)> gpu_of_rank = [](int rank) { return rank; };
  // Whether all of [data, data + bytes) is device memory.
  std::function<bool(const void*, size_t)> is_device_memory = [](const void*, size_t) {
    return true;
  };
  // Sums from the nth on never end, or end as if another rank had gone (0: none).
  int hang_sum = 0, lose_rank_in_sum = 0;

  // The nth call of a function by rank 0 from now on (1: the next) fails with NCCL's internal
  // error.
  void FailCall(const std::string& function, int nth);

  int Calls(const std::string& function) const;
  // Communicators that have been neither destroyed nor aborted.
  int Alive() const;

  // Internal to the fake.
  struct World;
  World& world() { return *world_; }

 private:
  std::unique_ptr<World> world_;
};

}  // namespace gyre
