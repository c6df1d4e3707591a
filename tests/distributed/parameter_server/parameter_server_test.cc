// Random tables and accesses over ranks as threads, with random delays on devices and between
// ranks, against the same iterations one after the other in plain memory.

#include "distributed/parameter_server/parameter_server.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "distributed/server_shards.h"
#include "engine/runtime/check.h"
#include "tests/distributed/parameter_server/parameter_server_case.h"
#include "tests/distributed/process_group_ranks.h"
#include "tests/sanitized.h"

namespace gyre {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using Options = ParameterServer::Options;

absl::Status RunCase(Case of, const DeviceCase& on, ProcessGroup& group, Values* values) {
  const std::unique_ptr<Device> device = NewDevice(on, group.rank()), host = NewCpuDevice({});
  if (on.rows_on_host) of.options.in_host_memory = host.get();
  of.options.background = on.background;
  Worker worker(of, group, *device);
  RETURN_IF_ERROR(worker.Prepare());
  for (int i = 0; i < of.iterations; ++i) {
    RETURN_IF_ERROR(worker.Iterate());
    if (i == of.iterations / 2) RETURN_IF_ERROR(worker.Get().status());
  }
  ASSIGN_OR_RETURN(*values, worker.Get());
  return worker.server().Stop();
}

std::string Describe(const Case& of) {
  std::string text = absl::StrCat(of.ranks, " ranks, ", of.options.servers, " only serve, ",
                                  of.iterations, " iterations", of.options.gated ? ", gated" : "");
  for (const TableSpec& table : of.tables) {
    absl::StrAppend(&text, "; ", table.rows, " x ", table.width);
  }
  return text;
}

TEST(ParameterServer, BspHasTheBitsOfPlainMemory) {
  const uint32_t cases = kSanitized ? 15 : 40;
  for (uint32_t seed = 0; seed < cases; ++seed) {
    Case made = RandomCase(seed);
    made.options.gated = seed % 2 == 1;
    if (seed % 3 == 0) GiveParts(made, seed);
    SCOPED_TRACE(absl::StrCat("seed ", seed, ": ", Describe(made)));
    const Values expected = InPlainMemory(made);
    // One server after the other on the same group.
    RunRanksOn("auto", made.ranks, kPatienceMs, [&](ProcessGroup& group) {
      for (const DeviceCase& on :
           {DeviceCase{}, DeviceCase{DeviceKind::kSim, seed + 1},
            DeviceCase{DeviceKind::kCpu, 0, true}, DeviceCase{DeviceKind::kSim, seed + 1, true},
            DeviceCase{DeviceKind::kSim, seed + 1, false, false}}) {
        Values values;
        ASSERT_EQ(RunCase(made, on, group, &values), absl::OkStatus());
        ASSERT_EQ(values, expected);
      }
    });
    if (HasFailure()) return;
  }
}

void Raise(std::atomic<int64_t>& highest, int64_t value) {
  int64_t now = highest;
  while (now < value && !highest.compare_exchange_weak(now, value)) {
  }
}

// Worker w counts its iterations in row w, which all read.
TEST(ParameterServer, ReadsAreNoStalerThanAllowed) {
  struct Mode {
    Sync sync;
    int staleness;
  };
  for (const Mode mode : {Mode{Sync::kBsp, 0}, Mode{Sync::kSsp, 0}, Mode{Sync::kSsp, 1},
                          Mode{Sync::kSsp, 3}, Mode{Sync::kAsync, 0}}) {
    for (const int servers : {0, 1}) {
      SCOPED_TRACE(absl::StrCat("staleness ", mode.staleness, ", ", servers, " only serve"));
      constexpr int kRanks = 4, kIterations = 40;
      Case made;
      made.ranks = kRanks;
      made.options = {.sync = mode.sync, .staleness = mode.staleness, .servers = servers};
      made.tables = {{.name = "counts", .rows = kRanks, .width = 1}};
      made.accesses.resize(kRanks);
      for (int w = 0; w < made.workers(); ++w) {
        made.accesses[w] = {{false, 0, {0, 1, 2, 3}}, {true, 0, {w}}};
      }
      // How far behind worker 1 is to be read: the bound, and without one, many iterations.
      const int64_t wanted = mode.sync == Sync::kAsync ? 8 : mode.staleness;
      std::atomic<int64_t> most_stale = 0, newest = 0, furthest = 0;
      RunRanksOn("auto", kRanks, kPatienceMs, [&](ProcessGroup& group) {
        const std::unique_ptr<Device> device = NewSimDevice(
            {.capacity_bytes = 1 << 20, .delay_seed = static_cast<uint64_t>(group.rank()) + 1});
        Worker worker(made, group, *device);
        ASSERT_TRUE(worker.Prepare().ok());
        ParameterServer& server = worker.server();
        const bool works = group.rank() < made.workers();
        for (int64_t c = 0; c < kIterations; ++c) {
          if (works) {
            ASSERT_TRUE(server.Read(0).ok());
            ASSERT_TRUE(worker.stream().Synchronize().ok());
            for (int w = 0; w < made.workers(); ++w) {
              const double count = Element(worker.memory(0), w) / kFactor;
              if (w == group.rank()) {
                ASSERT_EQ(count, c);
              }
              const auto behind = c - static_cast<int64_t>(count);
              if (mode.sync != Sync::kAsync) {
                ASSERT_LE(behind, mode.staleness);
              }
              if (mode.sync == Sync::kBsp) {
                ASSERT_EQ(behind, 0);
              }
              Raise(most_stale, behind);
            }
            Raise(furthest, c);
            ASSERT_TRUE(server.PostRead(0).ok());
            ASSERT_TRUE(server.PreUpdate(0).ok());
            ASSERT_TRUE(worker.Fill(1, 1).ok());
            // One lets the others get ahead as far as they may, and gives them time for more.
            if (group.rank() == 1 && c == kIterations / 2) {
              while (furthest < c + wanted && !::testing::Test::HasFailure()) {
                std::this_thread::sleep_for(std::chrono::milliseconds(1));
              }
              std::this_thread::sleep_for(std::chrono::milliseconds(20));
            }
            ASSERT_TRUE(server.Update(0).ok());
          }
          ASSERT_TRUE(server.Clock().ok());
        }
        std::vector<float> counts(kRanks);
        ASSERT_TRUE(server.Get(0, counts.data()).ok());
        for (int w = 0; w < made.workers(); ++w) EXPECT_EQ(counts[w] / kFactor, kIterations);
        ASSERT_TRUE(server.Stop().ok());
      });
      EXPECT_GE(most_stale, wanted);
    }
  }
}

TEST(ParameterServer, AsyncAppliesAllThatWasSent) {
  for (uint32_t seed = 0; seed < (kSanitized ? 5 : 30); ++seed) {
    Case made = RandomCase(seed);
    made.options.sync = seed % 2 == 0 ? Sync::kAsync : Sync::kSsp;
    made.options.staleness = seed % 2 == 0 ? 0 : static_cast<int>(seed % 3);
    RunRanksOn("auto", made.ranks, kPatienceMs, [&](ProcessGroup& group) {
      Values values;
      ASSERT_EQ(
          RunCase(made, {DeviceKind::kSim, seed + 1, seed % 3 == 0, seed % 5 > 0}, group, &values),
          absl::OkStatus())
          << Describe(made);
    });
  }
}

// Nothing but its own memory holds back a worker that only updates.
TEST(ParameterServer, UpdatesOverwriteNoEarlierOnes) {
  struct Mode {
    Sync sync;
    std::optional<DType> wire;
    int64_t rows;
    int iterations;
    int64_t width = 3;
  };
  // Of one chunk, of many, and of rows that are more than a message's window.
  for (const auto& [sync, wire, rows, iterations, width] :
       {Mode{Sync::kBsp, {}, 2, 100}, Mode{Sync::kAsync, {}, 2, 100},
        Mode{Sync::kBsp, DType::kF16, 2, 50}, Mode{Sync::kAsync, DType::kBF16, 2, 50},
        Mode{Sync::kBsp, {}, 501, 20}, Mode{Sync::kAsync, {}, 501, 20},
        Mode{Sync::kSsp, DType::kF16, 501, 20}, Mode{Sync::kBsp, {}, 2, 3, 300'001}}) {
    SCOPED_TRACE(absl::StrCat(std::string(SyncName(sync)), ", ", rows, " rows"));
    Case made;
    made.ranks = 2;
    made.options.sync = sync;
    made.options.chunk_bytes = 300;
    made.tables = {{.name = "sums", .rows = rows, .width = width, .wire = wire}};
    made.accesses.resize(2);
    made.accesses[0] = {{true, 0, std::vector<int64_t>(rows)}};
    std::iota(made.accesses[0][0].rows.begin(), made.accesses[0][0].rows.end(), 0);
    RunRanksOn("auto", made.ranks, kPatienceMs, [&](ProcessGroup& group) {
      const std::unique_ptr<Device> device = NewSimDevice(
          {.capacity_bytes = 64 << 20, .delay_seed = static_cast<uint64_t>(group.rank()) + 1});
      Worker worker(made, group, *device);
      ASSERT_TRUE(worker.Prepare().ok());
      ParameterServer& server = worker.server();
      for (int c = 0; c < iterations; ++c) {
        if (group.rank() == 0) {
          ASSERT_TRUE(server.PreUpdate(0).ok());
          ASSERT_TRUE(worker.Fill(0, c + 1).ok());
          ASSERT_TRUE(server.Update(0).ok());
        }
        ASSERT_TRUE(server.Clock().ok());
      }
      std::vector<float> sums(rows * width);
      ASSERT_TRUE(server.Get(0, sums.data()).ok());
      const float expected = static_cast<float>(kFactor) * iterations * (iterations + 1) / 2;
      ASSERT_EQ(std::ranges::count(sums, expected), rows * width);
      ASSERT_TRUE(server.Stop().ok());
    });
  }
}

// A table that all workers read and update whole, as docs/algorithms.md says; and what it takes.
TEST(ParameterServer, SendsNoMoreThanItsFormula) {
  constexpr int64_t kRows = 240;
  constexpr int kIterations = 3;
  for (const int ranks : {1, 2, 3, 5}) {
    for (int servers = 0; servers < ranks; ++servers) {
      for (const Sync sync : {Sync::kBsp, Sync::kAsync}) {
        Case made;
        made.ranks = ranks;
        made.options = {.sync = sync, .staleness = 0, .servers = servers};
        made.options.chunk_bytes = servers % 2 == 0 ? kServerChunkBytes : 100;
        made.tables = {{.name = "all", .rows = kRows, .width = 2}};
        made.accesses.resize(ranks);
        std::vector<int64_t> all(kRows);
        std::iota(all.begin(), all.end(), 0);
        for (int w = 0; w < made.workers(); ++w) {
          made.accesses[w] = {{false, 0, all}, {true, 0, all}};
        }
        if (ranks == 3) made.tables[0].wire = DType::kF16;
        made.options.background = ranks != 5;
        RunRanksOn("auto", ranks, kPatienceMs, [&](ProcessGroup& group) {
          std::vector<TableSpec> tables = made.tables;
          for (int rank = 0; rank < ranks; ++rank) {
            tables[0].parts.push_back(ServerShard(kRows, made.workers(), servers, rank));
          }
          const size_t expected =
              BytesOfWholeTables(tables, ranks, servers, group.rank(), sync,
                                 made.options.background, false, made.options.chunk_bytes)
                  .device;
          // There is no room for more than that, and the caller's arrays.
          const bool works = group.rank() < made.workers();
          const int64_t row_bytes = 2 * sizeof(float);
          const size_t arrays = works ? 2 * kRows * row_bytes : 0;
          const std::unique_ptr<Device> device =
              NewSimDevice({.capacity_bytes = arrays + expected});
          Worker worker(made, group, *device);
          ASSERT_EQ(worker.Prepare(), absl::OkStatus());
          EXPECT_EQ(worker.server().device_bytes(), expected);
          for (int i = 0; i < kIterations; ++i) ASSERT_TRUE(worker.Iterate().ok());
          ASSERT_TRUE(worker.server().Drain().ok());
          const int64_t own =
              ServerShard(kRows, made.workers(), servers, group.rank()).count() * row_bytes;
          const int64_t narrower = made.tables[0].wire ? 2 : 1;
          const int64_t pushes = works ? (kRows * row_bytes - own) / narrower : 0;
          const int64_t answers = (made.workers() - (works ? 1 : 0)) * own;
          EXPECT_EQ(worker.server().bytes_sent(),
                    kIterations * pushes + (kIterations + 1) * answers);
          ASSERT_TRUE(worker.server().Stop().ok());
        });
      }
    }
  }
}

TEST(ParameterServer, NamesWhatIsWrong) {
  RunRanksOn("auto", 2, kPatienceMs, [&](ProcessGroup& group) {
    const std::unique_ptr<Device> device = NewCpuDevice({});
    const std::unique_ptr<Stream> stream = *device->NewStream();
    const auto create = [&](const Options& options) {
      return ParameterServer::Create(group, *device, *stream, options);
    };
    EXPECT_THAT(create({.servers = 2}).status().message(),
                HasSubstr("expected 0 to 1 servers of 2 ranks, got 2"));
    EXPECT_THAT(create({.chunk_bytes = 0}).status().message(),
                HasSubstr("expected chunks of more than 0 bytes"));
    EXPECT_THAT(create({.staleness = 1}).status().message(), HasSubstr("got 1 with bsp"));
    EXPECT_THAT(create({.sync = Sync::kSsp, .staleness = -1}).status().message(),
                HasSubstr("got -1 with ssp"));
    EXPECT_THAT(create({.sync = Sync::kAsync, .gated = true}).status().message(),
                HasSubstr("expected a gate with bsp alone; got async"));
    const std::unique_ptr<Device> sim = NewSimDevice({});
    EXPECT_THAT(create({.in_host_memory = sim.get()}).status().message(),
                HasSubstr("expected a cpu device for rows in host memory, got sim"));
    const std::unique_ptr<ParameterServer> server = *create({});
    const std::unique_ptr<TableUpdate> update = NewAddition(1);
    const auto add_table = [&](const TableSpec& table) {
      return std::string(server->AddTable(table, *update).status().message());
    };
    EXPECT_THAT(add_table({.name = "x", .rows = -1, .width = 1}),
                HasSubstr("table \"x\": expected 0 to 2^31 rows"));
    EXPECT_THAT(add_table({.name = "x", .rows = 1, .width = 1, .dtype = DType::kI32}),
                HasSubstr("got 1 of 1 I32"));
    EXPECT_THAT(
        add_table({.name = "x", .rows = 1, .width = 1, .dtype = DType::kF64, .wire = DType::kF16}),
        HasSubstr("table \"x\": expected updates of F32 to travel as F16 or BF16, got F64 as F16"));
    using Parts = std::vector<ElementRange>;
    for (const Parts& parts : {Parts{{0, 4}}, Parts{{0, 1}, {2, 4}}, Parts{{1, 2}, {2, 4}},
                               Parts{{0, 4}, {4, 3}}, Parts{{0, 2}, {2, 5}}}) {
      EXPECT_THAT(
          add_table({.name = "x", .rows = 4, .width = 1, .parts = parts}),
          HasSubstr("table \"x\": expected a part of its rows for each of 2 ranks, in order"));
    }
    const int table = *server->AddTable({.name = "x", .rows = 4, .width = 2}, *update);
    std::vector<float> memory(8);
    const auto rows = [&](int64_t count) {
      return Tensor{memory.data(), Shape({count, 2}), DType::kF32};
    };
    const std::vector<int64_t> beyond = {4}, twice = {1, 3, 1};
    EXPECT_THAT(server->AddRead(table, RowList::Of(beyond), rows(1)).status().message(),
                HasSubstr("read of table \"x\": expected rows in [0, 4)"));
    EXPECT_THAT(server->AddRead(table, RowList::All(3), rows(4)).status().message(),
                HasSubstr("expected memory for 3 rows of 2 F32, got 8 F32"));
    EXPECT_THAT(server->AddUpdate(table, RowList::Of(twice), rows(3)).status().message(),
                HasSubstr("expected each row once"));
    const int read = *server->AddRead(table, RowList::All(4), rows(4));
    const int push = *server->AddUpdate(table, RowList::All(4), rows(4));
    EXPECT_THAT(server->Read(read).message(), HasSubstr("when not started"));
    ASSERT_TRUE(server->Prepare().ok());
    ASSERT_TRUE(server->Start().ok());
    const auto refused = [&](const absl::Status& status, const char* what) {
      EXPECT_THAT(status.ToString(), AllOf(StartsWith("FAILED_PRECONDITION: "),
                                           HasSubstr(absl::StrCat("got ", what, " of access"))));
    };
    refused(server->PostRead(read), "PostRead");
    refused(server->Update(push), "Update");
    refused(server->Clock(), "Clock without PostRead");
    ASSERT_TRUE(server->Read(read).ok());
    refused(server->Read(read), "Read");
    ASSERT_TRUE(server->PostRead(read).ok());
    refused(server->PostRead(read), "PostRead");
    refused(server->Clock(), "Clock without Update");
    ASSERT_TRUE(server->PreUpdate(push).ok());
    ASSERT_TRUE(server->Update(push).ok());
    ASSERT_TRUE(server->Clock().ok());  // none of it has had an effect
    ASSERT_TRUE(server->Stop().ok());
    // Ranks that mean different things.
    const std::unique_ptr<ParameterServer> other =
        *create({.sync = group.rank() == 0 ? Sync::kBsp : Sync::kAsync});
    EXPECT_THAT(other->Prepare().message(),
                HasSubstr("the parameter server's tables and options: rank 1 is the first that "
                          "differs from rank 0"));
  });
}

TEST(ParameterServer, NamesTheRankThatDoesNotCome) {
  std::atomic<int> waiting = 2;
  RunRanksOn("auto", 3, /*timeout_ms=*/2000, [&](ProcessGroup& group) {
    Case made;
    made.ranks = 3;
    made.tables = {{.name = "x", .rows = 6, .width = 2}};
    made.accesses.resize(3, {{false, 0, {0, 1, 2, 3, 4, 5}}, {true, 0, {0, 1, 2, 3, 4, 5}}});
    const std::unique_ptr<Device> device = NewCpuDevice({});
    Worker worker(made, group, *device);
    ASSERT_TRUE(worker.Prepare().ok());
    absl::Status status;
    for (int i = 0; i < 3 && status.ok(); ++i) {
      while (group.rank() == 1 && i == 1 && waiting > 0) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      status = worker.Iterate();
    }
    --waiting;
    EXPECT_THAT(status.ToString(), AllOf(StartsWith("UNAVAILABLE: "),
                                         HasSubstr("rank 1 has been silent for 2000 ms")));
  });
}

}  // namespace
}  // namespace gyre
