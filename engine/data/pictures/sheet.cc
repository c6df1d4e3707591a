#include "engine/data/pictures/sheet.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "engine/data/pictures/encode.h"
#include "engine/data/pictures/imgcodecs_library.h"
#include "engine/data/pictures/resize.h"
#include "engine/runtime/check.h"
#include "engine/runtime/math.h"

namespace gyre {
namespace {

// Pixels.
constexpr int64_t kLeast = 112;  // a smaller picture is drawn larger
constexpr int64_t kText = 16, kTitle = 22, kGap = 8;
constexpr uint8_t kFrame = 160;  // grey, so that white pictures end somewhere

// Where pictures lie.
struct SheetLayout {
  int64_t times = 1;              // as large as a picture is drawn
  int64_t height = 0, width = 0;  // of a cell: a picture with its frame, and the caption

  SheetLayout(int64_t picture_height, int64_t picture_width)
      : times(CeilDiv(kLeast, std::max({picture_height, picture_width, int64_t{1}}))),
        height(times * picture_height + 2 + kText),
        width(std::max(kLeast, times * picture_width) + 2) {}
};

// Bytes [height, width, 3], white at first.
class Canvas {
 public:
  Canvas(int64_t height, int64_t width)
      : height_(height), width_(width), pixels_(static_cast<size_t>(height * width * 3), 255) {}

  // Copies [height, width, channels] of 1 or 3 channels to (top, left).
  void Put(const Pixels& from, int64_t top, int64_t left) {
    for (int64_t y = 0; y < from.height; ++y) {
      for (int64_t x = 0; x < from.width; ++x) {
        for (int64_t c = 0; c < 3; ++c) {
          At(top + y, left + x)[c] =
              from.data[(y * from.width + x) * from.channels + (from.channels == 1 ? 0 : c)];
        }
      }
    }
  }
  void Frame(int64_t top, int64_t left, int64_t height, int64_t width) {
    for (int64_t y = 0; y < height; ++y) {
      for (int64_t x = 0; x < width; ++x) {
        const bool edge = y == 0 || y == height - 1 || x == 0 || x == width - 1;
        if (edge) std::fill_n(At(top + y, left + x), 3, kFrame);
      }
    }
  }
  absl::StatusOr<std::string> Png() const { return PngOf({height_, width_, 3, pixels_.data()}); }

 private:
  uint8_t* At(int64_t y, int64_t x) { return &pixels_[static_cast<size_t>((y * width_ + x) * 3)]; }

  const int64_t height_, width_;
  std::vector<uint8_t> pixels_;
};

// Moves text [.., width] on white as far right as it goes.
void MoveRight(std::vector<uint8_t>& text, int64_t width) {
  int64_t end = 0;  // of the ink
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] < 255) end = std::max(end, static_cast<int64_t>(i) % width + 1);
  }
  for (auto row = text.begin(); row != text.end(); row += width) {
    std::rotate(row, row + end, row + width);
  }
}

}  // namespace

int64_t SheetBytesOf(int64_t height, int64_t width) {
  const SheetLayout layout(height, width);
  return 3 * (layout.height + kGap) * (layout.width + kGap);
}

