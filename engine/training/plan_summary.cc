#include "engine/training/plan_summary.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "engine/runtime/count_text.h"
#include "engine/runtime/wrapped_text.h"

namespace gyre {
namespace {

constexpr size_t kLabel = 15;
constexpr size_t kNumbers = 2 + 10 + 2 + 10;  // of a layer's row: parameters and MFLOP
constexpr size_t kLeastColumn = 8;

std::string Mebibytes(size_t bytes) {
  return absl::StrFormat("%.1f", static_cast<double>(bytes) / (1 << 20));
}

std::string Line(std::string label, const std::string& text) {
  label.resize(kLabel, ' ');
  return Wrapped(label, text, kLabel) + "\n";
}

// Those of some bytes.
std::string Parts(const std::vector<std::pair<const char*, size_t>>& parts) {
  std::vector<std::string> texts;
  for (const auto& [name, bytes] : parts) {
    if (bytes > 0) texts.push_back(absl::StrCat(name, " ", Mebibytes(bytes)));
  }
  return texts.empty() ? "" : absl::StrCat(": ", absl::StrJoin(texts, ", "));
}

std::string LayersText(const PlanSummary& plan) {
  std::vector<std::array<std::string, 3>> cells = {{"layer", "type", "output"}};
  for (const LayerRow& row : plan.layers) cells.push_back({row.layer, row.type, row.output});
  std::array<size_t, 3> widths = {};
  for (const auto& row : cells) {
    for (size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], row[c].size());
  }
  while (widths[0] + widths[1] + widths[2] + 4 + kNumbers > kTextColumns) {
    size_t& widest = *std::ranges::max_element(widths);
    if (widest <= kLeastColumn) break;
    --widest;
  }
  std::string text;
  for (size_t r = 0; r < cells.size(); ++r) {
    for (size_t c = 0; c < widths.size(); ++c) {
      absl::StrAppendFormat(&text, "%s%-*s", c > 0 ? "  " : "", static_cast<int>(widths[c]),
                            Cut(cells[r][c], widths[c]));
    }
    if (r == 0) {
      absl::StrAppendFormat(&text, "  %10s  %10s\n", "parameters", "MFLOP");
    } else {
      const LayerRow& row = plan.layers[r - 1];
      absl::StrAppendFormat(&text, "  %10d  %10.1f\n", row.parameters, row.forward_flops / 1e6);
    }
  }
  return text;
}

struct Totals {
  int64_t parameters = 0;
  double forward = 0, backward = 0;
};
Totals TotalsOf(const PlanSummary& plan) {
  Totals totals;
  for (const LayerRow& row : plan.layers) {
    totals.parameters += row.parameters;
    totals.forward += row.forward_flops;
    totals.backward += row.backward_flops;
  }
  return totals;
}

std::string MemoryText(const PlanSummary& plan) {
  const PlanSummary::Bytes& bytes = plan.bytes;
  const std::string exchange =
      plan.communication.how.starts_with("parameter server") ? "parameter server" : "sums";
  std::vector<std::pair<const char*, size_t>> device = {
      {"nets", bytes.nets}, {"gradients", bytes.gradients}, {exchange.c_str(), bytes.exchange}};
  std::vector<std::pair<const char*, size_t>> host = {{"batches", bytes.batches},
                                                      {"a checkpoint", bytes.checkpoint},
                                                      {"rows of tables", bytes.rows},
                                                      {"parameter server", bytes.server},
                                                      {"pages", bytes.pages}};
  if (plan.host_is_device) {
    device.insert(device.end(), host.begin(), host.end());
    return Line("memory", absl::StrCat(Mebibytes(bytes.device() + bytes.host()),
                                       " MiB beside program and data", Parts(device)));
  }
  const std::string of = absl::StrCat(" of ", Mebibytes(bytes.capacity));
  return Line("device memory", absl::StrCat(Mebibytes(bytes.device()), of, " MiB", Parts(device))) +
         Line("host memory", absl::StrCat(Mebibytes(bytes.host()), " MiB, pinned", Parts(host)));
}

}  // namespace

