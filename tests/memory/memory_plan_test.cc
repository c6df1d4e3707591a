#include "memory/resident/memory_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gyre {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr size_t kPage = kPlanAlignment;
constexpr size_t kUnlimited = SIZE_MAX;

TraceState State(std::string name, size_t bytes) {
  return {.name = std::move(name), .bytes = bytes};
}
TraceState Persistent(std::string name, size_t bytes) {
  return {.name = std::move(name), .bytes = bytes, .persistent = true};
}

TraceTouch Writes(int state) { return {state, false, true}; }
TraceTouch Reads(int state) { return {state, true, false}; }

std::string ErrorOf(const AccessTrace& trace, size_t capacity_bytes = kUnlimited) {
  return std::string(PlanMemory(trace, capacity_bytes).status().message());
}

TEST(MemoryPlan, PersistentStatesComeFirstInOrderOfDeclaration) {
  AccessTrace trace;
  trace.states = {State("x", 10 * kPage), Persistent("w", 1), State("y", 1),
                  Persistent("u", kPage + 1)};
  trace.steps = {{"s", {Writes(0), Writes(2), Reads(3)}}};
  const MemoryPlan plan = PlanMemory(trace, kUnlimited).value();
  EXPECT_EQ(plan.placements[1].offset, 0u);
  EXPECT_EQ(plan.placements[3].offset, kPage);
  EXPECT_EQ(plan.placements[0].offset, 3 * kPage);
  EXPECT_EQ(plan.placements[2].offset, 13 * kPage);
  EXPECT_EQ(plan.device_bytes, 14 * kPage);
}

TEST(MemoryPlan, OverCapacityNamesStepStatesAndBytes) {
  AccessTrace trace;
  trace.states = {Persistent("conv1.weight", 2 * kPage), State("small", 12),
                  State("conv1.output", 512 * kPage), State("later", kPage)};
  trace.steps = {{"load", {Writes(1)}},
                 {"conv1 forward", {Reads(1), Reads(0), Writes(2)}},
                 {"end", {Writes(3)}}};
  const absl::Status status = PlanMemory(trace, 1000000).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(
      status.message(),
      "device memory: expected at least 2109440 bytes (2.0 MiB) for step 1 \"conv1 forward\", "
      "with 2109440 bytes (2.0 MiB) in use, got 1000000 bytes (976.6 KiB); the largest states "
      "there: \"conv1.output\" 2097152 bytes (2.0 MiB), \"conv1.weight\" 8192 bytes (8.0 "
      "KiB), \"small\" 12 bytes");
  EXPECT_TRUE(PlanMemory(trace, 2109440).ok());
  EXPECT_FALSE(PlanMemory(trace, 2109439).ok());
}

TEST(MemoryPlan, ReservedBytesCountInTheCapacity) {
  AccessTrace trace;
  trace.states = {Persistent("w", 1)};
  EXPECT_TRUE(PlanMemory(trace, kPage + 100, 100).ok());
  EXPECT_THAT(
      PlanMemory(trace, kPage + 99, 100).status().ToString(),
      HasSubstr("RESOURCE_EXHAUSTED: device memory: expected at least 4196 bytes (4.1 KiB), "
                "of which 100 bytes are reserved, for "));
  EXPECT_FALSE(PlanMemory(trace, 99, 100).ok());
}

TEST(MemoryPlan, OverCapacityWithoutSteps) {
  AccessTrace trace;
  trace.states = {Persistent("w", 1)};
  EXPECT_THAT(ErrorOf(trace, 4095), AllOf(HasSubstr("no step"), HasSubstr("\"w\" 1 bytes")));
}

TEST(MemoryPlan, BytesReadWellAtTheBordersOfUnits) {
  AccessTrace trace;
  trace.states = {Persistent("w", 1)};
  const auto capacity_text = [&trace](size_t bytes) {
    trace.states[0].bytes = 2 * bytes + 1;
    return ErrorOf(trace, bytes);
  };
  EXPECT_THAT(capacity_text(1023), HasSubstr("got 1023 bytes;"));
  EXPECT_THAT(capacity_text(1024), HasSubstr("got 1024 bytes (1.0 KiB);"));
  EXPECT_THAT(capacity_text(1048575), HasSubstr("got 1048575 bytes (1.0 MiB);"));
  EXPECT_THAT(capacity_text(size_t{5} << 40), HasSubstr("got 5497558138880 bytes (5.0 TiB);"));
}

