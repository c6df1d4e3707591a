#include "engine/training/model/weights_match.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "models/schema/describe.h"

namespace gyre {
namespace {

constexpr char kFlag[] = "--weights_map";

using Renaming = std::map<std::string, std::string>;  // OLD -> NEW

absl::StatusOr<Renaming> ParseMap(const std::string& map) {
  Renaming renaming;
  for (const absl::string_view part : absl::StrSplit(map, ',', absl::SkipEmpty())) {
    const std::vector<std::string> sides = absl::StrSplit(part, '=');
    if (sides.size() != 2 || sides[0].empty()) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "%s: expected OLD=NEW or OLD=, separated by commas, got \"%s\"", kFlag, part));
    }
    if (renaming.emplace(sides[0], sides[1]).second) continue;
    return absl::InvalidArgumentError(
        absl::StrFormat("%s: \"%s\" is there twice", kFlag, sides[0]));
  }
  return renaming;
}

// `name` and what it lies in: "b-1-fc.weight", the layer "b-1-fc", the blocks "b-1" and "b".
std::vector<std::string> Prefixes(std::string name) {
  std::vector<std::string> prefixes = {name};
  for (size_t end; (end = name.find_last_of(".-")) != std::string::npos;) {
    name.resize(end);
    prefixes.push_back(name);
  }
  return prefixes;
}

// Errors: InvalidArgument for a `word` that is none of the names and prefixes.
absl::Status CheckKnown(const std::set<std::string>& known, const std::string& word,
                        const std::string& whose) {
  if (known.contains(word)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(kFlag, ": ",
                   Unknown(absl::StrCat("tensor, layer or block of the ", whose), word,
                           std::vector<std::string>(known.begin(), known.end()))));
}

// What the net has: a tensor of a file for each.
using Wanted = std::map<std::string, Tensor>;

Wanted WantedBy(const ParameterSet& parameters) {
  Wanted expected;
  for (const Parameter& p : parameters.all()) {
    expected.emplace(CanonicalName(p, ""), Tensor{nullptr, CanonicalShape(p, ""), FileDType(p)});
  }
  return expected;
}

// Of its tensors, and then of those that cannot be read.
std::vector<std::string> NamesOf(const TensorFile& file) {
  std::vector<std::string> names;
  for (const NamedTensor& tensor : file.tensors()) names.push_back(tensor.name);
  for (const auto& [name, why] : file.unreadable()) names.push_back(name);
  return names;
}

// The names that tensors of these names get; "": left out.
absl::StatusOr<std::vector<std::string>> Rename(const std::vector<std::string>& tensors,
                                                const Renaming& renaming, const Wanted& expected) {
  std::set<std::string> olds, news;
  for (const std::string& tensor : tensors) {
    for (const std::string& prefix : Prefixes(tensor)) olds.insert(prefix);
  }
  for (const auto& [name, tensor] : expected) {
    for (const std::string& prefix : Prefixes(name)) news.insert(prefix);
  }
  for (const auto& [from, to] : renaming) {
    RETURN_IF_ERROR(CheckKnown(olds, from, "file"));
    if (!to.empty()) RETURN_IF_ERROR(CheckKnown(news, to, "net"));
  }
  std::vector<std::string> names;
  std::map<std::string, std::string> old_of;  // by the name it gets
  for (const std::string& tensor : tensors) {
    std::string name = tensor;
    for (const std::string& prefix : Prefixes(tensor)) {  // the longest first
      const auto rule = renaming.find(prefix);
      if (rule == renaming.end()) continue;
      name = rule->second.empty() ? "" : rule->second + tensor.substr(prefix.size());
      break;
    }
    names.push_back(name);
    if (name.empty()) continue;
    if (name != tensor && !expected.contains(name)) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "%s: \"%s\" becomes \"%s\", which the net lacks; leave it out with %s=%s=", kFlag, tensor,
          name, kFlag, tensor));
    }
    const auto [other, alone] = old_of.emplace(name, tensor);
    if (alone) continue;
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s: \"%s\" and \"%s\" both become \"%s\"; leave one out, as with %s=%s=", kFlag,
        other->second, tensor, name, kFlag, tensor));
  }
  return names;
}

