// op_bench.h: times a net's operations in each way that a device has for them, and compares each
// result with the reference on the same operands.  Used by one thread.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <variant>
#include <vector>

#include "engine/runtime/primitives/cuda/trial_bench.h"
#include "models/schema/parse.h"
#include "tools/command_line/devices.h"

namespace gyre {

using OpSpec = std::variant<GemmSpec, Conv2dSpec, Pool2dSpec>;

// The operations that a training step of the net requests from the libraries, each once, in F32.
// Errors: those of planning.
absl::StatusOr<std::vector<OpSpec>> OpsOf(const Parsed<NetConfig>& net, int64_t batch);

struct OpPrecision {
  std::string name = "F32";
  DType dtype = DType::kF32;
  bool tf32 = false;
};

class OpBench {
 public:
  using Libraries = std::vector<std::unique_ptr<PrimitiveLibrary>>;
  // The reference, followed on a CPU by all other libraries.
  static Libraries LibrariesOf(const DeviceChoice& choice);

  // `libraries` begins with the reference.  `emit` receives each row as soon as it is known.
  static absl::StatusOr<std::unique_ptr<OpBench>> Create(
      DeviceChoice choice, Libraries libraries,
      std::function<void(const nlohmann::ordered_json&)> emit);

  // Emits a row for each pass and way of the operation.  A way that refuses or fails, or a wrong
  // result, is reported in its row and counted.  Errors: the device no longer works.
  absl::Status Measure(const OpSpec& spec, const OpPrecision& precision);
  int wrong() const { return wrong_; }
  int refused() const { return refused_; }

 private:
  // The values that all rows of one pass of an operation share.
  struct MeasuredPass {
    std::string what, name;
    size_t bytes = 0;  // of all operands, each once
    double flops = 0;
    const OpPrecision* precision = nullptr;
  };
  class WaysSelector;  // measures each way of the CUDA libraries

  explicit OpBench(std::function<void(const nlohmann::ordered_json&)> emit)
      : emit_(std::move(emit)) {}
  absl::Status MeasureOp(GemmSpec spec, const OpPrecision& precision);
  absl::Status MeasureOp(Conv2dSpec spec, const OpPrecision& precision);
  absl::Status MeasureOp(Pool2dSpec spec, const OpPrecision& precision);

  // Times `run` and compares the `bytes` of its result with *expected, the reference's.  An empty
  // *expected becomes this result.  `unpack`, if any, converts it to the reference's layout.
  // Errors: the stream no longer works.
  using Unpack = std::function<absl::Status(std::vector<std::byte>*)>;
  absl::Status Row(const MeasuredPass& pass, const std::string& way, Stream& stream,
                   const std::function<absl::Status()>& run, const void* result, size_t bytes,
                   std::vector<std::byte>* expected, const Unpack& unpack = nullptr);
  absl::Status TimedRow(const MeasuredPass& pass, const std::string& way, Stream& stream,
                        const std::function<absl::Status()>& run, const void* result, size_t bytes,
                        std::vector<std::byte>* expected, const Unpack& unpack);
  void EmitRefusal(const std::string& what, const std::string& pass, const OpPrecision& precision,
                   const std::string& way, const absl::Status& status);
  absl::StatusOr<std::vector<std::byte>> Look(Stream& stream, const void* result, size_t bytes,
                                              bool whole) const;
  absl::StatusOr<Buffer> Filled(size_t bytes, DType dtype, uint64_t key) const;
  absl::StatusOr<Buffer> Empty(size_t bytes) const;
  absl::StatusOr<std::unique_ptr<Primitives>> Vendors(bool tf32, CudaSelector* selector) const;

  const std::function<void(const nlohmann::ordered_json&)> emit_;
  DeviceChoice choice_;
  std::unique_ptr<Stream> stream_;
  Libraries libraries_;
  int wrong_ = 0, refused_ = 0;
};

}  // namespace gyre
