// fake_library.h: what the fakes of cuBLASLt and cuDNN share: failures on demand, the live objects,
// and the way from device pointers to memory that a CPU can read.
//
// A fake checks what the real library checks, says in words what it found, and computes when the
// stream comes to it, in double, from the descriptions alone: a wrong description gives a wrong
// number, and so does work that was not waited for.  Not thread-safe;
// one of a kind at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/runtime/dtype.h"

namespace gyre {

class FakeLibrary {
 public:
  // The nth call from now on (1: the next) fails with the library's internal error; 0: none.
  int fail_call = 0;
  // Every call of this function fails so.
  std::string fail_call_named;
  // The last call that was told to fail.
  std::string failed_call;
  // Why the last call failed.
  std::string complaint;
  // The streams that work went to, in order.
  std::vector<const void*> streams;

  // How a device pointer is read, and work is put on a stream (returns a cudaError_t).  By default
  // device memory is host memory, and work is done at once.
  std::function<void*(const void*)> host_view = [](const void* data) {
    return const_cast<void*>(data);
  };
  std::function<int(void*, const std::string&, std::function<void()>)> enqueue =
      [](void*, const std::string&, const std::function<void()>& work) {
        work();
        return 0;
      };
  // Several launches, the last of which does the work.
  int Enqueue(void* stream, const std::string& name, int launches, std::function<void()> work) {
    for (; launches > 1; --launches) {
      if (const int error = enqueue(stream, name, [] {})) return error;
    }
    return enqueue(stream, name, std::move(work));
  }

  // How many handles and descriptors have not been destroyed.
  int Alive() const { return static_cast<int>(objects_.size()); }

  // Internal to the fakes.

  struct Object {
    virtual ~Object() = default;
  };
  // Of every call but those that destroy or describe an error; false if it is to fail.
  bool Call(const char* name) {
    if (fail_call_named != name && (fail_call == 0 || --fail_call > 0)) return true;
    failed_call = name;
    complaint = failed_call + " was told to fail";
    return false;
  }
  template <typename T>
  T* New() {
    auto object = std::make_unique<T>();
    T* const raw = object.get();
    objects_[raw] = std::move(object);
    return raw;
  }
  // The live object of type T that a handle is; null if it is none.
  template <typename T>
  T* Find(const void* handle) const {
    const auto found = objects_.find(handle);
    return found == objects_.end() ? nullptr : dynamic_cast<T*>(found->second.get());
  }
  bool Destroy(const void* handle) { return objects_.erase(handle) == 1; }

 private:
  std::map<const void*, std::unique_ptr<Object>> objects_;
};

inline double LoadElement(DType type, const void* data, int64_t index) {
  return VisitReal(
      type, [&]<typename T>() { return static_cast<double>(static_cast<const T*>(data)[index]); });
}

inline void StoreElement(DType type, void* data, int64_t index, double value) {
  VisitReal(type, [&]<typename T>() {
    static_cast<T*>(data)[index] = static_cast<T>(static_cast<AccumulateType<T>>(value));
  });
}

}  // namespace gyre
