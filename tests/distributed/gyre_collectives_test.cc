// Collectives for any MPI program: processes under mpirun, and nothing else of Gyre.  MPI starts
// once in a process, so BUILD runs each suite in processes of its own.

#include "distributed/gyre_collectives.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "engine/runtime/device/device.h"

namespace gyre {
namespace {

using testing::HasSubstr;
using Memory = Collectives::Memory;

// Before MPI starts: keeps its shared memory apart from that of other jobs, which Bazel's sandboxes
// give the same process ids (shared_memory_folder.h).  mpirun_test.sh gives each job a TMPDIR.
void KeepToItself() {
  const char* const folder = std::getenv("TMPDIR");
  if (folder != nullptr) setenv("OMPI_MCA_btl_vader_backing_directory", folder, 1);
}

// MPI as a program starts it.
class CallersMpi : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    EXPECT_EQ(Collectives::Start(MPI_COMM_WORLD).status(),
              absl::FailedPreconditionError("MPI has not been started in this program"));
    KeepToItself();
    int provided = 0;
    MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided);
    ASSERT_EQ(provided, MPI_THREAD_MULTIPLE);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
  }
  static void TearDownTestSuite() {
    MPI_Finalize();
    EXPECT_EQ(Collectives::Start(MPI_COMM_WORLD).status(),
              absl::FailedPreconditionError("MPI has been finalized in this program"));
  }

  static std::unique_ptr<Collectives> StartOver(MPI_Comm comm) {
    auto started = Collectives::Start(comm, /*timeout_ms=*/20'000);
    EXPECT_TRUE(started.ok()) << started.status();
    return *std::move(started);
  }

  static int rank_, size_;
};

int CallersMpi::rank_ = 0, CallersMpi::size_ = 1;

// Element i of rank r: sums of few are exact in every type.
int64_t Value(int64_t i, int rank) { return (i + 3 * rank) % 7; }

template <typename T>
std::vector<T> Values(int64_t count, int rank) {
  std::vector<T> values(count);
  for (int64_t i = 0; i < count; ++i)
    values[i] = static_cast<T>(static_cast<float>(Value(i, rank)));
  return values;
}

template <typename T>
void ExpectAllFour(Collectives& collectives, int64_t count) {
  SCOPED_TRACE(testing::Message() << count << " elements of " << sizeof(T) << " bytes");
  constexpr DType kType = kDTypeOf<T>;
  const int rank = collectives.rank(), size = collectives.size();
  std::vector<float> sum(count);
  for (int64_t i = 0; i < count; ++i) {
    for (int r = 0; r < size; ++r) sum[i] += static_cast<float>(Value(i, r));
  }
  const ElementRange mine = collectives.Part(count, rank);

  std::vector<T> data = Values<T>(count, rank);
  ASSERT_EQ(collectives.Allreduce(data.data(), count, kType).Wait(), absl::OkStatus());
  EXPECT_EQ(std::vector<float>(data.begin(), data.end()), sum);

  data = Values<T>(count, rank);
  ASSERT_EQ(collectives.ReduceScatter(data.data(), count, kType).Wait(), absl::OkStatus());
  EXPECT_TRUE(
      std::equal(data.begin() + mine.begin, data.begin() + mine.end, sum.begin() + mine.begin));

  for (int64_t i = 0; i < count; ++i) {
    if (i < mine.begin || i >= mine.end) data[i] = T(-1.0f);
  }
  ASSERT_EQ(collectives.Allgather(data.data(), count, kType).Wait(), absl::OkStatus());
  EXPECT_EQ(std::vector<float>(data.begin(), data.end()), sum);

  for (int root = 0; root < size; ++root) {
    data = Values<T>(count, rank);
    ASSERT_EQ(collectives.Broadcast(data.data(), count, kType, root).Wait(), absl::OkStatus());
    const std::vector<T> theirs = Values<T>(count, root);
    EXPECT_EQ(std::vector<float>(data.begin(), data.end()),
              std::vector<float>(theirs.begin(), theirs.end()));
  }
}

void ExpectEveryTypeAndLength(Collectives& collectives) {
  for (const int64_t count : {0, 1, 2, 37, 5000, 200'003}) {
    ExpectAllFour<double>(collectives, count);
    ExpectAllFour<float>(collectives, count);
    ExpectAllFour<Half>(collectives, count);
    ExpectAllFour<BFloat16>(collectives, count);
  }
}

TEST_F(CallersMpi, EveryTypeAndLength) {
  const auto collectives = StartOver(MPI_COMM_WORLD);
  EXPECT_EQ(collectives->rank(), rank_);
  EXPECT_EQ(collectives->size(), size_);
  ExpectEveryTypeAndLength(*collectives);
}

// Ranks in the other order, and one that is alone; the caller's communicator goes at once.
TEST_F(CallersMpi, OverPartOfTheRanks) {
  MPI_Comm part = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, rank_ == 1, -rank_, &part);
  int rank = 0;
  MPI_Comm_rank(part, &rank);
  const auto collectives = StartOver(part);
  MPI_Comm_free(&part);
  EXPECT_EQ(collectives->rank(), rank);
  ExpectAllFour<float>(*collectives, 1000);
}

