// fake_cublaslt.h: cuBLASLt without a GPU; see fake_library.h.
#pragma once

#include "tests/cuda/fakes/fake_library.h"

namespace gyre {

struct CublasLt;

class FakeCublasLt : public FakeLibrary {
 public:
  struct Algorithm {
    int id = 0;
    int splits = 1;
    unsigned reduction = 0;  // cublasLtReductionScheme_t
    size_t workspace_bytes = 0;
    bool epilogues = true;  // has others than the default one
    int launches = 1;
    bool swallows_nan = false;  // in its ReLU
  };

  FakeCublasLt();
  ~FakeCublasLt();  // aborts if an object is alive
  FakeCublasLt(const FakeCublasLt&) = delete;
  FakeCublasLt& operator=(const FakeCublasLt&) = delete;

  const CublasLt& table() const;

  // What a search finds, best first, as far as the preference lets it.  By default the best are in
  // place, or round partial sums, or want too much workspace.
  std::vector<Algorithm> algorithms;
  // The algorithms that were run.
  std::vector<int> runs;
  // The compute types (cublasComputeType_t) that were run with.
  std::vector<int> compute_types;
};

}  // namespace gyre
