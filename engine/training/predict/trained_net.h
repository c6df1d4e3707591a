// trained_net.h: a net with trained weights on a device, for tests and predictions.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "distributed/process_group.h"
#include "engine/data/tensors/tensor_file.h"
#include "engine/training/model/model.h"
#include "models/schema/parse.h"
#include "models/schema/trainer.pb.h"

namespace gyre {

struct TrainedNet {
  std::unique_ptr<Stream> stream;
  std::unique_ptr<Model> model;  // its testing nets.  Outlived by the stream
  std::string unknown;           // text for people about tensors that no parameter uses, or ""
};

// Plans `net` for one rank's `options`, allocates it on `device` and loads the tensors.  net and
// device must outlive the result.
// Errors: those of PlanModel, and of CheckLoad and Load with `path`, which the tensors are from.
absl::StatusOr<TrainedNet> LoadTrained(const Parsed<NetConfig>& net, const ModelOptions& options,
                                       const TensorFile& tensors, const std::string& path,
                                       Device& device);

// Likewise on all ranks, which have the tensors alike.  communication must outlive the result.
// Errors: also those of communication.  ResourceExhausted says to lower the batch, by
// `batch_flag`, or else the text's test_batch.
absl::StatusOr<TrainedNet> LoadTrained(const Parsed<NetConfig>& net, const ModelOptions& options,
                                       const TensorFile& tensors, const std::string& path,
                                       Device& device, ProcessGroup& communication,
                                       const std::string& batch_flag = "");

// The tensors of `file` under the names of `net`, which only infers, by `map` of MatchWeights.
// Errors: those of PlanModel and MatchWeights.
absl::StatusOr<TensorFile> RenameToNet(const Parsed<NetConfig>& net, const TrainerConfig& trainer,
                                       const TensorFile& file, const std::string& map);

}  // namespace gyre
