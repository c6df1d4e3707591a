// tables.h: the tables of a parameter server, their owners, and the rows of an access.  Terms:
//   shard   the rows of a table that one rank owns
//   chunk   rows of a shard that move as a whole (about kServerChunkBytes of accessed rows)
//   slice   the rows of one access in one chunk
//   place   the index of a row in a list of rows or in a packed tensor
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "distributed/collectives/reduction.h"
#include "engine/runtime/dtype.h"

namespace gyre {

// Which updates a read of iteration c finds, besides all earlier ones of its own worker.
enum class Sync : uint8_t {
  kBsp,    // all of iterations before c, and no others: applied as one sum, in the order of ranks
  kSsp,    // all of iterations before c - staleness, and later ones that have arrived
  kAsync,  // those that have arrived
};

std::string_view SyncName(Sync sync);

struct TableSpec {
  std::string name;             // for messages
  int64_t rows = 0, width = 0;  // width: elements of a row
  DType dtype = DType::kF32;    // any real type
  // The shard of each rank, in order.  Empty: by ServerShard (server_shards.h).
  std::vector<ElementRange> parts = {};
  // Wire type of updates of F32: F16 or BF16.  The sender rounds, and kBsp also rounds the sum.
  // None: dtype.
  std::optional<DType> wire = {};
  DType wire_type() const { return wire.value_or(dtype); }
  size_t row_bytes() const { return static_cast<size_t>(width) * SizeOf(dtype); }
};

inline constexpr size_t kServerAlignment = 256;

// Rows in any order, stored as runs of consecutive rows.
class RowList {
 public:
  RowList() = default;  // empty
  static RowList All(int64_t rows);
  static RowList Of(std::span<const int64_t> rows);

  std::span<const ElementRange> runs() const { return runs_; }
  int64_t count() const { return count_; }
  // Whether all rows are in [0, rows).
  bool Within(int64_t rows) const;
  bool HasDuplicates() const;
  void Append(ElementRange run);

 private:
  std::vector<ElementRange> runs_;
  int64_t count_ = 0;
};

// The rows of an access that are in one range of its table.
struct RowSelection {
  RowList rows;    // counted from the range's begin
  RowList places;  // in the access, in the same order
  int64_t count() const { return rows.count(); }
};

// The rows that any of the lists has, in increasing order, each once.
RowList Union(std::span<const RowList> lists);
// The places of `rows` in `all`.  Precondition: `all` increases and has all of `rows`.
RowList PlacesIn(const RowList& all, const RowList& rows);

// Whether parts are consecutive ranges of all rows, one for each rank.
bool AreParts(std::span<const ElementRange> parts, int64_t rows, int ranks);

// A selection for each range.  Precondition: ranges are all rows of the table, in order.
std::vector<RowSelection> CutRows(const RowList& rows, std::span<const ElementRange> ranges);

// Chunks of a large table are sent, applied and answered at the same time, and let more urgent ones
// pass.  A copy of 1 MiB takes 40 us over PCIe 4 x16, several times its start.
inline constexpr size_t kServerChunkBytes = 1 << 20;
// The number of chunks, at least one, of a shard of which `rows` rows are accessed.
int64_t ServerChunks(int64_t rows, size_t row_bytes, size_t chunk_bytes);
// Cuts `part` into chunks whose numbers of accessed rows differ by at most one.
// Precondition: accessed increases, and has at least `chunks` rows unless chunks is 1.
std::vector<ElementRange> CutIntoChunks(ElementRange part, const RowList& accessed, int64_t chunks);

// Memory of one rank, where each worker reads and updates each whole table and updates need no
// optimizer slots.
struct ServerBytes {
  size_t device = 0, pinned = 0;
  int64_t chunks = 0;  // that this rank owns
};
// Precondition: each table has parts.  servers, background, in_host_memory and chunk_bytes are
// ParameterServer's options.
ServerBytes BytesOfWholeTables(std::span<const TableSpec> tables, int ranks, int servers, int rank,
                               Sync sync, bool background, bool in_host_memory,
                               size_t chunk_bytes = kServerChunkBytes);

}  // namespace gyre
