#include "engine/training/feed/shown_batch.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <numeric>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "engine/data/files/atomic_file.h"
#include "engine/data/pictures/sheet.h"
#include "engine/runtime/check.h"
#include "engine/training/feed/bad_samples.h"
#include "engine/training/feed/normalization_fit.h"

namespace gyre {
namespace {

constexpr int64_t kMostPictures = 256, kMostBytes = int64_t{256} << 20;

using Rgb = std::array<uint8_t, 3>;

// A sample of a batch, whose shape is the array's without its first axis.
std::vector<double> ValuesOf(const Tensor& array, int64_t sample) {
  const int64_t count = array.elements() / array.shape[0];
  const auto copy = [&](const auto* values) {
    return std::vector<double>(values + sample * count, values + (sample + 1) * count);
  };
  if (array.dtype == DType::kI32) return copy(array.as<int32_t>());
  return array.dtype == DType::kF64 ? copy(array.as<double>()) : copy(array.as<float>());
}

// The bytes that normalized values were, or that they are shown as.
std::vector<uint8_t> BytesOf(std::vector<double> values, const FedInput& fed) {
  Unnormalize(fed.normalization, values);
  double black = 0, white = 1;
  if (fed.pixel_values.empty()) {  // no bytes
    const auto [least, most] = std::ranges::minmax(values);
    black = least, white = most > least ? most : least + 1;
  }
  std::vector<uint8_t> bytes;
  for (const double value : values) {
    const double shade = std::clamp((value - black) / (white - black), 0.0, 1.0);
    bytes.push_back(static_cast<uint8_t>(std::lround(255 * shade)));
  }
  return bytes;
}

// A pixel of bytes [height, width, channels].
Rgb PixelAt(const std::vector<uint8_t>& bytes, int64_t y, int64_t x, int64_t width,
            int64_t channels) {
  const uint8_t* const at = &bytes[static_cast<size_t>((y * width + x) * channels)];
  if (channels == 1) return {at[0], at[0], at[0]};
  if (channels == 3) return {at[0], at[1], at[2]};
  constexpr int64_t kSquare = 8;
  const int behind = (y / kSquare + x / kSquare) % 2 == 0 ? 230 : 160;
  Rgb pixel;
  for (size_t c = 0; c < 3; ++c) {
    pixel[c] = static_cast<uint8_t>((at[c] * at[3] + behind * (255 - at[3]) + 127) / 255);
  }
  return pixel;
}

// The colour of a class of a mask: black, red, green, ....  Ignored ones, below 0, are grey.
// Source: the colours of PASCAL VOC's masks (Everingham et al. 2010).
Rgb ColorOfClass(int64_t number) {
  if (number < 0) return {128, 128, 128};
  Rgb color = {0, 0, 0};
  for (int shift = 7; shift >= 0 && number > 0; --shift, number >>= 3) {
    for (size_t c = 0; c < 3; ++c) color[c] |= static_cast<uint8_t>((number >> c & 1) << shift);
  }
  return color;
}

// What is shown of each sample.
struct ShownInputs {
  Shape sample;  // of a picture
  size_t picture = 0;
  size_t label = 0;  // or the number of inputs
  bool mask = false;
};

absl::StatusOr<ShownInputs> FindInputs(const Parsed<TrainerConfig>& trainer,
                                       const Parsed<NetConfig>& net) {
  const auto& inputs = net.message->input();
  const auto shape_of = [](const InputConfig& input) {
    return Shape(std::vector<int64_t>(input.dims().begin(), input.dims().end()));
  };
  const auto picture = std::ranges::find_if(inputs, IsPicture);
  if (picture == inputs.end()) {
    const auto describe = [&](std::string* text, const InputConfig& input) {
      absl::StrAppend(text, "\"", input.name(), "\" ", shape_of(input).ToString());
    };
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s: expected an input of dims [height, width, 1, 3 or 4] to show as pictures, got %s",
        net.source->file(), absl::StrJoin(inputs, ", ", describe)));
  }
  const auto label =
      std::ranges::find(inputs, trainer.message->data().label_input(), &InputConfig::name);
  ShownInputs shown{.sample = shape_of(*picture),
                    .picture = static_cast<size_t>(picture - inputs.begin()),
                    .label = static_cast<size_t>(label - inputs.begin())};
  if (label == inputs.end()) return shown;
  const Shape &pixels = shown.sample, mask = shape_of(*label);
  shown.mask = label->type() == InputConfig::LABEL && mask.rank() >= 2 && mask[0] == pixels[0] &&
               mask[1] == pixels[1] && mask.elements() == pixels[0] * pixels[1];
  return shown;
}

}  // namespace

