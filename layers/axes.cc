// concat, slice, split: values side by side along one axis, and slices of them.
//
// A tensor is rows of the axes before that one.  A row is (extent of the axis) x (the axes after
// it) contiguous elements.  If there is one row, slices are views if the net can have them so.
// Otherwise they are copied.

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "layers/common/cells.h"
#include "layers/interface/infer.h"
#include "layers/interface/onnx.h"

namespace gyre {
namespace {

// Vector registers want operands aligned so.  Vendors' libraries on GPUs want 16.
constexpr size_t kViewAlignment = 64;

// The axis of a config.  Negative ones count from the end.  Errors: out of range, or the samples'.
absl::StatusOr<int> FindAxis(int64_t axis, const InferInput& input) {
  const Shape& shape = input.inputs[0];
  const int64_t found = axis < 0 ? axis + shape.rank() : axis;
  if (found < 0 || found >= shape.rank()) {
    return absl::InvalidArgumentError(
        absl::StrFormat("axis: expected %d to %d for inputs %s, got %d", -shape.rank(),
                        shape.rank() - 1, shape.ToString(), axis));
  }
  if (found == BatchAxis(input, 0)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("axis: expected another than that of the samples, got %d for inputs %s",
                        axis, shape.ToString()));
  }
  return static_cast<int>(found);
}

absl::Status CheckAny(const InferInput& input, size_t least, size_t most, const char* expected) {
  if (input.inputs.size() < least || input.inputs.size() > most) {
    return absl::InvalidArgumentError(
        absl::StrFormat("expects %s, got %d", expected, input.inputs.size()));
  }
  for (size_t i = 0; i < input.inputs.size(); ++i) {
    RETURN_IF_ERROR(SampleElements(input, static_cast<int>(i)).status());
  }
  return absl::OkStatus();
}

// The form of the inputs, with channels first if they are so, and where an axis is in it.
OnnxForm ImagesOrRows(const OnnxWriter& onnx) {
  const OnnxForm form = onnx.Form();
  return form.kind == OnnxForm::kChannelsFirst ? form : OnnxForm{};
}
int64_t AxisIn(OnnxForm form, int axis, int rank) {
  if (form == OnnxForm{} || axis == 0) return axis;
  return axis == rank - 1 ? 1 : axis + 1;
}

// The slices of a tensor along an axis, and their ranges of its rows.
struct AxisSlices {
  DType dtype = DType::kF32;
  int64_t rows = 0, stride = 0;
  std::vector<int64_t> offset, columns;  // of a slice, in elements

  static AxisSlices Of(const Shape& whole, DType dtype, int axis) {
    return {.dtype = dtype,
            .rows = whole.elements(0, axis),
            .stride = whole.elements(axis, whole.rank()),
            .offset = {},
            .columns = {}};
  }
  void Add(int64_t begin, int64_t extent, int64_t inner) {
    offset.push_back(begin * inner);
    columns.push_back(extent * inner);
  }
  size_t OffsetBytes(size_t slice) const {
    return static_cast<size_t>(offset[slice]) * SizeOf(dtype);
  }
  bool AreViews() const {
    bool aligned = rows == 1;
    for (size_t p = 0; p < offset.size(); ++p) {
      aligned = aligned && OffsetBytes(p) % kViewAlignment == 0;
    }
    return aligned;
  }
  Cells In(const Tensor& whole, int64_t at) const {
    return {static_cast<std::byte*>(whole.data) + static_cast<size_t>(at) * SizeOf(dtype), stride};
  }
  Cells Alone(const Tensor& slice, size_t p) const { return {slice.data, columns[p]}; }
};

// Input p is slice p of the output.
class Concat : public Layer {
 public:
  explicit Concat(const ConcatConfig& config) : config_(config) {}

  absl::StatusOr<LayerSpec> Infer(const InferInput& input) override {
    constexpr size_t kMost = 64;
    RETURN_IF_ERROR(CheckAny(input, 2, kMost, "2 to 64 inputs"));
    ASSIGN_OR_RETURN(const int axis, FindAxis(config_.axis(), input));
    const Shape& first = input.inputs[0];
    int64_t extent = 0;
    LayerSpec spec;
    for (size_t p = 0; p < input.inputs.size(); ++p) {
      const Shape& shape = input.inputs[p];
      if (shape.rank() != first.rank() || !(shape.With(axis, first[axis]) == first) ||
          input.dtypes[p] != input.compute ||
          BatchAxis(input, static_cast<int>(p)) != BatchAxis(input, 0)) {
        return absl::InvalidArgumentError(absl::StrFormat(
            "expects inputs of type %s that differ along axis %d alone, got %s %s and %s %s",
            DTypeName(input.compute), axis, first.ToString(), DTypeName(input.dtypes[0]),
            shape.ToString(), DTypeName(input.dtypes[p])));
      }
      spec.states.push_back(MakeState(absl::StrFormat("input%d", p), StateKind::kInput, shape,
                                      input.compute, kRead, kNone));
      extent += shape[axis];
    }
    axis_ = axis;
    const Shape whole = first.With(axis, extent);
    RETURN_IF_ERROR(CheckExtent("extent along the axis", extent));
    slices_ = AxisSlices::Of(whole, input.compute, axis);
    int64_t begin = 0;
    for (const Shape& shape : input.inputs) {
      slices_.Add(begin, shape[axis], shape.elements(axis + 1, shape.rank()));
      begin += shape[axis];
    }
    spec.states.push_back(MakeOutput(input, whole, kNone));
    const int count = static_cast<int>(input.inputs.size());
    for (int p = 0; p < count && slices_.AreViews(); ++p) {
      spec.aliases.push_back({.output = count,
                              .input = p,
                              .must = false,
                              .offset_bytes = slices_.OffsetBytes(static_cast<size_t>(p)),
                              .input_is_slice = true});
    }
    return spec;
  }

