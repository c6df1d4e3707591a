// embedding, positional_embedding: rows of a learned table.
//
// embedding: y[p] = W[x[p]] for each position p.
//   x: indices [N, ...]; W: [vocabulary, width]; y: [N, ..., width]
// dW[v] is the sum of dy[p] over the positions that hold v, in their order, in AccumulateType.  So
// every thread count makes the same bits.  A CPU visits each position once.  A GPU looks from each
// position back to the first that holds the same index (ScatterAdd).  At worst that is
// positions^2 / 512 reads of 256 indices.
//
// positional_embedding: y[n, t] = x[n, t] + W[t].
//   x, y: [N, T, width], or [T, N, width] with samples along axis 1; W: [length, width], T <=
//   length
// dW[t] is the sum of dy[n, t] over n, and 0 from T on.

#include "absl/strings/str_format.h"
#include "engine/runtime/math.h"
#include "engine/runtime/parallel/parallel.h"
#include "layers/common/cells.h"
#include "layers/interface/infer.h"
#include "layers/interface/onnx.h"

namespace gyre {
namespace {

constexpr int kX = 0, kY = 1, kWeight = 2, kSum = 3;  // states

// Columns of a row that one call of a functor makes, so that the row is found once for all.
constexpr int64_t kSpan = 8;

// Of W's first values.
// Source: Radford et al. 2018, "Improving language understanding by generative pre-training",
// section 4.1.
constexpr double kStandardDeviation = 0.02;

absl::StatusOr<StateSpec> MakeTable(int64_t rows, int64_t width, const ParameterConfig& config,
                                    const InferInput& input) {
  const Initializer normal{.kind = Initializer::Kind::kGaussian,
                           .std = kStandardDeviation,
                           .fan_in = rows,
                           .fan_out = width};
  return MakeParameter("weight", Shape{rows, width}, config, normal, input, kNone);
}

// The table's rows that positions ask for.
struct Indices {
  const int32_t* index;
  int64_t vocabulary;
  HOST_DEVICE int64_t operator()(int64_t position) const {
    const int64_t row = index[position];
    return row < vocabulary ? row : -1;  // negative: none
  }
};

template <typename T>
struct TakeRows {
  Indices indices;
  int64_t width, spans;
  int64_t samples, sample_step;  // in positions
  const T* table;
  T* y;
  Fault* fault;
  int layer;
  HOST_DEVICE void operator()(int64_t i) const {
    const int64_t position = i / spans, begin = i % spans * kSpan;
    const int64_t row = indices(position);
    if (row < 0) {
      RaiseFault(fault, layer, position / sample_step % samples);
    }
    const int64_t end = begin + kSpan < width ? begin + kSpan : width;
    for (int64_t c = begin; c < end; ++c) {
      y[position * width + c] = row < 0 ? static_cast<T>(0) : table[row * width + c];
    }
  }
};

template <typename T>
struct AddRows {
  Indices indices;
  int64_t width;
  const T* dy;
  AccumulateType<T>* sum;
  HOST_DEVICE int64_t Destination(int64_t position) const { return indices(position); }
  HOST_DEVICE void Add(int64_t position, int64_t row, int64_t column) const {
    sum[row * width + column] += static_cast<AccumulateType<T>>(dy[position * width + column]);
  }
};

class Embedding : public Layer {
 public:
  explicit Embedding(const EmbeddingConfig& config) : config_(config) {}

  absl::StatusOr<LayerSpec> Infer(const InferInput& input) override {
    RETURN_IF_ERROR(CheckInputs(input, {{"indices", DType::kI32}}));
    const Shape& x = input.inputs[0];
    const int axis = BatchAxis(input, 0);
    const bool has_room = x.rank() > axis && x.rank() < Shape::kMaxRank;
    if (!has_room || x.With(axis, 1).elements() < 1) {
      return absl::InvalidArgumentError(
          absl::StrFormat("expects indices [N, ...] of 1 to %d axes, one or more a sample, got %s",
                          Shape::kMaxRank - 1, x.ToString()));
    }
    std::vector<int64_t> dims(x.dims().begin(), x.dims().end());
    dims.push_back(config_.width());
    const Shape y{std::span<const int64_t>(dims)};
    RETURN_IF_ERROR(CheckCountable("output", y));
    compute_ = input.compute;
    positions_ = x.elements();
    samples_ = x[axis];
    sample_step_ = x.elements(axis + 1, x.rank());
    ASSIGN_OR_RETURN(const StateSpec weight,
                     MakeTable(config_.vocabulary(), config_.width(), config_.weight(), input));
    LayerSpec spec;
    spec.states = {MakeState("indices", StateKind::kInput, x, DType::kI32, kRead,
                             InBackward(input, weight.trained() ? kRead : kNone)),
                   MakeOutput(input, y, kNone), weight};
    spec.states[kX].largest = config_.vocabulary() - 1;
    spec.states[kWeight].touched_rows = kX;
    spec.states[kWeight].lazy = config_.lazy();
    if (SizeOf(compute_) == 2) {
      spec.states.push_back(MakeState(
          "sum", StateKind::kScratch, weight.shape, DType::kF32, kNone,
          InBackward(input, weight.trained() ? uint8_t{kRead | kWrite} : uint8_t{kNone})));
    }
    spec.backward_flops = weight.trained() ? static_cast<double>(y.elements()) : 0;
    return spec;
  }

