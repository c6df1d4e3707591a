#include "distributed/scaling/step_simulation.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>

#include "distributed/gradient_bucket.h"
#include "engine/runtime/check.h"
#include "engine/runtime/random.h"

namespace gyre {
namespace {

// The buckets whose sums have come, and the seconds that their updates take.
class Arrivals {
 public:
  Arrivals(std::vector<double> done, const std::vector<double>& update_s) : done_(std::move(done)) {
    for (size_t b = 0; b < done_.size(); ++b) sorted_.push_back({done_[b], update_s[b]});
    std::ranges::sort(sorted_, {}, &Arrived::at);
    double total = 0;
    for (Arrived& arrived : sorted_) arrived.updates_s = total += arrived.updates_s;
  }

  double done(size_t bucket) const { return done_[bucket]; }
  double all() const { return sorted_.empty() ? 0 : sorted_.back().at; }
  // Of all that have come by then, or before.
  double UpdatesBy(double second) const {
    return UpTo(std::ranges::upper_bound(sorted_, second, {}, &Arrived::at));
  }
  double UpdatesBefore(double second) const {
    return UpTo(std::ranges::lower_bound(sorted_, second, {}, &Arrived::at));
  }

 private:
  struct Arrived {
    double at, updates_s;  // of all so far
  };
  double UpTo(std::vector<Arrived>::const_iterator beyond) const {
    return beyond == sorted_.begin() ? 0 : std::prev(beyond)->updates_s;
  }

  std::vector<double> done_;
  std::vector<Arrived> sorted_;
};

// The step's compute, cut where buckets become ready and where they are needed.
struct ComputeSegments {
  std::vector<double> backward;  // by bucket: since the one before is complete
  double backward_rest = 0;
  std::vector<double> forward;  // by bucket, the last one first: since the one after it is needed
  double forward_rest = 0;
  std::vector<double> update_s;  // by bucket
};

ComputeSegments Cut(const Workload& workload, const std::vector<WorkloadGradient>& buckets) {
  const int layers = static_cast<int>(workload.layers.size());
  ComputeSegments segments;
  int done = layers;  // backward of layers from here on
  const double bytes = std::max(workload.gradient_bytes(), 1.0);
  for (const WorkloadGradient& bucket : buckets) {
    double seconds = 0;
    for (; done > bucket.layer; --done) seconds += workload.layers[done - 1].backward_s;
    segments.backward.push_back(seconds);
    segments.update_s.push_back(workload.update_s * bucket.bytes / bytes);
  }
  for (; done > 0; --done) segments.backward_rest += workload.layers[done - 1].backward_s;
  int begun = 0;  // forward of layers up to here
  for (size_t b = buckets.size(); b-- > 0;) {
    double seconds = 0;
    for (; begun < buckets[b].first_reader; ++begun) seconds += workload.layers[begun].forward_s;
    segments.forward.push_back(seconds);
  }
  for (; begun < layers; ++begun) segments.forward_rest += workload.layers[begun].forward_s;
  return segments;
}

struct Rank {
  double now = 0;
  double updated_s = 0;  // of the step's updates
  double factor = 1;     // of this step

  void Compute(double seconds) { now += factor * seconds; }
  void Update(double until_s) {
    Compute(until_s - updated_s);
    updated_s = until_s;
  }
  void Forward(const ComputeSegments& segments, const Arrivals& arrivals, bool by_bucket) {
    if (!by_bucket) {
      now = std::max(now, arrivals.all());
      Update(arrivals.UpdatesBy(now));
    }
    for (size_t i = 0; i < segments.forward.size(); ++i) {
      Compute(segments.forward[i]);
      if (!by_bucket) continue;
      now = std::max(now, arrivals.done(segments.forward.size() - 1 - i));
      Update(arrivals.UpdatesBy(now));
    }
    Compute(segments.forward_rest);
  }
};

class Simulator {
 public:
  Simulator(const Workload& workload, const StepSimulation& what)
      : what_(what),
        segments_(Cut(workload, what.buckets)),
        before_(std::vector<double>(what.buckets.size(), 0),
                std::vector<double>(what.buckets.size(), 0)) {
    GYRE_CHECK(what.ranks > 0 && what.steps > 1 && what.sums.size() == what.buckets.size());
    // Ranks that nothing tells apart are one.
    const bool alike = what.stragglers.jitter == 0 && what.stragglers.slowest == 1;
    ranks_.resize(alike ? 1 : what.ranks);
    // What an owner updates is part of its answer.
    if (what.served) segments_.update_s.assign(what.buckets.size(), 0);
  }

