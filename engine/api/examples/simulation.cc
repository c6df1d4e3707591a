// simulation.cc: trains on data that a simulation makes, batch by batch, and predicts with the net.
//
//   simulation [FOLDER]
//
// A damped oscillator swings from a random start.  The net learns where it is two seconds later.
// FOLDER gets checkpoints, and oscillator.gyre.

#include <cmath>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "gyre/gyre.h"

namespace {

constexpr char kNet[] = R"(
  name: "oscillator"
  input { name: "start" dims: 2 }
  input { name: "later" dims: 1 }
  layer { name: "fc1" input: "start" dense { outputs: 32 } }
  layer { name: "tanh" tanh {} }
  layer { name: "position" dense { outputs: 1 } }
  layer { name: "loss" input: ["position", "later"] mean_squared_error {} }
)";

constexpr char kTrainer[] = R"(
  batch: 64
  steps: 600
  optimizer { adam {} }
  learning_rate { base: 0.01 cosine {} }
)";

// Position and speed after `seconds`, by steps of a millisecond.
void Swing(double seconds, double& position, double& speed) {
  constexpr double kStep = 0.001, kSpring = 4, kDamping = 0.3;
  for (double t = 0; t < seconds; t += kStep) {
    speed += kStep * (-kSpring * position - kDamping * speed);
    position += kStep * speed;
  }
}

int Fail(const gyre::Status& status) {
  std::fprintf(stderr, "error: %s\n", status.message().c_str());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string folder = argc > 1 ? argv[1] : "oscillator";
  gyre::TrainingRunOptions options;
  options.trainer_text = kTrainer;
  options.net_text = kNet;
  options.out = folder;
  options.threads = 1;
  options.on_metrics = [](const gyre::StepMetrics& metrics) {
    if (!metrics.is_test && metrics.step % 100 != 0) return;
    std::printf("step %lld  %sloss %.5f\n", static_cast<long long>(metrics.step),
                metrics.is_test ? "test " : "", metrics.values.front().second);
  };
  gyre::TrainingRun run;
  if (const gyre::Status opened = run.Open(options); !opened.ok()) return Fail(opened);

  std::mt19937 random(1);
  std::uniform_real_distribution<double> any(-1, 1);
  const auto batch = static_cast<size_t>(run.batch());
  std::vector<float> start(2 * batch), later(batch);
  const auto simulate = [&] {
    for (size_t i = 0; i < batch; ++i) {
      double position = any(random), speed = any(random);
      start[2 * i] = static_cast<float>(position);
      start[2 * i + 1] = static_cast<float>(speed);
      Swing(2, position, speed);
      later[i] = static_cast<float>(position);
    }
  };
  while (run.steps() < 600) {
    simulate();
    const gyre::Status stepped = run.Step({{"start", start}, {"later", later}});
    if (!stepped.ok()) return Fail(stepped);
  }
  simulate();
  gyre::Status status = run.Test(run.batch(), {{"start", start}, {"later", later}});
  if (!status.ok()) return Fail(status);
  if (status = run.Save(); !status.ok()) return Fail(status);
  const std::string file = folder + "/oscillator.gyre";
  if (status = run.Export(file); !status.ok()) return Fail(status);

  gyre::Predictor predictor;
  if (status = predictor.Open(file); !status.ok()) return Fail(status);
  const float half[] = {0.5f, -0.5f};
  float predicted = 0;
  status = predictor.Run(1, {{"start", half}, {"position", &predicted, 1}});
  if (!status.ok()) return Fail(status);
  double position = 0.5, speed = -0.5;
  Swing(2, position, speed);
  std::printf("simulated %.3f, predicted %.3f\n", position, static_cast<double>(predicted));
  return std::abs(position - static_cast<double>(predicted)) < 0.05 ? 0 : 1;
}
