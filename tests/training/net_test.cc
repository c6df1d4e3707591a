// Whole nets: gradients against finite differences in double, memory shared between values, sums
// over several consumers, statistics over ranks, and the same bits on a device with memory of its
// own.
#include "engine/training/net.h"

#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <thread>

#include "distributed/communication_thread.h"
#include "engine/training/model.h"
#include "engine/training/step/evaluation.h"
#include "engine/training/step/input_upload.h"
#include "engine/training/step/step_buffer.h"
#include "gtest/gtest.h"
#include "models/schema/parse.h"

namespace gyre {
namespace {

constexpr int kClasses = 4;

Parsed<NetConfig> ParseOrDie(const std::string& layers, const std::string& dims = "6, 5, 2") {
  auto net = ParseNetText("name: \"t\" input { name: \"image\" dims: [" + dims +
                              "] } input { name: \"label\" type: LABEL } " + layers,
                          "test.textproto");
  EXPECT_TRUE(net.ok()) << net.status();
  return *std::move(net);
}

// One rank's model with a batch in host memory.
class Rank {
 public:
  Rank(const Parsed<NetConfig>& net, std::unique_ptr<Device> device, DType dtype, int64_t batch,
       int rank = 0, int ranks = 1)
      : device_(std::move(device)),
        primitives_(device_->kind(), 1),
        share_(ShareOf(batch, rank, ranks)) {
    auto plan = PlanModel(
        net, {.shape = {.global = batch, .rank = rank, .ranks = ranks, .compute = dtype, .seed = 7},
              .slots = {"momentum"},
              .bucket_bytes = 64,
              .feed = {.image = 0, .label = 1},
              .primitives = &primitives_});
    EXPECT_TRUE(plan.ok()) << plan.status();
    stream_ = *device_->NewStream();
    model_ = *Model::Create(*std::move(plan), *device_, *stream_);
    EXPECT_TRUE(model_->Initialize(*stream_).ok());
    buffer_.emplace(*StepBuffer::Create(*device_, model_->train()));
    upload_.emplace(*InputUpload::Create(*device_, model_->train()));
    MakeBatch(dtype);
  }

  // Sample i of the global batch is the same however the batch is split.
  void MakeBatch(DType dtype) {
    const Tensor input = model_->train().input(0);
    const int64_t sample = input.shape.elements(1, input.shape.rank());
    images_.resize(static_cast<size_t>(std::max<int64_t>(input.elements(), 1)) * 8);
    labels_.resize(static_cast<size_t>(std::max<int64_t>(share_.count, 1)));
    for (int64_t i = 0; i < share_.count; ++i) {
      std::mt19937 random(static_cast<unsigned>(share_.first + i));
      std::normal_distribution<double> normal;
      for (int64_t k = 0; k < sample; ++k) {
        const double value = normal(random);
        if (dtype == DType::kF64) {
          reinterpret_cast<double*>(images_.data())[i * sample + k] = value;
        } else {
          reinterpret_cast<float*>(images_.data())[i * sample + k] = static_cast<float>(value);
        }
      }
      labels_[static_cast<size_t>(i)] = static_cast<int32_t>(random() % kClasses);
    }
    batch_ = {.images = {images_.data(), input.shape, dtype},
              .labels = {labels_.data(), Shape({share_.count}), DType::kI32},
              .first_position = share_.first};
  }

  // The local loss sums after one forward pass.
  std::vector<Metric> Forward(const Net::SumStatistic& sum) {
    StepScalars scalars;
    scalars.step = 3;
    scalars.first_sample = static_cast<uint64_t>(share_.first);
    buffer_->SetScalars(scalars);
    EXPECT_TRUE(buffer_->Upload(*stream_).ok());
    EXPECT_TRUE(upload_->Start(/*lane=*/0, batch_, *stream_).ok());
    const absl::Status status = model_->train().Forward(*stream_, sum);
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_TRUE(buffer_->Download(*stream_).ok());
    EXPECT_TRUE(stream_->Synchronize().ok());
    EXPECT_TRUE(buffer_->CheckFault(batch_).ok());
    std::vector<Metric> metrics = MetricsOf(model_->train().plan().spec);
    AddSums(buffer_->metrics().as<double>(), metrics);
    return metrics;
  }

