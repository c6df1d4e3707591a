// Whole nets: work that one layer does for another, sums over several consumers, and statistics
// over ranks.
#include "engine/training/net/run/net.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <future>

#include "absl/strings/str_replace.h"
#include "engine/runtime/device/buffer.h"
#include "engine/training/step/evaluation.h"
#include "tests/distributed/process_group_ranks.h"
#include "tests/training/net/net_rank.h"

namespace gyre {
namespace {

// Losses and gradients are the same up to roundings.
void ExpectSameStep(NetRank& one, NetRank& other) {
  EXPECT_NEAR(one.Loss(), other.Loss(), 1e-13);
  one.Backward();
  other.Backward();
  for (size_t p = 0; p < one.parameters().size(); ++p) {
    if (!one.parameters()[p].trained()) continue;
    EXPECT_THAT(one.Gradient(p), testing::Pointwise(testing::DoubleNear(1e-13), other.Gradient(p)));
  }
}

// The net with a RELU of slope 0, and with one of a slope that is nearly 0, which does its own
// work.
std::string Fused(const std::string& layers) {
  return absl::StrReplaceAll(layers, {{"RELU", "relu {}"}});
}
std::string Plain(const std::string& layers) {
  return absl::StrReplaceAll(layers, {{"RELU", "relu { negative_slope: 1e-30 }"}});
}

// A ReLU is done by the layer before it where nobody else reads that one.
TEST(NetTest, AProducerAppliesTheReluAfterIt) {
  const std::string layers = R"(
    layer { name: "conv" conv2d { filters: 3 kernel: 3 } }
    layer { name: "relu1" RELU }
    layer { name: "flat" flatten {} }
    layer { name: "fc1" dense { outputs: 6 } }
    layer { name: "relu2" RELU }
    layer { name: "fc2" dense { outputs: 4 } }
    layer { name: "bounded" relu { max: 0.1 } }
    layer { name: "fc3" dense { outputs: 4 } }
    layer { name: "relu3" RELU }
    layer { name: "acc" input: "fc3" input: "label" accuracy {} }
    layer { name: "loss" input: "relu3" input: "label" softmax_cross_entropy {} })";
  NetRank fused(Fused(layers)), plain(Plain(layers));
  EXPECT_TRUE(NodeNamed(fused.spec(), "relu1").applied_by_producer);
  EXPECT_TRUE(NodeNamed(fused.spec(), "relu2").applied_by_producer);
  EXPECT_FALSE(NodeNamed(fused.spec(), "bounded").applied_by_producer);
  EXPECT_FALSE(NodeNamed(fused.spec(), "relu3").applied_by_producer);  // "acc" reads fc3 as well
  for (const NetNode& node : plain.spec().nodes) EXPECT_FALSE(node.applied_by_producer);
  ExpectSameStep(fused, plain);
}

// batch_norm and add do a ReLU's backward too, also where several read what it puts out, or the
// layer after it works in place or passes its gradient on.
TEST(NetTest, AProducerUndoesTheReluAfterIt) {
  const std::string layers = R"(
    layer { name: "conv" conv2d { filters: 2 kernel: 3 padding: 1 } }
    layer { name: "norm1" batch_norm {} }
    layer { name: "relu1" RELU }
    layer { name: "conv2" conv2d { filters: 2 kernel: 3 padding: 1 } }
    layer { name: "norm2" batch_norm {} }
    layer { name: "sum1" input: "norm2" input: "relu1" add {} }
    layer { name: "relu2" RELU }
    layer { name: "sum2" input: "relu2" input: "image" add {} }
    layer { name: "relu3" RELU }
    layer { name: "sum3" input: "relu3" input: "image" add {} }
    layer { name: "tanh" tanh {} }
    layer { name: "flat" flatten {} }
    layer { name: "fc" dense { outputs: 4 } }
    layer { name: "relu4" RELU }
    layer { name: "loss" input: "relu4" input: "label" softmax_cross_entropy {} })";
  NetRank fused(Fused(layers)), plain(Plain(layers));
  for (const char* name : {"relu1", "relu2", "relu3"}) {
    EXPECT_TRUE(NodeNamed(fused.spec(), name).undone_by_producer) << name;
  }
  const NetNode& after_dense = NodeNamed(fused.spec(), "relu4");
  EXPECT_TRUE(after_dense.applied_by_producer && !after_dense.undone_by_producer);
  for (const NetNode& node : plain.spec().nodes) EXPECT_FALSE(node.undone_by_producer);
  ExpectSameStep(fused, plain);
}

