#include "engine/training/predict/trained_net.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/runtime/check.h"

namespace gyre {

absl::StatusOr<TrainedNet> LoadTrained(const Parsed<NetConfig>& net, const ModelOptions& options,
                                       const TensorFile& tensors, const std::string& path,
                                       Device& device) {
  ASSIGN_OR_RETURN(ModelPlan plan, PlanModel(net, options));
  RETURN_IF_ERROR(Annotate(CheckLoad(plan, tensors, nullptr), path));
  TrainedNet trained;
  ASSIGN_OR_RETURN(trained.stream, device.NewStream());
  ASSIGN_OR_RETURN(trained.model, Model::Create(std::move(plan), device, *trained.stream));
  RETURN_IF_ERROR(Annotate(trained.model->Load(*trained.stream, tensors, nullptr), path));
  trained.unknown = trained.model->Unknown(tensors);
  return trained;
}

absl::StatusOr<TrainedNet> LoadTrained(const Parsed<NetConfig>& net, const ModelOptions& options,
                                       const TensorFile& tensors, const std::string& path,
                                       Device& device, ProcessGroup& communication) {
  auto trained = LoadTrained(net, options, tensors, path, device);
  if (absl::IsResourceExhausted(trained.status())) {
    return absl::ResourceExhaustedError(
        absl::StrCat(trained.status().message(), "; lower test_batch, which is ",
                     options.test_batch, " (--set test_batch=...)"));
  }
  RETURN_IF_ERROR(trained.status());
  ASSIGN_OR_RETURN(const std::string digest, trained->model->Sha256OfWeights(*trained->stream));
  RETURN_IF_ERROR(communication.CheckEqual("the weights", digest));
  return trained;
}

}  // namespace gyre
