#include "engine/training/plan/plan_report.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/runtime/count_text.h"
#include "engine/runtime/wrapped_text.h"
#include "memory/report/paging_text.h"
#include "memory/trace/trace_text.h"

namespace gyre {
namespace {

// Indices of the names that KindsOf gives.
enum StateKindIndex : int { kPinned, kParameters, kOptimizer, kGradients, kActivations };

constexpr double kParts[] = {1, 0.7, 0.5, 0.35, 0.25, 0.13};

PlanHistory HistoryOf(const ModelPlan& plan) {
  const NetPlan& net = *plan.nets_of(0).train;
  const StateKinds kinds = KindsOf(net.trace);
  PlanHistory history =
      net.paging ? gyre::HistoryOf(net.trace.trace, kinds, *net.paging, plan.options.paging)
                 : gyre::HistoryOf(net.trace.trace, kinds, net.memory);
  if (const size_t bytes = plan.allreduce_bytes() + plan.server_bytes().device; bytes > 0) {
    history.allocations.push_back({.kind = kGradients, .bytes = bytes, .end = history.seconds});
  }
  return history;
}

// In the unit in which people say how much a device has.
std::string Size(size_t bytes) {
  constexpr size_t kGibibyte = size_t{1} << 30;
  if (bytes < kGibibyte) return Mebibytes(bytes) + " MiB";
  return absl::StrFormat("%.1f GiB", static_cast<double>(bytes) / kGibibyte);
}

// Of a step's iterations, the last of which updates.
double MeanOf(double updating, double accumulating, int64_t accumulate) {
  const auto others = static_cast<double>(accumulate - 1);
  return (updating + others * accumulating) / (1 + others);
}

}  // namespace

std::string Mebibytes(double bytes) { return absl::StrFormat("%.1f", bytes / (1 << 20)); }
std::string Mebibytes(size_t bytes) { return Mebibytes(static_cast<double>(bytes)); }

StateKinds KindsOf(const NetTrace& trace) {
  const std::vector<TraceState>& states = trace.trace.states;
  const auto root = [&states](int state) {
    while (states[state].view_of >= 0) state = states[state].view_of;
    return state;
  };
  StateKinds kinds = {.names = {"pinned", "parameters", "optimizer", "gradients", "activations"},
                      .of = std::vector<int>(states.size(), kActivations)};
  const auto mark = [&](const std::vector<int>& of, int kind) {
    for (const int state : of) {
      if (state >= 0) kinds.of[root(state)] = kind;
    }
  };
  mark(trace.gradients.values, kGradients);
  for (const std::vector<int>& node : trace.gradients.nodes) mark(node, kGradients);
  mark(trace.gradients.parameters, kGradients);
  mark(trace.gradients.means, kGradients);
  for (const auto& bucket : trace.buckets) {
    mark({bucket.sum_of_batches, bucket.summed}, kGradients);
  }
  // Last: a gradient may lie in what they are the values of.
  mark(trace.values, kActivations);
  mark(trace.parameters, kParameters);
  for (const auto& bucket : trace.buckets) mark(bucket.slots, kOptimizer);
  for (size_t i = 0; i < states.size(); ++i) {
    if (states[i].pinned) kinds.of[i] = kPinned;
  }
  for (size_t i = 0; i < states.size(); ++i) kinds.of[i] = kinds.of[root(static_cast<int>(i))];
  return kinds;
}

std::string DescribeProgram(const NetPlan& plan) {
  const std::vector<TraceStep>& steps = plan.trace.trace.steps;
  std::vector<int> order(steps.size());
  std::iota(order.begin(), order.end(), 0);
  if (plan.paging) order = plan.paging->order;
  std::vector<std::string> how(order.size()), moves(order.size());  // by position
  std::vector<bool> seen(steps.size());
  for (size_t at = 0; at < order.size(); ++at) {
    if (seen[order[at]]) how[at] = ", again";
    seen[order[at]] = true;
  }
  const auto move = [&](int at, const char* what, const Stay& stay) {
    absl::StrAppendFormat(&moves[at], "%10s%-14s%s\n", "", what,
                          ShortText(plan.paging->blocks[stay.block].name, kColumns - 24));
  };
  if (plan.paging) {
    for (const auto& host : plan.paging->host_steps) how[host.position] += ", on the host";
    for (const Stay& stay : plan.paging->stays) {
      if (stay.fetched) move(stay.first_step, "fetched", stay);
    }
    for (const Stay& stay : plan.paging->stays) {
      if (stay.written_back) move(stay.last_step, "written back", stay);
    }
  }
  std::string text = "an iteration, step by step:\n";
  for (size_t at = 0; at < order.size(); ++at) {
    absl::StrAppendFormat(&text, "%6d  %s%s\n%s", at,
                          ShortText(steps[order[at]].name, kColumns - 24), how[at], moves[at]);
  }
  return text;
}

std::string DescribeMemory(const NetPlan& plan) {
  return absl::StrCat(
      plan.paging ? "with all in device memory, which it is not:\n" : "",
      Explain(plan.trace.trace, plan.memory),
      "  a bucket: parameters that the optimizer updates together, whose gradients\n"
      "  ranks sum together; a part of it is updated by itself\n");
}

std::string DescribePaging(const ModelPlan& plan) {
  const TrainingNets& nets = plan.nets_of(0);
  const auto times = [&plan](const NetPlan& net) {
    return DescribeTimes(net.trace.trace, *net.paging, plan.options.paging);
  };
  return absl::StrFormat(
      "the net takes %s MiB, more than the device's memory of %s MiB\n%s%s%s"
      "  (steps' times as their FLOPs suggest, not measured)\n",
      Mebibytes(plan.resident_bytes), Mebibytes(plan.options.capacity_bytes),
      DescribePlaces(nets.train->trace.trace, *nets.train->paging), times(*nets.train),
      nets.accumulating
          ? "an iteration that only adds to the gradients:\n" + times(*nets.accumulating)
          : "");
}

std::string DescribeCapacities(const ModelPlan& plan) {
  const TrainingNets& nets = plan.nets_of(0);
  const RunShape& shape = nets.train->spec.shape;
  const NetPlan& other = nets.accumulating ? *nets.accumulating : *nets.train;
  const double work = MeanOf(WorkSeconds(nets.train->trace.trace), WorkSeconds(other.trace.trace),
                             shape.accumulate);
  const size_t resident = plan.resident_bytes, least = LeastCapacity(plan);
  std::string text = absl::StrFormat(
      "what less memory would cost, by FLOPs, not measured:\n%9s %10s %13s %11s %9s %10s %10s\n",
      "capacity", "MiB", "iteration ms", "samples/s", "kept", "in MiB", "out MiB");
  const auto row = [&](const std::string& name, size_t capacity) {
    const std::string head = absl::StrFormat("%9s %10s ", name, Mebibytes(capacity));
    if (capacity < least) {
      absl::StrAppend(&text, head, "less than the largest step needs\n");
      return;
    }
    ExpectedIteration expected = {.seconds = work};
    if (capacity < resident) {
      const auto paged = PlanPages(plan, capacity, /*train_alone=*/true);
      if (!paged.ok()) {  // the host memory's
        absl::StrAppend(&text, Wrapped(head, std::string(paged.status().message()), head.size()),
                        "\n");
        return;
      }
      expected = ExpectIteration(paged->front(), nets.accumulating ? &(*paged)[1] : nullptr,
                                 shape.accumulate);
    }
    const double seconds = expected.seconds;
    const double samples = static_cast<double>(shape.global);
    absl::StrAppendFormat(&text, "%s%13.3f %11.1f %7.1f %% %10s %10s\n", head, 1e3 * seconds,
                          seconds > 0 ? samples / seconds : 0,
                          seconds > 0 ? 100 * work / seconds : 100,
                          Mebibytes(expected.fetched_bytes), Mebibytes(expected.written_bytes));
  };
  for (const double part : kParts) {
    row(absl::StrFormat("%.0f %%", 100 * part),
        static_cast<size_t>(part * static_cast<double>(resident)));
  }
  row("least", least);
  return text;
}

std::string DrawPlan(const ModelPlan& plan, const std::string& net, bool page,
                     const std::string& below) {
  const PlanHistory history = HistoryOf(plan);
  const NetPlan& train = *plan.nets_of(0).train;
  const double work = WorkSeconds(train.trace.trace);
  const std::string title = absl::StrFormat(
      "%s, %s in %s: %.3f ms an iteration%s", net, Counted(train.spec.shape.local, "sample"),
      Size(plan.options.capacity_bytes), 1e3 * history.seconds,
      train.paging && history.seconds > 0
          ? absl::StrFormat(", %.1f %% of the throughput with all in memory",
                            100 * work / history.seconds)
          : "");
  return page ? PlanPage(history, plan.options.capacity_bytes, title, below)
              : PlanPicture(history, plan.options.capacity_bytes, title);
}

ExpectedIteration ExpectIteration(const PagingPlan& updating, const PagingPlan* accumulating,
                                  int64_t accumulate) {
  const PagingPlan& other = accumulating ? *accumulating : updating;
  const auto mean = [&](auto PagingPlan::*of) {
    return MeanOf(static_cast<double>(updating.*of), static_cast<double>(other.*of), accumulate);
  };
  return {.fetched_bytes = mean(&PagingPlan::fetched_bytes),
          .written_bytes = mean(&PagingPlan::written_bytes),
          .seconds = mean(&PagingPlan::seconds),
          .stalled_seconds = mean(&PagingPlan::stalled_seconds),
          .host_steps = updating.host_steps.size()};
}

ExpectedIteration ExpectIteration(const ModelPlan& plan) {
  const TrainingNets& nets = plan.nets_of(0);
  return ExpectIteration(*nets.train->paging,
                         nets.accumulating ? &*nets.accumulating->paging : nullptr,
                         plan.options.shape.accumulate);
}

std::string DescribeRun(const ExpectedIteration& expected, const PagedIterations& measured,
                        bool stalls) {
  const auto count = static_cast<double>(measured.count);
  const auto expectation = [&](double seconds) {
    return absl::StrFormat("(%s: %.3f)", measured.timed ? "expected" : "by FLOPs alone",
                           1e3 * seconds);
  };
  return absl::StrFormat(
      "paging: an iteration fetched %s MiB and wrote %s MiB back; it took %.3f ms %s%s%s, mean of "
      "%d",
      Mebibytes(expected.fetched_bytes), Mebibytes(expected.written_bytes),
      1e3 * measured.seconds / count, expectation(expected.seconds),
      stalls ? absl::StrFormat(", of which it waited for copies %.3f ms %s",
                               1e3 * measured.stalled_seconds / count,
                               expectation(expected.stalled_seconds))
             : "",
      expected.host_steps == 0
          ? ""
          : absl::StrFormat("; %s on the host took %.3f ms",
                            Counted(static_cast<int64_t>(expected.host_steps), "update"),
                            1e3 * measured.hosted_seconds),
      measured.count);
}

}  // namespace gyre
