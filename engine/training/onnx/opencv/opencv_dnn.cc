#include "engine/training/onnx/opencv/opencv_dnn.h"

#include <cstring>
#include <opencv2/core/utility.hpp>
#include <opencv2/dnn.hpp>
#include <string>
#include <vector>

extern "C" bool gyre_opencv_dnn_forward(const char* model, size_t bytes,
                                        const gyre::DnnArray* inputs, size_t input_count,
                                        const char* const* outputs, size_t output_count,
                                        gyre::TakeDnnOutput* take, void* taker, char* text) {
  try {
    cv::setNumThreads(1);  // a few samples; its workers would start and end for nothing
    cv::dnn::Net net = cv::dnn::readNetFromONNX(model, bytes);
    net.setPreferableBackend(cv::dnn::DNN_BACKEND_OPENCV);
    net.setPreferableTarget(cv::dnn::DNN_TARGET_CPU);
    for (size_t i = 0; i < input_count; ++i) {
      const gyre::DnnArray& in = inputs[i];
      // OpenCV does not write to it.
      net.setInput(cv::Mat(in.rank, in.dims, CV_32F, const_cast<float*>(in.elements)), in.name);
    }
    std::vector<cv::Mat> results;
    net.forward(results, std::vector<cv::String>(outputs, outputs + output_count));
    for (const cv::Mat& result : results) {
      const cv::Mat whole = result.isContinuous() ? result : result.clone();
      take(taker, whole.size.p, whole.dims, whole.ptr<float>());
    }
    return true;
  } catch (const std::exception& error) {
    std::strncpy(text, error.what(), gyre::kDnnText - 1);
    text[gyre::kDnnText - 1] = 0;
    return false;
  }
}
