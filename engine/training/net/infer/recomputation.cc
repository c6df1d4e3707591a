#include "engine/training/net/infer/recomputation.h"

#include <algorithm>
#include <span>
#include <vector>

namespace gyre {
namespace {

// What readers compute in backward for each byte that is read or written once more.  A CPU computes
// some 14 in the time of a byte (130 GFLOP/s beside 9 GB/s), a GPU more: what is made again takes
// half as long as its readers at most.
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
  // Whether those who read the values, which lie in one memory, have that much work with them.
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

  // Whether the producer of v can make it again, for all that it then needs.
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

  // Whether the value is there until backward of node n has run.
  bool IsKept(int v, int n) const {
    const NetValue& value = net_.values[v];
    return !again_[value.memory] && std::ranges::any_of(value.consumers, [&](int consumer) {
      return consumer <= n && ReadsInBackward(net_.nodes[consumer], v);
    });
  }

  NetSpec& net_;
  // By memory: whether it is made again, and whether something that is made again is made of it.
  std::vector<bool> again_, made_of_;
};

}  // namespace

void ChooseRecomputed(NetSpec& net) { RecomputationChooser(net).Run(); }

}  // namespace gyre
