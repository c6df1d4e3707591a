#include "distributed/parameter_server/tables.h"

#include <algorithm>

#include "engine/runtime/math.h"

namespace gyre {

std::string_view SyncName(Sync sync) {
  return sync == Sync::kBsp ? "bsp" : sync == Sync::kSsp ? "ssp" : "async";
}

ServerBytes BytesOfWholeTables(std::span<const TableSpec> tables, int ranks, int servers, int rank,
                               Sync sync, bool background, bool in_host_memory) {
  const int workers = ranks - servers;
  const bool works = rank < workers, stages_own = works && !background;
  const auto aligned = [](size_t bytes) { return RoundUp(bytes, kServerAlignment); };
  const auto copied = [&](int64_t rows, size_t row_bytes) {
    return static_cast<size_t>(std::min(rows, RowsOfServerCopy(row_bytes))) * row_bytes;
  };
  // Of others' pieces, and with stages_own of all.
  const bool copies = !in_host_memory && workers > (works && background ? 1 : 0);
  size_t owned = 0, own_staged = 0, staged = 0, packed = 0, together = 0, upload = 0, download = 0;
  for (const TableSpec& table : tables) {
    const int64_t rows = table.parts[rank].count();
    const size_t row = table.row_bytes(),
                 sent = table.row_bytes() / SizeOf(table.dtype) * SizeOf(table.sent_as());
    const auto of = [&](size_t row_bytes, int64_t count) {
      return aligned(static_cast<size_t>(count) * row_bytes);
    };
    owned += of(row, rows);
    if (sync == Sync::kBsp) {
      owned += of(row, rows);
      const size_t adding = row / SizeOf(table.dtype) * SizeOf(AccumulateDType(table.dtype));
      if (adding > row) owned += of(adding, rows);
    } else if (copies || table.wire) {
      together = std::max(together, of(row, rows));
    }
    if (works) {
      own_staged += of(row, rows) + of(sent, rows);
      staged += of(row, table.rows - rows) + of(sent, table.rows - rows);
      if (table.wire) packed = std::max(packed, of(sent, table.rows));
    }
    staged += static_cast<size_t>(workers - (works ? 1 : 0)) * (of(row, rows) + of(sent, rows));
    upload = std::max(upload, aligned(copied(rows, sent)));
    download = std::max(download, aligned(copied(rows, row)));
  }
  if (in_host_memory) return {.device = packed, .pinned = owned + own_staged + staged + together};
  const size_t places = copies ? 2 * (upload + download) : 0;
  return {.device = owned + (stages_own ? 0 : own_staged) + packed + together + places,
          .pinned = staged + (stages_own ? own_staged : 0)};
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
