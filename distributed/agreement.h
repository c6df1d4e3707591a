// agreement.h: whether all ranks have the same texts, such as their command's; if not, every rank
// can say where two of them differ.
//
// Rank 0 hears a hash of each text from all others and tells them what it found: two messages a
// rank, however many ranks there are.  A value; used by one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "distributed/collectives/exchange.h"

namespace gyre {

// What a text is, for errors, and the text.
struct Said {
  std::string_view what, text;
};

class Agreement {
 public:
  // One or more, which must outlive it; all ranks say as many.
  Agreement(std::vector<Said> said, int rank, int size);

  // carry: has all ranks exchange the mail, and blocks until it is there.  Errors: those of carry;
  // FailedPrecondition on every rank for the first text that differs, with its first line that
  // does, as rank 0 has it and the first rank that has another.
  absl::Status Check(const std::function<absl::Status(Mail*)>& carry);

 private:
  // The first rank that says another text than rank 0, and which; -1: none does.
  struct Difference {
    int32_t rank = -1, text = 0;
  };
  Difference Find(const std::vector<Mail::Incoming>& hashes) const;

  const std::vector<Said> said_;
  const int rank_, size_;
  std::string hashes_;  // of each text, its bytes
};

}  // namespace gyre
