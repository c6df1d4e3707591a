// What a pager says when pages on disk are not what it wrote; that they are otherwise is
// pager_test's.

#include <gtest/gtest.h>

#include "engine/runtime/device/buffer.h"
#include "memory/pager/pager.h"

namespace gyre {
namespace {

// A page that is read alone, so that what befalls it in the file stays.  when_home: between two
// iterations, when nobody has said that homes change.
void ExpectThatTheDisksChangeIsAnError(bool when_home) {
  const AccessTrace trace = {
      .states = {{.name = "a", .bytes = 2 * kPlanAlignment, .persistent = true},
                 {.name = "b", .bytes = 2 * kPlanAlignment, .persistent = true}},
      .steps = {{"read a", {{0, true, false}}}, {"use b", {{1, true, true}}}}};
  const absl::StatusOr<PagingPlan> plan = PlanPaging(
      trace, {}, {.capacity_bytes = 2 * kPlanAlignment, .host_bytes = 8 * kPlanAlignment});
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_EQ(plan->disk_home_bytes, 4 * kPlanAlignment);
  const std::unique_ptr<Device> device = NewSimDevice({.delay_seed = 3});
  const auto arena = Buffer::Allocate(*device, MemoryKind::kDevice, plan->device_bytes);
  const auto pages = Buffer::Allocate(*device, MemoryKind::kPinnedHost, plan->page_bytes);
  const auto file = PageFile::Create(testing::TempDir(), plan->disk_bytes, plan->disk_home_bytes);
  const auto compute = device->NewStream();
  ASSERT_TRUE(arena.ok() && pages.ok() && file.ok() && compute.ok());
  const auto pager = Pager::Create(*device, *plan, arena->data(), pages->data(), file->get());
  ASSERT_TRUE(pager.ok()) << pager.status();
  const auto advance = [&](int to) { return (*pager)->Advance(to - 1, to, **compute); };
  for (int step = 0; step <= 2; ++step) ASSERT_TRUE(advance(step).ok());
  ASSERT_TRUE((*pager)->BringHome(**compute).ok());
  (*file)->Release();
  (*file)->homes()[plan->blocks[0].page] ^= std::byte{1};  // by who has it: not an error
  for (int step = 0; step <= 2; ++step) ASSERT_TRUE(advance(step).ok());
  ASSERT_TRUE((*pager)->BringHome(**compute).ok());
  if (!when_home) {
    ASSERT_TRUE(advance(0).ok());
  }
  (*file)->homes()[plan->blocks[0].page] ^= std::byte{1};
  if (when_home) (void)advance(0);  // that, or what follows, finds it
  (void)advance(1);
  (void)advance(2);
  const absl::Status status = (*pager)->BringHome(**compute);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
  EXPECT_EQ(advance(0).code(), absl::StatusCode::kDataLoss);  // and it stays
}

TEST(DiskCopies, WhatTheDiskChangedIsAnError) { ExpectThatTheDisksChangeIsAnError(false); }
TEST(DiskCopies, WhatTheDiskChangedAtHomeIsAnError) { ExpectThatTheDisksChangeIsAnError(true); }

}  // namespace
}  // namespace gyre
