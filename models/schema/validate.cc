// validate.cc: two tables for the trainer (what is required, what is in range), its lists, one pass
// over the names of a net, and one over every number of either.
#include "models/schema/validate.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "models/schema/describe.h"

namespace gyre {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::OneofDescriptor;
using google::protobuf::Reflection;

absl::Status Error(const std::string& where, absl::string_view label, absl::string_view text) {
  return absl::InvalidArgumentError(absl::StrCat(where, ": ", label, text));
}

// The largest integer that a user may write: steps times samples stay within 64 bits, and any one
// of them within what libraries count with.
constexpr int64_t kMostInteger = std::numeric_limits<int32_t>::max();

// The shortest text that reads as the same number; without an exponent, unless it is huge.
std::string NumberText(double value) {
  if (value == std::floor(value) && std::abs(value) < 1e15) {
    return absl::StrCat(static_cast<int64_t>(value));
  }
  char text[32];
  return std::string(text, std::to_chars(text, text + sizeof(text), value).ptr);
}

// Every number of `message` and of the messages in it.
absl::Status CheckFiniteFields(const Message& message, const SourceMap& source,
                               absl::string_view label) {
  const Reflection& reflection = *message.GetReflection();
  std::vector<const FieldDescriptor*> fields;
  reflection.ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    const int count = field->is_repeated() ? reflection.FieldSize(message, field) : 1;
    for (int i = 0; i < count; ++i) {
      if (field->message_type() != nullptr) {
        const Message& child = field->is_repeated()
                                   ? reflection.GetRepeatedMessage(message, field, i)
                                   : reflection.GetMessage(message, field);
        absl::Status status = CheckFiniteFields(child, source, label);
        if (!status.ok()) return status;
      } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_DOUBLE) {
        const double value = field->is_repeated() ? reflection.GetRepeatedDouble(message, field, i)
                                                  : reflection.GetDouble(message, field);
        if (std::isfinite(value)) continue;
        return Error(source.Where(message, field->name(), i), label,
                     absl::StrCat(field->name(), " must be finite, got ", value));
      }
    }
  }
  return absl::OkStatus();
}

// How many segments of `path` lead to a message that is there; *deepest is the last such message.
size_t Follow(const Message& root, const std::vector<std::string>& path, const Message** deepest) {
  *deepest = &root;
  for (size_t i = 0; i < path.size(); ++i) {
    const FieldDescriptor* field = (*deepest)->GetDescriptor()->FindFieldByName(path[i]);
    const Reflection& reflection = *(*deepest)->GetReflection();
    if (!reflection.HasField(**deepest, field)) return i;
    *deepest = &reflection.GetMessage(**deepest, field);
  }
  return path.size();
}

struct Required {
  absl::string_view path;  // the last segment is a field or a oneof
  absl::string_view example;
  bool only_if_parent = false;  // the message that holds it may be absent
};

// Messages before what they hold, so that the first error says the most.
constexpr Required kRequired[] = {
    {"net", "net: \"net.textproto\""},
    {"data.train.source", "data { train { idx { images: \"...\" labels: \"...\" } } }"},
    {"data.train.idx.images", "images: \"train-images-idx3-ubyte.gz\"", true},
    {"data.train.idx.labels", "labels: \"train-labels-idx1-ubyte.gz\"", true},
    {"data.train.text.length", "length: 64", true},
    {"data.train.reviews.length", "length: 256", true},
    {"data.train.shots.folder", "folder: \"shots/train\"", true},
    {"data.train.shots.length", "length: 128", true},
    {"data.train.shots.warning", "warning: 0.2", true},
    {"data.test.shots.folder", "folder: \"shots/test\"", true},
    {"data.test.source", "test { idx { images: \"...\" labels: \"...\" } }", true},
    {"data.test.idx.images", "images: \"t10k-images-idx3-ubyte.gz\"", true},
    {"data.test.idx.labels", "labels: \"t10k-labels-idx1-ubyte.gz\"", true},
    {"data.split.test", "test: 0.1", true},
    {"optimizer.kind", "optimizer { sgd { momentum: 0.9 } }"},
    {"learning_rate.base", "learning_rate { base: 0.01 }"},
    {"learning_rate.step.every", "every: 1000", true},
    {"learning_rate.batch_scaling.base_batch", "base_batch: 256", true},
    {"loss_scale.kind", "loss_scale { dynamic {} }", true},
    {"batch", "batch: 64"},
    {"length", "epochs: 10"},
};

