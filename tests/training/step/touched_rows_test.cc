// Embedding tables of which a step touches few rows: sent by rows or whole, lazy or not, on ranks
// as threads and on devices that report late, they train to the same bits; rows that no batch names
// stand still where they should.
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "engine/training/net/run/row_kernels.h"
#include "engine/training/step/training_step.h"
#include "models/schema/parse.h"
#include "tests/distributed/process_group_ranks.h"
#include "tests/sanitized.h"
#include "tests/test_device.h"

namespace gyre {
namespace {

constexpr int64_t kRows = 1201, kBatch = 7, kWords = 3;
constexpr int kSteps = 6;  // each lane's first, captured and replayed ones

constexpr const char* kPlain = "sgd {}";

struct Setting {
  int ranks = 1;
  bool lazy = true;
  bool by_rows = true;  // sent so
  bool shard = false;
  int64_t accumulate = 1;
  const char* optimizer = "adamw {} weight_decay: 0.1";
  const char* allreduce = "direct";
  DType dtype = DType::kF32;
  std::optional<double> clip_norm = {};
  int64_t log_norms_every = 0;
  int64_t words = 40;    // that batches name, of all rows
  uint64_t sim = 0;      // on sim with delays of this seed; 0: on cpu
  bool exactly = false;  // as much memory as the plan says
};

Parsed<NetConfig> NetOf(const Setting& setting) {
  const std::string text =
      "name: \"t\" input { name: \"words\" type: LABEL dims: [3] } input { name: \"label\" type: "
      "LABEL } layer { name: \"table\" embedding { vocabulary: 1201 width: 5 lazy: " +
      std::string(setting.lazy ? "true" : "false") +
      " } } layer { name: \"flat\" flatten {} } layer { name: \"fc\" dense { outputs: 4 } } "
      "layer { name: \"loss\" input: \"fc\" input: \"label\" softmax_cross_entropy {} }";
  return ParseNetText(text, "test.textproto").value();
}

OptimizerConfig ConfigOf(const char* text) {
  OptimizerConfig config;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &config)) << text;
  return config;
}

absl::StatusOr<ModelPlan> Plan(const Setting& setting, const Parsed<NetConfig>& net, int rank,
                               const Primitives& primitives) {
  return PlanModel(net, {.shape = {.global = kBatch,
                                   .rank = rank,
                                   .ranks = setting.ranks,
                                   .accumulate = setting.accumulate,
                                   .compute = setting.dtype,
                                   .seed = 3,
                                   .shard_optimizer = setting.shard && setting.ranks > 1,
                                   .clip_norm = setting.clip_norm,
                                   .log_norms_every = setting.log_norms_every},
                         .slots = NewOptimizer(ConfigOf(setting.optimizer))->slot_names(),
                         .bucket_bytes = 64,
                         .can_send_rows = setting.by_rows,
                         .feed = FeedOfBytes(*net.message),
                         .primitives = &primitives});
}

// Of a sample of a batch of the run: the same on any number of ranks.
int32_t Word(const Setting& setting, int64_t iteration, int64_t sample, int64_t word) {
  std::mt19937 random(static_cast<unsigned>((iteration * kBatch + sample) * kWords + word));
  random.discard(3);
  // Far apart, and the last row among them.
  return static_cast<int32_t>(kRows - 1 - random() % setting.words * (kRows / setting.words));
}

struct Outcome {
  std::string digest;
  std::vector<float> first, last;  // the table of F32
};

std::vector<float> TableOf(const Model& model, Stream& stream) {
  const int parameter = model.plan().parameters.Find("table.weight");
  const Tensor at = model.train().parameter(parameter, model.plan().parameters);
  if (at.dtype != DType::kF32) return {};
  std::vector<float> values(static_cast<size_t>(at.elements()));
  EXPECT_TRUE(stream.Copy(values.data(), at.data, at.bytes()).ok());
  EXPECT_TRUE(stream.Synchronize().ok());
  return values;
}

