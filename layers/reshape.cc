// flatten, reshape: the same elements in the same order under another shape [N, ...].  The output
// is a view of the input, and its gradient of the input's gradient, so nothing runs. transpose:
// axes in another order, copied.

#include <algorithm>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "layers/common/cells.h"
#include "layers/interface/infer.h"
#include "layers/interface/onnx.h"

namespace gyre {
namespace {

absl::Status CheckOne(const InferInput& input) {
  if (input.inputs.size() != 1) {
    return absl::InvalidArgumentError(
        absl::StrFormat("expects 1 input, got %d", input.inputs.size()));
  }
  return SampleElements(input).status();
}

class Reshape : public Layer {
 public:
  explicit Reshape(std::vector<int64_t> dims) : dims_(std::move(dims)) {}

  absl::StatusOr<LayerSpec> Infer(const InferInput& input) override {
    RETURN_IF_ERROR(CheckOne(input));
    RETURN_IF_ERROR(CheckBatchFirst(input));
    const Shape& shape = input.inputs[0];
    ASSIGN_OR_RETURN(const int64_t elements, SampleElements(input));
    std::vector<int64_t> dims = {shape[0]};
    int64_t known = 1;
    for (const int64_t dim : dims_) {
      // Beyond elements, so that nothing overflows.
      if (dim != -1) known = known > elements / dim ? elements + 1 : known * dim;
      dims.push_back(dim);
    }
    const auto rest = std::ranges::find(dims, -1);
    if (rest != dims.end()) {
      *rest = elements / known;
      known *= *rest;
    }
    if (known != elements) {
      return absl::InvalidArgumentError(
          absl::StrFormat("dims: expected the %d elements of a sample of %s in all, got [%s]",
                          elements, shape.ToString(), absl::StrJoin(dims_, ", ")));
    }
    const DType dtype = input.dtypes[0];
    LayerSpec spec;
    spec.states = {MakeState("input", StateKind::kInput, shape, dtype, kRead, kNone),
                   MakeState("output", StateKind::kOutput, Shape(dims), dtype, kWrite, kNone)};
    spec.aliases = {{.output = 1, .input = 0, .must = true}};
    return spec;
  }

  absl::Status Forward(const LayerContext&) const override { return absl::OkStatus(); }
  absl::Status Backward(const LayerContext&) const override { return absl::OkStatus(); }

  absl::Status ToOnnx(OnnxWriter& onnx) const override {
    const Shape &x = onnx.shape(0), &y = onnx.shape(1);
    const OnnxForm form = onnx.Form();
    const int64_t channels = x[x.rank() - 1];
    if (y == x) {
      onnx.Pass();
    } else if (y.rank() == 2 && form.kind == OnnxForm::kChannelsFirst) {
      // One channel or one pixel has one order.
      const bool equal = channels == 1 || channels == y[1];
      onnx.Output(0, onnx.Node("Flatten", {onnx.Input(0, form)}, {{"axis", int64_t{1}}}),
                  equal ? OnnxForm{} : OnnxForm{OnnxForm::kColumnsFirst, channels});
    } else if (y.rank() == 2 && x.rank() > 1) {
      onnx.Output(0, onnx.Node("Flatten", {onnx.Input(0)}, {{"axis", int64_t{1}}}));
    } else {
      // 0: the extent of x.
      std::vector<int64_t> dims(y.dims().begin(), y.dims().end());
      dims[0] = 0;
      onnx.Output(0, onnx.Node("Reshape", {onnx.Input(0), onnx.Ints(dims)}));
    }
    return absl::OkStatus();
  }

 private:
  const std::vector<int64_t> dims_;
};

// Positions of one tensor's elements, in order, in another one.
struct Walk {
  int rank = 0;  // without the last axis, which has its own stride
  int64_t extent[Shape::kMaxRank] = {}, stride[Shape::kMaxRank] = {};
  int64_t last_stride = 0;

  HOST_DEVICE int64_t operator()(int64_t row, int64_t column) const {
    int64_t at = column * last_stride;
    for (int axis = rank - 1; axis >= 0; --axis) {
      const int64_t above = row / extent[axis];
      at += (row - above * extent[axis]) * stride[axis];
      row = above;
    }
    return at;
  }
};

template <typename Bits>
struct GatherElements {
  Walk walk;
  int64_t columns;
  const Bits* from;
  Bits* to;
  HOST_DEVICE void operator()(int64_t row, int64_t column) const {
    to[row * columns + column] = from[walk(row, column)];
  }
};

// Moves elements so that axis a of the result is axis axes[a] of `from`.
struct Permutation {
  Walk walk;
  int64_t rows = 1, columns = 1;

