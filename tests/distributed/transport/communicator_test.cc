// The communicator over threads: order, lengths, silence.

#include "distributed/transport/communicator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <vector>

#include "tests/distributed/rank_threads.h"

namespace gyre {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

TEST(ThreadCommunicator, KeepsOrderWithinATag) {
  RunRanks(2, [](Communicator& communicator) {
    constexpr int kMessages = 100;
    std::vector<int> values(2 * kMessages);
    std::vector<Request> requests;
    for (int i = 0; i < kMessages; ++i) {
      for (int tag : {0, 1}) {
        int* const value = &values[tag * kMessages + i];
        *value = communicator.rank() == 0 ? 1000 * tag + i : -1;
        auto request = communicator.rank() == 0 ? communicator.Send(value, sizeof(int), 1, tag)
                                                : communicator.Receive(value, sizeof(int), 0, tag);
        ASSERT_TRUE(request.ok());
        requests.push_back(*request);
      }
    }
    for (const Request request : requests) ASSERT_TRUE(WaitFor(communicator, request).ok());
    for (int i = 0; i < kMessages; ++i) {
      ASSERT_EQ(values[i], i);
      ASSERT_EQ(values[kMessages + i], 1000 + i);
    }
  });
}

TEST(ThreadCommunicator, AnotherLengthIsAnError) {
  for (const size_t sent : {0, 3, 9}) {
    RunRanks(2, [&](Communicator& communicator) {
      char data[16] = {};
      if (communicator.rank() == 0) {
        auto send = communicator.Send(data, sent, 1, 0);
        ASSERT_TRUE(send.ok());
        EXPECT_TRUE(WaitFor(communicator, *send).ok());
        return;
      }
      auto receive = communicator.Receive(data, 4, 0, 0);
      ASSERT_TRUE(receive.ok());
      EXPECT_THAT(WaitFor(communicator, *receive).ToString(),
                  AllOf(StartsWith("INTERNAL: "),
                        HasSubstr("rank 0 sent " + std::to_string(sent) + " bytes, expected 4")));
    });
  }
}

TEST(SilentRank, IsAtTheEndOfTheChain) {
  struct Case {
    std::vector<int> waits_for;  // by rank
    int from, silent;
    const char* says;
  };
  const Case cases[] = {
      {{3, kUnheard, 1, 2}, 0, 1, "x has been silent for 5 ms"},
      {{3, kNobody, 1, 2}, 0, 1, "x has been silent for 5 ms; it answers, but has not come here"},
      {{1, 0, kUnheard}, 0, 2, "x has been silent for 5 ms"},  // a circle
      {{1, 0, 0}, 2, 2, "x has been silent for 5 ms; it answers, but has not come here"},
      {{2, kUnheard, kUnheard, kUnheard},
       0,
       2,
       "x has been silent for 5 ms; nor do these answer: 1 3"},
      {{kNobody, kUnheard}, kNobody, 1, "x has been silent for 5 ms"},
      {{kNobody, kNobody}, kNobody, kNobody, "one rank has not come here for 5 ms, and all answer"},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(SilentRank(c.waits_for, c.from), c.silent) << c.says;
    EXPECT_EQ(Silence(c.waits_for, c.silent, "x", 5), absl::UnavailableError(c.says));
  }
}

}  // namespace
}  // namespace gyre