absl::Status Check(const Required& required, const Message& root, const SourceMap& source) {
  std::vector<std::string> parents = absl::StrSplit(required.path, '.');
  const std::string last = parents.back();
  parents.pop_back();
  const Message* message = nullptr;
  const size_t found = Follow(root, parents, &message);
  const auto error = [&](absl::string_view problem) {
    return Error(source.Where(*message, last), "",
                 absl::StrCat(problem, "; write ", required.example));
  };
  if (found < parents.size()) {
    if (required.only_if_parent) return absl::OkStatus();
    parents.resize(found + 1);
    return error(absl::StrCat("missing ", absl::StrJoin(parents, ".")));
  }
  const Reflection& reflection = *message->GetReflection();
  if (const OneofDescriptor* oneof = message->GetDescriptor()->FindOneofByName(last)) {
    if (reflection.HasOneof(*message, oneof)) return absl::OkStatus();
    return error(absl::StrCat("missing one of ", Listed(FieldNames(*oneof))));
  }
  const FieldDescriptor* field = message->GetDescriptor()->FindFieldByName(last);
  if (!reflection.HasField(*message, field)) return error(absl::StrCat("missing ", required.path));
  if (field->cpp_type() == FieldDescriptor::CPPTYPE_STRING &&
      reflection.GetString(*message, field).empty()) {
    return error(absl::StrCat(required.path, " is empty"));
  }
  return absl::OkStatus();
}

struct FieldRange {
  enum Lower { kAtLeast, kAbove };
  absl::string_view path;
  Lower lower;
  double least;
  double below = std::numeric_limits<double>::infinity();
};

// The ends of ranges that have 1 and 1/2 in them.
constexpr double kBeyondOne = 1 + 1e-9, kBeyondHalf = 0.5 + 1e-9;

