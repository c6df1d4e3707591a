// op_bench.h: the operations of nets, each in every way that a device has for it: timed, and held
// to the reference on the same operands.  Used by one thread.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <variant>
#include <vector>

#include "engine/runtime/primitives/cuda/trial_bench.h"
#include "models/schema/parse.h"
#include "tools/bench_kernels.h"
#include "tools/command_line.h"

namespace gyre {

struct ReductionSpec {
  Reduction reduction = Reduction::kColumns;
  DType dtype = DType::kF32;
  int64_t rows = 0, columns = 0;
};
std::string ToString(const ReductionSpec& spec);

using OpSpec = std::variant<GemmSpec, Conv2dSpec, Pool2dSpec, LogSoftmaxSpec, ReductionSpec>;

// What a training step of the net asks of the libraries, each once, and the reductions beside it;
// in F32.  Errors: those of planning.
absl::StatusOr<std::vector<OpSpec>> OpsOf(const Parsed<NetConfig>& net, int64_t batch);

struct OpPrecision {
  std::string name = "F32";
  DType dtype = DType::kF32;
  bool tf32 = false;
};

class OpBench {
 public:
  // emit: told each row as soon as it is known.  Errors: those of opening the device.
  static absl::StatusOr<std::unique_ptr<OpBench>> Create(
      const DeviceFlags& device, std::function<void(const nlohmann::ordered_json&)> emit);

  // Rows for each pass and way of the operation.  Errors: those of running it; a result that is
  // wrong is told in its row, and counted.
  absl::Status Measure(const OpSpec& spec, const OpPrecision& precision);
  int wrong() const { return wrong_; }

 private:
  // One pass of an operation: what its rows have in common.
  struct Pass {
    std::string what, name;
    size_t bytes = 0;  // of all operands, each once
    double flops = 0;
    const OpPrecision* precision = nullptr;
    DType result = DType::kF32;
  };
  class WaysSelector;  // measures what the CUDA libraries would do

  explicit OpBench(std::function<void(const nlohmann::ordered_json&)> emit)
      : emit_(std::move(emit)) {}
  absl::Status MeasureOp(GemmSpec spec, const OpPrecision& precision);
  absl::Status MeasureOp(Conv2dSpec spec, const OpPrecision& precision);
  absl::Status MeasureOp(Pool2dSpec spec, const OpPrecision& precision);
  absl::Status MeasureOp(LogSoftmaxSpec spec, const OpPrecision& precision);
  absl::Status MeasureOp(ReductionSpec spec, const OpPrecision& precision);

  // Times run and looks at its result, of so many bytes.  *expected: the reference's, or empty: it
  // becomes this one's.  unpack, if any, turns the whole result into the reference's layout.
  using Unpack = std::function<absl::Status(std::vector<std::byte>*)>;
  absl::Status Row(const Pass& pass, const std::string& way, Stream& stream,
                   const std::function<absl::Status()>& run, const void* result, size_t bytes,
                   std::vector<std::byte>* expected, const Unpack& unpack = nullptr);
  absl::StatusOr<std::vector<std::byte>> Look(Stream& stream, const void* result, size_t bytes,
                                              bool whole) const;
  absl::StatusOr<Buffer> Filled(size_t bytes, DType dtype, uint64_t key) const;
  absl::StatusOr<Buffer> Empty(size_t bytes) const;
  absl::StatusOr<std::unique_ptr<Primitives>> Vendors(bool tf32, CudaSelector* selector) const;

  const std::function<void(const nlohmann::ordered_json&)> emit_;
  DeviceChoice choice_;
  std::unique_ptr<Stream> stream_;
  // The reference first; on a CPU all others.
  std::vector<std::unique_ptr<PrimitiveLibrary>> libraries_;
  int wrong_ = 0;
};

}  // namespace gyre
