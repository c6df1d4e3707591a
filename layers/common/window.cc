#include "layers/common/window.h"

#include <vector>

#include "absl/strings/str_format.h"

namespace gyre {
namespace {

using Field = google::protobuf::RepeatedField<int64_t>;

// One value for both, or height and width, each >= 1.
absl::Status Read(std::string_view name, const Field& values, int64_t& h, int64_t& w) {
  if (values.size() != 1 && values.size() != 2) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s: expected one value, or height and width, got %d values", name, values.size()));
  }
  for (const int64_t value : values) RETURN_IF_ERROR(CheckExtent(name, value));
  h = values.Get(0);
  w = values.Get(values.size() - 1);
  return absl::OkStatus();
}

// Likewise, and as it is if absent.
absl::Status ReadOptional(std::string_view name, const Field& values, int64_t& h, int64_t& w) {
  return values.empty() ? absl::OkStatus() : Read(name, values, h, w);
}

// One value; height and width; or top, bottom, left, right: each >= 0, 0 if absent.
absl::Status ReadPadding(const Field& values, Window2d& window) {
  for (const int64_t value : values) RETURN_IF_ERROR(CheckExtent("padding", value, /*least=*/0));
  const int size = values.size();
  if (size != 0 && size != 1 && size != 2 && size != 4) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "padding: expected one value, height and width, or top, bottom, left, right, got %d values",
        size));
  }
  if (size == 0) return absl::OkStatus();
  window.padding_top = values.Get(0);
  window.padding_bottom = values.Get(size == 4 ? 1 : 0);
  window.padding_left = values.Get(size / 2);
  window.padding_right = values.Get(size - 1);
  return absl::OkStatus();
}

absl::Status CheckAxisFits(std::string_view axis, int64_t image, int64_t before, int64_t after,
                           int64_t kernel, int64_t dilation, int64_t span) {
  const int64_t padded = image + before + after;
  if (span <= padded) return absl::OkStatus();
  const std::string dilated =
      dilation == 1 ? "" : absl::StrFormat(", %d dilated by %d", kernel, dilation);
  return absl::InvalidArgumentError(
      absl::StrFormat("kernel %d exceeds padded input %d (%s%s)", span, padded, axis, dilated));
}

// By spatial axis of a value of `axes` axes.  Those before height, or width in three axes, have
// `other`.
std::vector<int64_t> Spatial(int64_t other, int64_t h, int64_t w, int axes) {
  std::vector<int64_t> values(static_cast<size_t>(axes - 2), other);
  values.back() = w;
  if (values.size() > 1) values[values.size() - 2] = h;
  return values;
}

// As height and width.
Field OfLines(int64_t value) {
  Field values;
  values.Add(1);
  values.Add(value);
  return values;
}

// As top, bottom, left, right.
absl::StatusOr<Field> PaddingOfLines(const Field& values) {
  if (values.size() > 2) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "padding: expected one value, or before and after, got %d values", values.size()));
  }
  Field padding;
  if (values.empty()) return padding;
  for (const int64_t value :
       {int64_t{0}, int64_t{0}, values.Get(0), values.Get(values.size() - 1)}) {
    padding.Add(value);
  }
  return padding;
}

}  // namespace

absl::StatusOr<Window2d> ReadWindow(const Conv2dConfig& config) {
  Window2d w;
  RETURN_IF_ERROR(Read("kernel", config.kernel(), w.kernel_h, w.kernel_w));
  RETURN_IF_ERROR(ReadOptional("stride", config.stride(), w.stride_h, w.stride_w));
  RETURN_IF_ERROR(ReadOptional("dilation", config.dilation(), w.dilation_h, w.dilation_w));
  RETURN_IF_ERROR(ReadPadding(config.padding(), w));
  return w;
}

absl::StatusOr<Window2d> ReadWindow(const Pool2dConfig& config) {
  Window2d w;
  RETURN_IF_ERROR(Read("kernel", config.kernel(), w.kernel_h, w.kernel_w));
  w.stride_h = w.kernel_h;
  w.stride_w = w.kernel_w;
  RETURN_IF_ERROR(ReadOptional("stride", config.stride(), w.stride_h, w.stride_w));
  RETURN_IF_ERROR(ReadPadding(config.padding(), w));
  return w;
}

