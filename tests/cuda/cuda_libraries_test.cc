// Loading cuBLASLt, cuDNN and NCCL: the real ones where they are installed, and folders that lack
// them, hold something else, an old one, or one without a function.
#include "engine/runtime/device/cuda/cuda_libraries.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"

namespace gyre {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

namespace fs = std::filesystem;

std::string Message(const absl::Status& status) { return std::string(status.message()); }

class CudaLibrariesTest : public testing::Test {
 protected:
  void SetUp() override {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }

  // Puts the library that the build made of stub_library.cc into the folder.
  void Install(const std::string& built, const std::string& file) const {
    fs::copy_file(fs::path("tests/cuda/fakes") / built, fs::path(folder_) / file);
  }
  std::vector<std::string> folders() const { return {folder_}; }

  const std::string folder_ = testing::TempDir() + "/libraries";
};

TEST_F(CudaLibrariesTest, AMissingLibraryIsNamedAndWhereItWasLookedFor) {
  const std::vector<std::string> folders = {folder_, folder_ + "/none"};
  EXPECT_EQ(OpenCudnn(folders).status(),
            absl::UnavailableError("cuDNN is missing: looked for libcudnn.so.9 (9.0 or a later 9) "
                                   "in " +
                                   folder_ + ", " + folder_ +
                                   "/none; install cuDNN 9, or name its folder in "
                                   "LD_LIBRARY_PATH"));
  const std::string major = std::to_string(CUBLAS_VER_MAJOR);
  EXPECT_THAT(Message(OpenCublasLt(folders).status()),
              StartsWith("cuBLASLt is missing: looked for libcublasLt.so." + major + " (" + major +
                         ".0 or a later " + major + ") in " + folder_));
  EXPECT_THAT(Message(OpenNccl(folders).status()),
              StartsWith("NCCL is missing: looked for libnccl.so.2 (2.18 or a later 2) in "));
}

TEST_F(CudaLibrariesTest, WhatIsNoLibraryIsNamed) {
  std::ofstream(folder_ + "/libnccl.so.2") << "not a shared object";
  const absl::Status status = OpenNccl(folders()).status();
  EXPECT_TRUE(absl::IsUnavailable(status));
  EXPECT_THAT(Message(status), StartsWith("NCCL cannot be loaded: " + folder_ + "/libnccl.so.2: "));
}

TEST_F(CudaLibrariesTest, AnOldLibraryIsNamedWithItsVersion) {
  Install("libcudnn_8.so", "libcudnn.so.9");
  EXPECT_EQ(OpenCudnn(folders()).status(),
            absl::UnavailableError("cuDNN 8.9.7 at " + folder_ +
                                   "/libcudnn.so.9 will not do: this build needs 9.0 or a later "
                                   "9; install cuDNN 9"));
  Install("libnccl_2_17.so", "libnccl.so.2");
  EXPECT_EQ(OpenNccl(folders()).status(),
            absl::UnavailableError("NCCL 2.17.1 at " + folder_ +
                                   "/libnccl.so.2 will not do: this build needs 2.18 or a later "
                                   "2; install NCCL 2"));
  const std::string file = "libcublasLt.so." + std::to_string(CUBLAS_VER_MAJOR);
  Install("libcublasLt_99.so", file);
  EXPECT_THAT(
      Message(OpenCublasLt(folders()).status()),
      StartsWith("cuBLASLt 99.1.2 at " + folder_ + "/" + file + " will not do: this build needs "));
}

TEST_F(CudaLibrariesTest, AMissingFunctionIsNamed) {
  Install("libcudnn_9.so", "libcudnn.so.9");
  EXPECT_EQ(OpenCudnn(folders()).status(),
            absl::UnavailableError("cuDNN at " + folder_ +
                                   "/libcudnn.so.9 has no cudnnBackendExecute: this build needs "
                                   "9.0 or a later 9; install cuDNN 9"));
}

TEST_F(CudaLibrariesTest, TheFirstFolderThatHasItDecides) {
  Install("libcudnn_8.so", "libcudnn.so.9");
  const std::vector<std::string> folders = {folder_ + "/none", folder_, "/usr/local/cuda/lib64"};
  EXPECT_THAT(Message(OpenCudnn(folders).status()), HasSubstr("cuDNN 8.9.7"));
}

TEST_F(CudaLibrariesTest, SearchesTheSystemCudaHomeAndTheUsualFolder) {
  setenv("CUDA_HOME", folder_.c_str(), 1);
  EXPECT_THAT(CudaLibraryFolders(), ElementsAre("", folder_ + "/lib64", "/usr/local/cuda/lib64"));
  setenv("CUDA_HOME", "", 1);
  EXPECT_THAT(CudaLibraryFolders(), ElementsAre("", "/usr/local/cuda/lib64"));
  unsetenv("CUDA_HOME");
  EXPECT_THAT(CudaLibraryFolders(), ElementsAre("", "/usr/local/cuda/lib64"));
}

TEST_F(CudaLibrariesTest, TheSystemsSearchThatFindsNothingIsNamed) {
  const std::vector<std::string> system = {""};
  const auto cudnn = OpenCudnn(system);
  if (cudnn.ok()) GTEST_SKIP() << "the system's search finds cuDNN";
  EXPECT_EQ(Message(cudnn.status()),
            "cuDNN is missing: looked for libcudnn.so.9 (9.0 or a later 9) in the system's search "
            "(LD_LIBRARY_PATH, ldconfig); install cuDNN 9, or name its folder in LD_LIBRARY_PATH");
}

template <typename Library>
bool Installed(const absl::StatusOr<Library>& library) {
  return library.ok() || !absl::StrContains(Message(library.status()), "is missing");
}

// No GPU is needed to load them, and to ask for their versions and their words.
TEST_F(CudaLibrariesTest, TheInstalledLibrariesLoad) {
  const auto cublaslt = LoadCublasLt();
  const auto cudnn = LoadCudnn();
  const auto nccl = LoadNccl();
  if (!Installed(cublaslt) || !Installed(cudnn) || !Installed(nccl)) {
    GTEST_SKIP() << "not all three are installed";
  }
  ASSERT_TRUE(cublaslt.ok()) << cublaslt.status();
  ASSERT_TRUE(cudnn.ok()) << cudnn.status();
  ASSERT_TRUE(nccl.ok()) << nccl.status();
  EXPECT_EQ((*cublaslt)->cublasLtGetVersion() / 10000, CUBLAS_VER_MAJOR);
  EXPECT_GE((*cudnn)->cudnnGetVersion(), 90000u);
  int version = 0;
  EXPECT_EQ((*nccl)->ncclGetVersion(&version), ncclSuccess);
  EXPECT_GE(version, 21800);
  EXPECT_EQ(*LoadCudnn(), *cudnn);  // loaded once

  EXPECT_TRUE(CublasLtStatus(**cublaslt, CUBLAS_STATUS_SUCCESS, "cublasLtMatmul").ok());
  EXPECT_THAT(Message(CublasLtStatus(**cublaslt, CUBLAS_STATUS_INVALID_VALUE, "cublasLtMatmul")),
              testing::MatchesRegex("cublasLtMatmul: .*value.*"));
  EXPECT_TRUE(CudnnStatus(**cudnn, CUDNN_STATUS_SUCCESS, "cudnnBackendExecute").ok());
  EXPECT_THAT(Message(CudnnStatus(**cudnn, CUDNN_STATUS_BAD_PARAM, "cudnnBackendExecute")),
              StartsWith("cudnnBackendExecute: CUDNN_STATUS_BAD_PARAM"));
  EXPECT_TRUE(NcclStatus(**nccl, ncclSuccess, nullptr, "ncclAllReduce").ok());
  EXPECT_THAT(Message(NcclStatus(**nccl, ncclInvalidArgument, nullptr, "ncclAllReduce")),
              StartsWith("ncclAllReduce: invalid argument"));
}

TEST(CudaStatusTest, TheLibrarysOwnWordsAreAppended) {
  Cudnn cudnn;
  cudnn.cudnnGetErrorString = [](cudnnStatus_t) { return "CUDNN_STATUS_NOT_SUPPORTED"; };
  cudnn.cudnnGetLastErrorString = [](char* text, size_t bytes) {
    std::strncpy(text, "stride 3 is odd", bytes);
  };
  EXPECT_EQ(
      CudnnStatus(cudnn, CUDNN_STATUS_NOT_SUPPORTED, "cudnnBackendFinalize"),
      absl::InternalError("cudnnBackendFinalize: CUDNN_STATUS_NOT_SUPPORTED: stride 3 is odd"));
  Nccl nccl;
  nccl.ncclGetErrorString = [](ncclResult_t) { return "remote error"; };
  nccl.ncclGetLastError = [](ncclComm_t) { return "rank 3 is gone"; };
  EXPECT_EQ(NcclStatus(nccl, ncclRemoteError, nullptr, "ncclAllReduce"),
            absl::InternalError("ncclAllReduce: remote error: rank 3 is gone"));
}

}  // namespace
}  // namespace gyre
