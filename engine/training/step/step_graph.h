// step_graph.h: a fixed sequence of stream work, with actions of the host in between, that is
// done again and again: the iteration of a static net.
//
// The first run enqueues it plainly, which lets libraries set themselves up; the second captures
// it, a graph for each stretch between two actions; from then on graphs are replayed and actions
// repeated.  A device that cannot capture the work runs it plainly for good.  Used by one thread.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "engine/runtime/device/device.h"

namespace gyre {

class StepGraph {
 public:
  using Action = std::function<absl::Status()>;
  // Ends a stretch: what was handed over so far is on the stream when `action` runs.  What the
  // action captures must live as long as the StepGraph.
  using Between = std::function<absl::Status(Action action)>;
  // Enqueues everything, always the same with the same arguments, and may not look at what actions
  // have done.  Streams that it forks are back at the end of a stretch, and events are waited for
  // in the stretch where they are recorded, or belong into actions.
  using Work = std::function<absl::Status(const Between&)>;

  // `stream` must outlive the object and be used by the same thread.  capture: false for a work
  // that is to be enqueued plainly each time.
  StepGraph(Stream& stream, Work work, bool capture = true)
      : stream_(stream), work_(std::move(work)), capture_(capture) {}

  // Errors: the first one of the work, the actions or the stream.
  absl::Status Run();

  // Stretches captured; 0 while the work is run plainly.
  size_t graphs() const { return stretches_.size(); }
  // Their nodes, where a GPU's stream captured them; else 0.
  size_t nodes() const;
  // Unimplemented with the reason if the device could not capture the work; else OK.
  const absl::Status& refusal() const { return refusal_; }

 private:
  struct Stretch {
    std::unique_ptr<Graph> graph;
    Action then;  // null after the last stretch
  };

  absl::Status RunPlainly() const;
  absl::Status Capture();
  absl::Status EndStretch(Action then);

  Stream& stream_;
  const Work work_;
  const bool capture_;
  int64_t runs_ = 0;
  absl::Status refusal_;
  std::vector<Stretch> stretches_;
};

}  // namespace gyre
