#include "engine/data/pictures/pixels/weighted_sums.h"

#include <algorithm>
#include <cstring>

#include "engine/runtime/parallel/vectorised.h"

namespace gyre {
namespace {

// Transposed bytes that are summed at a time stay in the L1 cache of 32 KiB.
constexpr int64_t kMostColumns = 512;

// PixelSums of kLanes bytes, which stay in registers.  A word of four bytes has a sum of each, so
// that no byte moves from lane to lane.
struct PixelSums {
  static constexpr int64_t kWords = kLanes / 4;
  static constexpr int kByteBits = 8;
  static constexpr uint32_t kByte = 255;
  uint32_t a[kWords], b[kWords], c[kWords], d[kWords];

  [[gnu::always_inline]] PixelSums() {
#pragma omp simd
    for (int64_t i = 0; i < kWords; ++i) a[i] = b[i] = c[i] = d[i] = 1 << (kWeightBits - 1);
  }
  [[gnu::always_inline]] void Add(uint32_t weight, const uint8_t* from) {
#pragma omp simd
    for (int64_t i = 0; i < kWords; ++i) {
      uint32_t word;
      memcpy(&word, from + 4 * i, sizeof(word));
      a[i] += weight * (word & kByte);
      b[i] += weight * (word >> kByteBits & kByte);
      c[i] += weight * (word >> 2 * kByteBits & kByte);
      d[i] += weight * (word >> 3 * kByteBits);
    }
  }
  [[gnu::always_inline]] void Store(uint8_t* to) const {
    // Rounded weights may sum up to a little more than 1.
    const auto byte = [](uint32_t sum) { return std::min(sum >> kWeightBits, kByte); };
#pragma omp simd
    for (int64_t i = 0; i < kWords; ++i) {
      const uint32_t word = byte(a[i]) | byte(b[i]) << kByteBits | byte(c[i]) << 2 * kByteBits |
                            byte(d[i]) << 3 * kByteBits;
      memcpy(to + 4 * i, &word, sizeof(word));
    }
  }
};

// to[i] <- the sum of weights[j] from[i + j step], for a multiple of kLanes bytes.
[[gnu::always_inline]] inline void SumBytes(const int32_t* weights, int64_t count,
                                            const uint8_t* from, int64_t step, int64_t bytes,
                                            uint8_t* to) {
  for (int64_t i = 0; i < bytes; i += kLanes) {
    PixelSums sums;
    const uint8_t* term = from + i;
    int64_t j = 0;
    do {
      sums.Add(weights[j], term);
      term += step;
    } while (++j < count);
    sums.Store(to + i);
  }
}

constexpr int64_t kTile = 16;  // rows and columns that are transposed at a time

// A register of every instruction set.
using Tile = uint8_t __attribute__((vector_size(kTile)));

// Transposes a tile of kTile rows.  Four perfect shuffles exchange an index's row and column, of
// four bits each.
[[gnu::always_inline]] inline void Transpose(Tile (&rows)[kTile]) {
  constexpr Tile kLow = {0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23};
  constexpr Tile kHigh = {8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
#pragma GCC unroll 4
  for (int shuffle = 0; shuffle < 4; ++shuffle) {
    Tile shuffled[kTile];
#pragma GCC unroll 8
    for (int64_t i = 0; i < kTile / 2; ++i) {
      shuffled[2 * i] = __builtin_shuffle(rows[i], rows[i + kTile / 2], kLow);
      shuffled[2 * i + 1] = __builtin_shuffle(rows[i], rows[i + kTile / 2], kHigh);
    }
#pragma GCC unroll 16
    for (int64_t i = 0; i < kTile; ++i) rows[i] = shuffled[i];
  }
}

struct AlongRows {
  const int64_t *first, *offset;
  const int32_t* weights;
  int64_t channels;
  const uint8_t* from;
  int64_t from_stride, rows;
  uint8_t *columns, *sums;  // [bytes of a row, kLanes]
  uint8_t* to;
  int64_t to_stride;

  void operator()(int64_t begin, int64_t end) const {  // results
    const int64_t first_byte = first[begin] * channels;
    const int64_t last = first[end - 1] + offset[end] - offset[end - 1];
    LoadColumns(first_byte, last * channels - first_byte);
    for (int64_t x = begin; x < end; ++x) {
      SumBytes(weights + offset[x], offset[x + 1] - offset[x],
               columns + (first[x] * channels - first_byte) * kLanes, channels * kLanes,
               channels * kLanes, sums + (x - begin) * channels * kLanes);
    }
    StoreRows(begin * channels, (end - begin) * channels);
  }

 private:
  [[gnu::always_inline]] void LoadColumns(int64_t first_byte, int64_t bytes) const {
    for (int64_t lane = 0; lane < kLanes; lane += kTile) {
      const uint8_t* row[kTile];  // lanes without a row repeat the last, so that all have values
      for (int64_t i = 0; i < kTile; ++i) {
        row[i] = from + std::min(lane + i, rows - 1) * from_stride + first_byte;
      }
      for (int64_t column = 0; column < bytes; column += kTile) {
        Tile tile[kTile];
        if (column + kTile <= bytes) {
#pragma GCC unroll 16
          for (int64_t i = 0; i < kTile; ++i) memcpy(&tile[i], row[i] + column, kTile);
        } else {
          for (int64_t i = 0; i < kTile; ++i) {
            tile[i] = Tile{};
            memcpy(&tile[i], row[i] + column, bytes - column);
          }
        }
        Transpose(tile);
#pragma GCC unroll 16
        for (int64_t i = 0; i < kTile; ++i) {
          memcpy(columns + (column + i) * kLanes + lane, &tile[i], kTile);
        }
      }
    }
  }

  [[gnu::always_inline]] void StoreRows(int64_t first_byte, int64_t bytes) const {
    for (int64_t lane = 0; lane < rows; lane += kTile) {
      uint8_t* const row = to + lane * to_stride + first_byte;
      for (int64_t column = 0; column < bytes; column += kTile) {
        Tile tile[kTile];
#pragma GCC unroll 16
        for (int64_t i = 0; i < kTile; ++i) {
          memcpy(&tile[i], sums + (column + i) * kLanes + lane, kTile);
        }
        Transpose(tile);
#pragma GCC unroll 16
        for (int64_t i = 0; i < kTile; ++i) {
          memcpy(row + i * to_stride + column, &tile[i], kTile);
        }
      }
    }
  }
};

struct DownColumns {
  const int32_t* weights;
  int64_t count;
  const uint8_t* rows;
  int64_t stride, bytes;
  uint8_t* to;

  void operator()(int64_t begin, int64_t end) const {
    const int64_t whole = begin + (end - begin) / kLanes * kLanes;
    SumBytes(weights, count, rows + begin, stride, whole - begin, to + begin);
    if (whole == end) return;
    uint8_t last[kLanes];
    SumBytes(weights, count, rows + whole, stride, kLanes, last);
    memcpy(to + whole, last, end - whole);
  }
};

}  // namespace

void SumAlongRows(const AxisWeights& axis, int channels, const uint8_t* from, int64_t from_stride,
                  int64_t rows, RowScratch& scratch, uint8_t* to, int64_t to_stride) {
  for (int64_t begin = 0, end; begin < axis.results(); begin = end) {
    const auto bytes = [&](int64_t until) {  // of the source, for results before `until`
      return (axis.end(until - 1) - axis.first[begin]) * channels;
    };
    for (end = begin + 1; end < axis.results() && bytes(end + 1) <= kMostColumns;) ++end;
    const auto grow = [](std::vector<uint8_t>& memory, int64_t columns) -> uint8_t* {
      const auto needed = static_cast<size_t>((columns + kLanes - 1) / kLanes * kLanes * kLanes);
      if (memory.size() < needed) memory.resize(needed);
      return memory.data();
    };
    const AlongRows body{.first = axis.first.data(),
                         .offset = axis.offset.data(),
                         .weights = axis.weights.data(),
                         .channels = channels,
                         .from = from,
                         .from_stride = from_stride,
                         .rows = rows,
                         .columns = grow(scratch.columns, bytes(end)),
                         .sums = grow(scratch.sums, (end - begin) * channels),
                         .to = to,
                         .to_stride = to_stride};
    parallel_internal::Run(body, begin, end);
  }
}

void SumDownColumns(const int32_t* weights, int64_t count, const uint8_t* rows, int64_t stride,
                    int64_t bytes, uint8_t* to) {
  parallel_internal::Run(DownColumns{.weights = weights,
                                     .count = count,
                                     .rows = rows,
                                     .stride = stride,
                                     .bytes = bytes,
                                     .to = to},
                         0, bytes);
}

}  // namespace gyre
