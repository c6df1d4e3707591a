// Which of several sums has the link, and when each is done.

#include <gtest/gtest.h>

#include <vector>

#include "distributed/scaling/step_simulation.h"

namespace gyre {
namespace {

using Done = std::vector<double>;

TEST(LinkQueue, OneSumTakesItsStartAndTheLink) {
  LinkQueue queue(4, true);
  EXPECT_EQ(queue.Done(), Done());
  queue.Submit(1, 0.5, 2);
  EXPECT_EQ(queue.Done(), Done({3.5}));
  queue.Submit(7, 0.5, 0);
  EXPECT_EQ(queue.Done(), Done({3.5, 7.5}));
}

TEST(LinkQueue, TheMostUrgentHasTheLink) {
  LinkQueue queue(4, true);
  queue.Submit(0, 0, 10);
  queue.Submit(2, 0, 3);
  EXPECT_EQ(queue.Done(), Done({13, 5}));
  LinkQueue in_order(4, false);
  in_order.Submit(0, 0, 10);
  in_order.Submit(2, 0, 3);
  EXPECT_EQ(in_order.Done(), Done({10, 13}));
}

TEST(LinkQueue, AStartLeavesTheLinkToOthers) {
  LinkQueue queue(4, true);
  queue.Submit(0, 1, 5);
  queue.Submit(2, 2, 4);  // has the link from 4 on
  EXPECT_EQ(queue.Done(), Done({10, 8}));
}

TEST(LinkQueue, InALaneOneFollowsTheOther) {
  LinkQueue one(1, true);
  one.Submit(0, 1, 2);
  one.Submit(0, 1, 2);
  EXPECT_EQ(one.Done(), Done({3, 6}));
  LinkQueue two(2, true);
  two.Submit(0, 0, 4);
  two.Submit(1, 0, 1);
  two.Submit(1, 0, 1);                     // the most urgent, and behind the first
  EXPECT_EQ(two.Done(), Done({4, 6, 5}));  // so the first goes ahead of the second
}

}  // namespace
}  // namespace gyre
