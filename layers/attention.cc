// attention: multi-head scaled dot products.  For each sample and head, of d = C / heads columns,
//   P = softmax(Q K^T / sqrt(d)), each row over the keys that it sees,  Y = P V;
//   dV = P^T dY,  dS = P (dP - sum_j P dP) / sqrt(d) with dP = dY V^T,  dQ = dS K,  dK = dS^T Q.
//
// Inputs and output, with T before N if samples lie along axis 1:
//   query, y    [N, T, C]
//   key, value  [N, S, C]; if T = S, all three may be side by side in one input, [N, T, 3 C]
//   causal      row t sees keys 0 .. t
//   lengths     [N]; each row, also one beyond the length, sees the keys before its sample's length
// A row that sees no key is 0.  Unseen keys and values must be finite, since they are multiplied
// by 0.
//
// No T x S array is stored.  Rows are taken a tile at a time (attention_plan.h), and backward makes
// a tile's probabilities again, from its scores and two numbers a row.  Each tile has whole rows of
// scores, so neither pass needs a running softmax (Dao et al. 2022, arXiv:2205.14135, is otherwise
// this scheme).  dK and dV are sums over tiles from the last to the first.
//
// Scratch, with R rows and B heads in a tile and A = AccumulateType, in elements:
//   forward   B R S of A (S rounded up to 16)
//   backward  2 B R S
//   copies    B (2 T + 2 S) d in forward, B (3 T + 4 S) d in backward, for types that are not A and
//             heads that are no multiple of 16 bytes
//   products  their own scratch
// A GPU takes groups of up to 2^28 scores, copied head by head, so that one launch multiplies all
// of them.  It multiplies 16 bits as they are, into sums of F32.  It rounds P and dS, but not
// scores and dP.

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "engine/runtime/math.h"
#include "layers/attention/attention_onnx.h"
#include "layers/attention/attention_plan.h"
#include "layers/attention/attention_rows.h"
#include "layers/interface/infer.h"

namespace gyre {
namespace {

using Plan = AttentionPlan;
using Role = Plan::Role;

constexpr Role kInputs[] = {Plan::kQuery, Plan::kKey, Plan::kValue};
// States after the output.
constexpr int kLargest = 1, kFactor = 2, kScratch = 3;

class Attention : public Layer {
 public:
  explicit Attention(const AttentionConfig& config) : config_(config) {}

  absl::StatusOr<LayerSpec> Infer(const InferInput& input) override {
    ASSIGN_OR_RETURN(plan_, PlanAttention(config_, input));
    const bool backward = plan_.backward();
    const auto read_if = [](bool reads) { return reads ? uint8_t{kRead} : uint8_t{kNone}; };
    LayerSpec spec;
    const auto add_input = [&](const char* name, size_t i, bool reads) {
      spec.states.push_back(MakeState(name, StateKind::kInput, input.inputs[i], input.dtypes[i],
                                      kRead, read_if(reads)));
    };
    if (plan_.is_packed) {
      add_input("packed", 0, backward);
    } else {
      add_input("query", 0, backward);
      add_input("key", 1, backward);
      add_input("value", 2, plan_.of_scores());
    }
    if (plan_.has_lengths) {
      add_input("lengths", spec.states.size(), backward);
      spec.states.back().largest = plan_.keys;
    }
    spec.states.push_back(
        MakeOutput(input, input.inputs[0].With(2, plan_.columns), /*backward=*/kNone));
    const uint8_t access = kRead | kWrite;
    const DType wide = AccumulateDType(plan_.compute);
    for (const char* name : {"largest", "factor"}) {
      spec.states.push_back(MakeState(name, StateKind::kSaved,
                                      Shape{plan_.samples, plan_.heads, plan_.queries}, wide,
                                      access, read_if(backward)));
    }
    spec.states.push_back(MakeBytes("scratch", StateKind::kScratch, ScratchBytes(backward), access,
                                    backward ? access : uint8_t{kNone}));
    const auto queries = static_cast<double>(plan_.queries);
    const double seen =
        queries * (plan_.causal ? (queries + 1) / 2 : static_cast<double>(plan_.keys));
    const double scores = static_cast<double>(plan_.samples * plan_.heads) * seen;
    // A product counts 2 d a score, a softmax 5, its gradient 4.
    const double product = 2 * static_cast<double>(plan_.width);
    spec.forward_flops = scores * (2 * product + 5);
    int products = 1 + plan_.of_scores();
    for (const Role role : kInputs) products += plan_.gradient[role];
    if (backward) spec.backward_flops = scores * (products * product + 9);
    return spec;
  }

