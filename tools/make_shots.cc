// make_shots: made-up shots, some with a disruption at the end, for the data set `shots`.
//
// A shot is some plasma's current, density, heating and three signs of its state, over time.  Again
// and again a mode grows, one way or the other, stays and decays; radiation rises ahead of it, and
// the rotation goes with it.  Before a disruption a mode of the same size brakes the rotation
// instead, and radiation follows it.  Which way the mode turns is chance, and levels differ from
// shot to shot: one signal, or a weighted sum of them, says little; how two of them move together
// does.

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/data/tensors/tensor_file.h"
#include "engine/runtime/check.h"
#include "engine/runtime/decimal.h"
#include "engine/runtime/random.h"
#include "tools/command_line/flag_values.h"
#include "tools/data/made_data.h"

ABSL_FLAG(std::string, out, "", "Folder to make, with folders train and test.  It must not exist.");
ABSL_FLAG(int, train, 256, "Training shots.");
ABSL_FLAG(int, test, 96, "Test shots.");
ABSL_FLAG(double, disrupted, 0.4, "Share of shots that end with a disruption, 0 to 1.");
ABSL_FLAG(double, difficulty, 0.5, "Strength of the noise beside the mode, above 0.");
ABSL_FLAG(int, shot_steps, 400, "Mean steps of a shot, of 1 ms each, 100 or more.");
ABSL_FLAG(int, points, 16, "Points of the temperature's profile.");
ABSL_FLAG(int, seed, 1, "Seed of all random numbers.");

namespace gyre {
namespace {

constexpr char kUsage[] =
    "writes made-up shots, synthetic and of no machine.\n"
    "\n"
    "  make_shots --out=runs/data/shots\n"
    "  make_shots --out=runs/data/hard --difficulty=1 --seed=7\n"
    "\n"
    "A net learns disruptions from them. A shot is an .npz of `time`, `event` (NaN:\n"
    "none), the signals `current`, `density`, `heating`, `radiation`, `mode`,\n"
    "`rotation` and the profile `temperature`. A trainer reads shots by\n"
    "  data { train { shots { folder: \"runs/data/shots/train\" length: 128\n"
    "    warning: 0.2 signal: [\"current\", \"density\", \"heating\", \"radiation\",\n"
    "    \"mode\", \"rotation\"] profile: \"temperature\" } }\n"
    "    test { shots { folder: \"runs/data/shots/test\" } } order: CONTIGUOUS }\n"
    "The same flags give the same bytes.\n"
    "Exit codes: 0 done, 1 failed, 2 wrong flags.";

const std::vector<FlagGroup> kGroups = {
    {"Flags", {"out", "train", "test", "disrupted", "difficulty", "shot_steps", "points", "seed"}},
};

constexpr double kStepS = 0.001;

// Noise that remembers some 20 steps, of deviation 1.
class Drift {
 public:
  double Next(Numbers& numbers) {
    constexpr double kKeeps = 0.95;
    return value_ = kKeeps * value_ + std::sqrt(1 - kKeeps * kKeeps) * numbers.Normal();
  }