Outcome Train(const Setting& setting, ProcessGroup& communication) {
  Outcome outcome;
  const int rank = communication.rank();
  const Parsed<NetConfig> net = NetOf(setting);
  const DeviceKind kind = setting.sim > 0 ? DeviceKind::kSim : DeviceKind::kCpu;
  const Primitives primitives(kind, 1);
  auto plan = Plan(setting, net, rank, primitives);
  if (!plan.ok()) {
    ADD_FAILURE() << plan.status();
    return outcome;
  }
  const bool sent = setting.by_rows && setting.ranks > 1 && !setting.shard;
  const bool known = sent || setting.lazy || setting.optimizer == std::string(kPlain);
  const std::vector<TouchedTable>& tables = plan->train->tables;
  EXPECT_EQ(tables.size(), known ? 1 : 0);
  EXPECT_EQ(!tables.empty() && tables[0].sent_by_rows, sent);
  std::unique_ptr<Device> device = NewCpuDevice({.threads = 1});
  if (setting.sim > 0) {
    SimOptions options{.threads = 1, .delay_seed = setting.sim * 10 + static_cast<uint64_t>(rank)};
    if (setting.exactly)
      options.capacity_bytes = plan->device_bytes() + plan->communication_bytes();
    device = NewSimDevice(options);
  }
  const auto optimizer = NewOptimizer(ConfigOf(setting.optimizer));
  const auto stream = *device->NewStream();
  const auto model = *Model::Create(*std::move(plan), *device, *stream, &communication);
  EXPECT_TRUE(model->Initialize(*stream).ok());
  outcome.first = TableOf(*model, *stream);
  const Share share = ShareOf(kBatch, rank, communication.size());
  std::vector<Tensor> arrays = BatchArrays(model->train().plan());
  std::vector<Buffer> memory;
  std::vector<Batch> batches;
  for (int64_t i = 0; i < kSteps * setting.accumulate; ++i) {
    memory.push_back(*Buffer::Allocate(*device, MemoryKind::kPinnedHost, BatchBytes(arrays)));
    Batch& batch = batches.emplace_back(BatchAt(memory.back().data(), arrays));
    batch.first_position = i * kBatch + share.first;
    for (int64_t s = 0; s < share.count; ++s) {
      for (int64_t w = 0; w < kWords; ++w) {
        batch.arrays[0].as<int32_t>()[s * kWords + w] = Word(setting, i, share.first + s, w);
      }
      batch.arrays[1].as<int32_t>()[s] = static_cast<int32_t>((share.first + s + i) % 4);
      batch.samples.push_back(share.first + s);
    }
  }
  const auto step = *TrainingStep::Create(*model, *optimizer, *device, *stream, communication);
  for (int64_t i = 0; i < kSteps * setting.accumulate; ++i) {
    const bool update = (i + 1) % setting.accumulate == 0;
    EXPECT_TRUE(
        step->Start(batches[i], i / setting.accumulate, update ? std::optional(0.05) : std::nullopt)
            .ok());
    const bool last = i + 1 == kSteps * setting.accumulate;
    while (step->in_flight() == kMostStepsInFlight || (last && step->in_flight() > 0)) {
      const absl::StatusOr<Tensor> metrics = step->Finish();
      EXPECT_TRUE(metrics.ok()) << metrics.status();
      if (!metrics.ok()) return outcome;
    }
  }
  outcome.digest = *model->Sha256OfWeights(*stream);
  outcome.last = TableOf(*model, *stream);
  return outcome;
}

// Of rank 0; all ranks end with the same bits.
Outcome TrainRanks(const Setting& setting) {
  std::vector<Outcome> outcomes(static_cast<size_t>(setting.ranks));
  RunRanksOn(setting.allreduce, setting.ranks, 20'000, [&](ProcessGroup& communication) {
    outcomes[communication.rank()] = Train(setting, communication);
  });
  for (const Outcome& outcome : outcomes) EXPECT_EQ(outcome.digest, outcomes[0].digest);
  return outcomes[0];
}