  double Run() {
    const int counted_from = std::max(1, what_.steps / 4);
    std::vector<double> from(ranks_.size());
    for (int step = 0; step < what_.steps; ++step) {
      for (size_t r = 0; r < ranks_.size(); ++r) {
        if (step == counted_from) from[r] = ranks_[r].now;
        ranks_[r].factor = what_.stragglers.Factor(static_cast<int>(r), step);
      }
      what_.served ? Serve() : Sum();
    }
    double steps_a_second = 0;
    for (size_t r = 0; r < ranks_.size(); ++r) {
      steps_a_second += (what_.steps - counted_from) / (ranks_[r].now - from[r]);
    }
    return static_cast<double>(ranks_.size()) / steps_a_second;
  }

 private:
  bool by_bucket() const { return what_.schedule == StepSchedule::kForward; }
  // Tables of a server do not wait for each other, since they move in chunks.
  LinkQueue NewQueue() const {
    const int lanes = what_.served ? static_cast<int>(what_.buckets.size()) : kLanesInOrder;
    return LinkQueue(by_bucket() ? std::max(lanes, 1) : 1, /*urgent_first=*/by_bucket());
  }
  Arrivals Of(std::vector<double> done) const { return {std::move(done), segments_.update_s}; }

  // A step, from its forward on, which waits for what the one before has summed.  A sum that is
  // done before a rank looks was ready before, so it does not depend on what is submitted later.
  void Sum() {
    for (Rank& rank : ranks_) {
      rank.Forward(segments_, before_, by_bucket());
      rank.updated_s = 0;
    }
    LinkQueue queue = NewQueue();
    std::optional<Arrivals> arrivals;
    for (size_t b = 0; b < what_.buckets.size(); ++b) {
      double ready = 0;
      for (Rank& rank : ranks_) {
        rank.Compute(segments_.backward[b]);
        ready = std::max(ready, rank.now);
        if (by_bucket() && arrivals) rank.Update(arrivals->UpdatesBefore(rank.now));
      }
      if (what_.schedule == StepSchedule::kNone) continue;
      queue.Submit(ready, what_.sums[b].start_s, what_.sums[b].link_s);
      arrivals = Of(queue.Done());
    }
    double end = 0;
    for (Rank& rank : ranks_) {
      rank.Compute(segments_.backward_rest);
      end = std::max(end, rank.now);
    }
    if (what_.schedule == StepSchedule::kNone) {
      for (const StepSimulation::BucketSum& sum : what_.sums)
        queue.Submit(end, sum.start_s, sum.link_s);
    }
    before_ = Of(queue.Done());
  }

  // Likewise, each rank with what it sends and gets.
  void Serve() {
    const size_t buckets = what_.buckets.size();
    std::vector<double> last(buckets, 0);  // when the last rank has what the others' bring
    own_.resize(ranks_.size(), std::vector<double>(buckets, 0));
    const size_t bound = what_.staleness.value_or(std::numeric_limits<int>::max());
    const bool bounded = history_.size() > bound;
    for (size_t r = 0; r < ranks_.size(); ++r) {
      Rank& rank = ranks_[r];
      std::vector<double> done = own_[r];
      for (size_t b = 0; bounded && b < buckets; ++b) {
        done[b] = std::max(done[b], history_[history_.size() - 1 - bound][b]);
      }
      rank.Forward(segments_, Of(std::move(done)), by_bucket());
      LinkQueue queue = NewQueue();
      std::vector<double> ready;
      for (size_t b = 0; b < buckets; ++b) {
        rank.Compute(segments_.backward[b]);
        ready.push_back(rank.now);
      }
      rank.Compute(segments_.backward_rest);
      for (size_t b = 0; b < buckets; ++b) {
        queue.Submit(what_.schedule == StepSchedule::kNone ? rank.now : ready[b],
                     what_.sums[b].start_s, what_.sums[b].link_s);
      }
      own_[r] = queue.Done();
      for (size_t b = 0; b < buckets; ++b) last[b] = std::max(last[b], own_[r][b]);
    }
    history_.push_back(std::move(last));
    if (what_.staleness && history_.size() > bound + 1) history_.pop_front();
    if (!what_.staleness) history_.clear();
  }

