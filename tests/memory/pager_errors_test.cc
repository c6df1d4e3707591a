// Errors of copies, steps and host steps, and iterations that have nothing to do.

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
  PagingPlan plan;
  std::unique_ptr<Device> device = NewSimDevice({});
  Buffer arena, pages;
  std::unique_ptr<Stream> compute;
  std::unique_ptr<Pager> pager;
};

// With pages of one page fewer if they are to be short.
absl::StatusOr<std::unique_ptr<Paged>> PageTwoParameters(size_t capacity_bytes, bool short_pages) {
  auto paged = std::make_unique<Paged>();
  ASSIGN_OR_RETURN(paged->plan,
                   PlanPaging(TwoParameters(), {}, {.capacity_bytes = capacity_bytes}));
  const size_t lacks = short_pages ? kPlanAlignment : 0;
  ASSIGN_OR_RETURN(paged->arena,
                   Buffer::Allocate(*paged->device, MemoryKind::kDevice, paged->plan.device_bytes));
  ASSIGN_OR_RETURN(paged->pages, Buffer::Allocate(*paged->device, MemoryKind::kPinnedHost,
                                                  paged->plan.page_bytes - lacks));
  ASSIGN_OR_RETURN(paged->compute, paged->device->NewStream());
  ASSIGN_OR_RETURN(paged->pager, Pager::Create(*paged->device, paged->plan, paged->arena.data(),
                                               paged->pages.data()));
  return paged;
}

absl::Status RunIteration(Paged& paged) {
  for (int step = 0; step <= 2; ++step) {
    RETURN_IF_ERROR(paged.pager->Advance(step - 1, step, *paged.compute));
  }
  return paged.pager->BringHome(*paged.compute);
}

TEST(Pager, CopyBeyondThePagesIsAnError) {
  const auto paged = PageTwoParameters(2 * kPlanAlignment, true);
  ASSERT_TRUE(paged.ok()) << paged.status();
  const absl::Status status = RunIteration(**paged);
  EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange) << status;
  EXPECT_THAT(status.message(), HasSubstr("leaves the pinned host memory"));
}

// Of a step that failed nothing is written back, and nobody goes on with what it left.
TEST(Pager, ErrorOfAStepComesOutOfTheCopies) {
  const auto made = PageTwoParameters(2 * kPlanAlignment, false);
  ASSERT_TRUE(made.ok()) << made.status();
  Paged& paged = **made;
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
  const auto paged = PageTwoParameters(4 * kPlanAlignment, false);
  ASSERT_TRUE(paged.ok()) << paged.status();
  EXPECT_EQ((*paged)->plan.page_bytes, 0u);
  EXPECT_TRUE((*paged)->pager->advances(-1, 0));  // there begins an iteration
  EXPECT_FALSE((*paged)->pager->advances(0, 1));
  EXPECT_FALSE((*paged)->pager->advances(1, 2));
  EXPECT_TRUE(RunIteration(**paged).ok());
  EXPECT_TRUE((*paged)->compute->Synchronize().ok());
}

// A step on the host that failed leaves nothing that a fetch would bring.
TEST(Pager, ErrorOfAHostStepComesOutOfWhatWaitsForIt) {
  AccessTrace trace = TwoParameters();
  trace.steps[0].host_bytes = 1;
  const auto plan = PlanPaging(trace, {}, {.capacity_bytes = 2 * kPlanAlignment});
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_EQ(plan->host_steps.size(), 1u);
  const std::unique_ptr<Device> device = NewSimDevice({});
  const auto arena = Buffer::Allocate(*device, MemoryKind::kDevice, plan->device_bytes);
  const auto pages = Buffer::Allocate(*device, MemoryKind::kPinnedHost, plan->page_bytes);
  ASSERT_TRUE(arena.ok() && pages.ok());
  const auto compute = device->NewStream();
  const auto pager = Pager::Create(*device, *plan, arena->data(), pages->data());
  ASSERT_TRUE(compute.ok() && pager.ok());
  ASSERT_TRUE((*pager)->Advance(-1, 0, **compute).ok());
  ASSERT_TRUE((*pager)->RunOnHost(0, [] { return absl::DataLossError("no update"); }).ok());
  ASSERT_TRUE((*pager)->Advance(0, 1, **compute).ok());
  EXPECT_GE((*pager)->hosted_seconds(), 0);
  (void)(*pager)->BringHome(**compute);
  EXPECT_EQ((*compute)->Synchronize().code(), absl::StatusCode::kDataLoss);
}

TEST(Pager, NoStepsNoStates) {
  const absl::StatusOr<PagingPlan> plan = PlanPaging({}, {}, {});
  ASSERT_TRUE(plan.ok()) << plan.status();
  const std::unique_ptr<Device> device = NewSimDevice({});
  const auto compute = device->NewStream();
  ASSERT_TRUE(compute.ok());
  const auto pager = Pager::Create(*device, *plan, nullptr, nullptr);
  ASSERT_TRUE(pager.ok()) << pager.status();
  EXPECT_FALSE((*pager)->advances(-1, 0));
  EXPECT_TRUE((*pager)->Advance(-1, 0, **compute).ok());
  EXPECT_TRUE((*pager)->BringHome(**compute).ok());
}

}  // namespace
}  // namespace gyre
