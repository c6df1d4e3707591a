// Convolution by cuDNN: images N,H,W,C and weights [filters, height, width, channels of a group],
// the layouts that tensor cores want.
//
// It gets no padding that differs before and after an image.  Its engine 1 for weight gradients
// (9.19) takes that before for both, and so reads another dy.  Such images are copied between
// zeros. Nor is it trusted with a ReLU, of which some engines make 0 of a NaN.  One in its graph is
// offered to a selector, which looks.
//
// Letters: K filters, C channels, CG channels of a group, R x S the kernel, P x Q the output.
#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/runtime/math.h"
#include "engine/runtime/parallel/column_sum.h"
#include "engine/runtime/parallel/parallel.h"
#include "engine/runtime/primitives/cuda/cudnn_graph.h"
#include "engine/runtime/primitives/cuda/image_frame.h"

namespace gyre {
namespace {

using Operand = CudnnGraph::GraphTensor;

constexpr int64_t kX = 1, kWeights = 2, kY = 3, kBias = 4, kProducts = 5, kSums = 6;  // ids
constexpr const char* kNames[] = {"", "x", "weights", "y", "bias"};                   // by id
constexpr int kNumbers[] = {-1, 0, 1, 3, 2};  // CudaTrial's, by id

// Candidates of the kind that comes first, with the bias in the graph or apart.
constexpr size_t kMostOfFirstKind = 4;

// The layout's name, by the letters of the canonical [o, i, h, w].
constexpr std::string_view kLayout = "ohwi";

template <typename T>
struct Zero {
  T* to;
  HOST_DEVICE void operator()(int64_t i) const { to[i] = static_cast<T>(0.0f); }
};

class CudnnConv2d : public Conv2d {
 public:
  CudnnConv2d(std::shared_ptr<CudaContext> context, const Conv2dSpec& spec)
      : Conv2d({.bytes = static_cast<size_t>(spec.weights()) * SizeOf(spec.dtype),
                .tag = std::string(kLayout)}),
        context_(std::move(context)),
        spec_(spec),
        group_channels_(spec.c / spec.groups),
        frame_(ImageFrame::Of(spec.n, spec.h, spec.w, spec.c, spec.window)),
        framed_(spec.window.padding_top != spec.window.padding_bottom ||
                spec.window.padding_left != spec.window.padding_right),
        x_(framed_ ? Image(kX, frame_.framed_h, frame_.framed_w, spec.c)
                   : Image(kX, spec.h, spec.w, spec.c)),
        weights_(Dense(
            kWeights, {spec.filters, group_channels_, spec.window.kernel_h, spec.window.kernel_w})),
        y_(Image(kY, spec.out_h(), spec.out_w(), spec.filters)) {}

  // Chooses the engines.
  absl::Status Prepare() {
    if (spec_.n == 0) return absl::OkStatus();
    RETURN_IF_ERROR(PrepareForward());
    if (!spec_.train) return absl::OkStatus();
    if (spec_.data_gradient) {
      CudnnGraph data(*context_);
      data.ConvolutionBackwardData(Window(), y_, weights_, x_);
      RETURN_IF_ERROR(Find(data, /*fused=*/true, context_->most_candidates(), &backward_data_));
      RETURN_IF_ERROR(Choose("backward data", {kY, kWeights, kX}, &backward_data_));
    }
    CudnnGraph weights(*context_);
    weights.ConvolutionBackwardWeights(Window(), x_, y_, weights_);
    RETURN_IF_ERROR(Find(weights, /*fused=*/true, context_->most_candidates(), &backward_weights_));
    return Choose("backward weights", {kX, kY, kWeights}, &backward_weights_);
  }

  size_t scratch_bytes() const override {
    size_t bytes = 0;
    for (const CudnnPass* pass : {&forward_, &backward_data_, &backward_weights_}) {
      for (const PassCandidate& candidate : pass->candidates)
        bytes = std::max(bytes, ScratchOf(candidate));
    }
    if (!spec_.train || !spec_.bias) return bytes;
    return std::max(bytes, VisitReal(spec_.dtype, [&]<typename T>() {
                      return ReduceColumnsScratch<ColumnSum<T>>(out_pixels(), spec_.filters);
                    }));
  }

  absl::Status Forward(Stream& stream, const void* x, const void* weights, const void* bias,
                       void* y, void* scratch) const override {
    if (spec_.n == 0) return absl::OkStatus();
    return Run(Chosen(forward_), stream, {{kX, x}, {kWeights, weights}, {kBias, bias}, {kY, y}},
               scratch);
  }

