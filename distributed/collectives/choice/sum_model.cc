#include "distributed/collectives/choice/sum_model.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "engine/runtime/check.h"

namespace gyre {
namespace {

// The sum of S bytes over n ranks on H hosts, p on each, which share its link.
struct ModelledSum {
  double S, n, H;
  LinkCosts cost;
  double p() const { return n / H; }
};

double Ring(const ModelledSum& s) {
  const double steps = 2 * (s.n - 1), added = (s.n - 1) / s.n * s.S * s.cost.added_byte;
  if (s.H == 1) return steps * s.cost.start + steps / s.n * s.S * s.cost.byte + added;
  return steps * s.cost.start_between + steps / s.n * s.S * s.cost.byte_between + added;
}
double Direct(const ModelledSum& s) {
  const double messages = 2 * (s.n - 1) * s.cost.each;
  const double added = (s.n - 1) / s.n * s.S * s.cost.added_byte;
  if (s.H == 1) {
    return 2 * s.cost.start + messages + 2 * (s.n - 1) / s.n * s.S * s.cost.byte + added;
  }
  return 2 * s.cost.start_between + messages +
         2 * s.p() * (s.n - s.p()) / s.n * s.S * s.cost.byte_between + added;
}
double RecursiveDoubling(const ModelledSum& s) {
  const double within = std::ceil(std::log2(s.p())), between = std::ceil(std::log2(s.H));
  return within * (s.cost.start + s.S * s.cost.byte) +
         between * (s.cost.start_between + s.p() * s.S * s.cost.byte_between) +
         (within + between) * s.S * s.cost.added_byte;
}
double HalvingDoubling(const ModelledSum& s) {
  return 2 * std::ceil(std::log2(s.p())) * s.cost.start +
         2 * std::ceil(std::log2(s.H)) * s.cost.start_between +
         2 * (s.p() - 1) / s.p() * s.S / s.H * s.cost.byte +
         2 * (s.H - 1) / s.H * s.p() * s.S * s.cost.byte_between +
         (s.n - 1) / s.n * s.S * s.cost.added_byte;
}
double Shared(const ModelledSum& s) {
  if (s.H > 1) return std::numeric_limits<double>::infinity();
  return 2 * s.cost.wait + s.S * s.cost.shared_byte;
}
double Hierarchical(const ModelledSum& s) {
  if (s.H == 1) return std::numeric_limits<double>::infinity();  // `shared` with detours
  return 5 * s.cost.wait + 2 * s.S * s.cost.shared_byte + 2 * s.cost.start_between +
         2 * (s.H - 1) * s.cost.each + 2 * (s.H - 1) / s.H * s.S * s.cost.byte_between +
         (s.H - 1) / s.H * s.S * s.cost.added_byte;
}

// All send to rank 0 and get the sum from it: its link, or its host's, carries each way what all
// others have, at the same time.
double Naive(const ModelledSum& s) {
  const double others = s.n - 1;
  const double link = s.H == 1 ? others * s.cost.byte : (s.n - s.p()) * s.cost.byte_between;
  return 2 * (s.H == 1 ? s.cost.start : s.cost.start_between) + 2 * others * s.cost.each +
         s.S * (link + others * s.cost.added_byte);
}

// The last one is never chosen.
constexpr std::array<std::string_view, 7> kNames = {
    "shared", "hierarchical", "direct", "recursive_doubling", "halving_doubling", "ring", "naive"};
constexpr double (*kSeconds[])(const ModelledSum&) = {
    Shared, Hierarchical, Direct, RecursiveDoubling, HalvingDoubling, Ring, Naive};

}  // namespace

std::span<const std::string_view> ChosenSums() { return std::span(kNames).first<6>(); }

bool IsModelled(std::string_view algorithm) {
  return std::ranges::find(kNames, algorithm) != kNames.end();
}

double SumSeconds(std::string_view algorithm, double bytes, ClusterShape shape,
                  const LinkCosts& costs) {
  const auto found = std::ranges::find(kNames, algorithm);
  GYRE_CHECK(found != kNames.end());
  return kSeconds[found - kNames.begin()](
      {bytes, static_cast<double>(shape.ranks), static_cast<double>(shape.hosts), costs});
}

}  // namespace gyre
