#include "memory/report/plan_picture.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/runtime/svg.h"
#include "memory/planner/paging_schedule.h"
#include "memory/trace/trace_blocks.h"
#include "memory/trace/trace_text.h"

namespace gyre {
namespace {

// In pixels.
constexpr int kWidth = 1000, kLeft = 92, kRight = 984, kColumns = kRight - kLeft;
constexpr int kTop = 66, kMemoryHeight = 230, kBottom = kTop + kMemoryHeight;
constexpr int kLaneHeight = 26, kLaneGap = 8, kFirstLane = kBottom + 34;
// Those of fewer are drawn with their neighbours.
constexpr double kLeastWidth = 0.5, kLeastGap = 0.3;
constexpr double kHeadroom = 1.08;  // above the highest line

constexpr char kStepColour[] = "#57606a", kAgainColour[] = "#1f2328", kWaitColour[] = "#f7c6c5",
               kFetchColour[] = "#8250df", kWriteColour[] = "#bf8700";

class Picture {
 public:
  Picture(const PlanHistory& history, size_t capacity_bytes, const std::string& title)
      : history_(history),
        seconds_(std::max(history.seconds, 1e-9)),
        capacity_(capacity_bytes),
        bottom_(kFirstLane + lanes() * (kLaneHeight + kLaneGap)),
        svg_(kWidth, bottom_ + 28, title, kLeft) {
    FillColumns();
  }

  std::string Draw() && {
    Legend();
    Axes();
    Memory();
    Lane(0, "compute", history_.steps, kStepColour);
    if (copies()) {
      Lane(1, "fetches", history_.fetches, kFetchColour);
      Lane(2, "write-backs", history_.write_backs, kWriteColour);
    }
    if (!history_.host_steps.empty()) {
      Lane(lanes() - 1, "on the host", history_.host_steps, kStepColour);
    }
    return std::move(svg_).Finish();
  }

 private:
  bool copies() const { return !history_.fetches.empty() || !history_.write_backs.empty(); }
  int lanes() const { return (copies() ? 3 : 1) + (history_.host_steps.empty() ? 0 : 1); }
  double X(double second) const { return kLeft + kColumns * second / seconds_; }
  double Y(double bytes) const { return kBottom - kMemoryHeight * bytes / top_; }
  static const char* ColourOf(size_t kind) { return kSvgColours[kind % std::size(kSvgColours)]; }

  // By column of pixels, the bytes of each kind at the instant of it that holds most.
  void FillColumns() {
    const size_t kinds = history_.kinds.size();
    most_.assign(kinds, 0);
    columns_.assign(kColumns, std::vector<double>(kinds, 0));
    struct Change {
      double second;
      int kind;
      double bytes;
    };
    std::vector<Change> changes;
    for (const PlanHistory::Allocation& allocation : history_.allocations) {
      if (allocation.begin >= allocation.end) continue;
      const auto bytes = static_cast<double>(allocation.bytes);
      changes.push_back({allocation.begin, allocation.kind, bytes});
      changes.push_back({allocation.end, allocation.kind, -bytes});
    }
    // What goes, goes first.
    std::ranges::sort(changes, {}, [](const Change& c) { return std::pair(c.second, c.bytes); });
    std::vector<double> now(kinds, 0);
    std::vector<double> totals(kColumns, -1);
    double total = 0;
    size_t next = 0;
    for (double from = 0; from < seconds_;) {
      for (; next < changes.size() && changes[next].second <= from; ++next) {
        now[changes[next].kind] += changes[next].bytes;
        total += changes[next].bytes;
      }
      const double to = next < changes.size() ? std::min(seconds_, changes[next].second) : seconds_;
      for (size_t kind = 0; kind < kinds; ++kind) most_[kind] = std::max(most_[kind], now[kind]);
      peak_ = std::max(peak_, total);
      const auto column_of = [&](double second) {
        return std::clamp(static_cast<int>(kColumns * second / seconds_), 0, kColumns - 1);
      };
      for (int column = column_of(from); column <= column_of(to); ++column) {
        if (total <= totals[column]) continue;
        totals[column] = total;
        columns_[column] = now;
      }
      from = to;
    }
    const auto capacity = static_cast<double>(capacity_);
    // One that is far away would press all else to the ground.
    shows_capacity_ = capacity < 2 * peak_;
    top_ = kHeadroom * std::max({peak_, shows_capacity_ ? capacity : 0.0, 1.0});
  }

  void Legend() {
    double x = kLeft;
    const auto entry = [&](const char* colour, const std::string& name) {
      svg_.Rect(x, 38, 12, 12, colour);
      svg_.Text(x + 17, 48, "start", name);
      x += 30 + 6.2 * static_cast<double>(name.size());
    };
    for (size_t kind = 0; kind < history_.kinds.size(); ++kind) {
      if (most_[kind] == 0) continue;
      entry(ColourOf(kind),
            absl::StrCat(history_.kinds[kind], ", ", ShortBytes(static_cast<size_t>(most_[kind]))));
    }
    if (history_.stalled_seconds > 0) entry(kWaitColour, "waits");
    const bool again =
        std::ranges::any_of(history_.steps, [](const PlanHistory::Span& s) { return s.again; });
    if (again) entry(kAgainColour, "runs again");
  }

