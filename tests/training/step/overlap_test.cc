// When parameters are read and when they are updated: a pass reads those of a bucket only between
// what it says of them, and a step's sums go on under the next step's forward.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <future>
#include <limits>

#include "engine/runtime/device/forwarding_stream.h"
#include "engine/training/step/training_step.h"
#include "tests/distributed/process_group_ranks.h"
#include "tests/training/net/net_rank.h"

namespace gyre {
namespace {

// Its updates come with the ranks' sums.
NetRank OneOfTwo(const std::string& layers) {
  return NetRank(layers, DType::kF64, /*batch=*/5, NewCpuDevice({}), /*rank=*/0, /*ranks=*/2);
}

// Each bucket's parameters are NaNs but from what forward needs of it to what backward has done
// with it.
void ExpectReadInTime(const std::string& layers) {
  NetRank expected = OneOfTwo(layers), rank = OneOfTwo(layers);
  const GradientOrder& order = rank.net().plan().order;
  std::vector<std::vector<double>> values;
  std::vector<int> needed;
  const auto parameters = [&](int bucket, const auto& each) {
    for (int g = order.buckets[bucket].first; g < order.buckets[bucket].last; ++g) {
      each(static_cast<size_t>(order.gradients[g].parameter));
    }
    return absl::OkStatus();
  };
  const auto set = [&](size_t p, const std::vector<double>& to) {
    const Tensor parameter = rank.parameter(p);
    return rank.stream().Copy(parameter.data, to.data(), parameter.bytes()).ok();
  };
  const auto hide = [&](int bucket) {
    return parameters(bucket, [&](size_t p) {
      const double none = std::numeric_limits<double>::quiet_NaN();
      EXPECT_TRUE(set(p, std::vector<double>(values[p].size(), none)));
    });
  };
  for (size_t p = 0; p < rank.parameters().size(); ++p) {
    const Tensor parameter = rank.parameter(p);
    values.emplace_back(static_cast<size_t>(parameter.elements()));
    ASSERT_TRUE(rank.stream().Copy(values[p].data(), parameter.data, parameter.bytes()).ok());
  }
  for (int b = 0; b < static_cast<int>(order.buckets.size()); ++b) ASSERT_TRUE(hide(b).ok());

  const auto leave = [](Stream&, absl::string_view, Tensor) { return absl::OkStatus(); };
  const double loss = TotalLoss(rank.Forward(leave, [&](int bucket) {
    needed.push_back(bucket);
    return parameters(bucket, [&](size_t p) { EXPECT_TRUE(set(p, values[p])); });
  }));
  EXPECT_EQ(loss, expected.Loss());
  std::vector<int> ready = rank.Backward(leave, hide);
  std::ranges::reverse(ready);
  EXPECT_EQ(needed, ready);
  EXPECT_EQ(needed.size(), order.buckets.size());
  expected.Backward();
  for (const BucketedGradient& gradient : order.gradients) {
    const auto p = static_cast<size_t>(gradient.parameter);
    EXPECT_EQ(rank.GradientBytes(p), expected.GradientBytes(p)) << rank.parameters()[p].name();
  }
}

TEST(Overlap, ParametersAreReadBetweenNeededAndReady) {
  for (const char* layers : {kConvNet, kForkedNet, kPartedNet, kJoinedNet, kSharedNet, kNormNet}) {
    SCOPED_TRACE(layers);
    ExpectReadInTime(layers);
  }
}

// Tells of each piece of work before it is enqueued.
class ToldStream final : public ForwardingStream {
 public:
  ToldStream(Stream& stream, std::function<void()> tell)
      : ForwardingStream(stream), tell_(std::move(tell)) {}
  absl::Status Call(std::function<absl::Status()> work) override {
    tell_();
    return ForwardingStream::Call(std::move(work));
  }

 private:
  const std::function<void()> tell_;
};

// Tells of each update before it is enqueued.
class ToldOptimizer final : public Optimizer {
 public:
  ToldOptimizer(std::unique_ptr<Optimizer> optimizer, std::function<void()> tell)
      : optimizer_(std::move(optimizer)), tell_(std::move(tell)) {}
  std::vector<std::string> slot_names() const override { return optimizer_->slot_names(); }
  bool leaves_untouched(double decay) const override { return optimizer_->leaves_untouched(decay); }
  void Prepare(uint64_t step, UpdateScalars& scalars) const override {
    optimizer_->Prepare(step, scalars);
  }
  absl::Status Update(Stream& stream, const UpdateScalars* update,
                      std::span<const ParameterViews> parameters) const override {
    tell_();
    return optimizer_->Update(stream, update, parameters);
  }

 private:
  const std::unique_ptr<Optimizer> optimizer_;
  const std::function<void()> tell_;
};

// The other rank begins its first step only when this one's second forward has begun, so no sum of
// it can be there before; it begins the last sum, which this forward waits for, only when this rank
// has updated what has come.
TEST(Overlap, TheNextForwardAndUpdatesBeginBeforeASumIsThere) {
  constexpr char kLayers[] = R"(
    layer { name: "relu" relu {} }
    layer { name: "flat" flatten {} }
    layer { name: "fc1" dense { outputs: 7 } }
    layer { name: "fc2" dense { outputs: 4 } }
    layer { name: "loss" input: "fc2" input: "label" softmax_cross_entropy {} })";
  OptimizerConfig config;
  config.mutable_sgd()->set_momentum(0.9f);
  std::promise<void> begin, update;
  const std::shared_future<void> begun = begin.get_future().share();
  const std::shared_future<void> updated = update.get_future().share();
  int pieces = 0;  // of a step without updates; set before `begin`
  const auto train = [&](ProcessGroup& communication) {
    NetRank rank(kLayers, DType::kF32, 5, NewCpuDevice({}), communication.rank(), 2);
    const bool first = communication.rank() == 0;
    bool waits = false;  // for the first work of the second forward
    int calls = 0;
    const auto tell = [&] {
      ++calls;
      if (std::exchange(waits, false)) begin.set_value();
      if (!first && calls == pieces) {
        EXPECT_EQ(updated.wait_for(std::chrono::seconds(10)), std::future_status::ready);
      }
    };
    bool has_updated = false;
    const ToldOptimizer optimizer(NewOptimizer(config), [&] {
      if (first && !std::exchange(has_updated, true)) update.set_value();
    });
    ToldStream stream(rank.stream(), tell);
    const auto step =
        *TrainingStep::Create(rank.model(), optimizer, rank.device(), stream, communication);
    if (!first) begun.wait();
    EXPECT_TRUE(step->Start(rank.batch(), 0, 0.1).ok());
    if (first) pieces = calls;
    waits = first;
    EXPECT_TRUE(step->Start(rank.batch(), 1, 0.1).ok());
    tell();  // lest the other waits where this failed
    while (step->in_flight() > 0) EXPECT_TRUE(step->Finish().ok());
  };
  RunRanksOn("ring", 2, 20'000, train);
}

}  // namespace
}  // namespace gyre
