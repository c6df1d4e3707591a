#include "distributed/transport/mpi_requests.h"

#include "engine/runtime/check.h"

namespace gyre {

void MpiRequests::Reserve(size_t requests) {
  requests_.reserve(requests);
  outcomes_.reserve(requests);
  free_.reserve(requests);
  done_.reserve(requests);
  statuses_.reserve(requests);
}

int64_t MpiRequests::Add() {
  if (free_.empty()) {
    free_.push_back(static_cast<int64_t>(requests_.size()));
    requests_.push_back(MPI_REQUEST_NULL);
    outcomes_.emplace_back();
    done_.emplace_back();
    statuses_.emplace_back();
  }
  const int64_t place = free_.back();
  free_.pop_back();
  requests_[place] = MPI_REQUEST_NULL;
  outcomes_[place] = {.asked = looks_};
  return place;
}

int MpiRequests::Test(int64_t place, bool& done, MPI_Status& status) {
  Outcome& outcome = outcomes_[place];
  if (!outcome.done && outcome.asked == looks_) {
    if (const int code = Look(); code != MPI_SUCCESS) return code;
  }
  outcome.asked = looks_;
  done = outcome.done;
  if (!done) return MPI_SUCCESS;
  status = outcome.status;
  free_.push_back(place);
  return outcome.code;
}

int MpiRequests::Cancel(int64_t place) {
  GYRE_CHECK(!outcomes_[place].done);
  free_.push_back(place);
  const int code = MPI_Cancel(&requests_[place]);
  return code != MPI_SUCCESS ? code : MPI_Wait(&requests_[place], MPI_STATUS_IGNORE);
}

// Open MPI moves messages on only if none is done, and does not tell which of them are then.
int MpiRequests::Look() {
  ++looks_;
  looked_at_ = std::chrono::steady_clock::now();
  for (int attempt = 0; attempt < 2; ++attempt) {
    int count = 0;
    const int code = MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &count,
                                  done_.data(), statuses_.data());
    if (code != MPI_SUCCESS && code != MPI_ERR_IN_STATUS) return code;
    if (count == MPI_UNDEFINED) return MPI_SUCCESS;
    for (int i = 0; i < count; ++i) {
      Outcome& outcome = outcomes_[done_[i]];
      outcome.done = true;
      outcome.status = statuses_[i];
      if (code == MPI_ERR_IN_STATUS) outcome.code = statuses_[i].MPI_ERROR;
    }
    if (count > 0) return MPI_SUCCESS;
  }
  return MPI_SUCCESS;
}

}  // namespace gyre
