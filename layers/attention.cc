// attention: multi-head scaled dot products.  For each sample and head, of d = C / heads columns,
//   P = softmax(Q K^T / sqrt(d)), each row over the keys that it sees,  Y = P V;
//   dV = P^T dY,  dS = P (dP - sum_j P dP) / sqrt(d) with dP = dY V^T,  dQ = dS K,  dK = dS^T Q.
// query and y: [N, T, C]; key and value: [N, S, C]; or all [T, N, C] where the samples lie along
// axis 1.  causal: row t sees keys 0 .. t.  lengths: [N]; row t sees the keys before its sample's
// length, and where T == S a row from the length on sees none.  A row that sees none is 0.  What
// is not seen must be finite: it is multiplied by 0.
//
// No T x S array is stored: rows are taken kMostRows at a time, of as many heads and samples as
// have kScores scores, and backward makes the probabilities of a block again, from its scores and
// two numbers a row.  Each block has whole rows of scores, so that neither pass needs a running
// softmax (Dao et al. 2022, arXiv:2205.14135, whose scheme this is otherwise).  dK and dV are sums
// over blocks from the last to the first.  With R rows and B heads in a block, and A =
// AccumulateType, scratch is
//   forward B R S, backward 2 B R S elements of A (S rounded up to 16), and, for types that are
//   not A or heads that are no multiple of 16 bytes, which are copied, B (2 T + 2 S) d, backward
//   B (3 T + 4 S) d; and what the products want.

#include <cmath>

#include "absl/strings/str_format.h"
#include "engine/runtime/math.h"
#include "layers/attention_rows.h"
#include "layers/infer.h"

namespace gyre {
namespace {

constexpr int kQuery = 0, kKey = 1, kValue = 2, kLengths = 3;  // states; output and scratch follow

// Scores of a group at most, unless one matrix has more: for a GPU, 2 MB of float; for a CPU, with
// their gradients, half of a second-level cache.
constexpr int64_t kScores = int64_t{1} << 19, kCpuScores = int64_t{1} << 17;
// More would make the products no faster; fewer where rows are long.
constexpr int64_t kMostRows = 128, kLeastRows = 16;
// Of causal blocks, each skips the keys beyond it, but in so many steps: each is a product to
// prepare.
constexpr int64_t kMostWidths = 8;
// Elements that rows and matrices in scratch are rounded up to: 64 bytes of float.
constexpr int64_t kAligned = 16;
// What a GPU's products want of the begin of an operand; see primitives.h.
constexpr int64_t kOperandBytes = 16;

int64_t LargestDivisor(int64_t of, int64_t most) {
  int64_t divisor = std::min(of, most);
  while (of % divisor != 0) --divisor;
  return divisor;
}

// A block of rows with so many keys.
struct Block {
  int64_t rows, keys;
  // [rows, d] [keys, d]^T -> [rows, keys]; [rows, keys] [keys, d] -> [rows, d], of queries;
  // [rows, keys]^T [rows, d] -> [keys, d], of keys, added but for the first block of a group.
  std::unique_ptr<Gemm> scores, queries, keys_sum;
};

class Attention : public Layer {
 public:
  explicit Attention(const AttentionConfig& config) : config_(config), heads_(config.heads()) {}

