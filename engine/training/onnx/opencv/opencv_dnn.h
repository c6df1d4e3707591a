// opencv_dnn.h: what libgyre_opencv_dnn.so does: runs an ONNX model by OpenCV's module dnn.  A
// program opens the library at first use (../verify.h), so that no other start maps it. The
// two share no code, hence the interface: of C, with plain types, errors as a text, no exceptions.
#pragma once

#include <cstddef>

namespace gyre {

struct DnnArray {
  const char* name;
  const int* dims;
  int rank;
  const float* elements;
};

// Room for an error's text, which ends with 0.
constexpr size_t kDnnText = 1024;

// Takes an output, in the order of `outputs`.
using TakeDnnOutput = void(void* taker, const int* dims, int rank, const float* elements);

// Returns whether the model was read and run.  Fills `text` unless it was.
using DnnForwardFunction = bool(const char* model, size_t bytes, const DnnArray* inputs,
                                size_t input_count, const char* const* outputs, size_t output_count,
                                TakeDnnOutput* take, void* taker, char* text);

constexpr char kDnnForward[] = "gyre_opencv_dnn_forward";

}  // namespace gyre

extern "C" {
gyre::DnnForwardFunction gyre_opencv_dnn_forward;
}
