// subject.h: an algorithm under test, in the memory where it works.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "distributed/collectives/algorithms/catalogue.h"
#include "engine/runtime/check.h"
#include "tests/distributed/rank_threads.h"

namespace gyre {

inline constexpr int kTag = kFirstOperationTag;

// An algorithm where it works: "device_ring" is the ring in the memory of a sim device,
// "shared_in_place" the sum in an arena.
inline std::string Base(const std::string& algorithm) {
  if (algorithm == "device_ring") return "ring";
  return algorithm.substr(0, algorithm.find("_in_place"));
}

// "hierarchical": of two ranks, and of those that are left; the others: one.
inline std::vector<int> HostsOf(const std::string& algorithm, int ranks) {
  std::vector<int> hosts(ranks);
  for (int r = 0; r < ranks && algorithm.starts_with("hierarchical"); ++r) hosts[r] = r / 2;
  return hosts;
}

inline void RunRanksOf(const std::string& algorithm, int ranks,
                       const std::function<void(Communicator&)>& body) {
  RunRanks(NewThreadCommunicators(ranks, kPatienceMs, HostsOf(algorithm, ranks)), body);
}

struct Subject {
  std::unique_ptr<Device> device;
  SharedArenas arenas;
  std::unique_ptr<Collective> collective;
  int64_t operations = 0;
};

// Of "auto": algorithms that add in different orders, each for some of the tests' lengths.
inline const Selector& Choices() {
  static const auto* const choices = new Selector({{0, "recursive_doubling"},
                                                   {100, "shared"},
                                                   {100'000, "halving_doubling"},
                                                   {300'000, "ring"}});
  return *choices;
}

// `delay_seed`: of the device's streams; 0: no delays.  arena_bytes: of the arena, if there is one.
inline std::unique_ptr<Subject> NewSubject(const std::string& algorithm, Communicator& communicator,
                                           uint64_t delay_seed = 0, size_t arena_bytes = 1 << 20) {
  auto subject = std::make_unique<Subject>();
  absl::StatusOr<std::unique_ptr<Collective>> collective;
  if (algorithm == "device_ring") {
    subject->device = NewSimDevice({.delay_seed = delay_seed});
    collective = NewDeviceCollective("ring", communicator, kTag, *subject->device);
  } else {
    subject->device = NewCpuDevice({});
    if (algorithm.ends_with("_in_place")) {
      subject->arenas.push_back(*SharedMemory::Create(communicator, arena_bytes));
    }
    collective = NewCollective(Base(algorithm), communicator, kTag, subject->arenas, Choices());
  }
  GYRE_CHECK(collective.ok() && *collective != nullptr);
  subject->collective = *std::move(collective);
  return subject;
}

inline absl::Status Operate(Subject& subject, Operation operation, Tensor inout, double* result,
                            int root = 0) {
  const Claim claim = Claim::Of(subject.operations++, "test");
  RETURN_IF_ERROR(subject.collective->Start(claim, operation, inout, root));
  return DriveToEnd([&] { return subject.collective->Progress(result); });
}

}  // namespace gyre