constexpr const char* kOptimizers[] = {kPlain, "sgd { momentum: 0.9 } weight_decay: 0.1", "adam {}",
                                       "adamw {} weight_decay: 0.1"};

// The sum of rows adds in the order of ranks, as `direct` does.
TEST(TouchedRows, SentByRowsOrWholeTheyTrainToTheSameBits) {
  for (const char* optimizer : kOptimizers) {
    for (const bool lazy : {false, true}) {
      for (const int ranks : {2, 3, 5}) {
        for (const DType dtype : {DType::kF64, DType::kF32, DType::kBF16}) {
          if (kSanitized && (ranks == 5 || dtype == DType::kF64)) continue;
          const auto train = [&](bool by_rows) {
            return TrainRanks({.ranks = ranks,
                               .lazy = lazy,
                               .by_rows = by_rows,
                               .optimizer = optimizer,
                               .dtype = dtype})
                .digest;
          };
          EXPECT_EQ(train(true), train(false))
              << optimizer << (lazy ? " lazy " : " ") << ranks << " ranks " << DTypeName(dtype);
        }
      }
    }
  }
}

TEST(TouchedRows, ShardedAccumulatedOrClippedTheyTrainToTheSameBits) {
  for (const int ranks : {2, 3}) {
    for (const int64_t accumulate : {1, 3}) {
      for (const std::optional<double> clip : {std::optional<double>(), std::optional(0.01)}) {
        const auto train = [&](bool by_rows, bool shard, const char* allreduce) {
          return TrainRanks({.ranks = ranks,
                             .by_rows = by_rows,
                             .shard = shard,
                             .accumulate = accumulate,
                             .allreduce = allreduce,
                             .clip_norm = clip})
              .digest;
        };
        const std::string expected = train(false, false, "direct");
        EXPECT_EQ(train(false, true, "direct"), expected);
        // The norm's squares are added row by row, in another order than an array's.
        if (!clip) {
          EXPECT_EQ(train(true, false, "direct"), expected);
          EXPECT_EQ(train(true, false, "shared"), train(true, false, "shared"));
        }
      }
    }
  }
}

// Which cuts the table among the ranks, as sums are.
TEST(TouchedRows, MeasuringTheirNormsChangesNoBits) {
  for (const char* optimizer : {kPlain, "adam {}"}) {
    for (const int ranks : {1, 3}) {
      for (const bool shard : {false, true}) {
        Setting setting = {.ranks = ranks, .shard = shard, .optimizer = optimizer};
        const std::string expected = TrainRanks(setting).digest;
        setting.log_norms_every = 2;
        EXPECT_EQ(TrainRanks(setting).digest, expected) << optimizer << ranks << shard;
      }
    }
  }
}

TEST(TouchedRows, DelaysInStreamsChangeNoBits) {
  for (const int ranks : {1, 3}) {
    for (const bool by_rows : {true, false}) {
      for (const int64_t accumulate : {1, 2}) {
        Setting setting = {.ranks = ranks, .by_rows = by_rows, .accumulate = accumulate};
        const std::string expected = TrainRanks(setting).digest;
        for (setting.sim = 1; setting.sim <= (kSanitized ? 1 : 4); ++setting.sim) {
          setting.exactly = setting.sim % 2 == 1;
          EXPECT_EQ(TrainRanks(setting).digest, expected) << ranks << " ranks " << setting.sim;
        }
      }
    }
  }
}

TEST(TouchedRows, RowsThatNoBatchNamesStandStill) {
  for (const char* optimizer : kOptimizers) {
    for (const bool lazy : {true, false}) {
      for (const int ranks : {1, 2}) {
        const Setting setting = {.ranks = ranks, .lazy = lazy, .optimizer = optimizer};
        std::set<int64_t> named;
        for (int64_t i = 0; i < kSteps; ++i) {
          for (int64_t k = 0; k < kBatch * kWords; ++k) {
            named.insert(Word(setting, i, k / kWords, k % kWords));
          }
        }
        const Outcome outcome = TrainRanks(setting);
        const bool decays = std::string(optimizer).find("weight_decay") != std::string::npos;
        for (int64_t row = 0; row < kRows; ++row) {
          const bool moved = !std::equal(&outcome.first[row * 5], &outcome.first[row * 5 + 5],
                                         &outcome.last[row * 5]);
          EXPECT_EQ(moved, named.contains(row) || (decays && !lazy)) << optimizer << " row " << row;
        }
      }
    }
  }
}

