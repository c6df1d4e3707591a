// Buckets summed over ranks as threads, on devices with one memory and with two, with buckets
// shorter and longer than a segment, step after step.
#include "engine/training/step/gradient_sync.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <thread>

#include "engine/runtime/device/buffer.h"
#include "tests/distributed/process_group_ranks.h"
#include "tests/sanitized.h"

namespace gyre {
namespace {

// Around a staged segment's 2^20 floats, and tiny ones.
const std::vector<int64_t> kElements =
    kSanitized ? std::vector<int64_t>{1, 0, 1000, (1 << 20) + 77}
               : std::vector<int64_t>{1, 0, 1000, (1 << 20) - 1, 1 << 20, (2 << 20) + 77};

// A rank's gradients, which repeat: elements are copied and compared by whole arrays, of millions.
// Integers: sums over ranks, and of squares, are exact.
constexpr int64_t kPeriod = 11;
using Period = std::array<float, kPeriod>;

Period ValuesOf(int step, int rank, size_t bucket) {
  Period values;
  for (int64_t i = 0; i < kPeriod; ++i) {
    values[i] = static_cast<float>(
        (i * 7 + static_cast<int64_t>(bucket) * 3 + rank * 5 + step) % kPeriod - 5);
  }
  return values;
}

void Repeat(const Period& values, float* to, int64_t n) {
  for (int64_t i = 0; i < n; i += kPeriod) {
    std::memcpy(to + i, values.data(), std::min(kPeriod, n - i) * sizeof(float));
  }
}

struct Setting {
  DeviceKind device;
  int ranks;
  int poisoned_step = -1;  // a NaN at the end of the last bucket of the last rank
  bool on_device = false;  // sums in device memory
  const char* allreduce = "ring";
  bool leaves = false;  // buckets have one place for all that is sent, and one for all that comes
};

void RunRank(const Setting& setting, Device& device, ProcessGroup& communication) {
  const int rank = communication.rank();
  if (setting.on_device) {
    EXPECT_TRUE(communication.UseDevice(device).ok());
  }
  const std::unique_ptr<Stream> stream = std::move(device.NewStream()).value();
  std::vector<Buffer> memory;
  const auto allocate = [&](int64_t elements) {
    memory.push_back(*Buffer::Allocate(device, MemoryKind::kDevice,
                                       static_cast<size_t>(elements) * sizeof(float)));
    return memory.back().data();
  };
  std::vector<Tensor> buckets, summed;
  std::vector<GradientSync::SyncedBucket> synced;
  const int64_t longest = *std::ranges::max_element(kElements);
  std::byte* const sent = setting.leaves ? allocate(longest) : nullptr;
  std::byte* const came = setting.leaves ? allocate(longest) : nullptr;
  for (const int64_t elements : kElements) {
    buckets.push_back({setting.leaves ? sent : allocate(elements), Shape({elements}), DType::kF32});
    summed.push_back({came, Shape({elements}), DType::kF32});
    synced.push_back({.gradients = buckets.back(), .summed = summed.back()});
  }
  const Buffer sums =
      *Buffer::Allocate(device, MemoryKind::kDevice, kElements.size() * sizeof(double));
  const Shape bucket_count({static_cast<int64_t>(kElements.size())});
  const auto sync = *GradientSync::Create(device, *stream, communication, synced,
                                          {sums.data(), bucket_count, DType::kF64},
                                          GradientSync::Halves::kNone, /*take_in=*/nullptr);
  for (int step = 0; step < 3; ++step) {
    const bool poison = step == setting.poisoned_step && rank == setting.ranks - 1;
    for (size_t b = 0; b < buckets.size(); ++b) {
      EXPECT_TRUE(stream
                      ->Call([=, to = buckets[b].as<float>()] {
                        Repeat(ValuesOf(step, rank, b), to, kElements[b]);
                        if (poison && b + 1 == kElements.size())
                          to[kElements[b] - 1] = std::nanf("");
                        return absl::OkStatus();
                      })
                      .ok());
      EXPECT_TRUE(sync->Begin(static_cast<int>(b)).ok());
    }
    // In the order of their start, and as the next forward needs them.
    for (size_t i = 0; i < buckets.size(); ++i) {
      const auto b = static_cast<int>(step % 2 == 0 ? i : buckets.size() - 1 - i);
      EXPECT_TRUE(sync->under_way(b));
      if (step == 0) {
        while (!*sync->Arrived(b)) std::this_thread::yield();
      }
      const absl::StatusOr<double> squares = sync->TakeResult(b);
      ASSERT_TRUE(squares.ok()) << squares.status();
      EXPECT_FALSE(sync->under_way(b));
    }
    EXPECT_TRUE(sync->UploadNorms().ok());
    for (size_t b = 0; b < buckets.size(); ++b) {
      std::vector<float> got(static_cast<size_t>(kElements[b]));
      double sum_of_squares = 0, expected_squares = 0;
      EXPECT_TRUE(sync->Bring(static_cast<int>(b), summed[b]).ok());
      const Tensor& at = setting.leaves ? summed[b] : buckets[b];
      EXPECT_TRUE(stream->Copy(got.data(), at.data, at.bytes()).ok());
      EXPECT_TRUE(stream
                      ->Copy(&sum_of_squares, reinterpret_cast<const double*>(sums.data()) + b,
                             sizeof(double))
                      .ok());
      EXPECT_TRUE(stream->Synchronize().ok());
      const bool poisoned = step == setting.poisoned_step && b + 1 == kElements.size();
      Period sums = {};
      for (int r = 0; r < setting.ranks; ++r) {
        std::ranges::transform(sums, ValuesOf(step, r, b), sums.begin(), std::plus());
      }
      std::vector<float> expected(got.size());
      Repeat(sums, expected.data(), kElements[b]);
      const auto count = static_cast<size_t>(kElements[b]);
      EXPECT_EQ(std::memcmp(got.data(), expected.data(), (count - poisoned) * sizeof(float)), 0)
          << "bucket " << b << " step " << step;
      for (size_t i = 0; i < kPeriod; ++i) {
        const auto times = static_cast<double>((count + kPeriod - 1 - i) / kPeriod);
        expected_squares += times * sums[i] * sums[i];
      }
      if (poisoned) {
        EXPECT_FALSE(std::isfinite(sum_of_squares));
      } else {
        EXPECT_EQ(sum_of_squares, expected_squares) << "bucket " << b << " step " << step;
      }
    }
  }
}

void RunRanks(const Setting& setting) {
  std::vector<std::unique_ptr<Device>> devices(setting.ranks);  // which groups may use
  RunRanksOn(setting.allreduce, setting.ranks, 20'000, [&](ProcessGroup& communication) {
    const int r = communication.rank();
    devices[r] = setting.device == DeviceKind::kCpu
                     ? NewCpuDevice({})
                     : NewSimDevice({.delay_seed = 7 + static_cast<uint64_t>(r)});
    RunRank(setting, *devices[r], communication);
  });
}

TEST(GradientSync, RanksSumInPlace) { RunRanks({DeviceKind::kCpu, 2, 2, /*on_device=*/true}); }

TEST(GradientSync, RanksSumInDeviceMemory) {
  RunRanks({DeviceKind::kSim, 2, -1, /*on_device=*/true});
  RunRanks({DeviceKind::kSim, 3, 1, /*on_device=*/true});
}

TEST(GradientSync, RanksSumThroughPinnedSegments) {
  RunRanks({DeviceKind::kSim, 2});
  RunRanks({DeviceKind::kSim, 3, 1});
}

// Each bucket's place is the next one's as soon as it has been sent.
TEST(GradientSync, BucketsLeaveTheDeviceUntilTheirUpdate) {
  RunRanks({DeviceKind::kSim, 2, -1, /*on_device=*/false, "ring", /*leaves=*/true});
  RunRanks({DeviceKind::kSim, 3, 1, /*on_device=*/false, "shared", /*leaves=*/true});
}

TEST(GradientSync, RanksSumInSegmentsThatTheyShare) {
  RunRanks({DeviceKind::kSim, 2, -1, /*on_device=*/false, "shared"});
  RunRanks({DeviceKind::kSim, 3, 1, /*on_device=*/false, "shared"});
}

}  // namespace
}  // namespace gyre