  std::vector<int> Backward() {
    std::vector<int> buckets;
    const absl::Status status = model_->train().Backward(*stream_, [&](int bucket) {
      buckets.push_back(bucket);
      return absl::OkStatus();
    });
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_TRUE(stream_->Synchronize().ok());
    return buckets;
  }

  std::vector<std::byte> Bytes(Tensor tensor) {
    std::vector<std::byte> bytes(tensor.bytes());
    EXPECT_TRUE(stream_->Copy(bytes.data(), tensor.data, bytes.size()).ok());
    EXPECT_TRUE(stream_->Synchronize().ok());
    return bytes;
  }
  std::vector<double> Doubles(Tensor tensor) {
    const std::vector<std::byte> bytes = Bytes(tensor);
    std::vector<double> values(static_cast<size_t>(tensor.elements()));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }

  const Net& net() { return model_->train(); }
  const ParameterSet& parameters() { return model_->plan().parameters; }

 private:
  std::unique_ptr<Device> device_;
  Primitives primitives_;
  Share share_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Model> model_;
  std::optional<StepBuffer> buffer_;
  std::optional<InputUpload> upload_;
  std::vector<std::byte> images_;
  std::vector<int32_t> labels_;
  Batch batch_;
};

std::unique_ptr<Device> Cpu() { return NewCpuDevice({.threads = 1}); }

absl::Status NoStatistic(Stream&, absl::string_view label, Tensor) {
  return absl::InternalError("unexpected statistic " + std::string(label));
}
absl::Status OneRank(Stream&, absl::string_view, Tensor) { return absl::OkStatus(); }

// d loss / d parameter by central differences, on up to `samples` random elements a parameter.
void ExpectGradients(const std::string& layers, int samples = 12) {
  SCOPED_TRACE(layers);
  const Parsed<NetConfig> net = ParseOrDie(layers);
  Rank rank(net, Cpu(), DType::kF64, 5);
  rank.Forward(OneRank);
  rank.Backward();
  std::mt19937 random(1);
  for (size_t p = 0; p < rank.parameters().all().size(); ++p) {
    const Parameter& parameter = rank.parameters().all()[p];
    if (!parameter.trained()) continue;
    const int index = static_cast<int>(p);
    auto* values = rank.net().parameter(index, rank.parameters()).as<double>();
    const std::vector<double> gradient =
        rank.Doubles(rank.net().gradient(index, rank.parameters()));
    double scale = 1e-3;  // gradients far below this are noise of the differences
    for (double g : gradient) scale = std::max(scale, std::abs(g));
    for (int s = 0; s < samples; ++s) {
      const size_t i = random() % gradient.size();
      constexpr double kStep = 1e-5;
      const double value = values[i];
      values[i] = value + kStep;
      const double above = TotalLoss(rank.Forward(OneRank));
      values[i] = value - kStep;
      const double below = TotalLoss(rank.Forward(OneRank));
      values[i] = value;
      EXPECT_NEAR((above - below) / (2 * kStep), gradient[i], 1e-6 * scale)
          << parameter.name() << "[" << i << "]";
    }
  }
}

constexpr char kConvNet[] = R"(
  layer { name: "conv" conv2d { filters: 3 kernel: 3 padding: 1 } }
  layer { name: "relu" relu { negative_slope: 0.1 } }
  layer { name: "drop" dropout { rate: 0.3 } }
  layer { name: "pool" pool2d { kind: AVERAGE kernel: 2 } }
  layer { name: "flat" flatten {} }
  layer { name: "fc" dense { outputs: 4 } }
  layer { name: "loss" input: "fc" input: "label" softmax_cross_entropy {} }
  layer { name: "acc" input: "fc" input: "label" accuracy {} })";

// Two heads on one trunk, one of them through another layer, and three losses.
constexpr char kForkedNet[] = R"(
  layer { name: "trunk" dense { outputs: 6 } }
  layer { name: "relu" relu { negative_slope: 0.2 } }
  layer { name: "a" input: "relu" dense { outputs: 4 } }
  layer { name: "loss_a" input: "a" input: "label" softmax_cross_entropy {} }
  layer { name: "b1" input: "relu" dense { outputs: 5 } }
  layer { name: "b2" dense { outputs: 4 } }
  layer { name: "loss_b" input: "b2" input: "label" softmax_cross_entropy { loss_weight: 0.3 } }
  layer { name: "c" input: "trunk" dense { outputs: 4 } }
  layer { name: "loss_c" input: "c" input: "label" softmax_cross_entropy { loss_weight: 2 ignore_label: 1 } }
  layer { name: "loss_a2" input: "a" input: "label" softmax_cross_entropy { loss_weight: 0.5 } })";