std::string JsonOf(const std::vector<std::string>& names) {
  constexpr size_t kMost = 20;
  std::vector<std::string> list = names;
  if (list.size() > kMost) {
    list.resize(kMost);
    list.push_back(absl::StrCat("... and ", names.size() - kMost, " more"));
  }
  return nlohmann::json(list).dump();
}

// "fc1" of "fc1.weight".
std::string LayerOf(const std::string& tensor) { return tensor.substr(0, tensor.rfind('.')); }

// `named` has become `name`, which the net has.
absl::Status CheckFits(const NamedTensor& named, const std::string& name, const Tensor& expected) {
  const Tensor& got = named.tensor;
  if (got.shape == expected.shape && got.dtype == expected.dtype) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat(
      "its tensor \"%s\" is %s %s, the net expects for \"%s\" %s %s; %srename the layer of the "
      "net, or leave the old one out with %s=%s=",
      named.name, DTypeName(got.dtype), got.shape.ToString(), name, DTypeName(expected.dtype),
      expected.shape.ToString(), got.dtype == expected.dtype ? "" : "train with its --precision, ",
      kFlag, LayerOf(named.name)));
}

}  // namespace

absl::StatusOr<WeightsMatch> MatchWeights(const TensorFile& file, const std::string& map,
                                          const ParameterSet& parameters, bool partial) {
  ASSIGN_OR_RETURN(const Renaming renaming, ParseMap(map));
  Wanted expected = WantedBy(parameters);
  const std::vector<std::string> olds = NamesOf(file);
  ASSIGN_OR_RETURN(const std::vector<std::string> names, Rename(olds, renaming, expected));
  WeightsMatch match;
  std::vector<NamedTensor> taken;
  for (size_t i = 0; i < names.size(); ++i) {
    const auto wanted = expected.find(names[i]);
    if (wanted == expected.end()) {
      match.unused.push_back(olds[i]);
      continue;
    }
    if (const absl::Status readable = file.CheckReadable(olds[i]); !readable.ok()) {
      return absl::InvalidArgumentError(
          absl::StrFormat("%s; leave it out with %s=%s=", readable.message(), kFlag, olds[i]));
    }
    const NamedTensor& named = file.tensors()[i];
    RETURN_IF_ERROR(CheckFits(named, names[i], wanted->second));
    taken.push_back({names[i], named.tensor});
    expected.erase(wanted);
  }
  std::ranges::sort(match.unused);
  for (const auto& [name, tensor] : expected) match.initial.push_back(name);
  if (taken.empty()) {
    return absl::InvalidArgumentError(
        absl::StrFormat("none of its tensors (%s) has the name of one of the net's (%s); rename "
                        "them with %s",
                        Listed(match.unused), Listed(match.initial), kFlag));
  }
  if (taken.size() < match.initial.size() && !partial) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%d of the net's %d tensors are in it, less than half; it lacks %s, and holds beside these "
        "%s; rename its tensors with %s, or take these few with --weights_partial",
        taken.size(), taken.size() + match.initial.size(), Listed(match.initial),
        match.unused.empty() ? "none" : Listed(match.unused), kFlag));
  }
  match.tensors = file.With(std::move(taken));
  return match;
}

absl::Status AnnotateUnlessFlag(const absl::Status& status, const std::string& path) {
  return absl::StartsWith(status.message(), "--") ? status : Annotate(status, path);
}

std::string ToString(const WeightsMatch& match) {
  return absl::StrCat("weights matched ", match.tensors.tensors().size(), "\nweights initial ",
                      JsonOf(match.initial), "\nweights unused ", JsonOf(match.unused));
}

}  // namespace gyre
