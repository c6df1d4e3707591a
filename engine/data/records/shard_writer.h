// shard_writer.h: writes a shard, sample by sample.  Used by one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "engine/data/files/atomic_file.h"
#include "engine/data/records/shard_format.h"

namespace gyre {

class ShardWriter {
 public:
  // Calls `fill`, which adds the samples, and publishes the shard at `path`.  It is whole, or
  // absent after an error.  Errors: those of `fill` and of WriteFileAtomically.
  static absl::Status Write(const std::string& path, const ShardHeader& header,
                            const std::function<absl::Status(ShardWriter&)>& fill);

  // `arrays` has the bytes of each array of the set.  `length` counts if the set has lengths.
  // Errors: those of writing, and InvalidArgument for a file of 4 GiB or more.
  absl::Status Add(std::span<const std::string_view> arrays, int32_t length = 0);
  // Bytes written.
  uint64_t bytes() const { return at_; }

 private:
  ShardWriter(const ShardHeader& header, const FileSink& sink) : set_(header.set()), sink_(sink) {}
  absl::Status Begin(const ShardHeader& header);
  absl::Status End();
  absl::Status Append(std::string_view bytes);

  const RecordSet& set_;
  const FileSink& sink_;
  uint64_t at_ = 0;
  std::vector<ShardEntry> entries_;
  std::vector<int32_t> lengths_;
};

}  // namespace gyre