TEST(NetTest, GradientsOfAConvNet) { ExpectGradients(kConvNet); }

TEST(NetTest, GradientsThroughAFrozenLayer) {
  ExpectGradients(R"(
    layer { name: "a" conv2d { filters: 3 kernel: 3 weight { learning_rate_multiplier: 0 } } }
    layer { name: "b" relu { negative_slope: 0.1 } }
    layer { name: "c" dense { outputs: 6 weight { learning_rate_multiplier: 0 }
                              bias { learning_rate_multiplier: 0 } } }
    layer { name: "d" dense { outputs: 4 bias { learning_rate_multiplier: 0 } } }
    layer { name: "loss" input: "d" input: "label" softmax_cross_entropy {} })");
}
TEST(NetTest, GradientsOfAForkedNet) { ExpectGradients(kForkedNet); }

TEST(NetTest, GradientsOfRandomNets) {
  std::mt19937 random(5);
  for (int trial = 0; trial < 15; ++trial) {
    std::string text;
    std::vector<std::string> flat;  // names with values of shape [N, C]
    text += "layer { name: \"start\" input: \"image\" flatten {} } ";
    flat.push_back("start");
    const int layers = 3 + static_cast<int>(random() % 6);
    for (int l = 0; l < layers; ++l) {
      const std::string name = "l" + std::to_string(l);
      const std::string input = flat[random() % flat.size()];
      const std::string kinds[] = {"dense { outputs: " + std::to_string(2 + random() % 5) + " }",
                                   "relu { negative_slope: 0.3 }", "dropout { rate: 0.4 }",
                                   "flatten {}"};
      text +=
          "layer { name: \"" + name + "\" input: \"" + input + "\" " + kinds[random() % 4] + " } ";
      flat.push_back(name);
    }
    // Every value feeds a loss, so nothing is without one, and the early ones have many consumers.
    for (size_t i = 1; i < flat.size(); ++i) {
      text += "layer { name: \"head" + flat[i] + "\" input: \"" + flat[i] +
              "\" dense { outputs: 4 } } layer { name: \"loss" + flat[i] + "\" input: \"head" +
              flat[i] + "\" input: \"label\" softmax_cross_entropy { loss_weight: 0.4 } } ";
    }
    ExpectGradients(text, 4);
  }
}

const Value& ValueNamed(const NetSpec& net, const std::string& name) {
  for (const Value& value : net.values) {
    if (value.name == name) return value;
  }
  ADD_FAILURE() << name;
  return net.values[0];
}

TEST(NetTest, WorksInPlaceOnlyWhereNobodyReadsTheInputAgain) {
  const Parsed<NetConfig> conv = ParseOrDie(kConvNet);
  Rank rank(conv, Cpu(), DType::kF32, 2);
  const NetSpec& net = rank.net().plan().spec;
  EXPECT_EQ(ValueNamed(net, "relu").memory, ValueNamed(net, "conv").memory);
  // relu's backward reads its output, so the dropout after it needs memory of its own.
  EXPECT_NE(ValueNamed(net, "drop").memory, ValueNamed(net, "relu").memory);
  EXPECT_EQ(ValueNamed(net, "flat").memory, ValueNamed(net, "pool").memory);

  const Parsed<NetConfig> forked = ParseOrDie(kForkedNet);
  Rank fork(forked, Cpu(), DType::kF32, 2);
  // "c" reads the trunk's output after relu has run.
  const NetSpec& forked_net = fork.net().plan().spec;
  EXPECT_NE(ValueNamed(forked_net, "relu").memory, ValueNamed(forked_net, "trunk").memory);
}

