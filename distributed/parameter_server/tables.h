// tables.h: what ranks share through a parameter server: tables of rows, which rank owns which of
// them, and which rows an access touches.
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

// What a read finds, of what workers have sent in iterations 0, 1, ... before its own, c.  Its own
// worker's in any case; of the others'
enum class Sync : uint8_t {
  kBsp,  // all of it, and nothing later: applied once an iteration, as a sum in the order of ranks
  kSsp,  // all of iterations before c - staleness, and of later ones what has come
  kAsync,  // what has come
};

std::string_view SyncName(Sync sync);

struct TableSpec {
  std::string name;             // for people
  int64_t rows = 0, width = 0;  // of so many elements
  DType dtype = DType::kF32;    // any real one
  // The rows that each rank owns, in order of ranks; none: such that all have as much to send.
  std::vector<ElementRange> parts = {};
  // As what updates of values of F32 travel: of 16 bits, rounded where they are sent.  In bsp their
  // sum is rounded once more.  None: as they are.
  std::optional<DType> wire = {};
  DType sent_as() const { return wire.value_or(dtype); }
  size_t row_bytes() const { return static_cast<size_t>(width) * SizeOf(dtype); }
};

// From multiples of it what a server allocates begins.
inline constexpr size_t kServerAlignment = 256;

// Rows in an order, as runs of neighbours.
class RowList {
 public:
  RowList() = default;  // none
  static RowList All(int64_t rows);
  static RowList Of(std::span<const int64_t> rows);

  std::span<const ElementRange> runs() const { return runs_; }
  int64_t count() const { return count_; }
  // In [0, rows), and, if asked, no row twice.
  bool Within(int64_t rows) const;
  bool HasDuplicates() const;
  void Append(ElementRange run);

 private:
  std::vector<ElementRange> runs_;
  int64_t count_ = 0;
};

// Of an access's rows those of one range of its table.
struct RowSelection {
  struct RowRun {
    int64_t at = 0;     // its first row's place in the access
    int64_t row = 0;    // and in the range
    int64_t count = 0;  // of rows
  };
  int64_t count = 0;  // of rows
  std::vector<RowRun> runs;
};

// Rows of the range, and places in the access, in the order of both.
RowList RowsOf(const RowSelection& piece);
RowList PlacesOf(const RowSelection& piece);

// All rows of any of them, in increasing order.
RowList Union(std::span<const RowList> lists);
// Where in `all`, which is in increasing order and has them, the rows are.
RowList PlacesIn(const RowList& all, const RowList& rows);

// Whether they are all rows, in order, one part a rank.
bool AreParts(std::span<const ElementRange> parts, int64_t rows, int ranks);

// By range.  ranges: all rows of the table, in order.
std::vector<RowSelection> CutRows(const RowList& rows, std::span<const ElementRange> ranges);

// A table's rows move in chunks, so that a large one is sent, applied and answered at the same
// time, and does not hold up what is more urgent.  A copy of so much takes 40 us over PCIe 4 x16,
// several times what starting one does.
inline constexpr size_t kServerChunkBytes = 1 << 20;
// Blocks of a part of which so many rows are accessed: one at least.
int64_t ServerChunks(int64_t rows, size_t row_bytes, size_t chunk_bytes);
// The part, cut into so many chunks that have as many of these of its rows, but for one.  accessed:
// in increasing order; chunks: as many at most, or one.
std::vector<ElementRange> CutIntoChunks(ElementRange part, const RowList& accessed, int64_t chunks);

// What a rank of a server takes, where each worker reads and updates each table whole, by updates
// without slots.
struct ServerBytes {
  size_t device = 0, pinned = 0;
  int64_t chunks = 0;  // of what it owns
};
// tables have parts.  servers: of the ranks.  background, in_host_memory, chunk_bytes: as
// ParameterServer's options say.
ServerBytes BytesOfWholeTables(std::span<const TableSpec> tables, int ranks, int servers, int rank,
                               Sync sync, bool background, bool in_host_memory,
                               size_t chunk_bytes = kServerChunkBytes);

}  // namespace gyre
