// net_rank.h: one rank's training net with a batch in host memory, to be run by hand.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/training/metrics/metrics.h"
#include "engine/training/model/model.h"
#include "engine/training/step/input_upload.h"
#include "engine/training/step/step_buffer.h"
#include "models/schema/parse.h"

namespace gyre {

// The net of these layers over inputs "image" [6, 5, 2] and "label", of kNetClasses classes.
inline constexpr int kNetClasses = 4;
Parsed<NetConfig> ParseLayers(const std::string& layers);

// Those of this name, which must be there.
const NetValue& ValueNamed(const NetSpec& net, const std::string& name);
const NetNode& NodeNamed(const NetSpec& net, const std::string& name);

class NetRank {
 public:
  // Sample i of the global batch is the same however the batch is split.
  explicit NetRank(const std::string& layers, DType dtype = DType::kF64, int64_t batch = 5,
                   std::unique_ptr<Device> device = NewCpuDevice({}), int rank = 0, int ranks = 1);

  using BucketAction = std::function<absl::Status(int bucket)>;
  // The local sums of losses and metrics after one forward pass.  A statistic is what the one rank
  // has of it, where nobody sums it.
  std::vector<Metric> Forward(const Net::SumStatistic& sum = LeaveStatistic,
                              const BucketAction& bucket_needed = nullptr);
  double Loss() { return TotalLoss(Forward()); }
  // The buckets, as they were finished.
  std::vector<int> Backward(const Net::SumStatistic& sum = LeaveStatistic,
                            const BucketAction& bucket_ready = nullptr);

  // Of the last Backward.
  const std::vector<std::byte>& GradientBytes(int parameter);
  std::vector<double> Gradient(size_t parameter);

  Device& device() { return *device_; }
  Stream& stream() { return *stream_; }
  Model& model() { return *model_; }
  const Batch& batch() { return batch_; }
  const Net& net() { return model_->train(); }
  const NetSpec& spec() { return net().plan().spec; }
  std::span<const Parameter> parameters() { return model_->plan().parameters.all(); }
  Tensor parameter(size_t index) {
    return net().parameter(static_cast<int>(index), model_->plan().parameters);
  }

 private:
  static absl::Status LeaveStatistic(Stream&, absl::string_view, Tensor) {
    return absl::OkStatus();
  }
  // The steps of the net's program before the losses' gradients, or from there on.
  absl::Status Run(bool backward, const Net::SumStatistic& sum, const BucketAction& of_bucket);
  void MakeBatch(DType dtype);
  void KeepGradients(int bucket);

  const Parsed<NetConfig> config_;
  const std::unique_ptr<Device> device_;
  const Primitives primitives_;
  const Share share_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Model> model_;
  std::optional<StepBuffer> buffer_;
  std::optional<InputUpload> upload_;
  std::vector<std::byte> images_;
  std::map<int, std::vector<std::byte>> gradients_;  // by parameter
  std::vector<int32_t> labels_;
  Batch batch_;
};

inline constexpr char kConvNet[] = R"(
  layer { name: "conv" conv2d { filters: 3 kernel: 3 padding: 1 } }
  layer { name: "relu" relu { negative_slope: 0.1 } }
  layer { name: "drop" dropout { rate: 0.3 } }
  layer { name: "pool" pool2d { kind: AVERAGE kernel: 2 } }
  layer { name: "flat" flatten {} }
  layer { name: "fc" dense { outputs: 4 } }
  layer { name: "loss" input: "fc" input: "label" softmax_cross_entropy {} }
  layer { name: "acc" input: "fc" input: "label" accuracy {} })";

// Two heads on one trunk, one of them through another layer, and three losses.
inline constexpr char kForkedNet[] = R"(
  layer { name: "flat" flatten {} }
  layer { name: "trunk" dense { outputs: 6 } }
  layer { name: "relu" relu { negative_slope: 0.2 } }
  layer { name: "a" input: "relu" dense { outputs: 4 } }
  layer { name: "loss_a" input: "a" input: "label" softmax_cross_entropy {} }
  layer { name: "b1" input: "relu" dense { outputs: 5 } }
  layer { name: "b2" dense { outputs: 4 } }
  layer { name: "loss_b" input: "b2" input: "label" softmax_cross_entropy { loss_weight: 0.3 } }
  layer { name: "c" input: "trunk" dense { outputs: 4 } }
  layer { name: "loss_c" input: "c" input: "label"
          softmax_cross_entropy { loss_weight: 2 ignore_label: 1 } }
  layer { name: "loss_a2" input: "a" input: "label" softmax_cross_entropy { loss_weight: 0.5 } })";

