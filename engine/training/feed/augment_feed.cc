#include "engine/training/feed/augment_feed.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace gyre {
namespace {

PixelChanges ChangesOf(const AugmentationConfig& config) {
  const AugmentationConfig::ColorJitter& color = config.color();
  PixelChanges changes{.rotate = config.rotate(),
                       .brightness = color.brightness(),
                       .contrast = color.contrast(),
                       .saturation = color.saturation(),
                       .hue = color.hue(),
                       .gray = config.gray(),
                       .noise = config.noise(),
                       .lighting = config.lighting()};
  if (config.has_blur()) {
    changes.blur = config.blur().probability();
    changes.least_sigma = config.blur().least_sigma();
    changes.most_sigma = config.blur().most_sigma();
  }
  if (config.has_erase()) {
    changes.erase = config.erase().probability();
    changes.least_area = config.erase().least_area();
    changes.most_area = config.erase().most_area();
    changes.least_aspect = config.erase().least_aspect();
  }
  return changes;
}

// The image input, and labels that are as high and wide.
std::vector<std::string> PicturesAndMasks(FeedDraft& draft) {
  const std::string &image_input = draft.data.image_input(),
                    &label_input = draft.data.label_input();
  const FedInput *const image = draft.FedOf(image_input), *const label = draft.FedOf(label_input);
  if (image == nullptr || label == nullptr || !label->label) return {image_input};
  const auto &pixels = draft.Dims(*image), &mask = draft.Dims(*label);
  const bool fits =
      pixels.size() == 3 && mask.size() == 2 && mask[0] == pixels[0] && mask[1] == pixels[1];
  if (!fits) return {image_input};
  return {image_input, label_input};
}

// Labels and weights are mixed as reals.
absl::Status SetMixing(FeedDraft& draft, const AugmentationConfig& config) {
  if (config.has_mixup()) {
    draft.feed.mixing.mixup = config.mixup().probability();
    draft.feed.mixing.mixup_alpha = config.mixup().alpha();
  }
  if (config.has_cutmix()) {
    draft.feed.mixing.cutmix = config.cutmix().probability();
    draft.feed.mixing.cutmix_alpha = config.cutmix().alpha();
  }
  if (!draft.feed.mixing.any()) return absl::OkStatus();
  for (FedInput& fed : draft.feed.inputs) fed.mixed = fed.classes > 0 || fed.weight;
  const FedInput* const target = draft.FedOf(draft.data.label_input());
  if (target != nullptr && target->classes > 0) return absl::OkStatus();
  const char* const field = config.has_mixup() ? "mixup" : "cutmix";
  return draft.Error(config, field,
                     "data.augmentation.%s mixes labels, so the net's input \"%s\" has to be REAL "
                     "with a value for each class; write input { name: \"%s\" dims: CLASSES } in "
                     "the net, for softmax_cross_entropy",
                     field, draft.data.label_input(), draft.data.label_input());
}

absl::Status MixInput(FeedDraft& draft, const AugmentationConfig& config, FedInput& fed,
                      bool is_mask, const google::protobuf::RepeatedField<int64_t>& dims) {
  if (is_mask) {
    return draft.Error(config, "input",
                       "data.augmentation: mixup and cutmix mix pictures, but input \"%s\" is a "
                       "mask; leave it out",
                       fed.name);
  }
  fed.mixed = true;
  Mixing& mixing = draft.feed.mixing;
  if (mixing.height > 0 && (mixing.height != dims[0] || mixing.width != dims[1])) {
    return draft.Error(config, "input",
                       "data.augmentation: mixup and cutmix mix pictures of one size, but those of "
                       "\"%s\" are %d by %d, and others %d by %d",
                       fed.name, dims[0], dims[1], mixing.height, mixing.width);
  }
  mixing.height = dims[0];
  mixing.width = dims[1];
  return absl::OkStatus();
}

// A mask is turned as bytes.
absl::Status TurnMask(const FeedDraft& draft, const AugmentationConfig& config,
                      const FedInput& fed) {
  if (draft.feed.changes.rotate == 0 || std::ranges::count(draft.no_bytes, fed.name) == 0) {
    return absl::OkStatus();
  }
  return draft.Error(config, "rotate",
                     "data.augmentation.rotate turns masks of bytes, but those of input \"%s\" are "
                     "no bytes; store them as uint8",
                     fed.name);
}

// Pixels are changed as bytes, with the same number of channels for all inputs.
absl::Status ChangeInput(FeedDraft& draft, const AugmentationConfig& config, const FedInput& fed,
                         int64_t channels) {
  if (fed.pixel_values.empty()) {
    return draft.Error(config, "input",
                       "data.augmentation: pixels are changed as bytes, but those of input \"%s\" "
                       "are no bytes; use flip and shift alone",
                       fed.name);
  }
  std::vector<uint8_t>& erased = draft.feed.changes.erased;
  const bool known = channels == 1 || channels == 3 || channels == 4;
  if (!known || (!erased.empty() && static_cast<int64_t>(erased.size()) != channels)) {
    return draft.Error(config, "input",
                       "data.augmentation: pixels are changed of inputs of 1, 3 or 4 channels, all "
                       "of the same, but \"%s\" has %d",
                       fed.name, channels);
  }
  const std::vector<double>& mean = fed.normalization.mean;
  erased.clear();
  for (int64_t c = 0; c < channels; ++c) {
    const double value = mean[mean.size() > 1 ? static_cast<size_t>(c) : 0];
    erased.push_back(static_cast<uint8_t>(std::lround(255 * std::clamp(value, 0.0, 1.0))));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status AugmentFeed(FeedDraft& draft) {
  const AugmentationConfig& config = draft.data.augmentation();
  draft.feed.augmentation = {.flip = config.flip(), .shift = config.shift()};
  draft.feed.changes = ChangesOf(config);
  RETURN_IF_ERROR(SetMixing(draft, config));
  const bool moves =
      config.flip() || config.shift() > 0 || config.has_random_crop() || draft.feed.changes.any();
  const bool varies = moves || draft.feed.mixing.any();
  std::vector<std::string> names(config.input().begin(), config.input().end());
  if (names.empty() && varies) names = PicturesAndMasks(draft);
  for (const std::string& name : names) {
    ASSIGN_OR_RETURN(FedInput* const found, draft.Find(name, config, "input", "data.augmentation"));
    FedInput& fed = *found;
    fed.augmented = varies;
    const auto& dims = draft.Dims(fed);
    const bool is_mask = fed.label && dims.size() == 2;
    if (!is_mask && (fed.label || dims.size() != 3)) {
      return draft.Error(config, "input",
                         "data.augmentation: expected an input of dims [height, width, channels], "
                         "or a LABEL of [height, width], but \"%s\" has [%s]",
                         name, absl::StrJoin(dims, ", "));
    }
    if (draft.feed.mixing.any()) RETURN_IF_ERROR(MixInput(draft, config, fed, is_mask, dims));
    if (is_mask) {
      RETURN_IF_ERROR(TurnMask(draft, config, fed));
    } else if (draft.feed.changes.any()) {
      RETURN_IF_ERROR(ChangeInput(draft, config, fed, dims[2]));
    }
    if (config.shift() < std::min(dims[0], dims[1])) continue;
    return draft.Error(config, "shift",
                       "data.augmentation.shift must be less than the height and width of input "
                       "\"%s\", %d and %d, got %d",
                       name, dims[0], dims[1], config.shift());
  }
  return absl::OkStatus();
}

absl::StatusOr<FedInput*> FeedDraft::Find(const std::string& name,
                                          const google::protobuf::Message& at, const char* field,
                                          const std::string& who) {
  if (FedInput* const fed = FedOf(name)) return fed;
  std::vector<std::string> names;
  for (const FedInput& fed : feed.inputs) names.push_back(fed.name);
  return Error(at, field, "%s: the net has no input \"%s\"; it has \"%s\"", who, name,
               absl::StrJoin(names, "\", \""));
}

FedInput* FeedDraft::FedOf(const std::string& name) {
  const auto found = std::ranges::find(feed.inputs, name, &FedInput::name);
  return found == feed.inputs.end() ? nullptr : &*found;
}

}  // namespace gyre
