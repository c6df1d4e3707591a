#include "engine/training/predict/trained_net.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/runtime/check.h"
#include "engine/runtime/primitives/primitives.h"
#include "engine/training/feed/feed_of.h"
#include "engine/training/model/weights_match.h"

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
                                       Device& device, ProcessGroup& communication,
                                       const std::string& batch_flag) {
  auto trained = LoadTrained(net, options, tensors, path, device);
  if (absl::IsResourceExhausted(trained.status())) {
    return absl::ResourceExhaustedError(absl::StrCat(
        trained.status().message(), "; lower ", batch_flag.empty() ? "test_batch" : batch_flag,
        ", which is ", options.test_batch, batch_flag.empty() ? " (--set test_batch=...)" : ""));
  }
  RETURN_IF_ERROR(trained.status());
  ASSIGN_OR_RETURN(const std::string digest, trained->model->Sha256OfWeights(*trained->stream));
  RETURN_IF_ERROR(communication.CheckEqual("the weights", digest));
  return trained;
}

absl::StatusOr<TensorFile> RenameToNet(const Parsed<NetConfig>& net, const TrainerConfig& trainer,
                                       const TensorFile& file, const std::string& map) {
  const Primitives primitives(DeviceKind::kCpu, /*threads=*/1);
  ASSIGN_OR_RETURN(const ModelPlan plan,
                   PlanModel(net, {.train = false,
                                   .shape = ShapeOf(trainer, *net.message, /*rank=*/0, /*ranks=*/1),
                                   .test_batch = 1,
                                   .test_samples = 1,
                                   .feed = FeedOfBytes(*net.message),
                                   .primitives = &primitives}));
  ASSIGN_OR_RETURN(WeightsMatch match, MatchWeights(file, map, plan.parameters, /*partial=*/true));
  return std::move(match.tensors);
}

}  // namespace gyre