  absl::Status Forward(const LayerContext& context) const override {
    const size_t count = slices_.offset.size();
    const Tensor& y = context.states[count];
    for (size_t p = 0; p < count; ++p) {
      RETURN_IF_ERROR(CopyCells(context.stream, slices_.dtype, slices_.rows, slices_.columns[p],
                                slices_.Alone(context.states[p], p),
                                slices_.In(y, slices_.offset[p])));
    }
    return absl::OkStatus();
  }

  absl::Status Backward(const LayerContext& context) const override {
    const size_t count = slices_.offset.size();
    const Tensor& dy = context.gradients[count];
    for (size_t p = 0; p < count; ++p) {
      const Tensor& dx = context.gradients[p];
      if (!dx) continue;
      RETURN_IF_ERROR(CopyCells(context.stream, slices_.dtype, slices_.rows, slices_.columns[p],
                                slices_.In(dy, slices_.offset[p]), slices_.Alone(dx, p)));
    }
    return absl::OkStatus();
  }

  absl::Status ToOnnx(OnnxWriter& onnx) const override {
    const OnnxForm form = ImagesOrRows(onnx);
    std::vector<std::string> inputs;
    for (size_t p = 0; p < slices_.offset.size(); ++p) {
      inputs.push_back(onnx.Input(static_cast<int>(p), form));
    }
    const int64_t axis = AxisIn(form, axis_, onnx.shape(0).rank());
    onnx.Output(0, onnx.Node("Concat", inputs, {{"axis", axis}}), form);
    return absl::OkStatus();
  }

 private:
  const ConcatConfig config_;
  int axis_ = 0;
  AxisSlices slices_;
};

// Output p is slice p of the input.  Elements before and behind the slices are left out.
class Split : public Layer {
 public:
  // Begins and ends along the axis.
  using Ranges = std::vector<std::pair<int64_t, int64_t>>;

  absl::StatusOr<LayerSpec> Infer(const InferInput& input) override {
    RETURN_IF_ERROR(CheckAny(input, 1, 1, "1 input"));
    ASSIGN_OR_RETURN(const int axis, FindAxis(ConfiguredAxis(), input));
    const Shape& whole = input.inputs[0];
    ASSIGN_OR_RETURN(const Ranges ranges, RangesOf(whole[axis]));
    const DType dtype = input.dtypes[0];
    axis_ = axis;
    ranges_ = ranges;
    slices_ = AxisSlices::Of(whole, dtype, axis);
    for (const auto& [begin, end] : ranges) {
      slices_.Add(begin, end - begin, whole.elements(axis + 1, whole.rank()));
    }
    are_views_ = slices_.AreViews();
    LayerSpec spec;
    spec.states = {MakeState("input", StateKind::kInput, whole, dtype, kRead, kNone)};
    for (size_t p = 0; p < ranges.size(); ++p) {
      const int64_t extent = ranges[p].second - ranges[p].first;
      spec.states.push_back(MakeState(absl::StrFormat("output%d", p), StateKind::kOutput,
                                      whole.With(axis, extent), dtype, kWrite, kNone));
      spec.states.back().batch_axis = BatchAxis(input, 0);
      if (!are_views_) continue;
      spec.aliases.push_back({.output = static_cast<int>(p) + 1,
                              .input = 0,
                              .must = true,
                              .offset_bytes = slices_.OffsetBytes(p)});
    }
    return spec;
  }

  absl::Status Forward(const LayerContext& context) const override {
    if (are_views_) return absl::OkStatus();
    for (size_t p = 0; p < slices_.offset.size(); ++p) {
      RETURN_IF_ERROR(CopyCells(context.stream, slices_.dtype, slices_.rows, slices_.columns[p],
                                slices_.In(context.states[0], slices_.offset[p]),
                                slices_.Alone(context.states[p + 1], p)));
    }
    return absl::OkStatus();
  }

