// Normalization by the training samples: what is computed, said and taken from the weights, and the
// warning about inputs that are large all the same.
#include "engine/training/feed/normalization_fit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "engine/training/feed/data_feed.h"
#include "engine/training/run/trainer.h"
#include "tests/data/array_bytes.h"
#include "tests/data/temp_folder.h"
#include "tests/distributed/process_group_ranks.h"

namespace gyre {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

template <typename T>
std::string BytesOf(const std::vector<T>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

class NormalizationFit : public testing::Test {
 protected:
  NormalizationFit() {
    // Channels of mean 2 and std 1, and of 7 throughout.
    WriteBytes(folder_ / "x.npy", Npy("<f4", "(4, 2)", BytesOf<float>({1, 7, 3, 7, 1, 7, 3, 7})));
    WriteBytes(folder_ / "pixels.npy", Npy("|u1", "(4, 1, 1, 1)", std::string("\0\xff\0\xff", 4)));
    WriteBytes(folder_ / "y.npy", Npy("<f4", "(4, 1)", BytesOf<float>({1, 2, 3, 1e6})));
  }

  // A trainer whose data, on its second line, are "x", "pixels" and the target "y" of these files,
  // and `more`.
  std::string TextOf(const std::string& more, const std::string& test = "") {
    const auto arrays = [](const std::string& folder) {
      return absl::StrReplaceAll(
          "{ arrays { array { input: 'x' file: '@x.npy' } array { input: 'pixels' file: "
          "'@pixels.npy' } array { input: 'y' file: '@y.npy' } } }",
          {{"@", folder}});
    };
    return absl::StrCat("net: 'n' batch: 1 steps: 1 optimizer { sgd {} } learning_rate { base: ",
                        "1e-6 }\ndata { ", more, " train ", arrays(""),
                        test.empty() ? "" : absl::StrCat(" test ", arrays(test)), " }");
  }
  Parsed<NetConfig> Net() {
    return *ParseNetText(R"(
        input { name: "x" dims: 2 }
        input { name: "pixels" dims: [1, 1, 1] }
        input { name: "y" dims: 1 }
        layer { name: "flat" input: "pixels" flatten {} }
        layer { name: "all" input: ["x", "flat"] concat {} }
        layer { name: "fc" dense { outputs: 1 } }
        layer { name: "loss" input: ["fc", "y"] mean_squared_error {} })",
                         "n");
  }
  absl::StatusOr<RunData> Open(const std::string& text, bool train = true, const Fit& fit = {}) {
    return OpenData(ParseTrainerText(text, folder_ / "t").value(), Net(), train, fit);
  }
  std::string Error(const std::string& text, bool train = true, const Fit& fit = {}) {
    return absl::StrReplaceAll(std::string(Open(text, train, fit).status().message()),
                               {{folder_.path(), "@"}});
  }
  // What a plan warns about.
  std::string Warnings(const std::string& more) {
    const auto trainer = ParseTrainerText(TextOf(more), folder_ / "t").value();
    auto data = Open(TextOf(more)).value();
    const auto communication = GroupOfOne();
    const auto device = NewCpuDevice({.threads = 1});
    const Primitives primitives(device->kind(), 1);
    const auto net = Net();
    const auto run = *Trainer::Prepare(trainer, net, std::move(data), *device, primitives,
                                       *communication, TrainingOptions());
    return absl::StrReplaceAll(absl::StrJoin(run->Summary().warnings, "\n"),
                               {{folder_.path(), "@"}});
  }

  TempFolder folder_;
};

constexpr char kBoth[] =
    "normalization { input: 'x' auto: true } image_input: 'pixels' normalization { auto: true }";
constexpr char kText[] = "x\t0\t2\t1\nx\t1\t7\t1\npixels\t0\t0.5\t0.5\n";

TEST_F(NormalizationFit, IsOfTheTrainingSamples) {
  std::filesystem::create_directory(folder_ / "test");
  for (const std::string name : {"x", "pixels", "y"}) {
    WriteBytes(folder_ / ("test/" + name + ".npy"), ReadBytes(folder_ / (name + ".npy")));
  }
  WriteBytes(folder_ / "test/x.npy", Npy("<f4", "(1, 2)", BytesOf<float>({100, 200})));
  WriteBytes(folder_ / "test/pixels.npy", Npy("|u1", "(1, 1, 1, 1)", "\x10"));
  WriteBytes(folder_ / "test/y.npy", Npy("<f4", "(1, 1)", BytesOf<float>({1})));
  const auto data = Open(TextOf(kBoth, "test/")).value();
  EXPECT_EQ(data.fit, (Fit{{"normalization.txt", kText}}));
  const std::vector<FedInput>& inputs = data.feed.inputs;
  EXPECT_EQ(inputs[0].normalization.mean, (std::vector<double>{2, 7}));
  EXPECT_EQ(inputs[0].normalization.std, (std::vector<double>{1, 1}));
  EXPECT_EQ(inputs[1].normalization.mean, std::vector<double>{0.5});
  EXPECT_EQ(inputs[1].pixel_values, PixelValues({.mean = {0.5}, .std = {0.5}}));
  EXPECT_EQ(inputs[2].normalization.mean, std::vector<double>{0});
  TrainerConfig config;
  config.set_batch(1);
  EXPECT_THAT(
      LeftOut(config, data),
      ElementsAre("normalization of the training samples: \"x\" by mean [2, 7], std [1, 1]; "
                  "\"pixels\" by mean 0.5, std 0.5",
                  "normalization of \"x\": channels of equal values have std 1: 1 of 2, number 1"));

  // A test alone takes those of the weights, or else reads the training samples.
  const auto tested = Open(TextOf(kBoth, "test/"), /*train=*/false).value();
  EXPECT_EQ(tested.train, nullptr);
  EXPECT_EQ(tested.fit, data.fit);
  std::filesystem::remove(folder_ / "x.npy");
  EXPECT_THAT(Error(TextOf(kBoth, "test/"), false), HasSubstr("cannot open @/x.npy"));
  const Fit known = {{"normalization.txt", "pixels\t0\t0.25\t4\nx\t0\t1\t2\nx\t1\t3\t1e-3\n"}};
  const auto by_weights = Open(TextOf(kBoth, "test/"), false, known).value();
  EXPECT_EQ(by_weights.fit, known);
  EXPECT_EQ(by_weights.feed.inputs[0].normalization.mean, (std::vector<double>{1, 3}));
  EXPECT_EQ(by_weights.feed.inputs[0].normalization.std, (std::vector<double>{2, 1e-3}));
  EXPECT_EQ(by_weights.feed.inputs[1].normalization.std, std::vector<double>{4});
  EXPECT_EQ(by_weights.notes.size(), 1u);
  // Numbers in the trainer's text come first.
  const auto given = *Open(TextOf("normalization { input: 'x' mean: 5 }", "test/"), false, known);
  EXPECT_EQ(given.feed.inputs[0].normalization.mean, std::vector<double>{5});
  EXPECT_THAT(given.fit, IsEmpty());
  EXPECT_THAT(given.notes, ElementsAre(HasSubstr("write normalization { auto: true }")));
}

// A rare 1 is not large.
TEST_F(NormalizationFit, LeavesZerosAndOnes) {
  std::vector<float> values(2 * 900);
  for (size_t i = 0; i < values.size(); i += 2) values[i + 1] = static_cast<float>(i);
  values[100] = 1;
  WriteBytes(folder_ / "x.npy", Npy("<f4", "(900, 2)", BytesOf(values)));
  WriteBytes(folder_ / "pixels.npy", Npy("|u1", "(900, 1, 1, 1)", std::string(900, '\1')));
  WriteBytes(folder_ / "y.npy", Npy("<f4", "(900, 1)", BytesOf(std::vector<float>(900))));
  const std::string setting = "normalization { input: 'x' auto: true }";
  const auto data = Open(TextOf(setting)).value();
  EXPECT_EQ(data.feed.inputs[0].normalization.mean, (std::vector<double>{0, 899}));
  EXPECT_EQ(data.feed.inputs[0].normalization.std[0], 1);
  EXPECT_THAT(data.notes, ElementsAre(testing::_,
                                      "normalization of \"x\": channels of zeros and "
                                      "ones are left as they are: 1 of 2, number 0"));
  EXPECT_EQ(Warnings(setting), "");
}

TEST_F(NormalizationFit, SaysWhatIsWrong) {
  EXPECT_EQ(Error(TextOf("normalization { input: 'z' auto: true }")),
            "@/t:2:24: data.normalization: the net has no input \"z\"; it has \"x\", \"pixels\", "
            "\"y\"");
  const std::string x = "normalization { input: 'x' auto: true }";
  const auto with = [&](const std::string& text) {
    return Error(TextOf(x), true, {{"normalization.txt", text}});
  };
  EXPECT_EQ(with(kText), "");
  EXPECT_EQ(with("y\t0\t2\t1\n"),
            "@/t:2:35: normalization.txt of the weights' run: expected 2 channels of input \"x\", "
            "got 0");
  for (const std::string text : {"x\t0\t2\t1\n", "x\t0\t2\t1\nx\t1\t2\t1\nx\t2\t2\t1\n"}) {
    EXPECT_THAT(with(text), HasSubstr("expected 2 channels of input \"x\", got "));
  }
  for (const std::string line :
       {"x\t0\t2", "x\t1\t2\t1", "x\t0\t2\t0", "x\t0\t2\t-1", "x\t0\tnan\t1", "x\t0\t2\tinf",
        "x\t0\t2\t1\t", "x", "x\t0\ta\t1"}) {
    EXPECT_THAT(with(line + "\n"),
                HasSubstr("expected INPUT TAB CHANNEL TAB MEAN TAB STD, got \""));
  }
  WriteBytes(folder_ / "x.npy",
             Npy("<f4", "(4, 2)", BytesOf<float>({1, 7, 3, 7, 1, std::nanf(""), 3, 7})));
  EXPECT_EQ(Error(TextOf(x)),
            "@/x.npy: sample 2 (the first is 0) holds nan; correct or remove the file, or raise "
            "data.max_bad_samples; tools/check_data names all such files");
  WriteBytes(folder_ / "x.npy", Npy("<f4", "(4, 2)", BytesOf(std::vector(8, std::nanf("")))));
  const auto trainer = ParseTrainerText(TextOf(x + " max_bad_samples: 9"), folder_ / "t");
  const DataConfig& data = trainer->message->data();
  const auto dataset = *OpenDataset(data, /*train=*/true, folder_ / "t");
  std::vector<std::string> notes;
  EXPECT_EQ(MakeNormalization(data, *dataset, notes).status().message(),
            absl::StrCat("no sample of 4 could be read: ", folder_ / "x.npy",
                         ": sample 0 (the first is 0) holds nan"));
}

TEST_F(NormalizationFit, IsOfTenThousandSamplesOfMore) {
  std::vector<float> x(2 * 10'001, 1);
  x[0] = -1;
  x[20'000] = 1e9;
  for (const int samples : {10'000, 10'001}) {
    const std::string count = absl::StrCat("(", samples, ", ");
    x.resize(2 * static_cast<size_t>(samples));
    WriteBytes(folder_ / "x.npy", Npy("<f4", count + "2)", BytesOf(x)));
    WriteBytes(folder_ / "pixels.npy", Npy("|u1", count + "1, 1, 1)", std::string(samples, '\1')));
    WriteBytes(folder_ / "y.npy", Npy("<f4", count + "1)", std::string(4 * samples, '\0')));
    const auto data = Open(TextOf("normalization { input: 'x' auto: true }")).value();
    EXPECT_DOUBLE_EQ(data.feed.inputs[0].normalization.mean[0], 0.9998) << samples;
    const std::string note = "normalization: of 10000 of 10001 training samples, evenly spread";
    EXPECT_EQ(data.notes.size(), samples > 10'000 ? 3u : 2u);
    if (samples > 10'000) {
      EXPECT_EQ(data.notes.back(), note);
    }
    x.resize(2 * 10'001, 1e9f);
  }
}

TEST_F(NormalizationFit, WarnsOfLargeInputs) {
  EXPECT_EQ(Warnings(""), "");  // the target is 1e6
  WriteBytes(folder_ / "x.npy", Npy("<f4", "(4, 2)", BytesOf<float>({20, 7, 3, -20, 1, 7, 3, 7})));
  EXPECT_EQ(Warnings(""), "");
  WriteBytes(folder_ / "x.npy",
             Npy("<f4", "(4, 2)", BytesOf<float>({1, 21, 3, 7, 1, -500, 3, 400})));
  const std::string large =
      "input \"x\": sample 2 (the first is 0) holds -500 in channel 1, which is ";
  const std::string after = " after normalization; training may fail with inputs beyond 20; ";
  EXPECT_EQ(Warnings(""), absl::StrCat("@/t:2:1: ", large, "-500", after,
                                       "write normalization { input: \"x\" auto: true }"));
  EXPECT_EQ(
      Warnings("normalization { input: 'x' std: 4 }"),
      absl::StrCat("@/t:2:8: ", large, "-125", after, "write auto: true in place of mean and std"));
  EXPECT_EQ(Warnings("normalization { input: 'x' std: 400 }"), "");
  EXPECT_EQ(Warnings("normalization { input: 'x' auto: true }"), "");
  // Bytes are looked at where one could be large.
  const std::string pixels =
      "normalization { input: 'x' std: 400 } normalization { input: 'pixels' std: 0.01 }";
  EXPECT_THAT(Warnings(pixels), HasSubstr("input \"pixels\": sample 1 (the first is 0) holds 1 in "
                                          "channel 0, which is 100 after"));
  WriteBytes(folder_ / "pixels.npy", Npy("|u1", "(4, 1, 1, 1)", std::string(4, '\3')));
  EXPECT_EQ(Warnings(pixels), "");
}

TEST_F(NormalizationFit, WarnsOfWhatAutoCannotMend) {
  std::vector<float> x(2000, 0);
  x[1] = 2;
  WriteBytes(folder_ / "x.npy", Npy("<f4", "(1000, 2)", BytesOf(x)));
  WriteBytes(folder_ / "pixels.npy", Npy("|u1", "(1000, 1, 1, 1)", std::string(1000, '\0')));
  WriteBytes(folder_ / "y.npy", Npy("<f4", "(1000, 1)", std::string(4000, '\0')));
  EXPECT_EQ(Warnings(""), "");
  EXPECT_THAT(Warnings("normalization { input: 'x' auto: true }"),
              HasSubstr("input \"x\": sample 0 (the first is 0) holds 2 in channel 1, which is "
                        "31.607 after normalization; training may fail with inputs beyond 20; it "
                        "is far from the others: correct it"));
}

}  // namespace
}  // namespace gyre