  absl::StatusOr<LayerSpec> Infer(const InferInput& input) override {
    RETURN_IF_ERROR(CheckShapes(input));
    for (int i = kQuery; i <= kValue; ++i) gradient_[i] = NeedsGradient(input, i);
    const bool of_scores = gradient_[kQuery] || gradient_[kKey];
    const bool backward = of_scores || gradient_[kValue];
    Divide(input.primitives->device());
    RETURN_IF_ERROR(Prepare(input, backward));
    LayerSpec spec;
    const auto read_if = [](bool reads) { return reads ? uint8_t{kRead} : uint8_t{kNone}; };
    const char* const names[] = {"query", "key", "value"};
    for (int i = kQuery; i <= kValue; ++i) {
      spec.states.push_back(MakeState(names[i], StateKind::kInput, input.inputs[i], compute_, kRead,
                                      read_if(i == kValue ? of_scores : backward)));
    }
    if (has_lengths_) {
      spec.states.push_back(MakeState("lengths", StateKind::kInput, Shape{samples_}, DType::kI32,
                                      kRead, read_if(backward)));
      spec.states.back().largest = keys_;
    }
    output_ = static_cast<int>(spec.states.size());
    spec.states.push_back(
        MakeState("output", StateKind::kOutput, input.inputs[kQuery], compute_, kWrite, kNone));
    spec.states[output_].batch_axis = axis_;
    const uint8_t access = kRead | kWrite;
    const DType wide = compute_ == DType::kF64 ? DType::kF64 : DType::kF32;
    for (const char* name : {"largest", "factor"}) {
      spec.states.push_back(MakeState(name, StateKind::kSaved, Shape{samples_, heads_, queries_},
                                      wide, access, read_if(backward)));
    }
    spec.states.push_back(MakeBytes("scratch", StateKind::kScratch,
                                    VisitReal(compute_,
                                              [&]<typename T>() {
                                                Arrays<AccumulateType<T>> places;
                                                return LayOut(nullptr, backward, places);
                                              }),
                                    access, backward ? access : uint8_t{kNone}));
    const double seen = config_.causal()
                            ? static_cast<double>(queries_) * static_cast<double>(queries_ + 1) / 2
                            : static_cast<double>(queries_) * static_cast<double>(keys_);
    const double scores = static_cast<double>(samples_ * heads_) * seen;
    // A product counts 2 d a score, a softmax 5, its gradient 4.
    const double product = 2 * static_cast<double>(width_);
    spec.forward_flops = scores * (2 * product + 5);
    const int products = 1 + gradient_[kValue] + of_scores + gradient_[kQuery] + gradient_[kKey];
    if (backward) spec.backward_flops = scores * (products * product + 9);
    return spec;
  }

  absl::Status Forward(const LayerContext& context) const override {
    if (has_lengths_) {
      RETURN_IF_ERROR(ForEach(context.stream, samples_,
                              CheckLengths{keys_, context.states[kLengths].as<int32_t>(),
                                           context.fault, context.layer}));
    }
    return EachGroup(context, /*backward=*/false);
  }

  absl::Status Backward(const LayerContext& context) const override {
    for (int i = kQuery; i <= kValue; ++i) {
      if (context.gradients[i]) return EachGroup(context, /*backward=*/true);
    }
    return absl::OkStatus();
  }

 private:
  // What a group's work reads and writes, in place or in scratch.
  template <typename A>
  struct Arrays {
    A *scores, *dscores;  // [matrices, rows, keys]
    A *q, *k, *v, *y;     // y: backward its gradient
    A *dq, *dk, *dv;      // null: not wanted
    A *largest, *factor;  // of rows; see SeenScores
    void* products;
  };

