// link_queue.h: when sums over one link are done, of which several are under way at once: lanes,
// as the process group has them.
//
// Sums go through lanes in turn, and in a lane one follows the other.  A sum first takes its start,
// which leaves the link to others, then the link; of those that wait for the link the most urgent
// has it, at once, even from another.  What others follow in its lane is as urgent as they.  Used
// by one thread.
#pragma once

#include <vector>

namespace gyre {

// The process group's lanes in order (distributed/work_queue.h).
inline constexpr int kScalingLanes = 4;

class LinkQueue {
 public:
  // urgent_first: what was submitted last is the most urgent, else what was submitted first.
  LinkQueue(int lanes, bool urgent_first) : heads_(lanes, -1), urgent_first_(urgent_first) {}

  // Sum 0, then 1, ...; ready_s never goes back.
  void Submit(double ready_s, double start_s, double link_s);
  // When each is done, if nothing more is submitted.
  std::vector<double> Done() const;

 private:
  struct QueuedSum {
    double served_from = 0;  // that the link may have it: known once its lane is free for it
    double start_s = 0, left_s = 0;
    double ready_s = 0;
    double done = -1;
  };
  int lanes() const { return static_cast<int>(heads_.size()); }
  int UrgencyOf(int head) const;
  void Enter(int sum);
  void Serve(double until);

  std::vector<QueuedSum> sums_;
  std::vector<int> heads_;  // by lane: the sum that is under way, or -1
  double now_ = 0;
  bool urgent_first_;
};

}  // namespace gyre
