// matrix_factorisation.cc: a program without layers that shares a table by a parameter server.
//
//   mpirun -np 4 bazel-bin/distributed/examples/matrix_factorisation [bsp | ssp | async]
//
// Ratings of items by users, as products of a user's and an item's factors (Koren, Bell and
// Volinsky 2009), by gradient descent.  Each rank has users of its own; the items' factors are the
// table, of which a rank reads and updates the rows that its users have rated.

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "distributed/parameter_server/parameter_server.h"
#include "distributed/transport/communicator.h"
#include "engine/runtime/device/device.h"

namespace {

// More factors than the truth has: with as many, descent may end beside it.
constexpr int kItems = 60, kTrueFactors = 2, kFactors = 4, kUsers = 30, kRatingsOfAUser = 12;
constexpr int kIterations = 800, kStaleness = 2;
constexpr float kRate = 0.02f;

void Check(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "error: %s\n", std::string(status.message()).c_str());
  std::_Exit(1);  // mpirun ends the others
}

template <typename T>
T Get(absl::StatusOr<T> value) {
  Check(value.status());
  return *std::move(value);
}

struct Rating {
  int user = 0, item = 0;  // of this rank's users; of the items that it reads
  float value = 0;
};

float Product(const float* a, const float* b, int factors) {
  float sum = 0;
  for (int f = 0; f < factors; ++f) sum += a[f] * b[f];
  return sum;
}

// One gradient step: changes the users, leaves the items' gradients.  Returns the mean square
// error.
double Step(const std::vector<Rating>& ratings, const float* items, std::vector<float>& users,
            float* gradients, int64_t read_items) {
  std::fill_n(gradients, read_items * kFactors, 0.0f);
  const std::vector<float> before = users;
  double squares = 0;
  for (const auto& [user, item, value] : ratings) {
    const float* const u = &before[user * kFactors];
    const float* const v = items + item * kFactors;
    const float error = Product(u, v, kFactors) - value;
    squares += error * error;
    for (int f = 0; f < kFactors; ++f) {
      users[user * kFactors + f] -= kRate * error * v[f];
      gradients[item * kFactors + f] += error * u[f];
    }
  }
  return squares / static_cast<double>(ratings.size());
}

// Whether this rank's users are explained.
bool Train(gyre::ProcessGroup& group, gyre::Sync sync) {
  // The truth, the same on all ranks, and this rank's ratings.
  std::mt19937 random(1);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<float> truth(kItems * kTrueFactors);
  for (float& factor : truth) factor = uniform(random);
  std::vector<float> first_items(kItems * kFactors);
  for (float& factor : first_items) factor = uniform(random);
  random.seed(static_cast<unsigned>(group.rank()) + 2);
  std::vector<Rating> ratings;
  std::map<int, int> read;  // by item: its place among those read
  for (int user = 0; user < kUsers; ++user) {
    float factors[kTrueFactors];
    for (float& factor : factors) factor = uniform(random);
    for (int i = 0; i < kRatingsOfAUser; ++i) {
      const int item = static_cast<int>(random() % kItems);
      const int place = read.try_emplace(item, static_cast<int>(read.size())).first->second;
      ratings.push_back({user, place, Product(factors, &truth[item * kTrueFactors], kTrueFactors)});
    }
  }
  std::vector<int64_t> rows(read.size());
  for (const auto& [item, place] : read) rows[place] = item;
  const auto count = static_cast<int64_t>(rows.size());

  const std::unique_ptr<gyre::Device> device = gyre::NewCpuDevice({});
  const std::unique_ptr<gyre::Stream> stream = Get(device->NewStream());
  std::vector<float> items(count * kFactors), gradients(count * kFactors);
  const auto tensor = [&](std::vector<float>& memory) {
    return gyre::Tensor{memory.data(), gyre::Shape({count, kFactors}), gyre::DType::kF32};
  };
  const auto server = Get(gyre::ParameterServer::Create(
      group, *device, *stream,
      {.sync = sync, .staleness = sync == gyre::Sync::kSsp ? kStaleness : 0}));
  const std::unique_ptr<gyre::TableUpdate> descent = gyre::NewAddition(-kRate);
  const int table = Get(server->AddTable({"items", kItems, kFactors}, *descent));
  const gyre::RowList rated = gyre::RowList::Of(rows);
  const int reading = Get(server->AddRead(table, rated, tensor(items)));
  const int update = Get(server->AddUpdate(table, rated, tensor(gradients)));
  Check(server->Prepare());
  const gyre::OwnedRows& owned = server->owned(table);
  Check(
      stream->Copy(owned.values.data, &first_items[owned.first * kFactors], owned.values.bytes()));
  Check(server->Start());

  std::vector<float> users(kUsers * kFactors);
  for (float& factor : users) factor = uniform(random);
  double error = 0;
  for (int iteration = 1; iteration <= kIterations; ++iteration) {
    Check(server->Read(reading));
    Check(server->PreUpdate(update));
    Check(stream->Call([&] {
      error = Step(ratings, items.data(), users, gradients.data(), count);
      return absl::OkStatus();
    }));
    Check(server->PostRead(reading));
    Check(server->Update(update));
    Check(server->Clock());
    if (group.rank() == 0 && iteration % 200 == 0) {
      std::printf("iteration %d  rank 0's mean square error %.2e\n", iteration, error);
    }
  }
  Check(server->Stop());
  return error < 1e-2;
}

std::optional<gyre::Sync> Parse(const std::string& name) {
  if (name == "bsp") return gyre::Sync::kBsp;
  if (name == "ssp") return gyre::Sync::kSsp;
  if (name == "async") return gyre::Sync::kAsync;
  return std::nullopt;
}

}  // namespace

int main(int argc, char** argv) {
  const auto group = Get(gyre::ProcessGroup::Start(
      [] { return gyre::NewMpiCommunicator(/*timeout_ms=*/60'000); }, {"auto"}));
  const std::optional<gyre::Sync> sync = Parse(argc > 1 ? argv[1] : "bsp");
  if (!sync || argc > 2) {
    if (group->rank() == 0) {
      std::fprintf(stderr, "error: expected bsp, ssp or async, got %s\n", argv[argc - 1]);
    }
    Check(group->Stop());
    return 2;
  }
  double explained = Train(*group, *sync) ? 1 : 0;
  Check(group->Sum("ranks that have come to an end",
                   {&explained, gyre::Shape({1}), gyre::DType::kF64}));
  const bool all = explained == group->size();
  if (group->rank() == 0) std::printf(all ? "the ratings are explained\n" : "not explained\n");
  Check(group->Stop());
  return all ? 0 : 1;
}
