#include "tests/training/net/net_rank.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "engine/training/feed/data_feed.h"

namespace gyre {

Parsed<NetConfig> ParseLayers(const std::string& layers) {
  return *ParseNetText(
      "name: \"t\" input { name: \"image\" dims: [6, 5, 2] } input { name: "
      "\"label\" type: LABEL } " +
          layers,
      "test.textproto");
}

const NetValue& ValueNamed(const NetSpec& net, const std::string& name) {
  for (const NetValue& value : net.values) {
    if (value.name == name) return value;
  }
  ADD_FAILURE() << name;
  return net.values[0];
}

const NetNode& NodeNamed(const NetSpec& net, const std::string& name) {
  for (const NetNode& node : net.nodes) {
    if (node.config->name() == name) return node;
  }
  ADD_FAILURE() << name;
  return net.nodes[0];
}

NetRank::NetRank(const std::string& layers, DType dtype, int64_t batch,
                 std::unique_ptr<Device> device, int rank, int ranks)
    : config_(ParseLayers(layers)),
      device_(std::move(device)),
      primitives_(device_->kind(), 1),
      share_(ShareOf(batch, rank, ranks)) {
  auto plan = *PlanModel(
      config_,
      {.shape = {.global = batch, .rank = rank, .ranks = ranks, .compute = dtype, .seed = 7},
       .slots = {"momentum"},
       .bucket_bytes = 64,
       .feed = FeedOfBytes(*config_.message),
       .primitives = &primitives_});
  stream_ = *device_->NewStream();
  model_ = *Model::Create(std::move(plan), *device_, *stream_);
  EXPECT_TRUE(model_->Initialize(*stream_).ok());
  buffer_.emplace(*StepBuffer::Create(*device_, net()));
  upload_.emplace(*InputUpload::Create(*device_, net()));
  MakeBatch(dtype);
}

void NetRank::MakeBatch(DType dtype) {
  const Tensor input = net().input(0);
  const int64_t sample = input.shape.elements(1, input.shape.rank());
  images_.resize(static_cast<size_t>(std::max<int64_t>(input.elements(), 1)) * 8);
  labels_.resize(static_cast<size_t>(std::max<int64_t>(share_.count, 1)));
  for (int64_t i = 0; i < share_.count; ++i) {
    std::mt19937 random(static_cast<unsigned>(share_.first + i));
    std::normal_distribution<double> normal;
    for (int64_t k = 0; k < sample; ++k) {
      const double value = normal(random);
      VisitReal(dtype, [&]<typename T>() {
        reinterpret_cast<T*>(images_.data())[i * sample + k] =
            static_cast<T>(static_cast<AccumulateType<T>>(value));
      });
    }
    labels_[static_cast<size_t>(i)] = static_cast<int32_t>(random() % kNetClasses);
  }
  batch_ = {.arrays = {{images_.data(), input.shape, dtype},
                       {labels_.data(), Shape({share_.count}), DType::kI32}},
            .first_position = share_.first,
            .samples = std::vector<int64_t>(static_cast<size_t>(share_.count))};
}

absl::Status NetRank::Run(bool backward, const Net::SumStatistic& sum,
                          const BucketAction& of_bucket) {
  const std::vector<Instruction>& program = net().plan().trace.program;
  const auto losses = std::ranges::find(program, InstructionKind::kSeedLosses, &Instruction::kind);
  const int middle = static_cast<int>(losses - program.begin());
  const int end = backward ? static_cast<int>(program.size()) : middle;
  for (int step = backward ? middle : 0; step < end; ++step) {
    const auto [kind, of, piece] = program[step];
    const bool action = kind == InstructionKind::kAwait || kind == InstructionKind::kMeasure ||
                        kind == InstructionKind::kBegin;
    if (IsOfNet(kind)) RETURN_IF_ERROR(net().RunOwn(*stream_, step, sum));
    if (action && of_bucket) RETURN_IF_ERROR(of_bucket(of));
  }
  return absl::OkStatus();
}

std::vector<Metric> NetRank::Forward(const Net::SumStatistic& sum,
                                     const BucketAction& bucket_needed) {
  buffer_->Set({.step = 3, .first_sample = static_cast<uint64_t>(share_.first)}, {});
  EXPECT_TRUE(buffer_->Upload(*stream_).ok());
  EXPECT_TRUE(upload_->Start(/*lane=*/0, batch_, *stream_).ok());
  const absl::Status status = Run(/*backward=*/false, sum, bucket_needed);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_TRUE(buffer_->Download(*stream_).ok());
  EXPECT_TRUE(stream_->Synchronize().ok());
  EXPECT_TRUE(buffer_->CheckFault(batch_).ok());
  std::vector<Metric> metrics = MetricsOf(spec());
  AddSums(buffer_->metrics().as<double>(), metrics);
  return metrics;
}

std::vector<int> NetRank::Backward(const Net::SumStatistic& sum, const BucketAction& bucket_ready) {
  std::vector<int> buckets;
  const absl::Status status = Run(/*backward=*/true, sum, [&](int bucket) {
    buckets.push_back(bucket);
    // Of one rank their memory may be others' from now on.
    if (spec().shape.ranks == 1) KeepGradients(bucket);
    return bucket_ready ? bucket_ready(bucket) : absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_TRUE(stream_->Synchronize().ok());
  return buckets;
}

void NetRank::KeepGradients(int bucket) {
  const GradientOrder& order = net().plan().order;
  for (int g = order.buckets[bucket].first; g < order.buckets[bucket].last; ++g) {
    const BucketedGradient& gradient = order.gradients[g];
    const int64_t elements = parameters()[gradient.parameter].storage_elements();
    const Tensor from = Slice(net().bucket(bucket), gradient.at, elements);
    std::vector<std::byte>& to = gradients_[gradient.parameter];
    to.resize(from.bytes());
    EXPECT_TRUE(stream_->Copy(to.data(), from.data, to.size()).ok());
  }
}

const std::vector<std::byte>& NetRank::GradientBytes(int parameter) {
  if (spec().shape.ranks > 1) {
    for (size_t b = 0; b < net().plan().order.buckets.size(); ++b) {
      KeepGradients(static_cast<int>(b));
    }
  }
  EXPECT_TRUE(stream_->Synchronize().ok());
  return gradients_[parameter];
}

std::vector<double> NetRank::Gradient(size_t parameter) {
  const std::vector<std::byte> bytes = ToType(GradientBytes(static_cast<int>(parameter)),
                                              parameters()[parameter].spec.dtype, DType::kF64);
  std::vector<double> values(bytes.size() / sizeof(double));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

}  // namespace gyre
