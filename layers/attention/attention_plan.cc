#include "layers/attention/attention_plan.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "engine/runtime/math.h"

namespace gyre {
namespace {

using Plan = AttentionPlan;

// Most scores of a group, unless one matrix has more.  On a CPU they and their gradients take half
// of a second-level cache.  On a GPU they are 1 GiB of float, since each group is some 15 launches.
constexpr int64_t kCpuScores = int64_t{1} << 17, kGpuScores = int64_t{1} << 28;
// Rows of a tile.  More would make the products no faster on a CPU.  Long rows are fewer, so that a
// tile has kTileScores.
constexpr int64_t kMostRows = 128, kLeastRows = 16, kTileScores = int64_t{1} << 19;
// Numbers of keys of causal tiles.  Each tile skips the keys beyond it, but each number is a
// product to prepare.
constexpr int64_t kMostWidths = 8;
// Alignment of an operand that a GPU's products want; see primitives.h.
constexpr int64_t kOperandBytes = 16;

int64_t LargestDivisor(int64_t of, int64_t most) {
  int64_t divisor = std::min(of, most);
  while (of % divisor != 0) --divisor;
  return divisor;
}

absl::Status CheckTypes(const InferInput& input, const Plan& plan) {
  const ExpectedInput packed{"query, key and value packed", input.compute},
      query{"query", input.compute}, key{"key", input.compute}, value{"value", input.compute},
      lengths{"lengths", DType::kI32};
  if (plan.is_packed) {
    return plan.has_lengths ? CheckInputs(input, {packed, lengths}) : CheckInputs(input, {packed});
  }
  return plan.has_lengths ? CheckInputs(input, {query, key, value, lengths})
                          : CheckInputs(input, {query, key, value});
}

// Of query, key and value.
absl::Status FindShapes(const InferInput& input, const Plan& plan, Shape (&shapes)[3]) {
  const Shape& first = input.inputs[0];
  if (first.rank() != 3 || plan.axis > 1) {
    return absl::InvalidArgumentError(
        absl::StrFormat("expects %s, got %s with samples along axis %d",
                        plan.is_packed ? "query, key and value packed, [N, T, 3 C] or [T, N, 3 C]"
                                       : "a query [N, T, C] or [T, N, C]",
                        first.ToString(), plan.axis));
  }
  if (plan.is_packed) {
    if (first[2] % 3 != 0) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "expects query, key and value packed, of 3 C columns, or three inputs, got %s",
          first.ToString()));
    }
    if (first[2] % (3 * plan.heads) != 0) {
      return absl::InvalidArgumentError(
          absl::StrFormat("heads: expected 3 x heads to divide the %d columns of query, key and "
                          "value packed, got %d",
                          first[2], plan.heads));
    }
    std::fill_n(shapes, 3, first.With(2, first[2] / 3));
    return absl::OkStatus();
  }
  std::copy_n(input.inputs.begin(), 3, shapes);
  for (const int i : {Plan::kKey, Plan::kValue}) {
    if (BatchAxis(input, i) == plan.axis) continue;
    return absl::InvalidArgumentError(
        absl::StrFormat("expects samples along axis %d, as in query, but those of input %d, %s, "
                        "are along axis %d; transpose it",
                        plan.axis, i, shapes[i].ToString(), BatchAxis(input, i)));
  }
  return absl::OkStatus();
}

absl::Status CheckShapes(const InferInput& input, Plan& plan) {
  Shape shapes[3];
  RETURN_IF_ERROR(FindShapes(input, plan, shapes));
  const auto& [q, k, v] = shapes;
  const int time = 1 - plan.axis;
  if (k.rank() != 3 || !(k == q.With(time, k[time])) || !(v == k)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("expects key and value of one shape, and of query's but for the length, "
                        "got query %s, key %s and value %s",
                        q.ToString(), k.ToString(), v.ToString()));
  }
  if (q[time] < 1 || k[time] < 1 || q[2] < 1) {
    return absl::InvalidArgumentError(
        absl::StrFormat("expects sequences and columns of one or more, got query %s and key %s",
                        q.ToString(), k.ToString()));
  }
  plan.samples = q[plan.axis];
  plan.queries = q[time];
  plan.keys = k[time];
  plan.columns = q[2];
  if (plan.columns % plan.heads != 0) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "heads: expected a divisor of the %d columns of query, got %d", plan.columns, plan.heads));
  }
  plan.width = plan.columns / plan.heads;
  if (plan.causal && plan.queries != plan.keys) {
    return absl::InvalidArgumentError(
        absl::StrFormat("causal: expects as many keys as queries, got query %s and key %s",
                        q.ToString(), k.ToString()));
  }
  if (plan.has_lengths && !(input.inputs[plan.lengths()] == Shape{plan.samples})) {
    return absl::InvalidArgumentError(
        absl::StrFormat("expects lengths [%d], one for each sample, got %s", plan.samples,
                        input.inputs[plan.lengths()].ToString()));
  }
  return absl::OkStatus();
}

