// byte_chain.h: bytes from one rank through others, each of which passes on what it has while it is
// sent more.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "distributed/process_group.h"
#include "engine/data/files/atomic_file.h"

namespace gyre {

// Every rank makes the same call, on the thread that talks to the others.  chain: ranks, each once;
// the first has the bytes and sends them to the next, and so on.  source: the first one's: fills
// the string, of its size, with the bytes that follow.  sink: where the others' go.
// Errors: those of source and sink, on their rank; those of the process group.
absl::Status PassBytes(ProcessGroup& communication, const std::string& what,
                       std::span<const int> chain, uint64_t bytes,
                       const std::function<absl::Status(std::string&)>& source,
                       const FileSink& sink);

}  // namespace gyre