// A ReLU waits for the maximum of the window it is in.
TEST(NetTest, AReluComesAfterAMaxPoolThatReadsItAlone) {
  const std::string layers = R"(
    layer { name: "conv" conv2d { filters: 3 kernel: 3 padding: 1 } }
    layer { name: "relu1" RELU }
    layer { name: "pool1" pool2d { kind: MAX kernel: 3 stride: 2 } }
    layer { name: "relu2" RELU }
    layer { name: "pool2" pool2d { kind: AVERAGE kernel: 2 stride: 1 } }
    layer { name: "relu3" input: "conv" RELU }
    layer { name: "pool3" pool2d { kind: MAX kernel: 2 } }
    layer { name: "flat1" input: "pool2" flatten {} }
    layer { name: "fc1" dense { outputs: 4 } }
    layer { name: "loss1" input: "fc1" input: "label" softmax_cross_entropy {} }
    layer { name: "flat2" input: "pool3" flatten {} }
    layer { name: "fc2" dense { outputs: 4 } }
    layer { name: "loss2" input: "fc2" input: "label" softmax_cross_entropy {} }
    layer { name: "flat3" input: "relu3" flatten {} }
    layer { name: "fc3" dense { outputs: 4 } }
    layer { name: "loss3" input: "fc3" input: "label" softmax_cross_entropy {} })";
  NetRank moved(Fused(layers)), plain(Plain(layers));
  const NetSpec& net = moved.spec();
  EXPECT_EQ(ValueNamed(net, "relu1").shape, ValueNamed(net, "pool1").shape);
  EXPECT_NE(ValueNamed(net, "relu2").shape, ValueNamed(net, "pool2").shape);  // an average
  EXPECT_NE(ValueNamed(net, "relu3").shape,
            ValueNamed(net, "pool3").shape);  // "flat3" reads it too
  ExpectSameStep(moved, plain);
}

// A run that has diverged ends: nothing on the way makes a number of a NaN.
TEST(NetTest, NaNWeightsMakeTheLossNaN) {
  for (const DType dtype : {DType::kF32, DType::kF64}) {
    NetRank rank(R"(
      layer { name: "conv1" conv2d { filters: 3 kernel: 3 } }
      layer { name: "pool1" pool2d { kernel: 2 } }
      layer { name: "relu1" relu {} }
      layer { name: "flat" flatten {} }
      layer { name: "fc" dense { outputs: 4 } }
      layer { name: "loss" input: "fc" input: "label" softmax_cross_entropy {} })",
                 dtype);
    ASSERT_EQ(rank.parameters()[0].name(), "conv1.weight");
    const Tensor weights = rank.parameter(0);
    std::memset(weights.data, 0xFF, weights.bytes());
    EXPECT_TRUE(std::isnan(rank.Loss())) << DTypeName(dtype);
  }
}

