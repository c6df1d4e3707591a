// What nobody catches, on whatever thread, ends a tool with a line and its exit code.
#include "tools/command_line/process.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
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
              testing::ExitedWithCode(1),
              "^error: cannot start a thread .*: no thread: Resource temporarily "
              "unavailable\n$");
}

// No memory is left for a stack.  On a thread, where no frame of the test catches.
void StartAThreadTooMany() {
  PrepareProcess();
  std::thread([] {
    void* volatile small = std::malloc(1000);  // the thread has an arena of its own from now on
    std::free(small);
    const rlimit none = {0, 0};
    if (setrlimit(RLIMIT_AS, &none) == 0) std::thread([] {}).join();
  }).join();
}

TEST(ProcessDeathTest, AThreadThatCannotBeStartedIsCalledThat) {
  EXPECT_EXIT(StartAThreadTooMany(), testing::ExitedWithCode(1),
              "^error: cannot start a thread .*: Resource temporarily unavailable\n$");
}

void ReadWhatHasBeenCut() {
  PrepareProcess();
  std::FILE* const file = std::tmpfile();
  constexpr size_t kBytes = 4096;
  if (file == nullptr || ftruncate(fileno(file), kBytes) != 0) return;
  void* const mapped = mmap(nullptr, kBytes, PROT_READ, MAP_SHARED, fileno(file), 0);
  if (mapped == MAP_FAILED || ftruncate(fileno(file), 0) != 0) return;
  std::exit(*static_cast<volatile char*>(mapped));
}

TEST(ProcessDeathTest, AMappedFileThatHasBeenCutIsAnErrorLine) {
  EXPECT_EXIT(ReadWhatHasBeenCut(), testing::ExitedWithCode(1),
              "^error: a file that is mapped to memory has been cut, .*\n$");
}

}  // namespace
}  // namespace gyre
