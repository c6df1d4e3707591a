#include "engine/training/net/run/net.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "engine/data/batches/sample_order.h"
#include "engine/runtime/timeline.h"
#include "engine/training/net/infer/net_kernels.h"
#include "engine/training/net/run/row_kernels.h"

namespace gyre {

Net::Net(const NetPlan& plan, const NetMemory& memory) : plan_(plan), memory_(memory) {
  FindPositions();
  for (int position = 0; position < static_cast<int>(order_.size()); ++position) {
    bound_.push_back(BindLayer(position));
  }
  CheckBuckets();
}

Instruction Net::InstructionAt(int position) const {
  Instruction instruction = plan_.trace.program[order_[position]];
  if (IsRepeat(position)) instruction.kind = InstructionKind::kForwardAgain;
  return instruction;
}

Net::Bound Net::BindLayer(int position) const {
  const auto [kind, n, slice] = InstructionAt(position);
  const NetTrace& trace = plan_.trace;
  const bool backward = kind == InstructionKind::kBackward;
  Bound bound;
  if (!backward && kind != InstructionKind::kForward && kind != InstructionKind::kForwardAgain) {
    return bound;
  }
  const NetNode& node = plan_.spec.nodes[n];
  const std::vector<int>& states = backward                            ? trace.backward_states[n]
                                   : kind == InstructionKind::kForward ? trace.forward_states[n]
                                                                       : trace.recompute_states[n];
  for (size_t s = 0; s < node.spec.states.size(); ++s) {
    const StateSpec& spec = node.spec.states[s];
    const bool touched = !spec.slice || spec.slice->phase == slice;
    const auto view = [&](int state, bool wanted) {
      return Tensor{wanted && touched && state >= 0 ? AtPosition(state, position) : nullptr,
                    spec.shape, spec.dtype};
    };
    bound.states.push_back(view(states[s], (backward ? spec.backward : spec.forward) != kNone));
    if (!backward) continue;
    bound.gradients.push_back(view(trace.gradients.nodes[n][s], Assigns(node.spec, s, slice)));
  }
  GYRE_CHECK(!backward || !node.undone_by_producer ||
             bound.gradients[0].data == bound.gradients[node.inputs.size()].data);
  return bound;
}

void Net::CheckBuckets() const {
  for (int b = 0; b < static_cast<int>(plan_.order.buckets.size()); ++b) {
    for (int kind = 0; !plan_.paging && kind < plan_.slots.arrays(b); ++kind) {
      const Tensor whole = slot(b, kind);
      for (int t = 0; t < plan_.slots.tiles(b); ++t) {
        GYRE_CHECK(slot(b, kind, t).data == Slice(whole, plan_.slots.tile(b, t).begin, 0).data);
      }
    }
    const int leaves = plan_.trace.buckets[b].leaves;
    for (int g = plan_.order.buckets[b].first; g < plan_.order.buckets[b].last; ++g) {
      const BucketedGradient& gradient = plan_.order.gradients[g];
      const int state = plan_.trace.gradients.parameters[gradient.parameter];
      // In an iteration without updates it does not leave, and has no home.
      const TraceState& own = plan_.trace.trace.states[state];
      if (leaves < 0 && own.arena == Arena::kDevice && !own.persistent) continue;
      GYRE_CHECK(AddressOf(state, leaves) == Slice(bucket(b, leaves), gradient.at, 0).data);
    }
  }
}

void Net::FindPositions() {
  if (plan_.paging) {
    stays_.resize(plan_.paging->blocks.size());
    for (const Stay& stay : plan_.paging->stays) stays_[stay.block].push_back(&stay);
    order_ = plan_.paging->order;
  } else {
    order_.resize(plan_.trace.program.size());
    std::iota(order_.begin(), order_.end(), 0);
  }
  for (int position = 0; position < static_cast<int>(order_.size()); ++position) {
    if (order_[position] == static_cast<int>(at_.size())) at_.push_back(position);
  }
  GYRE_CHECK(at_.size() == plan_.trace.program.size());
  at_.push_back(static_cast<int>(order_.size()));
}

std::byte* Net::AtPosition(int state, int position) const {
  const Placement& at = plan_.memory.placements[state];
  if (at.arena == Arena::kCommunication) return memory_.communication + at.offset;
  if (!plan_.paging) {
    const bool apart = at.offset < memory_.parameters.size();
    return (apart ? memory_.parameters.data() : memory_.device) + at.offset;
  }
  const auto [block, offset] = plan_.paging->states[state];
  if (block < 0) return memory_.device + offset;
  const PagedBlock& page = plan_.paging->blocks[block];
  if (position == kHome || IsOnHost(position)) {
    GYRE_CHECK(page.persistent || position != kHome);
    return (page.on_disk ? memory_.file_homes : memory_.pages) + page.page + offset;
  }
  const auto beyond = std::ranges::upper_bound(stays_[block], position, {},
                                               [](const Stay* s) { return s->first_step; });
  GYRE_CHECK(beyond != stays_[block].begin() && position <= (*std::prev(beyond))->last_step);
  return memory_.device + (*std::prev(beyond))->offset + offset;
}

bool Net::IsOnHost(int position) const {
  const std::vector<PagingPlan::HostStep>& all = plan_.paging->host_steps;
  const auto at = std::ranges::lower_bound(all, position, {}, &PagingPlan::HostStep::position);
  return at != all.end() && at->position == position;
}

absl::Status Net::Run(Stream& stream, const SumStatistic& sum, const Other& other,
                      const Enter& enter) const {
  for (int position = 0; position < static_cast<int>(order_.size()); ++position) {
    if (enter != nullptr) RETURN_IF_ERROR(enter(position));
    const int step = order_[position];
    const Instruction& instruction = plan_.trace.program[step];
    RETURN_IF_ERROR(IsRepeat(position)          ? RunLayer(stream, position, sum)
                    : IsOfNet(instruction.kind) ? RunOwn(stream, step, sum)
                                                : other(step, instruction));
  }
  return enter == nullptr ? absl::OkStatus() : enter(static_cast<int>(order_.size()));
}

absl::Status Net::RunOwn(Stream& stream, int step, const SumStatistic& sum) const {
  switch (plan_.trace.program[step].kind) {
    case InstructionKind::kCarry:
      return Carry(stream, step);
    case InstructionKind::kSumTerms:
      return SumTerms(stream, step);
    case InstructionKind::kSeedLosses:
      return SeedLosses(stream, step);
    default:
      return RunLayer(stream, At(step), sum);
  }
}

absl::Status Net::RunLayer(Stream& stream, int position, const SumStatistic& sum) const {
  const Instruction instruction = InstructionAt(position);
  const NetNode& node = plan_.spec.nodes[instruction.of];
  const Bound& bound = bound_[position];
  const bool again = instruction.kind == InstructionKind::kForwardAgain;
  const bool backward = instruction.kind == InstructionKind::kBackward;
  const auto run = [&](int phase) {
    const LayerContext context{.stream = stream,
                               .states = bound.states,
                               .gradients = bound.gradients,
                               .position = &step_scalars()->position,
                               .fault = &step_scalars()->fault,
                               .layer = instruction.of,
                               .phase = phase,
                               .recompute = again};
    return Annotate(backward ? node.layer->Backward(context) : node.layer->Forward(context),
                    absl::StrCat("layer ", node.config->name()));
  };
  const auto sum_over_ranks = [&](size_t s) {
    if (again) return absl::OkStatus();  // it is kept
    return sum(stream, absl::StrCat(node.config->name(), ".", node.spec.states[s].name),
               bound.states[s]);
  };
  if (!backward || !node.undone_by_producer) {
    const TimelineLabel label(node.config->name(), again      ? "forward again"
                                                   : backward ? "backward"
                                                              : "forward");
    RETURN_IF_ERROR(node.spec.slices > 1 ? run(instruction.piece)
                    : backward           ? RunPhases(node.spec, node.spec.backward_phases,
                                                     &StateSpec::summed_after_backward, run, sum_over_ranks)
                                         : RunPhases(node.spec, node.spec.forward_phases,
                                                     &StateSpec::summed_after, run, sum_over_ranks));
  }
  return backward && instruction.piece + 1 == node.spec.slices ? KeepTouched(stream, position)
                                                               : absl::OkStatus();
}

// Later work of the iteration does not read the old rows.
absl::Status Net::Carry(Stream& stream, int step) const {
  const int k = plan_.trace.program[step].of;
  const auto& [n, from, to] = plan_.spec.carried[k];
  const TimelineLabel label(plan_.spec.nodes[n].config->name(), "carry on");
  return stream.Copy(AddressOf(plan_.trace.carried[k]),
                     AddressOf(plan_.trace.forward_states[n][from], step),
                     plan_.spec.nodes[n].spec.states[to].size_bytes());
}

absl::Status Net::KeepTouched(Stream& stream, int position) const {
  for (const TouchedTable& of : plan_.tables) {
    if (of.node != InstructionAt(position).of) continue;
    RETURN_IF_ERROR(KeepIndices(stream, bound_[position].states[of.indices], of.rows,
                                of.batch_indices, table(of).kept));
  }
  return absl::OkStatus();
}

std::byte* Net::Home(size_t carried, int64_t batch) const {
  const auto& [n, from, to] = plan_.spec.carried[carried];
  const size_t bytes = plan_.spec.nodes[n].spec.states[to].size_bytes();
  return AddressOf(plan_.trace.homes_apart ? plan_.trace.homes[carried]
                                           : plan_.trace.carried[carried]) +
         static_cast<size_t>(batch) * bytes;
}

std::vector<Net::Carried> Net::CarriedBy(const NetPlan& plan, const Net* bound) {
  const RunShape& shape = plan.spec.shape;
  const int64_t batches = plan.trace.homes_apart ? shape.accumulate : 1;
  const int64_t own = ShareOf(shape.global, shape.rank, shape.ranks).first;
  std::vector<Carried> all;
  for (size_t k = 0; k < plan.spec.carried.size(); ++k) {
    const CarriedState& carried = plan.spec.carried[k];
    const StateSpec& state = plan.spec.nodes[carried.node].spec.states[carried.to];
    for (int64_t batch = 0; batch < batches; ++batch) {
      std::byte* const home = bound != nullptr ? bound->Home(k, batch) : nullptr;
      all.push_back({.name = NameOf(plan.spec, carried),
                     .rows = {home, state.shape, state.dtype},
                     .batch_axis = state.batch_axis,
                     .first = batch * shape.global + own,
                     .all_rows = batches * shape.global});
    }
  }
  return all;
}

absl::Status Net::ClearCarried(Stream& stream) const {
  for (const Carried& carried : carried()) RETURN_IF_ERROR(Fill(stream, 0, carried.rows));
  return absl::OkStatus();
}

absl::Status Net::EachCarried(int64_t batch, CopyCarried copy) const {
  for (size_t k = 0; plan_.trace.homes_apart && k < plan_.spec.carried.size(); ++k) {
    const auto& [n, from, to] = plan_.spec.carried[k];
    RETURN_IF_ERROR(copy(AddressOf(plan_.trace.carried[k]), Home(k, batch),
                         plan_.spec.nodes[n].spec.states[to].size_bytes()));
  }
  return absl::OkStatus();
}

absl::Status Net::FetchCarried(Stream& stream, int64_t batch) const {
  return EachCarried(batch, [&](std::byte* rows, std::byte* home, size_t bytes) {
    return stream.Copy(rows, home, bytes);
  });
}

absl::Status Net::StoreCarried(Stream& stream, int64_t batch) const {
  return EachCarried(batch, [&](std::byte* rows, std::byte* home, size_t bytes) {
    return stream.Copy(home, rows, bytes);
  });
}

absl::Status Net::SeedLosses(Stream& stream, int step) const {
  if (plan_.spec.shape.accumulate > 1) {
    const int counting = plan_.spec.CountingLoss();
    const double* count = nullptr;
    if (counting >= 0) {
      const int state = plan_.spec.nodes[counting].spec.count;
      count = reinterpret_cast<const double*>(
          AddressOf(plan_.trace.forward_states[counting][state], step));
    }
    RETURN_IF_ERROR(
        Weigh(stream, step_scalars(), count, plan_.spec.shape.accumulate, batch_mean()));
  }
  const double* const scale = loss_scale() ? &loss_scale()->scale : &step_scalars()->loss_scale;
  for (size_t n = 0; n < plan_.spec.nodes.size(); ++n) {
    const NetNode& node = plan_.spec.nodes[n];
    if (node.spec.loss_output < 0 || !node.backward) continue;
    const double weight = node.spec.loss_weight / static_cast<double>(plan_.spec.shape.accumulate);
    const StateSpec& loss = node.spec.states[node.spec.loss_output];
    const int gradient = plan_.trace.gradients.nodes[n][node.spec.loss_output];
    RETURN_IF_ERROR(
        FillScaled(stream, weight, scale, {AddressOf(gradient, step), loss.shape, loss.dtype}));
  }
  return absl::OkStatus();
}

absl::Status Net::SumTerms(Stream& stream, int step) const {
  const TimelineLabel label("sums of gradients");
  const GradientSum& sum = plan_.trace.gradient_sums[plan_.trace.program[step].of];
  std::vector<Tensor> terms;
  for (int term : sum.terms) terms.push_back(Flat(term, sum.dtype, step));
  const Tensor total = Flat(sum.total, sum.dtype, step);
  if (sum.mean < 0) return SumOf(stream, terms, total);
  const Tensor mean = Flat(sum.mean, AccumulateDType(sum.dtype), step);
  return AddToMean(stream, terms, batch_mean(), mean, sum.mean == sum.total ? Tensor{} : total);
}

Tensor Net::Flat(int state, DType dtype, int step) const {
  if (state < 0) return {};
  const size_t bytes = plan_.trace.trace.states[state].bytes;
  return {AddressOf(state, step), Shape({static_cast<int64_t>(bytes / SizeOf(dtype))}), dtype};
}

Tensor Net::input(int index) const {
  const NetValue& value = plan_.spec.values[index];
  return {AddressOf(plan_.trace.values[index], NetTrace::kUploadStep), value.shape, value.dtype};
}

Tensor Net::parameter(int index, const ParameterSet& set, int step) const {
  return Flat(plan_.trace.parameters[index], set.all()[index].spec.dtype, step);
}

absl::Status Net::PackParameters(Stream& stream, const ParameterSet& set, int bucket,
                                 ElementRange range, const Tensor& packed, int step) const {
  for (const auto& [p, begin, at, count] : RangesIn(plan_.order, bucket, range)) {
    const Tensor value = Slice(parameter(p, set, step), begin, count);
    RETURN_IF_ERROR(
        stream.Copy(Slice(packed, at - range.begin, 0).data, value.data, value.bytes()));
  }
  return absl::OkStatus();
}

absl::Status Net::UnpackParameters(Stream& stream, const ParameterSet& set, int bucket,
                                   ElementRange range, const Tensor& packed, int step) const {
  for (const auto& [p, begin, at, count] : RangesIn(plan_.order, bucket, range)) {
    const Tensor value = Slice(parameter(p, set, step), begin, count);
    RETURN_IF_ERROR(
        stream.Copy(value.data, Slice(packed, at - range.begin, 0).data, value.bytes()));
  }
  return absl::OkStatus();
}

ElementRange Net::tile(int bucket, int index) const {
  return plan_.paging ? plan_.slots.tile(bucket, index)
                      : ElementRange{0, plan_.slots.buckets[bucket].elements};
}

Tensor Net::slot(int bucket, int kind, int index, int step) const {
  const int state = plan_.trace.buckets[bucket].slots[kind * plan_.slots.tiles(bucket) + index];
  return {AddressOf(state, step), Shape({tile(bucket, index).count()}), plan_.slots.dtype(bucket)};
}

Tensor Net::master(int bucket, int index, int step) const {
  return plan_.slots.has_master(bucket) ? slot(bucket, plan_.slots.kinds(), index, step) : Tensor{};
}

Tensor Net::bucket(int index, int step) const {
  const int first = plan_.order.gradients[plan_.order.buckets[index].first].parameter;
  return {AddressOf(plan_.trace.gradients.parameters[first], step),
          Shape({plan_.order.buckets[index].elements}), plan_.order.buckets[index].dtype};
}

Tensor Net::summed(int index) const {
  const NetTrace::TracedBucket& traced = plan_.trace.buckets[index];
  return summed(index, traced.update < 0 ? traced.values : traced.update);
}

Tensor Net::summed(int index, int step) const {
  return sent(index)
             ? Flat(plan_.trace.buckets[index].summed, plan_.order.buckets[index].dtype, step)
             : bucket(index, step);
}

absl::Status Net::ClearPadding(Stream& stream, int index, int step) const {
  const int first = plan_.order.gradients[plan_.order.buckets[index].first].parameter;
  const TraceState& at = plan_.trace.trace.states[plan_.trace.gradients.parameters[first]];
  if (at.arena == Arena::kCommunication && plan_.spec.shape.turn < 0) return absl::OkStatus();
  const Tensor whole = bucket(index, step);
  int64_t end = 0;
  for (int g = plan_.order.buckets[index].first; g < plan_.order.buckets[index].last; ++g) {
    const BucketedGradient& gradient = plan_.order.gradients[g];
    if (gradient.at > end) {
      RETURN_IF_ERROR(Fill(stream, 0, Slice(whole, end, gradient.at - end)));
    }
    end = gradient.at + gradient.count;
  }
  return absl::OkStatus();
}

Net::TableTensors Net::table(const TouchedTable& of) const {
  const TableStates& states = plan_.trace.tables[&of - plan_.tables.data()];
  return {.kept = Flat(states.kept, DType::kI32),
          .first = Flat(states.first, DType::kI32),
          .rows = Flat(states.rows, DType::kI32),
          .names = Flat(states.names, DType::kF64),
          .values = Flat(states.values, of.dtype)};
}

Tensor Net::pixel_values(int input) const {
  return Flat(plan_.trace.pixel_values[input], plan_.spec.values[input].dtype);
}

std::byte* Net::step() const { return AddressOf(plan_.trace.step); }

StepScalars* Net::step_scalars() const {
  return reinterpret_cast<StepScalars*>(AddressOf(plan_.trace.step_scalars));
}

LossScaleState* Net::loss_scale() const {
  const int state = plan_.trace.loss_scale;
  return state < 0 ? nullptr : reinterpret_cast<LossScaleState*>(AddressOf(state));
}

Tensor Net::metrics() const {
  const auto is_metric = [](int state) { return state >= 0; };
  const std::vector<int>& metrics = plan_.trace.metrics;
  const auto first = std::ranges::find_if(metrics, is_metric);
  return {first == metrics.end() ? nullptr : AddressOf(*first),
          Shape({2 * std::ranges::count_if(metrics, is_metric)}), DType::kF64};
}

Tensor Net::records(int node) const {
  const int state = plan_.trace.records[node];
  if (state < 0) return {};
  const LayerSpec& spec = plan_.spec.nodes[node].spec;
  return {AddressOf(state), spec.states[spec.records].shape, DType::kF64};
}

Tensor Net::sums() const { return Flat(plan_.trace.sums, DType::kF64); }

BatchMean* Net::batch_mean() const {
  return reinterpret_cast<BatchMean*>(AddressOf(plan_.trace.batch_mean));
}

void* Net::sums_scratch() const { return AddressOf(plan_.trace.scratch); }

std::byte* Net::norms() const {
  return plan_.trace.norms < 0 ? nullptr : AddressOf(plan_.trace.norms);
}

Tensor Net::whole_ahead(int lane) const {
  return Flat(plan_.trace.ahead[lane].whole, DType::kU8, NetTrace::kUploadStep);
}

Tensor Net::ahead(int lane, int input) const {
  return {AddressOf(plan_.trace.ahead[lane].inputs[input], NetTrace::kUploadStep),
          plan_.spec.values[input].shape, plan_.feed.type(input, plan_.spec.shape.compute)};
}

}  // namespace gyre
