#include "engine/data/pictures/pixels/rotate.h"

#include <climits>
#include <opencv2/imgproc.hpp>

#include "engine/runtime/check.h"

namespace gyre {

void Rotate(double degrees, TurnFilter filter, int64_t height, int64_t width, int channels,
            uint8_t* pixels) {
  GYRE_CHECK(height < SHRT_MAX && width < SHRT_MAX);
  // Workers change pictures side by side, so OpenCV needs no threads of its own.
  [[maybe_unused]] static const bool alone = [] {
    cv::setNumThreads(1);
    return true;
  }();
  cv::Mat picture(static_cast<int>(height), static_cast<int>(width), CV_8UC(channels), pixels);
  const cv::Point2d center((static_cast<double>(width) - 1) / 2,
                           (static_cast<double>(height) - 1) / 2);
  cv::warpAffine(picture.clone(), picture, cv::getRotationMatrix2D(center, degrees, /*scale=*/1),
                 picture.size(),
                 filter == TurnFilter::kNearest ? cv::INTER_NEAREST : cv::INTER_LINEAR,
                 cv::BORDER_CONSTANT, cv::Scalar::all(0));
}

}  // namespace gyre
