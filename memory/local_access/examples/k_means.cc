// k_means.cc: a program with four times the data that its device holds, by LocalData and a device
// and nothing else of Gyre.
//
//   bazel-bin/memory/local_access/examples/k_means
//
// Lloyd's iteration over points that lie in blocks: of each block only the step that assigns its
// points to centres needs the points, meanwhile the next ones come.  The device is `sim`, where
// work is host code; on a GPU it is kernels.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "memory/local_access/local_access.h"

namespace {

constexpr int kBlocks = 32, kPoints = 1 << 12, kFeatures = 8, kCentres = 8;
constexpr int kIterations = 10;
constexpr size_t kBlockBytes = size_t{kPoints} * kFeatures * sizeof(float);
constexpr size_t kCentreFloats = kCentres * kFeatures;
constexpr size_t kSumFloats = kCentreFloats + kCentres;  // of points, and their numbers

void Check(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "error: %s\n", status.ToString().c_str());
  std::exit(1);
}

template <typename T>
T Get(absl::StatusOr<T> value) {
  Check(value.status());
  return *std::move(value);
}

float* Floats(std::byte* at) { return reinterpret_cast<float*>(at); }

// To each point its centre's index; to the sums the block's points.
void Assign(const float* points, const float* centres, int* nearest, float* sums) {
  for (int p = 0; p < kPoints; ++p) {
    float least = INFINITY;
    for (int c = 0; c < kCentres; ++c) {
      float distance = 0;
      for (int f = 0; f < kFeatures; ++f) {
        const float d = points[p * kFeatures + f] - centres[c * kFeatures + f];
        distance += d * d;
      }
      if (distance < least) nearest[p] = c;
      least = std::min(least, distance);
    }
    for (int f = 0; f < kFeatures; ++f) {
      sums[nearest[p] * kFeatures + f] += points[p * kFeatures + f];
    }
    sums[kCentreFloats + nearest[p]] += 1;
  }
}

void MoveCentres(const float* sums, float* centres) {
  for (size_t i = 0; i < kCentreFloats; ++i) {
    const float count = sums[kCentreFloats + i / kFeatures];
    if (count > 0) centres[i] = sums[i] / count;
  }
}

// Points about corners of a cube, of which the first ones are where the centres begin.
void MakePoints(std::vector<std::vector<float>>& points, std::vector<int>& corners) {
  std::mt19937 random(1);
  for (std::vector<float>& block : points) {
    for (int p = 0; p < kPoints; ++p) {
      const int corner = p < kCentres ? p : static_cast<int>(random() % kCentres);
      corners.push_back(corner);
      for (int f = 0; f < kFeatures; ++f) {
        const float noise = static_cast<float>(random() % 1000) / 1000.0f;
        block.push_back(static_cast<float>(corner >> (f % 3) & 1) * 2 + noise);
      }
    }
  }
}

}  // namespace

int main() {
  using gyre::kFetch, gyre::kNoFetch, gyre::kKeep, gyre::kNoKeep, gyre::LocalData;
  const size_t capacity = kBlocks * kBlockBytes / 4;
  const auto device = gyre::NewSimDevice({.capacity_bytes = capacity});
  const auto stream = Get(device->NewStream());
  const auto data = LocalData::Create(*device, *stream, {.capacity_bytes = capacity});
  const auto centres = Get(data->Declare("centres", kCentreFloats * sizeof(float)));
  const auto sums =
      Get(data->Declare("sums", kSumFloats * sizeof(float), LocalData::Lifetime::kIteration));
  std::vector<LocalData::Array> points, nearest;  // by block
  for (int b = 0; b < kBlocks; ++b) {
    points.push_back(Get(data->Declare("points " + std::to_string(b), kBlockBytes)));
    nearest.push_back(Get(data->Declare("nearest " + std::to_string(b), kPoints * sizeof(int))));
  }

  const auto step = [&](const std::string& name,
                        const std::vector<LocalData::ArrayAccess>& accesses, auto work) {
    const std::vector<std::byte*> at = Get(data->LocalAccess(name, accesses));
    if (!data->recording()) {
      Check(stream->Call([work, at] {
        work(at);
        return absl::OkStatus();
      }));
    }
    Check(data->PostLocalAccess());
  };
  // Says the accesses of each step; the first time around nothing else.
  const auto iterate = [&] {
    step("clear", {{sums, kNoFetch, kKeep}},
         [](const auto& at) { std::fill_n(Floats(at[0]), kSumFloats, 0.0f); });
    for (int b = 0; b < kBlocks; ++b) {
      step("assign " + std::to_string(b),
           {{points[b], kFetch, kNoKeep},
            {centres, kFetch, kNoKeep},
            {nearest[b], kNoFetch, kKeep},
            {sums, kFetch, kKeep}},
           [](const auto& at) {
             Assign(Floats(at[0]), Floats(at[1]), reinterpret_cast<int*>(at[2]), Floats(at[3]));
           });
    }
    step("move", {{sums, kFetch, kNoKeep}, {centres, kFetch, kKeep}},
         [](const auto& at) { MoveCentres(Floats(at[0]), Floats(at[1])); });
    Check(data->FinishIteration());
  };

  iterate();  // recorded
  std::vector<std::vector<float>> coordinates(kBlocks);
  std::vector<int> corners;  // by point
  MakePoints(coordinates, corners);
  for (int b = 0; b < kBlocks; ++b) Check(data->Write(points[b], coordinates[b].data()));
  Check(data->Write(centres, coordinates[0].data()));
  for (int i = 0; i < kIterations; ++i) iterate();

  std::vector<int> found(kPoints);
  int64_t wrong = 0;
  for (int b = 0; b < kBlocks; ++b) {
    Check(data->Read(nearest[b], found.data()));
    for (int p = 0; p < kPoints; ++p) wrong += found[p] != corners[b * kPoints + p];
  }
  std::printf("data %zu bytes, device %zu bytes; an iteration copies %zu bytes in, %zu out\n",
              kBlocks * kBlockBytes, capacity, data->plan().fetched_bytes,
              data->plan().written_bytes);
  std::printf("points that are not with their own: %lld of %zu\n", static_cast<long long>(wrong),
              corners.size());
  return wrong == 0 ? 0 : 1;
}