Plan::HeadLayout FindLayout(const Plan& plan, Plan::Role role) {
  const bool is_slice = plan.is_packed && role != Plan::kOutput;
  const bool of_keys = role == Plan::kKey || role == Plan::kValue;
  Plan::HeadLayout layout;
  layout.state = role == Plan::kOutput ? plan.output() : plan.is_packed ? 0 : role;
  layout.column = is_slice ? role * plan.columns : 0;
  layout.rows = of_keys ? plan.keys : plan.queries;
  const int64_t columns = is_slice ? 3 * plan.columns : plan.columns;
  layout.whole = plan.axis == 1 ? HeadStrides{std::max<int64_t>(1, plan.samples) * columns,
                                              plan.width, columns}
                                : HeadStrides{columns, plan.width, layout.rows * columns};
  const int64_t copied = plan.group_heads * plan.width;
  const int64_t matrix = RoundUp(layout.rows * plan.width, kAttentionAligned);
  if (plan.merged) {
    layout.of_group = {plan.width, matrix, plan.group_heads * matrix};
  } else if (plan.copies) {
    layout.of_group = {copied, plan.width, RoundUp(layout.rows * copied, kAttentionAligned)};
  } else {
    layout.of_group = layout.whole;
  }
  return layout;
}

// Sets the rows of a tile, the heads and samples of a group, and their layouts.
void Divide(DeviceKind device, Plan& plan) {
  plan.merged = device == DeviceKind::kCuda;
  const int64_t row_scores = RoundUp(plan.keys, kAttentionAligned);
  const int64_t most = plan.merged ? kGpuScores : kCpuScores;
  // A GPU takes two tiles, and the first of causal ones skips the keys beyond it.
  const int64_t wanted = plan.merged ? CeilDiv<int64_t>(plan.queries, 2) : 0;
  const int64_t fitting = (plan.merged ? kGpuScores : kTileScores) / row_scores;
  plan.tile_rows =
      std::min(plan.queries, std::clamp(fitting / kLeastRows * kLeastRows, kLeastRows,
                                        std::max(kMostRows, RoundUp(wanted, kLeastRows))));
  const int64_t matrices = std::max<int64_t>(1, most / (plan.tile_rows * row_scores));
  plan.group_heads = LargestDivisor(plan.heads, matrices);
  // A rank without samples prepares the same products as others do.
  plan.group_samples =
      plan.group_heads < plan.heads
          ? 1
          : LargestDivisor(std::max<int64_t>(1, plan.samples), matrices / plan.heads);
  const int64_t size = static_cast<int64_t>(SizeOf(plan.compute));
  plan.copies = plan.merged || size == 2 || plan.width * size % kOperandBytes != 0;
  for (const Plan::Role role : {Plan::kQuery, Plan::kKey, Plan::kValue, Plan::kOutput}) {
    plan.layouts[role] = FindLayout(plan, role);
  }
}