// Of the fields that are set; the defaults are in range.  Integers end at kMostInteger.
constexpr FieldRange kRanges[] = {
    {"data.augmentation.shift", FieldRange::kAtLeast, 0},
    {"data.train.text.length", FieldRange::kAtLeast, 1},
    {"data.train.text.words", FieldRange::kAtLeast, 2},
    {"data.train.reviews.length", FieldRange::kAtLeast, 1},
    {"data.train.reviews.words", FieldRange::kAtLeast, 2},
    {"data.train.shots.length", FieldRange::kAtLeast, 1},
    {"data.train.shots.warning", FieldRange::kAbove, 0},
    {"data.train.shots.clip", FieldRange::kAbove, 0},
    {"data.split.test", FieldRange::kAbove, 0, 1},
    {"data.train.images.shortest", FieldRange::kAtLeast, 1},
    {"data.train.images.most_pixels", FieldRange::kAtLeast, 1},
    {"data.augmentation.random_crop.least_area", FieldRange::kAbove, 0, kBeyondOne},
    {"data.augmentation.random_crop.most_area", FieldRange::kAbove, 0, kBeyondOne},
    {"data.augmentation.random_crop.least_aspect", FieldRange::kAbove, 0},
    {"data.augmentation.random_crop.most_aspect", FieldRange::kAbove, 0},
    {"data.augmentation.rotate", FieldRange::kAtLeast, 0, 360},
    {"data.augmentation.color.brightness", FieldRange::kAtLeast, 0},
    {"data.augmentation.color.contrast", FieldRange::kAtLeast, 0},
    {"data.augmentation.color.saturation", FieldRange::kAtLeast, 0},
    {"data.augmentation.color.hue", FieldRange::kAtLeast, 0, kBeyondHalf},
    {"data.augmentation.gray", FieldRange::kAtLeast, 0, kBeyondOne},
    {"data.augmentation.blur.probability", FieldRange::kAtLeast, 0, kBeyondOne},
    {"data.augmentation.blur.least_sigma", FieldRange::kAbove, 0},
    {"data.augmentation.blur.most_sigma", FieldRange::kAbove, 0},
    {"data.augmentation.noise", FieldRange::kAtLeast, 0, kBeyondOne},
    {"data.augmentation.lighting", FieldRange::kAtLeast, 0},
    {"data.augmentation.erase.probability", FieldRange::kAtLeast, 0, kBeyondOne},
    {"data.augmentation.erase.least_area", FieldRange::kAbove, 0, kBeyondOne},
    {"data.augmentation.erase.most_area", FieldRange::kAbove, 0, kBeyondOne},
    {"data.augmentation.erase.least_aspect", FieldRange::kAbove, 0, kBeyondOne},
    {"data.augmentation.mixup.probability", FieldRange::kAtLeast, 0, kBeyondOne},
    {"data.augmentation.mixup.alpha", FieldRange::kAbove, 0},
    {"data.augmentation.cutmix.probability", FieldRange::kAtLeast, 0, kBeyondOne},
    {"data.augmentation.cutmix.alpha", FieldRange::kAbove, 0},
    {"data.augmentation.repeated", FieldRange::kAtLeast, 1},
    {"data.max_bad_samples", FieldRange::kAtLeast, 0},
    {"data.train.table.length", FieldRange::kAtLeast, 1},
    {"data.train.table.words", FieldRange::kAtLeast, 2},
    {"data.train.table.window", FieldRange::kAtLeast, 1},
    {"data.train.records.window", FieldRange::kAtLeast, 1},
    {"data.train.records.images.shortest", FieldRange::kAtLeast, 1},
    {"data.train.records.images.most_pixels", FieldRange::kAtLeast, 1},
    {"optimizer.sgd.momentum", FieldRange::kAtLeast, 0, 1},
    {"optimizer.adam.beta1", FieldRange::kAtLeast, 0, 1},
    {"optimizer.adam.beta2", FieldRange::kAtLeast, 0, 1},
    {"optimizer.adam.epsilon", FieldRange::kAbove, 0},
    {"optimizer.adamw.beta1", FieldRange::kAtLeast, 0, 1},
    {"optimizer.adamw.beta2", FieldRange::kAtLeast, 0, 1},
    {"optimizer.adamw.epsilon", FieldRange::kAbove, 0},
    {"optimizer.lars.momentum", FieldRange::kAtLeast, 0, 1},
    {"optimizer.lars.coefficient", FieldRange::kAbove, 0},
    {"optimizer.lamb.beta1", FieldRange::kAtLeast, 0, 1},
    {"optimizer.lamb.beta2", FieldRange::kAtLeast, 0, 1},
    {"optimizer.lamb.epsilon", FieldRange::kAbove, 0},
    {"optimizer.weight_decay", FieldRange::kAtLeast, 0},
    {"optimizer.clip_norm", FieldRange::kAbove, 0},
    {"optimizer.ema.decay", FieldRange::kAbove, 0, 1},
    {"learning_rate.base", FieldRange::kAtLeast, 0},
    {"learning_rate.warmup_steps", FieldRange::kAtLeast, 0},
    {"learning_rate.step.every", FieldRange::kAtLeast, 1},
    {"learning_rate.step.gamma", FieldRange::kAbove, 0},
    {"learning_rate.cosine.final", FieldRange::kAtLeast, 0},
    {"learning_rate.epoch_decay", FieldRange::kAbove, 0},
    {"learning_rate.rank_damping", FieldRange::kAbove, 0},
    {"learning_rate.batch_scaling.base_batch", FieldRange::kAtLeast, 1},
    // It and its inverse are well within F32.
    {"loss_scale.fixed", FieldRange::kAtLeast, 1e-30, 1e30},
    {"loss_scale.dynamic.initial", FieldRange::kAtLeast, 1e-6, 1e30},
    {"loss_scale.dynamic.growth_interval", FieldRange::kAtLeast, 1},
    {"batch", FieldRange::kAtLeast, 1},
    {"test_batch", FieldRange::kAtLeast, 1},
    {"accumulate", FieldRange::kAtLeast, 1},
    {"epochs", FieldRange::kAbove, 0, 1e9},  // times the samples of any data set: less than 2^63
    {"steps", FieldRange::kAtLeast, 1},
    {"evaluate_every", FieldRange::kAtLeast, 1},
    {"log_norms_every", FieldRange::kAtLeast, 1},
    {"checkpoint_every", FieldRange::kAtLeast, 1},
    {"keep_checkpoints", FieldRange::kAtLeast, 1},
    {"distributed.bucket_bytes", FieldRange::kAtLeast, 1},
};

