// sent_list.h: the files that a list of pictures names, and where copies of them lie so that a copy
// of the list means them.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace gyre {

struct SentList {
  // Relative to a folder that holds all.  The list lies so deep that "../" in it stays within.
  std::string list;
  struct ListedFile {
    std::string from, to;  // to: relative to that folder
  };
  std::vector<ListedFile> files = {};  // each once
};

// `masks`: the second column has paths, too.
// Errors: those of ReadText.  InvalidArgument, with the line, for a path that is absolute or has
// ".." behind a folder: a copy elsewhere would not find it.
absl::StatusOr<SentList> PlaceList(const std::string& list, bool masks);

}  // namespace gyre
