#include "distributed/parameter_server/tables.h"

#include <algorithm>

#include "engine/runtime/math.h"

namespace gyre {

std::string_view SyncName(Sync sync) {
  return sync == Sync::kBsp ? "bsp" : sync == Sync::kSsp ? "ssp" : "async";
}

ServerBytes BytesOfWholeTables(std::span<const TableSpec> tables, int ranks, int servers, int rank,
                               Sync sync, bool in_host_memory) {
  const int workers = ranks - servers;
  const bool works = rank < workers;
  const auto aligned = [](size_t bytes) { return RoundUp(bytes, kServerAlignment); };
  size_t rows = 0, largest = 0, staged = 0;
  for (const TableSpec& table : tables) {
    const auto all = static_cast<size_t>(table.rows) * table.row_bytes();
    const auto part = static_cast<size_t>(table.parts[rank].count()) * table.row_bytes();
    const size_t sum = part / SizeOf(table.dtype) * SizeOf(AccumulateDType(table.dtype));
    rows += aligned(part);
    if (sync == Sync::kBsp) rows += aligned(part) + (sum > part ? aligned(sum) : 0);
    if (works) rows += 2 * aligned(part);  // this rank's own worker's
    if (works) staged += 2 * aligned(all - part);
    staged += 2 * static_cast<size_t>(workers - (works ? 1 : 0)) * aligned(part);
    largest = std::max(largest, part);
  }
  if (in_host_memory) return {.device = 0, .pinned = rows + staged};
  const bool alone = workers == (works ? 1 : 0);
  return {.device = rows + (alone ? 0 : 4 * aligned(largest)), .pinned = staged};
}

RowList RowList::All(int64_t rows) {
  RowList all;
  if (rows > 0) all.Append({0, rows});
  return all;
}

RowList RowList::Of(std::span<const int64_t> rows) {
  RowList list;
  for (const int64_t row : rows) list.Append({row, row + 1});
  return list;
}

void RowList::Append(ElementRange run) {
  count_ += run.count();
  if (!runs_.empty() && runs_.back().end == run.begin) {
    runs_.back().end = run.end;
  } else {
    runs_.push_back(run);
  }
}

bool RowList::Within(int64_t rows) const {
  return std::ranges::all_of(
      runs_, [&](const ElementRange& run) { return run.begin >= 0 && run.end <= rows; });
}

bool RowList::HasDuplicates() const {
  std::vector<ElementRange> sorted = runs_;
  std::ranges::sort(sorted, {}, &ElementRange::begin);
  return std::ranges::adjacent_find(sorted, [](const ElementRange& a, const ElementRange& b) {
           return b.begin < a.end;
         }) != sorted.end();
}

RowList RowsOf(const RowPiece& piece) {
  RowList rows;
  for (const RowPiece::Run& run : piece.runs) rows.Append({run.row, run.row + run.count});
  return rows;
}

RowList PlacesOf(const RowPiece& piece) {
  RowList places;
  for (const RowPiece::Run& run : piece.runs) places.Append({run.at, run.at + run.count});
  return places;
}

RowList Union(std::span<const RowList> lists) {
  std::vector<ElementRange> runs;
  for (const RowList& list : lists) {
    runs.insert(runs.end(), list.runs().begin(), list.runs().end());
  }
  std::ranges::sort(runs, {}, &ElementRange::begin);
  RowList all;
  int64_t next = 0;
  for (const ElementRange& run : runs) {
    const int64_t begin = std::max(run.begin, next);
    if (begin >= run.end) continue;
    all.Append({begin, run.end});
    next = run.end;
  }
  return all;
}

RowList PlacesIn(const RowList& all, const RowList& rows) {
  std::vector<int64_t> first;  // by run of `all`: the place of its first row
  int64_t place = 0;
  for (const ElementRange& run : all.runs()) {
    first.push_back(place);
    place += run.count();
  }
  RowList places;
  for (const ElementRange& run : rows.runs()) {
    // Its neighbours are in the same run there.
    const auto of = std::ranges::upper_bound(all.runs(), run.begin, {}, &ElementRange::begin) - 1;
    const int64_t begin = first[of - all.runs().begin()] + run.begin - of->begin;
    places.Append({begin, begin + run.count()});
  }
  return places;
}

bool AreParts(std::span<const ElementRange> parts, int64_t rows, int ranks) {
  int64_t end = 0;
  for (const ElementRange part : parts) {
    if (part.begin != end || part.end < end) return false;
    end = part.end;
  }
  return end == rows && static_cast<int>(parts.size()) == ranks;
}

std::vector<RowPiece> CutByOwner(const RowList& rows, std::span<const ElementRange> parts) {
  std::vector<RowPiece> pieces(parts.size());
  for (size_t owner = 0; owner < parts.size(); ++owner) {
    RowPiece& piece = pieces[owner];
    if (owner > 0) piece.first = pieces[owner - 1].first + pieces[owner - 1].count;
    int64_t at = 0;
    for (const ElementRange& run : rows.runs()) {
      const int64_t begin = std::max(run.begin, parts[owner].begin);
      const int64_t end = std::min(run.end, parts[owner].end);
      if (begin < end) {
        piece.runs.push_back({at + begin - run.begin, begin - parts[owner].begin, end - begin});
        piece.count += end - begin;
      }
      at += run.count();
    }
  }
  return pieces;
}

bool IsPacked(std::span<const RowPiece> pieces) {
  int64_t next = 0;
  for (const RowPiece& piece : pieces) {
    for (const RowPiece::Run& run : piece.runs) {
      if (run.at != next) return false;
      next += run.count;
    }
  }
  return true;
}

}  // namespace gyre