absl::Status PrepareTile(const InferInput& input, int64_t rows, int64_t keys, bool first,
                         Plan& plan) {
  const int64_t stride = RoundUp(keys, kAttentionAligned), matrix = rows * stride;
  const int64_t heads = plan.group_heads, samples = plan.group_samples, width = plan.width;
  const DType dtype = plan.merged ? plan.compute : AccumulateDType(plan.compute);
  // The products of a group, whose matrices of an operand and of scores lie there.
  const auto all = [&](GemmSpec& spec, const HeadStrides& a, const HeadStrides& b,
                       const HeadStrides& c) {
    if (plan.merged) {
      spec.wide_c = SizeOf(dtype) == 2;
      spec.inner = {samples * heads, a.head, b.head, c.head};
    } else {
      spec.outer = {samples, a.sample, b.sample, c.sample};
      spec.inner = {heads, a.head, b.head, c.head};
    }
  };
  const HeadStrides of_scores = {stride, matrix, heads * matrix};
  // Then the rows begin at 0: row t sees keys 0 .. t.
  const bool lower = plan.causal && rows == keys;
  // [rows, width] [keys, width]^T -> [rows, keys].
  const auto to_scores = [&](const Plan::HeadLayout& a, const Plan::HeadLayout& b) {
    GemmSpec spec{.dtype = dtype, .m = rows, .n = keys, .k = width};
    spec.transpose_b = true;
    spec.lower_c = lower;
    spec.lda = a.of_group.row;
    spec.ldb = b.of_group.row;
    spec.ldc = stride;
    all(spec, a.of_group, b.of_group, of_scores);
    return input.primitives->Prepare(spec);
  };
  const auto from_scores = [&](const Plan::HeadLayout& b, const Plan::HeadLayout& c) {
    GemmSpec spec{.dtype = dtype};
    spec.n = width;
    spec.lower_a = lower;
    spec.lda = stride;
    spec.ldb = b.of_group.row;
    spec.ldc = c.of_group.row;
    all(spec, of_scores, b.of_group, c.of_group);
    return spec;
  };
  // [rows, keys] [keys, width] -> [rows, width].
  const auto to_rows = [&](const Plan::HeadLayout& b, const Plan::HeadLayout& c) {
    GemmSpec spec = from_scores(b, c);
    spec.m = rows;
    spec.k = keys;
    return input.primitives->Prepare(spec);
  };
  // [rows, keys]^T [rows, width] -> [keys, width], summed over tiles.
  const auto to_keys = [&](const Plan::HeadLayout& b, const Plan::HeadLayout& c) {
    GemmSpec spec = from_scores(b, c);
    spec.m = keys;
    spec.k = rows;
    spec.transpose_a = true;
    spec.accumulate = !first;
    return input.primitives->Prepare(spec);
  };
  const auto& [q, k, v, y] = plan.layouts;
  AttentionTile& tile = plan.tiles.emplace_back();
  tile.rows = rows;
  tile.keys = keys;
  ASSIGN_OR_RETURN(tile.scores, to_scores(q, k));
  ASSIGN_OR_RETURN(tile.output, to_rows(v, y));
  if (plan.of_scores()) {
    ASSIGN_OR_RETURN(tile.dscores, to_scores(y, v));
  }
  if (plan.gradient[Plan::kQuery]) {
    ASSIGN_OR_RETURN(tile.dquery, to_rows(k, q));
  }
  if (plan.gradient[Plan::kKey]) {
    ASSIGN_OR_RETURN(tile.dkey, to_keys(q, k));
  }
  if (plan.gradient[Plan::kValue]) {
    ASSIGN_OR_RETURN(tile.dvalue, to_keys(y, v));
  }
  return absl::OkStatus();
}

absl::Status PrepareTiles(const InferInput& input, Plan& plan) {
  const int64_t rows = plan.tile_rows, tiles = CeilDiv(plan.queries, rows);
  RETURN_IF_ERROR(PrepareTile(input, plan.queries - (tiles - 1) * rows, plan.keys,
                              /*first=*/true, plan));
  if (tiles == 1) return absl::OkStatus();
  plan.width_tiles = plan.causal ? CeilDiv(tiles - 1, kMostWidths) : tiles - 1;
  for (int64_t tile = 0; tile < tiles - 1; tile += plan.width_tiles) {
    const int64_t end = plan.causal ? (tile + plan.width_tiles) * rows : plan.keys;
    RETURN_IF_ERROR(PrepareTile(input, rows, std::min(plan.keys, end), /*first=*/false, plan));
  }
  return absl::OkStatus();
}

}  // namespace

size_t AttentionPlan::product_scratch() const {
  size_t bytes = 0;
  for (const AttentionTile& tile : tiles) {
    for (const auto* gemm :
         {&tile.scores, &tile.output, &tile.dscores, &tile.dquery, &tile.dvalue, &tile.dkey}) {
      if (*gemm) bytes = std::max(bytes, (*gemm)->scratch_bytes());
    }
  }
  return bytes;
}

absl::StatusOr<AttentionPlan> PlanAttention(const AttentionConfig& config,
                                            const InferInput& input) {
  AttentionPlan plan;
  plan.compute = input.compute;
  const size_t inputs = input.inputs.size();
  plan.is_packed = inputs == 1 || (inputs == 2 && input.dtypes[1] == DType::kI32);
  plan.has_lengths = inputs == 4 || (inputs == 2 && plan.is_packed);
  plan.causal = config.causal();
  plan.heads = config.heads();
  plan.axis = BatchAxis(input, 0);
  RETURN_IF_ERROR(CheckTypes(input, plan));
  RETURN_IF_ERROR(CheckShapes(input, plan));
  for (const int role : {Plan::kQuery, Plan::kKey, Plan::kValue}) {
    plan.gradient[role] = NeedsGradient(input, plan.is_packed ? 0 : role);
  }
  Divide(input.primitives->device(), plan);
  RETURN_IF_ERROR(PrepareTiles(input, plan));
  return plan;
}

}  // namespace gyre