absl::Status Check(const FieldRange& range, const Message& root, const SourceMap& source) {
  std::vector<std::string> parents = absl::StrSplit(range.path, '.');
  const std::string last = parents.back();
  parents.pop_back();
  const Message* message = nullptr;
  if (Follow(root, parents, &message) < parents.size()) return absl::OkStatus();
  const FieldDescriptor* field = message->GetDescriptor()->FindFieldByName(last);
  const Reflection& reflection = *message->GetReflection();
  if (!reflection.HasField(*message, field)) return absl::OkStatus();
  const bool above = range.lower == FieldRange::kAbove;
  const bool integer = field->cpp_type() == FieldDescriptor::CPPTYPE_INT64;
  const int64_t count = integer ? reflection.GetInt64(*message, field) : 0;
  const double value = integer ? static_cast<double>(count) : reflection.GetDouble(*message, field);
  std::string must;
  if (integer && value > kMostInteger) {
    must = "at most 2^31 - 1";
  } else if ((above ? value > range.least : value >= range.least) && value < range.below) {
    return absl::OkStatus();
  } else {
    must = absl::StrCat(above ? "> " : ">= ", NumberText(range.least));
    const bool reached = range.below == kBeyondOne || range.below == kBeyondHalf;
    if (std::isfinite(range.below)) {
      absl::StrAppend(
          &must, reached ? " and <= " : " and < ",
          reached ? (range.below == kBeyondOne ? "1" : "0.5") : NumberText(range.below));
    }
  }
  const std::string got = integer ? absl::StrCat(count) : NumberText(value);
  return Error(source.Where(*message, last), "",
               absl::StrCat(range.path, " must be ", must, ", got ", got));
}

constexpr absl::string_view kOfTrain = "data.train.", kOfTest = "data.test.";

// Rows of the tables for a source beside data.train or data.test, `prefix`: as for that.
template <typename Row>
absl::Status CheckBeside(Row row, absl::string_view prefix, const DatasetConfig& set,
                         const SourceMap& source) {
  if (!absl::StartsWith(row.path, prefix)) return absl::OkStatus();
  row.path.remove_prefix(prefix.size());
  for (const DatasetConfig& beside : set.beside()) {
    if (absl::Status status = Check(row, beside, source); !status.ok()) return status;
  }
  return absl::OkStatus();
}

// Whether one of data.train's sources is such a one.
bool AnySource(const DataConfig& data, bool (*is)(const DatasetConfig&)) {
  return is(data.train()) || std::ranges::any_of(data.train().beside(), is);
}

// The bounds of what is drawn between two.
absl::Status CheckBounds(const AugmentationConfig& config, const SourceMap& source) {
  const AugmentationConfig::RandomCrop& crop = config.random_crop();
  const AugmentationConfig::Erase& erase = config.erase();
  const struct {
    const Message& in;
    absl::string_view path, what;
    double least, most;
  } kBounds[] = {
      {crop, "random_crop", "area", crop.least_area(), crop.most_area()},
      {crop, "random_crop", "aspect", crop.least_aspect(), crop.most_aspect()},
      {config.blur(), "blur", "sigma", config.blur().least_sigma(), config.blur().most_sigma()},
      {erase, "erase", "area", erase.least_area(), erase.most_area()}};
  for (const auto& bounds : kBounds) {
    if (bounds.least <= bounds.most) continue;
    return Error(source.Where(bounds.in, absl::StrCat("least_", bounds.what)), "",
                 absl::StrCat("data.augmentation.", bounds.path, ": expected least_", bounds.what,
                              " of at most most_", bounds.what, ", got ", NumberText(bounds.least),
                              " and ", NumberText(bounds.most)));
  }
  return absl::OkStatus();
}

