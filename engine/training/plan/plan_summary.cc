#include "engine/training/plan/plan_summary.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "engine/runtime/count_text.h"
#include "engine/runtime/wrapped_text.h"
#include "engine/training/plan/plan_report.h"

namespace gyre {
namespace {

constexpr size_t kLabel = 15;
// The cells of a layer's row.
enum SummaryCell : size_t { kName, kType, kOutput, kParameters, kFlops, kCells };
constexpr size_t kNumber = 10, kLeastColumn = 10;  // columns

std::string Line(std::string label, const std::string& text) {
  label.resize(kLabel, ' ');
  return Wrapped(label, text, kLabel) + "\n";
}

using NamedBytes = std::pair<std::string, size_t>;  // what, and bytes

// Those of some bytes.
std::string JoinBytes(const std::vector<NamedBytes>& parts) {
  std::vector<std::string> texts;
  for (const auto& [name, bytes] : parts) {
    if (bytes > 0) texts.push_back(absl::StrCat(name, " ", Mebibytes(bytes)));
  }
  return texts.empty() ? "" : absl::StrCat(": ", absl::StrJoin(texts, ", "));
}

// A table of 80 columns.  Where it is wider, numbers and types give room to the names, which tell
// rows apart: a name is never cut; what its column does not hold has a line of its own.
std::string LayersText(const PlanSummary& plan) {
  std::vector<std::array<std::string, kCells>> rows = {
      {"layer", "type", "output", "parameters", "MFLOP"}};
  for (const LayerRow& row : plan.layers) {
    rows.push_back({row.layer, row.type, row.output, absl::StrCat(row.parameters),
                    absl::StrFormat("%.1f", row.forward_flops / 1e6)});
  }
  std::array<size_t, kCells> widths = {0, 0, 0, kNumber, kNumber}, least = {};
  for (const auto& row : rows) {
    for (size_t c = 0; c < kCells; ++c) least[c] = std::max(least[c], row[c].size());
  }
  size_t width = 2 * (kCells - 1);
  for (size_t c = 0; c < kCells; ++c) width += widths[c] = std::max(widths[c], least[c]);
  for (const size_t c : {kName, kType, kOutput}) least[c] = std::min(least[c], kLeastColumn);
  for (const size_t c : {kFlops, kType, kName, kOutput}) {
    const size_t less =
        std::min(widths[c] - least[c], width - std::min(width, size_t{kTextColumns}));
    widths[c] -= less;
    width -= less;
  }
  std::string text;
  for (std::array<std::string, kCells>& row : rows) {
    if (row[kName].size() > widths[kName]) {
      absl::StrAppend(&text, row[kName], "\n");
      row[kName].clear();
    }
    for (size_t c = 0; c < kCells; ++c) {
      const int columns = static_cast<int>(widths[c]);
      absl::StrAppendFormat(&text, "%s%*s", c > 0 ? "  " : "", c < kParameters ? -columns : columns,
                            Cut(row[c], widths[c]));
    }
    text += "\n";
  }
  return text;
}

std::string MemoryText(const PlanSummary& plan) {
  const PlanSummary::Bytes& bytes = plan.bytes;
  const std::string exchange =
      plan.communication.how.starts_with("parameter server") ? "parameter server" : "sums";
  std::vector<NamedBytes> device = {
      {"nets", bytes.nets}, {"gradients", bytes.gradients}, {exchange, bytes.exchange}};
  const std::vector<NamedBytes> host = {{"batches", bytes.batches},
                                        {"a checkpoint", bytes.checkpoint},
                                        {"rows of tables", bytes.rows},
                                        {"parameter server", bytes.server},
                                        {"pages", bytes.pages}};
  if (plan.host_is_device) {
    for (const auto& [name, more] : host) {
      const auto same = std::ranges::find(device, name, &NamedBytes::first);
      if (same == device.end()) {
        device.emplace_back(name, more);
      } else {
        same->second += more;
      }
    }
    return Line("memory", absl::StrCat(Mebibytes(bytes.device() + bytes.host()),
                                       " MiB beside program and data", JoinBytes(device)));
  }
  const std::string of = absl::StrCat(" of ", Mebibytes(bytes.capacity));
  return Line("device memory",
              absl::StrCat(Mebibytes(bytes.device()), of, " MiB", JoinBytes(device))) +
         Line("host memory",
              absl::StrCat(Mebibytes(bytes.host()), " MiB, pinned", JoinBytes(host)));
}

// Of a run whose parameters do not all train at once.
std::string PhasesText(const PlanSummary& plan) {
  if (plan.phases.size() < 2) return "";
  std::string text;
  for (const PlanSummary::PlannedPhase& phase : plan.phases) {
    const PlanSummary::Bytes& bytes = phase.bytes;
    std::vector<NamedBytes> parts = {{"device", bytes.device()}, {"host", bytes.host()}};
    if (plan.host_is_device) parts = {{"memory", bytes.device() + bytes.host()}};
    parts.emplace_back("disk", bytes.disk);
    parts.emplace_back("optimizer", bytes.optimizer);
    parts.emplace_back("gradients", phase.communication.gradient_bytes);
    text += Line(text.empty() ? "phases" : "",
                 absl::StrFormat("from step %d: %d parameters train; MiB%s", phase.first_step,
                                 phase.parameters, JoinBytes(parts)));
  }
  return text;
}

}  // namespace

std::vector<LayerRow> LayerRows(const ModelPlan& plan) {
  const NetSpec& net = plan.train->spec;
  const auto shape_of = [&net](std::string* out, int output) {
    out->append(net.values[output].shape.ToString());
  };
  std::vector<LayerRow> rows;
  for (const NetNode& node : net.nodes) {
    LayerRow& row = rows.emplace_back(LayerRow{.layer = node.config->name(),
                                               .type = TypeOf(net, node),
                                               .output = absl::StrJoin(node.outputs, " ", shape_of),
                                               .forward_flops = node.spec.forward_flops});
    for (int p : node.parameters) {
      if (p < 0) continue;
      const Parameter& parameter = plan.parameters.all()[p];
      const bool own = parameter.layer == node.config->name();  // or another's, too
      if (own && parameter.spec.kind == StateKind::kParameter) {
        row.parameters += parameter.spec.canonical.elements();
      }
    }
    if (node.backward) row.backward_flops = node.spec.backward_flops;
  }
  return rows;
}

LayerRow Total(const std::vector<LayerRow>& rows) {
  LayerRow total;
  for (const LayerRow& row : rows) {
    total.parameters += row.parameters;
    total.forward_flops += row.forward_flops;
    total.backward_flops += row.backward_flops;
  }
  return total;
}

int64_t TrainedElements(const ModelPlan& plan) {
  int64_t elements = 0;
  for (const Parameter& parameter : plan.parameters.all()) {
    if (parameter.trained()) elements += parameter.spec.canonical.elements();
  }
  return elements;
}

std::string PlanText(const PlanSummary& plan, const std::string& details) {
  const LayerRow total = Total(plan.layers);
  const PlanSummary::Communication& sent = plan.communication;
  std::string text = LayersText(plan);
  text += Line("parameters",
               absl::StrFormat("%d; forward %.1f, backward %.1f MFLOP for %s", total.parameters,
                               total.forward_flops / 1e6, total.backward_flops / 1e6,
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
  std::string gradients = absl::StrCat(Mebibytes(sent.gradient_bytes), " MiB");
  // One rank sends none.
  if (plan.ranks > 1) absl::StrAppend(&gradients, " in ", Counted(sent.buckets, "bucket"));
  text += Line("gradients", gradients);
  if (!sent.how.empty()) {
    text += Line("communication", absl::StrFormat("%.1f MiB a step from each rank, %s",
                                                  sent.sent_bytes / (1 << 20), sent.how));
  }
  if (plan.shares_optimizer) {
    text += Line("optimizer", absl::StrCat("sharded: each rank holds ",
                                           Mebibytes(plan.bytes.optimizer), " MiB of its state"));
  }
  if (plan.bytes.carried > 0) {
    text += Line("carried", absl::StrCat(Counted(static_cast<int64_t>(plan.bytes.carried), "byte"),
                                         " of layers' state, from step to step"));
  }
  if (plan.bytes.test > 0) {
    text += Line("test", absl::StrCat(Mebibytes(plan.bytes.test), " MiB of host memory"));
  }
  if (plan.paged_seconds > 0) {
    text += Line("paging", absl::StrFormat("%.1f ms an iteration, %.1f with all in device memory "
                                           "(by FLOPs)",
                                           1e3 * plan.paged_seconds, 1e3 * plan.resident_seconds));
  }
  text += PhasesText(plan);
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
  const LayerRow total = Total(plan.layers);
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
  json.update({{"parameters", total.parameters},
               {"forward_flops", total.forward_flops},
               {"backward_flops", total.backward_flops}});
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
  json["phases"] = Json::array();
  for (const PlanSummary::PlannedPhase& phase : plan.phases) {
    json["phases"].push_back({{"first_step", phase.first_step},
                              {"parameters", phase.parameters},
                              {"gradient_bytes", phase.communication.gradient_bytes},
                              {"sent_bytes", phase.communication.sent_bytes},
                              {"device", phase.bytes.device()},
                              {"host", phase.bytes.host()},
                              {"disk", phase.bytes.disk},
                              {"optimizer", phase.bytes.optimizer}});
  }
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