  void Axes() {
    const double step = TickOf(top_, 6, /*bytes=*/true);
    for (double bytes = 0; bytes < top_; bytes += step) {
      svg_.Add("<path d=\"M%d %.1fH%d\" stroke=\"#d0d7de\" stroke-width=\"0.7\"/>\n", kLeft,
               Y(bytes), kRight);
      svg_.Text(kLeft - 6, Y(bytes) + 4, "end", ShortBytes(static_cast<size_t>(bytes)));
    }
    const double tick = TickOf(seconds_, 10, /*bytes=*/false);
    const double unit = seconds_ >= 1 ? 1 : seconds_ >= 1e-3 ? 1e-3 : 1e-6;
    for (int i = 0; i * tick <= seconds_; ++i) {
      svg_.Add("<path d=\"M%.1f %dV%d\" stroke=\"#d0d7de\" stroke-width=\"0.7\"/>\n", X(i * tick),
               kTop, bottom_);
      svg_.Text(X(i * tick), bottom_ + 16, "middle",
                absl::StrCat(absl::StrFormat("%.6g", i * tick / unit), i > 0          ? ""
                                                                       : unit == 1    ? " s"
                                                                       : unit == 1e-3 ? " ms"
                                                                                      : " us"));
    }
  }

  // Kinds one above the other, the first lowest.
  void Memory() {
    std::vector<double> below(kColumns, 0);
    for (size_t kind = 0; kind < history_.kinds.size(); ++kind) {
      if (most_[kind] == 0) continue;
      std::vector<double> above = below;
      for (int column = 0; column < kColumns; ++column) above[column] += columns_[column][kind];
      svg_.Add("<path fill=\"%s\" d=\"M%d %.1f", ColourOf(kind), kLeft, Y(above[0]));
      for (int column = 1; column < kColumns; ++column) {
        if (above[column] == above[column - 1]) continue;
        svg_.Add("H%dV%.1f", kLeft + column, Y(above[column]));
      }
      svg_.Add("H%dV%.1f", kRight, Y(below[kColumns - 1]));
      for (int column = kColumns - 1; column > 0; --column) {
        if (below[column] == below[column - 1]) continue;
        svg_.Add("H%dV%.1f", kLeft + column, Y(below[column - 1]));
      }
      svg_.Add("H%dZ\"><title>%s, at most %s</title></path>\n", kLeft,
               EscapedXml(history_.kinds[kind]), ShortBytes(static_cast<size_t>(most_[kind])));
      below = std::move(above);
    }
    const double y = shows_capacity_ ? Y(static_cast<double>(capacity_)) : kTop;
    if (shows_capacity_) {
      svg_.Add(
          "<path d=\"M%d %.1fH%d\" stroke=\"#cf222e\" stroke-width=\"1.5\" "
          "stroke-dasharray=\"6 3\"/>\n",
          kLeft, y, kRight);
    }
    svg_.Text(
        kRight, y - 4, "end",
        absl::StrCat("capacity ", ShortBytes(capacity_), shows_capacity_ ? "" : ", far above"),
        "#cf222e");
  }

  static std::string About(const PlanHistory::Span& span) {
    return absl::StrFormat("%s%s: %.3f to %.3f ms%s", span.name, span.again ? ", again" : "",
                           1e3 * span.begin, 1e3 * span.end,
                           span.bytes > 0 ? ", " + ShortBytes(span.bytes) : "");
  }

  void Lane(int lane, const char* name, const std::vector<PlanHistory::Span>& spans,
            const char* colour) {
    const double y = kFirstLane + lane * (kLaneHeight + kLaneGap);
    svg_.Text(kLeft - 6, y + 17, "end", name);
    svg_.Rect(kLeft, y, kColumns, kLaneHeight, lane == 0 ? kWaitColour : "#f6f8fa");
    for (size_t first = 0; first < spans.size();) {
      size_t beyond = first + 1;
      double end = X(spans[first].end);
      const double begin = X(spans[first].begin);
      for (; beyond < spans.size(); ++beyond) {
        const PlanHistory::Span& next = spans[beyond];
        const bool narrow = end - begin < kLeastWidth || X(next.end) - X(next.begin) < kLeastWidth;
        if (!narrow || X(next.begin) - end > kLeastGap || next.again != spans[first].again) break;
        end = X(next.end);
      }
      std::string about = About(spans[first]);
      if (beyond > first + 1) {
        size_t bytes = 0;
        for (size_t s = first; s < beyond; ++s) bytes += spans[s].bytes;
        about = absl::StrFormat("%d, %s to %s%s", beyond - first, spans[first].name,
                                spans[beyond - 1].name, bytes > 0 ? ", " + ShortBytes(bytes) : "");
      }
      svg_.Rect(begin, y, std::max(end - begin, 0.2), kLaneHeight,
                spans[first].again ? kAgainColour : colour, about);
      first = beyond;
    }
  }

