// The process group, its ranks being threads: order, events, mismatches, aborts.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/distributed/process_group_ranks.h"

namespace gyre {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

TEST(ProcessGroup, SumsInOrderOfSubmission) {
  for (const char* algorithm : {"ring", "naive"}) {
    for (const int ranks : {1, 2, 3, 5}) {
      RunRanksOn(algorithm, ranks, kPatienceMs, [&](ProcessGroup& group) {
        EXPECT_EQ(group.size(), ranks);
        constexpr int kBuckets = 20;
        std::vector<std::vector<float>> buckets;
        for (int i = 0; i < kBuckets; ++i) {
          buckets.emplace_back(i * 97, static_cast<float>(group.rank() + 1));
        }
        std::vector<ProcessGroup::Ticket> tickets;
        for (int i = 0; i < kBuckets; ++i) {
          tickets.push_back(group.Submit("bucket " + std::to_string(i), View(buckets[i]), nullptr));
        }
        const float sum = static_cast<float>(ranks * (ranks + 1) / 2);
        for (int i = kBuckets - 1; i >= 0; --i) {
          auto result = group.Wait(tickets[i]);
          ASSERT_TRUE(result.ok()) << result.status();
          EXPECT_EQ(*result, double{sum} * sum * i * 97);
          EXPECT_EQ(buckets[i], std::vector<float>(i * 97, sum));
        }
      });
    }
  }
}

TEST(ProcessGroup, WaitsForTheEvent) {
  RunRanksOn("ring", 3, kPatienceMs, [](ProcessGroup& group) {
    for (int round = 0; round < 30; ++round) {
      std::vector<float> data(1000, -1e9f);
      FakeEvent ready;
      const auto ticket = group.Submit("late", View(data), &ready);
      EXPECT_EQ(*group.Done(ticket), false);
      for (float& x : data) x = static_cast<float>(group.rank());
      ready.Set();
      ASSERT_TRUE(group.Wait(ticket).ok());
      EXPECT_EQ(data, std::vector<float>(1000, 3.0f));
    }
  });
}

TEST(ProcessGroup, SumsNothing) {
  RunRanksOn("ring", 3, kPatienceMs, [](ProcessGroup& group) {
    std::vector<float> some(1);
    // A null pointer is as good as any other for no elements.
    const Tensor empty{group.rank() == 1 ? nullptr : some.data(), {0}, DType::kF32};
    EXPECT_TRUE(group.Sum("nothing", empty).ok());
    EXPECT_TRUE(group.Sum("something", View(some)).ok());
  });
}

TEST(ProcessGroup, OtherOperationIsAnErrorOnAllRanks) {
  RunRanksOn("ring", 2, kPatienceMs, [&](ProcessGroup& group) {
    std::vector<float> data(10);
    const absl::Status status = group.rank() == 0 ? group.Barrier() : group.Sum("fc", View(data));
    EXPECT_THAT(status.message(),
                HasSubstr("rank 0 is at a barrier, rank 1 at sum of 10 F32 \"fc\""));
  });
}

// Gradients alone: what is urgent stays exact.
TEST(ProcessGroup, CarriesWhatIsInOrderAsHalves) {
  constexpr double kOdd = 1 + 0x1p-12, kEven = 1;  // as F16
  RunGroups(
      NewThreadCommunicators(2, kPatienceMs),
      [](int) { return AllreduceChoice{.algorithm = "direct", .wire = DType::kF16}; },
      [&](ProcessGroup& group) {
        EXPECT_EQ(group.DescribeAllreduce(), "direct, as F16");
        EXPECT_EQ(group.BytesSent(400, DType::kF32), 200 + 8);
        EXPECT_EQ(group.BytesSent(400, DType::kF16), 400 + 8);
        EXPECT_EQ(group.BytesSent(400, DType::kF64), 400 + 8);
        std::vector<float> gradients(10, kOdd), statistics(10, kOdd);
        std::vector<double> wide(10, kOdd);
        const Tensor doubles{wide.data(), {10}, DType::kF64};
        EXPECT_EQ(*group.Wait(group.Submit("bucket", View(gradients), nullptr)), 10 * 4.0);
        EXPECT_TRUE(group.Wait(group.Submit("metrics", doubles, nullptr)).ok());
        EXPECT_TRUE(group.Sum("statistics", View(statistics)).ok());
        EXPECT_EQ(gradients, std::vector<float>(10, 2 * kEven));
        EXPECT_EQ(wide, std::vector<double>(10, 2 * kOdd));
        EXPECT_EQ(statistics, std::vector<float>(10, 2 * kOdd));
      });
}

// Before one waits for the others in a way of its own.
TEST(ProcessGroup, OtherAllreduceIsAnErrorOnAllRanks) {
  constexpr char kCalibration[] =
      R"({"allreduce": [{"ranks": 3, "hosts": 1,
                         "fastest": [{"from_bytes": 0, "algorithm": "direct"}]}]})";
  const struct {
    const char *algorithm, *calibration, *shown;
  } usual = {"auto", "", "allreduce auto: shared"},
    others[] = {{"auto", kCalibration, "allreduce auto: direct"}, {"ring", "", "allreduce ring"}};
  for (const auto& other : others) {
    RunGroups(
        NewThreadCommunicators(3, kPatienceMs),
        [&](int rank) {
          const auto& mine = rank == 1 ? other : usual;
          return AllreduceChoice{mine.algorithm, mine.calibration};
        },
        [&](ProcessGroup& group) {
          EXPECT_THAT(group.Barrier().message(),
                      AllOf(HasSubstr(usual.shown), HasSubstr(other.shown)));
        });
  }
}