std::string PlanText(const PlanSummary& plan, const std::string& details) {
  const Totals totals = TotalsOf(plan);
  const PlanSummary::Communication& sent = plan.communication;
  std::string text = LayersText(plan);
  text += Line("parameters",
               absl::StrFormat("%d; forward %.1f, backward %.1f MFLOP for %s", totals.parameters,
                               totals.forward / 1e6, totals.backward / 1e6,
                               Counted(plan.rank_samples, "sample")));
  std::string steps =
      plan.steps < 0 ? absl::StrCat("as many as the data make") : absl::StrCat(plan.steps);
  absl::StrAppend(&steps, plan.steps < 0 ? ", each of " : " of ",
                  Counted(plan.batch * plan.accumulate, "sample"));
  if (plan.accumulate > 1) {
    absl::StrAppend(&steps, " in ", Counted(plan.accumulate, "batch"));
  }
  text += Line("steps", absl::StrCat(steps, " over ", Counted(plan.ranks, "rank")));
  text += MemoryText(plan);
  text += Line("gradients", absl::StrCat(Mebibytes(sent.gradient_bytes), " MiB in ",
                                         Counted(sent.buckets, "bucket")));
  if (!sent.how.empty()) {
    text += Line("communication", absl::StrFormat("%.1f MiB a step from each rank, %s",
                                                  sent.sent_bytes / (1 << 20), sent.how));
  }
  if (plan.shares_optimizer) {
    text += Line("optimizer", absl::StrCat("shared out: ", Mebibytes(plan.bytes.optimizer),
                                           " MiB of its state on this rank"));
  }
  if (plan.bytes.carried > 0) {
    text += Line("carried", absl::StrCat(Counted(static_cast<int64_t>(plan.bytes.carried), "byte"),
                                         " of rows, from step to step"));
  }
  if (plan.bytes.test > 0) {
    text += Line("test", absl::StrCat(Mebibytes(plan.bytes.test), " MiB of host memory"));
  }
  if (plan.paged_seconds > 0) {
    text += Line("paging", absl::StrFormat("%.1f ms an iteration, %.1f with all in device memory "
                                           "(by FLOPs)",
                                           1e3 * plan.paged_seconds, 1e3 * plan.resident_seconds));
  }
  if (plan.bytes.disk > 0) {
    text += Line("disk",
                 absl::StrCat(Mebibytes(plan.bytes.disk), " MiB of pages in ", plan.page_folder));
  }
  text += details;
  for (const std::string& note : plan.notes) absl::StrAppend(&text, Wrapped("", note), "\n");
  for (const std::string& warning : plan.warnings) {
    absl::StrAppend(&text, Wrapped("warning: ", warning), "\n");
  }
  return text;
}

std::string PrecisionsText(const PlanSummary& plan) {
  std::string text =
      absl::StrFormat("%-9s %11s %10s %9s %9s %9s %11s\n", "MiB in", "activations", "parameters",
                      "masters", "optimizer", "gradients", "sent a step");
  for (const PrecisionBytes& of : plan.precisions) {
    const std::string head = absl::StrFormat("%-9s ", std::string(DTypeName(of.precision)));
    if (!of.refusal.empty()) {
      absl::StrAppend(&text, Wrapped(head, of.refusal, head.size()), "\n");
      continue;
    }
    text += head;
    absl::StrAppendFormat(&text, "%11s %10s %9s %9s %9s %11s\n", Mebibytes(of.activations),
                          Mebibytes(of.parameters), Mebibytes(of.masters), Mebibytes(of.optimizer),
                          Mebibytes(of.gradients), Mebibytes(static_cast<size_t>(of.sent)));
  }
  return text;
}

std::string PlanJson(const PlanSummary& plan) {
  using Json = nlohmann::ordered_json;
  const Totals totals = TotalsOf(plan);
  const PlanSummary::Bytes& bytes = plan.bytes;
  Json json = {{"net", plan.net},
               {"device", plan.device},
               {"ranks", plan.ranks},
               {"rank", plan.rank},
               {"batch", plan.batch},
               {"accumulate", plan.accumulate},
               {"rank_samples", plan.rank_samples}};
  json["samples"] = plan.samples < 0 ? Json() : Json(plan.samples);
  json["steps"] = plan.steps < 0 ? Json() : Json(plan.steps);
  json.update({{"parameters", totals.parameters},
               {"forward_flops", totals.forward},
               {"backward_flops", totals.backward}});
  json["layers"] = Json::array();
  for (const LayerRow& row : plan.layers) {
    json["layers"].push_back({{"layer", row.layer},
                              {"type", row.type},
                              {"output", row.output},
                              {"parameters", row.parameters},
                              {"forward_flops", row.forward_flops},
                              {"backward_flops", row.backward_flops}});
  }
  json["communication"] = {{"buckets", plan.communication.buckets},
                           {"gradient_bytes", plan.communication.gradient_bytes},
                           {"sent_bytes", plan.communication.sent_bytes},
                           {"how", plan.communication.how}};
  json["bytes"] = {{"nets", bytes.nets},           {"gradients", bytes.gradients},
                   {"exchange", bytes.exchange},   {"device", bytes.device()},
                   {"batches", bytes.batches},     {"checkpoint", bytes.checkpoint},
                   {"rows", bytes.rows},           {"server", bytes.server},
                   {"pages", bytes.pages},         {"host", bytes.host()},
                   {"test", bytes.test},           {"disk", bytes.disk},
                   {"optimizer", bytes.optimizer}, {"carried", bytes.carried}};
  json["paged_seconds"] = plan.paged_seconds > 0 ? Json(plan.paged_seconds) : Json();
  json["resident_seconds"] = plan.resident_seconds;
  json["precisions"] = Json::object();
  for (const PrecisionBytes& of : plan.precisions) {
    Json& row = json["precisions"][std::string(DTypeName(of.precision))];
    if (!of.refusal.empty()) {
      row = {{"refusal", of.refusal}};
      continue;
    }
    row = {{"activations", of.activations}, {"parameters", of.parameters}, {"masters", of.masters},
           {"optimizer", of.optimizer},     {"gradients", of.gradients},   {"sent", of.sent}};
  }
  json["notes"] = plan.notes;
  json["warnings"] = plan.warnings;
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace gyre
