// Errors of copies, steps, host steps and pages on disk, and iterations that have nothing to do.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "engine/runtime/check.h"
#include "engine/runtime/device/buffer.h"
#include "memory/pager/pager.h"

namespace gyre {
namespace {

using ::testing::HasSubstr;

// Two parameters of two pages, of which the device holds one: both steps write theirs.
AccessTrace TwoParameters() {
  return {.states = {{.name = "a", .bytes = 2 * kPlanAlignment, .persistent = true},
                     {.name = "b", .bytes = 2 * kPlanAlignment, .persistent = true}},
          .steps = {{"use a", {{0, true, true}}}, {"use b", {{1, true, true}}}}};
}

struct Paged {
  // lacks: bytes that pages are too short.
  Paged(const AccessTrace& trace, const PagingLimits& limits, size_t lacks = 0,
        uint64_t delay_seed = 0)
      : plan(PlanPaging(trace, {}, limits).value()),
        device(NewSimDevice({.delay_seed = delay_seed})),
        arena(Buffer::Allocate(*device, MemoryKind::kDevice, plan.device_bytes).value()),
        pages(Buffer::Allocate(*device, MemoryKind::kPinnedHost, plan.page_bytes - lacks).value()),
        file(PageFile::Create(testing::TempDir(), plan.disk_bytes, plan.disk_home_bytes).value()),
        compute(device->NewStream().value()),
        pager(Pager::Create(*device, plan, arena.data(), pages.data(), file.get()).value()) {}

  const PagingPlan plan;
  const std::unique_ptr<Device> device;
  const Buffer arena, pages;
  const std::unique_ptr<PageFile> file;
  const std::unique_ptr<Stream> compute;
  std::unique_ptr<Pager> pager;
};

absl::Status RunIteration(Paged& paged) {
  for (int step = 0; step <= 2; ++step) {
    RETURN_IF_ERROR(paged.pager->Advance(step - 1, step, *paged.compute));
  }
  return paged.pager->BringHome(*paged.compute);
}

TEST(Pager, CopyBeyondThePagesIsAnError) {
  Paged paged(TwoParameters(), {.capacity_bytes = 2 * kPlanAlignment}, /*lacks=*/kPlanAlignment);
  EXPECT_THAT(RunIteration(paged).ToString(),
              ::testing::AllOf(::testing::StartsWith("OUT_OF_RANGE: "),
                               HasSubstr("leaves the pinned host memory")));
}

// Of a step that failed nothing is written back, and nobody goes on with what it left.
TEST(Pager, ErrorOfAStepComesOutOfTheCopies) {
  Paged paged(TwoParameters(), {.capacity_bytes = 2 * kPlanAlignment});
  std::ranges::fill_n(paged.pages.data(), static_cast<std::ptrdiff_t>(paged.pages.bytes()),
                      std::byte{7});
  ASSERT_TRUE(paged.pager->Advance(-1, 0, *paged.compute).ok());
  const absl::Status enqueued = paged.compute->Call([&paged] {
    std::memset(paged.arena.data(), 1, paged.arena.bytes());
    return absl::DataLossError("the step failed");
  });
  ASSERT_TRUE(enqueued.ok());
  // The step fails soon or late; by the next iteration everybody knows.
  (void)paged.pager->Advance(0, 1, *paged.compute);
  EXPECT_EQ(paged.compute->Synchronize().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(RunIteration(paged).code(), absl::StatusCode::kDataLoss);
  paged.pager.reset();  // all is over
  EXPECT_TRUE(std::all_of(paged.pages.data(), paged.pages.data() + paged.pages.bytes(),
                          [](std::byte byte) { return byte == std::byte{7}; }));
}

TEST(Pager, DoesNothingWhereAllFits) {
  Paged paged(TwoParameters(), {.capacity_bytes = 4 * kPlanAlignment});
  EXPECT_EQ(paged.plan.page_bytes, 0u);
  EXPECT_TRUE(paged.pager->advances(-1, 0));  // there begins an iteration
  EXPECT_FALSE(paged.pager->advances(0, 1));
  EXPECT_FALSE(paged.pager->advances(1, 2));
  EXPECT_TRUE(RunIteration(paged).ok());
  EXPECT_TRUE(paged.compute->Synchronize().ok());
}

// A step on the host that failed leaves nothing that a fetch would bring.
TEST(Pager, ErrorOfAHostStepComesOutOfWhatWaitsForIt) {
  AccessTrace trace = TwoParameters();
  trace.steps[0].host_bytes = 1;
  Paged paged(trace, {.capacity_bytes = 2 * kPlanAlignment});
  ASSERT_EQ(paged.plan.host_steps.size(), 1u);
  ASSERT_TRUE(paged.pager->Advance(-1, 0, *paged.compute).ok());
  ASSERT_TRUE(paged.pager->RunOnHost(0, [] { return absl::DataLossError("no update"); }).ok());
  ASSERT_TRUE(paged.pager->Advance(0, 1, *paged.compute).ok());
  EXPECT_GE(paged.pager->hosted_seconds(), 0);
  (void)paged.pager->BringHome(*paged.compute);
  EXPECT_EQ(paged.compute->Synchronize().code(), absl::StatusCode::kDataLoss);
}

// A page that is read alone, so that what befalls it in the file stays.  when_home: between two
// iterations, when nobody has said that homes change.
TEST(Pager, WhatTheDiskChangedIsAnError) {
  AccessTrace trace = TwoParameters();
  trace.steps[0].touches[0].write = false;
  for (const bool when_home : {false, true}) {
    Paged paged(trace, {.capacity_bytes = 2 * kPlanAlignment, .host_bytes = 8 * kPlanAlignment},
                /*lacks=*/0, /*delay_seed=*/3);
    ASSERT_EQ(paged.plan.disk_home_bytes, 4 * kPlanAlignment);
    std::byte& home = paged.file->homes()[paged.plan.blocks[0].page];
    const auto advance = [&](int to) { return paged.pager->Advance(to - 1, to, *paged.compute); };
    ASSERT_TRUE(RunIteration(paged).ok());
    paged.file->Release();
    home ^= std::byte{1};  // by who has it: not an error
    ASSERT_TRUE(RunIteration(paged).ok());
    if (!when_home) {
      ASSERT_TRUE(advance(0).ok());
    }
    home ^= std::byte{1};
    if (when_home) (void)advance(0);  // that, or what follows, finds it
    (void)advance(1);
    (void)advance(2);
    EXPECT_EQ(paged.pager->BringHome(*paged.compute).code(), absl::StatusCode::kDataLoss);
    EXPECT_EQ(advance(0).code(), absl::StatusCode::kDataLoss);  // and it stays
  }
}

TEST(Pager, NoStepsNoStates) {
  Paged paged({}, {});
  EXPECT_FALSE(paged.pager->advances(-1, 0));
  EXPECT_TRUE(paged.pager->Advance(-1, 0, *paged.compute).ok());
  EXPECT_TRUE(paged.pager->BringHome(*paged.compute).ok());
}

}  // namespace
}  // namespace gyre
