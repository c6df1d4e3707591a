// agreement.h: checks that all ranks have the same texts, and finds where two ranks differ.
//
// Rank 0 receives a hash of each text from every rank, and sends back its finding.  That is two
// messages for each rank.  Only if a text differs do ranks send texts.  Used by one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "distributed/collectives/exchange.h"

namespace gyre {

// A text, and its name in errors.
struct Said {
  std::string_view what, text;
};

class Agreement {
 public:
  // At least one text, and as many on all ranks.  They must outlive this object.
  Agreement(std::vector<Said> said, int rank, int size);

  // `carry` blocks until all ranks have exchanged the mail.  Errors: those of carry, and
  // FailedPrecondition on every rank for the first text that differs.  It shows the first line that
  // differs, as rank 0 and the first other rank have it.
  absl::Status Check(const std::function<absl::Status(Mail*)>& carry);

 private:
  // The first rank whose text differs from rank 0's, or -1, and the index of the text.
  struct Difference {
    int32_t rank = -1, text = 0;
  };
  Difference Find(const std::vector<Mail::Incoming>& hashes) const;

  const std::vector<Said> said_;
  const int rank_, size_;
  std::string hashes_;  // 8 bytes for each text
};

}  // namespace gyre