  absl::Status Forward(const LayerContext& context) const override {
    if (plan_.has_lengths) {
      RETURN_IF_ERROR(
          ForEach(context.stream, plan_.samples,
                  CheckLengths{plan_.keys, Lengths(context), context.fault, context.layer}));
    }
    return EachGroup(context, /*backward=*/false);
  }

  absl::Status Backward(const LayerContext& context) const override {
    for (const Role role : kInputs) {
      if (context.gradients[plan_.layouts[role].state])
        return EachGroup(context, /*backward=*/true);
    }
    return absl::OkStatus();
  }

  absl::Status ToOnnx(OnnxWriter& onnx) const override {
    AttentionToOnnx(plan_, onnx);
    return absl::OkStatus();
  }

 private:
  // Arrays of a group's work, in place or in scratch.
  template <typename A, typename O>
  struct Arrays {
    A *scores, *dprobabilities;  // [matrices, rows, keys]
    O *probabilities, *dscores;  // likewise, as products read them
    O* of[4];                    // by role; the output's is its gradient
    A *output, *gradient[3];     // null: not wanted
    A *largest, *factor;         // of rows; see SeenScores
    void* products;
  };

  // Sets the addresses of scratch from `base` on (null: to null).  Returns the bytes of all.
  template <typename A, typename O>
  size_t LayOut(std::byte* base, bool backward, Arrays<A, O>& arrays) const {
    size_t bytes = 0;
    const auto take = [&]<typename X>(int64_t elements, X*& to) {
      const size_t at = bytes;
      bytes += RoundUp(static_cast<size_t>(elements) * sizeof(X), size_t{256});
      to = base == nullptr ? nullptr : reinterpret_cast<X*>(base + at);
    };
    const auto take_slice = [&](Role role, auto*& to) {
      take(plan_.group_samples * plan_.layouts[role].of_group.sample, to);
    };
    const int64_t scores = plan_.group_samples * plan_.group_heads * plan_.tile_rows *
                           RoundUp(plan_.keys, kAttentionAligned);
    arrays = {};
    take(scores, arrays.scores);
    if constexpr (std::is_same_v<A, O>) {
      arrays.probabilities = arrays.scores;
      if (backward) take(scores, arrays.dscores);
      arrays.dprobabilities = arrays.dscores;
    } else {
      take(scores, arrays.probabilities);
      arrays.dprobabilities = arrays.scores;
      if (backward) take(scores, arrays.dscores);
    }
    if (plan_.copies) {
      for (const Role role : kInputs) {
        take_slice(role, arrays.of[role]);
        if (backward) take_slice(role, arrays.gradient[role]);
      }
      if (backward) {
        take_slice(Plan::kOutput, arrays.of[Plan::kOutput]);
      } else {
        take_slice(Plan::kOutput, arrays.output);
      }
    }
    if (base != nullptr) arrays.products = base + bytes;
    return bytes + plan_.product_scratch();
  }

  // f<T, O>(): the types that are stored and that products read.  Merged products have one type.
  template <typename F>
  auto VisitOperands(const F& f) const {
    return VisitReal(plan_.compute, [&]<typename T>() {
      return plan_.merged ? f.template operator()<T, T>()
                          : f.template operator()<T, AccumulateType<T>>();
    });
  }

  size_t ScratchBytes(bool backward) const {
    return VisitOperands([&]<typename T, typename O>() {
      Arrays<AccumulateType<T>, O> arrays;
      const size_t forward = LayOut(nullptr, /*backward=*/false, arrays);
      return backward ? std::max(forward, LayOut(nullptr, true, arrays)) : forward;
    });
  }

  absl::Status EachGroup(const LayerContext& context, bool backward) const {
    return VisitOperands([&]<typename T, typename O>() {
      for (int64_t n = 0; n < plan_.samples; n += plan_.group_samples) {
        for (int64_t head = 0; head < plan_.heads; head += plan_.group_heads) {
          const Group<T> group{context, n, head};
          RETURN_IF_ERROR((backward ? BackwardGroup<T, O>(group) : ForwardGroup<T, O>(group)));
        }
      }
      return absl::OkStatus();
    });
  }

  // The samples and heads from these on.
  template <typename T>
  struct Group {
    const LayerContext& context;
    int64_t sample, head;
  };

  template <typename O, typename T, typename A = AccumulateType<T>>
  Arrays<A, O> GroupArrays(const Group<T>& group, bool backward) const {
    const Tensor* const states = &group.context.states[plan_.output()];
    Arrays<A, O> arrays;
    LayOut(static_cast<std::byte*>(states[kScratch].data), backward, arrays);
    const int64_t row = (group.sample * plan_.heads + group.head) * plan_.queries;
    arrays.largest = states[kLargest].as<A>() + row;
    arrays.factor = states[kFactor].as<A>() + row;
    return arrays;
  }