// The sum over ranks of losses and gradients is that of one rank, with labels to ignore as well: a
// rank may even have nothing but ignored ones.
void ExpectRanksAddUp(const char* layers) {
  constexpr int64_t kBatch = 7;
  NetRank one(layers, DType::kF64, kBatch);
  const std::vector<Metric> expected = one.Forward();
  one.Backward();
  for (int ranks : {2, 3, 7}) {
    std::vector<std::vector<Metric>> metrics(static_cast<size_t>(ranks));
    std::vector<std::vector<std::vector<double>>> gradients(static_cast<size_t>(ranks));
    RunRanksOn("ring", ranks, 20'000, [&](ProcessGroup& communication) {
      const int r = communication.rank();
      NetRank rank(layers, DType::kF64, kBatch, NewCpuDevice({}), r, ranks);
      metrics[r] = rank.Forward(StatisticSummer(rank.device(), communication));
      rank.Backward(StatisticSummer(rank.device(), communication));
      for (size_t p = 0; p < rank.parameters().size(); ++p) {
        const bool trained = rank.parameters()[p].trained();
        gradients[r].push_back(trained ? rank.Gradient(p) : std::vector<double>());
      }
    });
    for (size_t m = 0; m < expected.size(); ++m) {
      double sum = 0, count = 0;
      for (const auto& of_rank : metrics) {
        sum += of_rank[m].sum;
        count += of_rank[m].count;
      }
      EXPECT_NEAR(sum, expected[m].sum, 1e-12 * std::abs(expected[m].sum)) << expected[m].name;
      EXPECT_EQ(count, expected[m].count);
    }
    for (size_t p = 0; p < one.parameters().size(); ++p) {
      if (!one.parameters()[p].trained()) continue;
      const std::vector<double> all = one.Gradient(p);
      for (size_t i = 0; i < all.size(); ++i) {
        double sum = 0;
        for (const auto& of_rank : gradients) sum += of_rank[p][i];
        EXPECT_NEAR(sum, all[i], 1e-13);
      }
    }
  }
}

// The caller goes on, the stream waits: in the second round rank 0 has enqueued both sums, and what
// comes between, before rank 1 begins.  In the third a sum waits for that of its name before it.
TEST(NetTest, StatisticsAreSummedInTheStreamsOrder) {
  constexpr int kRanks = 2, kRounds = 3;
  std::promise<void> enqueued;
  std::vector<std::vector<double>> sums(kRanks);
  RunRanksOn("ring", kRanks, 20'000, [&](ProcessGroup& communication) {
    const int r = communication.rank();
    const auto device = NewSimDevice({.threads = 1, .delay_seed = static_cast<uint64_t>(r) + 1});
    const Buffer memory = *Buffer::Allocate(*device, MemoryKind::kDevice, 3 * sizeof(double));
    auto stream = *device->NewStream();
    auto* const values = reinterpret_cast<double*>(memory.data());
    const Tensor a{values, Shape{1}, DType::kF64}, b{values + 1, Shape{1}, DType::kF64};
    const Net::SumStatistic sum = StatisticSummer(*device, communication);
    const auto round = [&](int k) {
      if (k == 1 && r == 1) enqueued.get_future().wait();
      EXPECT_TRUE(stream
                      ->Call([values, r, k] {
                        values[0] = r + 1 + k;
                        return absl::OkStatus();
                      })
                      .ok());
      EXPECT_TRUE(sum(*stream, "a", a).ok());
      EXPECT_TRUE(stream
                      ->Call([values] {
                        values[1] = 10 * values[0];
                        return absl::OkStatus();
                      })
                      .ok());
      EXPECT_TRUE(sum(*stream, "b", b).ok());
      if (k == 1 && r == 0) enqueued.set_value();
      EXPECT_TRUE(stream->Copy(&sums[r][k], values + 1, sizeof(double)).ok());
    };
    sums[r].resize(kRounds);
    for (int k = 0; k < kRounds; ++k) round(k);
    EXPECT_TRUE(stream->Synchronize().ok());
  });
  // a = (1 + k) + (2 + k); b = 2 ranks' 10 a.
  for (int r = 0; r < kRanks; ++r) EXPECT_EQ(sums[r], (std::vector<double>{60, 100, 140})) << r;
}

TEST(NetTest, RanksAddUpToOneRank) {
  for (const char* layers : {kForkedNet, kPartedNet, kJoinedNet, kSharedNet, kNormNet})
    ExpectRanksAddUp(layers);
}

}  // namespace
}  // namespace gyre