// A row that each step names has all its moments and decay; else a lazy one has fewer.
TEST(TouchedRows, LazyDiffersWhereAStepLeavesARowOut) {
  for (const char* optimizer : kOptimizers) {
    const auto train = [&](bool lazy, int64_t words) {
      return TrainRanks({.lazy = lazy, .optimizer = optimizer, .words = words}).last;
    };
    const std::vector<float> lazy = train(true, 1), whole = train(false, 1);
    EXPECT_TRUE(std::equal(lazy.end() - 5, lazy.end(), whole.end() - 5)) << optimizer;
    EXPECT_EQ(train(true, 40) == train(false, 40), optimizer == kPlain) << optimizer;
  }
}

TEST(TouchedRows, AreNamedOnce) {
  for (const DeviceKind kind : {DeviceKind::kCpu, DeviceKind::kSim}) {
    const TestDevice opened = OpenTestDevice(NamedDevice().value_or(kind));
    const auto stream = *opened.device->NewStream();
    std::mt19937 random(1);
    for (const auto& [rows, a_batch, batches] :
         {std::tuple(1, 1, 1), std::tuple(5, 4, 3), std::tuple(300, 1, 2), std::tuple(9, 700, 2)}) {
      const int64_t all = a_batch * batches;
      const auto allocate = [&](int64_t elements, DType dtype) {
        return *Buffer::Allocate(*opened.device, MemoryKind::kDevice,
                                 static_cast<size_t>(elements) * SizeOf(dtype));
      };
      const Buffer indices = allocate(a_batch, DType::kI32), kept = allocate(all, DType::kI32),
                   first = allocate(rows, DType::kI32), names = allocate(all, DType::kF64);
      std::vector<int32_t> expected;  // the latest first
      for (int step = 0; step < 2 * batches; ++step) {
        const int64_t given = a_batch - (a_batch > 1 ? step % 2 : 0);
        std::vector<int32_t> values(static_cast<size_t>(given));
        for (int32_t& value : values) value = static_cast<int32_t>(random() % (rows + 4)) - 3;
        EXPECT_TRUE(stream->Copy(indices.data(), values.data(), values.size() * 4).ok());
        EXPECT_TRUE(KeepIndices(*stream, {indices.data(), {given}, DType::kI32}, rows, a_batch,
                                {kept.data(), {all}, DType::kI32})
                        .ok());
        EXPECT_TRUE(stream->Synchronize().ok());
        for (int32_t& value : values) value = value >= 0 && value < rows ? value : -1;
        values.resize(static_cast<size_t>(a_batch), -1);
        expected.insert(expected.begin(), values.begin(), values.end());
      }
      expected.resize(static_cast<size_t>(all));
      EXPECT_TRUE(NameRows(*stream, {kept.data(), {all}, DType::kI32},
                           {first.data(), {rows}, DType::kI32}, {names.data(), {all}, DType::kF64})
                      .ok());
      std::vector<double> got(expected.size());
      EXPECT_TRUE(stream->Copy(got.data(), names.data(), got.size() * sizeof(double)).ok());
      EXPECT_TRUE(stream->Synchronize().ok());
      std::set<int32_t> seen;
      for (size_t k = 0; k < expected.size(); ++k) {
        const bool once = expected[k] >= 0 && seen.insert(expected[k]).second;
        EXPECT_EQ(got[k], once ? expected[k] : -1) << rows << " rows, place " << k;
      }
    }
  }
}

}  // namespace
}  // namespace gyre