std::string CaptionOf(const std::vector<double>& label, bool integers,
                      const std::vector<std::string>& classes) {
  if (integers && label.size() == 1) {
    return NameOfClass(static_cast<int64_t>(label[0]), classes);
  }
  const double sum = std::accumulate(label.begin(), label.end(), 0.0);
  const bool shares = !integers && label.size() > 1 && std::abs(sum - 1) < 1e-3 &&
                      std::ranges::all_of(label, [](double x) { return x >= 0; });
  if (!shares) {
    constexpr size_t kMost = 16;  // more do not fit
    return absl::StrJoin(label.begin(), label.begin() + std::min(kMost, label.size()), " ",
                         [](std::string* text, double x) { absl::StrAppendFormat(text, "%g", x); });
  }
  std::vector<size_t> order(label.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, std::greater(), [&](size_t i) { return label[i]; });
  const auto name = [&](size_t i) { return NameOfClass(static_cast<int64_t>(i), classes); };
  if (label[order[1]] < 0.005) return name(order[0]);
  return absl::StrFormat("%s %.2f, %s %.2f", name(order[0]), label[order[0]], name(order[1]),
                         label[order[1]]);
}

absl::StatusOr<ShownBatch> ShowBatch(const Parsed<TrainerConfig>& trainer,
                                     const Parsed<NetConfig>& net, const RunData& data,
                                     Device& device) {
  ASSIGN_OR_RETURN(const ShownInputs shown, FindInputs(trainer, net));
  RunShape shape = ShapeOf(*trainer.message, *net.message, /*rank=*/0, /*ranks=*/1);
  shape.server.reset();  // this one rank works
  ASSIGN_OR_RETURN(const auto loader, NewLoader(*data.train, /*train=*/true, shape, data.feed,
                                                /*position=*/0, /*depth=*/2, device));
  const Batch batch = loader->Next();
  std::vector<std::string> left_out;
  std::vector<bool> sound(static_cast<size_t>(shape.global), true);
  for (const Batch::FaultySample& fault : batch.faults) {
    left_out.push_back(fault.message);
    sound[static_cast<size_t>(fault.sample)] = false;
  }
  BadSamples bad(trainer.message->data().max_bad_samples(), shape.global);
  left_out = bad.New(left_out);
  bad.Count(/*epoch=*/0, std::ranges::count(sound, false));
  RETURN_IF_ERROR(Annotate(bad.status(), "the first batch"));

  const FedInput& fed = data.feed.inputs[shown.picture];
  const Tensor& pictures = batch.arrays[shown.picture];
  const int64_t height = shown.sample[0], width = shown.sample[1], channels = shown.sample[2];
  Sheet sheet{.title = {}, .height = height, .width = shown.mask ? 2 * width : width};
  const int64_t fit = std::max<int64_t>(1, kMostBytes / SheetBytesOf(sheet.height, sheet.width));
  const int64_t most = std::min(kMostPictures, fit);
  const std::vector<std::string> classes = ClassNamesOf(data.fit);
  for (int64_t i = 0; i < shape.global && std::ssize(sheet.pictures) < most; ++i) {
    if (!sound[static_cast<size_t>(i)]) continue;
    const std::vector<uint8_t> bytes = BytesOf(ValuesOf(pictures, i), fed);
    std::vector<double> label;
    CaptionedPicture picture;
    if (shown.label < batch.arrays.size()) {
      const Tensor& labels = batch.arrays[shown.label];
      label = ValuesOf(labels, i);
      if (!shown.mask) picture.caption = CaptionOf(label, labels.dtype == DType::kI32, classes);
    }
    const auto put = [&](const Rgb& pixel) {
      picture.pixels.insert(picture.pixels.end(), pixel.begin(), pixel.end());
    };
    for (int64_t y = 0; y < height; ++y) {
      for (int64_t x = 0; x < width; ++x) put(PixelAt(bytes, y, x, width, channels));
      for (int64_t x = 0; shown.mask && x < width; ++x) {
        put(ColorOfClass(static_cast<int64_t>(label[static_cast<size_t>(y * width + x)])));
      }
    }
    sheet.pictures.push_back(std::move(picture));
  }
  loader->Release(batch);
  sheet.title = absl::StrFormat(
      "%s: %d of the %d pictures of the first batch, as input \"%s\" [%d, %d, %d] gets them",
      net.message->name(), sheet.pictures.size(), shape.global, fed.name, height, width, channels);
  ASSIGN_OR_RETURN(std::string png, DrawSheet(sheet));
  return ShownBatch{
      .png = std::move(png), .title = std::move(sheet.title), .left_out = std::move(left_out)};
}

absl::StatusOr<ShownBatch> WriteFirstBatch(const std::string& path,
                                           const Parsed<TrainerConfig>& trainer,
                                           const Parsed<NetConfig>& net,
                                           const std::function<absl::StatusOr<RunData>()>& open,
                                           Device& device) {
  ShownBatch shown;
  RETURN_IF_ERROR(WriteFileAtomically(path, [&](const FileSink& sink) -> absl::Status {
    ASSIGN_OR_RETURN(const RunData data, open());
    ASSIGN_OR_RETURN(shown, ShowBatch(trainer, net, data, device));
    return sink(shown.png);
  }));
  return shown;
}

}  // namespace gyre
