#include "layers/interface/fault.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace gyre {
namespace {

TEST(Fault, KeepsItsParts) {
  Fault fault;
  EXPECT_EQ(fault.word, Fault::kNone);
  const int64_t largest = (int64_t{1} << 44) - 1;
  RaiseFault(&fault, 100'000, largest);
  EXPECT_EQ(fault.layer(), 100'000);
  EXPECT_EQ(fault.index(), largest);
}

TEST(Fault, TheFirstLayerAndSampleWin) {
  Fault fault;
  RaiseFault(&fault, 3, 9);
  RaiseFault(&fault, 3, 4);
  RaiseFault(&fault, 4, 0);
  RaiseFault(&fault, 3, 5);
  EXPECT_EQ(fault.layer(), 3);
  EXPECT_EQ(fault.index(), 4);
}

TEST(Fault, DoesNotDependOnTheOrderOfThreads) {
  for (int round = 0; round < 50; ++round) {
    Fault fault;
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&fault, t] {
        for (int64_t i = 200; i > 0; --i) RaiseFault(&fault, 1, i * 4 + t);
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(fault.index(), 4);
  }
}

}  // namespace
}  // namespace gyre
