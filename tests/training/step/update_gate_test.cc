// Sums of squares against plain sums, over types and lengths around the pieces' ends; what the gate
// decides.  Runs on cpu and sim; with GYRE_TEST_DEVICE=cuda, on the GPU.
#include "engine/training/step/update_gate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "distributed/collectives/reduction.h"
#include "engine/runtime/device/buffer.h"
#include "tests/test_device.h"

namespace gyre {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

class UpdateGateTest : public testing::TestWithParam<DeviceKind> {
 protected:
  void SetUp() override {
    device_ = OpenTestDevice(GetParam()).device;
    stream_ = std::move(device_->NewStream()).value();
  }

  Buffer Upload(const void* data, size_t bytes) {
    Buffer buffer = std::move(Buffer::Allocate(*device_, MemoryKind::kDevice, bytes)).value();
    EXPECT_TRUE(stream_->Copy(buffer.data(), data, bytes).ok());
    EXPECT_TRUE(stream_->Synchronize().ok());
    return buffer;
  }
  template <typename T>
  T Download(const Buffer& buffer) {
    T value;
    EXPECT_TRUE(stream_->Copy(&value, buffer.data(), sizeof(value)).ok());
    EXPECT_TRUE(stream_->Synchronize().ok());
    return value;
  }

  template <typename T>
  double Sum(const std::vector<T>& values) {
    const auto count = static_cast<int64_t>(values.size());
    const Buffer gradient = Upload(values.data(), values.size() * sizeof(T));
    const Buffer scratch =
        *Buffer::Allocate(*device_, MemoryKind::kDevice, kSumSquaresScratchBytes);
    const double fresh = kNaN;
    const Buffer sum = Upload(&fresh, sizeof(fresh));
    const Tensor tensor{gradient.data(), Shape({count}), kDTypeOf<T>};
    EXPECT_TRUE(
        SumSquares(*stream_, tensor, scratch.data(), reinterpret_cast<double*>(sum.data())).ok());
    return Download<double>(sum);
  }

  template <typename T>
  void CheckType(double tolerance) {
    std::mt19937 random(1);
    std::uniform_real_distribution<float> uniform(-2, 2);
    for (const int64_t count : {0, 1, 2, 4095, 4096, 8191, 8192, 50001}) {
      std::vector<T> values;
      double expected = 0;
      for (int64_t i = 0; i < count; ++i) {
        values.push_back(static_cast<T>(uniform(random)));
        expected += static_cast<double>(values.back()) * static_cast<double>(values.back());
      }
      EXPECT_NEAR(Sum(values), expected, tolerance * expected) << count;
    }
    for (const double bad : {kNaN, kInf, -kInf}) {
      for (const size_t at : {size_t{0}, size_t{4096}, size_t{20000}}) {
        std::vector<T> values(20001, static_cast<T>(1.0f));
        values[at] = static_cast<T>(static_cast<float>(bad));
        EXPECT_FALSE(std::isfinite(Sum(values))) << bad << " at " << at;
      }
    }
  }

