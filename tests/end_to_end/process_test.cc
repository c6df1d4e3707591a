// What nobody catches, on whatever thread, ends a tool with a line and its exit code.
#include "tools/process.h"

#include <gtest/gtest.h>

#include <new>
#include <system_error>
#include <thread>

namespace gyre {
namespace {

template <typename Thrown>
void ThrowOnAThread(Thrown thrown) {
  PrepareProcess();
  std::thread([&] { throw thrown; }).join();
}

TEST(ProcessDeathTest, WhatNobodyCatchesIsAnErrorLine) {
  EXPECT_EXIT(ThrowOnAThread(std::bad_alloc()), testing::ExitedWithCode(1),
              "^error: out of memory\n$");
  EXPECT_EXIT(ThrowOnAThread(std::system_error(EAGAIN, std::generic_category(), "no thread")),
              testing::ExitedWithCode(1), "^error: no thread: Resource temporarily unavailable\n$");
}

}  // namespace
}  // namespace gyre
