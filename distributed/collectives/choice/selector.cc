#include "distributed/collectives/choice/selector.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "engine/runtime/check.h"

namespace gyre {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kModelledTo = size_t{1} << 30;

// What a sum costs its caller beside: a thread wakes twice, and an update starts.
constexpr double kHandOver = 10e-6;
// Of its time, the part that a worthwhile sum's start is.
constexpr double kStartShare = 0.05;

constexpr char kClusters[] = "allreduce", kRanks[] = "ranks", kHosts[] = "hosts";
constexpr char kFastest[] = "fastest", kFrom[] = "from_bytes", kAlgorithm[] = "algorithm";
constexpr char kCosts[] = "costs", kStartUs[] = "start_us", kByteNs[] = "byte_ns";

absl::Status Invalid(const std::string& what) {
  return absl::InvalidArgumentError(
      absl::StrCat("not what bench_allreduce --calibrate writes: ", what));
}

// A member that is a whole number of at least `least`.
absl::StatusOr<int64_t> Integer(const Json& object, const char* key, int64_t least) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number_integer() || found->get<int64_t>() < least) {
    return Invalid(absl::StrCat(key, ": expected an integer of ", least, " or more"));
  }
  return found->get<int64_t>();
}

absl::StatusOr<const Json*> Array(const Json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_array()) {
    return Invalid(absl::StrCat(key, ": expected an array"));
  }
  return &*found;
}

// Of one that is chosen between.
absl::StatusOr<std::string> Name(const Json& object) {
  const auto name = object.find(kAlgorithm);
  if (name == object.end() || !name->is_string() || !IsSelectable(name->get<std::string>())) {
    return Invalid(absl::StrCat(kAlgorithm, ": not one that is chosen between"));
  }
  return name->get<std::string>();
}

absl::StatusOr<double> NotNegative(const Json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number() || !(found->get<double>() >= 0)) {
    return Invalid(absl::StrCat(key, ": expected a number of 0 or more"));
  }
  return found->get<double>();
}

absl::StatusOr<std::vector<Selector::Cost>> ReadCosts(const Json& cluster) {
  std::vector<Selector::Cost> costs;
  if (!cluster.contains(kCosts)) return costs;
  ASSIGN_OR_RETURN(const Json* const entries, Array(cluster, kCosts));
  for (const Json& entry : *entries) {
    Selector::Cost& cost = costs.emplace_back();
    ASSIGN_OR_RETURN(cost.algorithm, Name(entry));
    ASSIGN_OR_RETURN(const double start_us, NotNegative(entry, kStartUs));
    ASSIGN_OR_RETURN(const double byte_ns, NotNegative(entry, kByteNs));
    cost.start_s = start_us * 1e-6;
    cost.byte_s = byte_ns * 1e-9;
  }
  return costs;
}

absl::StatusOr<Selector> Read(const Json& cluster) {
  ASSIGN_OR_RETURN(const Json* const fastest, Array(cluster, kFastest));
  std::vector<Selector::Choice> choices;
  for (const Json& entry : *fastest) {
    ASSIGN_OR_RETURN(const int64_t from, Integer(entry, kFrom, 0));
    ASSIGN_OR_RETURN(const std::string name, Name(entry));
    const auto from_bytes = static_cast<size_t>(from);
    if (choices.empty() ? from != 0 : from_bytes <= choices.back().from_bytes) {
      return Invalid(absl::StrCat(kFrom, ": expected 0, then more and more, got ", from));
    }
    choices.push_back({from_bytes, name});
  }
  if (choices.empty()) return Invalid(absl::StrCat(kFastest, ": expected some"));
  ASSIGN_OR_RETURN(std::vector<Selector::Cost> costs, ReadCosts(cluster));
  return Selector(std::move(choices), std::move(costs));
}

ClusterShape ShapeIn(const Json& cluster) {
  return {cluster[kRanks].get<int>(), cluster[kHosts].get<int>()};
}

}  // namespace

ClusterShape ShapeOf(const Communicator& communicator) {
  return {communicator.size(), std::ranges::max(communicator.hosts()) + 1};
}

bool IsSelectable(std::string_view algorithm) {
  return std::ranges::find(ChosenSums(), algorithm) != ChosenSums().end();
}

Selector Selector::Of(const std::function<std::string_view(double bytes)>& fastest) {
  std::vector<Choice> choices;
  for (size_t bytes = 64; bytes <= kModelledTo; bytes *= 2) {
    const std::string_view best = fastest(static_cast<double>(bytes));
    if (choices.empty() || choices.back().algorithm != best) {
      choices.push_back({choices.empty() ? 0 : bytes, std::string(best)});
    }
  }
  return Selector(std::move(choices));
}

Selector Selector::Modelled(ClusterShape shape) {
  return Of([&](double bytes) {
    return *std::ranges::min_element(ChosenSums(), {}, [&](std::string_view name) {
      return SumSeconds(name, bytes, shape, {});
    });
  });
}