absl::Status Validate(const DataConfig& data, const SourceMap& source) {
  if (absl::Status status = ValidateSources(data, source); !status.ok()) return status;
  if (absl::Status status = CheckBounds(data.augmentation(), source); !status.ok()) return status;
  if (data.has_split() && data.has_test()) {
    return Error(source.Where(data, "split"), "",
                 "data.split makes test data of data.train, but there is data.test; leave one out");
  }
  if (data.has_split() &&
      AnySource(data, [](const DatasetConfig& set) { return set.has_text() || set.has_shots(); })) {
    return Error(source.Where(data, "split"), "",
                 "data.split is of samples, but those of a text or of shots continue one another; "
                 "write data.test");
  }
  if (data.split().by() == HoldOutConfig::TIME && AnySource(data, [](const DatasetConfig& set) {
        return set.images().has_folder() || set.reviews().has_folder();
      })) {
    return Error(source.Where(data.split(), "by"), "",
                 "data.split.by: TIME holds back the last samples, which of a folder are its last "
                 "class; use SAMPLE or CLASS, or a list in the order of time");
  }
  if (data.order() == DataConfig::BUCKETED && !AnySource(data, [](const DatasetConfig& set) {
        return set.has_reviews() || set.table().text_size() == 1;
      })) {
    return Error(source.Where(data, "order"), "",
                 "data.order: BUCKETED is of texts with lengths, which data.train.reviews has");
  }
  if (data.augmentation().repeated() > 1 &&
      (data.order() == DataConfig::CONTIGUOUS || data.order() == DataConfig::BUCKETED)) {
    return Error(source.Where(data.augmentation(), "repeated"), "",
                 absl::StrCat("data.augmentation.repeated is of the orders SHUFFLED and BALANCED, "
                              "but data.order is ",
                              DataConfig::Order_Name(data.order()), "; leave one out"));
  }
  std::set<std::string> inputs;
  for (const NormalizationConfig& normalization : data.normalization()) {
    for (int i = 0; i < normalization.std_size(); ++i) {
      if (normalization.std(i) > 0) continue;
      return Error(source.Where(normalization, "std", i), "",
                   absl::StrCat("data.normalization.std must be > 0, got ",
                                NumberText(normalization.std(i))));
    }
    if (normalization.auto_() && (normalization.mean_size() > 0 || normalization.std_size() > 0)) {
      return Error(source.Where(normalization, "auto"), "",
                   "data.normalization: auto takes mean and std from the training samples; leave "
                   "out auto, or mean and std");
    }
    const std::string input =
        normalization.has_input() ? normalization.input() : data.image_input();
    if (inputs.insert(input).second) continue;
    return Error(source.Where(normalization), "",
                 absl::StrCat("data.normalization: there are two of \"", input, "\""));
  }
  return absl::OkStatus();
}

// `where` of each name taken so far, with what it names.
using Names = std::map<std::string, std::string, std::less<>>;

// A name is part of paths ("runs/NET-..."), of a tensor's name ("LAYER.weight.momentum"), of a key
// in JSON, of an entry in a zip archive, and of `--set net.layer.NAME.field=value`: what it is made
// of is safe in all of them and lets no two be the same.
absl::Status CheckName(const std::string& name, const std::string& kind, const std::string& where) {
  constexpr size_t kShown = 40;
  const bool good = std::ranges::all_of(
      name, [](char c) { return absl::ascii_isalnum(c) || c == '_' || c == '-'; });
  if (good && name.size() <= kLongestName) return absl::OkStatus();
  const std::string shown = absl::CHexEscape(name.substr(0, kShown));
  return Error(where, absl::StrCat(kind, " \"", shown, name.size() > kShown ? "..." : "", "\": "),
               absl::StrCat("a name has at most ", kLongestName,
                            " characters, each an ASCII letter, a digit, \"_\" or \"-\""));
}

absl::Status Take(const std::string& name, const std::string& kind, const std::string& where,
                  Names* names) {
  if (absl::Status status = CheckName(name, kind, where); !status.ok()) return status;
  const auto [other, taken] = names->emplace(name, absl::StrCat("the ", kind, " at ", where));
  if (taken) return absl::OkStatus();
  return Error(where, absl::StrCat(kind, " \"", name, "\": "),
               absl::StrCat("the name is already that of ", other->second));
}