// Parts of sequences, as views where samples lie along axis 1 (K x 5 x 4 doubles are whole lines of
// memory): one that nobody reads, one with two readers, a part of a part; and one copied.
inline constexpr char kPartedNet[] = R"(
  layer { name: "flat" flatten {} }
  layer { name: "fc" dense { outputs: 60 } }
  layer { name: "rows" reshape { dims: [15, 4] } }
  layer { name: "sequence" transpose { axes: [1, 0, 2] } }
  layer { name: "parts" split { axis: 0 sizes: [2, 4, 9] } }
  layer { name: "relu" input: "parts" relu { negative_slope: 0.2 } }
  layer { name: "inner" input: "parts:2" slice { axis: 0 begin: 2 end: 8 } }
  layer { name: "both" input: "relu" input: "inner" input: "parts:2" concat { axis: 0 } }
  layer { name: "back" transpose { axes: [1, 0, 2] } }
  layer { name: "wide" slice { axis: 2 begin: 1 } }
  layer { name: "flat2" flatten {} }
  layer { name: "out" dense { outputs: 4 } }
  layer { name: "loss" input: "out" input: "label" softmax_cross_entropy {} })";

// Values side by side along axis 0, in lines of memory again: one that is worked on in place before
// and comes twice, one that another reads as well, and parts that lie in something else already.
inline constexpr char kJoinedNet[] = R"(
  layer { name: "flat" flatten {} }
  layer { name: "fc" dense { outputs: 24 } }
  layer { name: "rows" reshape { dims: [3, 8] } }
  layer { name: "sequence" transpose { axes: [1, 0, 2] } }
  layer { name: "a" dense { outputs: 8 } }
  layer { name: "relu" relu { negative_slope: 0.2 } }
  layer { name: "b" input: "sequence" dense { outputs: 8 } }
  layer { name: "joined" input: ["relu", "b", "relu"] concat { axis: 0 } }
  layer { name: "parts" split { axis: 0 sizes: [4, 5] } }
  layer { name: "swapped" input: "parts:1" input: "parts" concat { axis: 0 } }
  layer { name: "low" dense { outputs: 8 } }
  layer { name: "high" input: "b" dense { outputs: 8 } }
  layer { name: "all" input: "low" input: "high" concat { axis: 0 } }
  layer { name: "back" transpose { axes: [1, 0, 2] } }
  layer { name: "flat2" flatten {} }
  layer { name: "out" dense { outputs: 4 } }
  layer { name: "loss" input: "out" input: "label" softmax_cross_entropy {} })";

// One weight for three layers, two of them on one path.
inline constexpr char kSharedNet[] = R"(
  layer { name: "flat" flatten {} }
  layer { name: "fc" dense { outputs: 6 } }
  layer { name: "a" dense { outputs: 6 weight { name: "w" } } }
  layer { name: "b" dense { outputs: 6 weight { name: "w" } bias { name: "c" } } }
  layer { name: "d" input: "fc" dense { outputs: 6 weight { name: "w" } bias { name: "c" } } }
  layer { name: "sum" input: "b" input: "d" add {} }
  layer { name: "out" dense { outputs: 4 } }
  layer { name: "loss" input: "out" input: "label" softmax_cross_entropy {} })";

// Statistics over ranks in forward and in backward.
inline constexpr char kNormNet[] = R"(
  layer { name: "conv" conv2d { filters: 3 kernel: 3 use_bias: false } }
  layer { name: "norm" batch_norm { synchronised: true } }
  layer { name: "relu" relu {} }
  layer { name: "flat" flatten {} }
  layer { name: "out" dense { outputs: 4 } }
  layer { name: "loss" input: "out" input: "label" softmax_cross_entropy {} })";

}  // namespace gyre
