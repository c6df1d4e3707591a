// sample_writer.h: one sample of a batch: read, varied by its position, mixed with another,
// converted to the net's types.  It stands apart from the loader's threads.  Immutable.  Any
// thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/data/batches/batch_loader_options.h"
#include "engine/data/sets/dataset.h"
#include "engine/runtime/tensor.h"

namespace gyre {

// A sample of the endless order, by its index in the data set.
struct OrderedSample {
  int64_t sample = 0, position = 0;
  // SampleOrder::Beside, if samples are mixed.
  int64_t beside = 0, position_beside = 0;
  bool begins = false;  // a contiguous row begins there
};

class SampleWriter {
 public:
  // Memory of one thread.
  struct SampleBuffers {
    SampleMemory own, other;       // of the sample, and of the one mixed with it
    ReusedBytes moved[2], values;  // of both, on their way to the mix
  };

  // Errors: InvalidArgument for types that cannot be made.  `dataset` must outlive the result.
  static absl::StatusOr<SampleWriter> Create(const Dataset& dataset,
                                             const BatchLoaderOptions& options);

  // The shape of a sample of each array, as Write makes it.
  std::vector<Shape> shapes() const;
  // Writes a sample to `to`, a tensor for each array.  It may be mixed with the one beside it.
  // Errors: those of Dataset::Read and Decoder::Decode, and a class that there is not, with file
  // and sample.
  absl::Status Write(const OrderedSample& sample, SampleBuffers& memory,
                     std::span<const Tensor> to) const;

 private:
  // A sample on its way.
  struct VariedSample {
    int64_t sample;
    SampleDraw draw;
    Move move;
    SampleMemory& memory;
  };

  SampleWriter(const Dataset& dataset, const BatchLoaderOptions& options)
      : dataset_(dataset), options_(options) {}
  // A sample of an array as it is stored, with its pixels changed in memory.
  absl::StatusOr<Tensor> ReadVaried(size_t k, const VariedSample& source) const;
  // `to` <- the sample alone.
  absl::Status WriteOne(size_t k, const VariedSample& source, const Tensor& to) const;
  absl::Status WriteMixed(size_t k, const Mix& mix, const VariedSample& own,
                          const VariedSample& other, SampleBuffers& memory, const Tensor& to) const;
  absl::Status WriteClass(size_t k, const VariedSample& source, const Tensor& to) const;
  absl::Status WriteWeight(size_t k, const VariedSample& source, const Tensor& to) const;
  absl::Status Decode(size_t k, int64_t sample, const Tensor& stored, const Move& move,
                      const Tensor& to) const;

  const Dataset& dataset_;
  BatchLoaderOptions options_;
  std::vector<std::unique_ptr<const Decoder>> decoders_;  // by array.  Null: not decoded
};

}  // namespace gyre