  absl::Status BackwardData(Stream& stream, const void* dy, const void* weights, void* dx,
                            void* scratch) const override {
    if (spec_.n == 0) return absl::OkStatus();
    return Run(Chosen(backward_data_), stream, {{kY, dy}, {kWeights, weights}, {kX, dx}}, scratch);
  }

  absl::Status BackwardWeights(Stream& stream, const void* x, const void* dy, void* dweights,
                               void* dbias, void* scratch) const override {
    if (spec_.n == 0) {
      RETURN_IF_ERROR(VisitReal(spec_.dtype, [&]<typename T>() {
        return ForEach(stream, spec_.weights(), Zero<T>{static_cast<T*>(dweights)});
      }));
    } else {
      RETURN_IF_ERROR(Run(Chosen(backward_weights_), stream,
                          {{kX, x}, {kY, dy}, {kWeights, dweights}}, scratch));
    }
    if (!spec_.bias) return absl::OkStatus();
    return VisitReal(spec_.dtype, [&]<typename T>() {
      return ReduceColumns(
          stream, out_pixels(), spec_.filters,
          ColumnSum<T>{{}, spec_.filters, static_cast<const T*>(dy), static_cast<T*>(dbias)},
          scratch);
    });
  }

  absl::Status Pack(const void* canonical, void* opaque) const override {
    TransposeFilters(group_channels_, spec_.window.kernel_h * spec_.window.kernel_w, canonical,
                     opaque);
    return absl::OkStatus();
  }

  absl::Status Unpack(const void* opaque, void* canonical) const override {
    TransposeFilters(spec_.window.kernel_h * spec_.window.kernel_w, group_channels_, opaque,
                     canonical);
    return absl::OkStatus();
  }

 private:
  struct PassCandidate {
    CudnnPlan plan;
    bool fused;  // bias and activation are in it
  };
  struct CudnnPass {
    std::vector<PassCandidate> candidates;    // the one chosen, after Choose
    absl::Status refused = absl::OkStatus();  // why there is none
  };
  using Bindings = std::vector<std::pair<int64_t, const void*>>;

  // A spec that is not for training has forward alone.
  static const PassCandidate& Chosen(const CudnnPass& pass) {
    GYRE_CHECK(pass.candidates.size() == 1);
    return pass.candidates[0];
  }

  // Extents in cuDNN's order; channels are innermost in memory.
  Operand Dense(int64_t id, const std::array<int64_t, 4>& extents) const {
    const auto [n, c, h, w] = extents;
    return {.id = id,
            .type = CudnnDataType(spec_.dtype),
            .extents = extents,
            .strides = {h * w * c, 1, w * c, c}};
  }

  Operand Image(int64_t id, int64_t h, int64_t w, int64_t c) const {
    return Dense(id, {spec_.n, c, h, w});
  }

  // A tensor like y between two operations, as precise as their sums.
  Operand Intermediate(int64_t id) const {
    Operand tensor = y_;
    tensor.id = id;
    tensor.type = CUDNN_DATA_FLOAT;
    tensor.is_virtual = true;
    return tensor;
  }

  CudnnGraph::Convolution Window() const {
    const Window2d& w = spec_.window;
    const std::array<int64_t, 2> padding = {framed_ ? 0 : w.padding_top,
                                            framed_ ? 0 : w.padding_left};
    return {.padding_before = padding,
            .padding_after = padding,
            .stride = {w.stride_h, w.stride_w},
            .dilation = {w.dilation_h, w.dilation_w}};
  }

  // With bias and activation in one graph, and apart: where no engine takes that, and to be
  // compared with it.  A ReLU is apart first.  Candidates are numbered alike, however many are
  // made.
  absl::Status PrepareForward() {
    const bool relu = spec_.activation == Activation::kRelu;
    const size_t most = context_->most_candidates();
    const size_t most_first = std::min(most, kMostOfFirstKind);
    if (relu) {
      RETURN_IF_ERROR(FindApart(most_first));
      if (!forward_.candidates.empty()) RETURN_IF_ERROR(FindFused(most));
    } else if (spec_.bias) {
      RETURN_IF_ERROR(FindFused(most_first));
      RETURN_IF_ERROR(FindApart(most));
    } else {
      RETURN_IF_ERROR(FindApart(most));
    }
    return Choose("forward", {kX, kWeights, kBias, kY}, &forward_);
  }

