// Every algorithm under mpirun: processes, real messages, memory that is really shared.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/distributed/collectives/subject.h"

namespace gyre {
namespace {

// Element i of rank r is (i + r) mod 7: a sum that every type holds exactly.
template <typename T>
void ExpectSum(Subject& subject, const Communicator& communicator, T* data, int64_t count) {
  using A = AccumulateType<T>;
  const int ranks = communicator.size();
  for (int64_t i = 0; i < count; ++i) {
    data[i] = T(static_cast<A>((i + communicator.rank()) % 7));
  }
  double result = 0;
  ASSERT_EQ(Operate(subject, Operation::kAllreduce, {data, {count}, kDTypeOf<T>}, &result),
            absl::OkStatus());
  double squares = 0;
  for (int64_t i = 0; i < count; ++i) {
    int64_t expected = 0;
    for (int rank = 0; rank < ranks; ++rank) expected += (i + rank) % 7;
    ASSERT_EQ(A(data[i]), static_cast<A>(expected)) << i;
    squares += static_cast<double>(expected * expected);
  }
  EXPECT_EQ(result, squares);
}

TEST(MpiCollectives, SumEveryTypeAndLength) {
  const auto communicator = *NewMpiCommunicator(kPatienceMs);
  SharedArenas arenas;
  constexpr int64_t kMost = 300'001;
  arenas.push_back(*SharedMemory::Create(*communicator, kMost * sizeof(double)));
  const Selector selector = Selector::Modelled(ShapeOf(*communicator));
  int tag = kFirstOperationTag;
  for (const std::string_view name : AllreduceNames()) {
    SCOPED_TRACE(std::string(name));
    auto made = NewCollective(name, *communicator, tag++, arenas, selector);
    ASSERT_TRUE(made.ok()) << made.status();
    Subject subject;
    subject.collective = *std::move(made);
    for (const int64_t count : {int64_t{0}, int64_t{1}, int64_t{1000}, kMost}) {
      std::vector<double> own(static_cast<size_t>(kMost));
      for (void* const data :
           {static_cast<void*>(own.data()), static_cast<void*>(arenas[0]->own())}) {
        const auto expect = [&]<typename T>(T) {
          ExpectSum(subject, *communicator, static_cast<T*>(data), count);
        };
        expect(float());
        expect(double());
        expect(Half());
        expect(BFloat16());
      }
    }
  }
}

}  // namespace
}  // namespace gyre
