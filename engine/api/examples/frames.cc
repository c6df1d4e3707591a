// frames.cc: classifies frames that a camera, or here a formula, leaves in memory.
//
//   frames NET.gyre [FRAMES]
//
// NET.gyre has one input, a picture of three channels, and one output, a share for each class.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "gyre/gyre.h"

namespace {

constexpr int kHeight = 48, kWidth = 64, kChannels = 3;

// Frame number `number` of the camera: RGB, rows from the top.
std::vector<uint8_t> Frame(int number) {
  std::vector<uint8_t> pixels;
  for (int y = 0; y < kHeight; ++y) {
    for (int x = 0; x < kWidth; ++x) {
      for (int c = 0; c < kChannels; ++c) {
        pixels.push_back(static_cast<uint8_t>(4 * x + 5 * y * (c + 1) + 16 * number));
      }
    }
  }
  return pixels;
}

int Fail(const gyre::Status& status) {
  std::fprintf(stderr, "error: %s\n", status.message().c_str());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: frames NET.gyre [FRAMES]\n");
    return 2;
  }
  const int frames = argc > 2 ? std::atoi(argv[2]) : 1;
  gyre::Predictor predictor;
  gyre::PredictorOptions options;
  options.threads = 1;
  if (const gyre::Status opened = predictor.Open(argv[1], options); !opened.ok()) {
    return Fail(opened);
  }
  const std::vector<gyre::ArrayInfo> arrays = predictor.arrays();
  const gyre::ArrayInfo &input = arrays.front(), &output = arrays.back();

  // Made once, for all frames.
  std::vector<uint8_t> fitted(static_cast<size_t>(input.elements));
  std::vector<float> shares(static_cast<size_t>(output.elements));
  for (int number = 0; number < frames; ++number) {
    const std::vector<uint8_t> frame = Frame(number);
    gyre::Status status = predictor.FitPicture(input.name.c_str(), frame.data(), kHeight, kWidth,
                                               kChannels, fitted.data(), fitted.size());
    if (!status.ok()) return Fail(status);
    status = predictor.Run(1, {{input.name.c_str(), fitted}, {output.name.c_str(), shares}});
    if (!status.ok()) return Fail(status);
    const auto best =
        static_cast<size_t>(std::max_element(shares.begin(), shares.end()) - shares.begin());
    const std::string name =
        best < output.classes.size() ? output.classes[best] : std::to_string(best);
    std::printf("frame %d: %s %.6f\n", number, name.c_str(), shares[best]);
  }
  return 0;
}
