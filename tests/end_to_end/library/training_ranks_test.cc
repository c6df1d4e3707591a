// A program's ranks train together over its own communicator: with equal weights, and as one rank
// trains on all samples, within the rounding of sums.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <mpi.h>

#include <cmath>
#include <string>
#include <vector>

#include "gyre/gyre.h"
#include "tests/data/temp_folder.h"

namespace gyre {
namespace {

constexpr char kNet[] = R"(
    name: "line"
    input { name: "x" dims: 4 }
    input { name: "y" dims: 1 }
    layer { name: "fc1" input: "x" dense { outputs: 6 } }
    layer { name: "tanh" tanh {} }
    layer { name: "out" dense { outputs: 1 } }
    layer { name: "loss" input: ["out", "y"] mean_squared_error {} })";
constexpr char kTrainer[] =
    "batch: 12 test_batch: 6 steps: 20 optimizer { sgd { momentum: 0.9 } } learning_rate { base: "
    "0.05 }";
constexpr int kBatch = 12;

struct World {
  MPI_Comm comm = MPI_COMM_NULL;
  int rank = 0, size = 1;
};

const World& Ranks() {
  static const World world = [] {
    int provided = 0;
    MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided);
    EXPECT_EQ(provided, MPI_THREAD_MULTIPLE);
    std::atexit([] { MPI_Finalize(); });
    World w;
    MPI_Comm_dup(MPI_COMM_WORLD, &w.comm);
    MPI_Comm_rank(w.comm, &w.rank);
    MPI_Comm_size(w.comm, &w.size);
    return w;
  }();
  return world;
}

float X(int step, int sample, int k) {
  return static_cast<float>(std::sin(12.9898 * (step * kBatch + sample) + 78.233 * k));
}

// Steps with `count` samples of each batch, from `first` on.
std::vector<double> Train(TrainingRun& run, std::vector<double>& losses, int first, int count,
                          int from, int to) {
  std::vector<float> x(static_cast<size_t>(count) * 4), y(static_cast<size_t>(count));
  for (int step = from; step < to; ++step) {
    for (int i = 0; i < count; ++i) {
      float sum = 0;
      for (int k = 0; k < 4; ++k) sum += x[static_cast<size_t>(4 * i + k)] = X(step, first + i, k);
      y[static_cast<size_t>(i)] = sum;
    }
    const Status stepped = run.Step({{"x", x}, {"y", y}});
    EXPECT_TRUE(stepped.ok()) << stepped.message();
  }
  return losses;
}

TrainingRunOptions Options(const World* world, std::vector<double>& losses) {
  TrainingRunOptions options;
  options.trainer_text = kTrainer;
  options.net_text = kNet;
  options.threads = 1;
  options.mpi_comm = world == nullptr ? nullptr : &world->comm;
  options.on_metrics = [&losses](const StepMetrics& metrics) {
    losses.push_back(metrics.values.front().second);
  };
  return options;
}

TEST(TrainingRanks, TrainAsOne) {
  const World& world = Ranks();
  std::vector<double> alone, together;
  TrainingRun one, all;
  ASSERT_TRUE(one.Open(Options(nullptr, alone)).ok());
  Train(one, alone, 0, kBatch, 0, 20);
  const Status opened = all.Open(Options(&world, together));
  ASSERT_TRUE(opened.ok()) << opened.message();
  const int own = kBatch / world.size;
  EXPECT_EQ(all.batch(), own);
  Train(all, together, world.rank * own, own, 0, 20);
  ASSERT_EQ(together.size(), alone.size());
  for (size_t i = 0; i < alone.size(); ++i) EXPECT_NEAR(together[i], alone[i], 1e-5 * alone[0]);

  const int tested = 6 / world.size;
  std::vector<float> x, y(static_cast<size_t>(tested) * 2);
  for (int batch = 0; batch < 2; ++batch) {
    for (int i = 0; i < tested; ++i) {
      for (int k = 0; k < 4; ++k) x.push_back(X(100 + batch, world.rank * tested + i, k));
    }
  }
  std::vector<float> all_x, all_y(12);
  for (int batch = 0; batch < 2; ++batch) {
    for (int i = 0; i < 6; ++i) {
      for (int k = 0; k < 4; ++k) all_x.push_back(X(100 + batch, i, k));
    }
  }
  ASSERT_TRUE(all.Test(2 * tested, {{"x", x}, {"y", y}}).ok());
  ASSERT_TRUE(one.Test(12, {{"x", all_x}, {"y", all_y}}).ok());
  EXPECT_NEAR(together.back(), alone.back(), 1e-5 * alone.back());

  // Rank 0 writes, and all go back to it.
  all.Close();
  const TempFolder folder;
  std::string out = folder / "out";
  out.resize(500);
  MPI_Bcast(out.data(), 500, MPI_CHAR, 0, world.comm);
  TrainingRunOptions options = Options(&world, together);
  options.out = out.c_str();
  TrainingRun saving;
  ASSERT_TRUE(saving.Open(options).ok());
  Train(saving, together, world.rank * own, own, 0, 5);
  const Status saved = saving.Save();
  ASSERT_TRUE(saved.ok()) << saved.message();
  together.clear();
  const std::vector<double> straight = Train(saving, together, world.rank * own, own, 5, 9);
  const Status loaded = saving.Load();
  ASSERT_TRUE(loaded.ok()) << loaded.message();
  EXPECT_EQ(saving.steps(), 5);
  together.clear();
  EXPECT_EQ(Train(saving, together, world.rank * own, own, 5, 9), straight);
  // What rank 0 alone cannot do is an error of all.
  const Status exported = saving.Export(folder / "no/such/folder.gyre");
  EXPECT_FALSE(exported.ok());
  if (world.rank != 0) {
    EXPECT_EQ(exported.message(), "another rank failed, and says why");
  }
  EXPECT_TRUE(saving.Export(out.c_str() + std::string("/x.gyre")).ok());
  saving.Close();
  MPI_Barrier(world.comm);
}

// What is wrong on one rank is an error of all, and nothing hangs.
TEST(TrainingRanks, ShareErrors) {
  const World& world = Ranks();
  std::vector<double> losses;
  TrainingRun run;
  ASSERT_TRUE(run.Open(Options(&world, losses)).ok());
  const auto own = static_cast<size_t>(run.batch());
  std::vector<float> x(own * 4), y(own);
  if (world.rank == world.size - 1) y.resize(own + 1);
  const Status stepped = run.Step({{"x", x}, {"y", y}});
  EXPECT_FALSE(stepped.ok());
  EXPECT_THAT(stepped.message(), testing::HasSubstr("\"y\": expected "));
  run.Close();
  MPI_Barrier(world.comm);
}

}  // namespace
}  // namespace gyre
