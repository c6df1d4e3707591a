// make_images: made-up pictures of shapes and textures, or those of MNIST's files, as PNG and JPEG.

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/data/pictures/encode.h"
#include "engine/data/tensors/array_file.h"
#include "engine/runtime/check.h"
#include "engine/runtime/random.h"
#include "opencv2/imgproc.hpp"
#include "tools/command_line/flag_values.h"
#include "tools/data/made_data.h"

ABSL_FLAG(std::string, out, "", "Folder to make.  It must not exist.");
ABSL_FLAG(int, train, 2000, "Training pictures.");
ABSL_FLAG(int, test, 500, "Test pictures.");
ABSL_FLAG(int, least, 8, "Least side of a made-up picture, in pixels.");
ABSL_FLAG(int, most, 400, "Greatest side of a made-up picture, in pixels.");
ABSL_FLAG(std::string, format, "mixed", "mixed, png or jpeg.");
ABSL_FLAG(std::string, mnist, "", "Folder of MNIST's four files, whose pictures are written.");
ABSL_FLAG(int, seed, 1, "Seed of all random numbers.");

namespace gyre {
namespace {

constexpr char kUsage[] =
    "writes made-up pictures, synthetic and of ten classes.\n"
    "\n"
    "  make_images --out=runs/data/images\n"
    "  make_images --out=runs/data/fashion --train=60000 --test=10000 --format=png\n"
    "    --mnist=/usr/share/datasets/fashion-mnist\n"
    "\n"
    "Shapes and textures, some grey, some with alpha, of many sizes. DIR/train has\n"
    "a folder a class, such as star/12.jpg. DIR/train.tsv lists the same pictures,\n"
    "as lines PATH TAB LABEL. DIR/test and DIR/test.tsv are alike. A trainer reads\n"
    "pictures by\n"
    "  data { train { images { folder: \"runs/data/images/train\" } }\n"
    "    test { images { folder: \"runs/data/images/test\" } } }\n"
    "With --mnist lists are in the files' order. The same flags give the same bytes.\n"
    "Exit codes: 0 done, 1 failed, 2 wrong flags.";

const std::vector<FlagGroup> kGroups = {
    {"Flags", {"out", "train", "test", "least", "most", "format", "mnist", "seed"}},
};

constexpr const char* kClasses[] = {"checker", "circle", "cross",   "dots",     "rings",
                                    "square",  "star",   "stripes", "triangle", "waves"};
constexpr int kClassCount = static_cast<int>(std::size(kClasses));

using cv::Point2d;

// Points of a regular polygon of alternating radii, which is a star if they differ.
std::vector<cv::Point> Polygon(int corners, Point2d center, double radius, double inner,
                               double turn) {
  std::vector<cv::Point> points;
  for (int i = 0; i < 2 * corners; ++i) {
    const double r = i % 2 == 0 ? radius : inner;
    const double angle = turn + std::numbers::pi * i / corners;
    points.emplace_back(cvRound(center.x + r * std::cos(angle)),
                        cvRound(center.y + r * std::sin(angle)));
  }
  return points;
}

// A mask of the class, 255 where its colour is.
cv::Mat MaskOf(int label, cv::Size size, Numbers& numbers) {
  cv::Mat mask = cv::Mat::zeros(size, CV_8UC1);
  const double side = std::min(size.width, size.height);
  const double radius = side * numbers.Uniform(0.25, 0.48), turn = numbers.Uniform(0, 6.28);
  const Point2d center(numbers.Uniform(radius, size.width - radius),
                       numbers.Uniform(radius, size.height - radius));
  const cv::Scalar on(255);
  const auto texture = [&](auto value) {
    const double period = std::max(3.0, side * numbers.Uniform(0.12, 0.3));
    const double c = std::cos(turn), s = std::sin(turn);
    for (int y = 0; y < size.height; ++y) {
      for (int x = 0; x < size.width; ++x) {
        const double u = (c * x + s * y) / period, v = (c * y - s * x) / period;
        mask.at<uint8_t>(y, x) = value(u, v) ? 255 : 0;
      }
    }
  };
  const auto fraction = [](double x) { return x - std::floor(x); };
  switch (label) {
    case 0:
      texture(
          [&](double u, double v) { return (fraction(u / 2) < 0.5) != (fraction(v / 2) < 0.5); });
      break;
    case 1:
      cv::circle(mask, center, cvRound(radius), on, cv::FILLED);
      break;
    case 2:
      for (const double across : {0.0, std::numbers::pi / 2}) {
        const Point2d arm(radius * std::cos(turn + across), radius * std::sin(turn + across));
        cv::line(mask, center - arm, center + arm, on, std::max(1, cvRound(radius / 2.5)));
      }
      break;
    case 3:
      texture([&](double u, double v) {
        return std::hypot(fraction(u) - 0.5, fraction(v) - 0.5) < 0.27;
      });
      break;
    case 4:
      for (double r = radius; r > 1; r -= std::max(2.0, radius / 3)) {
        cv::circle(mask, center, cvRound(r), on, std::max(1, cvRound(radius / 8)));
      }
      break;
    case 5:
      cv::fillPoly(mask, Polygon(4, center, radius, radius * std::cos(std::numbers::pi / 4), turn),
                   on);
      break;
    case 6:
      cv::fillPoly(mask, Polygon(5, center, radius, 0.4 * radius, turn), on);
      break;
    case 7:
      texture([&](double u, double) { return fraction(u) < 0.5; });
      break;
    case 8:
      cv::fillPoly(mask, Polygon(3, center, radius, radius / 2, turn), on);
      break;
    default:
      texture([&](double u, double v) {
        return fraction(u + 0.35 * std::sin(v * std::numbers::pi)) < 0.5;
      });
  }
  return mask;
}

cv::Mat PictureOf(int label, Numbers& numbers) {
  const double least = absl::GetFlag(FLAGS_least), most = absl::GetFlag(FLAGS_most);
  const auto side = [&] { return cvRound(least * std::pow(most / least, numbers.Uniform())); };
  const cv::Size size(side(), side());
  const int channels = numbers.Uniform() < 0.2 ? 1 : numbers.Uniform() < 0.1 ? 4 : 3;
  // Brightnesses apart, so that a shape shows in grey, too.
  const double ground = numbers.Uniform(0, 255);
  const double figure = ground < 128 ? ground + 90 : ground - 90;
  const auto color = [&](double brightness) {
    cv::Scalar values;
    for (int c = 0; c < 3; ++c) {
      values[c] = std::clamp(brightness + (channels == 1 ? 0 : numbers.Uniform(-60, 60)), 0., 255.);
    }
    values[3] = 255;
    return values;
  };
  cv::Mat picture(size, CV_8UC(channels), color(ground));
  if (channels == 4) picture.setTo(cv::Scalar(0, 0, 0, 0));
  picture.setTo(color(figure), MaskOf(label, size, numbers));
  const int colors = std::min(channels, 3);
  for (int y = 0; y < size.height; ++y) {
    for (int x = 0; x < size.width; ++x) {
      uint8_t* pixel = picture.ptr<uint8_t>(y) + static_cast<ptrdiff_t>(x) * channels;
      const double noise = 8 * numbers.Normal();
      for (int c = 0; c < colors; ++c) pixel[c] = cv::saturate_cast<uint8_t>(pixel[c] + noise);
    }
  }
  return picture;
}

absl::StatusOr<std::string> WriteOne(const std::string& stem, const Pixels& pixels, bool jpeg) {
  ASSIGN_OR_RETURN(const std::string bytes, jpeg ? JpegOf(pixels, 90) : PngOf(pixels));
  const std::string path = stem + (jpeg ? ".jpg" : ".png");
  RETURN_IF_ERROR(WriteText(path, bytes));
  return path;
}

bool IsJpeg(int channels, Numbers& numbers) {
  const std::string format = absl::GetFlag(FLAGS_format);
  return channels != 4 && (format == "jpeg" || (format == "mixed" && numbers.Uniform() < 0.5));
}

Numbers NumbersOf(const std::string& name) {
  return Numbers(RandomKey(static_cast<uint64_t>(absl::GetFlag(FLAGS_seed)), name));
}

// Writes a picture and its line of the list.
absl::Status Add(const std::string& folder, const std::string& name, const std::string& label,
                 const Pixels& pixels, Numbers& numbers, std::string& list) {
  ASSIGN_OR_RETURN(const std::string path, WriteOne(absl::StrCat(folder, "/", name), pixels,
                                                    IsJpeg(pixels.channels, numbers)));
  absl::StrAppend(&list, path.substr(folder.size() + 1), "\t", label, "\n");
  return absl::OkStatus();
}

absl::Status WriteMadeUp(const std::string& folder, const std::string& set, int count,
                         std::string& list) {
  for (const char* label : kClasses) {
    RETURN_IF_ERROR(MakeFolder(absl::StrCat(folder, "/", set, "/", label)));
  }
  for (int i = 0; i < count; ++i) {
    const char* label = kClasses[i % kClassCount];
    const std::string name = absl::StrCat(set, "/", label, "/", i / kClassCount);
    Numbers numbers = NumbersOf(name);
    const cv::Mat picture = PictureOf(i % kClassCount, numbers);
    RETURN_IF_ERROR(Add(folder, name, label,
                        {picture.rows, picture.cols, picture.channels(), picture.data}, numbers,
                        list));
  }
  return absl::OkStatus();
}

absl::Status WriteMnist(const std::string& folder, const std::string& set, int count,
                        std::string& list) {
  const std::string files =
      absl::StrCat(absl::GetFlag(FLAGS_mnist), "/", set == "train" ? "train" : "t10k");
  ASSIGN_OR_RETURN(
      const HostArray images,
      ReadArray({.path = files + "-images-idx3-ubyte.gz", .least_rank = 3, .most_rank = 4}));
  ASSIGN_OR_RETURN(const HostArray labels,
                   ReadArray({.path = files + "-labels-idx1-ubyte.gz", .most_rank = 1}));
  if (images.dims[0] != labels.dims[0] || count > images.dims[0]) {
    return absl::InvalidArgumentError(absl::StrFormat("%s: %d images, %d labels, but --%s=%d",
                                                      files, images.dims[0], labels.dims[0], set,
                                                      count));
  }
  const int64_t bytes = images.dims[1] * images.dims[2] * images.dims[3];
  for (int i = 0; i < count; ++i) {
    const std::string label =
        absl::StrCat(static_cast<uint8_t>(labels.bytes[static_cast<size_t>(i)]));
    RETURN_IF_ERROR(MakeFolder(absl::StrCat(folder, "/", set, "/", label)));
    const std::string name = absl::StrCat(set, "/", label, "/", absl::StrFormat("%05d", i));
    Numbers numbers = NumbersOf(name);
    const auto* first = reinterpret_cast<const uint8_t*>(images.data()) + i * bytes;
    RETURN_IF_ERROR(Add(folder, name, label,
                        {images.dims[1], images.dims[2], static_cast<int>(images.dims[3]), first},
                        numbers, list));
  }
  return absl::OkStatus();
}

absl::Status WriteAll(const std::string& folder) {
  const bool mnist = !absl::GetFlag(FLAGS_mnist).empty();
  for (const auto& [set, count] : {std::pair("train", absl::GetFlag(FLAGS_train)),
                                   std::pair("test", absl::GetFlag(FLAGS_test))}) {
    std::string list;
    RETURN_IF_ERROR(mnist ? WriteMnist(folder, set, count, list)
                          : WriteMadeUp(folder, set, count, list));
    RETURN_IF_ERROR(WriteText(absl::StrCat(folder, "/", set, ".tsv"), list));
  }
  if (mnist) return absl::OkStatus();
  return WriteText(folder + "/SYNTHETIC",
                   absl::StrFormat("Synthetic: made up by make_images --train=%d --test=%d "
                                   "--least=%d --most=%d --format=%s --seed=%d\n",
                                   absl::GetFlag(FLAGS_train), absl::GetFlag(FLAGS_test),
                                   absl::GetFlag(FLAGS_least), absl::GetFlag(FLAGS_most),
                                   absl::GetFlag(FLAGS_format), absl::GetFlag(FLAGS_seed)));
}

absl::Status Check() {
  for (const auto& [flag, count] : {std::pair("train", absl::GetFlag(FLAGS_train)),
                                    std::pair("test", absl::GetFlag(FLAGS_test))}) {
    RETURN_IF_ERROR(
        CheckValue(count >= kClassCount && count <= 1'000'000, flag, count, "10 to 1000000"));
  }
  const int least = absl::GetFlag(FLAGS_least), most = absl::GetFlag(FLAGS_most);
  RETURN_IF_ERROR(CheckValue(least >= 8 && least <= 4000, "least", least, "8 to 4000"));
  RETURN_IF_ERROR(CheckValue(most >= least && most <= 4000, "most", most, "--least to 4000"));
  const std::string format = absl::GetFlag(FLAGS_format);
  const bool known = format == "mixed" || format == "png" || format == "jpeg";
  return CheckValue(known, "format", format, "mixed, png or jpeg");
}

}  // namespace
}  // namespace gyre

int main(int argc, char** argv) {
  return gyre::RunMaker(
      argc, argv, gyre::kUsage, gyre::kGroups,
      {"pictures", FLAGS_out, FLAGS_train, FLAGS_test, gyre::Check, gyre::WriteAll});
}