absl::StatusOr<std::vector<MeasuredCluster>> ReadCalibration(std::string_view text) {
  std::vector<MeasuredCluster> clusters;
  if (text.empty()) return clusters;
  const Json file = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (file.is_discarded()) return Invalid("no JSON");
  ASSIGN_OR_RETURN(const Json* const array, Array(file, kClusters));
  for (const Json& cluster : *array) {
    RETURN_IF_ERROR(Integer(cluster, kRanks, 1).status());
    RETURN_IF_ERROR(Integer(cluster, kHosts, 1).status());
    ASSIGN_OR_RETURN(Selector selector, Read(cluster));
    clusters.push_back({ShapeIn(cluster), std::move(selector)});
  }
  return clusters;
}

absl::StatusOr<Selector> Selector::Calibrated(std::string_view text, ClusterShape shape) {
  ASSIGN_OR_RETURN(std::vector<MeasuredCluster> clusters, ReadCalibration(text));
  const auto measured = std::ranges::find(clusters, shape, &MeasuredCluster::shape);
  return measured == clusters.end() ? Modelled(shape) : std::move(measured->selector);
}

const std::string& Selector::Choose(size_t bytes) const {
  const auto beyond = std::ranges::upper_bound(choices_, bytes, {}, &Choice::from_bytes);
  return std::prev(beyond)->algorithm;
}

Selector::Cost FitCost(std::string algorithm, std::span<const MeasuredSum> sums) {
  // The least of the sum of (start x + byte y - 1)^2, where x = 1 / seconds, y = bytes / seconds:
  // of one of the two, the other given.
  double x = 0, y = 0, xx = 0, xy = 0, yy = 0;
  std::vector<double> slopes;
  for (size_t i = 0; i < sums.size(); ++i) {
    const auto& [bytes, seconds] = sums[i];
    x += 1 / seconds;
    y += bytes / seconds;
    xx += 1 / seconds / seconds;
    xy += bytes / seconds / seconds;
    yy += bytes / seconds * (bytes / seconds);
    for (const MeasuredSum& other : sums.first(i)) {
      slopes.push_back((seconds - other.seconds) / (bytes - other.bytes));
    }
  }
  const auto middle = slopes.begin() + static_cast<ptrdiff_t>(slopes.size() / 2);
  std::ranges::nth_element(slopes, middle);
  const double byte = *middle, start = (x - byte * xy) / xx;
  if (!(byte >= 0)) return {std::move(algorithm), x / xx, 0};
  if (!(start >= 0)) return {std::move(algorithm), 0, y / yy};
  return {std::move(algorithm), start, byte};
}

size_t WorthwhileBytes(std::string_view algorithm, const Selector& selector, ClusterShape shape) {
  const auto seconds = [&](size_t of_choice, double bytes) {
    const std::string_view name =
        algorithm == "auto" ? std::string_view(selector.Choose(of_choice)) : algorithm;
    const auto cost = std::ranges::find(selector.costs(), name, &Selector::Cost::algorithm);
    if (cost != selector.costs().end()) return kHandOver + cost->start_s + bytes * cost->byte_s;
    // Those of other libraries, and one that is not for such a cluster, are taken for rings.
    const double own = IsSelectable(name) ? SumSeconds(name, bytes, shape, {})
                                          : SumSeconds("ring", bytes, shape, {});
    return kHandOver + (std::isfinite(own) ? own : SumSeconds("ring", bytes, shape, {}));
  };
  size_t bytes = 4096;
  while (bytes < kModelledTo &&
         seconds(bytes, 0) > kStartShare * seconds(bytes, static_cast<double>(bytes))) {
    bytes *= 2;
  }
  return bytes;
}

std::string Selector::Describe() const {
  std::string text = choices_.front().algorithm;
  for (size_t i = 1; i < choices_.size(); ++i) {
    absl::StrAppend(&text, ", from ", choices_[i].from_bytes, " bytes on ", choices_[i].algorithm);
  }
  return text;
}

absl::StatusOr<std::string> WriteCalibration(std::string_view text, ClusterShape shape,
                                             const Selector& selector) {
  RETURN_IF_ERROR(ReadCalibration(text).status());
  Json clusters = text.empty() ? Json::array() : Json::parse(text)[kClusters];
  std::erase_if(clusters.get_ref<Json::array_t&>(),
                [&](const Json& cluster) { return ShapeIn(cluster) == shape; });
  Json fastest = Json::array();
  for (const Selector::Choice& choice : selector.choices()) {
    fastest.push_back({{kFrom, choice.from_bytes}, {kAlgorithm, choice.algorithm}});
  }
  Json costs = Json::array();
  for (const Selector::Cost& cost : selector.costs()) {
    costs.push_back({{kAlgorithm, cost.algorithm},
                     {kStartUs, cost.start_s * 1e6},
                     {kByteNs, cost.byte_s * 1e9}});
  }
  clusters.push_back(
      {{kRanks, shape.ranks}, {kHosts, shape.hosts}, {kFastest, fastest}, {kCosts, costs}});
  Json file = Json::object();
  file[kClusters] = std::move(clusters);
  return file.dump(1) + "\n";
}

}  // namespace gyre
