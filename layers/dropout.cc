// dropout: in training, zeroes each element with probability `rate` and scales the others by
// 1 / (1 - rate); otherwise the identity, as a view.  x and y: any shape, samples along any axis.
//
// No mask is kept: backward computes it again.  An element's bits depend on (key of the layer,
// step, position of its sample in the endless sample order, element), so they are the same for
// every device and every number of ranks. Source: Srivastava et al. 2014, "Dropout: a simple way to
// prevent neural networks from overfitting", JMLR 15, in the inverted form.

#include "absl/strings/str_format.h"
#include "engine/runtime/math.h"
#include "engine/runtime/parallel/parallel.h"
#include "engine/runtime/random.h"
#include "layers/infer.h"

namespace gyre {
namespace {

constexpr int kX = 0, kY = 1;  // states
constexpr int kWords = 4;      // elements that one Philox call serves

// Masks `from` into `to`, both [outer, N, inner], one group of kWords elements of a sample at a
// time, where element e of a sample is element e % inner of outer part e / inner.  Forward and
// backward are the same function: of x, and of dy.  kWhole: outer is 1 and kWords divides
// sample_elements, so that groups lie end to end and a loop over them is vectorised.
template <typename T, bool kWhole>
struct Mask {
  uint64_t key;
  uint32_t drop_below;
  AccumulateType<T> scale;
  int64_t sample_elements, sample_groups, samples, inner;
  const BatchPosition* position;
  const T* from;
  T* to;

  HOST_DEVICE void operator()(int64_t i) const {
    // Groups are counted through all samples.
    const uint64_t first = position->first_sample * static_cast<uint64_t>(sample_groups);
    const RandomBits bits = Philox(key, position->step, first + static_cast<uint64_t>(i));
    if constexpr (kWhole) {
      const int64_t at = i * kWords;
      Put(bits.v[0], at);
      Put(bits.v[1], at + 1);
      Put(bits.v[2], at + 2);
      Put(bits.v[3], at + 3);
    } else {
      const int64_t begin = i % sample_groups * kWords, sample = i / sample_groups;
      for (int word = 0; word < kWords && begin + word < sample_elements; ++word) {
        const int64_t e = begin + word;
        Put(bits.v[word], (e / inner * samples + sample) * inner + e % inner);
      }
    }
  }

  HOST_DEVICE void Put(uint32_t bits, int64_t at) const {
    const AccumulateType<T> kept = scale * from[at];  // read in any case: no branch
    to[at] = static_cast<T>(bits < drop_below ? 0 : kept);
  }
};

class Dropout : public Layer {
 public:
  explicit Dropout(double rate) : rate_(rate) {}

  absl::StatusOr<LayerSpec> Infer(const InferInput& input) override {
    RETURN_IF_ERROR(CheckInputs(input, {{"x", input.compute}}));
    const Shape& shape = input.inputs[0];
    ASSIGN_OR_RETURN(sample_elements_, SampleElements(input));
    const int axis = BatchAxis(input, 0);
    compute_ = input.compute;
    samples_ = shape[axis];
    inner_ = shape.elements(axis + 1, shape.rank());
    key_ = input.random_key;
    identity_ = !input.train || rate_ == 0;
    LayerSpec spec;
    spec.states = {MakeState("input", StateKind::kInput, shape, compute_, kRead, kNone),
                   MakeOutput(input, shape, kNone)};
    spec.aliases = {{.output = kY, .input = kX, .must = identity_}};
    if (!identity_) {
      spec.forward_flops = static_cast<double>(shape.elements());
      spec.backward_flops = spec.forward_flops;
    }
    return spec;
  }

  absl::Status Forward(const LayerContext& context) const override {
    return Apply(context, context.states[kX], context.states[kY]);
  }

  absl::Status Backward(const LayerContext& context) const override {
    if (!context.gradients[kX]) return absl::OkStatus();
    return Apply(context, context.gradients[kY], context.gradients[kX]);
  }

 private:
  absl::Status Apply(const LayerContext& context, const Tensor& from, const Tensor& to) const {
    if (identity_) return absl::OkStatus();
    const bool whole = inner_ == sample_elements_ && sample_elements_ % kWords == 0;
    return VisitReal(compute_, [&]<typename T>() {
      return whole ? Apply<T, true>(context, from, to) : Apply<T, false>(context, from, to);
    });
  }

  template <typename T, bool kWhole>
  absl::Status Apply(const LayerContext& context, const Tensor& from, const Tensor& to) const {
    const int64_t groups = CeilDiv<int64_t>(sample_elements_, kWords);
    // rate < 1, so the product is below 2^32.
    const auto drop_below = static_cast<uint32_t>(rate_ * 4294967296.0);
    return ForEach(
        context.stream, samples_ * groups,
        Mask<T, kWhole>{key_, drop_below, static_cast<AccumulateType<T>>(1 / (1 - rate_)),
                        sample_elements_, groups, samples_, inner_, context.position, from.as<T>(),
                        to.as<T>()});
  }

  const double rate_;
  DType compute_ = DType::kF32;
  int64_t samples_ = 0, sample_elements_ = 1, inner_ = 1;
  uint64_t key_ = 0;
  bool identity_ = false;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Layer>> CreateDropout(const DropoutConfig& config) {
  const double rate = config.rate();
  if (!(rate >= 0 && rate < 1)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("rate: expected at least 0 and below 1, got %g", rate));
  }
  return std::make_unique<Dropout>(rate);
}

}  // namespace gyre
