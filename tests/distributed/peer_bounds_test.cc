// What another rank tells of lengths, tables and rows is bounded before it is used: an error that
// names the rank, in place of a crash.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "distributed/collectives/exchange.h"
#include "distributed/parameter_server/parameter_server.h"
#include "tests/distributed/process_group_ranks.h"

namespace gyre {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr uint64_t kFar = uint64_t{1} << 62;

TEST(PeerBounds, OfAMessagesLength) {
  RunRanks(2, [](Communicator& communicator) {
    const Claim claim = Claim::Of(0, "letter");
    if (communicator.rank() == 1) {
      const auto send = [&](const void* data, size_t bytes) {
        return WaitFor(communicator, *communicator.Send(data, bytes, 0, kFirstOperationTag));
      };
      ASSERT_TRUE(send(&claim, sizeof(claim)).ok());
      ASSERT_TRUE(send(&kFar, sizeof(kFar)).ok());
      return;
    }
    Mail mail{.incoming = {{1}}};
    Exchange exchange(communicator, kFirstOperationTag);
    exchange.Carry(&mail);
    ASSERT_TRUE(exchange.Start(claim, Operation::kExchange, {}).ok());
    double squares = 0;
    EXPECT_THAT(DriveToEnd([&] { return exchange.Progress(&squares); }).ToString(),
                AllOf(StartsWith("RESOURCE_EXHAUSTED: "),
                      HasSubstr(absl::StrCat("rank 1 sends ", kFar, " bytes"))));
  });
}

// Of one table of 4 rows; numbers as ranks tell them: kind, table, runs of rows.
TEST(PeerBounds, OfWhatIsAccessed) {
  struct Case {
    std::vector<int64_t> told;
    const char* message;
  };
  const Case cases[] = {
      {{1, 0}, "an access: expected 3 numbers, got 2"},
      {{2, 0, 0}, "the kind: expected 0 to 1, got 2"},
      {{1, 1, 0}, "the table: expected 0 to 0, got 1"},
      {{1, -1, 0}, "the table: expected 0 to 0, got -1"},
      {{1, 0, 2, 0, 1}, "the number of runs of rows: expected 0 to 1, got 2"},
      {{1, 0, -1, 0, 1}, "the number of runs of rows: expected 0 to 1, got -1"},
      {{1, 0, 1, 0, 5}, "the end of a run of rows: expected 0 to 4, got 5"},
      {{1, 0, 1, -1, 2}, "the begin of a run of rows: expected 0 to 1, got -1"},
      {{1, 0, 1, 2, 2}, "the begin of a run of rows: expected 0 to 1, got 2"},
      {{1, 0, 2, 0, 2, 1, 3}, "an update names a row twice"},
      {{0, 0, 1, 0, 4}, "table 0 is read and not updated"},
  };
  for (const Case& lie : cases) {
    RunRanksOn("auto", 2, kPatienceMs, [&](ProcessGroup& group) {
      if (group.rank() == 1) {
        EXPECT_TRUE(group
                        .CheckEqual("the parameter server's tables and options",
                                    absl::StrCat("sync bsp staleness 0 servers 0 chunks ",
                                                 kServerChunkBytes, "\nx 4 2 F32 sent as F32"))
                        .ok());
        const std::string_view told(reinterpret_cast<const char*>(lie.told.data()),
                                    lie.told.size() * sizeof(int64_t));
        Mail mail{.outgoing = {{0, told}}, .incoming = {{0}}};
        EXPECT_TRUE(group.Wait(group.Submit("the parameter server's accesses", &mail)).ok());
        return;
      }
      const std::unique_ptr<Device> device = NewCpuDevice({});
      const std::unique_ptr<Stream> stream = *device->NewStream();
      const auto server = *ParameterServer::Create(group, *device, *stream, {});
      const std::unique_ptr<TableUpdate> update = NewAddition(1);
      ASSERT_TRUE(server->AddTable({.name = "x", .rows = 4, .width = 2}, *update).ok());
      EXPECT_EQ(server->Prepare(),
                absl::InternalError(
                    absl::StrCat("the parameter server's accesses of rank 1: ", lie.message)));
    });
  }
}

// Of a library that has few tags.
TEST(PeerBounds, OfTags) {
  struct FewTags final : WrappedCommunicator {
    explicit FewTags(std::unique_ptr<Communicator> all)
        : WrappedCommunicator(*all), all(std::move(all)) {}
    int max_tag() const override { return kFirstServerTag + 2 * 3; }
    const std::unique_ptr<Communicator> all;
  };
  for (const int64_t rows : {3, 4}) {
    std::vector<std::unique_ptr<Communicator>> few;
    for (auto& communicator : NewThreadCommunicators(2, kPatienceMs)) {
      few.push_back(std::make_unique<FewTags>(std::move(communicator)));
    }
    RunGroups(
        std::move(few), [](int) { return AllreduceChoice{"auto"}; },
        [&](ProcessGroup& group) {
          const std::unique_ptr<Device> device = NewCpuDevice({});
          const std::unique_ptr<Stream> stream = *device->NewStream();
          // One rank owns all of it, a chunk a row; the other reads and updates it.
          const auto server =
              *ParameterServer::Create(group, *device, *stream, {.servers = 1, .chunk_bytes = 8});
          const std::unique_ptr<TableUpdate> update = NewAddition(1);
          const int table = *server->AddTable(
              {.name = "x", .rows = rows, .width = 2, .parts = {{0, 0}, {0, rows}}}, *update);
          std::vector<float> memory(static_cast<size_t>(2 * rows));
          if (group.rank() == 0) {
            const Tensor all{memory.data(), Shape({rows, 2}), DType::kF32};
            ASSERT_TRUE(server->AddUpdate(table, RowList::All(rows), all).ok());
          }
          const absl::Status status = server->Prepare();
          if (rows == 3) {
            EXPECT_TRUE(status.ok()) << status;
            ASSERT_TRUE(server->Start().ok());
            EXPECT_TRUE(server->Abandon().ok());
            return;
          }
          EXPECT_THAT(
              status.ToString(),
              AllOf(StartsWith("RESOURCE_EXHAUSTED: "),
                    HasSubstr("what rank 0 reads and updates moves in 4 chunks, and the messages' "
                              "tags, up to 73, are enough for 3")));
        });
  }
}

}  // namespace
}  // namespace gyre
