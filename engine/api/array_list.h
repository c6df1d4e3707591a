// array_list.h: the arrays that a net takes and gives, and those of a call.  Immutable but for
// Match's memory.  Used by one thread at a time.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gyre/gyre_c.h"

namespace gyre {

struct NetArray {
  std::string name;
  bool is_output = false;
  int type = GYRE_F32;
  std::vector<int64_t> dims = {};  // of a sample
  std::vector<std::string> classes = {};
};

class ArrayList {
 public:
  // Inputs first.
  explicit ArrayList(std::vector<NetArray> arrays);
  ArrayList(const ArrayList&) = delete;
  ArrayList& operator=(const ArrayList&) = delete;

  size_t size() const { return arrays_.size(); }
  const gyre_array_info& info(size_t index) const { return infos_[index]; }
  std::span<const gyre_array_info> infos() const { return infos_; }

  // The arrays of a call by index, null for outputs that are not wanted.  Valid until the next
  // Match.  Errors: InvalidArgument, naming the array, for null, a name that is unknown or given
  // twice, another type or size than `samples` samples have, and an input that is missing.
  absl::Status Match(int64_t samples, const gyre_array* given, size_t count,
                     std::span<const gyre_array* const>* found);

 private:
  absl::Status Check(int64_t samples, size_t index, const gyre_array& given) const;

  const std::vector<NetArray> arrays_;
  std::vector<std::vector<const char*>> classes_;  // by array
  std::vector<gyre_array_info> infos_;             // they point to the members above
  std::vector<const gyre_array*> found_;
};

}  // namespace gyre
