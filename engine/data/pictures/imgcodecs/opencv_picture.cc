#include "engine/data/pictures/imgcodecs/opencv_picture.h"

#include <algorithm>
#include <climits>
#include <iostream>
#include <opencv2/imgcodecs.hpp>
#include <streambuf>
#include <string>
#include <vector>

#include "engine/data/pictures/imgcodecs/stored_size.h"

namespace gyre {
namespace {

// Stands before std::cerr's buffer and drops what a thread writes while it decodes: OpenCV tells of
// a damaged file there, without its name.  Never removed.
class QuietBuffer : public std::streambuf {
 public:
  static void Install() {
    [[maybe_unused]] static QuietBuffer* const installed = [] {
      auto* const buffer = new QuietBuffer(std::cerr.rdbuf());
      std::cerr.rdbuf(buffer);
      return buffer;
    }();
  }

  static thread_local bool quiet;

 protected:
  int overflow(int character) override {
    if (quiet || character == traits_type::eof()) return 0;
    return behind_->sputc(traits_type::to_char_type(character));
  }
  std::streamsize xsputn(const char* text, std::streamsize count) override {
    return quiet ? count : behind_->sputn(text, count);
  }
  int sync() override { return quiet ? 0 : behind_->pubsync(); }

 private:
  explicit QuietBuffer(std::streambuf* behind) : behind_(behind) {}
  std::streambuf* const behind_;
};

thread_local bool QuietBuffer::quiet = false;

struct Quiet {
  Quiet() {
    QuietBuffer::Install();
    QuietBuffer::quiet = true;
  }
  ~Quiet() { QuietBuffer::quiet = false; }
};

// One row, blue first, as 8 bits, red first.
template <int kChannels, typename T>
void ConvertPixels(const T* from, int64_t count, int most, uint8_t* to) {
  const auto convert = [&](auto scaled) {
    for (int64_t i = 0; i < count; ++i, from += kChannels, to += kChannels) {
      for (int c = 0; c < kChannels; ++c) to[c] = scaled(from[kChannels > 1 && c < 3 ? 2 - c : c]);
    }
  };
  if (most == 255) {
    convert([](T value) { return static_cast<uint8_t>(value); });
  } else {
    convert([most](T value) {
      const int64_t least = std::min<int64_t>(value, most);
      return static_cast<uint8_t>((least * 510 + most) / (2 * most));  // rounded
    });
  }
}

template <typename T>
void ConvertRow(const T* from, int64_t count, int channels, int most, uint8_t* to) {
  if (channels == 1) return ConvertPixels<1>(from, count, most, to);
  if (channels == 3) return ConvertPixels<3>(from, count, most, to);
  return ConvertPixels<4>(from, count, most, to);
}

}  // namespace

Refusal DecodeByOpenCv(OtherFormat format, std::string_view file, const PictureHeader& header,
                       const Window& stored, RowFunction row) {
  if (file.size() > INT_MAX) {
    return Invalid("expected a file of at most " + std::to_string(INT_MAX) + " bytes, got " +
                   std::to_string(file.size()));
  }
  StoredPicture picture;
  const Refusal refusal = ReadStoredPicture(format, file, picture);
  if (refusal.refused()) return refusal;
  cv::Mat pixels;
  {
    // Workers decode side by side.  More threads than these would fight for their cores.
    [[maybe_unused]] static const bool single = (cv::setNumThreads(1), true);
    const Quiet quiet;
    const cv::Mat bytes(1, static_cast<int>(file.size()), CV_8U, const_cast<char*>(file.data()));
    // OpenCV takes some BMPs of colours for grey.  As colours it reads all right.
    pixels =
        cv::imdecode(bytes, format == OtherFormat::kBmp ? cv::IMREAD_COLOR : cv::IMREAD_UNCHANGED);
  }
  if (pixels.rows != header.height || pixels.cols != header.width) {
    return Damaged("the picture is truncated or damaged: OpenCV refuses it");
  }
  const int channels = pixels.channels();
  if ((pixels.depth() != CV_8U && pixels.depth() != CV_16U) ||
      (channels != 1 && channels != 3 && channels != 4)) {
    return Invalid("expected a picture of 8 or 16 bits and 1, 3 or 4 channels");
  }
  std::vector<uint8_t> converted(static_cast<size_t>(stored.width * channels));
  for (int64_t y = stored.top; y < stored.top + stored.height; ++y) {
    const auto convert = [&]<typename T>(const T* from) {
      ConvertRow(from + stored.left * channels, stored.width, channels, picture.most,
                 converted.data());
    };
    if (pixels.depth() == CV_8U) {
      convert(pixels.ptr<uint8_t>(static_cast<int>(y)));
    } else {
      convert(pixels.ptr<uint16_t>(static_cast<int>(y)));
    }
    row(converted.data(), channels);
  }
  return {};
}

}  // namespace gyre
