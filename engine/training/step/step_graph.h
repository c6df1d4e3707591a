// step_graph.h: a fixed sequence of stream work and host actions, such as the iteration of a static
// net.  Used by one thread.  The first run enqueues it plainly, as libraries then set themselves
// up.  The second captures a graph for each stretch between two actions that has work.  From then
// on graphs are replayed and actions repeated.  A device that cannot capture the work always runs
// it plainly.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "engine/runtime/device/device.h"

namespace gyre {

class StepGraph {
 public:
  using Action = std::function<absl::Status()>;
  // Ends a stretch.  `action` runs after the work handed over so far is on the stream.  Its
  // captures must outlive the StepGraph.
  using Between = std::function<absl::Status(Action action)>;
  // Enqueues everything, each time with the same arguments.  It must not read the results of
  // actions.  A forked stream must join before its stretch ends.  An event is waited for in the
  // stretch that records it, or in an action.
  using Work = std::function<absl::Status(const Between&)>;

  // `stream` outlives the object and is used by the same thread.  Without `capture`, all runs are
  // plain.
  StepGraph(Stream& stream, Work work, bool capture = true)
      : stream_(stream), work_(std::move(work)), capture_(capture) {}

  // Errors: the first one of the work, an action or the stream.
  absl::Status Run();

  // Number of stretches captured.  0 while the work runs plainly.
  size_t graphs() const { return stretches_.size(); }
  // Nodes of a GPU's graphs, else 0.
  size_t nodes() const;
  // Unimplemented, with the reason, if the device could not capture the work, else OK.
  const absl::Status& refusal() const { return refusal_; }

 private:
  struct Stretch {
    std::unique_ptr<Graph> graph;
    std::vector<Action> then;
  };

  absl::Status RunPlainly() const;
  absl::Status Capture();
  absl::Status EndStretch();

  Stream& stream_;
  const Work work_;
  const bool capture_;
  int64_t runs_ = 0;
  absl::Status refusal_;
  std::vector<Stretch> stretches_;
};

}  // namespace gyre