// By the line of the command, on all ranks, also where the algorithm follows from it.
TEST(ProcessGroup, OtherCommandsAreAnErrorOnAllRanks) {
  RunGroups(
      NewThreadCommunicators(3, kPatienceMs),
      [](int rank) {
        return AllreduceChoice{
            .algorithm = rank == 2 ? "direct" : "ring",
            .command = absl::StrCat("program train\n--plan\n",
                                    rank == 2 ? "--sync=bsp" : "no --sync", "\n")};
      },
      [](ProcessGroup& group) {
        EXPECT_EQ(group.Barrier().message(),
                  "the command: rank 2 is the first that differs from rank 0: expected \"no "
                  "--sync\", got \"--sync=bsp\"; give all ranks the same program, flags and files");
        EXPECT_FALSE(group.Stop().ok());  // or this rank would end without a word
      });
}

TEST(ProcessGroup, CheckEqualNamesTheFirstThatDiffers) {
  RunRanksOn("ring", 5, kPatienceMs, [&](ProcessGroup& group) {
    const std::string large(100'000, 'p');
    EXPECT_TRUE(group.CheckEqual("plan", large).ok());
    EXPECT_THAT(
        group.CheckEqual("plan", group.rank() < 3 ? large : large + std::to_string(group.rank()))
            .ToString(),
        HasSubstr("FAILED_PRECONDITION: plan: rank 3 is the first that differs from rank 0"));
    const struct {
      std::string of_rank_0, of_rank_1, shown;
    } kTexts[] = {
        {"a\n  b: 1\nc", "a\n  b: 2\nc", "expected \"b: 1\", got \"b: 2\""},
        {"a\nb", "a\nb\nc", "expected the end, got \"c\""},
        {"", "x", "expected \"\", got \"x\""},
        {"x\n", "", "expected \"x\", got \"\""},
        {"a\n", "a\n\1", "expected \"\", got \"\\x01\""},
        {large, large.substr(1),
         absl::StrCat("expected \"", large.substr(0, 100), "\", got \"", large.substr(0, 100))},
    };
    for (const auto& texts : kTexts) {
      EXPECT_THAT(
          group.CheckEqual("text", group.rank() == 1 ? texts.of_rank_1 : texts.of_rank_0).message(),
          HasSubstr("text: rank 1 is the first that differs from rank 0: " + texts.shown));
    }
    const std::string own = group.rank() == 2 ? "y" : "x", shared = "same";
    EXPECT_THAT(
        group.CheckEqual({{"a", shared}, {"b", own}, {"c", shared}}).message(),
        HasSubstr("b: rank 2 is the first that differs from rank 0: expected \"x\", got \"y\""));
  });
}

TEST(ProcessGroup, ALeadersTextIsThatOfAll) {
  const std::string text = "\x01\xff\x80 text";
  RunRanksOn("ring", 3, kPatienceMs, [&](ProcessGroup& group) {
    EXPECT_EQ(group.TextOfLeader("a text", group.rank() == 0 ? text : "other").value(), text);
  });
}

TEST(ProcessGroup, AfterAnErrorEveryTicketHasIt) {
  RunRanksOn("ring", 2, kPatienceMs, [&](ProcessGroup& group) {
    std::vector<float> first(100, 1.0f), second(100, 1.0f), third(100, 1.0f);
    FakeEvent failing, never;
    EXPECT_TRUE(group.Sum("first", View(first)).ok());
    const auto bad = group.Submit("second", View(second), &failing);
    const auto later = group.Submit("third", View(third), &never);
    failing.Fail();
    const absl::Status status = group.Wait(bad).status();
    EXPECT_EQ(status, absl::DataLossError("sum of 100 F32 \"second\": kernel fault"));
    EXPECT_EQ(group.Wait(later).status(), status);
    EXPECT_EQ(group.Done(later).status(), status);
    EXPECT_EQ(group.Barrier(), status);
    EXPECT_EQ(third, std::vector<float>(100, 1.0f));
    // ... and the destructor does not wait for the event that never comes.
  });
}

// What a rank's last message waits for must not be its next operation: it may have none.
TEST(ProcessGroup, AnIdleRankLetsGoOfWhatItHasSent) {
  const auto transports = NewThreadCommunicators(3, kPatienceMs);
  std::vector<std::unique_ptr<Communicator>> buffering;
  for (const auto& transport : transports) {
    buffering.push_back(std::make_unique<BufferingCommunicator>(*transport));
  }
  std::atomic<int> done = 0;
  RunGroups(
      std::move(buffering), [](int) { return AllreduceChoice{"naive"}; },
      [&](ProcessGroup& group) {
        std::vector<float> data(10, 1);
        EXPECT_TRUE(group.Sum("fc", View(data)).ok());
        ++done;
        while (done < 3) std::this_thread::yield();
      });
}

TEST(ProcessGroup, LeaderMayWorkLongerThanSilenceMayLast) {
  constexpr int64_t kSilenceMs = 4000;
  std::atomic<int> worked = 0;
  const auto work = [&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(kSilenceMs * 3 / 2));
    ++worked;
    return absl::OkStatus();
  };
  RunRanksOn("ring", 3, kSilenceMs, [&](ProcessGroup& group) {
    EXPECT_TRUE(group.LeaderDoes("long work", work).ok());
    EXPECT_EQ(worked, 1);
    EXPECT_TRUE(group.Barrier().ok());
  });
}