TEST(MemoryPlan, ErrorNamesOnlyTheLargestStates) {
  AccessTrace trace;
  TraceStep step{"all", {}};
  for (int i = 0; i < 9; ++i) {
    trace.states.push_back(State("s" + std::to_string(i), 1000 + i));
    step.touches.push_back(Writes(i));
  }
  trace.steps = {step};
  EXPECT_THAT(ErrorOf(trace, 0),
              AllOf(HasSubstr("there: \"s8\""), HasSubstr("\"s4\""), Not(HasSubstr("\"s3\""))));
}

TEST(MemoryPlan, BytesBeyondAllMemory) {
  AccessTrace trace;
  trace.states = {State("x", SIZE_MAX)};
  EXPECT_THAT(ErrorOf(trace), HasSubstr("state 0 \"x\""));
  trace.states = {State("x", size_t{1} << 60), State("y", 1)};
  EXPECT_EQ(
      PlanMemory(trace, kUnlimited).status(),
      absl::InvalidArgumentError("state 1 \"y\" of 1 bytes brings the sum beyond 2^60 bytes"));
}

TEST(MemoryPlan, ReadBeforeWrite) {
  AccessTrace trace;
  trace.states = {State("x", 1), {.name = "v", .bytes = 1, .view_of = 0}, Persistent("w", 1)};
  trace.steps = {{"good", {Reads(2)}}, {"bad", {Reads(1)}}, {"late", {Writes(0)}}};
  EXPECT_EQ(ErrorOf(trace), "step 1 \"bad\" reads state 1 \"v\", which no step has written");
  trace.steps[0].touches = {Writes(0)};  // the view's base
  EXPECT_TRUE(PlanMemory(trace, kUnlimited).ok());
  trace.steps = {{"scratch", {Reads(0), Writes(0)}}, {"both", {{1, true, true}}}};
  EXPECT_TRUE(PlanMemory(trace, kUnlimited).ok());
}

TEST(MemoryPlan, Explain) {
  AccessTrace trace;
  trace.states = {Persistent("weight", 3 * kPage), State("output", 5 * kPage - 1),
                  State("bucket", 1)};
  trace.states[2].arena = Arena::kCommunication;
  trace.steps = {{"load", {}}, {"forward", {Reads(0), Writes(1)}}, {"send", {Writes(2)}}};
  const MemoryPlan plan = PlanMemory(trace, kUnlimited).value();
  EXPECT_EQ(Explain(trace, plan),
            "device memory of the net    32.0 KiB            32768 bytes\n"
            "  kept between iterations   12.0 KiB            12288 bytes\n"
            "  reused within one         20.0 KiB            20480 bytes\n"
            "  most in use at once       32.0 KiB            32768 bytes\n"
            "gradients of all ranks       4.0 KiB             4096 bytes\n"
            "most is in use at step 1 \"forward\" of an iteration:\n"
            "        size       offset  steps        state\n"
            "    20.0 KiB        12288  1..1         output\n"
            "    12.0 KiB            0  always       weight\n");
}

TEST(MemoryPlan, ExplainSumsUpSmallStates) {
  AccessTrace trace;
  TraceStep step{"all", {}};
  for (int i = 0; i < 20; ++i) {
    trace.states.push_back(State("s" + std::to_string(i), 512));
    step.touches.push_back(Writes(i));
  }
  trace.steps = {step};
  EXPECT_THAT(Explain(trace, *PlanMemory(trace, kUnlimited)),
              AllOf(HasSubstr("2.0 KiB"), HasSubstr("4 smaller states"), Not(HasSubstr(" s16\n"))));
}

}  // namespace
}  // namespace gyre