  const PlanHistory& history_;
  const double seconds_;
  const size_t capacity_;
  std::vector<double> most_;                  // by kind
  std::vector<std::vector<double>> columns_;  // by column, then kind
  double peak_ = 0, top_ = 1;
  bool shows_capacity_ = true;
  const int bottom_;  // of the lanes
  SvgImage svg_;
};

}  // namespace

PlanHistory HistoryOf(const AccessTrace& trace, const StateKinds& kinds, const MemoryPlan& plan) {
  PlanHistory history = {.kinds = kinds.names};
  for (const TraceStep& step : trace.steps) {
    const double begin = history.seconds;
    history.seconds += step.seconds;
    history.steps.push_back({.name = step.name, .begin = begin, .end = history.seconds});
  }
  for (size_t i = 0; i < trace.states.size(); ++i) {
    const TraceState& state = trace.states[i];
    const auto [arena, offset, first, last] = plan.placements[i];
    if (state.view_of >= 0 || last < 0) continue;
    history.allocations.push_back({.kind = kinds.of[i],
                                   .bytes = state.bytes,
                                   .begin = history.steps[first].begin,
                                   .end = history.steps[last].end});
  }
  return history;
}

PlanHistory HistoryOf(const AccessTrace& trace, const StateKinds& kinds, const PagingPlan& plan,
                      const PagingCosts& costs) {
  const PagingTimes times = PredictTimes(trace, plan, SchedulePaging(plan), costs);
  PlanHistory history = {
      .kinds = kinds.names, .seconds = times.seconds, .stalled_seconds = times.stalled_seconds};
  const auto add = [&](const PagingTimes::WorkSpan& work, std::string name, size_t bytes,
                       std::vector<PlanHistory::Span>& to) {
    if (work.begin >= history.seconds) return;
    to.push_back({.name = std::move(name),
                  .begin = std::max(0.0, work.begin),
                  .end = std::min(history.seconds, work.end),
                  .bytes = bytes});
  };
  std::vector<bool> ran(trace.steps.size(), false);
  for (const auto& [position, begin, end] : times.steps) {
    if (plan.HostStepAt(position) >= 0) continue;
    const int step = plan.order[position];
    history.steps.push_back(
        {.name = trace.steps[step].name, .begin = begin, .end = end, .again = ran[step]});
    ran[step] = true;
  }
  for (const PagingTimes::WorkSpan& work : times.host_steps) {
    const TraceStep& step = trace.steps[plan.order[plan.host_steps[work.index].position]];
    add(work, step.name, step.host_bytes, history.host_steps);
  }
  const std::vector<bool> in_use = RootsInUse(trace);
  for (size_t i = 0; i < trace.states.size(); ++i) {
    if (plan.states[i].block >= 0 || !in_use[i]) continue;
    history.allocations.push_back(
        {.kind = kinds.of[i], .bytes = trace.states[i].bytes, .end = history.seconds});
  }
  const auto copy = [&](const PagingTimes::WorkSpan& of, std::vector<PlanHistory::Span>& to) {
    const PagedBlock& block = plan.BlockOf(of.index);
    const std::string& first = trace.states[block.states.front()].name;
    add(of, block.states.size() == 1 ? first : first + " and others", block.page_bytes, to);
  };
  const auto hold = [&](const PagingTimes::WorkSpan& stay) {
    const PagedBlock& block = plan.BlockOf(stay.index);
    history.allocations.push_back({.kind = kinds.of[block.states.front()],
                                   .bytes = block.bytes,
                                   .begin = std::max(0.0, stay.begin),
                                   .end = std::min(history.seconds, stay.end)});
  };
  std::vector<PagingTimes::WorkSpan> there;  // by stay, with its copies
  for (const Stay& stay : plan.stays) {
    there.push_back({static_cast<int>(there.size()), times.steps[stay.first_step].begin,
                     times.steps[stay.last_step].end});
  }
  for (const PagingTimes::WorkSpan& fetch : times.fetches) {
    there[fetch.index].begin = fetch.begin;
    copy(fetch, history.fetches);
  }
  auto of_before = static_cast<int64_t>(times.write_backs.size()) -
                   std::ranges::count_if(plan.stays, &Stay::written_back);
  for (const PagingTimes::WorkSpan& write : times.write_backs) {
    if (of_before-- > 0) {
      hold({write.index, 0, write.end});
    } else {
      there[write.index].end = write.end;
    }
    copy(write, history.write_backs);
  }
  std::ranges::for_each(there, hold);
  return history;
}

std::string PlanPicture(const PlanHistory& history, size_t capacity_bytes,
                        const std::string& title) {
  return Picture(history, capacity_bytes, title).Draw();
}

std::string PlanPage(const PlanHistory& history, size_t capacity_bytes, const std::string& title,
                     const std::string& below) {
  return absl::StrCat(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n<title>",
      EscapedXml(title),
      "</title>\n<style>body { font-family: sans-serif; margin: 1em auto; max-width: 1200px } "
      "pre { overflow-x: auto }</style>\n</head>\n<body>\n",
      PlanPicture(history, capacity_bytes, title), "<pre>", EscapedXml(below),
      "</pre>\n</body>\n</html>\n");
}

}  // namespace gyre