  absl::Status Backward(const LayerContext& context) const override {
    const Tensor& dx = context.gradients[0];
    if (!dx) return absl::OkStatus();
    int64_t done = 0;
    const auto zero_to = [&](int64_t end) {
      const int64_t begin = std::exchange(done, end);
      return ZeroCells(context.stream, slices_.dtype, slices_.rows, end - begin,
                       slices_.In(dx, begin));
    };
    for (size_t p = 0; p < slices_.offset.size(); ++p) {
      const Tensor& dy = context.gradients[p + 1];
      if (!dy) continue;  // stands for 0
      if (done < slices_.offset[p]) RETURN_IF_ERROR(zero_to(slices_.offset[p]));
      done += slices_.columns[p];
      RETURN_IF_ERROR(CopyCells(context.stream, slices_.dtype, slices_.rows, slices_.columns[p],
                                slices_.Alone(dy, p), slices_.In(dx, slices_.offset[p])));
    }
    return done < slices_.stride ? zero_to(slices_.stride) : absl::OkStatus();
  }

  // OpenCV 4.6 misreads Split of opset 13 with sizes.
  absl::Status ToOnnx(OnnxWriter& onnx) const override {
    const OnnxForm form = ImagesOrRows(onnx);
    const std::string axes = onnx.Ints({AxisIn(form, axis_, onnx.shape(0).rank())});
    for (size_t p = 0; p < ranges_.size(); ++p) {
      const auto& [begin, end] = ranges_[p];
      onnx.Output(
          static_cast<int>(p),
          onnx.Node("Slice", {onnx.Input(0, form), onnx.Ints({begin}), onnx.Ints({end}), axes}),
          form);
    }
    return absl::OkStatus();
  }

 private:
  virtual int64_t ConfiguredAxis() const = 0;
  // Ascending and disjoint, within [0, extent].
  virtual absl::StatusOr<Ranges> RangesOf(int64_t extent) const = 0;

  AxisSlices slices_;
  int axis_ = 0;
  Ranges ranges_;
  bool are_views_ = false;
};

class SliceOne : public Split {
 public:
  explicit SliceOne(const SliceConfig& config) : config_(config) {}

 private:
  int64_t ConfiguredAxis() const override { return config_.axis(); }
  absl::StatusOr<Ranges> RangesOf(int64_t extent) const override {
    const auto from_end = [&](int64_t at) { return at < 0 ? at + extent : at; };
    const int64_t begin = from_end(config_.begin());
    const int64_t end = config_.has_end() ? from_end(config_.end()) : extent;
    if (begin < 0 || begin >= end || end > extent) {
      return absl::InvalidArgumentError(
          absl::StrFormat("begin, end: expected 0 <= begin < end <= %d along axis %d, got %d, %d",
                          extent, config_.axis(), begin, end));
    }
    return Ranges{{begin, end}};
  }

  const SliceConfig config_;
};

class SplitAll : public Split {
 public:
  explicit SplitAll(const SplitConfig& config) : config_(config) {}

 private:
  int64_t ConfiguredAxis() const override { return config_.axis(); }
  absl::StatusOr<Ranges> RangesOf(int64_t extent) const override {
    std::vector<int64_t> sizes(config_.sizes().begin(), config_.sizes().end());
    if (sizes.empty()) {
      if (extent % config_.parts() != 0) {
        return absl::InvalidArgumentError(
            absl::StrFormat("parts: expected a divisor of the %d elements along axis %d, got %d",
                            extent, config_.axis(), config_.parts()));
      }
      sizes.assign(config_.parts(), extent / config_.parts());
    }
    Ranges ranges;
    int64_t begin = 0;
    for (const int64_t size : sizes) {
      ranges.emplace_back(begin, begin + size);
      begin += size;
    }
    if (begin != extent) {
      return absl::InvalidArgumentError(
          absl::StrFormat("sizes: expected a sum of %d, the extent of axis %d, got %d", extent,
                          config_.axis(), begin));
    }
    return ranges;
  }

  const SplitConfig config_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Layer>> CreateConcat(const ConcatConfig& config) {
  return std::make_unique<Concat>(config);
}

absl::StatusOr<std::unique_ptr<Layer>> CreateSlice(const SliceConfig& config) {
  return std::make_unique<SliceOne>(config);
}

absl::StatusOr<std::unique_ptr<Layer>> CreateSplit(const SplitConfig& config) {
  constexpr int64_t kMostParts = 64;
  if (config.has_parts() == (config.sizes_size() > 0)) {
    return absl::InvalidArgumentError("parts: expected either parts or sizes");
  }
  const int64_t parts = config.has_parts() ? config.parts() : config.sizes_size();
  if (parts < 1 || parts > kMostParts) {
    return absl::InvalidArgumentError(
        absl::StrFormat("parts: expected 1 to %d, got %d", kMostParts, parts));
  }
  for (const int64_t size : config.sizes()) RETURN_IF_ERROR(CheckExtent("sizes", size));
  return std::make_unique<SplitAll>(config);
}

}  // namespace gyre
