// page_folder.h: the default folder of a page file, on a disk of this host.  On tmpfs its pages
// would be host memory again.  Over a network, each step would wait for another machine.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace gyre {

// Returns `near` (or the first folder above it that exists), $TMPDIR, /var/tmp or /tmp.  The first
// that is writable and on a disk of this host wins.
// Errors: FailedPrecondition, which says of each why not.
absl::StatusOr<std::string> DefaultPageFolder(const std::string& near);

}  // namespace gyre
