#include "tests/cuda/fakes/fake_nccl.h"

#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "engine/runtime/check.h"
#include "engine/runtime/device/cuda/cuda_libraries.h"

// What NCCL's handle points to: one rank's end of a clique.
struct ncclComm {
  std::string clique;  // its unique id
  int rank;
  std::thread::id thread;
  ncclResult_t state = ncclInProgress;  // once it has been polled `late` times more
  int late = 0;
  bool leaving = false;
  std::string last_error = {};
  // The sum it waits in; null: none.
  void* data = nullptr;
  size_t count = 0;
  ncclDataType_t type = ncclFloat32;
};

namespace gyre {

struct FakeNccl::World {
  struct Clique {
    int ranks = 0;
    std::map<int, ncclComm*> members;
    int sums = 0;
  };

  mutable std::mutex mutex;
  std::map<std::string, Clique> cliques;
  std::map<ncclComm*, std::unique_ptr<ncclComm>> comms;
  std::map<std::string, int> calls;
  std::map<std::string, int> failing;  // function -> calls of rank 0 until one fails
  uint64_t ids = 0;
  std::string complaint;  // of calls without a communicator
};

namespace {

FakeNccl* fake = nullptr;

constexpr int kLate = 3;

using World = FakeNccl::World;

ncclResult_t Refuse(ncclComm* comm, ncclResult_t code, const std::string& why) {
  (comm != nullptr ? comm->last_error : fake->world().complaint) = why;
  return code;
}

// What every call begins with; the caller holds the mutex.
ncclResult_t Begin(const char* function, int rank) {
  World& world = fake->world();
  ++world.calls[function];
  if (rank != 0) return ncclSuccess;
  const auto failing = world.failing.find(function);
  if (failing == world.failing.end() || --failing->second != 0) return ncclSuccess;
  world.complaint = std::string(function) + " was told to fail";
  for (auto& [comm, owned] : world.comms) {
    if (comm->rank == 0) comm->last_error = world.complaint;
  }
  return ncclInternalError;
}

#define BEGIN_CALL(rank)                     \
  std::lock_guard lock(fake->world().mutex); \
  if (const ncclResult_t told = Begin(__func__, rank); told != ncclSuccess) return told
#define REQUIRE(comm, condition) \
  if (!(condition))              \
  return Refuse(comm, ncclInvalidArgument, std::string(__func__) + " wants " #condition)

// A call on a live communicator by its own thread.
#define BEGIN_COMM_CALL(comm)                                                            \
  BEGIN_CALL((comm)->rank);                                                              \
  GYRE_CHECK(fake->world().comms.count(comm) == 1);                                      \
  if ((comm)->thread != std::this_thread::get_id()) {                                    \
    return Refuse(comm, ncclInvalidUsage, std::string(__func__) + " on another thread"); \
  }
#define REQUIRE_READY(comm)                                                              \
  if ((comm)->state != ncclSuccess || (comm)->late > 0) {                                \
    return Refuse(comm, ncclInvalidUsage, std::string(__func__) + " while in progress"); \
  }

void Settle(ncclComm& comm, ncclResult_t state, const std::string& why = "") {
  comm.state = state;
  comm.late = kLate;
  if (state != ncclSuccess) comm.last_error = why;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  BEGIN_CALL(0);
  REQUIRE(nullptr, id != nullptr);
  std::memset(id, 0, sizeof(*id));
  const uint64_t number = ++fake->world().ids;
  std::memcpy(id->internal, &number, sizeof(number));
  fake->world().cliques[std::string(id->internal, sizeof(id->internal))] = {};
  return ncclSuccess;
}

// All ranks have come: they are connected, unless two of them have one GPU.
void MeetAll(World::Clique& clique) {
  std::map<int, int> rank_of_gpu;
  std::string duplicate;
  for (const auto& [rank, comm] : clique.members) {
    const int gpu = fake->gpu_of_rank(rank);
    const auto [other, is_new] = rank_of_gpu.emplace(gpu, rank);
    if (!is_new) {
      duplicate = "Duplicate GPU detected : rank " + std::to_string(rank) + " and rank " +
                  std::to_string(other->second) + " both on CUDA device " + std::to_string(gpu);
    }
  }
  for (const auto& [rank, comm] : clique.members) {
    Settle(*comm, duplicate.empty() ? ncclSuccess : ncclInvalidUsage, duplicate);
  }
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  BEGIN_CALL(rank);
  const ncclConfig_t initialized = NCCL_CONFIG_INITIALIZER;
  World& world = fake->world();
  const std::string key(id.internal, sizeof(id.internal));
  REQUIRE(nullptr, comm != nullptr);
  REQUIRE(nullptr, config != nullptr && config->size == initialized.size);
  REQUIRE(nullptr, config->magic == initialized.magic && config->blocking == 0);
  REQUIRE(nullptr, rank >= 0 && rank < ranks);
  REQUIRE(nullptr, world.cliques.count(key) == 1);
  World::Clique& clique = world.cliques[key];
  REQUIRE(nullptr, clique.ranks == 0 || clique.ranks == ranks);
  REQUIRE(nullptr, clique.members.count(rank) == 0);
  auto made = std::make_unique<ncclComm>(ncclComm{key, rank, std::this_thread::get_id()});
  *comm = made.get();
  world.comms[*comm] = std::move(made);
  clique.ranks = ranks;
  clique.members[rank] = *comm;
  if (static_cast<int>(clique.members.size()) == ranks) MeetAll(clique);
  return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  BEGIN_COMM_CALL(comm);
  REQUIRE(comm, state != nullptr);
  *state = comm->late > 0 ? ncclInProgress : comm->state;
  if (comm->late > 0) --comm->late;
  return ncclSuccess;
}

template <typename T>
void SumInRankOrder(const World::Clique& clique, size_t count) {
  std::vector<T> sum(count, T(0));
  for (const auto& [rank, comm] : clique.members) {
    const T* const data = static_cast<const T*>(comm->data);
    for (size_t i = 0; i < count; ++i) sum[i] = rank == 0 ? data[i] : sum[i] + data[i];
  }
  for (const auto& [rank, comm] : clique.members) {
    std::memcpy(comm->data, sum.data(), count * sizeof(T));
  }
}

// All ranks have asked for the sum.
void SumAll(World::Clique& clique) {
  ++clique.sums;
  if (fake->hang_sum != 0 && clique.sums >= fake->hang_sum) return;
  const ncclComm& first = *clique.members.begin()->second;
  std::string error;
  for (const auto& [rank, comm] : clique.members) {
    if (comm->count != first.count || comm->type != first.type) {
      error = "ranks sum different counts or types";
    }
  }
  if (fake->lose_rank_in_sum != 0 && clique.sums >= fake->lose_rank_in_sum) {
    error = "connection closed by a remote peer";
  }
  if (error.empty() && first.type == ncclFloat32) SumInRankOrder<float>(clique, first.count);
  if (error.empty() && first.type == ncclFloat64) SumInRankOrder<double>(clique, first.count);
  for (const auto& [rank, comm] : clique.members) {
    comm->data = nullptr;
    Settle(*comm, error.empty() ? ncclSuccess : ncclRemoteError, error);
  }
}

ncclResult_t ncclAllReduce(const void* from, void* to, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t) {
  BEGIN_COMM_CALL(comm);
  REQUIRE_READY(comm);
  REQUIRE(comm, count > 0 && from == to && op == ncclSum);
  REQUIRE(comm, type == ncclFloat32 || type == ncclFloat64);
  REQUIRE(comm, fake->is_device_memory(to, count * (type == ncclFloat64 ? 8 : 4)));
  comm->state = ncclInProgress;
  comm->data = to;
  comm->count = count;
  comm->type = type;
  World::Clique& clique = fake->world().cliques[comm->clique];
  for (const auto& [rank, member] : clique.members) {
    if (member->data == nullptr) return ncclInProgress;
  }
  if (static_cast<int>(clique.members.size()) == clique.ranks) SumAll(clique);
  return ncclInProgress;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  BEGIN_COMM_CALL(comm);
  REQUIRE_READY(comm);
  comm->state = ncclInProgress;
  comm->leaving = true;
  World::Clique& clique = fake->world().cliques[comm->clique];
  for (const auto& [rank, member] : clique.members) {
    if (!member->leaving) return ncclInProgress;
  }
  if (static_cast<int>(clique.members.size()) < clique.ranks) return ncclInProgress;
  for (const auto& [rank, member] : clique.members) Settle(*member, ncclSuccess);
  return ncclInProgress;
}

// A rank that is gone takes part in nothing: what others wait for then never comes.
void Free(ncclComm_t comm) {
  World& world = fake->world();
  world.cliques[comm->clique].members.erase(comm->rank);
  world.comms.erase(comm);
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  BEGIN_COMM_CALL(comm);
  REQUIRE_READY(comm);
  REQUIRE(comm, comm->leaving);
  Free(comm);
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  BEGIN_COMM_CALL(comm);
  Free(comm);
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t code) {
  switch (code) {
    case ncclInternalError:
      return "internal error";
    case ncclInvalidArgument:
      return "invalid argument";
    case ncclInvalidUsage:
      return "invalid usage";
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    default:
      return "another error";
  }
}

const char* ncclGetLastError(ncclComm_t comm) {
  std::lock_guard lock(fake->world().mutex);
  return comm != nullptr ? comm->last_error.c_str() : fake->world().complaint.c_str();
}

ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

constexpr Nccl kTable = {
#define GYRE_ENTRY(function) .function = function,
    GYRE_NCCL_FUNCTIONS(GYRE_ENTRY)
#undef GYRE_ENTRY
};

}  // namespace

FakeNccl::FakeNccl() : world_(std::make_unique<World>()) {
  GYRE_CHECK(fake == nullptr);
  fake = this;
}

FakeNccl::~FakeNccl() { fake = nullptr; }

const Nccl& FakeNccl::table() const { return kTable; }

void FakeNccl::FailCall(const std::string& function, int nth) {
  std::lock_guard lock(world_->mutex);
  world_->failing = {{function, nth}};
}

int FakeNccl::Calls(const std::string& function) const {
  std::lock_guard lock(world_->mutex);
  const auto found = world_->calls.find(function);
  return found == world_->calls.end() ? 0 : found->second;
}

int FakeNccl::Alive() const {
  std::lock_guard lock(world_->mutex);
  return static_cast<int>(world_->comms.size());
}

}  // namespace gyre
