// picture_index.h: which pictures a data set has, and their labels.  All that it keeps in memory is
// their names and some bytes for each.  Immutable after reading.  Any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace gyre {

// Strings one after the other, which take their bytes and 8 more each.
class StringList {
 public:
  void Add(std::string_view text) {
    bytes_.append(text);
    ends_.push_back(bytes_.size());
  }
  // Memory that is never written is not taken, unlike that of growing.
  void Reserve(size_t bytes, int64_t count) {
    bytes_.reserve(bytes);
    ends_.reserve(static_cast<size_t>(count));
  }
  int64_t size() const { return static_cast<int64_t>(ends_.size()); }
  std::string_view operator[](int64_t i) const {
    const size_t first = i == 0 ? 0 : ends_[static_cast<size_t>(i) - 1];
    return std::string_view(bytes_).substr(first, ends_[static_cast<size_t>(i)] - first);
  }

 private:
  std::string bytes_;
  std::vector<uint64_t> ends_;
};

// What the labels of pictures are.
enum class PictureLabels { kNone, kClass, kNumbers, kMask };

struct PictureIndex {
  std::string folder;  // that paths are relative to
  StringList paths = {};
  // kClass: a name for each number that `numbers` has.  Sorted.
  std::vector<std::string> classes = {};
  std::vector<float> numbers = {};  // kClass: one for each picture.  kNumbers: `count` for each
  StringList masks = {};            // kMask: paths
  std::string note = {};            // for people: what is left out, or ""

  std::string PathOf(int64_t picture) const;
};

// Reads a folder of folders, one a class.  Names that begin with "." are left out, and files whose
// ending is of no picture.  In the order of classes, then of names, by bytes.
// Errors: those of listing, and InvalidArgument for a folder without classes, a class without
// pictures, or a class whose name has several lines.
absl::StatusOr<PictureIndex> ReadPictureFolder(const std::string& folder);

// Whether a file's name ends as a picture's, in capitals or not.
bool IsPictureName(const std::string& path);

// Whether the first line of a list is PATH TAB LABEL, with one label.  A list that cannot be read
// has none.
bool HasOneLabel(const std::string& list);

// Reads lines PATH TAB LABEL, with `count` labels each.  For kNone only the path is read.  Paths
// are absolute or relative to the list's folder.  Blank lines are left out, and blanks around a
// label. Errors, with the line: InvalidArgument for a line of other columns, or a label that is no
// number. NotFound for files that are not there: the number of them, and the first ones.
absl::StatusOr<PictureIndex> ReadPictureList(const std::string& list, PictureLabels labels,
                                             int64_t count);

}  // namespace gyre