const NetNode& NodeNamed(const NetSpec& net, const std::string& name) {
  for (const NetNode& node : net.nodes) {
    if (node.config->name() == name) return node;
  }
  ADD_FAILURE() << name;
  return net.nodes[0];
}

// Losses and gradients up to roundings.
void ExpectSameStep(Rank& one, Rank& other) {
  EXPECT_NEAR(TotalLoss(one.Forward(OneRank)), TotalLoss(other.Forward(OneRank)), 1e-13);
  one.Backward();
  other.Backward();
  for (size_t p = 0; p < one.parameters().all().size(); ++p) {
    const int index = static_cast<int>(p);
    const auto a = one.Doubles(one.net().gradient(index, one.parameters()));
    const auto b = other.Doubles(other.net().gradient(index, other.parameters()));
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-13);
  }
}

// A ReLU is done by the layer before it where nobody else reads that one; losses and gradients are
// those of the same net with a slope that is nearly 0, whose ReLUs do their own work.
TEST(NetTest, AProducerAppliesTheReluAfterIt) {
  const auto text = [](const std::string& slope) {
    return "layer { name: \"conv\" conv2d { filters: 3 kernel: 3 } } "
           "layer { name: \"relu1\" relu { negative_slope: " +
           slope +
           " } } "
           "layer { name: \"fc1\" dense { outputs: 6 } } "
           "layer { name: \"relu2\" relu { negative_slope: " +
           slope +
           " } } "
           "layer { name: \"fc2\" input: \"relu2\" dense { outputs: 4 } } "
           "layer { name: \"relu3\" input: \"fc2\" relu { negative_slope: " +
           slope +
           " } } "
           "layer { name: \"acc\" input: \"fc2\" input: \"label\" accuracy {} } "
           "layer { name: \"loss\" input: \"relu3\" input: \"label\" "
           "softmax_cross_entropy {} }";
  };
  const Parsed<NetConfig> fused_net = ParseOrDie(text("0")), plain_net = ParseOrDie(text("1e-30"));
  Rank fused(fused_net, Cpu(), DType::kF64, 5), plain(plain_net, Cpu(), DType::kF64, 5);
  const NetSpec& spec = fused.net().plan().spec;
  EXPECT_TRUE(NodeNamed(spec, "relu1").applied_by_producer);
  EXPECT_TRUE(NodeNamed(spec, "relu2").applied_by_producer);
  EXPECT_FALSE(NodeNamed(spec, "relu3").applied_by_producer);  // "acc" reads fc2 as well
  for (const NetNode& node : plain.net().plan().spec.nodes) EXPECT_FALSE(node.applied_by_producer);

  ExpectSameStep(fused, plain);
}

// A ReLU waits for the maximum of the window it is in, again as one with a slope of nearly 0, which
// does not.
TEST(NetTest, AReluComesAfterAMaxPoolThatReadsItAlone) {
  const auto text = [](const std::string& slope) {
    const std::string relu = " relu { negative_slope: " + slope + " } } ";
    return "layer { name: \"conv\" conv2d { filters: 3 kernel: 3 padding: 1 } } "
           "layer { name: \"relu1\"" +
           relu +
           "layer { name: \"pool1\" pool2d { kind: MAX kernel: 3 stride: 2 } } "
           "layer { name: \"relu2\" input: \"pool1\"" +
           relu +
           "layer { name: \"pool2\" pool2d { kind: AVERAGE kernel: 2 stride: 1 } } "
           "layer { name: \"relu3\" input: \"conv\"" +
           relu +
           "layer { name: \"pool3\" pool2d { kind: MAX kernel: 2 } } "
           "layer { name: \"fc1\" input: \"pool2\" dense { outputs: 4 } } "
           "layer { name: \"loss1\" input: \"fc1\" input: \"label\" softmax_cross_entropy {} } "
           "layer { name: \"fc2\" input: \"pool3\" dense { outputs: 4 } } "
           "layer { name: \"loss2\" input: \"fc2\" input: \"label\" softmax_cross_entropy {} } "
           "layer { name: \"fc3\" input: \"relu3\" dense { outputs: 4 } } "
           "layer { name: \"loss3\" input: \"fc3\" input: \"label\" softmax_cross_entropy {} }";
  };
  const Parsed<NetConfig> moved_net = ParseOrDie(text("0")), plain_net = ParseOrDie(text("1e-30"));
  Rank moved(moved_net, Cpu(), DType::kF64, 5), plain(plain_net, Cpu(), DType::kF64, 5);
  const NetSpec& net = moved.net().plan().spec;
  EXPECT_EQ(ValueNamed(net, "relu1").shape, ValueNamed(net, "pool1").shape);
  EXPECT_NE(ValueNamed(net, "relu2").shape, ValueNamed(net, "pool2").shape);  // an average
  EXPECT_NE(ValueNamed(net, "relu3").shape, ValueNamed(net, "pool3").shape);  // "fc3" reads it too
  ExpectSameStep(moved, plain);
}

