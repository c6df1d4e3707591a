// What a program computes from LocalData, bit for bit what it computes from memory of its own, over
// random programs on the least capacity, with random delays on every stream of `sim`; and each
// error.

#include "memory/local_access/local_access.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "absl/strings/str_cat.h"
#include "engine/runtime/check.h"
#include "tests/sanitized.h"

namespace gyre {
namespace {

using ::testing::HasSubstr;
using Lifetime = LocalData::Lifetime;

constexpr int kCases = kSanitized ? 40 : 200;
constexpr int kIterations = 4;
constexpr size_t kPage = 4096;

// --- Random programs -----------------------------------------------------------------------------

struct Touch {
  int array = 0;
  Fetch fetch = kFetch;
  Keep keep = kKeep;
};
struct Program {
  std::vector<size_t> bytes;  // by array
  std::vector<Lifetime> lifetimes;
  std::vector<std::vector<Touch>> steps;
  size_t least_bytes = 0;
};

Program RandomProgram(std::mt19937_64& rng) {
  const auto below = [&rng](size_t n) { return rng() % n; };
  Program program;
  const size_t arrays = 1 + below(12);
  std::vector<bool> has_value;
  for (size_t i = 0; i < arrays; ++i) {
    const size_t sizes[] = {0, 1, 777, kPage, kPage + 1, 1 + below(8 * kPage)};
    program.bytes.push_back(sizes[below(std::size(sizes))]);
    program.lifetimes.push_back(below(3) == 0 ? Lifetime::kIteration : Lifetime::kRun);
    has_value.push_back(program.lifetimes[i] == Lifetime::kRun);
  }
  const size_t steps = below(24);
  for (size_t s = 0; s < steps; ++s) {
    std::vector<Touch>& touches = program.steps.emplace_back();
    size_t bytes = 0;
    const size_t most = below(5);
    for (size_t i = below(arrays); i < arrays && touches.size() < most; i += 1 + below(3)) {
      const bool fetch = has_value[i] && below(3) > 0;
      const bool keep = below(2) == 0 || (!fetch && program.lifetimes[i] == Lifetime::kRun);
      touches.push_back({static_cast<int>(i), Fetch{fetch}, Keep{keep}});
      has_value[i] = fetch || keep;
      bytes += (program.bytes[i] + kPage - 1) / kPage * kPage;
    }
    program.least_bytes = std::max(program.least_bytes, bytes);
  }
  return program;
}

// A checksum of what is fetched; then all that is not only read has other bytes.
uint64_t Work(const Program& program, const std::vector<Touch>& touches,
              const std::vector<std::byte*>& at, uint64_t key) {
  uint64_t sum = key;
  for (size_t i = 0; i < touches.size(); ++i) {
    const size_t bytes = program.bytes[touches[i].array];
    for (size_t b = 0; touches[i].fetch && b < bytes; ++b) {
      sum = (sum ^ static_cast<uint64_t>(at[i][b])) * 0x9E3779B97F4A7C15;
      sum ^= sum >> 29;
    }
  }
  for (size_t i = 0; i < touches.size(); ++i) {
    if (touches[i].fetch && !touches[i].keep) continue;
    uint64_t bits = sum + i;
    for (size_t b = 0; b < program.bytes[touches[i].array]; ++b) {
      bits = bits * 6364136223846793005 + 1442695040888963407;
      at[i][b] = static_cast<std::byte>(bits >> 56);
    }
  }
  return sum;
}

using Arrays = std::vector<std::vector<std::byte>>;

absl::Status RunCase(uint64_t seed) {
  std::mt19937_64 rng(seed);
  const Program program = RandomProgram(rng);
  const int arrays = static_cast<int>(program.bytes.size());
  const std::unique_ptr<Device> device =
      NewSimDevice({.capacity_bytes = program.least_bytes, .delay_seed = 1 + 1000 * seed});
  ASSIGN_OR_RETURN(const std::unique_ptr<Stream> stream, device->NewStream());
  std::vector<uint64_t> sums(kIterations * program.steps.size());  // outlives the work
  const auto data = LocalData::Create(*device, *stream, {.capacity_bytes = program.least_bytes});
  std::vector<LocalData::Array> handles;
  for (int i = 0; i < arrays; ++i) {
    ASSIGN_OR_RETURN(
        const LocalData::Array handle,
        data->Declare(absl::StrCat("array ", i), program.bytes[i], program.lifetimes[i]));
    handles.push_back(handle);
  }
  // Iteration -1 is the recorded one.
  const auto iterate = [&](int iteration) -> absl::Status {
    for (size_t s = 0; s < program.steps.size(); ++s) {
      const std::vector<Touch>& touches = program.steps[s];
      std::vector<LocalData::ArrayAccess> accesses;
      for (const auto& [array, fetch, keep] : touches) {
        accesses.push_back({handles[array], fetch, keep});
      }
      ASSIGN_OR_RETURN(const std::vector<std::byte*> at,
                       data->LocalAccess(absl::StrCat("step ", s), accesses, 1e-6));
      if (iteration >= 0) {
        uint64_t& sum = sums[iteration * program.steps.size() + s];
        RETURN_IF_ERROR(stream->Call([&program, &touches, &sum, at] {
          sum = Work(program, touches, at, 1);
          return absl::OkStatus();
        }));
      }
      RETURN_IF_ERROR(data->PostLocalAccess());
    }
    return data->FinishIteration();
  };
  Arrays plain;
  const auto write = [&](int i) {
    for (std::byte& byte : plain[i]) byte = static_cast<std::byte>(rng());
    return data->Write(handles[i], plain[i].data());
  };
  RETURN_IF_ERROR(iterate(-1));
  for (int i = 0; i < arrays; ++i) {
    plain.emplace_back(program.bytes[i]);
    if (program.lifetimes[i] == Lifetime::kRun) RETURN_IF_ERROR(write(i));
  }
  std::vector<uint64_t> expected;
  for (int iteration = 0; iteration < kIterations; ++iteration) {
    RETURN_IF_ERROR(iterate(iteration));
    for (const std::vector<Touch>& touches : program.steps) {
      std::vector<std::byte*> at;
      for (const Touch& touch : touches) at.push_back(plain[touch.array].data());
      expected.push_back(Work(program, touches, at, 1));
    }
    for (int i = 0; i < arrays; ++i) {
      // Else iterations follow one another without a pause.
      if (program.lifetimes[i] != Lifetime::kRun) continue;
      if (iteration + 1 < kIterations && rng() % 4 > 0) continue;
      std::vector<std::byte> read(program.bytes[i]);
      RETURN_IF_ERROR(data->Read(handles[i], read.data()));
      if (read != plain[i]) return absl::InternalError(absl::StrCat("array ", i, " differs"));
      if (rng() % 2 == 0) RETURN_IF_ERROR(write(i));
    }
  }
  RETURN_IF_ERROR(stream->Synchronize());
  return sums == expected ? absl::OkStatus() : absl::InternalError("a step read other bytes");
}

TEST(LocalAccess, ComputesTheSameBits) {
  for (uint64_t seed = 0; seed < kCases; ++seed) {
    const absl::Status status = RunCase(seed);
    ASSERT_TRUE(status.ok()) << "seed " << seed << ": " << status;
  }
}

// --- By hand -------------------------------------------------------------------------------------

struct Fixture {
  explicit Fixture(size_t capacity_bytes = 2 * kPage, const SimOptions& options = {})
      : device(NewSimDevice(options)),
        data(LocalData::Create(*device, *stream, {.capacity_bytes = capacity_bytes})) {}

