// run_on_threads.h: samples in memory, a run on them whose ranks are threads, and what it leaves.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "engine/data/files/atomic_file.h"
#include "engine/data/tensors/tensor_file.h"
#include "engine/training/run/trainer.h"
#include "tests/distributed/process_group_ranks.h"

namespace gyre {

class SamplesInMemory : public Dataset {
 public:
  explicit SamplesInMemory(int64_t samples) : samples_(samples) {}

  // Adds an array.  Element `at` of all samples, one after the other, is value(at).
  template <typename T>
  void Add(const std::string& input, const Shape& shape,
           const std::function<double(int64_t at)>& value) {
    arrays_.push_back({.input = input, .file = input, .shape = shape, .dtype = kDTypeOf<T>});
    const int64_t elements = samples_ * shape.elements();
    T* const values = reinterpret_cast<T*>(
        values_.emplace_back(static_cast<size_t>(elements) * sizeof(T)).data());
    for (int64_t at = 0; at < elements; ++at) values[at] = static_cast<T>(value(at));
  }
  template <typename T>
  const T* Values(size_t array) const {
    return reinterpret_cast<const T*>(values_[array].data());
  }

  int64_t size() const override { return samples_; }
  const std::vector<DataArray>& arrays() const override { return arrays_; }
  absl::StatusOr<Tensor> Read(int64_t index, size_t array, SampleMemory&,
                              const std::optional<SampleDraw>&) const override {
    Tensor sample{nullptr, arrays_[array].shape, arrays_[array].dtype};
    sample.data =
        const_cast<std::byte*>(values_[array].data()) + static_cast<size_t>(index) * sample.bytes();
    return sample;
  }

 private:
  const int64_t samples_;
  std::vector<DataArray> arrays_;
  std::vector<std::vector<std::byte>> values_;  // by array
};

struct RunOnThreads {
  const Parsed<TrainerConfig>& trainer;
  const Parsed<NetConfig>& net;
  std::function<std::unique_ptr<Dataset>()> data;
  TrainingOptions options = {};
  int ranks = 1;
  std::vector<int> hosts = {};  // by rank; empty: all are on one
  size_t sim_bytes = 0;         // of the device; 0: it is the CPU
};

// By rank, the digest, or why there is none.
inline std::vector<absl::StatusOr<std::string>> TrainOnThreads(const RunOnThreads& of) {
  std::vector<absl::StatusOr<std::string>> digests(static_cast<size_t>(of.ranks));
  RunRanksOn(
      of.trainer.message->distributed().allreduce(), of.ranks, 20'000,
      [&](ProcessGroup& communication) {
        const auto device = of.sim_bytes > 0
                                ? NewSimDevice({.threads = 1, .capacity_bytes = of.sim_bytes})
                                : NewCpuDevice({.threads = 1});
        const Primitives primitives(device->kind(), 1);
        RunData data{of.data(), nullptr, {}};
        data.feed = *FeedOf(of.net, of.trainer, data.train.get(), nullptr);
        const auto run = Trainer::Prepare(of.trainer, of.net, std::move(data), *device, primitives,
                                          communication, of.options);
        digests[communication.rank()] = run.ok() ? (*run)->Run() : run.status();
      },
      of.hosts);
  return digests;
}

inline std::string StepFolder(const std::string& out, int64_t step) {
  return absl::StrFormat("%s/checkpoints/step_%08d", out, step);
}

using TensorValues = std::map<std::string, std::vector<double>>;  // by tensor

inline TensorValues ValuesOf(const TensorFile& file) {
  TensorValues weights;
  for (const auto& [name, tensor] : file.tensors()) {
    const double* const values = tensor.as<double>();
    weights[name].assign(values, values + tensor.elements());
  }
  return weights;
}

// The numbers of these names in each line of metrics.jsonl.
inline std::vector<std::vector<double>> NumbersOf(const std::string& out,
                                                  const std::vector<std::string>& names) {
  std::vector<std::vector<double>> lines;
  const std::string text = *ReadFile(out + "/metrics.jsonl");
  for (const auto line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    const auto json = nlohmann::json::parse(line);
    auto& numbers = lines.emplace_back();
    for (const std::string& name : names) numbers.push_back(json.at(name).get<double>());
  }
  return lines;
}

}  // namespace gyre