  absl::Status CheckShapes(const InferInput& input) {
    has_lengths_ = input.inputs.size() == 4;
    const ExpectedInput query{"query", input.compute}, key{"key", input.compute},
        value{"value", input.compute}, lengths{"lengths", DType::kI32};
    RETURN_IF_ERROR(has_lengths_ ? CheckInputs(input, {query, key, value, lengths})
                                 : CheckInputs(input, {query, key, value}));
    const Shape &q = input.inputs[kQuery], &k = input.inputs[kKey], &v = input.inputs[kValue];
    axis_ = BatchAxis(input, kQuery);
    if (q.rank() != 3 || axis_ > 1) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "expects a query [N, T, C] or [T, N, C], got %s with samples along axis %d", q.ToString(),
          axis_));
    }
    for (const int i : {kKey, kValue}) {
      if (BatchAxis(input, i) == axis_) continue;
      return absl::InvalidArgumentError(
          absl::StrFormat("expects samples along axis %d, as in query, but those of input %d, %s, "
                          "are along axis %d; transpose it",
                          axis_, i, input.inputs[i].ToString(), BatchAxis(input, i)));
    }
    if (k.rank() != 3 || !(k == q.With(1 - axis_, k[1 - axis_])) || !(v == k)) {
      return absl::InvalidArgumentError(
          absl::StrFormat("expects key and value of one shape, and of query's but for the length, "
                          "got query %s, key %s and value %s",
                          q.ToString(), k.ToString(), v.ToString()));
    }
    if (q[1 - axis_] < 1 || k[1 - axis_] < 1 || q[2] < 1) {
      return absl::InvalidArgumentError(
          absl::StrFormat("expects sequences and columns of one or more, got query %s and key %s",
                          q.ToString(), k.ToString()));
    }
    compute_ = input.compute;
    samples_ = q[axis_];
    queries_ = q[1 - axis_];
    keys_ = k[1 - axis_];
    columns_ = q[2];
    if (columns_ % heads_ != 0) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "heads: expected a divisor of the %d columns of query, got %d", columns_, heads_));
    }
    if (config_.causal() && queries_ != keys_) {
      return absl::InvalidArgumentError(
          absl::StrFormat("causal: expects as many keys as queries, got query %s and key %s",
                          q.ToString(), k.ToString()));
    }
    if (has_lengths_ && !(input.inputs[kLengths] == Shape{samples_})) {
      return absl::InvalidArgumentError(
          absl::StrFormat("expects lengths [%d], one for each sample, got %s", samples_,
                          input.inputs[kLengths].ToString()));
    }
    return absl::OkStatus();
  }

  // The rows of a block, the heads and samples of a group, and where they lie.
  void Divide(DeviceKind device) {
    width_ = columns_ / heads_;
    const int64_t row_scores = RoundUp(keys_, kAligned), fitting = kScores / row_scores;
    block_rows_ =
        std::min(queries_, std::clamp(fitting / kLeastRows * kLeastRows, kLeastRows, kMostRows));
    const int64_t most = device == DeviceKind::kCuda ? kScores : kCpuScores;
    const int64_t matrices = std::max<int64_t>(1, most / (block_rows_ * row_scores));
    group_heads_ = LargestDivisor(heads_, matrices);
    // A share of the batch that is empty prepares the same products as others do.
    group_samples_ = group_heads_ < heads_
                         ? 1
                         : LargestDivisor(std::max<int64_t>(1, samples_), matrices / heads_);
    const bool time_first = axis_ == 1;
    const int64_t row = time_first ? std::max<int64_t>(1, samples_) * columns_ : columns_;
    whole_queries_ = {row, time_first ? columns_ : queries_ * columns_};
    whole_keys_ = {row, time_first ? columns_ : keys_ * columns_};
    copies_ = SizeOf(compute_) == 2 ||
              width_ * static_cast<int64_t>(SizeOf(compute_)) % kOperandBytes != 0;
    const int64_t copied = group_heads_ * width_;
    of_queries_ =
        copies_ ? RowStrides{copied, RoundUp(queries_ * copied, kAligned)} : whole_queries_;
    of_keys_ = copies_ ? RowStrides{copied, RoundUp(keys_ * copied, kAligned)} : whole_keys_;
  }

  absl::Status Prepare(const InferInput& input, bool backward) {
    blocks_.clear();
    const int64_t blocks = CeilDiv(queries_, block_rows_);
    RETURN_IF_ERROR(PrepareBlock(input, backward, queries_ - (blocks - 1) * block_rows_, keys_,
                                 /*first=*/true));
    if (blocks == 1) return absl::OkStatus();
    width_blocks_ = config_.causal() ? CeilDiv(blocks - 1, kMostWidths) : blocks - 1;
    for (int64_t block = 0; block < blocks - 1; block += width_blocks_) {
      const int64_t end = config_.causal() ? (block + width_blocks_) * block_rows_ : keys_;
      RETURN_IF_ERROR(
          PrepareBlock(input, backward, block_rows_, std::min(keys_, end), /*first=*/false));
    }
    return absl::OkStatus();
  }

  absl::Status PrepareBlock(const InferInput& input, bool backward, int64_t rows, int64_t keys,
                            bool first) {
    const DType dtype = compute_ == DType::kF64 ? DType::kF64 : DType::kF32;
    const int64_t stride = RoundUp(keys, kAligned), matrix = rows * stride;
    // Then the rows begin at 0: row t sees keys 0 .. t.
    const bool lower = config_.causal() && rows == keys;
    GemmSpec scores{.dtype = dtype, .m = rows, .n = keys, .k = width_};
    scores.transpose_b = true;
    scores.lower_c = lower;
    scores.lda = of_queries_.row;
    scores.ldb = of_keys_.row;
    scores.ldc = stride;
    scores.outer = {group_samples_, of_queries_.sample, of_keys_.sample, group_heads_ * matrix};
    scores.inner = {group_heads_, width_, width_, matrix};
    GemmSpec queries{.dtype = dtype, .m = rows, .n = width_, .k = keys};
    queries.lower_a = lower;
    queries.lda = stride;
    queries.ldb = of_keys_.row;
    queries.ldc = of_queries_.row;
    queries.outer = {group_samples_, group_heads_ * matrix, of_keys_.sample, of_queries_.sample};
    queries.inner = {group_heads_, matrix, width_, width_};
    GemmSpec sum{.dtype = dtype, .m = keys, .n = width_, .k = rows};
    sum.transpose_a = true;
    sum.lower_a = lower;
    sum.lda = stride;
    sum.ldb = of_queries_.row;
    sum.ldc = of_keys_.row;
    sum.outer = {group_samples_, group_heads_ * matrix, of_queries_.sample, of_keys_.sample};
    sum.inner = queries.inner;
    sum.accumulate = !first;
    Block& block = blocks_.emplace_back(Block{rows, keys, nullptr, nullptr, nullptr});
    ASSIGN_OR_RETURN(block.scores, input.primitives->Prepare(scores));
    ASSIGN_OR_RETURN(block.queries, input.primitives->Prepare(queries));
    if (backward) {
      ASSIGN_OR_RETURN(block.keys_sum, input.primitives->Prepare(sum));
    }
    return absl::OkStatus();
  }

  // Places in scratch from `base` on; returns the bytes they take.
  template <typename A>
  size_t LayOut(std::byte* base, bool backward, Arrays<A>& arrays) const {
    size_t bytes = 0;
    const auto take = [&](int64_t elements) {
      const size_t at = bytes;
      bytes += RoundUp(static_cast<size_t>(elements) * sizeof(A), size_t{256});
      return base == nullptr ? nullptr : reinterpret_cast<A*>(base + at);
    };
    const int64_t scores = group_samples_ * group_heads_ * block_rows_ * RoundUp(keys_, kAligned);
    arrays = {};
    arrays.scores = take(scores);
    if (backward) arrays.dscores = take(scores);
    if (copies_) {
      const int64_t queries = group_samples_ * of_queries_.sample;
      const int64_t keys = group_samples_ * of_keys_.sample;
      arrays.q = take(queries);
      arrays.k = take(keys);
      arrays.v = take(keys);
      arrays.y = take(queries);
      if (backward) {
        arrays.dq = take(queries);
        arrays.dk = take(keys);
        arrays.dv = take(keys);
      }
    }
    size_t products = 0;
    for (const Block& block : blocks_) {
      for (const auto& gemm : {&block.scores, &block.queries, &block.keys_sum}) {
        if (*gemm) products = std::max(products, (*gemm)->scratch_bytes());
      }
    }
    if (base != nullptr) arrays.products = base + bytes;
    return bytes + products;
  }

  template <typename A>
  Arrays<A> GroupArrays(const LayerContext& context, bool backward, int64_t n,
                        int64_t column) const {
    Arrays<A> arrays;
    LayOut(static_cast<std::byte*>(context.states[output_ + 3].data), backward, arrays);
    const int64_t row = (n * heads_ + column / width_) * queries_;
    arrays.largest = context.states[output_ + 1].as<A>() + row;
    arrays.factor = context.states[output_ + 2].as<A>() + row;
    return arrays;
  }

  absl::Status EachGroup(const LayerContext& context, bool backward) const {
    return VisitReal(compute_, [&]<typename T>() {
      for (int64_t n = 0; n < samples_; n += group_samples_) {
        for (int64_t column = 0; column < columns_; column += group_heads_ * width_) {
          RETURN_IF_ERROR(backward ? BackwardGroup<T>(context, n, column)
                                   : ForwardGroup<T>(context, n, column));
        }
      }
      return absl::OkStatus();
    });
  }

  template <typename T>
  absl::Status ForwardGroup(const LayerContext& context, int64_t n, int64_t column) const {
    using A = AccumulateType<T>;
    Stream& stream = context.stream;
    const std::span<const Tensor> states = context.states;
    Arrays<A> g = GroupArrays<A>(context, /*backward=*/false, n, column);
    RETURN_IF_ERROR(Take<T>(stream, Part<T>(states[kQuery], whole_queries_, n, column), true, g.q));
    RETURN_IF_ERROR(Take<T>(stream, Part<T>(states[kKey], whole_keys_, n, column), false, g.k));
    RETURN_IF_ERROR(Take<T>(stream, Part<T>(states[kValue], whole_keys_, n, column), false, g.v));
    T* const y = Part<T>(states[output_], whole_queries_, n, column);
    if (!copies_) g.y = reinterpret_cast<A*>(y);
    RETURN_IF_ERROR(EachBlock([&](const Block& block, int64_t row) {
      RETURN_IF_ERROR(Scores(stream, block, row, g));
      RETURN_IF_ERROR(
          Seen(context, block, n, row, g,
               [&]<bool kHasLengths>(const SeenScores<A, kHasLengths>& seen, int64_t rows) {
                 RETURN_IF_ERROR(
                     ForEachRow(stream, rows, block.keys, LargestOfSeen<A, kHasLengths>{seen}));
                 RETURN_IF_ERROR(
                     ForEachRow(stream, rows, block.keys, FactorOfSeen<A, kHasLengths>{{}, seen}));
                 return ForEachCell(stream, rows, block.keys, Probabilities<A, kHasLengths>{seen});
               }));
      return block.queries->Run(stream, g.scores, g.v, nullptr, g.y + row * of_queries_.row,
                                g.products);
    }));
    return Give(stream, g.y, true, y);
  }

  template <typename T>
  absl::Status BackwardGroup(const LayerContext& context, int64_t n, int64_t column) const {
    using A = AccumulateType<T>;
    Stream& stream = context.stream;
    const std::span<const Tensor> states = context.states, gradients = context.gradients;
    Arrays<A> g = GroupArrays<A>(context, /*backward=*/true, n, column);
    T* const dq = Part<T>(gradients[kQuery], whole_queries_, n, column);
    T* const dk = Part<T>(gradients[kKey], whole_keys_, n, column);
    T* const dv = Part<T>(gradients[kValue], whole_keys_, n, column);
    RETURN_IF_ERROR(Take<T>(stream, Part<T>(states[kQuery], whole_queries_, n, column), true, g.q));
    RETURN_IF_ERROR(Take<T>(stream, Part<T>(states[kKey], whole_keys_, n, column), false, g.k));
    RETURN_IF_ERROR(
        Take<T>(stream, Part<T>(gradients[output_], whole_queries_, n, column), true, g.y));
    if (dq != nullptr || dk != nullptr) {
      RETURN_IF_ERROR(Take<T>(stream, Part<T>(states[kValue], whole_keys_, n, column), false, g.v));
    }
    if (!copies_) {
      g.dq = reinterpret_cast<A*>(dq);
      g.dk = reinterpret_cast<A*>(dk);
      g.dv = reinterpret_cast<A*>(dv);
    }
    RETURN_IF_ERROR(EachBlock([&](const Block& block, int64_t row) {
      const int64_t at = row * of_queries_.row;
      RETURN_IF_ERROR(Scores(stream, block, row, g));
      RETURN_IF_ERROR(
          Seen(context, block, n, row, g,
               [&]<bool kHasLengths>(const SeenScores<A, kHasLengths>& seen, int64_t rows) {
                 return ForEachCell(stream, rows, block.keys, Probabilities<A, kHasLengths>{seen});
               }));
      if (dv != nullptr) {
        RETURN_IF_ERROR(block.keys_sum->Run(stream, g.scores, g.y + at, nullptr, g.dv, g.products));
      }
      if (dq == nullptr && dk == nullptr) return absl::OkStatus();
      RETURN_IF_ERROR(block.scores->Run(stream, g.y + at, g.v, nullptr, g.dscores, g.products));
      RETURN_IF_ERROR(
          Seen(context, block, n, row, g,
               [&]<bool kHasLengths>(const SeenScores<A, kHasLengths>& seen, int64_t rows) {
                 return TransformRows(stream, rows, block.keys,
                                      SoftmaxGradient<A, kHasLengths>{{}, seen, g.dscores});
               }));
      if (dq != nullptr) {
        RETURN_IF_ERROR(block.queries->Run(stream, g.dscores, g.k, nullptr, g.dq + at, g.products));
      }
      if (dk == nullptr) return absl::OkStatus();
      return block.keys_sum->Run(stream, g.dscores, g.q + at, nullptr, g.dk, g.products);
    }));
    RETURN_IF_ERROR(Give(stream, g.dq, true, dq));
    RETURN_IF_ERROR(Give(stream, g.dk, false, dk));
    return Give(stream, g.dv, false, dv);
  }

  // f(block, its first row), from the last to the first: the last one has all keys.
  template <typename F>
  absl::Status EachBlock(const F& f) const {
    for (int64_t i = CeilDiv(queries_, block_rows_) - 1, last = i; i >= 0; --i) {
      const size_t kind = i == last ? 0 : 1 + static_cast<size_t>(i / width_blocks_);
      RETURN_IF_ERROR(f(blocks_[kind], i * block_rows_));
    }
    return absl::OkStatus();
  }

  // Into g.scores, of the rows from `row` on.
  template <typename A>
  absl::Status Scores(Stream& stream, const Block& block, int64_t row, const Arrays<A>& g) const {
    return block.scores->Run(stream, g.q + row * of_queries_.row, g.k, nullptr, g.scores,
                             g.products);
  }

  // f(SeenScores, how many rows they are) of those.
  template <typename A, typename F>
  absl::Status Seen(const LayerContext& context, const Block& block, int64_t sample, int64_t row,
                    const Arrays<A>& g, const F& f) const {
    const int32_t* lengths =
        has_lengths_ ? context.states[kLengths].as<int32_t>() + sample : nullptr;
    const auto with = [&]<bool kHasLengths>() {
      const Visible<kHasLengths> visible{block.rows, group_heads_,     row,    queries_,
                                         keys_,      config_.causal(), lengths};
      return f(SeenScores<A, kHasLengths>{visible, RoundUp(block.keys, kAligned), Scale<A>(),
                                          g.scores, g.largest, g.factor},
               group_samples_ * group_heads_ * block.rows);
    };
    return has_lengths_ ? with.template operator()<true>() : with.template operator()<false>();
  }

  template <typename A>
  A Scale() const {
    return static_cast<A>(1 / std::sqrt(static_cast<double>(width_)));
  }

  // Of a group; null of nothing.
  template <typename T>
  static T* Part(const Tensor& tensor, const RowStrides& rows, int64_t sample, int64_t column) {
    return tensor ? tensor.as<T>() + sample * rows.sample + column : nullptr;
  }

  // `to` becomes what `from` is, copied if need be.
  template <typename T>
  absl::Status Take(Stream& stream, T* from, bool of_queries, AccumulateType<T>*& to) const {
    if (copies_) {
      return Copy(stream, of_queries, of_queries ? whole_queries_ : whole_keys_,
                  of_queries ? of_queries_ : of_keys_, from, to);
    }
    to = reinterpret_cast<AccumulateType<T>*>(from);
    return absl::OkStatus();
  }

  template <typename T>
  absl::Status Give(Stream& stream, const AccumulateType<T>* from, bool of_queries, T* to) const {
    if (!copies_ || to == nullptr) return absl::OkStatus();
    return Copy(stream, of_queries, of_queries ? of_queries_ : of_keys_,
                of_queries ? whole_queries_ : whole_keys_, from, to);
  }

  template <typename From, typename To>
  absl::Status Copy(Stream& stream, bool of_queries, const RowStrides& of_from,
                    const RowStrides& of_to, const From* from, To* to) const {
    const int64_t rows = of_queries ? queries_ : keys_, columns = group_heads_ * width_;
    const int64_t spans = CeilDiv(columns, kSpan);
    return ForEach(stream, group_samples_ * rows * spans,
                   CopyRows<From, To>{rows, columns, spans, of_from, of_to, from, to});
  }

  const AttentionConfig config_;
  const int64_t heads_;
  DType compute_ = DType::kF32;
  bool has_lengths_ = false, gradient_[3] = {};
  int axis_ = 0, output_ = -1;
  int64_t samples_ = 0, queries_ = 0, keys_ = 0, columns_ = 0, width_ = 0;  // width: of a head
  int64_t block_rows_ = 0, group_heads_ = 0, group_samples_ = 0;
  bool copies_ = false;
  RowStrides whole_queries_ = {}, whole_keys_ = {}, of_queries_ = {}, of_keys_ = {};
  // The last block of rows, then one for each number of keys; width_blocks_ share one of these.
  std::vector<Block> blocks_;
  int64_t width_blocks_ = 1;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Layer>> CreateAttention(const AttentionConfig& config) {
  RETURN_IF_ERROR(CheckExtent("heads", config.heads()));
  return std::make_unique<Attention>(config);
}

}  // namespace gyre
