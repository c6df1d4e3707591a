#include "engine/runtime/device/cuda/cuda_libraries.h"

#include <dlfcn.h>
#include <link.h>
#include <unistd.h>

#include <cstdlib>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/runtime/check.h"

namespace gyre {
namespace {

#define GYRE_STRING_(x) #x
#define GYRE_STRING(x) GYRE_STRING_(x)

struct RequiredLibrary {
  const char *name, *file;
  int64_t oldest, below;  // versions, as Number writes them, that will do
  const char* needed;     // the same for people
  const char* advice;
};

// The interface is the header's of the same major version.
constexpr RequiredLibrary kCublasLt = {
    "cuBLASLt",
    "libcublasLt.so." GYRE_STRING(CUBLAS_VER_MAJOR),
    CUBLAS_VER_MAJOR * 10000,
    (CUBLAS_VER_MAJOR + 1) * 10000,
    GYRE_STRING(CUBLAS_VER_MAJOR) ".0 or a later " GYRE_STRING(CUBLAS_VER_MAJOR),
    "install the cuBLAS of CUDA " GYRE_STRING(CUBLAS_VER_MAJOR)};
// 9.0 has the graph interface in libcudnn.so.9, without the functions it replaces.
constexpr RequiredLibrary kCudnn = {"cuDNN", "libcudnn.so.9",    90000,
                                    100000,  "9.0 or a later 9", "install cuDNN 9"};
// 2.18 completes ncclConfig_t as it is used.
constexpr RequiredLibrary kNccl = {"NCCL", "libnccl.so.2",      21800,
                                   30000,  "2.18 or a later 2", "install NCCL 2"};

// 91900 is 9.19.0; before cuDNN 9, 8907 was 8.9.7.
std::string VersionText(int64_t version) {
  const int64_t major = version >= 10000 ? 10000 : 1000;
  return absl::StrCat(version / major, ".", version % major / 100, ".", version % 100);
}

// An open library, which is closed again if it turns out not to do.
class Library {
 public:
  // Opens the first file of the required name.  A file that is there but cannot be loaded is an
  // error, not a reason to take another one.
  static absl::StatusOr<Library> Open(const RequiredLibrary& required,
                                      std::span<const std::string> folders) {
    std::vector<std::string> searched;
    for (const std::string& folder : folders) {
      const std::string path =
          folder.empty() ? required.file : absl::StrCat(folder, "/", required.file);
      searched.push_back(folder.empty() ? "the system's search (LD_LIBRARY_PATH, ldconfig)"
                                        : folder);
      if (!folder.empty() && access(path.c_str(), F_OK) != 0) continue;
      void* const handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
      if (handle != nullptr) return Library(required, handle);
      const std::string why = dlerror();
      const bool absent = folder.empty() &&
                          absl::StartsWith(why, absl::StrCat(path, ": cannot open")) &&
                          absl::StrContains(why, "No such file");
      if (!absent) {
        return absl::UnavailableError(
            absl::StrCat(required.name, " cannot be loaded: ", why, "; ", required.advice));
      }
    }
    return absl::UnavailableError(absl::StrCat(required.name, " is missing: looked for ",
                                               required.file, " (", required.needed, ") in ",
                                               absl::StrJoin(searched, ", "), "; ", required.advice,
                                               ", or name its folder in LD_LIBRARY_PATH"));
  }

  Library(Library&& other) noexcept
      : required_(other.required_), handle_(std::exchange(other.handle_, nullptr)) {}
  ~Library() {
    if (handle_ != nullptr) dlclose(handle_);
  }

  absl::Status CheckVersion(int64_t version) const {
    if (version >= required_.oldest && version < required_.below) return absl::OkStatus();
    return absl::UnavailableError(absl::StrCat(required_.name, " ", VersionText(version), " at ",
                                               path(), " will not do: this build needs ",
                                               required_.needed, "; ", required_.advice));
  }

  template <typename Function>
  absl::Status Find(const char* name, Function& function) const {
    void* const symbol = dlsym(handle_, name);
    if (symbol == nullptr) {
      return absl::UnavailableError(absl::StrCat(required_.name, " at ", path(), " has no ", name,
                                                 ": this build needs ", required_.needed, "; ",
                                                 required_.advice));
    }
    function = reinterpret_cast<Function>(symbol);
    return absl::OkStatus();
  }

  // From now on it stays: a table points into it.
  void Keep() { handle_ = nullptr; }