 private:
  double value_ = 0;
};

// 0 before `begin`, then 1 - e^-x, back again after `end`.
double Rise(double t, double begin, double end, double time) {
  if (t < begin) return 0;
  const double top = 1 - std::exp(-(std::min(t, end) - begin) / time);
  return t < end ? top : top * std::exp(-(t - end) / time);
}

enum Signal { kCurrent, kDensity, kHeating, kRadiation, kMode, kRotation, kSignals };
constexpr const char* kNames[] = {"current", "density", "heating", "radiation", "mode", "rotation"};

struct MadeShot {
  std::vector<double> time;
  std::vector<float> signals[kSignals], temperature;
  double event = std::numeric_limits<double>::quiet_NaN();
};

// A time of the mode that passes.
struct Burst {
  double begin, end, mode, radiation;  // s, and how far; a mode turns either way
};

MadeShot Make(Numbers numbers, bool disrupted, double difficulty, int mean_steps, int points) {
  MadeShot shot;
  const auto steps = static_cast<int>(mean_steps * numbers.Uniform(0.5, 1.5));
  const double length = steps * kStepS;
  const auto either_way = [&](double size) { return numbers.Uniform(-1, 1) < 0 ? -size : size; };
  if (disrupted) shot.event = length - kStepS;
  // The last mode begins to grow `lead` before the end; the radiation follows.
  const double lead = disrupted ? numbers.Uniform(0.12, 0.3) : 0, onset = length - lead;
  const double growth = numbers.Uniform(0.02, 0.04), lag = numbers.Uniform(0.02, 0.06);
  const double top = either_way(numbers.Uniform(1, 2.5));
  std::vector<Burst> bursts;
  for (double t = numbers.Uniform(0, 0.2); t < length - lead - 0.1;
       t += numbers.Uniform(0.15, 0.5)) {
    bursts.push_back({t, t + numbers.Uniform(0.05, 0.25), either_way(numbers.Uniform(1, 2.5)),
                      numbers.Uniform(0.5, 2)});
  }
  double level[kSignals];
  for (double& l : level) l = numbers.Uniform(-1, 1);
  const double noises[] = {0.02, 0.15, 0.3, difficulty, difficulty, difficulty};
  Drift drift[kSignals], hollow;
  for (int s = 0; s < steps; ++s) {
    const double t = s * kStepS;
    double mode = 0, radiation = 0, brake = 0;
    for (const Burst& burst : bursts) {
      mode += burst.mode * Rise(t, burst.begin, burst.end, 0.03);
      radiation += burst.radiation * Rise(t, burst.begin - 0.03, burst.end, 0.02);
    }
    if (disrupted && t > onset) {
      // From 0 to `top` in 1.8 growths.
      brake = top * std::min(1.0, 0.2 * std::expm1((t - onset) / growth));
      radiation += 1.25 * Rise(t, onset + lag, length, 0.04);
    }
    const double ramp = std::min(1.0, t / 0.05);
    const double rotation = 2 + level[kRotation] + mode - brake;
    mode += brake;
    const double means[] = {ramp * (2 + 0.3 * level[kCurrent]), ramp * (3 + level[kDensity]),
                            ramp * (5 + level[kHeating]),       2 + level[kRadiation] + radiation,
                            mode + 0.5 * level[kMode],          rotation};
    shot.time.push_back(t);
    for (int i = 0; i < kSignals; ++i) {
      const double noise = 0.7 * drift[i].Next(numbers) + 0.7 * numbers.Normal();
      shot.signals[i].push_back(static_cast<float>(means[i] + noises[i] * noise));
    }
    // Peaked; the mode flattens it in the middle.
    const double flat = 0.15 * std::abs(mode) + 0.1 * hollow.Next(numbers);
    for (int p = 0; p < points; ++p) {
      const double r = points == 1 ? 0 : static_cast<double>(p) / (points - 1);
      const double peak = (1 - r * r) * (1 - flat * std::exp(-8 * r * r));
      shot.temperature.push_back(
          static_cast<float>(means[kCurrent] * peak + 0.1 * numbers.Normal()));
    }
  }
  return shot;
}

absl::Status Write(const std::string& path, MadeShot shot, int points) {
  const auto steps = static_cast<int64_t>(shot.time.size());
  std::vector<NamedTensor> tensors = {
      {"time", {shot.time.data(), Shape({steps}), DType::kF64}},
      {"event", {&shot.event, Shape({1}), DType::kF64}},
      {"temperature", {shot.temperature.data(), Shape({steps, points}), DType::kF32}}};
  for (int i = 0; i < kSignals; ++i) {
    tensors.push_back({kNames[i], {shot.signals[i].data(), Shape({steps}), DType::kF32}});
  }
  return WriteNpz(path, tensors);
}

absl::Status WriteAll(const std::string& folder) {
  const double share = absl::GetFlag(FLAGS_disrupted);
  const int points = absl::GetFlag(FLAGS_points);
  const auto seed = static_cast<uint64_t>(absl::GetFlag(FLAGS_seed));
  for (const auto& [set, count] : {std::pair("train", absl::GetFlag(FLAGS_train)),
                                   std::pair("test", absl::GetFlag(FLAGS_test))}) {
    RETURN_IF_ERROR(MakeFolder(absl::StrCat(folder, "/", set)));
    for (int i = 0; i < count; ++i) {
      // So many of the first i + 1: the share is exact, and which ones is spread evenly.
      const bool disrupted = FloorOfProduct((i + 1) * share) > FloorOfProduct(i * share);
      const std::string name = absl::StrFormat("%s/shot_%05d.npz", set, i);
      RETURN_IF_ERROR(
          Write(folder + "/" + name,
                Make(Numbers(RandomKey(seed, name)), disrupted, absl::GetFlag(FLAGS_difficulty),
                     absl::GetFlag(FLAGS_shot_steps), points),
                points));
    }
  }
  const std::string note = absl::StrFormat(
      "Synthetic: made up by make_shots --train=%d --test=%d --disrupted=%g --difficulty=%g "
      "--shot_steps=%d --points=%d --seed=%d\n",
      absl::GetFlag(FLAGS_train), absl::GetFlag(FLAGS_test), share, absl::GetFlag(FLAGS_difficulty),
      absl::GetFlag(FLAGS_shot_steps), points, absl::GetFlag(FLAGS_seed));
  return WriteText(folder + "/SYNTHETIC", note);
}

absl::Status Check() {
  for (const auto& [flag, got, least, most] :
       {std::tuple("train", absl::GetFlag(FLAGS_train), 1, 100'000),
        std::tuple("test", absl::GetFlag(FLAGS_test), 1, 100'000),
        std::tuple("shot_steps", absl::GetFlag(FLAGS_shot_steps), 100, 1'000'000),
        std::tuple("points", absl::GetFlag(FLAGS_points), 1, 1000)}) {
    RETURN_IF_ERROR(
        CheckValue(got >= least && got <= most, flag, got, absl::StrCat(least, " to ", most)));
  }
  const double share = absl::GetFlag(FLAGS_disrupted), difficulty = absl::GetFlag(FLAGS_difficulty);
  RETURN_IF_ERROR(CheckValue(share >= 0 && share <= 1, "disrupted", share, "0 to 1"));
  return CheckValue(difficulty > 0 && difficulty < 1e9, "difficulty", difficulty,
                    "a number above 0");
}

}  // namespace
}  // namespace gyre

int main(int argc, char** argv) {
  return gyre::RunMaker(
      argc, argv, gyre::kUsage, gyre::kGroups,
      {"synthetic shots", FLAGS_out, FLAGS_train, FLAGS_test, gyre::Check, gyre::WriteAll});
}