// A run that has diverged ends: nothing on the way makes a number of a NaN.
TEST(NetTest, NaNWeightsMakeTheLossNaN) {
  const Parsed<NetConfig> net = ParseOrDie(R"(
    layer { name: "conv1" conv2d { filters: 3 kernel: 3 } }
    layer { name: "pool1" pool2d { kernel: 2 } }
    layer { name: "relu1" relu {} }
    layer { name: "fc" dense { outputs: 4 } }
    layer { name: "loss" input: "fc" input: "label" softmax_cross_entropy {} })");
  for (const DType dtype : {DType::kF32, DType::kF64}) {
    Rank rank(net, Cpu(), dtype, 5);
    ASSERT_EQ(rank.parameters().all()[0].name(), "conv1.weight");
    const Tensor weights = rank.net().parameter(0, rank.parameters());
    std::memset(weights.data, 0xFF, weights.bytes());
    EXPECT_TRUE(std::isnan(TotalLoss(rank.Forward(OneRank)))) << DTypeName(dtype);
  }
}

TEST(NetTest, NeverOverwritesANetInput) {
  const Parsed<NetConfig> net = ParseOrDie(R"(
    layer { name: "relu" input: "image" relu {} }
    layer { name: "fc" dense { outputs: 4 } }
    layer { name: "loss" input: "fc" input: "label" softmax_cross_entropy {} })");
  Rank rank(net, Cpu(), DType::kF32, 2);
  EXPECT_NE(ValueNamed(rank.net().plan().spec, "relu").memory, 0);
}

TEST(NetTest, BucketsFinishInOrderAndOnce) {
  const Parsed<NetConfig> net = ParseOrDie(kForkedNet);
  Rank rank(net, Cpu(), DType::kF64, 5);
  rank.Forward(OneRank);
  std::vector<int> expected(rank.net().plan().order.buckets.size());
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_GT(expected.size(), 3u);
  EXPECT_EQ(rank.Backward(), expected);
}

TEST(NetTest, SimGivesTheBitsOfCpu) {
  for (const char* text : {kConvNet, kForkedNet}) {
    for (DType dtype : {DType::kF32, DType::kF64}) {
      const Parsed<NetConfig> net = ParseOrDie(text);
      Rank cpu(net, Cpu(), dtype, 5);
      Rank sim(net, NewSimDevice({.threads = 1, .delay_seed = 3}), dtype, 5);
      const std::vector<Metric> a = cpu.Forward(OneRank), b = sim.Forward(OneRank);
      for (size_t m = 0; m < a.size(); ++m) EXPECT_EQ(a[m].sum, b[m].sum) << a[m].name;
      cpu.Backward();
      sim.Backward();
      for (size_t p = 0; p < cpu.parameters().all().size(); ++p) {
        const int i = static_cast<int>(p);
        EXPECT_EQ(cpu.Bytes(cpu.net().gradient(i, cpu.parameters())),
                  sim.Bytes(sim.net().gradient(i, sim.parameters())))
            << cpu.parameters().all()[p].name();
      }
    }
  }
}

