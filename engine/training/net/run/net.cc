#include "engine/training/net/run/net.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "engine/data/batches/sample_order.h"
#include "engine/runtime/timeline.h"
#include "engine/training/net/infer/net_kernels.h"
#include "engine/training/net/run/row_kernels.h"

namespace gyre {

Net::Net(const NetPlan& plan, const NetMemory& memory)
    : plan_(plan), memory_(memory), carried_(CarriedStates(plan.spec)) {
  if (plan.paging) {
    FindPositions();
    FindRepeats();
  }
  for (size_t n = 0; n < plan.spec.nodes.size(); ++n) {
    const NetNode& node = plan.spec.nodes[n];
    Bound& bound = nodes_.emplace_back();
    const NetTrace& trace = plan.trace;
    for (int slice = 0; slice < node.spec.slices; ++slice) {
      for (size_t s = 0; s < node.spec.states.size(); ++s) {
        const StateSpec& spec = node.spec.states[s];
        const bool touched = !spec.slice || spec.slice->phase == slice;
        const auto view = [&](int state, bool wanted, int step) {
          return Tensor{wanted && touched && state >= 0 ? AddressOf(state, step) : nullptr,
                        spec.shape, spec.dtype};
        };
        bound.forward.push_back(view(trace.forward_states[n][s],
                                     spec.forward != kNone && !node.applied_by_producer,
                                     trace.forward_steps[n][slice]));
        bound.backward.push_back(view(trace.backward_states[n][s],
                                      node.backward && spec.backward != kNone,
                                      trace.backward_steps[n][slice]));
        bound.gradients.push_back(view(trace.gradients.nodes[n][s],
                                       node.backward && Assigns(node.spec, s, slice),
                                       trace.backward_steps[n][slice]));
        if (slice > 0) continue;
        bound.recompute.push_back(view(trace.recompute_states[n][s],
                                       node.recomputed && spec.forward != kNone,
                                       trace.recompute_steps[n]));
      }
    }
    GYRE_CHECK(!node.undone_by_producer ||
               bound.gradients[0].data == bound.gradients[node.inputs.size()].data);
  }
  for (int b = 0; b < static_cast<int>(plan.order.buckets.size()); ++b) {
    for (int kind = 0; !plan.paging && kind < plan.slots.arrays(b); ++kind) {
      const Tensor whole = slot(b, kind);
      for (int t = 0; t < plan.slots.tiles(b); ++t) {
        GYRE_CHECK(slot(b, kind, t).data == Slice(whole, plan.slots.tile(b, t).begin, 0).data);
      }
    }
    const int ready = plan.trace.ready_steps[b];
    for (int g = plan.order.buckets[b].first; g < plan.order.buckets[b].last; ++g) {
      const BucketedGradient& gradient = plan.order.gradients[g];
      const int state = plan.trace.gradients.parameters[gradient.parameter];
      // A gradient without a ready step, in an iteration without updates, has no home.
      const TraceState& own = plan.trace.trace.states[state];
      if (ready < 0 && own.arena == Arena::kDevice && !own.persistent) continue;
      GYRE_CHECK(AddressOf(state, ready) == Slice(bucket(b, ready), gradient.at, 0).data);
    }
  }
}

void Net::FindPositions() {
  stays_.resize(plan_.paging->blocks.size());
  for (const Stay& stay : plan_.paging->stays) stays_[stay.block].push_back(&stay);
  const std::vector<int>& order = plan_.paging->order;
  for (int position = 0; position < static_cast<int>(order.size()); ++position) {
    // A step that has run already runs again.
    if (order[position] == static_cast<int>(at_.size())) at_.push_back(position);
  }
  GYRE_CHECK(at_.size() == plan_.trace.trace.steps.size());
  at_.push_back(static_cast<int>(order.size()));
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

void Net::FindRepeats() {
  const std::vector<int>& order = plan_.paging->order;
  repeats_.resize(plan_.trace.trace.steps.size() + 1);
  const auto node_of = [&](int step) {
    const auto is_its = [&](const std::vector<int>& slices) { return slices[0] == step; };
    const auto& forward = plan_.trace.forward_steps;
    return static_cast<int>(std::ranges::find_if(forward, is_its) - forward.begin());
  };
  int first = 0;  // step that has not run yet
  for (int position = 0; position < static_cast<int>(order.size()); ++position) {
    if (order[position] == first) {
      ++first;
      continue;
    }
    Repeat& repeat = repeats_[first].emplace_back(Repeat{position, node_of(order[position]), {}});
    const LayerSpec& spec = plan_.spec.nodes[repeat.node].spec;
    for (size_t s = 0; s < spec.states.size(); ++s) {
      const int state = plan_.trace.forward_states[repeat.node][s];
      const bool bound = spec.states[s].forward != kNone && state >= 0;
      repeat.states.push_back({bound ? AtPosition(state, position) : nullptr, spec.states[s].shape,
                               spec.states[s].dtype});
    }
  }
}

absl::Status Net::Begin(Stream& stream, int step, const Enter& enter) const {
  if (enter == nullptr) return absl::OkStatus();
  for (size_t r = 0; !repeats_.empty() && r < repeats_[step].size(); ++r) {
    const Repeat& repeat = repeats_[step][r];
    RETURN_IF_ERROR(enter(repeat.position));
    RETURN_IF_ERROR(RunRepeat(stream, repeat));
  }
  return enter(At(step));
}

absl::Status Net::Forward(Stream& stream, const SumStatistic& sum,
                          const BucketNeeded& bucket_needed, const Enter& enter) const {
  const GradientOrder& order = plan_.order;
  size_t bucket = bucket_needed == nullptr ? 0 : order.buckets.size();
  for (size_t n = 0; n < nodes_.size(); ++n) {
    while (bucket > 0 && FirstUser(order, bucket - 1) == static_cast<int>(n)) {
      RETURN_IF_ERROR(bucket_needed(static_cast<int>(--bucket)));
    }
    if (plan_.spec.nodes[n].applied_by_producer) continue;
    for (int slice = 0; slice < plan_.spec.nodes[n].spec.slices; ++slice) {
      RETURN_IF_ERROR(
          RunLayer(stream, static_cast<int>(n), slice, LayerPass::kForward, sum, enter));
    }
    if (!plan_.spec.nodes[n].backward) RETURN_IF_ERROR(Carry(stream, static_cast<int>(n), enter));
  }
  GYRE_CHECK(bucket == 0);
  return absl::OkStatus();
}

absl::Status Net::RunLayer(Stream& stream, int n, int slice, LayerPass pass,
                           const SumStatistic& sum, const Enter& enter) const {
  const NetNode& node = plan_.spec.nodes[n];
  const bool backward = pass == LayerPass::kBackward;
  const NetTrace& trace = plan_.trace;
  RETURN_IF_ERROR(Begin(stream,
                        backward                      ? trace.backward_steps[n][slice]
                        : pass == LayerPass::kForward ? trace.forward_steps[n][slice]
                                                      : trace.recompute_steps[n],
                        enter));
  const auto of_slice = [&](const std::vector<Tensor>& all) {
    const size_t count = node.spec.states.size();
    return std::span<const Tensor>(all).subspan(static_cast<size_t>(slice) * count, count);
  };
  const std::span<const Tensor> states =
      of_slice(backward                      ? nodes_[n].backward
               : pass == LayerPass::kForward ? nodes_[n].forward
                                             : nodes_[n].recompute);
  const TimelineLabel label(node.config->name(), backward                      ? "backward"
                                                 : pass == LayerPass::kForward ? "forward"
                                                                               : "forward again");
  const std::span<const Tensor> gradients =
      backward ? of_slice(nodes_[n].gradients) : std::span<const Tensor>();
  const auto run = [&](int phase) { return RunPhase(stream, n, phase, pass, states, gradients); };
  const auto sum_over_ranks = [&](size_t s) {
    if (pass == LayerPass::kRecompute) return absl::OkStatus();  // it is kept
    return sum(stream, absl::StrCat(node.config->name(), ".", node.spec.states[s].name), states[s]);
  };
  if (node.spec.slices > 1) return run(slice);
  return backward ? RunPhases(node.spec, node.spec.backward_phases,
                              &StateSpec::summed_after_backward, run, sum_over_ranks)
                  : RunPhases(node.spec, node.spec.forward_phases, &StateSpec::summed_after, run,
                              sum_over_ranks);
}

absl::Status Net::RunPhase(Stream& stream, int n, int phase, LayerPass pass,
                           std::span<const Tensor> states,
                           std::span<const Tensor> gradients) const {
  const NetNode& node = plan_.spec.nodes[n];
  const LayerContext context{.stream = stream,
                             .states = states,
                             .gradients = gradients,
                             .position = &step_scalars()->position,
                             .fault = &step_scalars()->fault,
                             .layer = n,
                             .phase = phase,
                             .recompute = pass == LayerPass::kRecompute};
  return Annotate(
      pass == LayerPass::kBackward ? node.layer->Backward(context) : node.layer->Forward(context),
      absl::StrCat("layer ", node.config->name()));
}

absl::Status Net::RunRepeat(Stream& stream, const Repeat& repeat) const {
  const NetNode& node = plan_.spec.nodes[repeat.node];
  const TimelineLabel label(node.config->name(), "forward again");
  for (int phase = 0; phase < node.spec.forward_phases; ++phase) {
    RETURN_IF_ERROR(RunPhase(stream, repeat.node, phase, LayerPass::kRecompute, repeat.states,
                             /*gradients=*/{}));
  }
  return absl::OkStatus();
}

// Later work of the iteration does not read the old rows.
absl::Status Net::Carry(Stream& stream, int n, const Enter& enter) const {
  for (size_t k = 0; k < carried_.size(); ++k) {
    if (carried_[k].node != n) continue;
    const TimelineLabel label(plan_.spec.nodes[n].config->name(), "carry on");
    const int step = plan_.trace.carry_steps[k];
    RETURN_IF_ERROR(Begin(stream, step, enter));
    const Tensor& to = nodes_[n].forward[carried_[k].to];
    RETURN_IF_ERROR(stream.Copy(
        to.data, AddressOf(plan_.trace.forward_states[n][carried_[k].from], step), to.bytes()));
  }
  return absl::OkStatus();
}

absl::Status Net::KeepTouched(Stream& stream, int n) const {
  for (const TouchedTable& of : plan_.tables) {
    if (of.node != n) continue;
    RETURN_IF_ERROR(KeepIndices(stream, nodes_[n].backward[of.indices], of.rows, of.batch_indices,
                                table(of).kept));
  }
  return absl::OkStatus();
}

std::byte* Net::Home(size_t carried, int64_t batch) const {
  const auto& [n, from, to] = carried_[carried];
  const size_t bytes = plan_.spec.nodes[n].spec.states[to].size_bytes();
  return AddressOf(plan_.trace.homes_apart ? plan_.trace.homes[carried]
                                           : plan_.trace.carried[carried]) +
         static_cast<size_t>(batch) * bytes;
}

std::vector<Net::Carried> Net::CarriedBy(const NetPlan& plan, const Net* bound) {
  const RunShape& shape = plan.spec.shape;
  const int64_t batches = plan.trace.homes_apart ? shape.accumulate : 1;
  const int64_t own = ShareOf(shape.global, shape.rank, shape.ranks).first;
  const std::vector<CarriedState> states = CarriedStates(plan.spec);
  std::vector<Carried> all;
  for (size_t k = 0; k < states.size(); ++k) {
    const StateSpec& state = plan.spec.nodes[states[k].node].spec.states[states[k].to];
    for (int64_t batch = 0; batch < batches; ++batch) {
      std::byte* const home = bound != nullptr ? bound->Home(k, batch) : nullptr;
      all.push_back({.name = NameOf(plan.spec, states[k]),
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

absl::Status Net::CopyCarried(Stream& stream, int64_t batch, bool home) const {
  for (size_t k = 0; plan_.trace.homes_apart && k < carried_.size(); ++k) {
    const Tensor& rows = nodes_[carried_[k].node].forward[carried_[k].to];
    void* const at_home = Home(k, batch);
    RETURN_IF_ERROR(home ? stream.Copy(at_home, rows.data, rows.bytes())
                         : stream.Copy(rows.data, at_home, rows.bytes()));
  }
  return absl::OkStatus();
}

absl::Status Net::SeedLosses(Stream& stream, const Enter& enter) const {
  const int step = plan_.trace.loss_step;
  RETURN_IF_ERROR(Begin(stream, step, enter));
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
  for (size_t n = 0; n < nodes_.size(); ++n) {
    const NetNode& node = plan_.spec.nodes[n];
    if (node.spec.loss_output < 0 || !node.backward) continue;
    const double weight = node.spec.loss_weight / static_cast<double>(plan_.spec.shape.accumulate);
    Tensor gradient = nodes_[n].gradients[node.spec.loss_output];
    gradient.data = AddressOf(plan_.trace.gradients.nodes[n][node.spec.loss_output], step);
    RETURN_IF_ERROR(FillScaled(stream, weight, scale, gradient));
  }
  return absl::OkStatus();
}

absl::Status Net::Sum(Stream& stream, std::span<const GradientSum> sums, int slice,
                      const Enter& enter) const {
  const TimelineLabel label("sums of gradients");
  for (const GradientSum& sum : sums) {
    if (sum.slice != slice) continue;
    RETURN_IF_ERROR(Begin(stream, sum.step, enter));
    const size_t bytes = plan_.trace.trace.states[sum.total].bytes;
    const Shape flat({static_cast<int64_t>(bytes / SizeOf(sum.dtype))});
    std::vector<Tensor> terms;
    for (int term : sum.terms) terms.push_back({AddressOf(term, sum.step), flat, sum.dtype});
    const Tensor total = {AddressOf(sum.total, sum.step), flat, sum.dtype};
    if (sum.mean < 0) {
      RETURN_IF_ERROR(SumOf(stream, terms, total));
      continue;
    }
    const Tensor mean = {AddressOf(sum.mean, sum.step), flat, AccumulateDType(sum.dtype)};
    RETURN_IF_ERROR(
        AddToMean(stream, terms, batch_mean(), mean, sum.mean == sum.total ? Tensor{} : total));
  }
  return absl::OkStatus();
}

absl::Status Net::Backward(Stream& stream, const SumStatistic& sum, const BucketReady& bucket_ready,
                           const Enter& enter) const {
  RETURN_IF_ERROR(SeedLosses(stream, enter));
  const GradientOrder& order = plan_.order;
  size_t bucket = 0;
  for (int n = static_cast<int>(nodes_.size()) - 1; n >= 0; --n) {
    const NetNode& node = plan_.spec.nodes[n];
    if (!node.backward) continue;
    RETURN_IF_ERROR(Sum(stream, plan_.trace.gradients.before[n], /*slice=*/0, enter));
    for (int producer : plan_.trace.recomputed_before[n]) {
      RETURN_IF_ERROR(RunLayer(stream, producer, /*slice=*/0, LayerPass::kRecompute, sum, enter));
    }
    for (int slice = 0; slice < node.spec.slices; ++slice) {
      if (!node.undone_by_producer) {
        RETURN_IF_ERROR(RunLayer(stream, n, slice, LayerPass::kBackward, sum, enter));
      }
      if (slice + 1 == node.spec.slices) {
        RETURN_IF_ERROR(KeepTouched(stream, n));
        RETURN_IF_ERROR(Carry(stream, n, enter));
      }
      RETURN_IF_ERROR(Sum(stream, plan_.trace.gradients.after[n], slice, enter));
      for (; bucket < order.buckets.size(); ++bucket) {
        const BucketedGradient& last = order.gradients[order.buckets[bucket].last - 1];
        if (last.node != n || last.slice != slice) break;
        RETURN_IF_ERROR(bucket_ready(static_cast<int>(bucket)));
      }
    }
  }
  GYRE_CHECK(bucket == order.buckets.size());
  return absl::OkStatus();
}

Tensor Net::input(int index) const {
  const NetValue& value = plan_.spec.values[index];
  return {AddressOf(plan_.trace.values[index], plan_.trace.upload_step), value.shape, value.dtype};
}

Tensor Net::parameter(int index, const ParameterSet& set, int step) const {
  const Parameter& parameter = set.all()[index];
  return {AddressOf(plan_.trace.parameters[index], step), Shape({parameter.storage_elements()}),
          parameter.spec.dtype};
}

ElementRange Net::tile(int bucket, int index) const {
  return plan_.paging ? plan_.slots.tile(bucket, index)
                      : ElementRange{0, plan_.slots.elements[bucket]};
}

Tensor Net::slot(int bucket, int kind, int index, int step) const {
  const int state = plan_.trace.slots[bucket][kind * plan_.slots.tiles(bucket) + index];
  return {AddressOf(state, step), Shape({tile(bucket, index).count()}), plan_.slots.dtype(bucket)};
}

Tensor Net::master(int bucket, int index, int step) const {
  return plan_.slots.has_master(bucket) ? slot(bucket, plan_.slots.kinds(), index, step) : Tensor{};
}

Tensor Net::bucket(int index, int step) const {
  const int first = plan_.order.gradients[plan_.order.buckets[index].first].parameter;
  return {AddressOf(plan_.trace.gradients.parameters[first], step),
          Shape({plan_.order.elements[index]}), plan_.order.dtypes[index]};
}

Tensor Net::summed(int index) const {
  const NetTrace& trace = plan_.trace;
  const std::vector<int>& updates = trace.update_steps[index];
  const int step = updates.empty() ? trace.take_steps[index] : updates.front();
  if (!sent(index)) return bucket(index, step);
  return {AddressOf(trace.summed[index], step), Shape({plan_.order.elements[index]}),
          plan_.order.dtypes[index]};
}

absl::Status Net::ClearPadding(Stream& stream, int index) const {
  const Tensor whole = bucket(index, plan_.trace.ready_steps[index]);
  const auto bytes = static_cast<int64_t>(SizeOf(whole.dtype));
  int64_t end = 0;
  for (int g = plan_.order.buckets[index].first; g < plan_.order.buckets[index].last; ++g) {
    const BucketedGradient& gradient = plan_.order.gradients[g];
    if (gradient.at > end) {
      RETURN_IF_ERROR(Fill(stream, 0, Slice(whole, end, gradient.at - end)));
    }
    const int state = plan_.trace.gradients.parameters[gradient.parameter];
    end = gradient.at + static_cast<int64_t>(plan_.trace.trace.states[state].bytes) / bytes;
  }
  return absl::OkStatus();
}

Net::TableTensors Net::table(const TouchedTable& of) const {
  const TableStates& states = plan_.trace.tables[&of - plan_.tables.data()];
  const auto flat = [&](int state, DType dtype) -> Tensor {
    if (state < 0) return {};
    const size_t bytes = plan_.trace.trace.states[state].bytes;
    return {AddressOf(state), Shape({static_cast<int64_t>(bytes / SizeOf(dtype))}), dtype};
  };
  return {.kept = flat(states.kept, DType::kI32),
          .first = flat(states.first, DType::kI32),
          .rows = flat(states.rows, DType::kI32),
          .names = flat(states.names, DType::kF64),
          .values = flat(states.values, of.dtype)};
}

Tensor Net::pixel_values(int input) const {
  const int state = plan_.trace.pixel_values[input];
  const DType dtype = plan_.spec.values[input].dtype;
  const size_t values = plan_.trace.trace.states[state].bytes / SizeOf(dtype);
  return {AddressOf(state), Shape({static_cast<int64_t>(values)}), dtype};
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

Tensor Net::sums() const {
  return {AddressOf(plan_.trace.sums), Shape({static_cast<int64_t>(plan_.order.buckets.size())}),
          DType::kF64};
}

BatchMean* Net::batch_mean() const {
  return reinterpret_cast<BatchMean*>(AddressOf(plan_.trace.batch_mean));
}

void* Net::sums_scratch() const { return AddressOf(plan_.trace.scratch); }

Tensor Net::whole_ahead(int lane) const {
  const int state = plan_.trace.ahead[lane].whole;
  return {AddressOf(state, plan_.trace.upload_step),
          Shape({static_cast<int64_t>(plan_.trace.trace.states[state].bytes)}), DType::kU8};
}

Tensor Net::ahead(int lane, int input) const {
  return {AddressOf(plan_.trace.ahead[lane].inputs[input], plan_.trace.upload_step),
          plan_.spec.values[input].shape, plan_.feed.type(input, plan_.spec.shape.compute)};
}

}  // namespace gyre
