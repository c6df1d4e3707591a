#include <algorithm>
#include <span>
#include <vector>

#include "engine/training/net/infer/inference_passes.h"

namespace gyre {
namespace {

// FLOPs in the readers' backward for each byte that recomputation reads or writes.  A CPU computes
// some 14 in the time of a byte (130 GFLOP/s beside 9 GB/s), a GPU more.  So recomputation takes at
// most half as long as its readers.
constexpr double kFlopsPerByte = 32;

class RecomputationChooser {
 public:
  explicit RecomputationChooser(NetSpec& net)
      : net_(net), again_(net.values.size()), made_of_(net.values.size()) {}

  void Run() {
    std::vector<std::vector<int>> values_in(net_.values.size());  // by memory
    for (size_t v = 0; v < net_.values.size(); ++v) {
      values_in[net_.values[v].memory].push_back(static_cast<int>(v));
    }
    for (size_t memory = 0; memory < values_in.size(); ++memory) {
      const std::vector<int>& values = values_in[memory];
      again_[memory] = !made_of_[memory] && IsWorthwhile(values) &&
                       std::ranges::all_of(values, [&](int v) { return Can(v); });
      if (!again_[memory]) continue;
      for (int v : values) {
        NetNode& node = net_.nodes[net_.values[v].producer];
        node.recomputed = !node.applied_by_producer;
        for (int input : node.inputs) made_of_[net_.values[input].memory] = true;
      }
    }
  }

 private:
  // Whether the readers of these values, which share one memory, have enough work.
  bool IsWorthwhile(std::span<const int> values) const {
    double bytes = 0, flops = 0;
    bool read = false;
    for (int v : values) {
      const NetValue& value = net_.values[v];
      if (value.producer < 0) return false;
      const NetNode& producer = net_.nodes[value.producer];
      if (!producer.applied_by_producer) {
        bytes += static_cast<double>(value.bytes());
        for (int input : producer.inputs) bytes += static_cast<double>(net_.values[input].bytes());
      }
      int counted = -1;
      for (int consumer : value.consumers) {
        if (consumer == counted || !ReadsInBackward(net_.nodes[consumer], v)) continue;
        flops += net_.nodes[consumer].spec.backward_flops;
        counted = consumer;
        read = true;
      }
    }
    return read && flops >= kFlopsPerByte * bytes;
  }

  // Whether the producer can recompute v with stored inputs.
  bool Can(int v) const {
    const int n = net_.values[v].producer;
    const NetNode& node = net_.nodes[n];
    if (node.applied_by_producer) return true;
    if (!node.spec.cheap || !node.backward || node.outputs.size() != 1) return false;
    for (size_t s = 0; s < node.spec.states.size(); ++s) {
      const StateSpec& state = node.spec.states[s];
      if (state.kind == StateKind::kSaved && (state.backward & kRead) == 0) return false;
      if (state.kind == StateKind::kInput && state.forward != kNone &&
          net_.values[node.inputs[s]].memory != net_.values[v].memory &&
          !IsKept(node.inputs[s], n)) {
        return false;
      }
    }
    return true;
  }

  // Whether the value is stored until backward of node n has run.
  bool IsKept(int v, int n) const {
    const NetValue& value = net_.values[v];
    return !again_[value.memory] && std::ranges::any_of(value.consumers, [&](int consumer) {
      return consumer <= n && ReadsInBackward(net_.nodes[consumer], v);
    });
  }

  NetSpec& net_;
  // By memory: whether it is recomputed, and whether a recomputation reads it.
  std::vector<bool> again_, made_of_;
};

}  // namespace

void ChooseRecomputed(NetSpec& net) { RecomputationChooser(net).Run(); }

}  // namespace gyre