  absl::Status FindFused(size_t most) {
    const bool relu = spec_.activation == Activation::kRelu;
    CudnnGraph graph(*context_);
    Operand result = Intermediate(kProducts);
    graph.ConvolutionForward(Window(), x_, weights_, result);
    if (spec_.bias) {
      const Operand sums = relu ? Intermediate(kSums) : y_;
      graph.Add(result, Dense(kBias, {1, spec_.filters, 1, 1}), sums);
      result = sums;
    }
    if (relu) graph.Relu(result, y_);
    return Find(graph, /*fused=*/true, most, &forward_);
  }

  absl::Status FindApart(size_t most) {
    CudnnGraph graph(*context_);
    graph.ConvolutionForward(Window(), x_, weights_, y_);
    const bool plain = !spec_.bias && spec_.activation == Activation::kNone;
    return Find(graph, /*fused=*/plain, most, &forward_);
  }

  // Adds the plans of a graph as candidates, `most` in all.
  absl::Status Find(CudnnGraph& graph, bool fused, size_t most, CudnnPass* pass) const {
    if (pass->candidates.size() >= most) return absl::OkStatus();
    auto plans =
        graph.Plans({ForbiddenNotes(spec_.dtype, context_->options.tf32), WorkspaceLimit()},
                    most - pass->candidates.size());
    if (absl::IsUnimplemented(plans.status())) {
      pass->refused = plans.status();
      return absl::OkStatus();
    }
    if (!plans.ok()) return Annotate(plans.status(), ToString(spec_));
    for (CudnnPlan& plan : *plans) pass->candidates.push_back({std::move(plan), fused});
    return absl::OkStatus();
  }

  // numbers: ids of the operands, the last of which the pass assigns.
  absl::Status Choose(const char* name, const std::vector<int64_t>& numbers, CudnnPass* pass) {
    CudaTrial trial{.what = absl::StrCat(ToString(spec_), ", ", name),
                    .dtype = spec_.dtype,
                    .relu = numbers.back() == kY && spec_.activation == Activation::kRelu,
                    .operands = {},
                    .candidates = {}};
    for (const int64_t id : numbers) {
      trial.operands.push_back({kNumbers[id], OperandBytes(id)});
    }
    for (const PassCandidate& candidate : pass->candidates) {
      trial.candidates.push_back(
          {.choice = absl::StrCat("cudnn ", context_->cudnn.cudnnGetVersion(),
                                  candidate.fused ? ", " : ", bias and activation apart, ",
                                  candidate.plan.choice()),
           .scratch_bytes = ScratchOf(candidate),
           .run = [this, &candidate, &numbers](Stream& stream, std::span<void* const> operands,
                                               void* scratch) {
             Bindings bindings;
             for (size_t i = 0; i < numbers.size(); ++i) {
               bindings.emplace_back(numbers[i], operands[i]);
             }
             return Run(candidate, stream, std::move(bindings), scratch);
           }});
    }
    if (trial.candidates.empty()) return Annotate(pass->refused, trial.what);
    ASSIGN_OR_RETURN(const size_t index, context_->Select(trial));
    PassCandidate chosen = std::move(pass->candidates[index]);
    pass->candidates.clear();
    pass->candidates.push_back(std::move(chosen));
    return absl::OkStatus();
  }

  size_t OperandBytes(int64_t id) const {
    int64_t elements = spec_.bias ? spec_.filters : 0;
    if (id == kX) elements = spec_.n * spec_.h * spec_.w * spec_.c;
    if (id == kWeights) elements = spec_.weights();
    if (id == kY) elements = out_pixels() * spec_.filters;
    return static_cast<size_t>(elements) * SizeOf(spec_.dtype);
  }

  // An engine that wants another layout converts each operand into the workspace, at most in float
  // and with channels padded to eight (AlexNet's first weight gradient wants its three to be four);
  // what else there may be are the partial sums of a split.
  size_t WorkspaceLimit() const {
    const auto padded = [](int64_t channels) { return RoundUp<int64_t>(channels, 8); };
    const int64_t elements =
        spec_.n * x_.extents[2] * x_.extents[3] * padded(spec_.c) +
        spec_.filters * padded(group_channels_) * spec_.window.kernel_h * spec_.window.kernel_w +
        out_pixels() * padded(spec_.filters);
    return static_cast<size_t>(elements) * sizeof(float) + kSplitWorkspaceBytes;
  }

