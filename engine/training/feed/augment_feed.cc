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

class FeedAugmenter {
 public:
  FeedAugmenter(const Parsed<NetConfig>& net, const Parsed<TrainerConfig>& trainer,
                std::span<const std::string> no_bytes, Feed& feed)
      : net_(net),
        trainer_(trainer),
        data_(trainer.message->data()),
        no_bytes_(no_bytes),
        feed_(feed) {}

  absl::Status Augment() {
    const AugmentationConfig& config = data_.augmentation();
    feed_.augmentation = {.flip = config.flip(), .shift = config.shift()};
    feed_.changes = ChangesOf(config);
    RETURN_IF_ERROR(Mix(config));
    const bool moves =
        config.flip() || config.shift() > 0 || config.has_random_crop() || feed_.changes.any();
    const bool varies = moves || feed_.mixing.any();
    std::vector<std::string> names(config.input().begin(), config.input().end());
    if (names.empty() && varies) names = PicturesAndMasks();
    for (const std::string& name : names) {
      ASSIGN_OR_RETURN(const size_t input, Find(name, config, "input", "data.augmentation"));
      FedInput& fed = feed_.inputs[input];
      fed.augmented = varies;
      const auto& dims = Dims(input);
      const bool is_mask = fed.label && dims.size() == 2;
      if (!is_mask && (fed.label || dims.size() != 3)) {
        return Error(
            config, "input",
            absl::StrFormat("data.augmentation: expected an input of dims [height, width, "
                            "channels], or a LABEL of [height, width], but \"%s\" has [%s]",
                            name, absl::StrJoin(dims, ", ")));
      }
      if (feed_.mixing.any()) RETURN_IF_ERROR(MixInput(config, fed, is_mask, dims));
      if (is_mask) {
        RETURN_IF_ERROR(TurnMask(config, fed));
      } else if (feed_.changes.any()) {
        RETURN_IF_ERROR(ChangeInput(config, fed, dims[2]));
      }
      if (config.shift() < std::min(dims[0], dims[1])) continue;
      return Error(config, "shift",
                   absl::StrFormat("data.augmentation.shift must be less than the height and width "
                                   "of input \"%s\", %d and %d, got %d",
                                   name, dims[0], dims[1], config.shift()));
    }
    return absl::OkStatus();
  }

 private:
  const google::protobuf::RepeatedField<int64_t>& Dims(size_t input) const {
    return net_.message->input(static_cast<int>(input)).dims();
  }

  // The image input, and labels that are as high and wide.
  std::vector<std::string> PicturesAndMasks() const {
    std::vector<std::string> names = {data_.image_input()};
    const auto image = std::ranges::find(feed_.inputs, data_.image_input(), &FedInput::name);
    if (image == feed_.inputs.end()) return names;
    const auto& of_image = Dims(static_cast<size_t>(image - feed_.inputs.begin()));
    for (size_t i = 0; i < feed_.inputs.size(); ++i) {
      const auto& dims = Dims(i);
      if (feed_.inputs[i].name != data_.label_input() || !feed_.inputs[i].label) continue;
      if (dims.size() != 2 || of_image.size() != 3) continue;
      if (dims[0] == of_image[0] && dims[1] == of_image[1]) names.push_back(data_.label_input());
    }
    return names;
  }

  FedInput* FedOf(const std::string& name) {
    const auto found = std::ranges::find(feed_.inputs, name, &FedInput::name);
    return found == feed_.inputs.end() ? nullptr : &*found;
  }

  // Labels and weights are mixed as reals.
  absl::Status Mix(const AugmentationConfig& config) {
    if (config.has_mixup()) {
      feed_.mixing.mixup = config.mixup().probability();
      feed_.mixing.mixup_alpha = config.mixup().alpha();
    }
    if (config.has_cutmix()) {
      feed_.mixing.cutmix = config.cutmix().probability();
      feed_.mixing.cutmix_alpha = config.cutmix().alpha();
    }
    if (!feed_.mixing.any()) return absl::OkStatus();
    for (FedInput& fed : feed_.inputs) fed.mixed = fed.classes > 0 || fed.weight;
    const FedInput* const target = FedOf(data_.label_input());
    if (target != nullptr && target->classes > 0) return absl::OkStatus();
    const char* const field = config.has_mixup() ? "mixup" : "cutmix";
    return Error(config, field,
                 absl::StrFormat("data.augmentation.%s mixes labels, so the net's input \"%s\" has "
                                 "to be REAL with a value for each class; write input { name: "
                                 "\"%s\" dims: CLASSES } in the net, for softmax_cross_entropy",
                                 field, data_.label_input(), data_.label_input()));
  }