 private:
  Library(const RequiredLibrary& required, void* handle) : required_(required), handle_(handle) {}

  std::string path() const {
    const link_map* map = nullptr;
    return dlinfo(handle_, RTLD_DI_LINKMAP, &map) == 0 ? map->l_name : required_.file;
  }

  const RequiredLibrary& required_;
  void* handle_;
};

template <typename Table>
absl::StatusOr<const Table*> Stay(absl::StatusOr<Table> opened) {
  RETURN_IF_ERROR(opened.status());
  return new Table(*opened);
}

absl::Status Failed(const char* call, const char* error, const char* detail) {
  const bool has_detail = detail != nullptr && *detail != 0;
  return absl::InternalError(
      absl::StrCat(call, ": ", error, has_detail ? ": " : "", has_detail ? detail : ""));
}

}  // namespace

std::vector<std::string> CudaLibraryFolders() {
  std::vector<std::string> folders = {""};
  const char* const home = std::getenv("CUDA_HOME");
  if (home != nullptr && *home != 0) folders.push_back(absl::StrCat(home, "/lib64"));
  folders.push_back("/usr/local/cuda/lib64");
  return folders;
}

#define GYRE_FIND(function) RETURN_IF_ERROR(library.Find(#function, table.function));

// The version before the rest, so that an old library is called old.
absl::StatusOr<CublasLt> OpenCublasLt(std::span<const std::string> folders) {
  CublasLt table;
  ASSIGN_OR_RETURN(Library library, Library::Open(kCublasLt, folders));
  GYRE_FIND(cublasLtGetVersion)
  RETURN_IF_ERROR(library.CheckVersion(static_cast<int64_t>(table.cublasLtGetVersion())));
  GYRE_CUBLASLT_FUNCTIONS(GYRE_FIND)
  library.Keep();
  return table;
}

absl::StatusOr<Cudnn> OpenCudnn(std::span<const std::string> folders) {
  Cudnn table;
  ASSIGN_OR_RETURN(Library library, Library::Open(kCudnn, folders));
  GYRE_FIND(cudnnGetVersion)
  RETURN_IF_ERROR(library.CheckVersion(static_cast<int64_t>(table.cudnnGetVersion())));
  GYRE_CUDNN_FUNCTIONS(GYRE_FIND)
  library.Keep();
  return table;
}

absl::StatusOr<Nccl> OpenNccl(std::span<const std::string> folders) {
  Nccl table;
  ASSIGN_OR_RETURN(Library library, Library::Open(kNccl, folders));
  GYRE_FIND(ncclGetVersion)
  int version = 0;
  const ncclResult_t result = table.ncclGetVersion(&version);
  GYRE_FIND(ncclGetErrorString)
  if (result != ncclSuccess) {
    return Failed("ncclGetVersion", table.ncclGetErrorString(result), nullptr);
  }
  RETURN_IF_ERROR(library.CheckVersion(version));
  GYRE_NCCL_FUNCTIONS(GYRE_FIND)
  library.Keep();
  return table;
}

absl::StatusOr<const CublasLt*> LoadCublasLt() {
  static const auto& library = *new auto(Stay(OpenCublasLt(CudaLibraryFolders())));
  return library;
}

absl::StatusOr<const Cudnn*> LoadCudnn() {
  static const auto& library = *new auto(Stay(OpenCudnn(CudaLibraryFolders())));
  return library;
}

absl::StatusOr<const Nccl*> LoadNccl() {
  static const auto& library = *new auto(Stay(OpenNccl(CudaLibraryFolders())));
  return library;
}

absl::Status CublasLtStatus(const CublasLt& library, cublasStatus_t code, const char* call) {
  if (code == CUBLAS_STATUS_SUCCESS) return absl::OkStatus();
  return Failed(call, library.cublasLtGetStatusString(code), nullptr);
}

absl::Status CudnnStatus(const Cudnn& library, cudnnStatus_t code, const char* call) {
  if (code == CUDNN_STATUS_SUCCESS) return absl::OkStatus();
  char detail[1024] = "";
  library.cudnnGetLastErrorString(detail, sizeof(detail));
  return Failed(call, library.cudnnGetErrorString(code), detail);
}

absl::Status NcclStatus(const Nccl& library, ncclResult_t code, ncclComm_t comm, const char* call) {
  if (code == ncclSuccess) return absl::OkStatus();
  return Failed(call, library.ncclGetErrorString(code), library.ncclGetLastError(comm));
}

}  // namespace gyre
