#include "engine/training/predict/class_report.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/data/files/atomic_file.h"
#include "engine/data/pictures/sheet.h"
#include "engine/data/tensors/csv_cell.h"
#include "engine/runtime/check.h"

namespace gyre {
namespace {

double Share(int64_t part, int64_t all) {
  return all == 0 ? 0 : static_cast<double>(part) / static_cast<double>(all);
}

}  // namespace

absl::Status ClassReport::CheckClasses(int64_t classes) {
  constexpr int64_t kMost = 4096;
  if (classes <= kMost) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat(
      "expected at most %d classes, as each pair of them is counted, got %d", kMost, classes));
}

ClassReport::ClassReport(std::vector<std::string> names, int top)
    : confusion_(names.size() * names.size()), top_(top) {
  GYRE_CHECK(CheckClasses(std::ssize(names)).ok());
  for (std::string& name : names) classes_.push_back({.name = std::move(name)});
}

void ClassReport::Add(const std::string& sample, int64_t label, std::span<const double> shares) {
  GYRE_CHECK(shares.size() == classes_.size() && label >= 0 &&
             label < static_cast<int64_t>(shares.size()));
  const auto own = static_cast<size_t>(label);
  const auto best = static_cast<size_t>(std::ranges::max_element(shares) - shares.begin());
  int64_t ahead = 0;  // classes that are likelier
  for (size_t c = 0; c < shares.size(); ++c) {
    ahead += shares[c] > shares[own] || (shares[c] == shares[own] && c < own);
  }
  ++samples_;
  ClassCounts& counts = classes_[own];
  ++counts.samples;
  counts.correct += best == own;
  counts.in_top += ahead < top_;
  ++classes_[best].predicted;
  ++confusion_[own * classes_.size() + best];
  // A NaN of a diverged net is no order to sort by.
  const double loss =
      shares[own] > 0 ? -std::log(shares[own]) : std::numeric_limits<double>::infinity();
  const auto costlier = [](const Costly& a, const Costly& b) { return a.loss > b.loss; };
  if (worst_.size() == kWorst && loss <= worst_.front().loss) return;
  worst_.push_back({loss, sample, own, best, shares[own]});
  std::ranges::push_heap(worst_, costlier);
  if (worst_.size() <= kWorst) return;
  std::ranges::pop_heap(worst_, costlier);
  worst_.pop_back();
}

double ClassReport::ShareOf(int64_t ClassCounts::*count) const {
  int64_t sum = 0;
  for (const ClassCounts& counts : classes_) sum += counts.*count;
  return Share(sum, samples_);
}

std::vector<size_t> ClassReport::MostConfused(size_t most) const {
  std::vector<size_t> pairs;
  for (size_t pair = 0; pair < confusion_.size(); ++pair) {
    if (pair % (classes_.size() + 1) != 0 && confusion_[pair] > 0) pairs.push_back(pair);
  }
  most = std::min(most, pairs.size());
  std::ranges::partial_sort(
      pairs, pairs.begin() + static_cast<std::ptrdiff_t>(most), [this](size_t a, size_t b) {
        return confusion_[a] != confusion_[b] ? confusion_[a] > confusion_[b] : a < b;
      });
  pairs.resize(most);
  return pairs;
}

std::vector<ClassReport::Costly> ClassReport::Worst() const {
  std::vector<Costly> worst = worst_;
  std::ranges::sort(worst, std::greater(), &Costly::loss);
  return worst;
}

