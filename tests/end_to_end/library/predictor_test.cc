// libgyre.so says what `predict` says, to any thread, and answers mistakes with errors.  gyre.h is
// inline over gyre_c.h, so this tests both.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "engine/data/pictures/encode.h"
#include "gyre/gyre.h"
#include "tests/end_to_end/library/trained_file.h"

namespace gyre {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

const TrainedFile& Trained() {
  static const TrainedFile* const trained = new TrainedFile;
  return *trained;
}

// The shares of all test samples, `batch` at a time.
std::vector<float> Shares(Predictor& predictor, const TrainedFile& trained, int64_t batch) {
  const auto classes = static_cast<size_t>(trained.data().classes);
  std::vector<float> shares(static_cast<size_t>(TrainedFile::kSamples) * classes);
  for (int64_t first = 0; first < TrainedFile::kSamples; first += batch) {
    const int64_t count = std::min(batch, TrainedFile::kSamples - first);
    const auto n = static_cast<size_t>(count), at = static_cast<size_t>(first);
    const Status run =
        predictor.Run(count, {{"image", trained.pixels().data() + at * trained.sample_bytes(),
                               n * trained.sample_bytes()},
                              {"scores", shares.data() + at * classes, n * classes}});
    EXPECT_TRUE(run.ok()) << run.message();
  }
  return shares;
}

Predictor Opened(const std::string& path, const PredictorOptions& options) {
  Predictor predictor;
  const Status opened = predictor.Open(path, options);
  EXPECT_TRUE(opened.ok()) << opened.message();
  return predictor;
}

TEST(Predictor, SaysWhatPredictSays) {
  const TrainedFile& trained = Trained();
  const std::vector<float> whole = trained.Predicted(17), single = trained.Predicted(1);
  for (const std::string& path :
       {trained.file(), trained.run(), trained.run() + "/checkpoints/step_00000006"}) {
    Predictor predictor = Opened(path, {.max_batch = 17, .threads = 1});
    EXPECT_EQ(Shares(predictor, trained, 17), whole) << path;
    EXPECT_EQ(Shares(predictor, trained, 1), single) << path;  // 1 is planned beside 17
    EXPECT_EQ(Shares(predictor, trained, 5), trained.Predicted(5)) << path;
  }
  Predictor small = Opened(trained.file(), {.threads = 1});
  EXPECT_EQ(Shares(small, trained, 1), single);
  Predictor on_sim = Opened(trained.file(), {.max_batch = 17, .threads = 1, .device = "sim"});
  EXPECT_EQ(Shares(on_sim, trained, 17), whole);
  EXPECT_EQ(Shares(on_sim, trained, 4), trained.Predicted(4));
}

TEST(Predictor, PagesLargeNets) {
  Predictor predictor;
  PredictorOptions options{.max_batch = 17, .threads = 1, .device = "sim", .device_memory = 1};
  const Status refused = predictor.Open(Trained().file(), options);
  EXPECT_EQ(refused.code(), GYRE_RESOURCE_EXHAUSTED);
  options.device_memory = static_cast<size_t>(NumberIn(refused.message(), kLeastDeviceMemory));
  predictor = Opened(Trained().file(), options);
  EXPECT_EQ(Shares(predictor, Trained(), 17), Trained().Predicted(17));
  float share = 0;
  const Status other = predictor.Run(1, {{"image", Trained().pixels().data(), 432}});
  EXPECT_EQ(other.code(), GYRE_FAILED_PRECONDITION) << share;
  EXPECT_THAT(other.message(), HasSubstr("all batches are of 17 samples"));
  EXPECT_EQ(Shares(predictor, Trained(), 17), Trained().Predicted(17));
}

TEST(Predictor, TellsArrays) {
  Predictor predictor = Opened(Trained().file(), {.outputs = "fc1, scores"});
  const std::vector<ArrayInfo> arrays = predictor.arrays();
  ASSERT_EQ(arrays.size(), 3u);
  EXPECT_EQ(arrays[0].name, "image");
  EXPECT_FALSE(arrays[0].is_output);
  EXPECT_THAT(arrays[0].dims, ElementsAre(12, 12, 3));
  EXPECT_EQ(arrays[0].elements, 432);
  EXPECT_EQ(arrays[1].name, "fc1");
  EXPECT_TRUE(arrays[1].is_output);
  EXPECT_THAT(arrays[1].dims, ElementsAre(25));
  // Reals stand for themselves: v / 255 of a byte v.
  std::vector<float> reals, of_reals(10), of_bytes(10);
  for (size_t i = 0; i < 432; ++i) reals.push_back(Trained().pixels()[i] / 255.0f);
  ASSERT_TRUE(predictor.Run(1, {{"scores", of_reals}, {"image", reals}}).ok());
  ASSERT_TRUE(
      predictor.Run(1, {{"scores", of_bytes}, {"image", Trained().pixels().data(), 432}}).ok());
  for (size_t c = 0; c < 10; ++c) EXPECT_NEAR(of_reals[c], of_bytes[c], 1e-5);
}

TEST(Predictor, TakesPictures) {
  Predictor predictor = Opened(Trained().file(), {.threads = 1});
  const uint8_t* const pixels = Trained().pixels().data();
  std::vector<uint8_t> fitted(432), decoded(432), enlarged(432);
  ASSERT_TRUE(predictor.FitPicture("image", pixels, 12, 12, 3, fitted.data(), 432).ok());
  EXPECT_TRUE(std::equal(fitted.begin(), fitted.end(), pixels));
  const std::string png = *PngOf({12, 12, 3, pixels});
  ASSERT_TRUE(predictor.DecodePicture("image", png.data(), png.size(), decoded.data(), 432).ok());
  EXPECT_EQ(decoded, fitted);
  // Of another size as `predict` takes a file.
  const std::vector<uint8_t> large(60 * 40 * 3, 77);
  ASSERT_TRUE(predictor.FitPicture("image", large.data(), 60, 40, 3, enlarged.data(), 432).ok());
  EXPECT_THAT(enlarged, testing::Each(77));

  const auto refusal = [&](const Status& status) { return status.message(); };
  EXPECT_EQ(refusal(predictor.FitPicture("image", pixels, 12, 12, 1, fitted.data(), 432)),
            "\"image\": expected pixels of 3 channels, as the input has, got 1");
  EXPECT_EQ(refusal(predictor.FitPicture("image", pixels, -1, 12, 3, fitted.data(), 432)),
            "\"image\": expected a picture of 1 to 268435456 pixels, got height -1 and width 12");
  EXPECT_EQ(
      refusal(predictor.FitPicture("image", pixels, INT64_MAX, INT64_MAX, 3, fitted.data(), 432)),
      "\"image\": expected a picture of 1 to 268435456 pixels, got height "
      "9223372036854775807 and width 9223372036854775807");
  EXPECT_EQ(refusal(predictor.FitPicture("image", nullptr, 12, 12, 3, fitted.data(), 432)),
            "pixels: is null");
  EXPECT_EQ(refusal(predictor.FitPicture("image", pixels, 12, 12, 3, nullptr, 432)), "to: is null");
  EXPECT_EQ(refusal(predictor.FitPicture("image", pixels, 12, 12, 3, fitted.data(), 431)),
            "\"image\": expected 432 bytes to write to, got 431");
  EXPECT_EQ(refusal(predictor.DecodePicture("picture", png.data(), 3, fitted.data(), 432)),
            "unknown input \"picture\"; choose from image");
  EXPECT_THAT(refusal(predictor.DecodePicture("image", png.data(), 30, fitted.data(), 432)),
              StartsWith("the file: "));
  EXPECT_EQ(refusal(predictor.DecodePicture("image", nullptr, 30, fitted.data(), 432)),
            "file: is null");
}

TEST(Predictor, SeveralNetsAndThreads) {
  const TrainedFile& first = Trained();
  const TrainedFile second(2);
  const std::vector<float> of_first = first.Predicted(3), of_second = second.Predicted(3);
  ASSERT_NE(of_first, of_second);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      const TrainedFile& mine = i % 2 == 0 ? first : second;
      Predictor predictor = Opened(mine.file(), {.max_batch = 3, .threads = 1});
      for (int round = 0; round < 5; ++round) {
        EXPECT_EQ(Shares(predictor, mine, 3), i % 2 == 0 ? of_first : of_second);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  // One thread after another.
  Predictor handed = Opened(first.file(), {.max_batch = 3, .threads = 1});
  std::thread([&] { EXPECT_EQ(Shares(handed, first, 3), of_first); }).join();
  EXPECT_EQ(Shares(handed, first, 3), of_first);
}

// A layer's rows go on from call to call, as from batch to batch of a test.
TEST(Predictor, CarriesRows) {
  TrainingRunOptions options;
  options.net_text = R"(
      name: "steps"
      input { name: "x" dims: [2, 3] }
      input { name: "y" dims: [2, 1] }
      layer { name: "rnn" input: "x" rnn { hidden: 4 carry: true } }
      layer { name: "out" dense { outputs: 1 } }
      layer { name: "loss" input: ["out", "y"] mean_squared_error {} })";
  options.trainer_text =
      "batch: 2 steps: 1 optimizer { sgd {} } learning_rate { base: 0.1 } data { order: CONTIGUOUS "
      "}";
  TrainingRun run;
  const Status opened = run.Open(options);
  ASSERT_TRUE(opened.ok()) << opened.message();
  ASSERT_TRUE(run.Export(Trained() / "carried.gyre").ok());
  Predictor predictor = Opened(Trained() / "carried.gyre", {.max_batch = 2, .threads = 1});
  const std::vector<float> first = {.1f, .2f, .3f, .4f, .5f, .6f, .7f, .8f, .9f, 1, 2, 3};
  const std::vector<float> second(12, 0.5f);
  const auto out = [&](const std::vector<float>& x, size_t samples) {
    std::vector<float> values(2 * samples);
    const Status status = predictor.Run(static_cast<int64_t>(samples),
                                        {{"x", x.data(), 6 * samples}, {"out", values}});
    EXPECT_TRUE(status.ok()) << status.message();
    return values;
  };
  const std::vector<float> begun = out(first, 2), gone_on = out(second, 2);
  ASSERT_TRUE(predictor.Reset().ok());
  const std::vector<float> fresh = out(second, 2);
  EXPECT_NE(fresh, gone_on);
  ASSERT_TRUE(predictor.Reset().ok());
  EXPECT_EQ(out(first, 2), begun);
  EXPECT_EQ(out(second, 2), gone_on);
  // Another number of samples begins anew, and so does the one after it.
  EXPECT_EQ(out(first, 1), std::vector<float>(begun.begin(), begun.begin() + 2));
  EXPECT_EQ(out(second, 2), fresh);
}

// One of two calls at once may be refused, and no more.
TEST(Predictor, RefusesCallsAtOnce) {
  Predictor predictor = Opened(Trained().file(), {.max_batch = 17, .threads = 1});
  const std::vector<float> expected = Trained().Predicted(17);
  std::atomic<int> refused = 0, done = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 30; ++round) {
        std::vector<float> shares(170);
        const Status run = predictor.Run(17, {{"image", Trained().pixels()}, {"scores", shares}});
        if (run.ok()) {
          EXPECT_EQ(shares, expected);
          ++done;
        } else {
          EXPECT_EQ(run.code(), GYRE_FAILED_PRECONDITION);
          EXPECT_EQ(run.message(), "another call with this handle is under way");
          ++refused;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(done + refused, 90);
  EXPECT_GT(done, 0);
}

TEST(Predictor, Misuse) {
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  const std::string path = Trained().file();
  using Change = std::function<void(gyre_predictor_options&)>;
  const auto open = [](const char* from, const Change& change) {
    gyre_predictor_options options = {};
    if (change) change(options);
    gyre_predictor* opened = nullptr;
    EXPECT_NE(gyre_predictor_open(from, &options, &opened), GYRE_OK);
    EXPECT_EQ(opened, nullptr);
    return std::string(gyre_last_error());
  };
  EXPECT_EQ(open(nullptr, {}), "path: is null");
  EXPECT_EQ(open("", {}), "path: is empty");
  EXPECT_THAT(open((path + "x").c_str(), {}), HasSubstr("No such file"));
  EXPECT_EQ(open(path.c_str(), [](auto& of) { of.max_batch = -1; }),
            "max_batch: expected 1 to 1073741824, or 0 for 1, got -1");
  EXPECT_EQ(open(path.c_str(), [](auto& of) { of.threads = -1; }),
            "threads: expected 1 to 1024, or 0 for the cores, got -1");
  EXPECT_THAT(open(path.c_str(), [](auto& of) { of.device = "gpu"; }), StartsWith("device: "));
  EXPECT_EQ(open(path.c_str(), [](auto& of) { of.device_memory = 5; }),
            "device_memory: that of cpu has no bound; leave it out, or use sim");
  EXPECT_THAT(open(path.c_str(), [](auto& of) { of.outputs = "fc1,fc3"; }),
              HasSubstr("output \"fc3\": unknown layer \"fc3\"; did you mean \"fc1\"?"));
  EXPECT_THAT(open((Trained() / "test-images.idx").c_str(), {}), HasSubstr("test-images.idx"));
  EXPECT_EQ(gyre_predictor_open(path.c_str(), nullptr, nullptr), GYRE_INVALID_ARGUMENT);
  EXPECT_STREQ(gyre_last_error(), "predictor: is null");

  gyre_predictor* predictor = nullptr;
  ASSERT_EQ(gyre_predictor_open(path.c_str(), nullptr, &predictor), GYRE_OK);
  EXPECT_STREQ(gyre_last_error(), "");
  EXPECT_EQ(gyre_predictor_array(predictor, 2), nullptr);
  EXPECT_EQ(gyre_predictor_arrays(nullptr), 0u);
  EXPECT_EQ(gyre_predictor_array(nullptr, 0), nullptr);
  std::vector<uint8_t> bytes(432);
  std::vector<float> image(433), scores(10);
  const gyre_array good{"image", GYRE_U8, bytes.data(), 432};
  const auto run = [&](int64_t samples, const std::vector<gyre_array>& arrays) {
    EXPECT_EQ(gyre_predictor_run(predictor, samples, arrays.data(), arrays.size()),
              GYRE_INVALID_ARGUMENT);
    return std::string(gyre_last_error());
  };
  EXPECT_EQ(run(0, {good}), "samples: expected 1 to 1 (max_batch), got 0");
  EXPECT_EQ(run(2, {good}), "samples: expected 1 to 1 (max_batch), got 2");
  EXPECT_EQ(run(1, {}), "\"image\": is missing");
  EXPECT_EQ(run(1, {good, good}), "\"image\": is given twice");
  EXPECT_EQ(run(1, {{nullptr, GYRE_U8, bytes.data(), 432}}), "array 0: name is null");
  EXPECT_EQ(run(1, {{"imge", GYRE_U8, bytes.data(), 432}}),
            "unknown array \"imge\"; did you mean \"image\"?");
  EXPECT_EQ(run(1, {{"image", GYRE_U8, nullptr, 432}}), "\"image\": data is null");
  EXPECT_EQ(run(1, {{"image", GYRE_U8, bytes.data(), 431}}),
            "\"image\": expected 1 times 432 bytes, of [12, 12, 3] in GYRE_U8, got 431");
  EXPECT_EQ(run(1, {{"image", GYRE_F32, image.data(), 432}}),
            "\"image\": expected 1 times 1728 bytes, of [12, 12, 3] in GYRE_F32, got 432");
  EXPECT_EQ(run(1, {{"image", GYRE_I32, image.data(), 1728}}),
            "\"image\": expected type GYRE_F32 or GYRE_U8, got GYRE_I32");
  EXPECT_EQ(run(1, {{"image", 77, image.data(), 1728}}),
            "\"image\": expected type GYRE_F32 or GYRE_U8, got 77");
  EXPECT_EQ(run(1, {{"image", GYRE_F32, reinterpret_cast<char*>(image.data()) + 1, 1728}}),
            "\"image\": data is not aligned to its elements");
  EXPECT_EQ(run(1, {good, {"scores", GYRE_U8, scores.data(), 10}}),
            "\"scores\": expected type GYRE_F32, got GYRE_U8");
  image[7] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(run(1, {{"image", GYRE_F32, image.data(), 1728}}), "\"image\": holds nan");
  EXPECT_EQ(gyre_predictor_run(predictor, 1, nullptr, 1), GYRE_INVALID_ARGUMENT);
  EXPECT_STREQ(gyre_last_error(), "arrays: is null");
  EXPECT_EQ(gyre_predictor_run(predictor, 1, &good, SIZE_MAX), GYRE_INVALID_ARGUMENT);
  EXPECT_EQ(gyre_predictor_run(nullptr, 1, &good, 1), GYRE_INVALID_ARGUMENT);
  EXPECT_STREQ(gyre_last_error(), "the handle is null");
  EXPECT_EQ(gyre_predictor_reset(nullptr), GYRE_INVALID_ARGUMENT);
  // Another thread has errors of its own.
  std::thread([] { EXPECT_STREQ(gyre_last_error(), ""); }).join();
  EXPECT_STREQ(gyre_last_error(), "the handle is null");
  // Nothing of it has harmed the net.
  EXPECT_EQ(gyre_predictor_run(predictor, 1, &good, 1), GYRE_OK);
  gyre_predictor_close(predictor);
  gyre_predictor_close(nullptr);
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

// A damaged file is refused, or gives other numbers.  GYRE_DAMAGED=2000 tries more.
TEST(Predictor, DamagedFiles) {
  const std::string whole = ReadBytes(Trained().file());
  const char* const wanted = std::getenv("GYRE_DAMAGED");
  const int tries = wanted == nullptr ? 100 : std::atoi(wanted);
  std::mt19937_64 random(7);
  const auto below = [&](size_t bound) { return static_cast<size_t>(random() % bound); };
  int refused = 0;
  for (int i = 0; i < tries; ++i) {
    std::string damaged = whole;
    // Most of the file are weights, of which any are as good: so mostly at its beginning.
    const size_t reach = i % 4 == 0 ? whole.size() : std::min<size_t>(whole.size(), 6000);
    switch (i % 3) {
      case 0:
        damaged.resize(below(reach));
        break;
      case 1:
        for (size_t n = 0; n <= below(8); ++n) damaged[below(reach)] = static_cast<char>(random());
        break;
      default: {
        const size_t at = below(reach), length = std::min(below(40), damaged.size() - at);
        damaged.erase(at, length);
        if (i % 2 == 0) damaged.insert(at, length, '9');
      }
    }
    WriteBytes(Trained() / "damaged.gyre", damaged);
    Predictor predictor;
    const Status opened = predictor.Open(Trained() / "damaged.gyre", {.threads = 1});
    if (!opened.ok()) {
      EXPECT_NE(opened.message(), "");
      ++refused;
      continue;
    }
    for (const ArrayInfo& array : predictor.arrays()) EXPECT_GT(array.elements, 0);
    float scores[10];
    // Its arrays may have other names and sizes.
    (void)predictor.Run(1, {{"image", Trained().pixels().data(), 432}, {"scores", scores}}).ok();
  }
  EXPECT_GT(refused, tries / 3);
}

}  // namespace
}  // namespace gyre
