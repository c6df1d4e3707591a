// Shared objects that are not the libraries they are called: VERSION of NAME, or cuDNN 9 without
// cudnnBackendExecute.
#include <cstddef>

extern "C" {

#if defined(FAKE_CUBLASLT)
size_t cublasLtGetVersion();
size_t cublasLtGetVersion() { return FAKE_CUBLASLT; }
#endif

#if defined(FAKE_NCCL)
int ncclGetVersion(int* version);
int ncclGetVersion(int* version) {
  *version = FAKE_NCCL;
  return 0;
}
const char* ncclGetErrorString(int);
const char* ncclGetErrorString(int) { return ""; }
#endif

#if defined(FAKE_CUDNN)
size_t cudnnGetVersion();
size_t cudnnGetVersion() { return FAKE_CUDNN; }
#define FUNCTION(name) \
  void name();         \
  void name() {}
FUNCTION(cudnnGetErrorString)
FUNCTION(cudnnGetLastErrorString)
FUNCTION(cudnnCreate)
FUNCTION(cudnnDestroy)
FUNCTION(cudnnSetStream)
FUNCTION(cudnnBackendCreateDescriptor)
FUNCTION(cudnnBackendDestroyDescriptor)
FUNCTION(cudnnBackendSetAttribute)
FUNCTION(cudnnBackendGetAttribute)
FUNCTION(cudnnBackendFinalize)
#endif

}  // extern "C"
