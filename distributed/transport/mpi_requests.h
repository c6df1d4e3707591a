// mpi_requests.h: MPI requests under way, tested together.
//
// MPI_Test of an unfinished request advances all messages, over TCP by several system calls.
// Testing each of hundreds in every pass takes more of a core than the messages do.  Here a pass
// that tests each request once calls MPI once.
#pragma once

#include <mpi.h>

#include <chrono>
#include <cstdint>
#include <vector>

namespace gyre {

class MpiRequests {
 public:
  // Makes room, so that fewer requests under way allocate nothing.
  void Reserve(size_t requests);
  // Returns the index of a free entry for the next request, at(index).  It is free again once Test
  // reports it as done, or after Cancel.
  int64_t Add();
  MPI_Request& at(int64_t place) { return requests_[place]; }
  size_t size() const { return requests_.size(); }  // entries ever used
  // Time of the last call of MPI.  A request that Test finds not done was not done then.
  std::chrono::steady_clock::time_point looked_at() const { return looked_at_; }

  // Returns MPI's code, and sets `status` if done.  Never blocks.  Calls MPI if this entry was
  // tested since the last call, so a second Test sees all that arrived before it.
  int Test(int64_t place, bool& done, MPI_Status& status);
  // Cancels a receive for which nothing has arrived.
  int Cancel(int64_t place);

 private:
  struct Outcome {
    bool done = false;
    int code = MPI_SUCCESS;
    MPI_Status status = {};
    int64_t asked = 0;  // value of looks_ at its last Test
  };
  int Look();

  std::vector<MPI_Request> requests_;  // MPI_REQUEST_NULL: free or done
  std::vector<Outcome> outcomes_;
  std::vector<int64_t> free_;
  std::vector<int> done_;  // indices that MPI_Testsome returned; statuses_ has their results
  std::vector<MPI_Status> statuses_;
  int64_t looks_ = 0;
  std::chrono::steady_clock::time_point looked_at_;
};

}  // namespace gyre
