// N ranks train the parameters that one rank trains, within the rounding of sums: where statistics
// are summed within the net, labels are ignored, parameters are shared or rows of a table, and
// gradients are added over batches.

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "engine/data/tensor_file.h"
#include "engine/training/trainer.h"
#include "tests/data/temp_folder.h"

namespace gyre {
namespace {

// Sums of some hundred terms in another order, over 50 steps.
constexpr double kBound = 1e-10;

constexpr char kInputs[] = R"(
  name: "t"
  input { name: "image" dims: [5, 4, 2] }
  input { name: "tokens" dims: [5] type: LABEL }
  input { name: "label" type: LABEL })";

constexpr char kNormNet[] = R"(
  layer { name: "conv" conv2d { filters: 6 kernel: 3 use_bias: false } }
  layer { name: "norm1" batch_norm { synchronised: true } }
  layer { name: "relu" relu {} }
  layer { name: "flat" flatten {} }
  layer { name: "fc" dense { outputs: 7 use_bias: false } }
  layer { name: "norm2" batch_norm { synchronised: true momentum: 0.5 } }
  layer { name: "tanh" tanh {} }
  layer { name: "out" dense { outputs: 4 } }
  layer { name: "loss" input: ["out", "label"] softmax_cross_entropy { ignore_label: 3 } })";

// Each token from those before it, by scores of the table's own rows.
constexpr char kTiedNet[] = R"(
  layer { name: "in" input: "tokens" slice { axis: 1 end: -1 } }
  layer { name: "next" input: "tokens" slice { axis: 1 begin: 1 } }
  layer { name: "rows" input: "in" embedding { vocabulary: 9 width: 6 weight { name: "table" } } }
  layer { name: "places" positional_embedding { length: 4 } }
  layer { name: "look" input: ["places", "places", "places"] attention { heads: 2 causal: true } }
  layer { name: "sum" input: ["look", "places"] add {} }
  layer { name: "norm" layer_norm {} }
  layer { name: "out" dense { outputs: 9 weight { name: "table" } } }
  layer { name: "loss" input: ["out", "next"] softmax_cross_entropy { ignore_label: 3 } })";

// Images, tokens and labels by chance.
class Samples : public Dataset {
 public:
  Samples() {
    std::mt19937 random(5);
    for (double& v : images_) v = std::normal_distribution<double>()(random);
    for (int32_t& v : tokens_) v = static_cast<int32_t>(random() % 9);
    for (int32_t& v : labels_) v = static_cast<int32_t>(random() % 4);
  }
  int64_t size() const override { return kSize; }
  const std::vector<DataArray>& arrays() const override { return arrays_; }
  absl::StatusOr<Tensor> Read(int64_t index, size_t array) const override {
    if (array == 0) return Tensor{&images_[index * 40], arrays_[0].shape, DType::kF64};
    if (array == 1) return Tensor{&tokens_[index * 5], arrays_[1].shape, DType::kI32};
    return Tensor{&labels_[index], arrays_[2].shape, DType::kI32};
  }

 private:
  static constexpr int64_t kSize = 23;
  const std::vector<DataArray> arrays_ = {
      {.input = "image", .file = "i", .shape = {5, 4, 2}, .dtype = DType::kF64},
      {.input = "tokens", .file = "t", .shape = {5}, .dtype = DType::kI32},
      {.input = "label", .file = "l", .shape = {}, .dtype = DType::kI32}};
  mutable double images_[kSize * 40];
  mutable int32_t tokens_[kSize * 5], labels_[kSize];
};

using Weights = std::map<std::string, std::vector<double>>;

// Trains on ranks as threads.  The weights after half of the steps and after all.
std::pair<Weights, Weights> Train(const std::string& layers, int ranks,
                                  const std::vector<std::string>& overrides = {}) {
  const TempFolder folder;
  const auto trainer = ParseTrainerText(R"(
      net: "net" batch: 7 steps: 50 checkpoint_every: 25 precision: F64
      optimizer { sgd { momentum: 0.875 } weight_decay: 0.001 } learning_rate { base: 0.05 }
      data { train { idx { images: "i" labels: "l" } } })",
                                        "trainer", overrides);
  const auto net = ParseNetText(absl::StrCat(kInputs, layers), "net");
  EXPECT_TRUE(trainer.ok() && net.ok()) << trainer.status() << net.status();
  auto communicators = NewThreadCommunicators(ranks, 20'000);
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      const auto communication = *ProcessGroup::Start(
          [&]() -> absl::StatusOr<std::unique_ptr<Communicator>> {
            return std::move(communicators[static_cast<size_t>(r)]);
          },
          "ring");
      const auto device = NewCpuDevice({.threads = 1});
      const Primitives primitives(device->kind(), 1);
      RunData data{std::make_unique<Samples>(), nullptr, {}};
      data.feed = *FeedOf(*net, *trainer, data.train.get(), nullptr);
      TrainingOptions options;
      options.out = folder / "out";
      auto run = Trainer::Prepare(*trainer, *net, std::move(data), *device, primitives,
                                  *communication, options);
      ASSERT_TRUE(run.ok()) << run.status();
      const auto digest = (*run)->Run();
      EXPECT_TRUE(digest.ok()) << digest.status();
    });
  }
  for (std::thread& thread : threads) thread.join();
  const auto read = [&](const char* step) {
    Weights weights;
    const auto file = *TensorFile::Read(
        absl::StrCat(folder / "out/checkpoints/step_000000", step, "/weights.safetensors"));
    for (const auto& [name, tensor] : file.tensors()) {
      const double* const values = tensor.as<double>();
      weights[name].assign(values, values + tensor.elements());
    }
    return weights;
  };
  return {read("25"), read("50")};
}

// The largest difference of two values, relative to their tensor's root mean square.
double Difference(const Weights& a, const Weights& b) {
  double largest = 0;
  for (const auto& [name, values] : a) {
    double squares = 0, difference = 0;
    const std::vector<double>& others = b.at(name);
    for (size_t i = 0; i < values.size(); ++i) {
      squares += values[i] * values[i];
      difference = std::max(difference, std::abs(values[i] - others[i]));
    }
    largest = std::max(largest, difference / std::sqrt(squares / values.size()));
  }
  return largest;
}

TEST(Ranks, TrainWhatOneTrains) {
  const std::string all_count = absl::StrReplaceAll(kTiedNet, {{"ignore_label: 3", ""}});
  const struct {
    std::string layers;
    std::vector<std::string> of_one, of_many;
  } cases[] = {{kNormNet, {}, {}},
               {kTiedNet, {"optimizer.clip_norm=0.5"}, {"optimizer.clip_norm=0.5"}},
               {all_count, {"batch=8"}, {"batch=4", "accumulate=2"}}};
  for (const auto& c : cases) {
    SCOPED_TRACE(c.layers);
    const auto [half, one] = Train(c.layers, 1, c.of_one);
    EXPECT_GT(Difference(half, one), 1e-3);  // it is training that agrees
    for (const int ranks : {2, 3}) {
      EXPECT_LT(Difference(Train(c.layers, ranks, c.of_many).second, one), kBound)
          << ranks << " ranks";
    }
  }
}

// The exception: each rank normalises by what it sees.
TEST(Ranks, LocalBatchNormDiffers) {
  const std::string local = absl::StrReplaceAll(kNormNet, {{"synchronised: true", ""}});
  EXPECT_GT(Difference(Train(local, 2).second, Train(local, 1).second), 1e-3);
}

}  // namespace
}  // namespace gyre
