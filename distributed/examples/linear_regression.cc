// linear_regression.cc: an MPI program that needs four calls of Gyre and nothing else of it.
//
//   mpirun -np 4 bazel-bin/distributed/examples/linear_regression
//
// Least squares by gradient descent with momentum.  Each rank has rows of its own; each updates,
// and keeps the momentum of, its part of the weights alone.

#include <mpi.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "distributed/gyre_collectives.h"

namespace {

constexpr int64_t kRows = 100, kFeatures = 31;
constexpr int kSteps = 200;
constexpr float kRate = 0.6f, kMomentum = 0.5f;

float TrueWeight(int64_t feature) { return std::sin(static_cast<float>(feature)); }

void Check(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "error: %s\n", std::string(status.message()).c_str());
  MPI_Abort(MPI_COMM_WORLD, 1);
}

// Whether all ranks found the weights.
bool Train(gyre::Collectives& collectives) {
  const int rank = collectives.rank();
  std::mt19937 random(static_cast<unsigned>(rank));
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<float> rows(kRows * kFeatures), targets(kRows);
  for (int64_t i = 0; i < kRows; ++i) {
    for (int64_t j = 0; j < kFeatures; ++j) {
      rows[i * kFeatures + j] = uniform(random);
      targets[i] += rows[i * kFeatures + j] * TrueWeight(j);
    }
  }

  // All begin where rank 0 does.
  std::vector<float> weights(kFeatures), gradient(kFeatures), momentum(kFeatures);
  for (float& weight : weights) weight = uniform(random);
  Check(collectives.Broadcast(weights.data(), kFeatures, gyre::DType::kF32, 0).Wait());

  const gyre::ElementRange mine = collectives.Part(kFeatures, rank);
  const float scale = 1.0f / static_cast<float>(kRows * collectives.size());
  for (int step = 1; step <= kSteps; ++step) {
    std::vector<float> errors(kRows);
    double loss = 0;
    for (int64_t i = 0; i < kRows; ++i) {
      errors[i] = -targets[i];
      for (int64_t j = 0; j < kFeatures; ++j) errors[i] += rows[i * kFeatures + j] * weights[j];
      loss += scale * errors[i] * errors[i];
    }
    // Is summed while the gradient is computed.
    auto losses = collectives.Allreduce(&loss, 1, gyre::DType::kF64);
    std::ranges::fill(gradient, 0.0f);
    for (int64_t i = 0; i < kRows; ++i) {
      for (int64_t j = 0; j < kFeatures; ++j) {
        gradient[j] += scale * errors[i] * rows[i * kFeatures + j];
      }
    }
    Check(collectives.ReduceScatter(gradient.data(), kFeatures, gyre::DType::kF32).Wait());
    for (int64_t j = mine.begin; j < mine.end; ++j) {
      momentum[j] = kMomentum * momentum[j] + gradient[j];
      weights[j] -= kRate * momentum[j];
    }
    Check(collectives.Allgather(weights.data(), kFeatures, gyre::DType::kF32).Wait());
    Check(losses.Wait());
    if (rank == 0 && step % 50 == 0) std::printf("step %d  loss %.3e\n", step, loss);
  }
  for (int64_t j = 0; j < kFeatures; ++j) {
    if (!(std::abs(weights[j] - TrueWeight(j)) < 1e-3f)) return false;
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  int provided = MPI_THREAD_SINGLE;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  if (argc > 1) {
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0) std::fprintf(stderr, "error: expected no arguments, got %s\n", argv[1]);
    MPI_Finalize();
    return 2;
  }
  bool found = false;
  {
    auto collectives = gyre::Collectives::Start(MPI_COMM_WORLD);
    Check(collectives.status());
    found = Train(**collectives);
  }
  MPI_Finalize();
  return found ? 0 : 1;
}
