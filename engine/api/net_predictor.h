// net_predictor.h: a trained net that computes batches from a program's memory.  Each number of
// samples has a testing net, planned at its first call, over one set of parameters.  Used by one
// thread at a time.
#pragma once

#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/api/array_list.h"
#include "engine/api/fed_batch.h"
#include "engine/api/opened_device.h"
#include "engine/data/sets/picture_input.h"
#include "engine/training/model/weights.h"
#include "engine/training/predict/prediction_net.h"
#include "engine/training/predict/trained_net.h"
#include "engine/training/step/test_iteration.h"

namespace gyre {

struct NetPredictorOptions {
  int64_t max_batch = 1;
  DeviceWish device = {};
  std::vector<std::string> outputs = {};  // layers.  Empty: what the losses read
};

class NetPredictor {
 public:
  // `path` is for ReadWeights.  Plans for max_batch.
  // Errors: those of ReadWeights, OpenWished, PreparePrediction, FoldBatchNorms and LoadTrained.
  static absl::StatusOr<std::unique_ptr<NetPredictor>> Open(const std::string& path,
                                                            const NetPredictorOptions& options);

  const ArrayList& arrays() const { return *arrays_; }
  // Errors: those of ArrayList::Match, Decoder::Decode and layers, and of planning.
  absl::Status Run(int64_t samples, const gyre_array* given, size_t count);
  // The next Run begins with rows of zeros in layers that carry rows from batch to batch.
  void ClearCarried() { carried_samples_ = 0; }

  // Both write a sample of the input `name`.  Errors: InvalidArgument for an input that is no
  // picture, or another size, and those of FillInput.
  absl::Status FitPicture(const char* name, const Pixels& pixels, uint8_t* to, size_t bytes);
  absl::Status DecodePicture(const char* name, std::string_view file, uint8_t* to, size_t bytes);

 private:
  // The net of a number of samples, with what it needs to run.
  struct SizedNet {
    const Net* net;
    TestIteration iteration;
    FedBatch fed;
    std::vector<int> recorders;  // by prediction: the node that records it
  };

  NetPredictor() = default;
  absl::Status Plan(const NetPredictorOptions& options);
  absl::StatusOr<SizedNet*> SizedFor(int64_t samples);
  absl::Status Give(const SizedNet& sized, std::span<const gyre_array* const> given) const;
  // Finds the input, and checks the bytes of a sample.
  absl::StatusOr<const PictureInput*> PictureOf(const char* name, const uint8_t* to, size_t bytes);

  int64_t max_batch_ = 1;
  Weights weights_;  // without tensors once the net has them
  Parsed<TrainerConfig> trainer_;
  Parsed<NetConfig> net_;
  std::vector<Prediction> predictions_;
  std::optional<ArrayList> arrays_;
  std::vector<std::optional<PictureInput>> pictures_;  // by input, those that are pictures
  SampleMemory picture_memory_;
  OpenedDevice device_;
  TrainedNet trained_;
  std::list<SizedNet> sized_;    // after the model and the device
  int64_t carried_samples_ = 0;  // samples of the rows that layers carry.  0: none
};

}  // namespace gyre