TEST(ProcessGroup, LeadersErrorIsItsOwn) {
  RunRanksOn("ring", 3, kPatienceMs, [](ProcessGroup& group) {
    const absl::Status full = absl::ResourceExhaustedError("disk full");
    EXPECT_EQ(group.LeaderDoes("work", [&] { return full; }),
              group.rank() == 0 ? full : absl::OkStatus());
  });
}

TEST(ProcessGroup, HangingStartAndEndAreErrors) {
  // The library that blocks for ever in one of the two.
  struct Hanging final : WrappedCommunicator {
    Hanging(Communicator& inner, std::future<void> end)
        : WrappedCommunicator(inner), end_(std::move(end)) {}
    ~Hanging() override { end_.wait(); }
    std::future<void> end_;
  };
  // Outlive the threads that are left behind.
  static auto* const inner = new auto(NewThreadCommunicators(1, kPatienceMs));
  static auto* const never = new std::promise<void>[2];
  const auto start = [] { return std::make_unique<Hanging>(*(*inner)[0], never[0].get_future()); };
  auto group = ProcessGroup::Start(start, {"ring"}, /*meeting_timeout_ms=*/3000);
  ASSERT_TRUE(group.ok());
  EXPECT_THAT(std::string((*group)->Stop().message()),
              AllOf(StartsWith("MPI_Finalize has not returned on host "),
                    testing::EndsWith(" for 3000 ms: another rank has not come to its end")));

  const auto hang = []() -> absl::StatusOr<std::unique_ptr<Communicator>> {
    never[1].get_future().wait();
    return absl::InternalError("never");
  };
  EXPECT_THAT(ProcessGroup::Start(hang, {"ring"}, 50).status().ToString(),
              StartsWith("DEADLINE_EXCEEDED: MPI_Init has not returned on host "));

  group->reset();  // the thread that is left behind uses what is its own
  never[0].set_value();
  std::this_thread::sleep_for(std::chrono::milliseconds(100));  // and ends after the group
}

