// shard_format.h: the bytes of a shard, a file of samples packed one after another.
//
//   ShardBegin                     24 bytes
//   ShardHeader                    a message of record_set.proto
//   samples                        each its arrays, in the header's order, but the indexed one:
//                                  values, or a file's bytes behind their number in 4 bytes
//   ShardEntry * samples           16 bytes each, the index
//   int32 * samples                lengths, if the header has them
//   ShardEnd                       32 bytes
//
// All integers are little-endian, as is every machine that this runs on.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/data/records/record_set.pb.h"
#include "engine/runtime/dtype.h"
#include "engine/runtime/shape.h"

namespace gyre {

static_assert(std::endian::native == std::endian::little);

inline constexpr uint32_t kShardVersion = 1;
inline constexpr int64_t kMostShards = 99'999;  // of a set
inline constexpr std::string_view kShardBeginMark = "gyre.rec", kShardEndMark = "gyre.end";

struct ShardBegin {
  char mark[8];
  uint32_t version;
  uint32_t header_bytes;
  uint32_t header_crc;  // CRC-32, as all
  uint32_t unused;      // 0
};
static_assert(sizeof(ShardBegin) == 24);

struct ShardEntry {
  uint64_t end;      // of the sample, in the file
  uint32_t crc;      // of the sample
  uint32_t indexed;  // the bytes of the indexed array, then 0
};
static_assert(sizeof(ShardEntry) == 16);

struct ShardEnd {
  uint64_t samples;
  uint64_t index;      // its offset
  uint32_t index_crc;  // of entries and lengths
  uint32_t crc;        // of the bytes above
  char mark[8];
};
static_assert(sizeof(ShardEnd) == 32);

// Where the arrays of a sample are among its bytes.
class RecordLayout {
 public:
  // Errors: InvalidArgument for a set that no data set is like: without arrays, with dims or a type
  // that none has, or with an indexed array of more than 4 bytes.
  static absl::StatusOr<RecordLayout> Of(const RecordSet& set);

  // Precondition: the array is of values.
  const Shape& shape(size_t array) const { return parts_[array].shape; }
  DType dtype(size_t array) const { return parts_[array].dtype; }

  // The bytes of an array.  The indexed one has none.
  // Errors: DataLoss for a sample of other sizes than the set's.
  absl::StatusOr<std::string_view> Find(std::string_view sample, size_t array) const;

 private:
  struct Part {
    Shape shape;
    DType dtype = DType::kU8;
    size_t bytes = 0;   // of values
    bool file = false;  // behind their number
    bool indexed = false;
  };
  std::vector<Part> parts_;
};

// "train-00003-of-00012.rec".
std::string ShardName(const RecordSet& set, int64_t shard);

}  // namespace gyre
