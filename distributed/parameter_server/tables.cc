#include "distributed/parameter_server/tables.h"

#include <algorithm>

#include "engine/runtime/math.h"

namespace gyre {

std::string_view SyncName(Sync sync) {
  return sync == Sync::kBsp ? "bsp" : sync == Sync::kSsp ? "ssp" : "async";
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

std::vector<RowSelection> CutRows(const RowList& rows, std::span<const ElementRange> ranges) {
  std::vector<RowSelection> selections(ranges.size());
  int64_t at = 0;
  for (const ElementRange& run : rows.runs()) {
    const auto of = std::ranges::upper_bound(ranges, run.begin, {}, &ElementRange::end);
    auto range = static_cast<size_t>(of - ranges.begin());
    for (int64_t row = run.begin; row < run.end; ++range) {
      const int64_t count = std::min(run.end, ranges[range].end) - row;
      if (count == 0) continue;
      RowSelection& selection = selections[range];
      const int64_t first = row - ranges[range].begin;
      selection.rows.Append({first, first + count});
      selection.places.Append({at, at + count});
      at += count;
      row += count;
    }
  }
  return selections;
}

int64_t ServerChunks(int64_t rows, size_t row_bytes, size_t chunk_bytes) {
  const int64_t chunks =
      CeilDiv(rows * static_cast<int64_t>(row_bytes), static_cast<int64_t>(chunk_bytes));
  return std::max<int64_t>(1, std::min(rows, chunks));
}

std::vector<ElementRange> CutIntoChunks(ElementRange part, const RowList& accessed,
                                        int64_t chunks) {
  std::vector<ElementRange> cut;
  int64_t begin = part.begin, before = 0;  // rows of the runs that are passed
  auto run = accessed.runs().begin();
  for (int64_t chunk = 1; chunk < chunks; ++chunk) {
    const int64_t first = accessed.count() * chunk / chunks;  // of the next chunk
    for (; before + run->count() <= first; ++run) before += run->count();
    const int64_t end = part.begin + run->begin + first - before;
    cut.push_back({begin, end});
    begin = end;
  }
  cut.push_back({begin, part.end});
  return cut;
}

ServerBytes BytesOfWholeTables(std::span<const TableSpec> tables, int ranks, int servers, int rank,
                               Sync sync, bool background, bool in_host_memory,
                               size_t chunk_bytes) {
  const int workers = ranks - servers;
  const bool works = rank < workers, stages_own = works && !background;
  const auto others = static_cast<size_t>(workers - (works ? 1 : 0));
  // Of others' slices, and with stages_own of all.
  const bool copies = !in_host_memory && (others > 0 || stages_own);
  const auto aligned = [](int64_t rows, size_t row_bytes) {
    return RoundUp(static_cast<size_t>(rows) * row_bytes, kServerAlignment);
  };
  size_t owned = 0, own_staged = 0, staged = 0, packed = 0, together = 0, upload = 0, download = 0;
  int64_t owned_chunks = 0;
  for (const TableSpec& table : tables) {
    const size_t row = table.row_bytes(),
                 sent = static_cast<size_t>(table.width) * SizeOf(table.wire_type()),
                 adding = static_cast<size_t>(table.width) * SizeOf(AccumulateDType(table.dtype));
    const auto both_ways = [&](int64_t rows) { return aligned(rows, row) + aligned(rows, sent); };
    const auto chunks_of = [&](int owner) {
      return ServerChunks(table.parts[owner].count(), row, chunk_bytes);
    };
    const auto rows_of = [&](int owner, int64_t chunk) {
      const int64_t rows = table.parts[owner].count(), chunks = chunks_of(owner);
      return rows * (chunk + 1) / chunks - rows * chunk / chunks;
    };
    const int64_t rows = table.parts[rank].count(), chunks = chunks_of(rank);
    owned += aligned(rows, row);
    if (sync == Sync::kBsp)
      owned += aligned(rows, row) + (adding > row ? aligned(rows, adding) : 0);
    owned_chunks += chunks;
    for (int64_t b = 0; b < chunks; ++b) {
      if (works) own_staged += both_ways(rows_of(rank, b));
      staged += others * both_ways(rows_of(rank, b));
    }
    const int64_t largest = CeilDiv(rows, chunks);
    upload = std::max(upload, aligned(largest, sent));
    download = std::max(download, aligned(largest, row));
    if (sync != Sync::kBsp && table.wire) together = std::max(together, aligned(largest, row));
    if (!works) continue;
    std::vector<int64_t> not_own;  // rows of an access, by chunk
    for (int owner = 0; owner < ranks; ++owner) {
      const int64_t its = chunks_of(owner);
      if (table.wire) {
        packed = std::max(packed, aligned(CeilDiv(table.parts[owner].count(), its), sent));
      }
      if (owner == rank) continue;
      not_own.resize(std::max(not_own.size(), static_cast<size_t>(its)));
      for (int64_t b = 0; b < its; ++b) not_own[b] += rows_of(owner, b);
    }
    for (const int64_t chunk_rows : not_own) staged += both_ways(chunk_rows);
  }
  if (in_host_memory) {
    return {
        .device = packed, .pinned = owned + own_staged + staged + together, .chunks = owned_chunks};
  }
  const size_t places = copies ? 2 * (upload + download) : 0;
  return {.device = owned + (stages_own ? 0 : own_staged) + packed + together + places,
          .pinned = staged + (stages_own ? own_staged : 0),
          .chunks = owned_chunks};
}

}  // namespace gyre
