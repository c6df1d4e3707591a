// What MPI says of a layout's datatype is not lost.  In place of MPI's are functions that say so.

#include "distributed/transport/mpi_layout.h"

#include <gtest/gtest.h>

#include <string>

namespace {

std::string failing;  // the call
int freed = 0;

int CodeOf(const char* call) { return failing == call ? MPI_ERR_TYPE : MPI_SUCCESS; }

}  // namespace

extern "C" {
int MPI_Type_contiguous(int, MPI_Datatype, MPI_Datatype*) { return CodeOf("contiguous"); }
int MPI_Type_create_struct(int, const int[], const MPI_Aint[], const MPI_Datatype[],
                           MPI_Datatype*) {
  return CodeOf("create_struct");
}
int MPI_Type_commit(MPI_Datatype*) { return CodeOf("commit"); }
int MPI_Type_free(MPI_Datatype*) {
  ++freed;
  return CodeOf("free");
}
}

namespace gyre {
namespace {

TEST(MpiLayout, TellsWhatMpiSaid) {
  for (const char* const call : {"contiguous", "create_struct", "commit", "free"}) {
    failing = call;
    freed = 0;
    EXPECT_EQ(MpiLayout(size_t{3} << 30).code(), MPI_ERR_TYPE) << call;
    EXPECT_EQ(freed, failing == "contiguous" ? 0 : 1) << call;
    EXPECT_EQ(MpiLayout(1000).code(), MPI_SUCCESS);
  }
  failing = "";
  const MpiLayout layout(size_t{3} << 30);
  EXPECT_EQ(layout.code(), MPI_SUCCESS);
  EXPECT_EQ(layout.count(), 1);
}

}  // namespace
}  // namespace gyre
