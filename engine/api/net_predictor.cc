#include "engine/api/net_predictor.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/runtime/check.h"
#include "engine/runtime/count_text.h"
#include "engine/training/feed/feed_of.h"
#include "engine/training/feed/normalization_fit.h"
#include "engine/training/model/fold_batch_norm.h"
#include "engine/training/predict/predict.h"
#include "models/schema/describe.h"

namespace gyre {
namespace {

// A testing net's shape must be countable, and a batch of more is a mistake.
constexpr int64_t kMostSamples = int64_t{1} << 30;

// How files of pictures become the input `input`.
const ImagesConfig& ImagesOf(const DataConfig& source) {
  const DatasetConfig& train = source.train();
  return train.has_records() ? train.records().images() : train.images();
}

std::vector<std::optional<PictureInput>> PicturesOf(const NetConfig& net, const DataConfig& data) {
  std::vector<std::optional<PictureInput>> pictures;
  const std::vector<DataConfig> sources = SourcesOf(data);
  for (const InputConfig& input : net.input()) {
    const auto source = std::ranges::find_if(
        sources, [&](const DataConfig& of) { return of.image_input() == input.name(); });
    auto picture = PictureInputOf(source == sources.end() ? ImagesConfig() : ImagesOf(*source),
                                  {.name = input.name(),
                                   .dims = {input.dims().begin(), input.dims().end()},
                                   .label = input.type() == InputConfig::LABEL},
                                  /*augmentation=*/{});
    pictures.push_back(picture.ok() ? std::optional(*std::move(picture)) : std::nullopt);
  }
  return pictures;
}

}  // namespace

absl::StatusOr<std::unique_ptr<NetPredictor>> NetPredictor::Open(
    const std::string& path, const NetPredictorOptions& options) {
  if (options.max_batch < 0 || options.max_batch > kMostSamples) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "max_batch: expected 1 to %d, or 0 for 1, got %d", kMostSamples, options.max_batch));
  }
  std::unique_ptr<NetPredictor> predictor(new NetPredictor);
  predictor->max_batch_ = std::max<int64_t>(options.max_batch, 1);
  if (path.empty()) return absl::InvalidArgumentError("path: is empty");
  ASSIGN_OR_RETURN(predictor->weights_, ReadWeights(path, /*named_by=*/""));
  RETURN_IF_ERROR(predictor->Plan(options));
  return predictor;
}

absl::Status NetPredictor::Plan(const NetPredictorOptions& options) {
  const RunTexts& texts = weights_.texts;
  if (texts.net.empty() || texts.trainer.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        weights_.path,
        ": has no texts of a net and its trainer; open a run, a checkpoint or a .gyre"));
  }
  ASSIGN_OR_RETURN(trainer_, ParseTrainerText(texts.trainer, weights_.path));
  ASSIGN_OR_RETURN(net_, ParseNetText(texts.net, weights_.path));
  DataConfig& data = *trainer_.message->mutable_data();
  ASSIGN_OR_RETURN(predictions_,
                   PreparePrediction(options.outputs, /*kept=*/"", weights_.fit, data, net_));
  RETURN_IF_ERROR(FoldBatchNorms(net_, weights_));
  if (std::ranges::find(net_.message->input(), data.image_input(), &InputConfig::name) ==
      net_.message->input().end()) {
    data.clear_image_input();
  }
  if (HasAuto(data) && !weights_.fit.contains(kNormalizationFile)) {
    return absl::InvalidArgumentError(
        absl::StrCat(weights_.path, ": lacks the normalization of its training samples"));
  }
  const auto normalization = weights_.fit.find(kNormalizationFile);
  ASSIGN_OR_RETURN(const Feed feed,
                   FeedOf(net_, trainer_, nullptr, nullptr,
                          normalization == weights_.fit.end() ? "" : normalization->second));
  pictures_ = PicturesOf(*net_.message, data);

  DeviceWish wish = options.device;
  wish.tf32 = trainer_.message->tf32();
  ASSIGN_OR_RETURN(device_, OpenWished(wish));
  const DeviceKind kind = device_.device->kind();
  ASSIGN_OR_RETURN(trained_, LoadTrained(net_,
                                         {.train = false,
                                          .shape = ShapeOf(*trainer_.message, *net_.message, 0, 1),
                                          .test_batch = max_batch_,
                                          .test_samples = max_batch_,
                                          .feed = FeedOn(kind, feed),
                                          .capacity_bytes = device_.device->capacity_bytes(),
                                          .pages = {.planner = PlannerOn(kind)},
                                          .primitives = device_.primitives.get()},
                                         weights_.tensors, weights_.path, *device_.device));
  weights_.tensors = TensorFile();

  const NetPlan& plan = trained_.model->test().front()->plan();
  std::vector<NetArray> arrays = InputArrays(*net_.message);
  ASSIGN_OR_RETURN(SizedNet* const sized, SizedFor(max_batch_));
  const std::vector<std::string> classes = ClassNamesOf(weights_.fit);
  for (size_t p = 0; p < predictions_.size(); ++p) {
    const NetNode& node = plan.spec.nodes[static_cast<size_t>(sized->recorders[p])];
    const NetValue& value = plan.spec.values[static_cast<size_t>(node.inputs.front())];
    NetArray& array =
        arrays.emplace_back(NetArray{.name = predictions_[p].name, .is_output = true});
    for (int axis = 0; axis < value.shape.rank(); ++axis) {
      if (axis != value.batch_axis) array.dims.push_back(value.shape[axis]);
    }
    const bool shares = predictions_[p].kind == Prediction::OutputKind::kClassShares;
    if (shares && !array.dims.empty() &&
        array.dims.back() == static_cast<int64_t>(classes.size())) {
      array.classes = classes;
    }
  }
  arrays_.emplace(std::move(arrays));
  return absl::OkStatus();
}

