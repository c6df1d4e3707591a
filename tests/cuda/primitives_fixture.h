// primitives_fixture.h: the CUDA primitives on fakes of the libraries, and what all of their errors
// say.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>

#include "engine/runtime/primitives/cuda/library.h"
#include "tests/cuda/fakes/fake_cublaslt.h"
#include "tests/cuda/fakes/fake_cudnn.h"
#include "tests/primitives/operations.h"

namespace gyre {

class CudaPrimitivesTest : public testing::Test {
 protected:
  std::unique_ptr<PrimitiveLibrary> NewLibrary(const CudaLibraryOptions& options = {}) {
    return Get(NewCudaLibrary(cublaslt_.table(), cudnn_.table(), options));
  }

  static void ExpectNamed(const std::string& operand, const absl::Status& status) {
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_NE(status.message().find("operand " + operand + " "), std::string::npos) << status;
  }

  // Each call of cuDNN in turn fails as the spec is prepared: an error that names the call after
  // `begin`, or another engine; nothing is left behind.  Returns the errors by call.
  template <typename Spec>
  std::map<std::string, int> FailEachCall(const PrimitiveLibrary& library, const Spec& spec,
                                          const char* begin) {
    const int alive = cudnn_.Alive();
    std::map<std::string, int> failures;
    for (int nth = 1;; ++nth) {
      cudnn_.fail_call = nth;
      const auto prepared = library.Prepare(spec);
      if (cudnn_.fail_call > 0) break;  // there were no more calls
      if (prepared.ok()) continue;
      const std::string& failed = cudnn_.failed_call;
      ++failures[failed];
      const std::string message(prepared.status().message());
      EXPECT_TRUE(absl::IsInternal(prepared.status())) << message;
      EXPECT_NE(message.find(failed), std::string::npos) << message;
      EXPECT_NE(message.find("CUDNN_BACKEND_"), std::string::npos) << message;
      if (failed.ends_with("Attribute")) {
        EXPECT_NE(message.find("CUDNN_ATTR_"), std::string::npos) << message;
      }
      EXPECT_EQ(message.find(begin), 0u) << message;
      EXPECT_EQ(cudnn_.Alive(), alive) << message;
    }
    cudnn_.fail_call = 0;
    return failures;
  }

  FakeCublasLt cublaslt_;
  FakeCudnn cudnn_;
  Rig rig_{1};
};

}  // namespace gyre