absl::StatusOr<std::string> DrawSheet(const Sheet& sheet) {
  GYRE_CHECK(sheet.height >= 1 && sheet.width >= 1 && !sheet.pictures.empty());
  ASSIGN_OR_RETURN(const ImgcodecsLibrary library, LoadImgcodecs());
  const SheetLayout layout(sheet.height, sheet.width);
  const int64_t down = layout.height + kGap, right = layout.width + kGap;
  const int64_t count = std::ssize(sheet.pictures);
  // About a square, and wide enough for the title.
  constexpr double kTitleWidth = 640;
  const double square = std::sqrt(static_cast<double>(count * down) / static_cast<double>(right));
  const int64_t columns = std::clamp<int64_t>(
      std::max(std::llround(square), std::llround(kTitleWidth / static_cast<double>(right))), 1,
      count);
  const int64_t width = std::max<int64_t>(kTitleWidth, columns * right + kGap);
  Canvas canvas(kGap + kTitle + CeilDiv(count, columns) * down + kGap, width);

  std::vector<uint8_t> pixels;
  const auto draw_text = [&](const std::string& line, int64_t top, int64_t left, int64_t height,
                             int64_t text_width) -> absl::Status {
    pixels.resize(static_cast<size_t>(height * text_width));
    char text[kImgcodecsText];
    RETURN_IF_ERROR(
        ImgcodecsStatus(library.draw_text(line, height, text_width, pixels.data(), text), text));
    canvas.Put({height, text_width, 1, pixels.data()}, top, left);
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(draw_text(sheet.title, kGap / 2, kGap, kTitle, width - 2 * kGap));
  for (int64_t i = 0; i < count; ++i) {
    const CaptionedPicture& picture = sheet.pictures[static_cast<size_t>(i)];
    const int64_t top = kGap + kTitle + i / columns * down, left = kGap + i % columns * right;
    const int64_t drawn_height = layout.times * sheet.height;
    const int64_t drawn_width = layout.times * sheet.width;
    canvas.Frame(top, left, drawn_height + 2, drawn_width + 2);
    pixels.resize(static_cast<size_t>(drawn_height * drawn_width * 3));
    Resize({sheet.height, sheet.width, 3, picture.pixels.data()}, ResizeFilter::kNearest,
           drawn_height, drawn_width, {.height = drawn_height, .width = drawn_width},
           pixels.data());
    canvas.Put({drawn_height, drawn_width, 3, pixels.data()}, top + 1, left + 1);
    if (picture.caption.empty()) continue;
    RETURN_IF_ERROR(draw_text(picture.caption, top + drawn_height + 2, left, kText, layout.width));
  }
  return canvas.Png();
}

absl::StatusOr<std::string> DrawSquare(const NamedSquare& square) {
  const int64_t count = std::ssize(square.names);
  GYRE_CHECK(count >= 1 && std::ssize(square.shares) == count * count);
  constexpr int64_t kSide = 1000, kMostCell = 40, kLine = 14, kNames = 150;
  const int64_t cell = std::clamp<int64_t>(kSide / count, 1, kMostCell);
  const absl::StatusOr<ImgcodecsLibrary> library = LoadImgcodecs();
  const bool named = cell >= kLine && library.ok();
  const int64_t first = named ? kNames + kGap : 0, side = cell * count;
  Canvas canvas(first + side, first + side);
  std::vector<uint8_t> pixels(static_cast<size_t>(side * side));
  for (int64_t i = 0; i < side * side; ++i) {
    const int64_t of = i / side / cell * count + i % side / cell;
    const double share = std::clamp(square.shares[static_cast<size_t>(of)], 0.0, 1.0);
    pixels[static_cast<size_t>(i)] = static_cast<uint8_t>(std::lround(255 * (1 - share)));
  }
  canvas.Put({side, side, 1, pixels.data()}, first, first);
  if (!named) return canvas.Png();
  pixels.resize(kLine * kNames);
  std::vector<uint8_t> turned(pixels.size());
  const auto draw = [&](const std::string& line) {
    char text[kImgcodecsText];
    return ImgcodecsStatus(library->draw_text(line, kLine, kNames, pixels.data(), text), text);
  };
  for (int64_t i = 0; i < count; ++i) {
    RETURN_IF_ERROR(draw(square.names[static_cast<size_t>(i)]));
    const int64_t at = first + i * cell + (cell - kLine) / 2;
    // Upwards, from the square on.
    for (int64_t y = 0; y < kNames; ++y) {
      for (int64_t x = 0; x < kLine; ++x) {
        turned[static_cast<size_t>(y * kLine + x)] =
            pixels[static_cast<size_t>(x * kNames + kNames - 1 - y)];
      }
    }
    canvas.Put({kNames, kLine, 1, turned.data()}, 0, at);
    MoveRight(pixels, kNames);
    canvas.Put({kLine, kNames, 1, pixels.data()}, at, 0);
  }
  RETURN_IF_ERROR(draw(absl::StrCat("rows: ", square.rows)));
  canvas.Put({kLine, kNames, 1, pixels.data()}, 0, 0);
  RETURN_IF_ERROR(draw(absl::StrCat("columns: ", square.columns)));
  canvas.Put({kLine, kNames, 1, pixels.data()}, kLine, 0);
  return canvas.Png();
}

}  // namespace gyre