  const StepSimulation& what_;
  ComputeSegments segments_;
  std::vector<Rank> ranks_;
  Arrivals before_;                          // of the last step's sums: at first of none
  std::vector<std::vector<double>> own_;     // served, by rank: of its last step
  std::deque<std::vector<double>> history_;  // served, by step: of the slowest rank
};

}  // namespace

double Stragglers::Factor(int rank, int step) const {
  double factor = rank == 0 ? slowest : 1;
  if (jitter > 0) {
    const RandomBits bits = Philox(seed, static_cast<uint64_t>(step), static_cast<uint64_t>(rank));
    factor *= 1 - jitter * std::log1p(-UniformDouble(bits.v[0], bits.v[1]));
  }
  return factor;
}

void LinkQueue::Submit(double ready_s, double start_s, double link_s) {
  Serve(ready_s);
  const int sum = static_cast<int>(sums_.size());
  sums_.push_back({.start_s = start_s, .left_s = link_s, .ready_s = ready_s});
  if (heads_[sum % lanes()] < 0) Enter(sum);
}

std::vector<double> LinkQueue::Done() const {
  LinkQueue rest = *this;
  rest.Serve(std::numeric_limits<double>::infinity());
  std::vector<double> done;
  for (const QueuedSum& sum : rest.sums_) done.push_back(sum.done);
  return done;
}

int LinkQueue::UrgencyOf(int head) const {
  if (!urgent_first_) return -head;
  const int last = static_cast<int>(sums_.size()) - 1;
  return last - (last - head) % lanes();
}

// Its lane is free, from now on.
void LinkQueue::Enter(int sum) {
  heads_[sum % lanes()] = sum;
  sums_[sum].served_from = std::max(now_, sums_[sum].ready_s) + sums_[sum].start_s;
}

// What ends just then has ended.
void LinkQueue::Serve(double until) {
  for (;;) {
    int served = -1;
    double next = std::numeric_limits<double>::infinity();  // when another could want the link
    for (const int head : heads_) {
      if (head < 0) continue;
      if (sums_[head].served_from > now_) {
        next = std::min(next, sums_[head].served_from);
      } else if (served < 0 || UrgencyOf(head) > UrgencyOf(served)) {
        served = head;
      }
    }
    const double to = std::min(next, until);
    if (served >= 0 && now_ + sums_[served].left_s <= to) {
      now_ += sums_[served].left_s;
      sums_[served].done = now_;
      heads_[served % lanes()] = -1;
      const int after = served + lanes();
      if (after < static_cast<int>(sums_.size())) Enter(after);
      continue;
    }
    if (std::isinf(to)) return;  // nothing is left
    if (served >= 0) sums_[served].left_s -= to - now_;
    now_ = to;
    if (next > until) return;
  }
}

double StepSeconds(const Workload& workload, const StepSimulation& simulation) {
  return Simulator(workload, simulation).Run();
}

double SumsSeconds(const StepSimulation& simulation) {
  LinkQueue queue(kLanesInOrder, /*urgent_first=*/true);
  for (const StepSimulation::BucketSum& sum : simulation.sums) {
    queue.Submit(0, sum.start_s, sum.link_s);
  }
  double end = 0;
  for (const double done : queue.Done()) end = std::max(end, done);
  return end;
}

}  // namespace gyre
