// page_folder.h: where a file of pages is unless somebody says so: on a disk of this host.
//
// Pages in memory (tmpfs) would be host memory again, and over a network each step would wait for
// another machine.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace gyre {

// `near`, or the first folder above it that exists, if that is on a disk of this host; else the
// first of $TMPDIR, /var/tmp and /tmp that is, and may be written to.
// Errors: FailedPrecondition with all of them and what each is on.
absl::StatusOr<std::string> DefaultPageFolder(const std::string& near);

}  // namespace gyre