absl::StatusOr<NetPredictor::SizedNet*> NetPredictor::SizedFor(int64_t samples) {
  for (SizedNet& sized : sized_) {
    if (sized.net->plan().spec.shape.global == samples) return &sized;
  }
  Model& model = *trained_.model;
  const bool planned = std::ranges::any_of(model.test(), [samples](const auto& net) {
    return net->plan().spec.shape.global == samples;
  });
  sized_.clear();  // AddTest binds all nets anew
  if (!planned) RETURN_IF_ERROR(model.AddTest(net_, samples, *trained_.stream));
  SizedNet* wanted = nullptr;
  for (size_t n = 0; n < model.test().size(); ++n) {
    const Net& net = *model.test()[n];
    ASSIGN_OR_RETURN(TestIteration iteration,
                     TestIteration::Create(*device_.device, net, model.test_pager(n)));
    ASSIGN_OR_RETURN(FedBatch fed, FedBatch::Create(*device_.device, net.plan()));
    SizedNet& sized = sized_.emplace_back(SizedNet{&net, std::move(iteration), std::move(fed), {}});
    for (const Prediction& prediction : predictions_) {
      sized.recorders.push_back(RecorderOf(net.plan().spec, prediction));
    }
    if (net.plan().spec.shape.global == samples) wanted = &sized;
  }
  return wanted;
}

absl::Status NetPredictor::Run(int64_t samples, const gyre_array* given, size_t count) {
  if (samples < 1 || samples > max_batch_) {
    return absl::InvalidArgumentError(
        absl::StrFormat("samples: expected 1 to %d (max_batch), got %d", max_batch_, samples));
  }
  std::span<const gyre_array* const> arrays;
  RETURN_IF_ERROR(arrays_->Match(samples, given, count, &arrays));
  ASSIGN_OR_RETURN(SizedNet* const sized, SizedFor(samples));
  RETURN_IF_ERROR(sized->fed.Fill(arrays));
  if (carried_samples_ != samples) RETURN_IF_ERROR(sized->net->ClearCarried(*trained_.stream));
  carried_samples_ = 0;
  RETURN_IF_ERROR(sized->iteration.Run(sized->fed.batch(), *trained_.stream));
  carried_samples_ = samples;
  return Give(*sized, arrays.subspan(pictures_.size()));
}

absl::Status NetPredictor::Give(const SizedNet& sized,
                                std::span<const gyre_array* const> given) const {
  for (size_t p = 0; p < given.size(); ++p) {
    if (given[p] == nullptr) continue;
    const Tensor records = sized.iteration.results().records(sized.recorders[p]);
    const std::span values(records.as<double>(), static_cast<size_t>(records.elements()));
    if (!predictions_[p].target.empty()) Unnormalize(predictions_[p].unit, values);
    std::ranges::transform(values, static_cast<float*>(given[p]->data),
                           [](double value) { return static_cast<float>(value); });
  }
  return absl::OkStatus();
}

absl::StatusOr<const PictureInput*> NetPredictor::PictureOf(const char* name, const uint8_t* to,
                                                            size_t bytes) {
  if (name == nullptr) return absl::InvalidArgumentError("input: is null");
  if (to == nullptr) return absl::InvalidArgumentError("to: is null");
  std::vector<std::string> names;
  for (size_t i = 0; i < pictures_.size(); ++i) {
    names.push_back(net_.message->input(static_cast<int>(i)).name());
    if (names.back() != name) continue;
    if (!pictures_[i]) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "\"%s\": takes no pictures, which have dims [height, width, 1, 3 or 4]", name));
    }
    const auto elements = static_cast<size_t>(arrays_->info(i).elements);
    if (bytes == elements) return &*pictures_[i];
    return absl::InvalidArgumentError(
        absl::StrFormat("\"%s\": expected %d bytes to write to, got %d", name, elements, bytes));
  }
  return absl::InvalidArgumentError(Unknown("input", name, names));
}

absl::Status NetPredictor::FitPicture(const char* name, const Pixels& pixels, uint8_t* to,
                                      size_t bytes) {
  ASSIGN_OR_RETURN(const PictureInput* const input, PictureOf(name, to, bytes));
  if (pixels.channels != input->format.channels) {
    return absl::InvalidArgumentError(
        absl::StrFormat("\"%s\": expected pixels of %s, as the input has, got %d", name,
                        Counted(input->format.channels, "channel"), pixels.channels));
  }
  const int64_t most = input->most_pixels;
  if (pixels.height < 1 || pixels.width < 1 || pixels.height > most / pixels.width) {
    return absl::InvalidArgumentError(
        absl::StrFormat("\"%s\": expected a picture of 1 to %d pixels, got height %d and width %d",
                        name, most, pixels.height, pixels.width));
  }
  if (pixels.data == nullptr) return absl::InvalidArgumentError("pixels: is null");
  return FillInput(pixels, *input, /*draw=*/{}, picture_memory_, to);
}

absl::Status NetPredictor::DecodePicture(const char* name, std::string_view file, uint8_t* to,
                                         size_t bytes) {
  ASSIGN_OR_RETURN(const PictureInput* const input, PictureOf(name, to, bytes));
  if (file.data() == nullptr) return absl::InvalidArgumentError("file: is null");
  return Annotate(FillInput(file, *input, /*draw=*/{}, picture_memory_, to), "the file");
}

}  // namespace gyre