  template <typename T>
  void CheckPieces(std::mt19937& random) {
    std::uniform_real_distribution<float> uniform(-2, 2);
    for (const int64_t count : {1, 31, 32, 33, 1000, 70'001}) {
      std::vector<T> values;
      for (int64_t i = 0; i < count; ++i) values.push_back(static_cast<T>(uniform(random)));
      const int64_t first = static_cast<int64_t>(random() % 1000);
      std::vector<ElementRange> pieces;
      std::vector<double> expected;
      for (int64_t at = 0; at < count;) {
        const int64_t length = std::min<int64_t>(count - at, 1 + random() % (count / 3 + 40));
        pieces.push_back({first + at, first + at + length});
        std::vector<T> copy(values.begin() + at, values.begin() + at + length);
        const void* const in[] = {copy.data()};
        void* const out[] = {copy.data()};
        expected.push_back(AddAll(kDTypeOf<T>, in, out, length));
        at += length;
      }
      const Buffer part = Upload(values.data(), values.size() * sizeof(T));
      const Buffer ranges = Upload(pieces.data(), pieces.size() * sizeof(pieces[0]));
      const std::vector<double> fresh(pieces.size() * kSquareLanes, kNaN);
      const Buffer lanes = Upload(fresh.data(), fresh.size() * sizeof(double));
      const Buffer squares = Upload(fresh.data(), pieces.size() * sizeof(double));
      EXPECT_TRUE(SumSquaresOfRanges(*stream_, {part.data(), Shape({count}), kDTypeOf<T>}, first,
                                     reinterpret_cast<const ElementRange*>(ranges.data()),
                                     static_cast<int64_t>(pieces.size()),
                                     reinterpret_cast<double*>(lanes.data()),
                                     reinterpret_cast<double*>(squares.data()))
                      .ok());
      std::vector<double> found(pieces.size());
      EXPECT_TRUE(stream_->Copy(found.data(), squares.data(), squares.bytes()).ok());
      EXPECT_TRUE(stream_->Synchronize().ok());
      EXPECT_EQ(found, expected) << count;
    }
  }

  struct Passed {
    UpdateScalars update;
    GradientReport report;
    LossScaleState state;
  };
  // Of lane 1.  state: of a dynamic loss scale, which doubles after 3 good steps.
  Passed Pass(const std::vector<double>& sums, std::optional<double> clip_norm,
              double loss_scale = 1, std::optional<LossScaleState> state = {}, uint64_t step = 0,
              const UpdateGroups& groups = {}, double shares = 1) {
    StepScalars block{};
    block.position.step = step;
    block.loss_scale = loss_scale;
    block.gradients = {kNaN, 77, {}};
    block.updates[1] = {
        .gradient_scale = kNaN, .decay = {0.5, 0.25}, .groups = groups, .correction = {{7, 8}}};
    const Buffer device_sums = Upload(sums.data(), sums.size() * sizeof(double));
    const Buffer step_scalars = Upload(&block, sizeof(block));
    const LossScaleState fresh;
    const Buffer device_state = Upload(&fresh, sizeof(fresh));
    auto* const on_device = reinterpret_cast<StepScalars*>(step_scalars.data());
    UpdateGate gate{.clip_norm = clip_norm, .shares = shares};
    if (state) {
      gate.loss_scale = reinterpret_cast<LossScaleState*>(device_state.data());
      gate.growth_interval = 3;
      EXPECT_TRUE(SetLossScale(*stream_, *state, gate.loss_scale).ok());
    }
    EXPECT_TRUE(PassGate(*stream_, gate, reinterpret_cast<const double*>(device_sums.data()),
                         static_cast<int>(sums.size()), &on_device->updates[1], on_device)
                    .ok());
    block = Download<StepScalars>(step_scalars);
    EXPECT_EQ(block.updates[0].gradient_scale, 1);
    return {block.updates[1], block.gradients, Download<LossScaleState>(device_state)};
  }

  std::shared_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
};

INSTANTIATE_TEST_SUITE_P(, UpdateGateTest, testing::ValuesIn(DevicesToTest()), DeviceName);

TEST_P(UpdateGateTest, SumsSquaresOfEveryType) {
  CheckType<double>(1e-13);
  CheckType<float>(1e-13);
  CheckType<Half>(1e-13);
  CheckType<BFloat16>(1e-13);
}

TEST_P(UpdateGateTest, SquaresBeyondFloatAreFinite) {
  EXPECT_EQ(Sum(std::vector<float>{1e30f}), 1e30f * static_cast<double>(1e30f));
}

// Of any part of a tensor, cut into any pieces.
TEST_P(UpdateGateTest, SumsSquaresOfPiecesAsHostSumsDo) {
  std::mt19937 random(3);
  CheckPieces<double>(random);
  CheckPieces<float>(random);
  CheckPieces<Half>(random);
  CheckPieces<BFloat16>(random);
}

// What is sent spoilt is dropped, and does not count.
TEST_P(UpdateGateTest, DropsWhatIsSpoilt) {
  for (const bool spoils : {false, true}) {
    const std::vector<float> values = {1, -2, 3};
    const Buffer gradient = Upload(values.data(), values.size() * sizeof(float));
    const Tensor tensor{gradient.data(), Shape({3}), DType::kF32};
    const UpdateScalars scalars = {.gradient_scale = 0.5};
    const GradientReport report = {.bad_bucket = spoils ? 0 : -1, .loss_scale = {}};
    const Buffer update = Upload(&scalars, sizeof(scalars));
    const Buffer found = Upload(&report, sizeof(report));
    auto* const on_device = reinterpret_cast<UpdateScalars*>(update.data());
    EXPECT_TRUE(ScaleOrSpoil(*stream_, tensor, on_device,
                             reinterpret_cast<const GradientReport*>(found.data()))
                    .ok());
    const auto sent = Download<std::array<float, 3>>(gradient);
    for (size_t i = 0; i < sent.size(); ++i) {
      EXPECT_EQ(std::isnan(sent[i]), spoils);
      if (!spoils) {
        EXPECT_EQ(sent[i], values[i] / 2);
      }
    }
    const int64_t dropped_before = 2;
    const Buffer dropped = Upload(&dropped_before, sizeof(dropped_before));
    UpdateScalars value = {.learning_rate = 0.25, .decay = {0.5, 0.25}};
    EXPECT_TRUE(SetUpdateUnlessSpoilt(*stream_, tensor, value, 7,
                                      reinterpret_cast<int64_t*>(dropped.data()), on_device)
                    .ok());
    const auto set = Download<UpdateScalars>(update);
    EXPECT_EQ(set.skip, spoils);
    EXPECT_EQ(set.learning_rate, 0.25);
    EXPECT_EQ(Download<int64_t>(dropped), spoils ? 3 : 2);
    value.SetNumber(5);
    if (!spoils) {
      EXPECT_EQ(set.correction[0][0], value.correction[0][0]);
      EXPECT_FALSE(set.first[0]);
    }
  }
}

TEST_P(UpdateGateTest, ClipsOnlyWhatExceedsTheNorm) {
  EXPECT_EQ(Pass({9, 16}, std::nullopt).update.gradient_scale, 1);
  EXPECT_EQ(Pass({9, 16}, std::nullopt).report.norm, 5);
  EXPECT_EQ(Pass({9, 16}, 5).update.gradient_scale, 1);
  EXPECT_EQ(Pass({9, 16}, 2).update.gradient_scale, 2.0 / 5);
  EXPECT_EQ(Pass({0, 0}, 1).update.gradient_scale, 1);
  EXPECT_EQ(Pass({9, 16}, 2).report.bad_bucket, -1);
}

TEST_P(UpdateGateTest, ClipsByTheNormOfUnscaledGradients) {
  EXPECT_EQ(Pass({900, 1600}, std::nullopt, 10).report.norm, 5);
  EXPECT_EQ(Pass({900, 1600}, std::nullopt, 10).update.gradient_scale, 1.0 / 10);
  EXPECT_EQ(Pass({900, 1600}, 5, 10).update.gradient_scale, 1.0 / 10);
  EXPECT_EQ(Pass({900, 1600}, 2, 10).update.gradient_scale, 2.0 / 5 / 10);
  EXPECT_EQ(Pass({144, 256}, 2, 1, LossScaleState{4}).report.norm, 5);
  // Of one of 3 workers, whose gradients count 3 times.
  EXPECT_EQ(Pass({144, 256}, 2, 4, {}, 0, {}, /*shares=*/3).report.norm, 15);
  EXPECT_EQ(Pass({144, 256}, 2, 1, LossScaleState{4}).update.gradient_scale, 2.0 / 5 / 4);
}

TEST_P(UpdateGateTest, NamesTheFirstBucketThatIsNotFinite) {
  EXPECT_EQ(Pass({1, kNaN, kInf, 2}, std::nullopt).report.bad_bucket, 1);
  EXPECT_EQ(Pass({kInf, 1}, 1).report.bad_bucket, 0);
  EXPECT_EQ(Pass({}, std::nullopt).report.bad_bucket, -1);
}

// Without a dynamic scale nothing is skipped: the run ends.
TEST_P(UpdateGateTest, SkipsWhatOverflowsWhereTheScaleIsDynamic) {
  for (const double bad : {kInf, kNaN}) {
    EXPECT_FALSE(Pass({1, bad}, std::nullopt, 8).update.skip);
    const Passed passed = Pass({1, bad}, std::nullopt, 1, LossScaleState{8, 2, 5});
    EXPECT_TRUE(passed.update.skip);
    EXPECT_EQ(passed.report.bad_bucket, 1);
    for (const LossScaleState& state : {passed.state, passed.report.loss_scale}) {
      EXPECT_EQ(state.scale, 4);
      EXPECT_EQ(state.good_steps, 0);
      EXPECT_EQ(state.skipped, 6);
    }
  }
}

TEST_P(UpdateGateTest, GrowsAfterGoodStepsInARow) {
  const auto good = [&](const LossScaleState& state) {
    const Passed passed = Pass({1}, std::nullopt, 1, state);
    EXPECT_FALSE(passed.update.skip);
    EXPECT_EQ(passed.state.skipped, state.skipped);
    return std::pair(passed.state.scale, passed.state.good_steps);
  };
  EXPECT_EQ(good({8, 0, 5}), std::pair(8.0, int64_t{1}));
  EXPECT_EQ(good({8, 1, 5}), std::pair(8.0, int64_t{2}));
  EXPECT_EQ(good({8, 2, 5}), std::pair(16.0, int64_t{0}));
  EXPECT_EQ(good({8, 7, 5}), std::pair(16.0, int64_t{0}));  // the interval was longer
  EXPECT_EQ(good({kMostLossScale, 2}), std::pair(kMostLossScale, int64_t{0}));
}

TEST_P(UpdateGateTest, CountsUpdatesThatWereMade) {
  EXPECT_EQ(Pass({1}, std::nullopt).update.correction[0][0], 7);  // the host's
  const Passed first = Pass({1}, std::nullopt, 1, LossScaleState{8, 0, 3}, /*step=*/3);
  EXPECT_EQ(first.update.correction[0][0], 0.5);
  EXPECT_EQ(first.update.correction[0][1], 0.75);
  EXPECT_TRUE(first.update.first[0]);
  const Passed second = Pass({1}, std::nullopt, 1, LossScaleState{8, 0, 3}, /*step=*/4);
  EXPECT_EQ(second.update.correction[0][0], 0.75);
  EXPECT_EQ(second.update.correction[0][1], 1 - 1.0 / 16);
  EXPECT_FALSE(second.update.first[0]);
}

// The second group began after 2 updates, and one more that was skipped.
TEST_P(UpdateGateTest, CountsUpdatesOfAGroup) {
  const UpdateGroups groups = {.count = 2, .first_update = {0, 2}};
  const auto pass = [&](double sum, int64_t skipped, uint64_t step) {
    return Pass({sum}, std::nullopt, 1, LossScaleState{8, 0, skipped}, step, groups).update;
  };
  EXPECT_TRUE(pass(kNaN, 1, /*step=*/3).skip);  // its first
  for (uint64_t step = 4; step < 7; ++step) {
    const UpdateScalars update = pass(1, 2, step);
    const auto number = static_cast<double>(step) - 2;  // of all
    EXPECT_EQ(update.correction[0][0], 1 - std::pow(0.5, number + 1));
    EXPECT_EQ(update.correction[1][0], 1 - std::pow(0.5, number - 1));
    EXPECT_EQ(update.correction[1][1], 1 - std::pow(0.25, number - 1));
    EXPECT_FALSE(update.first[0]);
    EXPECT_EQ(update.first[1], step == 4);
  }
}

}  // namespace
}  // namespace gyre