// The sum over ranks of losses and gradients is that of one rank, with labels to ignore as well: a
// rank may even have nothing but ignored ones.
TEST(NetTest, RanksAddUpToOneRank) {
  const Parsed<NetConfig> net = ParseOrDie(kForkedNet);
  constexpr int64_t kBatch = 7;
  Rank one(net, Cpu(), DType::kF64, kBatch);
  const std::vector<Metric> expected = one.Forward(OneRank);
  one.Backward();
  for (int ranks : {2, 3, 7}) {
    auto communicators = NewThreadCommunicators(ranks, 20'000);
    std::vector<std::vector<Metric>> metrics(static_cast<size_t>(ranks));
    std::vector<std::vector<std::vector<double>>> gradients(static_cast<size_t>(ranks));
    std::vector<std::thread> threads;
    for (int r = 0; r < ranks; ++r) {
      threads.emplace_back([&, r] {
        auto communication = *CommunicationThread::Start(
            [&, r]() -> absl::StatusOr<std::unique_ptr<Communicator>> {
              return std::move(communicators[static_cast<size_t>(r)]);
            },
            "ring");
        Rank rank(net, Cpu(), DType::kF64, kBatch, r, ranks);
        metrics[r] = rank.Forward(StatisticSummer(*communication));
        rank.Backward();
        for (size_t p = 0; p < rank.parameters().all().size(); ++p) {
          gradients[r].push_back(
              rank.Doubles(rank.net().gradient(static_cast<int>(p), rank.parameters())));
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (size_t m = 0; m < expected.size(); ++m) {
      double sum = 0, count = 0;
      for (const auto& of_rank : metrics) {
        sum += of_rank[m].sum;
        count += of_rank[m].count;
      }
      EXPECT_NEAR(sum, expected[m].sum, 1e-12 * std::abs(expected[m].sum)) << expected[m].name;
      EXPECT_EQ(count, expected[m].count);
    }
    for (size_t p = 0; p < one.parameters().all().size(); ++p) {
      const auto all = one.Doubles(one.net().gradient(static_cast<int>(p), one.parameters()));
      for (size_t i = 0; i < all.size(); ++i) {
        double sum = 0;
        for (const auto& of_rank : gradients) sum += of_rank[p][i];
        EXPECT_NEAR(sum, all[i], 1e-13);
      }
    }
  }
}

TEST(NetTest, StatisticsAreSummedOnlyWhereDeclared) {
  const Parsed<NetConfig> net = ParseOrDie(kConvNet);
  Rank rank(net, Cpu(), DType::kF32, 3);
  rank.Forward(NoStatistic);
}

std::string PlanError(const std::string& layers) {
  const Parsed<NetConfig> net = ParseOrDie(layers);
  const Primitives primitives(DeviceKind::kCpu, 1);
  const auto plan = PlanModel(
      net, {.shape = {.global = 4}, .test_batch = 4, .test_samples = 4, .primitives = &primitives});
  EXPECT_FALSE(plan.ok());
  return std::string(plan.status().message());
}

TEST(NetTest, ErrorsNameTheLayerAndThePlace) {
  EXPECT_EQ(PlanError("\nlayer { name: \"fc\" dense { outputs: 4 } }"),
            "test.textproto: the net has no loss to train with; add a layer such as "
            "softmax_cross_entropy");
  EXPECT_EQ(PlanError(R"(
layer { name: "fc" dense { outputs: 4 weight { learning_rate_multiplier: 0 } use_bias: false } }
layer { name: "loss" input: "fc" input: "label" softmax_cross_entropy {} })"),
            "test.textproto: the net has no parameter to train: add a layer such as dense, or give "
            "one a learning_rate_multiplier above 0");
  EXPECT_EQ(
      PlanError(R"(
layer { name: "fc" dense { outputs: 4 } }
layer { name: "loss" input: "fc" input: "label" softmax_cross_entropy {} }
  layer { name: "lost" input: "fc" dense { outputs: 4 } })"),
      "test.textproto:4:3: layer \"lost\": has parameters that no loss depends on; feed it to "
      "a loss or remove it");
  EXPECT_EQ(PlanError(R"(
layer { name: "fc" dense { outputs: 4 } }
layer { name: "loss" input: "fc" input: "label" softmax_cross_entropy {} }
layer { name: "extra" input: "fc" phase: TEST dense { outputs: 4 } })"),
            "test.textproto:4:1: layer \"extra\": has the parameter \"weight\", which the training "
            "net lacks; remove `phase: TEST` or the layer");
}

}  // namespace
}  // namespace gyre