  absl::Status Forward(const LayerContext& context) const override {
    const int64_t width = config_.width(), spans = CeilDiv(width, kSpan);
    return VisitReal(compute_, [&]<typename T>() {
      return ForEach(context.stream, positions_ * spans,
                     TakeRows<T>{IndicesOf(context), width, spans, samples_, sample_step_,
                                 context.states[kWeight].as<T>(), context.states[kY].as<T>(),
                                 context.fault, context.layer});
    });
  }

  absl::Status Backward(const LayerContext& context) const override {
    const Tensor& dw = context.gradients[kWeight];
    if (!dw) return absl::OkStatus();
    return VisitReal(compute_, [&]<typename T>() {
      using A = AccumulateType<T>;
      constexpr bool kRounds = !std::is_same_v<T, A>;
      A* const sum = kRounds ? context.states[kSum].as<A>() : dw.as<A>();
      const int64_t rows = config_.vocabulary(), width = config_.width();
      RETURN_IF_ERROR(ZeroCells(context.stream, kDTypeOf<A>, rows, width, {sum, width}));
      RETURN_IF_ERROR(
          ScatterAdd(context.stream, positions_, width,
                     AddRows<T>{IndicesOf(context), width, context.gradients[kY].as<T>(), sum}));
      if constexpr (kRounds) {
        return ForEach(context.stream, rows * width, RoundElement<A, T>{sum, dw.as<T>()});
      }
      return absl::OkStatus();
    });
  }

  absl::Status ToOnnx(OnnxWriter& onnx) const override {
    onnx.Output(
        0, onnx.Node("Gather", {onnx.Parameter("weight"), onnx.Input(kX)}, {{"axis", int64_t{0}}}));
    return absl::OkStatus();
  }

 private:
  Indices IndicesOf(const LayerContext& context) const {
    return {context.states[kX].as<int32_t>(), config_.vocabulary()};
  }

  const EmbeddingConfig config_;
  DType compute_ = DType::kF32;
  int64_t positions_ = 0, samples_ = 0, sample_step_ = 1;
};

// A position is a row of x; its time is position / time_step % times.
template <typename T>
struct AddTable {
  int64_t width, spans, times, time_step;
  const T* x;
  const T* table;
  T* y;
  HOST_DEVICE void operator()(int64_t i) const {
    using A = AccumulateType<T>;
    const int64_t position = i / spans, begin = i % spans * kSpan;
    const int64_t time = position / time_step % times;
    const int64_t end = begin + kSpan < width ? begin + kSpan : width;
    for (int64_t c = begin; c < end; ++c) {
      const int64_t at = position * width + c;
      y[at] = static_cast<T>(static_cast<A>(x[at]) + static_cast<A>(table[time * width + c]));
    }
  }
};

// Rows: samples; columns: the table's elements.
template <typename T, bool kTimeFirst>
struct TableGradient : SumReduction<AccumulateType<T>> {
  int64_t samples, times, width;
  const T* dy;
  T* dw;
  HOST_DEVICE AccumulateType<T> Load(int64_t n, int64_t i) const {
    if (i >= times * width) return 0;
    const int64_t at =
        kTimeFirst ? (i / width * samples + n) * width + i % width : n * times * width + i;
    return static_cast<AccumulateType<T>>(dy[at]);
  }
  HOST_DEVICE void Store(int64_t i, AccumulateType<T> sum) const { dw[i] = static_cast<T>(sum); }
};

class PositionalEmbedding : public Layer {
 public:
  explicit PositionalEmbedding(const PositionalEmbeddingConfig& config) : config_(config) {}

