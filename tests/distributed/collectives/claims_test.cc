// Ranks that mean different things, by any algorithm.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <barrier>
#include <string>
#include <vector>

#include "tests/distributed/collectives/subject.h"

namespace gyre {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

TEST(NewCollective, RefusesIntegers) {
  auto communicators = NewThreadCommunicators(1, kPatienceMs);
  int64_t data = 1;
  for (const std::string_view algorithm : AllreduceNames()) {
    const auto subject = NewSubject(std::string(algorithm), *communicators[0]);
    double result = 0;
    EXPECT_EQ(Operate(*subject, Operation::kAllreduce, {&data, {1}, DType::kI64}, &result).code(),
              absl::StatusCode::kInvalidArgument);
  }
}

// Ranks that mean different things: an error with both labels, on all ranks, by any algorithm.
TEST(Claims, MismatchIsAnErrorOnAllRanks) {
  for (const std::string_view name : AllreduceNames()) {
    const std::string algorithm(name);
    if (algorithm == "mpi") continue;  // has no threads
    for (const int ranks : {2, 3, 5}) {
      std::barrier made(ranks);  // before one tells the others of its fault
      RunRanksOf(algorithm, ranks, [&](Communicator& communicator) {
        const auto subject = NewSubject(algorithm, communicator);
        made.arrive_and_wait();
        const bool odd = communicator.rank() == ranks - 1;
        std::vector<float> data(odd ? 100'000 : 99'000, 1.0f);
        const Tensor tensor{data.data(), {static_cast<int64_t>(data.size())}, DType::kF32};
        absl::Status status = subject->collective->Start(Claim::Of(7, odd ? "much" : "little"),
                                                         Operation::kAllreduce, tensor);
        double result = 0;
        if (status.ok()) {
          status = DriveToEnd([&] { return subject->collective->Progress(&result); });
        }
        const std::string last = ", rank " + std::to_string(ranks - 1) + " at much";
        EXPECT_THAT(status.ToString(), AllOf(StartsWith("FAILED_PRECONDITION: "),
                                             HasSubstr("is at little"), HasSubstr(last)))
            << algorithm;
        subject->collective->Abandon();
      });
    }
  }
}

// Also where what they have chosen sends no message to the rank that means something else: the one
// that halves waits for the rank opposite, the others for the rank before them.
TEST(Claims, MismatchOfChoicesIsAnErrorOnAllRanks) {
  constexpr int kRanks = 4;
  std::barrier made(kRanks);
  RunRanks(kRanks, [&](Communicator& communicator) {
    const auto subject = NewSubject("auto", communicator);
    made.arrive_and_wait();
    const bool odd = communicator.rank() == 0;
    std::vector<float> data(odd ? 70'000 : 90'000, 1.0f);
    const Tensor tensor{data.data(), {static_cast<int64_t>(data.size())}, DType::kF32};
    // One label: a difference that nothing but the choice shows.
    double result = 0;
    EXPECT_THAT(Operate(*subject, Operation::kAllreduce, tensor, &result).ToString(),
                AllOf(StartsWith("FAILED_PRECONDITION: "),
                      HasSubstr("rank 0 is at test by halving_doubling, rank ")));
  });
}

}  // namespace
}  // namespace gyre
