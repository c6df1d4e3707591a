#include "engine/data/sets/hold_out.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <utility>

#include "engine/runtime/check.h"
#include "engine/runtime/random.h"

namespace gyre {
namespace {

// Marks the share of `members` with the least keys, at least one of two.
void Hold(double share, const std::vector<uint64_t>& keys, std::vector<int64_t> members,
          std::vector<bool>& held) {
  const auto count = static_cast<int64_t>(members.size());
  if (count < 2) return;
  const auto test =
      std::clamp<int64_t>(std::llround(share * static_cast<double>(count)), 1, count - 1);
  std::ranges::sort(members, {}, [&](int64_t i) { return std::pair(keys[i], i); });
  for (int64_t i = 0; i < test; ++i) held[static_cast<size_t>(members[i])] = true;
}

// Of each kind, by number.
std::vector<std::vector<int64_t>> MembersOf(std::span<const int64_t> kinds) {
  std::map<int64_t, std::vector<int64_t>> members;
  for (size_t i = 0; i < kinds.size(); ++i) members[kinds[i]].push_back(static_cast<int64_t>(i));
  std::vector<std::vector<int64_t>> all;
  for (auto& [kind, of_kind] : members) all.push_back(std::move(of_kind));
  return all;
}

}  // namespace

std::vector<bool> HeldOut(int64_t size, const HoldOutConfig& config,
                          std::span<const int64_t> kinds) {
  std::vector<bool> held(static_cast<size_t>(size));
  std::vector<uint64_t> keys;
  for (int64_t i = 0; i < size; ++i) {
    const RandomBits bits = Philox(RandomKey(config.seed(), "split"), 0, static_cast<uint64_t>(i));
    keys.push_back(uint64_t{bits.v[0]} << 32 | bits.v[1]);
  }
  const bool of_kinds = config.by() == HoldOutConfig::CLASS || config.by() == HoldOutConfig::GROUP;
  GYRE_CHECK(!of_kinds || kinds.size() == held.size());
  if (config.by() == HoldOutConfig::CLASS) {
    for (const auto& members : MembersOf(kinds)) Hold(config.test(), keys, members, held);
    return held;
  }
  if (config.by() == HoldOutConfig::GROUP) {
    const auto members = MembersOf(kinds);
    std::vector<int64_t> numbers(members.size());
    std::iota(numbers.begin(), numbers.end(), 0);
    std::vector<bool> held_groups(members.size());
    Hold(config.test(), keys, numbers, held_groups);
    for (size_t g = 0; g < members.size(); ++g) {
      for (const int64_t i : members[g]) held[static_cast<size_t>(i)] = held_groups[g];
    }
    return held;
  }
  std::vector<int64_t> all(static_cast<size_t>(size));
  std::iota(all.begin(), all.end(), 0);
  if (config.by() == HoldOutConfig::TIME) {
    std::iota(keys.rbegin(), keys.rend(), 0);  // the last have the least
  }
  Hold(config.test(), keys, all, held);
  return held;
}

}  // namespace gyre