// Rank 1 by all, also by those that wait for one that waits for it: in a ring, in shared memory,
// between hosts.
TEST(ProcessGroup, TheRankThatEveryoneWaitsForIsNamed) {
  constexpr int kRanks = 4;
  for (const char* algorithm : {"ring", "shared", "hierarchical"}) {
    SCOPED_TRACE(algorithm);
    std::atomic<int> waiting = kRanks - 1;
    const auto body = [&](ProcessGroup& group) {
      std::vector<float> data(10'000);
      if (group.rank() == 1) {
        while (waiting > 0) usleep(1000);
        return;
      }
      const absl::Status status = group.Sum("fc", View(data));
      --waiting;
      EXPECT_THAT(status.ToString(),
                  AllOf(StartsWith("UNAVAILABLE: "),
                        HasSubstr("\"fc\": rank 1 has been silent for 3000 ms")));
    };
    const bool several_hosts = std::string_view(algorithm) == "hierarchical";
    // Longer than it takes a busy machine to start all.
    RunRanksOn(algorithm, kRanks, 3000, body,
               several_hosts ? std::vector<int>{0, 0, 1, 1} : std::vector<int>(kRanks));
  }
}

// Its device may never be done.
TEST(ProcessGroup, ARankThatWaitsForItsDeviceHearsOfErrors) {
  FakeEvent late;
  RunRanksOn("ring", 2, kPatienceMs, [&](ProcessGroup& group) {
    if (group.rank() == 0) {
      late.WaitUntilPolled();
      static_cast<void>(group.Refuse("a sum", absl::DataLossError("no such data")));
      return;
    }
    std::vector<float> data(4);
    group.Submit("a gradient", View(data), &late);
    for (int ms = 0; ms < kPatienceMs && group.status().ok(); ++ms) usleep(1000);
    EXPECT_THAT(group.status().message(), HasSubstr("no such data"));
    late.Set();
  });
}

TEST(ProcessGroup, AbortEndsARankThatWaits) {
  const absl::Status reason = absl::ResourceExhaustedError("out of paper");
  for (const bool waits_for_event : {false, true}) {
    RunRanksOn("ring", 3, kPatienceMs, [&](ProcessGroup& group) {
      std::vector<float> data(10);
      FakeEvent never;
      const bool aborts = group.rank() == 1;
      // Rank 1 keeps the others waiting, or has them wait for an event, and aborts from a thread of
      // its own.
      if (aborts && !waits_for_event) {
        std::thread([&] { group.Abort(reason); }).join();
        EXPECT_EQ(group.Barrier(), reason);
        return;
      }
      const auto ticket = group.Submit("fc", View(data), aborts ? &never : nullptr);
      if (aborts) {
        never.WaitUntilPolled();
        std::thread([&] { group.Abort(reason); }).join();
      }
      EXPECT_THAT(group.Wait(ticket).status().ToString(),
                  AllOf(StartsWith("RESOURCE_EXHAUSTED: "), HasSubstr("out of paper")));
    });
  }
}

TEST(ProcessGroup, StartReportsErrors) {
  const auto failing = []() -> absl::StatusOr<std::unique_ptr<Communicator>> {
    return absl::UnavailableError("no network");
  };
  EXPECT_EQ(ProcessGroup::Start(failing, {"ring"}).status(), absl::UnavailableError("no network"));
  const auto alone = []() -> absl::StatusOr<std::unique_ptr<Communicator>> {
    return std::move(NewThreadCommunicators(1, kPatienceMs)[0]);
  };
  EXPECT_EQ(ProcessGroup::Start(alone, {"best"}).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ProcessGroup::Start(alone, {"ring", "", DType::kF16}).status(),
            CheckWire("ring", DType::kF16));
}

// Ranks out of step, every operation finished by the destructor.
TEST(ProcessGroup, DestructorFinishesWhatWasSubmitted) {
  constexpr int kBuckets = 9;
  const std::vector<std::vector<float>> ones(kBuckets, std::vector<float>(5000, 1.0f));
  std::vector data(3, ones);
  RunRanksOn("ring", 3, kPatienceMs, [&](ProcessGroup& group) {
    for (std::vector<float>& bucket : data[group.rank()]) {
      group.Submit("bucket", View(bucket), nullptr);
    }
  });
  for (const auto& rank : data) {
    for (const auto& bucket : rank) EXPECT_EQ(bucket, std::vector<float>(5000, 3.0f));
  }
}

TEST(ProcessGroup, ACallComesAfterAllThatWasSubmitted) {
  RunRanksOn("ring", 3, kPatienceMs, [](ProcessGroup& group) {
    std::vector<float> late(1000, 1.0f);
    FakeEvent ready;
    const auto waiting = group.Submit("late", View(late), &ready);
    std::thread device([&ready] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      ready.Set();
    });
    const auto call = [&late](Communicator&) {
      EXPECT_EQ(late, std::vector<float>(1000, 3.0f));
      return absl::OkStatus();
    };
    EXPECT_EQ(group.Call("a call", call), absl::OkStatus());
    device.join();
    EXPECT_TRUE(group.Wait(waiting).ok());
  });
}

