#include "memory/planner/paging_schedule.h"

#include <algorithm>
#include <map>

namespace gyre {
namespace {

void AddOnce(int index, std::vector<int>& list) {
  if (index >= 0 && std::ranges::find(list, index) == list.end()) list.push_back(index);
}

// The last user of each byte of memory, as users take turns.
class LastUsers {
 public:
  // The users of the range so far, each once, in order of their bytes.
  std::vector<int> Of(size_t begin, size_t bytes) const {
    std::vector<int> users;
    for (auto at = std::prev(last_.upper_bound(begin));
         at != last_.end() && at->first < begin + bytes; ++at) {
      AddOnce(at->second, users);
    }
    return users;
  }
  void Use(size_t begin, size_t bytes, int user) {
    Cut(begin);
    Cut(begin + bytes);
    last_.erase(last_.find(begin), last_.find(begin + bytes));
    last_[begin] = user;
  }

 private:
  void Cut(size_t at) { last_.emplace(at, std::prev(last_.upper_bound(at))->second); }

  std::map<size_t, int> last_ = {{0, -1}};  // from an offset to the next entry; -1: nobody
};

}  // namespace

PagingSchedule SchedulePaging(const PagingPlan& plan) {
  PagingSchedule schedule;
  const int stays = static_cast<int>(plan.stays.size());
  const int hosts = static_cast<int>(plan.host_steps.size());
  const int steps = static_cast<int>(plan.order.size());
  schedule.steps.resize(plan.order.size());
  schedule.host_steps.resize(plan.host_steps.size());
  schedule.host_before_write.assign(plan.stays.size(), -1);
  for (int s = 0; s < stays; ++s) {
    if (plan.stays[s].written_back)
      schedule.steps[plan.stays[s].last_step].write_backs.push_back(s);
  }
  // What is over last of what the step before, or the iteration before's last, writes back; -1 if
  // nothing must be.
  const auto foreground_before = [&](int step) {
    if (!plan.foreground || (step == 0 && plan.self_contained)) return -1;
    const std::vector<int>& writes = schedule.steps[(step + steps - 1) % steps].write_backs;
    return writes.empty() ? -1 : writes.back();
  };
  LastUsers occupants;  // of the device arena: stays
  LastUsers hosted;     // of pages: host steps, counted over both iterations
  const auto last_on_page = [&](int stay) {
    if (hosts == 0) return -1;
    const std::vector<int> before =
        hosted.Of(plan.BlockOf(stay).page, plan.BlockOf(stay).page_bytes);
    return before.empty() ? -1 : *std::ranges::max_element(before) % hosts;
  };
  std::vector<int> written(plan.blocks.size(), -1);  // by block: the stay that its page is of
  int after = -1;                                    // the last step that a fetch so far waits for
  const auto add_fetch = [&](int s, PagingSchedule::ScheduledWork fetch) {
    const Stay& stay = plan.stays[s];
    AddOnce(written[stay.block], fetch.after_writes);
    if (plan.foreground) {
      fetch.after_step = stay.first_step - 1;
      AddOnce(foreground_before(stay.first_step), fetch.after_writes);
    }
    for (const int write : fetch.after_writes) {
      if (write < s) fetch.after_step = std::max(fetch.after_step, plan.stays[write].last_step);
    }
    fetch.after_host = last_on_page(s);
    if (fetch.after_host >= 0) {
      const int position = plan.host_steps[fetch.after_host].position;
      // Else it is of the iteration before.
      if (position < stay.first_step) fetch.after_step = std::max(fetch.after_step, position);
    }
    const int index = static_cast<int>(schedule.fetches.size());
    schedule.steps[stay.first_step].fetches.push_back(index);
    // Behind those before it on their stream.
    after = std::max(after, fetch.after_step);
    (after < 0 ? schedule.fetches_before : schedule.steps[after].fetches_after).push_back(index);
    schedule.fetches.push_back(std::move(fetch));
  };
  // The iteration before shows what is in the memory and the pages that the next one finds.
  for (int iteration = plan.self_contained ? 1 : 0; iteration < 2; ++iteration) {
    int s = 0;
    for (int step = 0; step < steps; ++step) {
      std::vector<int>& writes = schedule.steps[step].writes;
      if (iteration == 1) AddOnce(foreground_before(step), writes);
      for (; s < stays && plan.stays[s].first_step == step; ++s) {
        const Stay& stay = plan.stays[s];
        const size_t bytes = plan.BlockOf(s).bytes;
        const std::vector<int> left = occupants.Of(stay.offset, bytes);
        occupants.Use(stay.offset, bytes, s);
        if (iteration == 0) continue;
        PagingSchedule::ScheduledWork fetch{.stay = s};
        for (const int before : left) {
          // Of the iteration before: over before this one's first step.
          if (before < s)
            fetch.after_step = std::max(fetch.after_step, plan.stays[before].last_step);
          if (!plan.stays[before].written_back) continue;
          AddOnce(before, stay.fetched ? fetch.after_writes : writes);
        }
        if (stay.fetched) add_fetch(s, std::move(fetch));
      }
      if (const int host = plan.HostStepAt(step); host >= 0) {
        schedule.host_steps[host] = {.after_step = step - 1};
        for (const int b : plan.host_steps[host].blocks) {
          AddOnce(written[b], schedule.host_steps[host].after_writes);
          hosted.Use(plan.blocks[b].page, plan.blocks[b].page_bytes, iteration * hosts + host);
        }
      }
      for (const int write : schedule.steps[step].write_backs) {
        schedule.host_before_write[write] = last_on_page(write);
        written[plan.stays[write].block] = write;
        if (plan.self_contained) schedule.last_write = write;
      }
    }
  }
  return schedule;
}

CopySeconds CopySecondsOf(size_t bytes, size_t page_bytes, const PagingCosts& costs) {
  const auto copied = static_cast<double>(page_bytes);
  const double converting =
      page_bytes < bytes ? static_cast<double>(bytes) / costs.convert_bytes_per_s : 0;
  return {.in = copied / costs.to_device_bytes_per_s + converting,
          .out = copied / costs.to_host_bytes_per_s + converting};
}

PagingTimes PredictTimes(const AccessTrace& trace, const PagingPlan& plan,
                         const PagingSchedule& schedule, const PagingCosts& costs) {
  PagingTimes times;
  const auto disk_seconds = [&](int stay, double bytes_per_s) {
    return static_cast<double>(plan.BlockOf(stay).page_bytes) / bytes_per_s;
  };
  const auto seconds = [&](int stay) {
    return CopySecondsOf(plan.BlockOf(stay).bytes, plan.BlockOf(stay).page_bytes, costs);
  };
  double computed = 0, in = 0, out = 0, hosted = 0;  // when each stream is free
  double read = 0, stored = 0;                       // and the disk, each way
  const double staging = static_cast<double>(plan.staging.bytes()) / 2;
  double began = 0, working = 0;
  std::vector<double> written(plan.stays.size()), fetched(schedule.fetches.size());
  std::vector<double> ended(schedule.steps.size());
  std::vector<double> host_ended(schedule.host_steps.size());
  std::vector<double> in_file(plan.blocks.size());
  const auto start_of = [&](const PagingSchedule::ScheduledWork& work, double stream_free) {
    double start = std::max(stream_free, work.after_step < 0 ? began : ended[work.after_step]);
    for (const int write : work.after_writes) start = std::max(start, written[write]);
    return work.after_host < 0 ? start : std::max(start, host_ended[work.after_host]);
  };
  const auto fetch = [&](int index) {
    const PagingSchedule::ScheduledWork& of = schedule.fetches[index];
    const double start = start_of(of, in), copied = start + seconds(of.stay).in;
    const int block = plan.stays[of.stay].block;
    if (plan.blocks[block].on_disk) {
      // The disk is ahead of the copy by no more than the staging holds.
      const double bandwidth = costs.disk_read_bytes_per_s;
      const double reads = disk_seconds(of.stay, bandwidth);
      read = std::max({read + reads, in_file[block] + reads, start + reads - staging / bandwidth});
      in = std::max(copied, read);
    } else {
      in = copied;
    }
    fetched[index] = in;
    times.fetches.push_back({of.stay, start, in});
  };
  const auto write_back = [&](int stay) {
    const int host = schedule.host_before_write[stay];
    const double start = std::max({out, computed, host < 0 ? 0 : host_ended[host]});
    out = start + seconds(stay).out;
    const int block = plan.stays[stay].block;
    if (plan.blocks[block].on_disk) {
      const double bandwidth = costs.disk_write_bytes_per_s;
      stored = std::max(std::max(stored, start) + disk_seconds(stay, bandwidth), out);
      // Nor does the copy leave the disk further behind.
      out = std::max(out, stored - staging / bandwidth);
      in_file[block] = stored;
    }
    written[stay] = out;
    times.write_backs.push_back({stay, start, out});
  };
  const auto run_on_host = [&](int index) {
    const double start = start_of(schedule.host_steps[index], hosted);
    const TraceStep& step = trace.steps[plan.order[plan.host_steps[index].position]];
    host_ended[index] = hosted =
        start + static_cast<double>(step.host_bytes) / costs.host_step_bytes_per_s;
    times.host_steps.push_back({index, start, hosted});
  };
  // The second iteration begins with the copies of the first.
  for (int iteration = 0; iteration < 2; ++iteration) {
    began = computed;
    working = 0;
    times.steps.clear();
    times.fetches.clear();
    const auto over = [&](const PagingTimes::WorkSpan& of) { return of.end <= began; };
    std::erase_if(times.write_backs, over);
    std::erase_if(times.host_steps, over);
    for (const int index : schedule.fetches_before) fetch(index);
    for (size_t s = 0; s < schedule.steps.size(); ++s) {
      const PagingSchedule::ScheduledStep& step = schedule.steps[s];
      for (const int index : step.fetches) computed = std::max(computed, fetched[index]);
      for (const int write : step.writes) computed = std::max(computed, written[write]);
      const int host = plan.HostStepAt(static_cast<int>(s));
      const double seconds_of_step = host >= 0 ? 0 : trace.steps[plan.order[s]].seconds;
      working += seconds_of_step;
      times.steps.push_back({static_cast<int>(s), computed, computed + seconds_of_step});
      ended[s] = computed += seconds_of_step;
      if (host >= 0) run_on_host(host);
      for (const int stay : step.write_backs) write_back(stay);
      for (const int index : step.fetches_after) fetch(index);
    }
    if (schedule.last_write >= 0) computed = std::max(computed, out);
  }
  for (auto* const list : {&times.steps, &times.fetches, &times.write_backs, &times.host_steps}) {
    for (PagingTimes::WorkSpan& span : *list) {
      span.begin -= began;
      span.end -= began;
    }
  }
  times.seconds = computed - began;
  times.stalled_seconds = std::max(0.0, times.seconds - working);
  return times;
}

}  // namespace gyre
