#include "distributed/parameter_server/tables.h"

#include <algorithm>

namespace gyre {

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

std::vector<Piece> CutByOwner(const RowList& rows, std::span<const ElementRange> parts) {
  std::vector<Piece> pieces(parts.size());
  for (size_t owner = 0; owner < parts.size(); ++owner) {
    Piece& piece = pieces[owner];
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

bool IsPacked(std::span<const Piece> pieces) {
  int64_t next = 0;
  for (const Piece& piece : pieces) {
    for (const Piece::Run& run : piece.runs) {
      if (run.at != next) return false;
      next += run.count;
    }
  }
  return true;
}

}  // namespace gyre
