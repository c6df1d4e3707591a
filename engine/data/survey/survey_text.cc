#include "engine/data/survey/survey_text.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "engine/runtime/count_text.h"

namespace gyre {
namespace {

constexpr size_t kShown = 20;  // rows of a table or list

using Row = std::vector<std::string>;

// Characters of UTF-8.
size_t Width(const std::string& text) {
  return static_cast<size_t>(
      std::ranges::count_if(text, [](char c) { return (c & 0xc0) != 0x80; }));
}

// A table whose first column has names, and whose other columns numbers.  "" if it has no rows but
// the head.
std::string Table(const Row& head, std::vector<Row> rows) {
  if (rows.empty()) return "";
  rows.insert(rows.begin(), head);
  std::vector<size_t> widths(head.size());
  for (const Row& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], Width(row[i]));
  }
  std::string text = "\n";
  for (const Row& row : rows) {
    absl::StrAppend(&text, row[0], std::string(widths[0] - Width(row[0]), ' '));
    for (size_t i = 1; i < row.size(); ++i) {
      absl::StrAppend(&text, std::string(2 + widths[i] - Width(row[i]), ' '), row[i]);
    }
    text += "\n";
  }
  return text;
}

// Rows of counts by key, one column a set.  Those beyond kShown are one row.
template <typename Key, typename CountsOf, typename NameOf>
std::vector<Row> Counts(const Survey& survey, std::set<Key> keys, CountsOf counts_of,
                        NameOf name_of) {
  for (const SetSurvey& set : survey.sets) {
    for (const auto& [key, samples] : counts_of(set)) keys.insert(key);
  }
  std::vector<Row> rows;
  std::vector<int64_t> others(survey.sets.size());
  for (const Key& key : keys) {
    Row row = {name_of(key)};
    for (size_t s = 0; s < survey.sets.size(); ++s) {
      const auto& counts = counts_of(survey.sets[s]);
      const auto found = counts.find(key);
      const int64_t samples = found == counts.end() ? 0 : found->second;
      row.push_back(absl::StrCat(samples));
      if (rows.size() >= kShown) others[s] += samples;
    }
    if (rows.size() < kShown) rows.push_back(std::move(row));
  }
  if (keys.size() > kShown) {
    Row row = {absl::StrFormat("(%d others)", keys.size() - kShown)};
    for (const int64_t samples : others) row.push_back(absl::StrCat(samples));
    rows.push_back(std::move(row));
  }
  return rows;
}

std::vector<Row> ClassRows(const Survey& survey, const std::vector<std::string>& classes) {
  const bool any =
      std::ranges::any_of(survey.sets, [](const SetSurvey& set) { return !set.classes.empty(); });
  if (!any) return {};
  std::set<int64_t> numbers;
  for (int64_t i = 0; i < std::ssize(classes); ++i) numbers.insert(i);
  return Counts(
      survey, numbers, [](const SetSurvey& set) -> const auto& { return set.classes; },
      [&](int64_t number) { return NameOfClass(number, classes); });
}

// The least, median and largest of the pictures.
std::vector<std::pair<const char*, PictureSize>> SomeSizes(const SetSurvey& set) {
  const std::vector<PictureSize>& sizes = set.sizes;
  if (sizes.empty()) return {};
  return {{"least", sizes.front()}, {"median", sizes[sizes.size() / 2]}, {"largest", sizes.back()}};
}

std::vector<Row> SizeRows(const Survey& survey) {
  std::vector<Row> rows = {{"least"}, {"median"}, {"largest"}};
  bool any = false;
  for (const SetSurvey& set : survey.sets) {
    const auto sizes = SomeSizes(set);
    any = any || !sizes.empty();
    for (size_t i = 0; i < rows.size(); ++i) {
      rows[i].push_back(sizes.empty() ? "-"
                                      : absl::StrFormat("%d x %d", sizes[i].second.width,
                                                        sizes[i].second.height));
    }
  }
  return any ? rows : std::vector<Row>();
}

