#include "engine/training/update_gate.h"

#include <algorithm>
#include <cmath>

#include "engine/runtime/parallel.h"

namespace gyre {
namespace {

// A gradient is cut into pieces, one block of a GPU each; the pieces' sums are added by another.
// Large enough that they are few, small enough that AlexNet's largest gradient fills a GPU.
constexpr int64_t kPiece = 16384;

template <typename T>
struct PieceSquares {
  using Value = double;
  const T* gradient;
  int64_t elements;
  double* sums;  // one a piece
  HOST_DEVICE double Identity() const { return 0; }
  HOST_DEVICE double Load(int64_t piece, int64_t i) const {
    const int64_t at = piece * kPiece + i;
    const double x = at < elements ? static_cast<double>(gradient[at]) : 0;
    return x * x;
  }
  HOST_DEVICE double Combine(double a, double b) const { return a + b; }
  HOST_DEVICE void Store(int64_t piece, double sum) const { sums[piece] = sum; }
};

struct SumPieces {
  using Value = double;
  const double* sums;
  double* total;
  HOST_DEVICE double Identity() const { return 0; }
  HOST_DEVICE double Load(int64_t, int64_t piece) const { return sums[piece]; }
  HOST_DEVICE double Combine(double a, double b) const { return a + b; }
  HOST_DEVICE void Store(int64_t, double sum) const { *total = sum; }
};

struct Gate {
  const double* sums;
  int buckets;
  bool clips;
  double clip_norm;
  StepScalars* step;
  GateReport* report;
  HOST_DEVICE void operator()(int64_t) const {
    double total = 0;
    int64_t bad = -1;
    for (int b = 0; b < buckets; ++b) {
      total += sums[b];
      if (bad < 0 && !(sums[b] - sums[b] == 0)) bad = b;
    }
    const double norm = sqrt(total);
    if (clips && norm > clip_norm) step->gradient_scale = clip_norm / norm;
    report->norm = norm;
    report->bad_bucket = bad;
  }
};

int64_t Pieces(int64_t elements) { return (elements + kPiece - 1) / kPiece; }

}  // namespace

size_t SumSquaresScratch(int64_t elements) {
  return static_cast<size_t>(Pieces(elements)) * sizeof(double);
}

absl::Status SumSquares(Stream& stream, Tensor gradient, void* scratch, double* sum) {
  const int64_t pieces = Pieces(gradient.elements());
  auto* sums = static_cast<double*>(scratch);
  RETURN_IF_ERROR(VisitReal(gradient.dtype, [&]<typename T>() {
    return ForEachRow(stream, pieces, std::min(kPiece, gradient.elements()),
                      PieceSquares<T>{gradient.as<T>(), gradient.elements(), sums});
  }));
  return ForEachRow(stream, 1, pieces, SumPieces{sums, sum});
}

absl::Status OpenGate(Stream& stream, const double* sums, int buckets,
                      std::optional<double> clip_norm, StepScalars* step, GateReport* report) {
  return ForEach(stream, 1,
                 Gate{sums, buckets, clip_norm.has_value(), clip_norm.value_or(0), step, report});
}

}  // namespace gyre