  absl::StatusOr<LayerSpec> Infer(const InferInput& input) override {
    RETURN_IF_ERROR(CheckInputs(input, {{"x", input.compute}}));
    const Shape& x = input.inputs[0];
    const int axis = BatchAxis(input, 0);
    if (x.rank() != 3 || axis > 1) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "expects x [N, T, width] or [T, N, width], got %s with samples along axis %d",
          x.ToString(), axis));
    }
    compute_ = input.compute;
    samples_ = x[axis];
    times_ = x[1 - axis];
    width_ = x[2];
    RETURN_IF_ERROR(CheckExtent("width of x", width_));
    RETURN_IF_ERROR(CheckExtent("times of x", times_));
    time_first_ = axis == 1;
    if (times_ > config_.length()) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "length: expected the %d of the sequence or more, got %d", times_, config_.length()));
    }
    ASSIGN_OR_RETURN(const StateSpec weight,
                     MakeTable(config_.length(), width_, config_.weight(), input));
    LayerSpec spec;
    spec.states = {MakeState("input", StateKind::kInput, x, compute_, kRead, kNone),
                   MakeOutput(input, x, kNone), weight};
    spec.aliases = {{.output = kY, .input = kX, .must = false}};
    spec.forward_flops = static_cast<double>(x.elements());
    spec.backward_flops = weight.trained() ? spec.forward_flops : 0;
    return spec;
  }

  absl::Status Forward(const LayerContext& context) const override {
    const int64_t spans = CeilDiv(width_, kSpan);
    return VisitReal(compute_, [&]<typename T>() {
      return ForEach(
          context.stream, samples_ * times_ * spans,
          AddTable<T>{width_, spans, times_, time_first_ ? samples_ : 1, context.states[kX].as<T>(),
                      context.states[kWeight].as<T>(), context.states[kY].as<T>()});
    });
  }

  absl::Status Backward(const LayerContext& context) const override {
    const Tensor &dx = context.gradients[kX], &dy = context.gradients[kY];
    if (const Tensor& dw = context.gradients[kWeight]) {
      RETURN_IF_ERROR(VisitReal(compute_, [&]<typename T>() {
        return time_first_ ? BackwardTable<T, true>(context.stream, dy, dw)
                           : BackwardTable<T, false>(context.stream, dy, dw);
      }));
    }
    if (!dx || dx.data == dy.data) return absl::OkStatus();
    return context.stream.Copy(dx.data, dy.data, dy.bytes());
  }

  // Adds the first rows of the table, as many as x has steps.
  absl::Status ToOnnx(OnnxWriter& onnx) const override {
    const std::string x = onnx.Input(kX);
    std::string rows;
    if (onnx.TimeIsFree()) {
      const int64_t axis = time_first_ ? 0 : 1;
      const std::string steps = onnx.Node("Slice", {onnx.Node("Shape", {x}), onnx.Ints({axis}),
                                                    onnx.Ints({axis + 1}), onnx.Ints({0})});
      rows = onnx.Node("Slice", {onnx.Parameter("weight"), onnx.Ints({0}), steps, onnx.Ints({0})});
      if (time_first_) rows = onnx.Node("Unsqueeze", {rows, onnx.Ints({1})});
    } else {
      std::vector<float> table = onnx.Numbers("weight");
      table.resize(static_cast<size_t>(times_ * width_));
      rows = onnx.Weights("weight",
                          time_first_ ? std::vector<int64_t>{times_, 1, width_}
                                      : std::vector<int64_t>{times_, width_},
                          table);
    }
    onnx.Output(0, onnx.Node("Add", {x, rows}));
    return absl::OkStatus();
  }

 private:
  template <typename T, bool kTimeFirst>
  absl::Status BackwardTable(Stream& stream, const Tensor& dy, const Tensor& dw) const {
    return ReduceColumns(
        stream, samples_, config_.length() * width_,
        TableGradient<T, kTimeFirst>{{}, samples_, times_, width_, dy.as<T>(), dw.as<T>()});
  }

  const PositionalEmbeddingConfig config_;
  DType compute_ = DType::kF32;
  int64_t samples_ = 0, times_ = 0, width_ = 0;
  bool time_first_ = false;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Layer>> CreateEmbedding(const EmbeddingConfig& config) {
  RETURN_IF_ERROR(CheckExtent("vocabulary", config.vocabulary()));
  RETURN_IF_ERROR(CheckExtent("width", config.width()));
  return std::make_unique<Embedding>(config);
}

absl::StatusOr<std::unique_ptr<Layer>> CreatePositionalEmbedding(
    const PositionalEmbeddingConfig& config) {
  RETURN_IF_ERROR(CheckExtent("length", config.length()));
  return std::make_unique<PositionalEmbedding>(config);
}

}  // namespace gyre
