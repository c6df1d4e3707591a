// agreement.h: checks that all ranks have the same texts, and finds where two ranks differ.
//
// Rank 0 receives a hash of each text from every rank, and sends back its finding.  That is two
// messages for each rank.  Only if a text differs do ranks send texts.  Used by one thread.
#pragma once

#include <functional>
#include <span>
#include <string_view>

#include "absl/status/status.h"
#include "distributed/collectives/exchange.h"

namespace gyre {

// A text, and its name in errors.
struct Said {
  std::string_view what, text;
};

// Takes at least one text, and as many on all `size` ranks.  `carry` blocks until all ranks have
// exchanged the mail.  Errors: those of carry, and FailedPrecondition on every rank for the first
// text that differs.  It shows the line that differs, as rank 0 and the first other rank have it.
absl::Status CheckAgreement(std::span<const Said> said, int rank, int size,
                            const std::function<absl::Status(Mail*)>& carry);

}  // namespace gyre