  static Permutation Of(const Shape& from, std::span<const int> axes) {
    Permutation p;
    const int last = from.rank() - 1;
    for (int a = 0; a <= last; ++a) {
      const int64_t stride = from.elements(axes[a] + 1, from.rank());
      if (a == last) {
        p.walk.last_stride = stride;
        p.columns = from[axes[a]];
      } else {
        p.walk.extent[a] = from[axes[a]];
        p.walk.stride[a] = stride;
        p.rows *= from[axes[a]];
      }
    }
    p.walk.rank = last;
    return p;
  }

  absl::Status Run(Stream& stream, const Tensor& from, const Tensor& to) const {
    return VisitBits(to.dtype, [&]<typename Bits>() {
      return ForEachCell(stream, rows, columns,
                         GatherElements<Bits>{walk, columns, static_cast<const Bits*>(from.data),
                                              static_cast<Bits*>(to.data)});
    });
  }
};

class Transpose : public Layer {
 public:
  explicit Transpose(std::vector<int> axes) : axes_(std::move(axes)) {}

  absl::StatusOr<LayerSpec> Infer(const InferInput& input) override {
    RETURN_IF_ERROR(CheckOne(input));
    const Shape& x = input.inputs[0];
    if (static_cast<int>(axes_.size()) != x.rank()) {
      return absl::InvalidArgumentError(
          absl::StrFormat("axes: expected the %d axes of %s in another order, got [%s]", x.rank(),
                          x.ToString(), absl::StrJoin(axes_, ", ")));
    }
    std::vector<int64_t> dims;
    std::vector<int> inverse(axes_.size());
    int batch_axis = 0;
    for (int a = 0; a < x.rank(); ++a) {
      dims.push_back(x[axes_[a]]);
      inverse[axes_[a]] = a;
      if (axes_[a] == BatchAxis(input, 0)) batch_axis = a;
    }
    const Shape y(dims);
    forward_ = Permutation::Of(x, axes_);
    backward_ = Permutation::Of(y, inverse);
    const DType dtype = input.dtypes[0];
    LayerSpec spec;
    spec.states = {MakeState("input", StateKind::kInput, x, dtype, kRead, kNone),
                   MakeState("output", StateKind::kOutput, y, dtype, kWrite, kNone)};
    spec.states[1].batch_axis = batch_axis;
    return spec;
  }

  absl::Status Forward(const LayerContext& context) const override {
    return forward_.Run(context.stream, context.states[0], context.states[1]);
  }
  absl::Status Backward(const LayerContext& context) const override {
    if (!context.gradients[0]) return absl::OkStatus();
    return backward_.Run(context.stream, context.gradients[1], context.gradients[0]);
  }

  absl::Status ToOnnx(OnnxWriter& onnx) const override {
    const std::vector<int64_t> axes(axes_.begin(), axes_.end());
    onnx.Output(0, onnx.Node("Transpose", {onnx.Input(0)}, {{"perm", axes}}));
    return absl::OkStatus();
  }

 private:
  const std::vector<int> axes_;
  Permutation forward_, backward_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Layer>> CreateFlatten(const FlattenConfig&) {
  return std::make_unique<Reshape>(std::vector<int64_t>{-1});
}

absl::StatusOr<std::unique_ptr<Layer>> CreateReshape(const ReshapeConfig& config) {
  std::vector<int64_t> dims(config.dims().begin(), config.dims().end());
  if (dims.empty() || dims.size() >= Shape::kMaxRank) {
    return absl::InvalidArgumentError(absl::StrFormat("dims: expected 1 to %d of them, got %d",
                                                      Shape::kMaxRank - 1, dims.size()));
  }
  if (std::ranges::count(dims, -1) > 1) {
    return absl::InvalidArgumentError("dims: expected one -1 at most, for what is left");
  }
  for (const int64_t dim : dims) {
    if (dim != -1) RETURN_IF_ERROR(CheckExtent("dims", dim));
  }
  return std::make_unique<Reshape>(std::move(dims));
}

absl::StatusOr<std::unique_ptr<Layer>> CreateTranspose(const TransposeConfig& config) {
  const std::vector<int> axes(config.axes().begin(), config.axes().end());
  std::vector<int> sorted = axes;
  std::ranges::sort(sorted);
  for (size_t a = 0; a < sorted.size(); ++a) {
    if (sorted[a] == static_cast<int>(a)) continue;
    return absl::InvalidArgumentError(
        absl::StrFormat("axes: expected each of 0 to %d once, got [%s]", axes.size() - 1,
                        absl::StrJoin(axes, ", ")));
  }
  return std::make_unique<Transpose>(axes);
}

}  // namespace gyre