  template <typename T, typename O>
  absl::Status ForwardGroup(const Group<T>& group) const {
    using A = AccumulateType<T>;
    Stream& stream = group.context.stream;
    Arrays<A, O> g = GroupArrays<O>(group, /*backward=*/false);
    for (const Role role : kInputs) {
      RETURN_IF_ERROR(Take(group, role, group.context.states, g.of[role]));
    }
    T* const y = At(group, Plan::kOutput, group.context.states);
    if (!plan_.copies) g.output = reinterpret_cast<A*>(y);
    RETURN_IF_ERROR(EachTile([&](const AttentionTile& tile, int64_t row) {
      RETURN_IF_ERROR(Scores(stream, tile, row, g));
      RETURN_IF_ERROR(Seen(
          group, tile, row, g,
          [&]<bool kHasLengths>(const SeenScores<A, kHasLengths>& seen, int64_t rows) {
            if (plan_.merged) {
              return TransformRows(stream, rows, tile.keys,
                                   SoftmaxOfSeen<A, kHasLengths, O>{{}, seen, g.probabilities});
            }
            RETURN_IF_ERROR(
                ForEachRow(stream, rows, tile.keys, LargestOfSeen<A, kHasLengths>{seen}));
            RETURN_IF_ERROR(
                ForEachRow(stream, rows, tile.keys, FactorOfSeen<A, kHasLengths>{{}, seen}));
            return ForEachCell(stream, rows, tile.keys,
                               Probabilities<true, A, kHasLengths, O>{seen, g.probabilities});
          }));
      return tile.output->Run(stream, g.probabilities, g.of[Plan::kValue], nullptr,
                              Row(g.output, Plan::kOutput, row), g.products);
    }));
    return Give(group, Plan::kOutput, g.output, y);
  }

  template <typename T, typename O>
  absl::Status BackwardGroup(const Group<T>& group) const {
    using A = AccumulateType<T>;
    Stream& stream = group.context.stream;
    Arrays<A, O> g = GroupArrays<O>(group, /*backward=*/true);
    T* to[3];
    for (const Role role : kInputs) {
      RETURN_IF_ERROR(Take(group, role, group.context.states, g.of[role]));
      to[role] = At(group, role, group.context.gradients);
      if (!plan_.copies) g.gradient[role] = reinterpret_cast<A*>(to[role]);
    }
    RETURN_IF_ERROR(Take(group, Plan::kOutput, group.context.gradients, g.of[Plan::kOutput]));
    const O *const k = g.of[Plan::kKey], *const v = g.of[Plan::kValue];
    RETURN_IF_ERROR(EachTile([&](const AttentionTile& tile, int64_t row) {
      const O* const q = Row(g.of[Plan::kQuery], Plan::kQuery, row);
      const O* const dy = Row(g.of[Plan::kOutput], Plan::kOutput, row);
      RETURN_IF_ERROR(Scores(stream, tile, row, g));
      RETURN_IF_ERROR(
          Seen(group, tile, row, g,
               [&]<bool kHasLengths>(const SeenScores<A, kHasLengths>& seen, int64_t rows) {
                 return ForEachCell(stream, rows, tile.keys,
                                    Probabilities<false, A, kHasLengths, O>{seen, g.probabilities});
               }));
      if (to[Plan::kValue] != nullptr) {
        RETURN_IF_ERROR(tile.dvalue->Run(stream, g.probabilities, dy, nullptr,
                                         g.gradient[Plan::kValue], g.products));
      }
      if (to[Plan::kQuery] == nullptr && to[Plan::kKey] == nullptr) return absl::OkStatus();
      RETURN_IF_ERROR(tile.dscores->Run(stream, dy, v, nullptr, g.dprobabilities, g.products));
      RETURN_IF_ERROR(
          Seen(group, tile, row, g,
               [&]<bool kHasLengths>(const SeenScores<A, kHasLengths>& seen, int64_t rows) {
                 return TransformRows(stream, rows, tile.keys,
                                      SoftmaxOfSeenGradient<A, kHasLengths, O>{
                                          {}, seen, g.probabilities, g.dprobabilities, g.dscores});
               }));
      if (to[Plan::kQuery] != nullptr) {
        RETURN_IF_ERROR(tile.dquery->Run(stream, g.dscores, k, nullptr,
                                         Row(g.gradient[Plan::kQuery], Plan::kQuery, row),
                                         g.products));
      }
      if (to[Plan::kKey] == nullptr) return absl::OkStatus();
      return tile.dkey->Run(stream, g.dscores, q, nullptr, g.gradient[Plan::kKey], g.products);
    }));
    for (const Role role : kInputs) RETURN_IF_ERROR(Give(group, role, g.gradient[role], to[role]));
    return absl::OkStatus();
  }

