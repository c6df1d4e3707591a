// A ring over several hosts goes through one after the other, however ranks are dealt out to them,
// and adds in that order.

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "tests/distributed/collectives/subject.h"
#include "tests/distributed/process_group_ranks.h"

namespace gyre {
namespace {

// Of whom a rank sends to.
class Receivers final : public WrappedCommunicator {
 public:
  using WrappedCommunicator::WrappedCommunicator;
  void Sends(size_t, int peer) override { all.insert(peer); }
  std::set<int> all;
};

struct Case {
  std::vector<int> hosts;
  std::vector<int> ring;  // ranks
};
const Case kCases[] = {{{0, 1, 0, 1}, {0, 2, 1, 3}},
                       {{0, 1, 0, 1, 1}, {0, 2, 1, 3, 4}},
                       {{0, 1, 2, 0, 1, 2, 0}, {0, 3, 6, 1, 4, 2, 5}},
                       {{0, 0, 1, 1, 1}, {0, 1, 2, 3, 4}}};
constexpr int64_t kCount = 100'003;

float Value(int64_t i, int rank) { return std::sin(static_cast<float>(i + 1000 * rank)); }

// Each part from the rank after its owner round to that.
std::vector<float> Expected(const std::vector<int>& ring) {
  const int ranks = static_cast<int>(ring.size());
  std::vector<float> sum(kCount);
  for (int place = 0; place < ranks; ++place) {
    const ElementRange part = EqualPart(kCount, ranks, ring[place]);
    for (int64_t i = part.begin; i < part.end; ++i) {
      for (int k = 1; k <= ranks; ++k) sum[i] += Value(i, ring[(place + k) % ranks]);
    }
  }
  return sum;
}

TEST(RingOrder, CrossesEachLinkOnceEachWay) {
  for (const auto& [hosts, ring] : kCases) {
    const int ranks = static_cast<int>(hosts.size());
    const std::vector<float> expected = Expected(ring);
    for (const std::string algorithm : {"ring", "device_ring"}) {
      RunRanks(NewThreadCommunicators(ranks, kPatienceMs, hosts), [&](Communicator& transport) {
        Receivers communicator(transport);
        const int rank = communicator.rank();
        const auto subject = NewSubject(algorithm, communicator);
        std::vector<float> data(kCount);
        double squares = 0;
        const auto operate = [&](Operation operation) {
          ASSERT_EQ(Operate(*subject, operation, {data.data(), {kCount}, DType::kF32}, &squares),
                    absl::OkStatus());
        };
        for (int64_t i = 0; i < kCount; ++i) data[i] = Value(i, rank);
        operate(Operation::kAllreduce);
        EXPECT_EQ(data, expected);

        // In halves each rank has its own part.
        for (int64_t i = 0; i < kCount; ++i) data[i] = Value(i, rank);
        operate(Operation::kReduceScatter);
        const ElementRange own = EqualPart(kCount, ranks, rank);
        for (int64_t i = 0; i < kCount; ++i) {
          if (i < own.begin || i >= own.end) data[i] = 0;
        }
        operate(Operation::kAllgather);
        EXPECT_EQ(data, expected);

        const auto place = std::ranges::find(ring, rank) - ring.begin();
        EXPECT_EQ(communicator.all, std::set<int>{ring[(place + 1) % ranks]});
      });
    }
  }
}

// A run that goes on elsewhere is told where its bits come from.
TEST(RingOrder, IsAChoice) {
  for (const auto& [hosts, name] :
       {std::pair{std::vector<int>{0, 1, 0, 1}, "ring, ranks on hosts 0 1 0 1"},
        {{0, 0, 1, 1}, "ring"},
        {{0, 0, 0, 0}, "ring"}}) {
    RunRanksOn(
        "ring", 4, kPatienceMs,
        [&](ProcessGroup& group) { EXPECT_EQ(group.DescribeAllreduce(), name); }, hosts);
  }
}

}  // namespace
}  // namespace gyre