std::vector<Row> RangeRows(const Survey& survey) {
  std::set<std::string> inputs;
  for (const SetSurvey& set : survey.sets) {
    for (const auto& [input, range] : set.reals) inputs.insert(input);
  }
  std::vector<Row> rows;
  for (const std::string& input : inputs) {
    Row row = {input};
    for (const SetSurvey& set : survey.sets) {
      const auto range = set.reals.find(input);
      row.push_back(range == set.reals.end()
                        ? "-"
                        : absl::StrFormat("%g to %g", range->second.least, range->second.most));
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

std::string NameOfSample(const SampleOfSet& sample, std::span<const SurveyedSet> sets) {
  return sets[sample.set].dataset->Describe(sample.index);
}

// The pairs of these two sets.
std::vector<DuplicateSample> PairsOf(const Survey& survey, size_t first, size_t again) {
  std::vector<DuplicateSample> pairs;
  std::ranges::copy_if(survey.duplicates, std::back_inserter(pairs), [&](const auto& pair) {
    return pair.first.set == first && pair.again.set == again;
  });
  return pairs;
}

// A heading with a count, and the first lines.
std::string List(const std::string& heading, size_t count, const std::vector<std::string>& lines) {
  if (count == 0) return "";
  std::string text = absl::StrCat("\n", heading, "\n");
  for (const std::string& line : lines) absl::StrAppend(&text, "  ", line, "\n");
  if (count > lines.size()) {
    absl::StrAppendFormat(&text, "  ... and %d more (--json lists all)\n", count - lines.size());
  }
  return text;
}

std::string Duplicates(const Survey& survey, std::span<const SurveyedSet> sets, size_t first,
                       size_t again) {
  const std::vector<DuplicateSample> pairs = PairsOf(survey, first, again);
  std::vector<std::string> lines;
  for (size_t i = 0; i < std::min(kShown, pairs.size()); ++i) {
    lines.push_back(absl::StrCat(NameOfSample(pairs[i].again, sets), "  is  ",
                                 NameOfSample(pairs[i].first, sets),
                                 pairs[i].other_label ? "  with another label" : ""));
  }
  return List(first == again
                  ? absl::StrCat("twice in ", sets[first].name, ":")
                  : absl::StrCat("in both ", sets[first].name, " and ", sets[again].name, ":"),
              pairs.size(), lines);
}

}  // namespace

std::string SurveyText(const Survey& survey, std::span<const SurveyedSet> sets,
                       const std::vector<std::string>& classes) {
  const auto head = [&](const char* first) {
    Row row = {first};
    for (const SurveyedSet& set : sets) row.push_back(set.name);
    return row;
  };
  std::vector<Row> rows = {{"all"}, {"unreadable"}, {"there twice"}};
  for (size_t s = 0; s < sets.size(); ++s) {
    rows[0].push_back(absl::StrCat(survey.sets[s].samples));
    rows[1].push_back(absl::StrCat(survey.sets[s].unreadable.size()));
    rows[2].push_back(absl::StrCat(PairsOf(survey, s, s).size()));
  }
  std::string text = Table(head("samples"), std::move(rows)).substr(1);
  text += Table(head("class"), ClassRows(survey, classes));
  text += Table(head("pictures"), Counts(
                                      survey, std::set<std::string>(),
                                      [](const SetSurvey& set) -> const auto& { return set.kinds; },
                                      [](const std::string& kind) { return kind; }));
  text += Table(head("width x height"), SizeRows(survey));
  text += Table(head("values of input"), RangeRows(survey));
  for (size_t s = 0; s < sets.size(); ++s) {
    const std::vector<UnreadableSample>& unreadable = survey.sets[s].unreadable;
    std::vector<std::string> lines;
    for (size_t i = 0; i < std::min(kShown, unreadable.size()); ++i) {
      lines.push_back(unreadable[i].reason);
    }
    text += List(absl::StrCat("unreadable, of ", sets[s].name, ":"), unreadable.size(), lines);
  }
  for (size_t first = 0; first < sets.size(); ++first) {
    for (size_t again = first; again < sets.size(); ++again) {
      text += Duplicates(survey, sets, first, again);
    }
  }
  return text;
}

std::string SurveyJson(const Survey& survey, std::span<const SurveyedSet> sets,
                       const std::vector<std::string>& classes) {
  using Json = nlohmann::ordered_json;
  Json json = {{"sets", Json::object()}, {"duplicates", Json::array()}};
  for (size_t s = 0; s < sets.size(); ++s) {
    const SetSurvey& set = survey.sets[s];
    Json& of = json["sets"][sets[s].name];
    of = {{"samples", set.samples},  {"classes", Json::object()}, {"pictures", set.kinds},
          {"sizes", Json::object()}, {"reals", Json::object()},   {"unreadable", Json::array()}};
    for (const auto& [number, samples] : set.classes) {
      of["classes"][NameOfClass(number, classes)] = samples;
    }
    for (const auto& [name, size] : SomeSizes(set)) of["sizes"][name] = {size.height, size.width};
    for (const auto& [input, range] : set.reals) of["reals"][input] = {range.least, range.most};
    for (const UnreadableSample& sample : set.unreadable) {
      of["unreadable"].push_back({{"sample", sample.index}, {"reason", sample.reason}});
    }
  }
  const auto sample = [&](const SampleOfSet& of) -> Json {
    return {{"set", sets[of.set].name}, {"sample", of.index}, {"name", NameOfSample(of, sets)}};
  };
  for (const DuplicateSample& pair : survey.duplicates) {
    json["duplicates"].push_back({{"first", sample(pair.first)},
                                  {"again", sample(pair.again)},
                                  {"other_label", pair.other_label}});
  }
  json["sound"] = survey.sound();
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string FaultsOf(const Survey& survey, std::span<const SurveyedSet> sets) {
  int64_t unreadable = 0;
  for (const SetSurvey& set : survey.sets) unreadable += std::ssize(set.unreadable);
  std::vector<std::string> faults;
  if (unreadable > 0)
    faults.push_back(absl::StrCat(Counted(unreadable, "sample"), " cannot be read"));
  for (size_t first = 0; first < sets.size(); ++first) {
    for (size_t again = first + 1; again < sets.size(); ++again) {
      const auto shared = static_cast<int64_t>(PairsOf(survey, first, again).size());
      if (shared == 0) continue;
      faults.push_back(absl::StrCat(Counted(shared, "sample"), shared == 1 ? " is" : " are",
                                    " in both ", sets[first].name, " and ", sets[again].name));
    }
  }
  return absl::StrJoin(faults, ", and ");
}

}  // namespace gyre