// Operations overtake one that waits for its memory, and the urgent overtake any number.
TEST(ProcessGroup, OneThatWaitsHoldsUpNoOther) {
  RunRanksOn("ring", 3, kPatienceMs, [](ProcessGroup& group) {
    std::vector<float> late(1000, 1.0f), other(1000, 1.0f), metric(1, 1.0f);
    FakeEvent ready;
    const auto waiting = group.Submit("late", View(late), &ready);
    const auto bucket = group.Submit("other", View(other), nullptr);
    EXPECT_TRUE(group.Sum("metric", View(metric)).ok());
    EXPECT_TRUE(group.Wait(bucket).ok());
    EXPECT_EQ(*group.Done(waiting), false);
    ready.Set();
    EXPECT_TRUE(group.Wait(waiting).ok());
    EXPECT_EQ(late, std::vector<float>(1000, 3.0f));
    EXPECT_EQ(metric[0], 3.0f);

    std::vector<std::vector<float>> many(9, std::vector<float>(10, 1.0f));
    FakeEvent all_ready;
    std::vector<ProcessGroup::Ticket> tickets;
    for (auto& one : many) tickets.push_back(group.Submit("one of many", View(one), &all_ready));
    EXPECT_TRUE(group.Sum("metric", View(metric)).ok());
    all_ready.Set();
    for (const auto ticket : tickets) EXPECT_TRUE(group.Wait(ticket).ok());
    for (const auto& one : many) EXPECT_EQ(one, std::vector<float>(10, 3.0f));
  });
}

}  // namespace
}  // namespace gyre
