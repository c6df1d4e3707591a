#include "engine/training/predict/trained_net.h"

#include "absl/strings/str_cat.h"
#include "engine/runtime/check.h"

namespace gyre {

absl::StatusOr<TrainedNet> LoadTrained(const Parsed<NetConfig>& net, const ModelOptions& options,
                                       const TensorFile& tensors, const std::string& path,
                                       Device& device, ProcessGroup& communication) {
  auto plan = PlanModel(net, options);
  if (absl::IsResourceExhausted(plan.status())) {
    return absl::ResourceExhaustedError(
        absl::StrCat(plan.status().message(), "; lower test_batch, which is ", options.test_batch,
                     " (--set test_batch=...)"));
  }
  RETURN_IF_ERROR(plan.status());
  RETURN_IF_ERROR(Annotate(CheckLoad(*plan, tensors, nullptr), path));
  TrainedNet trained;
  ASSIGN_OR_RETURN(trained.stream, device.NewStream());
  ASSIGN_OR_RETURN(trained.model, Model::Create(*std::move(plan), device, *trained.stream));
  RETURN_IF_ERROR(Annotate(trained.model->Load(*trained.stream, tensors, nullptr), path));
  ASSIGN_OR_RETURN(const std::string digest, trained.model->Sha256OfWeights(*trained.stream));
  RETURN_IF_ERROR(communication.CheckEqual("the weights", digest));
  trained.unknown = trained.model->Unknown(tensors);
  return trained;
}

}  // namespace gyre
