#include "distributed/scaling/link_queue.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace gyre {

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

}  // namespace gyre
