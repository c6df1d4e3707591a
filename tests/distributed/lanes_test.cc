// Which of the work under way goes on first.
#include "distributed/lanes.h"

#include <gtest/gtest.h>

#include <vector>

namespace gyre {
namespace {

TEST(Lanes, TheMostUrgentGoesFirst) {
  struct Case {
    const char* what;
    std::vector<int> urgencies;
    std::vector<int64_t> order;
  };
  const Case cases[] = {
      {"none: as submitted", {0, 0, 0}, {0, 1, 2}},
      {"a step's buckets, two of several parts", {0, 1, 1, 2}, {3, 1, 2, 0}},
      {"the urgent lane", {0, kMostUrgent, 1, kMostUrgent}, {1, 3, 2, 0}},
      {"the fifth follows the first in its lane", {0, 1, 2, 3, 4}, {0, 4, 3, 2, 1}},
      {"sums that a stream awaits", {0, kAwaited, 1, kMostUrgent}, {3, 1, 2, 0}},
      {"the urgent lane takes no other's turn", {0, kMostUrgent, 1, 2, 3, 4}, {1, 0, 5, 4, 3, 2}},
      {"less urgent than what it follows", {2, 0, 0, 0, 1}, {0, 4, 1, 2, 3}},
      {"two follow", {0, 0, 0, 0, 1, 0, 0, 0, 2}, {0, 4, 8, 1, 2, 3, 5, 6, 7}},
  };
  for (const Case& c : cases) {
    for (const bool at_once : {true, false}) {
      SCOPED_TRACE(c.what);
      Lanes lanes({"ring"});
      for (const int urgency : c.urgencies) {
        lanes.Submit("", {.urgency = urgency});
        if (!at_once) lanes.Take();
      }
      std::vector<int64_t> order;
      for (const Work& work : lanes.Take()) order.push_back(work.ticket);
      EXPECT_EQ(order, c.order);
    }
  }
}

}  // namespace
}  // namespace gyre
