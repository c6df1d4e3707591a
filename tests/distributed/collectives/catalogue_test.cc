// The table of algorithms: which there are, where each works, and what it takes.

#include "distributed/collectives/algorithms/catalogue.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/distributed/rank_threads.h"

namespace gyre {
namespace {

constexpr int kTag = kFirstOperationTag;

absl::Status Refusal(std::string_view algorithm, Communicator& communicator) {
  const Selector selector = Selector::Modelled(ShapeOf(communicator));
  return NewCollective(algorithm, communicator, kTag, SharedArenas(), selector).status();
}

TEST(NewCollective, NamesTheChoices) {
  auto communicators = NewThreadCommunicators(1, kPatienceMs);
  EXPECT_EQ(
      Refusal("rign", *communicators[0]),
      absl::InvalidArgumentError("no allreduce algorithm \"rign\"; there are: ring, direct, "
                                 "halving_doubling, recursive_doubling, shared, hierarchical, mpi, "
                                 "auto, naive, nccl"));
}

TEST(Shared, RefusesSeveralHosts) {
  RunRanks(NewThreadCommunicators(3, kPatienceMs, {0, 0, 1}), [](Communicator& communicator) {
    EXPECT_EQ(Refusal("shared", communicator).code(), absl::StatusCode::kInvalidArgument);
  });
}

// 2 hosts of 4 ranks: each sends half of its quarter to the other's, twice, and a partial.
TEST(AllreduceBytesSent, CountsHosts) {
  EXPECT_EQ(AllreduceBytesSent("hierarchical", 800, 8, 2), 2 * 100 + 8);
  EXPECT_EQ(AllreduceBytesSent("hierarchical", 800, 4, 1), 0);
  EXPECT_EQ(AllreduceBytesSent("ring", 800, 4, 2), 1200 + 24);
}

TEST(CheckWire, NamesTheOneThatCan) {
  for (const std::string_view algorithm : AllreduceNames()) {
    EXPECT_TRUE(CheckWire(algorithm, DType::kF32).ok());
    EXPECT_EQ(CheckWire(algorithm, DType::kBF16).ok(), algorithm == "direct");
  }
  EXPECT_EQ(CheckWire("ring", DType::kF16),
            absl::InvalidArgumentError("allreduce \"ring\" cannot carry F32 as F16; use "
                                       "\"direct\", which rounds each sum once"));
}

TEST(CheckHalves, NamesThoseThatHaveThem) {
  for (const char* algorithm : {"ring", "direct", "shared", "auto"}) {
    EXPECT_TRUE(CheckHalves(algorithm).ok()) << algorithm;
  }
  EXPECT_EQ(CheckHalves("naive"), absl::InvalidArgumentError(
                                      "allreduce \"naive\" does not come in halves, with an update "
                                      "between them; those that do: ring, direct, shared, auto"));
}

TEST(CheckAllreduce, KnowsWhereEachWorks) {
  for (const std::string_view algorithm : AllreduceNames()) {
    EXPECT_TRUE(CheckAllreduce(algorithm, std::nullopt).ok());
    EXPECT_TRUE(CheckAllreduce(algorithm, DeviceKind::kCuda).ok());
  }
  EXPECT_TRUE(CheckAllreduce("ring", DeviceKind::kSim).ok());
  EXPECT_EQ(
      CheckAllreduce("nccl", DeviceKind::kSim).message(),
      "allreduce \"nccl\" sums the memory of GPUs, and this is --device=sim; use \"ring\", or "
      "--device=cuda");
  EXPECT_TRUE(CheckAllreduce("ring", DeviceKind::kCpu, /*threads=*/true).ok());
  EXPECT_EQ(CheckAllreduce("mpi", DeviceKind::kCpu, /*threads=*/true).message(),
            "allreduce \"mpi\" sums the ranks of mpirun, and these are threads; use \"ring\", or "
            "mpirun");
  EXPECT_EQ(CheckAllreduce("", DeviceKind::kCpu).code(), absl::StatusCode::kInvalidArgument);
}

TEST(DeviceRing, OnlyWhereMessagesReachTheDevice) {
  class HostOnly final : public WrappedCommunicator {
   public:
    using WrappedCommunicator::WrappedCommunicator;
    bool moves_device_memory(DeviceKind) const override { return false; }
  };
  const auto communicators = NewThreadCommunicators(1, kPatienceMs);
  HostOnly host_only(*communicators[0]);
  const auto device = NewSimDevice({});
  EXPECT_EQ(*NewDeviceCollective("ring", host_only, kTag, *device), nullptr);
  EXPECT_EQ(*NewDeviceCollective("naive", *communicators[0], kTag, *device), nullptr);
  EXPECT_TRUE(communicators[0]->moves_device_memory(DeviceKind::kSim));
  EXPECT_FALSE(communicators[0]->moves_device_memory(DeviceKind::kCuda));
}

}  // namespace
}  // namespace gyre
