// fake_cudnn.h: cuDNN's backend API without a GPU, for convolutions, what is fused to them, and
// batch norm; see fake_library.h.
#pragma once

#include "tests/cuda/fakes/fake_library.h"

namespace gyre {

struct Cudnn;

class FakeCudnn : public FakeLibrary {
 public:
  struct Engine {
    int64_t index = 0;
    std::vector<int> notes = {};  // cudnnBackendNumericalNote_t
    size_t workspace_bytes = 0;
    bool fuses = true;     // takes graphs of several operations
    bool refuses = false;  // its plans cannot be finalized
    int launches = 1;
    bool swallows_nan = false;  // in its ReLU
  };

  FakeCudnn();
  ~FakeCudnn();  // aborts if an object is alive
  FakeCudnn(const FakeCudnn&) = delete;
  FakeCudnn& operator=(const FakeCudnn&) = delete;

  const Cudnn& table() const;

  // What the heuristics suggest, best first, in their mode A and as a fallback.
  std::vector<Engine> engines, fallback_engines;
  // Called when a handle is made.
  std::function<void()> on_create = [] {};
  // Heuristics that support no graph.
  bool knows_nothing = false;
  // The engines that were run.
  std::vector<int64_t> runs;
};

}  // namespace gyre
