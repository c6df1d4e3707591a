// mpi_requests.h: MPI's requests under way, looked at all together.
//
// MPI_Test of a request that is not done moves all messages on, over TCP by several system calls;
// of each of hundreds, pass after pass, that takes more of a core than the messages.  Here a pass
// that asks for each request once makes the library look once.
#pragma once

#include <mpi.h>

#include <chrono>
#include <cstdint>
#include <vector>

namespace gyre {

class MpiRequests {
 public:
  // Allocates nothing as long as no more are under way.
  void Reserve(size_t requests);
  // Where the request that is made next goes, at(place); its place is free once Test has said that
  // it is done, or after Cancel.
  int64_t Add();
  MPI_Request& at(int64_t place) { return requests_[place]; }
  size_t size() const { return requests_.size(); }  // places there have been
  // When the library was last asked; of a request that Test finds not done, since it was last asked
  // for.
  std::chrono::steady_clock::time_point looked_at() const { return looked_at_; }

  // MPI's code.  Never blocks.  status: if done.  Asks the library where this place has been asked
  // for since it last was, so that the second of two calls tells what had come before them.
  int Test(int64_t place, bool& done, MPI_Status& status);
  // Of a receive of which nothing has come.
  int Cancel(int64_t place);

 private:
  struct Outcome {
    bool done = false;
    int code = MPI_SUCCESS;
    MPI_Status status = {};
    int64_t asked = 0;  // in which look's time
  };
  int Look();

  std::vector<MPI_Request> requests_;  // by place; MPI_REQUEST_NULL: none, or done
  std::vector<Outcome> outcomes_;
  std::vector<int64_t> free_;
  std::vector<int> done_;  // of MPI_Testsome: places, and their outcomes
  std::vector<MPI_Status> statuses_;
  int64_t looks_ = 0;
  std::chrono::steady_clock::time_point looked_at_;
};

}  // namespace gyre
