// verify.h: whether OpenCV's module dnn says of an ONNX model's random inputs what Gyre's own net
// says.  On the CPU.  Used by one thread.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "engine/training/onnx/onnx_model.h"
#include "engine/training/predict/trained_net.h"
#include "engine/training/step/owned_batch.h"
#include "engine/training/step/test_iteration.h"

namespace gyre {

// What Gyre's net says, as the model must.
class OwnForward {
 public:
  // `source` and `primitives` must outlive the result.  Carried states are 0 at first.
  // Errors: those of LoadTrained.
  static absl::StatusOr<std::unique_ptr<OwnForward>> Create(const OnnxSource& source,
                                                            int64_t samples,
                                                            const Primitives& primitives);

  // A model's inputs, but for carried states.  Reals are normal, or from 0 to 1 where they are
  // normalized.  Labels are from 0 to the largest that a layer takes.
  HostTensors RandomInputs(uint64_t seed) const;
  // The model's outputs, but for carried states, which the next call starts with.
  absl::StatusOr<HostTensors> Run(const HostTensors& inputs);

 private:
  explicit OwnForward(const OnnxSource& source) : source_(source) {}
  const Net& net() const { return *trained_.model->test().front(); }
  const NetSpec& spec() const { return net().plan().spec; }

  absl::Status Fill(const NamedTensor& input);

  const OnnxSource& source_;
  std::unique_ptr<Device> device_;
  TrainedNet trained_;
  OwnedBatch batch_;
  std::optional<TestIteration> iteration_;
};

// An ONNX model is right if no output differs by more than this share of the largest one.
inline constexpr double kOnnxTolerance = 1e-5;

// Why OpenCV 4.6 does not read the model, for people, or "".  It then takes onnxruntime.
std::string BeyondOpenCv(const onnx::ModelProto& model);

// The largest difference by the largest output, for random inputs of `samples` samples.
// Precondition: BeyondOpenCv is "".  Errors: Unavailable without OpenCV's module dnn, Internal with
// its words if it refuses the model or gives another shape, and those of OwnForward.
absl::StatusOr<double> DifferenceByOpenCv(const onnx::ModelProto& model, const OnnxSource& source,
                                          int64_t samples, const Primitives& primitives);

}  // namespace gyre