  // Calls f(tile, its first row) from the last tile, which has all keys, to the first.
  template <typename F>
  absl::Status EachTile(const F& f) const {
    const int64_t last = CeilDiv(plan_.queries, plan_.tile_rows) - 1;
    for (int64_t i = last; i >= 0; --i) {
      const size_t kind = i == last ? 0 : 1 + static_cast<size_t>(i / plan_.width_tiles);
      RETURN_IF_ERROR(f(plan_.tiles[kind], i * plan_.tile_rows));
    }
    return absl::OkStatus();
  }

  // Into g.scores, of the rows from `row` on.
  template <typename A, typename O>
  absl::Status Scores(Stream& stream, const AttentionTile& tile, int64_t row,
                      const Arrays<A, O>& g) const {
    return tile.scores->Run(stream, Row(g.of[Plan::kQuery], Plan::kQuery, row), g.of[Plan::kKey],
                            nullptr, g.scores, g.products);
  }

  // Calls f(SeenScores, their number of rows) for the tile at `row`.
  template <typename T, typename A, typename O, typename F>
  absl::Status Seen(const Group<T>& group, const AttentionTile& tile, int64_t row,
                    const Arrays<A, O>& g, const F& f) const {
    const auto with = [&]<bool kHasLengths>() {
      const int32_t* lengths = kHasLengths ? Lengths(group.context) + group.sample : nullptr;
      const Visible<kHasLengths> visible{tile.rows,  plan_.group_heads, row,    plan_.queries,
                                         plan_.keys, plan_.causal,      lengths};
      const A scale = static_cast<A>(1 / std::sqrt(static_cast<double>(plan_.width)));
      return f(SeenScores<A, kHasLengths>{visible, RoundUp(tile.keys, kAttentionAligned), scale,
                                          g.scores, g.largest, g.factor},
               plan_.group_samples * plan_.group_heads * tile.rows);
    };
    return plan_.has_lengths ? with.template operator()<true>() : with.template operator()<false>();
  }

  const int32_t* Lengths(const LayerContext& context) const {
    return context.states[plan_.lengths()].as<int32_t>();
  }

  // From a row on.
  template <typename A>
  A* Row(A* of, Role role, int64_t row) const {
    return of + row * plan_.layouts[role].of_group.row;
  }

  // Where a group's slice begins, or null if it is not bound.
  template <typename T>
  T* At(const Group<T>& group, Role role, std::span<const Tensor> tensors) const {
    const Plan::HeadLayout& layout = plan_.layouts[role];
    const Tensor& tensor = tensors[layout.state];
    if (!tensor) return nullptr;
    return tensor.as<T>() + group.sample * layout.whole.sample + layout.column +
           group.head * plan_.width;
  }

  // Sets `to` to a group's slice of `tensors`, or copies the slice there.  Ignores an unbound one.
  template <typename T, typename O>
  absl::Status Take(const Group<T>& group, Role role, std::span<const Tensor> tensors,
                    O*& to) const {
    const Plan::HeadLayout& layout = plan_.layouts[role];
    T* const from = At(group, role, tensors);
    if (plan_.copies && from != nullptr) {
      return Copy(group.context.stream, layout.rows, layout.whole, layout.of_group, from, to);
    }
    if (!plan_.copies) to = reinterpret_cast<O*>(from);
    return absl::OkStatus();
  }

  template <typename T>
  absl::Status Give(const Group<T>& group, Role role, const AccumulateType<T>* from, T* to) const {
    const Plan::HeadLayout& layout = plan_.layouts[role];
    if (!plan_.copies || to == nullptr) return absl::OkStatus();
    return Copy(group.context.stream, layout.rows, layout.of_group, layout.whole, from, to);
  }

  template <typename From, typename To>
  absl::Status Copy(Stream& stream, int64_t rows, const HeadStrides& of_from,
                    const HeadStrides& of_to, const From* from, To* to) const {
    const int64_t heads = plan_.group_heads, width = plan_.width, spans = CeilDiv(width, kSpan);
    return ForEach(stream, plan_.group_samples * rows * heads * spans,
                   CopyHeads<From, To>{rows, heads, width, spans, of_from, of_to, from, to});
  }

  const AttentionConfig config_;
  AttentionPlan plan_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Layer>> CreateAttention(const AttentionConfig& config) {
  RETURN_IF_ERROR(CheckExtent("heads", config.heads()));
  return std::make_unique<Attention>(config);
}

}  // namespace gyre