// Several at once, waited for in another order, while the program sends messages of its own with
// any tag.
TEST_F(CallersMpi, GoesOnBesideTheProgram) {
  const auto collectives = StartOver(MPI_COMM_WORLD);
  constexpr int kMany = 20;
  std::vector<std::vector<float>> data;
  std::vector<Collectives::Pending> sums;
  for (int i = 0; i < kMany; ++i) {
    data.emplace_back(10'000 * (i % 3) + 1, static_cast<float>(rank_ + i));
    sums.push_back(
        collectives->Allreduce(data[i].data(), static_cast<int64_t>(data[i].size()), DType::kF32));
  }
  for (int i = 0; i < kMany; ++i) {
    int own = rank_, next = -1;
    MPI_Sendrecv(&own, 1, MPI_INT, (rank_ + 1) % size_, i, &next, 1, MPI_INT,
                 (rank_ + size_ - 1) % size_, i, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    EXPECT_EQ(next, (rank_ + size_ - 1) % size_);
  }
  for (int i = kMany - 1; i >= 0; --i) {
    ASSERT_EQ(sums[i].Wait(), absl::OkStatus());
    ASSERT_EQ(sums[i].Wait(), absl::OkStatus());
    EXPECT_TRUE(*sums[i].Done());
    const auto sum = static_cast<float>(size_ * i + size_ * (size_ - 1) / 2);
    EXPECT_EQ(data[i], std::vector<float>(data[i].size(), sum));
  }
}

TEST_F(CallersMpi, CopiesAnyType) {
  const auto collectives = StartOver(MPI_COMM_WORLD);
  int64_t seed = rank_ == 0 ? int64_t{1} << 60 : 0;
  EXPECT_EQ(collectives->Broadcast(&seed, 1, DType::kI64, 0).Wait(), absl::OkStatus());
  EXPECT_EQ(seed, int64_t{1} << 60);
  std::vector<uint8_t> ranks(size_, static_cast<uint8_t>(rank_));
  EXPECT_EQ(collectives->Allgather(ranks.data(), size_, DType::kU8).Wait(), absl::OkStatus());
  for (int r = 0; r < size_; ++r) EXPECT_EQ(ranks[r], r);
}

// On the last rank, whose copies are late; the others' memory is the host's.
TEST_F(CallersMpi, DeviceMemory) {
  const auto device = NewSimDevice({.delay_seed = 1});
  const auto collectives = StartOver(MPI_COMM_WORLD);
  ASSERT_EQ(collectives->UseDevice(*device), absl::OkStatus());
  EXPECT_TRUE(absl::IsFailedPrecondition(collectives->UseDevice(*device)));
  const Memory memory = rank_ == size_ - 1 ? Memory::kDevice : Memory::kHost;
  struct Area {
    float* data;
    int64_t count;
  };
  for (int round = 0; round < 16; ++round) {
    std::vector<Area> areas;
    std::vector<Collectives::Pending> sums;
    for (const int64_t count : {0, 5, 20'000, 3}) {
      auto* const data =
          static_cast<float*>(*device->Allocate(MemoryKind::kDevice, count * sizeof(float)));
      std::fill(data, data + count, static_cast<float>(rank_ + round));
      areas.push_back({data, count});
      sums.push_back(collectives->Allreduce(data, count, DType::kF32, memory));
    }
    for (size_t i = 0; i < areas.size(); ++i) {
      const auto [data, count] = areas[i];
      ASSERT_EQ(sums[i].Wait(), absl::OkStatus());
      const auto sum = static_cast<float>(size_ * round + size_ * (size_ - 1) / 2);
      EXPECT_EQ(std::vector<float>(data, data + count), std::vector<float>(count, sum));
      device->Free(MemoryKind::kDevice, data);
    }
  }
}

TEST_F(CallersMpi, RefusesCommunicators) {
  EXPECT_EQ(Collectives::Start(MPI_COMM_NULL).status(),
            absl::InvalidArgumentError("expected a communicator of one group, got MPI_COMM_NULL"));
}

// The last rank does what is wrong, the others a sum of 8 F32: all hear of it, and of nothing else.
TEST_F(CallersMpi, WrongOnOneRankIsAnErrorOfAll) {
  static std::vector<float> data(8, 1.0f);  // after an error the library's until the process ends
  const std::string last = std::to_string(size_ - 1), size = std::to_string(size_);
  using Begin = std::function<Collectives::Pending(Collectives&)>;
  struct Case {
    Begin wrong;
    std::string own;    // what it says
    bool alone = true;  // also where there is one rank
  };
  const Case cases[] = {
      {[&](auto& c) { return c.Allreduce(nullptr, 8, DType::kF32); },
       "allreduce of 8 F32: data: is null"},
      {[&](auto& c) { return c.ReduceScatter(data.data(), -3, DType::kF32); },
       "reduce-scatter of -3 F32: count: expected 0 or more, got -3"},
      {[&](auto& c) { return c.Allgather(data.data(), int64_t{1} << 60, DType::kU8); },
       "allgather of 1152921504606846976 U8: count: expected 2^56 at most, got "
       "1152921504606846976"},
      {[&](auto& c) { return c.Broadcast(data.data(), 8, DType::kF32, size_); },
       "broadcast of 8 F32 from rank " + size + ": root: expected 0 to " + last + ", got " + size},
      {[&](auto& c) { return c.Broadcast(data.data(), 8, DType::kF32, -1); },
       "broadcast of 8 F32 from rank -1: root: expected 0 to " + last + ", got -1"},
      {[&](auto& c) { return c.Allreduce(data.data(), 4, DType::kI64); },
       "allreduce of 4 I64: cannot sum I64; there are: F64, F32, F16, BF16"},
      {[&](auto& c) { return c.Allreduce(data.data(), 8, DType::kF32, Memory::kDevice); },
       "allreduce of 8 F32: device memory, and no device is in use: UseDevice first"},
      {[&](auto& c) { return c.Allreduce(data.data(), 7, DType::kF32); },
       "rank " + last + " at allreduce of 7 F32", false},
      {[&](auto& c) { return c.Allreduce(data.data(), 8, DType::kBF16); },
       "rank " + last + " at allreduce of 8 BF16", false},
      {[&](auto& c) { return c.ReduceScatter(data.data(), 8, DType::kF32); },
       "rank " + last + " at reduce-scatter of 8 F32", false},
      {[&](auto& c) { return c.Broadcast(data.data(), 8, DType::kF32, 0); },
       "rank " + last + " at broadcast of 8 F32 from rank 0", false},
  };
  for (const Case& wrong : cases) {
    if (size_ == 1 && !wrong.alone) continue;
    SCOPED_TRACE(wrong.own);
    const auto collectives = StartOver(MPI_COMM_WORLD);
    const bool is_wrong = rank_ == size_ - 1;
    Collectives::Pending pending =
        is_wrong ? wrong.wrong(*collectives) : collectives->Allreduce(data.data(), 8, DType::kF32);
    const absl::Status status = pending.Wait();
    EXPECT_TRUE(absl::IsInvalidArgument(status) || absl::IsFailedPrecondition(status)) << status;
    EXPECT_THAT(status.message(), HasSubstr(wrong.own));
    if (!is_wrong && wrong.alone) {
      EXPECT_THAT(status.message(), HasSubstr("rank " + last + ": " + wrong.own));
    }
    EXPECT_EQ(pending.Done().status(), status);
    // The last of its kind.
    EXPECT_EQ(collectives->Allreduce(data.data(), 8, DType::kF32).Wait(), status);
  }
}

// Two that both take themselves for the root: one may have been done before it hears of the other.
TEST_F(CallersMpi, TwoRootsAreAnError) {
  if (size_ == 1) GTEST_SKIP() << "has one root";
  const auto collectives = StartOver(MPI_COMM_WORLD);
  static float data = 1;  // as above
  absl::Status status = collectives->Broadcast(&data, 1, DType::kF32, rank_ == 1 ? 1 : 0).Wait();
  if (rank_ == 0 && status.ok()) status = collectives->Allreduce(&data, 1, DType::kF32).Wait();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr("at broadcast of 1 F32 from rank 1"));
}

// Of a program that leaves MPI to the library.
TEST(OwnMpi, StartsAndFinishesIt) {
  {
    const auto collectives = Collectives::StartMpi().value();
    ExpectAllFour<float>(*collectives, 1000);
    const auto again = Collectives::StartMpi();
    EXPECT_EQ(again.status(), absl::UnavailableError("MPI was started before in this process"));
  }
  int finished = 0;
  MPI_Finalized(&finished);
  EXPECT_TRUE(finished);
}

TEST(ThreadLevel, MustBeMultiple) {
  KeepToItself();
  MPI_Init(nullptr, nullptr);
  EXPECT_EQ(Collectives::Start(MPI_COMM_WORLD).status(),
            absl::FailedPreconditionError(
                "MPI was started with MPI_THREAD_SINGLE, and a thread beside the program's calls "
                "it, too: expected MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided)"));
  MPI_Finalize();
}

}  // namespace
}  // namespace gyre
