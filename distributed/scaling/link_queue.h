// link_queue.h: the completion times of sums over one link, several at once, in lanes as those of
// the process group.
//
// Sums enter the lanes in turn, and a lane is sequential.  A sum takes its start, during which
// others may use the link, and then the link.  The most urgent has the link, and preempts others.
// A sum gets the urgency of sums behind it in its lane.  Used by one thread.
#pragma once

#include <vector>

namespace gyre {

class LinkQueue {
 public:
  // With urgent_first the sum submitted last is the most urgent.  Otherwise the first is.
  LinkQueue(int lanes, bool urgent_first) : heads_(lanes, -1), urgent_first_(urgent_first) {}

  // Submits sums 0, 1, ...  Precondition: ready_s does not decrease.
  void Submit(double ready_s, double start_s, double link_s);
  // The completion time of each sum, if no other follows.
  std::vector<double> Done() const;

 private:
  struct QueuedSum {
    double served_from = 0;  // when it may have the link; set once its lane is free
    double start_s = 0, left_s = 0;
    double ready_s = 0;
    double done = -1;
  };
  int lanes() const { return static_cast<int>(heads_.size()); }
  int UrgencyOf(int head) const;
  void Enter(int sum);
  void Serve(double until);

  std::vector<QueuedSum> sums_;
  std::vector<int> heads_;  // by lane: the sum under way, or -1
  double now_ = 0;
  bool urgent_first_;
};

}  // namespace gyre