  std::unique_ptr<Device> device;
  std::unique_ptr<Stream> stream = *device->NewStream();
  std::unique_ptr<LocalData> data;
  LocalData::Array a = *data->Declare("a", 2 * kPage);
  LocalData::Array b = *data->Declare("b", kPage);
  LocalData::Array scratch = *data->Declare("scratch", kPage, Lifetime::kIteration);

  absl::Status Step(const std::string& name, const std::vector<LocalData::ArrayAccess>& accesses) {
    RETURN_IF_ERROR(data->LocalAccess(name, accesses).status());
    return data->PostLocalAccess();
  }
  absl::Status Iterate() {
    RETURN_IF_ERROR(Step("first", {{a, kFetch, kNoKeep}}));
    RETURN_IF_ERROR(Step("second", {{scratch, kNoFetch, kNoKeep}, {b, kFetch, kKeep}}));
    return data->FinishIteration();
  }
};

// code and message of an error, or "OK"
template <typename T>
std::string Said(const absl::StatusOr<T>& value) {
  return value.status().ToString();
}
std::string Said(const absl::Status& status) { return status.ToString(); }

// The device holds the arrays of one step.
TEST(LocalAccess, WhatIsOnlyReadAndScratchAreNotCopiedOut) {
  Fixture f;
  ASSERT_TRUE(f.Iterate().ok());
  EXPECT_FALSE(f.data->recording());
  EXPECT_EQ(f.data->plan().device_bytes, 2 * kPage);
  EXPECT_EQ(f.data->plan().fetched_bytes, 3 * kPage);  // a and b
  EXPECT_EQ(f.data->plan().written_bytes, kPage);      // b
}

TEST(LocalAccess, WhatIsNotFetchedIsNotCopiedIn) {
  Fixture f;
  ASSERT_TRUE(f.Step("first", {{f.a, kNoFetch, kKeep}}).ok());
  ASSERT_TRUE(f.Step("second", {{f.scratch, kNoFetch, kKeep}, {f.b, kFetch, kNoKeep}}).ok());
  ASSERT_TRUE(f.Step("third", {{f.scratch, kFetch, kNoKeep}}).ok());
  ASSERT_TRUE(f.data->FinishIteration().ok());
  EXPECT_EQ(f.data->plan().fetched_bytes, kPage);      // b
  EXPECT_EQ(f.data->plan().written_bytes, 2 * kPage);  // a
}

TEST(LocalAccess, AnotherStepThanRecorded) {
  Fixture f;
  ASSERT_TRUE(f.Iterate().ok());
  const std::string first =
      "FAILED_PRECONDITION: step 0 of 2 recorded: expected LocalAccess \"first\" to \"a\" (fetch, "
      "no keep); got ";
  EXPECT_EQ(
      Said(f.Step("second", {{f.scratch, kNoFetch, kNoKeep}, {f.b, kFetch, kKeep}})),
      first + "LocalAccess \"second\" to \"scratch\" (no fetch, no keep), \"b\" (fetch, keep)");
  EXPECT_EQ(Said(f.Step("first", {})), first + "LocalAccess \"first\" to nothing");
  EXPECT_EQ(Said(f.Step("first", {{f.a, kFetch, kKeep}})),
            first + "LocalAccess \"first\" to \"a\" (fetch, keep)");
  EXPECT_EQ(Said(f.Step("first", {{f.a, kNoFetch, kNoKeep}})),
            first + "LocalAccess \"first\" to \"a\" (no fetch, no keep)");
  EXPECT_EQ(Said(f.Step("first", {{f.b, kFetch, kNoKeep}})),
            first + "LocalAccess \"first\" to \"b\" (fetch, no keep)");
  EXPECT_EQ(Said(f.data->FinishIteration()), first + "FinishIteration");
  // The right one may follow.
  EXPECT_EQ(Said(f.Iterate()), "OK");
  EXPECT_EQ(Said(f.Step("first", {{f.a, kFetch, kNoKeep}})), "OK");
  EXPECT_EQ(Said(f.Step("second", {{f.scratch, kNoFetch, kNoKeep}, {f.b}})), "OK");
  EXPECT_EQ(Said(f.Step("third", {})),
            "FAILED_PRECONDITION: step 2 of 2 recorded: expected FinishIteration; got LocalAccess "
            "\"third\" to nothing");
  EXPECT_EQ(Said(f.data->FinishIteration()), "OK");
}

TEST(LocalAccess, CallsOutOfTurn) {
  for (const bool recorded : {false, true}) {
    Fixture f;
    if (recorded) {
      ASSERT_TRUE(f.Iterate().ok());
    }
    EXPECT_EQ(Said(f.data->PostLocalAccess()),
              "FAILED_PRECONDITION: PostLocalAccess: expected LocalAccess first");
    ASSERT_TRUE(f.data->LocalAccess("first", {{f.a, kFetch, kNoKeep}}).ok());
    EXPECT_EQ(Said(f.data->LocalAccess("more", {})),
              "FAILED_PRECONDITION: LocalAccess \"more\": expected PostLocalAccess of \"first\" "
              "first");
    EXPECT_EQ(Said(f.data->FinishIteration()),
              "FAILED_PRECONDITION: FinishIteration: expected PostLocalAccess of \"first\" first");
    std::byte value[2 * kPage] = {};
    const std::string when = recorded ? "expected between iterations, FinishIteration first"
                                      : "expected after the recorded iteration";
    EXPECT_EQ(Said(f.data->Read(f.a, value)), "FAILED_PRECONDITION: Read \"a\": " + when);
    EXPECT_EQ(Said(f.data->Write(f.a, value)), "FAILED_PRECONDITION: Write \"a\": " + when);
  }
  Fixture f;
  ASSERT_TRUE(f.Iterate().ok());
  EXPECT_EQ(Said(f.data->Declare("late", 1)),
            "FAILED_PRECONDITION: Declare \"late\": expected before the recorded iteration's end");
  std::byte value[kPage] = {};
  EXPECT_EQ(Said(f.data->Read(f.scratch, value)),
            "FAILED_PRECONDITION: Read \"scratch\": has no value between iterations: expected "
            "Lifetime::kRun");
}

TEST(LocalAccess, AccessesThatCannotBe) {
  Fixture f, other;
  const std::string foreign = ": an array was declared in another LocalData";
  EXPECT_EQ(Said(f.Step("s", {{other.a}})), "INVALID_ARGUMENT: LocalAccess \"s\"" + foreign);
  EXPECT_EQ(Said(f.data->Read(other.a, nullptr)), "INVALID_ARGUMENT: Read" + foreign);
  EXPECT_EQ(Said(f.Step("s", {{f.a}, {f.a}})),
            "INVALID_ARGUMENT: LocalAccess \"s\": array \"a\" comes twice");
  EXPECT_EQ(
      Said(f.Step("s", {{f.a, kNoFetch, kNoKeep}})),
      "INVALID_ARGUMENT: LocalAccess \"s\": array \"a\" is neither fetched nor kept, but has a "
      "value between iterations: expected Lifetime::kIteration");
  const std::string nothing =
      "INVALID_ARGUMENT: LocalAccess \"s\": array \"scratch\" is fetched, but holds no value: "
      "expected an access that keeps one first";
  EXPECT_EQ(Said(f.Step("s", {{f.scratch}})), nothing);
  EXPECT_EQ(Said(f.Step("fill", {{f.scratch, kNoFetch, kKeep}})), "OK");
  EXPECT_EQ(Said(f.Step("use", {{f.scratch}})), "OK");
  EXPECT_EQ(Said(f.Step("overwrite", {{f.scratch, kNoFetch, kNoKeep}})), "OK");
  EXPECT_EQ(Said(f.Step("s", {{f.scratch}})), nothing);
}

TEST(LocalAccess, TooSmallACapacity) {
  Fixture f(2 * kPage - 1);
  EXPECT_EQ(Said(f.Iterate()),
            "RESOURCE_EXHAUSTED: device memory: expected at least 8192 bytes (8.0 KiB) for step 0 "
            "\"first\", got 8191 bytes (8.0 KiB); the largest states there: \"a\" 8192 bytes (8.0 "
            "KiB)");
  EXPECT_TRUE(f.data->recording());
}

TEST(LocalAccess, DeviceSmallerThanTheCapacity) {
  Fixture f(4 * kPage, {.capacity_bytes = kPage});
  EXPECT_EQ(f.Iterate().code(), absl::StatusCode::kResourceExhausted);
}

TEST(LocalAccess, ErrorOfTheWorkComesOut) {
  Fixture f;
  ASSERT_TRUE(f.Iterate().ok());
  ASSERT_TRUE(f.data->LocalAccess("first", {{f.a, kFetch, kNoKeep}}).ok());
  ASSERT_TRUE(f.stream->Call([] { return absl::DataLossError("the work failed"); }).ok());
  EXPECT_FALSE(f.stream->Synchronize().ok());
  std::byte value[kPage] = {};
  (void)f.data->PostLocalAccess();
  (void)f.Step("second", {{f.scratch, kNoFetch, kNoKeep}, {f.b}});
  ASSERT_TRUE(f.data->FinishIteration().ok());
  EXPECT_THAT(Said(f.data->Read(f.b, value)), HasSubstr("the work failed"));
  EXPECT_THAT(Said(f.Iterate()), HasSubstr("the work failed"));
}

TEST(LocalAccess, NothingAtAll) {
  const std::unique_ptr<Device> device = NewSimDevice({});
  const std::unique_ptr<Stream> stream = *device->NewStream();
  const auto data = LocalData::Create(*device, *stream, {});
  for (int i = 0; i < 3; ++i) EXPECT_EQ(Said(data->FinishIteration()), "OK");
}

}  // namespace
}  // namespace gyre