absl::Status Validate(const InputConfig& input, int index, const SourceMap& source, Names* names) {
  if (input.name().empty()) {
    return Error(source.Where(input, "name"), absl::StrCat("input ", index, ": "),
                 "missing name; write name: \"image\"");
  }
  absl::Status status = Take(input.name(), "input", source.Where(input, "name"), names);
  if (!status.ok()) return status;
  for (int i = 0; i < input.dims_size(); ++i) {
    if (input.dims(i) >= 1 && input.dims(i) <= kMostInteger) continue;
    return Error(source.Where(input, "dims", i), absl::StrCat("input \"", input.name(), "\": "),
                 absl::StrCat("dims must be ", input.dims(i) < 1 ? ">= 1" : "at most 2^31 - 1",
                              ", got ", input.dims(i)));
  }
  return absl::OkStatus();
}

absl::Status Validate(const LayerConfig& layer, int index, const SourceMap& source, Names* names) {
  if (layer.name().empty()) {
    return Error(source.Where(layer, "name"), absl::StrCat("layer ", index, ": "),
                 "missing name; write name: \"conv1\"");
  }
  absl::Status status = Take(layer.name(), "layer", source.Where(layer, "name"), names);
  if (!status.ok()) return status;
  const std::string label = absl::StrCat("layer \"", layer.name(), "\": ");
  if (layer.has_use()) {  // an override came too late
    return Error(source.Where(layer, "use"), label, "a layer of a block; it cannot use another");
  }
  if (layer.type_case() == LayerConfig::TYPE_NOT_SET) {
    const OneofDescriptor& types = *LayerConfig::descriptor()->FindOneofByName("type");
    return Error(source.Where(layer), label,
                 absl::StrCat("missing type; write one of ", Listed(FieldNames(types)),
                              ", each with { ... }"));
  }
  for (int i = 0; i < layer.input_size(); ++i) {
    if (layer.input(i).empty())
      return Error(source.Where(layer, "input", i), label, "input is empty");
  }
  return CheckFiniteFields(layer, source, label);
}

// Whether layers and losses are the net's is known with the net.
absl::Status Validate(const PlayerConfig& player, const SourceMap& source, Names* names) {
  const auto missing = [&](const char* field, const char* text) {
    return Error(source.Where(player),
                 "players: ", absl::StrCat("missing ", field, "; write ", text));
  };
  if (player.name().empty()) return missing("name", "name: \"critic\"");
  if (player.layers_size() == 0) return missing("layers", "layers: \"critic_*\"");
  if (player.losses_size() == 0) return missing("losses", "losses: \"critic_loss\"");
  if (player.steps() < 1 || player.steps() > kMostInteger) {
    return Error(source.Where(player, "steps"), "players: ",
                 absl::StrCat("steps must be from 1 to 2^31 - 1, got ", player.steps()));
  }
  return Take(player.name(), "player", source.Where(player, "name"), names);
}

}  // namespace

absl::Status Validate(const NetConfig& net, const SourceMap& source) {
  if (net.layer_size() == 0) {
    return Error(source.Where(net), "",
                 "the net has no layer; write layer { name: \"fc\" dense { outputs: 10 } }");
  }
  absl::Status name = CheckName(net.name(), "net", source.Where(net, "name"));
  if (!name.ok()) return name;
  Names names;
  for (int i = 0; i < net.input_size(); ++i) {
    absl::Status status = Validate(net.input(i), i, source, &names);
    if (!status.ok()) return status;
  }
  for (int i = 0; i < net.layer_size(); ++i) {
    absl::Status status = Validate(net.layer(i), i, source, &names);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status Validate(const TrainerConfig& trainer, const SourceMap& source) {
  if (absl::Status status = CheckFiniteFields(trainer, source, ""); !status.ok()) return status;
  for (const Required& required : kRequired) {
    absl::Status status = Check(required, trainer, source);
    if (status.ok()) status = CheckBeside(required, kOfTrain, trainer.data().train(), source);
    if (status.ok()) status = CheckBeside(required, kOfTest, trainer.data().test(), source);
    if (!status.ok()) return status;
  }
  for (const FieldRange& range : kRanges) {
    absl::Status status = Check(range, trainer, source);
    if (status.ok()) status = CheckBeside(range, kOfTrain, trainer.data().train(), source);
    if (!status.ok()) return status;
  }
  Names players;
  for (const PlayerConfig& player : trainer.players()) {
    if (absl::Status status = Validate(player, source, &players); !status.ok()) return status;
  }
  return Validate(trainer.data(), source);
}

}  // namespace gyre
