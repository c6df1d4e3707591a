// log_norms_every: norms of parameters, gradients and changes, as files and rates tell them, and
// with the same bits however ranks and memory share the work.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "engine/data/tensors/tensor_file.h"
#include "tests/end_to_end/training_folder.h"

namespace gyre {
namespace {

const SyntheticData kData{.samples = 40};
constexpr double kRate = 0.05;

using Norms = std::map<std::string, std::map<std::string, double>>;

class NormsTest : public testing::Test {
 protected:
  void Write(const std::string& optimizer, const std::string& rest = "") {
    WriteTrainer(folder_ / "", ConvNetText(kData),
                 {.optimizer = optimizer,
                  .learning_rate = absl::StrCat("base: ", kRate),
                  .rest = absl::StrCat("batch: 8 steps: 7 checkpoint_every: 1 keep_checkpoints: 10 "
                                       "log_norms_every: 3 precision: F64 ",
                                       rest)});
  }

  // By step.
  std::map<int64_t, Norms> Logged(const std::string& out) {
    std::map<int64_t, Norms> logged;
    for (const absl::string_view line :
         absl::StrSplit(ReadBytes(folder_ / (out + "/metrics.jsonl")), '\n', absl::SkipEmpty())) {
      const auto object = nlohmann::json::parse(line);
      if (object.contains("norms")) logged[object["step"]] = object["norms"].get<Norms>();
    }
    return logged;
  }

  std::map<int64_t, Norms> Train(const std::string& out, const std::vector<std::string>& flags) {
    folder_.Digest(out, flags);
    return Logged(out);
  }

  std::map<std::string, std::vector<double>> Values(const std::string& out, int64_t step) {
    const auto file = *TensorFile::Read(
        folder_ / absl::StrFormat("%s/checkpoints/step_%08d/weights.safetensors", out, step));
    std::map<std::string, std::vector<double>> values;
    for (const NamedTensor& tensor : file.tensors()) {
      const auto* const data = tensor.tensor.as<double>();
      values[tensor.name] = {data, data + tensor.tensor.elements()};
    }
    return values;
  }

  TrainingFolder folder_{kData};
};

double Norm(const std::vector<double>& of) {
  double sum = 0;
  for (const double x : of) sum += x * x;
  return std::sqrt(sum);
}

TEST_F(NormsTest, AreThoseOfTheFiles) {
  Write("sgd {}");
  const std::map<int64_t, Norms> logged = Train("out", {});
  ASSERT_THAT(logged, testing::SizeIs(2));
  for (const auto& [step, norms] : logged) {
    EXPECT_EQ(step % 3, 0);
    const auto before = Values("out", step - 1), after = Values("out", step);
    ASSERT_EQ(norms.size(), after.size());
    for (const auto& [name, of] : norms) {
      std::vector<double> change = after.at(name);
      for (size_t i = 0; i < change.size(); ++i) change[i] -= before.at(name)[i];
      EXPECT_NEAR(of.at("value"), Norm(after.at(name)), 1e-12 * of.at("value")) << name;
      EXPECT_NEAR(of.at("change"), Norm(change), 1e-12 * of.at("change")) << name;
      // Of plain SGD.  The files' differences have rounded values.
      EXPECT_NEAR(of.at("gradient") * kRate, of.at("change"), 1e-12 * of.at("value")) << name;
      EXPECT_GT(of.at("gradient"), 0);
    }
  }
}

// Clipped, as updates take them.
TEST_F(NormsTest, OfGradientsAreClipped) {
  Write("sgd { momentum: 0.9 } clip_norm: 0.01");
  for (const auto& [step, norms] : Train("out", {"--ranks=2"})) {
    double sum = 0;
    for (const auto& [name, of] : norms) sum += of.at("gradient") * of.at("gradient");
    EXPECT_NEAR(std::sqrt(sum), 0.01, 1e-9);
  }
}

TEST_F(NormsTest, HaveTheBitsOfDirect) {
  for (const std::string optimizer : {"adam {}", "lamb {} weight_decay: 0.01"}) {
    Write(optimizer, "accumulate: 2");
    int number = 0;
    const auto train = [&](const std::vector<std::string>& flags) {
      return Train(absl::StrCat(optimizer.substr(0, 4), number++), flags);
    };
    const auto alone = train({}), direct = train({"--ranks=3", "--allreduce=direct"});
    EXPECT_THAT(direct, testing::SizeIs(2));
    const int64_t least = NumberIn(folder_.Train("refused", OnSim(1)).err, kLeastDeviceMemory);
    EXPECT_EQ(train(OnSim(least)), alone) << optimizer;
    EXPECT_EQ(train({"--ranks=3", "--allreduce=direct", "--shard_optimizer"}), direct) << optimizer;
    EXPECT_EQ(train({"--ranks=3", "--sync=bsp"}), direct) << optimizer;
    EXPECT_EQ(train({"--ranks=4", "--sync=bsp", "--servers=1", "--server_memory=host"}), direct)
        << optimizer;
  }
}

// No rank adds up a step's gradients there.
TEST_F(NormsTest, AStaleServerKnowsNoneOfGradients) {
  Write("adam {}");
  for (const auto& [step, norms] : Train("out", {"--ranks=2", "--sync=ssp"})) {
    for (const auto& [name, of] : norms) {
      EXPECT_GT(of.at("value"), 0);
      EXPECT_GT(of.at("change"), 0);
      EXPECT_FALSE(of.contains("gradient"));
    }
  }
}

}  // namespace
}  // namespace gyre
