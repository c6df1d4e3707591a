#include "memory/report/paging_text.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "memory/trace/trace_blocks.h"
#include "memory/trace/trace_text.h"

namespace gyre {
namespace {

constexpr size_t kBlocksInTable = 12;
constexpr size_t kStaysInRow = 2;
constexpr size_t kWhen = 28, kName = kColumns - 2 - 10 - 2 - 6 - 2 - kWhen - 2;  // columns

// Where a value is between its stays on the device.
enum Where { kAlways, kInUse, kHost, kDisk, kMadeAgain };
struct WhereText {
  const char *column, *text;
};
constexpr WhereText kWhere[] = {{"device", "on the device for good"},
                                {"in use", "on the device while in use"},
                                {"host", "in host memory between"},
                                {"disk", "on disk between"},
                                {"again", "made again"}};

struct Row {
  std::string name;
  size_t bytes = 0;
  Where where = kAlways;
  std::string when;
};

std::string StaysText(const std::vector<const Stay*>& stays) {
  std::vector<std::string> parts;
  for (size_t s = 0; s < std::min(stays.size(), kStaysInRow); ++s) {
    const auto [first, last] = std::pair(stays[s]->first_step, stays[s]->last_step);
    parts.push_back(first == last ? absl::StrCat(first) : absl::StrCat(first, "..", last));
  }
  std::string text = absl::StrJoin(parts, ", ");
  if (stays.size() > kStaysInRow) absl::StrAppend(&text, " and ", stays.size() - kStaysInRow);
  return text;
}

std::vector<Row> RowsOf(const AccessTrace& trace, const PagingPlan& plan) {
  std::vector<Row> rows;
  const std::vector<bool> in_use = RootsInUse(trace);
  for (size_t i = 0; i < trace.states.size(); ++i) {
    const TraceState& state = trace.states[i];
    if (!in_use[i] || state.arena != Arena::kDevice || state.bytes == 0) continue;
    if (plan.states[i].block >= 0) continue;
    rows.push_back({.name = state.name, .bytes = state.bytes, .when = "always"});
  }
  std::vector<std::vector<const Stay*>> stays(plan.blocks.size());
  for (const Stay& stay : plan.stays) stays[stay.block].push_back(&stay);
  for (size_t b = 0; b < plan.blocks.size(); ++b) {
    const PagedBlock& block = plan.blocks[b];
    std::string name = trace.states[block.states.front()].name;
    if (block.states.size() > 1) absl::StrAppend(&name, " and ", block.states.size() - 1, " more");
    const auto fetches = std::ranges::count_if(stays[b], &Stay::fetched);
    const auto writes = std::ranges::count_if(stays[b], &Stay::written_back);
    std::string when = StaysText(stays[b]);
    if (fetches > 0) absl::StrAppend(&when, "; in ", fetches);
    if (writes > 0) absl::StrAppend(&when, fetches > 0 ? ", " : "; ", "out ", writes);
    const Where where = block.page == kNoPage ? (stays[b].size() > 1 ? kMadeAgain : kInUse)
                                              : (block.on_disk ? kDisk : kHost);
    rows.push_back({std::move(name), block.bytes, where, std::move(when)});
  }
  return rows;
}

std::string Milliseconds(double seconds) { return absl::StrFormat("%.3f ms", 1e3 * seconds); }

}  // namespace

std::string DescribePlaces(const AccessTrace& trace, const PagingPlan& plan) {
  std::vector<Row> rows = RowsOf(trace, plan);
  struct BlockTotal {
    int64_t blocks = 0;
    size_t bytes = 0;
  };
  std::array<BlockTotal, std::size(kWhere)> sums;
  for (const Row& row : rows) {
    ++sums[row.where].blocks;
    sums[row.where].bytes += row.bytes;
  }
  std::string text = absl::StrFormat("%-36s%8s %12s\n", "where", "blocks", "size");
  for (size_t where = 0; where < sums.size(); ++where) {
    if (sums[where].blocks == 0) continue;
    absl::StrAppendFormat(&text, "  %-8s%-26s%8d %12s\n", kWhere[where].column, kWhere[where].text,
                          sums[where].blocks, ShortBytes(sums[where].bytes));
  }
  std::ranges::stable_sort(rows, std::greater(), &Row::bytes);
  const auto row = [&text](const std::string& size, const char* where, const std::string& when,
                           const std::string& name) {
    absl::StrAppendFormat(&text, "  %10s  %-6s  %-*s  %s\n", size, where, static_cast<int>(kWhen),
                          ShortText(when, kWhen), ShortText(name, kName));
  };
  row("size", "where", absl::StrCat("at steps of ", plan.order.size(), "; copied"), "the largest");
  const size_t shown = std::min(rows.size(), kBlocksInTable);
  for (size_t r = 0; r < shown; ++r) {
    row(ShortBytes(rows[r].bytes), kWhere[rows[r].where].column, rows[r].when, rows[r].name);
  }
  if (shown < rows.size()) {
    const size_t rest =
        std::accumulate(rows.begin() + static_cast<int64_t>(shown), rows.end(), size_t{0},
                        [](size_t n, const Row& r) { return n + r.bytes; });
    absl::StrAppendFormat(&text, "  %10s  %d smaller ones\n", ShortBytes(rest),
                          rows.size() - shown);
  }
  return text;
}

std::string RoundingText(const PagingPlan& plan) {
  if (!plan.rounds()) return "";
  std::string text = absl::StrCat("steps ", absl::StrJoin(plan.order, " "), "\n");
  for (const Stay& stay : plan.stays) {
    const PagedBlock& block = plan.blocks[stay.block];
    if (block.page_bytes == block.bytes) continue;
    absl::StrAppend(&text, block.states.front(), " ", stay.first_step, " to ", stay.last_step,
                    stay.fetched ? " fetched" : "", stay.written_back ? " written\n" : "\n");
  }
  return text;
}

double WorkSeconds(const AccessTrace& trace) {
  double seconds = 0;
  for (const TraceStep& step : trace.steps) seconds += step.seconds;
  return seconds;
}

std::string DescribeTimes(const AccessTrace& trace, const PagingPlan& plan,
                          const PagingCosts& costs) {
  const double resident = WorkSeconds(trace);
  std::vector<bool> ran(trace.steps.size(), false);
  int64_t again = 0;
  double again_seconds = 0;
  for (const int step : plan.order) {
    if (ran[step]) {
      ++again;
      again_seconds += trace.steps[step].seconds;
    }
    ran[step] = true;
  }
  std::string text = absl::StrFormat(
      "an iteration: expected %s, all in memory %s: %.1f %% as fast\n", Milliseconds(plan.seconds),
      Milliseconds(resident), plan.seconds > 0 ? 100 * resident / plan.seconds : 100);
  absl::StrAppendFormat(&text,
                        "  it waits %s for copies\n"
                        "  it fetches %s in %d (%.3g GB/s)\n"
                        "  it writes %s back in %d (%.3g GB/s)\n",
                        Milliseconds(plan.stalled_seconds), ShortBytes(plan.fetched_bytes),
                        std::ranges::count_if(plan.stays, &Stay::fetched),
                        costs.to_device_bytes_per_s / 1e9, ShortBytes(plan.written_bytes),
                        std::ranges::count_if(plan.stays, &Stay::written_back),
                        costs.to_host_bytes_per_s / 1e9);
  if (plan.rounds()) {
    absl::StrAppendFormat(&text,
                          "  activations travel in 16 bits, through %s of the device's memory\n",
                          ShortBytes(plan.device_staging.bytes()));
  }
  if (plan.disk_bytes > 0) {
    absl::StrAppendFormat(&text, "  disk: it reads %s (%.3g GB/s), writes %s (%.3g GB/s)\n",
                          ShortBytes(plan.disk_read_bytes), costs.disk_read_bytes_per_s / 1e9,
                          ShortBytes(plan.disk_written_bytes), costs.disk_write_bytes_per_s / 1e9);
  }
  if (!plan.host_steps.empty()) {
    const size_t bytes = HostBytes(trace, plan);
    absl::StrAppendFormat(&text,
                          "  %d steps run on the host, on pages: %s in all (%s at %.3g GB/s)\n",
                          plan.host_steps.size(),
                          Milliseconds(static_cast<double>(bytes) / costs.host_step_bytes_per_s),
                          ShortBytes(bytes), costs.host_step_bytes_per_s / 1e9);
  }
  if (again > 0) {
    absl::StrAppendFormat(&text, "  %d steps run again, %s in all\n", again,
                          Milliseconds(again_seconds));
  }
  return text;
}

}  // namespace gyre