std::string ClassReport::Json() const {
  using Json = nlohmann::ordered_json;
  constexpr size_t kPairs = 100;
  Json classes = Json::array(), confused = Json::array(), worst = Json::array();
  const std::string in_top = absl::StrCat("in_top_", top_);
  for (const ClassCounts& of : classes_) {
    classes.push_back({{"class", of.name},
                       {"samples", of.samples},
                       {"right", of.correct},
                       {in_top, of.in_top},
                       {"predicted", of.predicted}});
  }
  for (const size_t pair : MostConfused(kPairs)) {
    confused.push_back({{"label", classes_[pair / classes_.size()].name},
                        {"predicted", classes_[pair % classes_.size()].name},
                        {"samples", confusion_[pair]}});
  }
  for (const Costly& of : Worst()) {
    worst.push_back({{"sample", of.sample},
                     {"label", classes_[of.label].name},
                     {"predicted", classes_[of.predicted].name},
                     {"share_of_label", of.share},
                     {"loss", of.loss}});  // null where it is infinite
  }
  const Json report = {{"top_1", ShareOf(&ClassCounts::correct)},
                       {absl::StrCat("top_", top_), ShareOf(&ClassCounts::in_top)},
                       {"classes", classes},
                       {"confused", confused},
                       {"worst", worst}};
  // A path need not be UTF-8.
  return report.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string ClassReport::Text() const {
  std::string text = absl::StrFormat("top-1 %.4f\n", ShareOf(&ClassCounts::correct));
  if (static_cast<int>(classes_.size()) > top_) {
    absl::StrAppendFormat(&text, "top-%d %.4f\n", top_, ShareOf(&ClassCounts::in_top));
  }
  constexpr size_t kMost = 20, kWidth = 24;
  std::vector<const ClassCounts*> order;
  for (const ClassCounts& counts : classes_) order.push_back(&counts);
  std::ranges::stable_sort(order, {}, [](const ClassCounts* counts) {
    return counts->samples == 0 ? 2 : Share(counts->correct, counts->samples);
  });
  absl::StrAppendFormat(&text, "%-*s %8s %8s %9s\n", kWidth, "class", "samples", "right",
                        "precision");
  for (size_t i = 0; i < std::min(kMost, order.size()); ++i) {
    const ClassCounts& counts = *order[i];
    absl::StrAppendFormat(&text, "%-*s %8d %8.4f %9.4f\n", kWidth, counts.name, counts.samples,
                          Share(counts.correct, counts.samples),
                          Share(counts.correct, counts.predicted));
  }
  if (order.size() > kMost) {
    absl::StrAppendFormat(&text, "... and %d classes of which more is right\n",
                          order.size() - kMost);
  }
  constexpr size_t kPairs = 5;
  for (const size_t pair : MostConfused(kPairs)) {
    absl::StrAppendFormat(&text, "%d of %s taken for %s\n", confusion_[pair],
                          classes_[pair / classes_.size()].name,
                          classes_[pair % classes_.size()].name);
  }
  return text;
}

absl::Status ClassReport::Write(const std::string& folder) const {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return absl::ErrnoToStatus(error.value(), folder);
  std::string classes = absl::StrCat("class,samples,right,in_top_", top_, ",predicted\n");
  std::string header = "label", confusion;
  NamedSquare square{.rows = "labels", .columns = "predictions", .names = {}, .shares = {}};
  auto confused = confusion_.begin();
  for (const ClassCounts& counts : classes_) {
    const std::string cell = CsvCell(counts.name);
    absl::StrAppend(&classes, cell, ",", counts.samples, ",", counts.correct, ",", counts.in_top,
                    ",", counts.predicted, "\n");
    absl::StrAppend(&header, ",", cell);
    confusion += cell;
    square.names.push_back(counts.name);
    for (size_t c = 0; c < classes_.size(); ++c, ++confused) {
      absl::StrAppend(&confusion, ",", *confused);
      square.shares.push_back(Share(*confused, counts.samples));
    }
    confusion += "\n";
  }
  confusion.insert(0, header + "\n");
  std::string costly = "sample,label,predicted,share_of_label,loss\n";
  for (const Costly& of : Worst()) {
    absl::StrAppendFormat(&costly, "%s,%s,%s,%.6g,%.6g\n", CsvCell(of.sample),
                          CsvCell(classes_[of.label].name), CsvCell(classes_[of.predicted].name),
                          of.share, of.loss);
  }
  ASSIGN_OR_RETURN(const std::string png, DrawSquare(square));
  RETURN_IF_ERROR(WriteFileAtomically(folder + "/classes.csv", classes));
  RETURN_IF_ERROR(WriteFileAtomically(folder + "/confusion.csv", confusion));
  RETURN_IF_ERROR(WriteFileAtomically(folder + "/worst.csv", costly));
  return WriteFileAtomically(folder + "/confusion.png", png);
}

}  // namespace gyre
