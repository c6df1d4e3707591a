// Bytes from ranks to others: whoever sends to whom, of any length, while sums go on.

#include "distributed/collectives/exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "tests/distributed/process_group_ranks.h"

namespace gyre {
namespace {

using testing::HasSubstr;

constexpr size_t kSegment = 256 << 10;
constexpr size_t kLengths[] = {0, 1, 7, kSegment - 1, kSegment, kSegment + 1, 9 * kSegment + 3};

// From one rank to another in a round; empty: nothing is sent.  The same for both.
struct Letter {
  bool sent;
  std::string bytes;
};
Letter LetterOf(int round, int from, int to) {
  std::minstd_rand random(static_cast<unsigned>(1 + round * 10'000 + from * 100 + to));
  random.discard(3);
  Letter letter{from != to && random() % 2 == 0, ""};
  if (letter.sent) letter.bytes.resize(kLengths[random() % std::size(kLengths)]);
  for (size_t i = 0; i < letter.bytes.size(); i += 61)
    letter.bytes[i] = static_cast<char>(random());
  return letter;
}

TEST(Exchange, BringsWhatWasSentWhileSumsGoOn) {
  for (const char* algorithm : {"ring", "auto"}) {
    for (const int ranks : {1, 2, 3, 5}) {
      RunRanksOn(algorithm, ranks, kPatienceMs, [&](ProcessGroup& group) {
        for (int round = 0; round < 6; ++round) {
          const int me = group.rank();
          std::vector<std::string> sent(static_cast<size_t>(ranks)), received(sent);
          Mail mail;
          for (int other = 0; other < ranks; ++other) {
            const Letter to = LetterOf(round, me, other);
            sent[static_cast<size_t>(other)] = to.bytes;
            if (to.sent) mail.outgoing.push_back({other, sent[static_cast<size_t>(other)]});
            const Letter from = LetterOf(round, other, me);
            if (!from.sent) continue;
            std::string& place = received[static_cast<size_t>(other)];
            if (round % 2 == 0) place.resize(from.bytes.size());
            mail.incoming.push_back({.from = other, .into = place});
          }
          const auto ticket = group.Submit("letters " + std::to_string(round), &mail);
          for (int sum = 0; sum < 3; ++sum) {
            std::vector<float> data(100'003, 1);
            ASSERT_TRUE(group.Wait(group.Submit("sum", View(data), nullptr)).ok());
            EXPECT_EQ(data, std::vector<float>(100'003, static_cast<float>(ranks)));
          }
          ASSERT_TRUE(group.Wait(ticket).ok()) << group.status();
          for (const auto& [from, bytes, into] : mail.incoming) {
            const std::string_view got =
                into.empty() ? bytes : std::string_view(into.data(), into.size());
            EXPECT_TRUE(got == LetterOf(round, from, me).bytes) << from << " to " << me;
          }
        }
      });
    }
  }
}

TEST(Exchange, RanksThatMeanTwoThingsAreToldSo) {
  RunRanksOn("direct", 2, kPatienceMs, [](ProcessGroup& group) {
    Mail mail;
    if (group.rank() == 0) mail.outgoing.push_back({1, "abc"});
    if (group.rank() == 1) mail.incoming.push_back({0});
    const auto ticket = group.Submit(group.rank() == 0 ? "files" : "names", &mail);
    const absl::Status status = group.Wait(ticket).status();
    EXPECT_THAT(status.message(), testing::AllOf(HasSubstr("files"), HasSubstr("names")));
    group.Abort(status);
  });
}

}  // namespace
}  // namespace gyre