  // Framed images are at the beginning of scratch.
  size_t FrameBytes() const {
    if (!framed_) return 0;
    const auto elements = static_cast<size_t>(frame_.framed_elements());
    return RoundUp<size_t>(elements * SizeOf(spec_.dtype), kOperandAlignment);
  }
  size_t ScratchOf(const PassCandidate& candidate) const {
    return FrameBytes() + candidate.plan.scratch_bytes();
  }

  // bias: among the bindings of forward, whether it is used or not.
  absl::Status Run(const PassCandidate& candidate, Stream& stream, Bindings bindings,
                   void* scratch) const {
    const bool forward = bindings.back().first == kY;
    const void* bias = nullptr;
    if (forward) {
      const auto found = bindings.end() - 2;
      if (spec_.bias) bias = found->second;
      if (!spec_.bias || !candidate.fused) bindings.erase(found);
    }
    for (const auto& [id, pointer] : bindings) {
      RETURN_IF_ERROR(CheckAligned(pointer, kNames[id]));
    }
    RETURN_IF_ERROR(CheckAligned(scratch, "scratch"));
    RETURN_IF_ERROR(Execute(candidate.plan, stream, bindings, scratch));
    if (!forward || candidate.fused) return absl::OkStatus();
    return AddBiasAndActivate(stream, spec_.dtype, spec_.activation, out_pixels(), spec_.filters,
                              bias, const_cast<void*>(bindings.back().second));
  }

  template <typename T>
  absl::Status ExecuteFramed(const CudnnPlan& plan, Stream& stream, Bindings bindings,
                             void* scratch) const {
    const auto x = std::find_if(bindings.begin(), bindings.end(),
                                [](const auto& binding) { return binding.first == kX; });
    const bool assigned = x + 1 == bindings.end();
    const void* const images = std::exchange(x->second, scratch);
    T* const framed = static_cast<T*>(scratch);
    if (!assigned) {
      RETURN_IF_ERROR(ForEach(stream, frame_.framed_elements(),
                              FrameImages<T>{frame_, static_cast<const T*>(images), framed}));
    }
    void* const rest = static_cast<std::byte*>(scratch) + FrameBytes();
    RETURN_IF_ERROR(plan.Execute(*context_, stream, bindings, rest));
    if (!assigned) return absl::OkStatus();
    T* const dx = static_cast<T*>(const_cast<void*>(images));
    return ForEach(stream, frame_.elements(), UnframeImages<T>{frame_, framed, dx});
  }

  absl::Status Execute(const CudnnPlan& plan, Stream& stream, const Bindings& bindings,
                       void* scratch) const {
    if (!framed_) return plan.Execute(*context_, stream, bindings, scratch);
    return SizeOf(spec_.dtype) == 2 ? ExecuteFramed<uint16_t>(plan, stream, bindings, scratch)
                                    : ExecuteFramed<uint32_t>(plan, stream, bindings, scratch);
  }

  // Each filter, a [rows, columns] matrix of elements, transposed.
  void TransposeFilters(int64_t rows, int64_t columns, const void* from, void* to) const {
    const auto size = static_cast<int64_t>(SizeOf(spec_.dtype));
    const auto* source = static_cast<const std::byte*>(from);
    auto* target = static_cast<std::byte*>(to);
    for (int64_t filter = 0; filter < spec_.filters; ++filter) {
      for (int64_t row = 0; row < rows; ++row) {
        for (int64_t column = 0; column < columns; ++column) {
          std::memcpy(target + (column * rows + row) * size, source, static_cast<size_t>(size));
          source += size;
        }
      }
      target += rows * columns * size;
    }
  }

  int64_t out_pixels() const { return spec_.n * spec_.out_h() * spec_.out_w(); }

  const std::shared_ptr<CudaContext> context_;
  const Conv2dSpec spec_;
  const int64_t group_channels_;
  const ImageFrame frame_;
  const bool framed_;
  const Operand x_, weights_, y_;
  CudnnPass forward_, backward_data_, backward_weights_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Conv2d>> PrepareCudaConv2d(std::shared_ptr<CudaContext> context,
                                                          const Conv2dSpec& spec) {
  if (!spec.weight_layout.empty() && spec.weight_layout != kLayout) {
    return absl::UnimplementedError(
        absl::StrCat(ToString(spec), ": cuDNN does not know this weight layout"));
  }
  auto convolution = std::make_unique<CudnnConv2d>(std::move(context), spec);
  RETURN_IF_ERROR(convolution->Prepare());
  return convolution;
}

}  // namespace gyre
