// onednn.h: the engine and thread count of the oneDNN operations, work bound to its addresses, and
// oneDNN's exceptions as a Status.  Inside the library only.
//
// An operation is prepared and run with its library's thread count, because oneDNN divides the work
// when it prepares.  Enqueued work owns its memory objects, so a replay makes none.
#pragma once

#include <omp.h>

#include <algorithm>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/runtime/primitives/activation.h"
#include "oneapi/dnnl/dnnl.hpp"

namespace gyre {

// One a library, copied into its operations.
struct OneDnnContext {
  dnnl::engine engine;
  int threads = 1;
};

// Sets the calling thread's OpenMP thread count for a scope.
class ScopedThreads {
 public:
  explicit ScopedThreads(int threads) : before_(omp_get_max_threads()) {
    omp_set_num_threads(threads);
  }
  ~ScopedThreads() { omp_set_num_threads(before_); }
  ScopedThreads(const ScopedThreads&) = delete;
  ScopedThreads& operator=(const ScopedThreads&) = delete;

 private:
  const int before_;
};

// "WHAT: oneDNN: MESSAGE".  Unimplemented stays so, for the next library to try.
absl::Status OneDnnError(const std::string& what, const dnnl::error& error);

// Returns an operation of type Op for a valid spec.  Unimplemented, so that the next library tries,
// if oneDNN cannot make it.
template <typename Op, typename Spec, typename... More>
absl::StatusOr<std::unique_ptr<Op>> PrepareOneDnn(const OneDnnContext& context, const Spec& spec,
                                                  const More&... more) {
  const ScopedThreads threads(context.threads);
  try {
    return std::make_unique<Op>(context, spec, more...);
  } catch (const dnnl::error& error) {
    const absl::Status status = OneDnnError(ToString(spec), error);
    // The spec is valid, so an error of oneDNN is its own limit.
    return absl::IsResourceExhausted(status) ? status : absl::UnimplementedError(status.message());
  }
}

// Calls run(dnnl::stream&) on the calling thread.
template <typename F>
absl::Status RunOneDnn(const OneDnnContext& context, const std::string& what, const F& run) {
  const ScopedThreads threads(context.threads);
  try {
    dnnl::stream stream(context.engine);
    run(stream);
    stream.wait();
    return absl::OkStatus();
  } catch (const dnnl::error& error) {
    return OneDnnError(what, error);
  }
}

using OneDnnArguments = std::vector<std::pair<int, dnnl::memory>>;

// A primitive and its arguments, with fixed addresses.
class BoundPrimitive {
 public:
  // Throws dnnl::error.
  BoundPrimitive(dnnl::primitive primitive, OneDnnArguments arguments);
  void Run(const dnnl::stream& stream) const;  // throws dnnl::error

 private:
  dnnl::primitive primitive_;
  OneDnnArguments memories_;
  std::vector<dnnl_exec_arg_t> arguments_;
};

// Enqueues bind()'s primitives, in order, then after().  `context`, `what` must outlive the work.
template <typename Bind, typename After>
absl::Status EnqueueOneDnn(Stream& stream, const OneDnnContext& context, const std::string& what,
                           const Bind& bind, After after) {
  struct PrimitiveSequence {
    dnnl::stream stream;
    std::vector<BoundPrimitive> primitives;
    After after;
  };
  std::shared_ptr<PrimitiveSequence> work;
  try {
    work = std::make_shared<PrimitiveSequence>(
        PrimitiveSequence{dnnl::stream(context.engine), bind(), std::move(after)});
  } catch (const dnnl::error& error) {
    return OneDnnError(what, error);
  }
  return stream.Call([&context, &what, work = std::move(work)] {
    const ScopedThreads threads(context.threads);
    try {
      for (const BoundPrimitive& primitive : work->primitives) primitive.Run(work->stream);
      work->stream.wait();
    } catch (const dnnl::error& error) {
      return OneDnnError(what, error);
    }
    work->after();
    return absl::OkStatus();
  });
}
template <typename Bind>
absl::Status EnqueueOneDnn(Stream& stream, const OneDnnContext& context, const std::string& what,
                           const Bind& bind) {
  return EnqueueOneDnn(stream, context, what, bind, [] {});
}

// Attributes of every operation.  Scratch is the caller's.
dnnl::primitive_attr OneDnnAttributes();

// oneDNN reads and writes through pointers to non-const only.
inline dnnl::memory OneDnnMemory(const dnnl::memory::desc& desc, const OneDnnContext& context,
                                 const void* data) {
  return dnnl::memory(desc, context.engine, const_cast<void*>(data));
}

// The element type of a spec that the library accepts.
inline dnnl::memory::data_type OneDnnType(DType dtype) {
  return dtype == DType::kBF16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
}

// values[i] = activation(values[i]).  oneDNN's ReLU turns NaN into 0, and so hides a diverged run.
void ActivateInPlace(Activation activation, DType dtype, int64_t n, void* values);

// Returns the first implementation whose name has none of `parts`.  Throws dnnl::error if none.
template <typename Description>
Description Without(Description description, std::initializer_list<std::string_view> parts) {
  const auto has = [&](std::string_view part) {
    return std::string_view(description.impl_info_str()).find(part) != std::string_view::npos;
  };
  while (std::any_of(parts.begin(), parts.end(), has)) {
    if (!description.next_impl()) throw dnnl::error(dnnl_unimplemented, "no other implementation");
  }
  return description;
}

absl::StatusOr<std::unique_ptr<Conv2d>> PrepareOneDnnConv2d(const OneDnnContext& context,
                                                            const Conv2dSpec& spec);

}  // namespace gyre