absl::StatusOr<Conv2dConfig> OfImages(const Conv1dConfig& config) {
  Conv2dConfig images;
  images.set_filters(config.filters());
  ASSIGN_OR_RETURN(*images.mutable_padding(), PaddingOfLines(config.padding()));
  *images.mutable_kernel() = OfLines(config.kernel());
  *images.mutable_stride() = OfLines(config.stride());
  *images.mutable_dilation() = OfLines(config.dilation());
  images.set_groups(config.groups());
  images.set_use_bias(config.use_bias());
  *images.mutable_weight() = config.weight();
  *images.mutable_bias() = config.bias();
  return images;
}

absl::StatusOr<Pool2dConfig> OfImages(const Pool1dConfig& config) {
  Pool2dConfig images;
  images.set_kind(config.kind());
  ASSIGN_OR_RETURN(*images.mutable_padding(), PaddingOfLines(config.padding()));
  if (config.has_kernel() || !config.global()) *images.mutable_kernel() = OfLines(config.kernel());
  if (config.has_stride()) *images.mutable_stride() = OfLines(config.stride());
  images.set_global(config.global());
  return images;
}

std::vector<OnnxAttribute> OnnxWindow(const Window2d& window, int axes) {
  std::vector<int64_t> pads = Spatial(0, window.padding_top, window.padding_left, axes);
  const std::vector<int64_t> ends = Spatial(0, window.padding_bottom, window.padding_right, axes);
  pads.insert(pads.end(), ends.begin(), ends.end());
  return {{"kernel_shape", Spatial(1, window.kernel_h, window.kernel_w, axes)},
          {"strides", Spatial(1, window.stride_h, window.stride_w, axes)},
          {"pads", pads}};
}

OnnxAttribute OnnxDilations(const Window2d& window, int axes) {
  return {"dilations", Spatial(1, window.dilation_h, window.dilation_w, axes)};
}

absl::StatusOr<OnnxForm> OnnxImages(const OnnxWriter& onnx) {
  constexpr int kMostAxes = 5;  // onnxruntime's, of convolutions and poolings
  if (const int axes = onnx.shape(0).rank(); axes > kMostAxes) {
    return absl::UnimplementedError(
        absl::StrFormat("ONNX's readers slide windows over values of at most %d axes, and x has %d",
                        kMostAxes, axes));
  }
  return OnnxForm{OnnxForm::kChannelsFirst};
}

Shape Images::OutputShape(int64_t rows, int64_t columns, int64_t channels) const {
  if (!lines) return {n, rows, columns, channels};
  std::vector<int64_t> dims(shape.dims().begin(), shape.dims().end());
  dims[dims.size() - 2] = columns;
  dims.back() = channels;
  return Shape(dims);
}

absl::StatusOr<Images> ReadImages(const InferInput& input, bool lines) {
  RETURN_IF_ERROR(CheckInputs(input, {{lines ? "lines" : "images", input.compute}}));
  const Shape& shape = input.inputs[0];
  if (!lines) RETURN_IF_ERROR(CheckBatchFirst(input));
  const int rank = shape.rank();
  if (lines ? rank < 3 : rank != 4) {
    return absl::InvalidArgumentError(
        absl::StrFormat("expects %s, got %s",
                        lines ? "lines [N, ..., L, C]" : "images [N, H, W, C]", shape.ToString()));
  }
  if (const int axis = BatchAxis(input, 0); axis > rank - 3) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "expects samples along an axis before the last two, but those of %s are along axis %d; "
        "transpose it",
        shape.ToString(), axis));
  }
  if (shape.elements(lines ? rank - 2 : 1, rank) < 1) {
    return absl::InvalidArgumentError(
        absl::StrFormat("expects %s of one pixel and channel or more, got %s",
                        lines ? "lines" : "images", shape.ToString()));
  }
  if (!lines) return Images{shape[0], shape[1], shape[2], shape[3], lines, shape};
  return Images{shape.elements(0, rank - 2), 1, shape[rank - 2], shape[rank - 1], lines, shape};
}

absl::Status CheckWindowFits(const Images& images, const Window2d& w) {
  RETURN_IF_ERROR(CheckAxisFits("height", images.h, w.padding_top, w.padding_bottom, w.kernel_h,
                                w.dilation_h, w.span_h()));
  return CheckAxisFits(images.lines ? "length" : "width", images.w, w.padding_left, w.padding_right,
                       w.kernel_w, w.dilation_w, w.span_w());
}

}  // namespace gyre