  absl::Status MixInput(const AugmentationConfig& config, FedInput& fed, bool is_mask,
                        const google::protobuf::RepeatedField<int64_t>& dims) {
    if (is_mask) {
      return Error(config, "input",
                   absl::StrFormat("data.augmentation: mixup and cutmix mix pictures, but input "
                                   "\"%s\" is a mask; leave it out",
                                   fed.name));
    }
    fed.mixed = true;
    Mixing& mixing = feed_.mixing;
    if (mixing.height > 0 && (mixing.height != dims[0] || mixing.width != dims[1])) {
      return Error(config, "input",
                   absl::StrFormat("data.augmentation: mixup and cutmix mix pictures of one size, "
                                   "but those of \"%s\" are %d by %d, and others %d by %d",
                                   fed.name, dims[0], dims[1], mixing.height, mixing.width));
    }
    mixing.height = dims[0];
    mixing.width = dims[1];
    return absl::OkStatus();
  }

  // A mask is turned as bytes.
  absl::Status TurnMask(const AugmentationConfig& config, const FedInput& fed) const {
    if (feed_.changes.rotate == 0 || std::ranges::count(no_bytes_, fed.name) == 0) {
      return absl::OkStatus();
    }
    return Error(
        config, "rotate",
        absl::StrFormat("data.augmentation.rotate turns masks of bytes, but those of input "
                        "\"%s\" are no bytes; store them as uint8",
                        fed.name));
  }

  // Pixels are changed as bytes, with the same number of channels for all inputs.
  absl::Status ChangeInput(const AugmentationConfig& config, const FedInput& fed,
                           int64_t channels) {
    if (fed.pixel_values.empty()) {
      return Error(config, "input",
                   absl::StrFormat("data.augmentation: pixels are changed as bytes, but those of "
                                   "input \"%s\" are no bytes; use flip and shift alone",
                                   fed.name));
    }
    std::vector<uint8_t>& erased = feed_.changes.erased;
    const bool known = channels == 1 || channels == 3 || channels == 4;
    if (!known || (!erased.empty() && static_cast<int64_t>(erased.size()) != channels)) {
      return Error(config, "input",
                   absl::StrFormat("data.augmentation: pixels are changed of inputs of 1, 3 or 4 "
                                   "channels, all of the same, but \"%s\" has %d",
                                   fed.name, channels));
    }
    const std::vector<double>& mean = fed.normalization.mean;
    erased.clear();
    for (int64_t c = 0; c < channels; ++c) {
      const double value = mean[mean.size() > 1 ? static_cast<size_t>(c) : 0];
      erased.push_back(static_cast<uint8_t>(std::lround(255 * std::clamp(value, 0.0, 1.0))));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<size_t> Find(const std::string& name, const google::protobuf::Message& at,
                              const char* field, const std::string& who) const {
    return FindInput(trainer_, feed_, name, at, field, who);
  }
  absl::Status Error(const google::protobuf::Message& at, const char* field,
                     const std::string& what) const {
    return ErrorAt(trainer_, at, field, what);
  }

  const Parsed<NetConfig>& net_;
  const Parsed<TrainerConfig>& trainer_;
  const DataConfig& data_;
  const std::span<const std::string> no_bytes_;
  Feed& feed_;
};

}  // namespace

absl::Status AugmentFeed(const Parsed<NetConfig>& net, const Parsed<TrainerConfig>& trainer,
                         std::span<const std::string> no_bytes, Feed& feed) {
  return FeedAugmenter(net, trainer, no_bytes, feed).Augment();
}

absl::Status ErrorAt(const Parsed<TrainerConfig>& trainer, const google::protobuf::Message& at,
                     const char* field, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat(trainer.source->Where(at, field), ": ", what));
}

absl::StatusOr<size_t> FindInput(const Parsed<TrainerConfig>& trainer, const Feed& feed,
                                 const std::string& name, const google::protobuf::Message& at,
                                 const char* field, const std::string& who) {
  const auto found = std::ranges::find(feed.inputs, name, &FedInput::name);
  if (found != feed.inputs.end()) return static_cast<size_t>(found - feed.inputs.begin());
  std::vector<std::string> names;
  for (const FedInput& fed : feed.inputs) names.push_back(fed.name);
  return ErrorAt(trainer, at, field,
                 absl::StrFormat("%s: the net has no input \"%s\"; it has \"%s\"", who, name,
                                 absl::StrJoin(names, "\", \"")));
}

}  // namespace gyre
