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
#include "tools/bench/bench_kernels.h"
#include "tools/command_line/command_line.h"

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
  using Libraries = std::vector<std::unique_ptr<PrimitiveLibrary>>;
  // The reference first; on a CPU all others.
  static Libraries LibrariesOf(const DeviceChoice& choice);

  // libraries: the reference first.  emit: told each row as soon as it is known.
  static absl::StatusOr<std::unique_ptr<OpBench>> Create(
      DeviceChoice choice, Libraries libraries,
      std::function<void(const nlohmann::ordered_json&)> emit);

  // Rows for each pass and way of the operation.  A way that refuses, or fails, is told in its row
  // and counted, as is a result that is wrong.  Errors: the device does nothing any more.
  absl::Status Measure(const OpSpec& spec, const OpPrecision& precision);
  int wrong() const { return wrong_; }
  int refused() const { return refused_; }

 private:
  // One pass of an operation: what its rows have in common.
  struct MeasuredPass {
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
  // Errors: the stream does nothing any more.
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
