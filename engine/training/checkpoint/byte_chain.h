// byte_chain.h: sends bytes along a chain of ranks, in segments.  A rank passes on one segment
// while it receives the next.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "distributed/process_group.h"
#include "engine/data/files/atomic_file.h"

namespace gyre {

// Sends `bytes` bytes from the first rank of `chain` to each of the others, once.  Every rank calls
// it, on its communication thread.  Blocks.  Errors: those of the process group, source and sink.
//   source  called on the first rank: fills the string, at its size, with the next bytes
//   sink    called on the other ranks of the chain, with bytes in order
absl::Status PassBytes(ProcessGroup& communication, const std::string& what,
                       std::span<const int> chain, uint64_t bytes,
                       const std::function<absl::Status(std::string&)>& source,
                       const FileSink& sink);

}  // namespace gyre
