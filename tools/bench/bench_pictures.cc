// bench_pictures: pictures in files to a net's input, as training reads them: decode, random
// resized crop, flip, normalise.  Beside OpenCV and libjpeg alone, in turn, with the same windows.
// The processor's time, of one thread.  tools/peer/compare_pictures makes files and adds
// torchvision.

#include <jpeglib.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <opencv2/imgcodecs.hpp>
#include <opencv2/imgproc.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/data/batches/batch_loader.h"
#include "engine/data/files/file_reader.h"
#include "engine/data/sets/dataset.h"
#include "engine/data/sets/picture_index.h"
#include "engine/data/sets/picture_input.h"
#include "engine/runtime/check.h"
#include "tools/bench/bench.h"

ABSL_FLAG(std::string, folder, "", "JPEGs, a folder for each class.");
ABSL_FLAG(int64_t, size, 224, "Height and width of the input, in pixels.");
ABSL_FLAG(int64_t, batch, 64, "Samples a batch.");
ABSL_FLAG(int64_t, batches, 8, "Batches that each way makes in a round.");
ABSL_FLAG(int, workers, 2, "Threads that are compared with one.  1: none are.");
ABSL_FLAG(int, rounds, 5,
          "Rounds.  Each measures every way once.  0: one for each line of standard input.");

namespace gyre {
namespace {

constexpr char kUsage[] =
    "measures pictures in files becoming a net's input:\n"
    "decode, random resized crop, flip, normalise.\n"
    "\n"
    "  bench_pictures --folder=photos\n"
    "\n"
    "Prints a JSON line for each filter, of medians over the rounds: milliseconds of\n"
    "the processor's time a picture, and times as fast as\n"
    "  imdecode  cv::imdecode, then cv::resize of the window\n"
    "  bare      libjpeg, of the window alone, then cv::resize\n"
    "A line more has pictures a second by workers.\n"
    "Exit codes: 0 done, 1 failed, 2 wrong flags.";

const std::vector<FlagGroup> kGroups = {
    {"Flags", {"folder", "size", "batch", "batches", "workers", "rounds"}},
};

constexpr uint64_t kSeed = 1;
constexpr int kChannels = 3;
const Normalization kNormalization = {{0.485, 0.456, 0.406}, {0.229, 0.224, 0.225}};
constexpr Augmentation kAugmentation = {.flip = true};

double CpuSeconds() {
  timespec time;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

absl::StatusOr<std::unique_ptr<Dataset>> Open(ImagesConfig::Filter filter) {
  DataConfig config;
  ImagesConfig& images = *config.mutable_train()->mutable_images();
  images.set_folder(absl::GetFlag(FLAGS_folder));
  images.set_filter(filter);
  config.mutable_augmentation()->mutable_random_crop();
  const int64_t size = absl::GetFlag(FLAGS_size);
  return OpenDataset(config, /*train=*/true, "",
                     {{.name = "image", .dims = {size, size, kChannels}},
                      {.name = "label", .dims = {}, .label = true}});
}

absl::StatusOr<std::unique_ptr<BatchLoader>> Load(const Dataset& dataset, Device& device,
                                                  int workers) {
  const int64_t batch = absl::GetFlag(FLAGS_batch);
  return BatchLoader::Create(
      dataset, SampleOrder(dataset.size(), kSeed), device,
      {.arrays = {{.array = 0, .normalization = kNormalization, .augmented = true},
                  {.array = 1, .dtype = DType::kI32}},
       .augmentation = kAugmentation,
       .seed = kSeed,
       .count = batch,
       .advance = batch,
       .workers = workers});
}

struct PictureTimes {
  double cpu = 0, wall = 0;  // seconds a picture
};

// Of batches that follow each other, when all memory has been touched.
absl::StatusOr<PictureTimes> TimeLoader(const Dataset& dataset, Device& device, int workers) {
  ASSIGN_OR_RETURN(const auto loader, Load(dataset, device, workers));
  const auto next = [&]() -> absl::Status {
    const Batch batch = loader->Next();
    if (!batch.faults.empty()) return absl::DataLossError(batch.faults.front().message);
    loader->Release(batch);
    return absl::OkStatus();
  };
  for (int i = 0; i < BatchLoaderOptions().depth; ++i) RETURN_IF_ERROR(next());
  const int64_t batches = absl::GetFlag(FLAGS_batches);
  const double cpu = CpuSeconds();
  const BenchClock::time_point start = BenchClock::now();
  for (int64_t i = 0; i < batches; ++i) RETURN_IF_ERROR(next());
  const auto pictures = static_cast<double>(batches * absl::GetFlag(FLAGS_batch));
  return PictureTimes{.cpu = (CpuSeconds() - cpu) / pictures,
                      .wall = SecondsSince(start) / pictures};
}

// A picture's window as OpenCV has it, and how its channels are ordered.
struct Decoded {
  cv::Mat pixels;
  bool blue_first = false;
};

Decoded DecodeAll(const std::vector<uint8_t>& file, const Window& window) {
  const cv::Mat all = cv::imdecode(file, cv::IMREAD_COLOR);
  return {all(cv::Rect(static_cast<int>(window.left), static_cast<int>(window.top),
                       static_cast<int>(window.width), static_cast<int>(window.height))),
          /*blue_first=*/true};
}

// Without margins, so that a rim of 2 pixels differs.  An error ends the program.
Decoded DecodeBare(const std::vector<uint8_t>& file, const Window& window) {
  jpeg_decompress_struct jpeg;
  jpeg_error_mgr errors;
  jpeg.err = jpeg_std_error(&errors);
  jpeg_create_decompress(&jpeg);
  jpeg_mem_src(&jpeg, file.data(), file.size());
  jpeg_read_header(&jpeg, TRUE);
  jpeg.out_color_space = JCS_RGB;
  jpeg_start_decompress(&jpeg);
  auto left = static_cast<JDIMENSION>(window.left), width = static_cast<JDIMENSION>(window.width);
  jpeg_crop_scanline(&jpeg, &left, &width);
  jpeg_skip_scanlines(&jpeg, static_cast<JDIMENSION>(window.top));
  cv::Mat pixels(static_cast<int>(window.height), static_cast<int>(width), CV_8UC3);
  for (int row = 0; row < pixels.rows;) {
    JSAMPROW to = pixels.ptr(row);
    row += static_cast<int>(jpeg_read_scanlines(&jpeg, &to, 1));
  }
  jpeg_destroy_decompress(&jpeg);
  const int skipped = static_cast<int>(window.left - left);
  return {pixels.colRange(skipped, skipped + static_cast<int>(window.width))};
}

using PeerDecode = Decoded (*)(const std::vector<uint8_t>& file, const Window& window);

// What a program does that calls libraries, for one sample after the other.
class PeerPictures {
 public:
  explicit PeerPictures(PictureIndex pictures)
      : pictures_(std::move(pictures)), values_(PixelValues(kNormalization).size()) {
    std::ranges::copy(PixelValues(kNormalization), values_.begin());
    const int64_t size = absl::GetFlag(FLAGS_size);
    fit_ = {.height = size, .width = size, .random = RandomCrop{}};
    batch_.resize(static_cast<size_t>(absl::GetFlag(FLAGS_batch) * size * size * kChannels));
  }

  // Makes the sample at a position of the order.  It is valid for a batch.
  absl::StatusOr<const float*> Make(int64_t position, int64_t sample, PeerDecode decode,
                                    int interpolation) {
    ASSIGN_OR_RETURN(FileReader reader, FileReader::Open(pictures_.PathOf(sample)));
    file_.resize(reader.size());
    RETURN_IF_ERROR(reader.ReadAll(reinterpret_cast<std::byte*>(file_.data()), file_.size()));
    ASSIGN_OR_RETURN(const PictureHeader header,
                     ReadPictureHeader({reinterpret_cast<char*>(file_.data()), file_.size()},
                                       ImagesConfig().most_pixels()));
    ASSIGN_OR_RETURN(const Geometry geometry,
                     GeometryOf(header.height, header.width, fit_,
                                SampleDraw{.seed = kSeed, .position = position}));
    const Decoded window = decode(file_, geometry.source);
    const auto size = static_cast<int>(fit_.height);
    cv::resize(window.pixels, resized_, cv::Size(size, size), 0, 0, interpolation);
    if (MoveAt(kAugmentation, kSeed, position).flip) cv::flip(resized_, resized_, 1);
    const int64_t pixels = fit_.height * fit_.width;
    float* const made = batch_.data() + position % absl::GetFlag(FLAGS_batch) * pixels * kChannels;
    const int first = window.blue_first ? 2 : 0;
    for (int64_t i = 0; i < pixels; ++i) {
      const uint8_t* pixel = resized_.data + kChannels * i;
      made[kChannels * i] = values_[pixel[first]];
      made[kChannels * i + 1] = values_[256 + pixel[1]];
      made[kChannels * i + 2] = values_[512 + pixel[2 - first]];
    }
    return made;
  }

  absl::StatusOr<double> Time(PeerDecode decode, int interpolation) {
    SampleOrder order(pictures_.paths.size(), kSeed);
    // The positions that TimeLoader measures.
    const int64_t batch = absl::GetFlag(FLAGS_batch), first = BatchLoaderOptions().depth * batch,
                  count = absl::GetFlag(FLAGS_batches) * batch;
    const double start = CpuSeconds();
    for (int64_t p = first; p < first + count; ++p) {
      RETURN_IF_ERROR(Make(p, order.At(p), decode, interpolation).status());
    }
    return (CpuSeconds() - start) / static_cast<double>(count);
  }

 private:
  const PictureIndex pictures_;
  InputFit fit_;
  std::vector<float> values_, batch_;
  std::vector<uint8_t> file_;
  cv::Mat resized_;
};

struct Way {
  ImagesConfig::Filter filter;
  int interpolation;  // of OpenCV.  -1: it has none
  std::unique_ptr<Dataset> dataset = nullptr;
  std::vector<double> ms = {}, imdecode_ms = {}, bare_ms = {}, of_imdecode = {}, of_bare = {};
};

// That a batch of ours and the peers' differ by no more than rounding, and bare libjpeg's rims.
absl::Status Verify(const Way& way, Device& device, PeerPictures& peer) {
  if (way.interpolation < 0) return absl::OkStatus();
  ASSIGN_OR_RETURN(const auto loader, Load(*way.dataset, device, 1));
  const Batch batch = loader->Next();
  const int64_t elements = batch.arrays[0].elements() / absl::GetFlag(FLAGS_batch);
  for (int64_t i = 0; i < absl::GetFlag(FLAGS_batch); ++i) {
    const float* ours = batch.arrays[0].as<float>() + i * elements;
    for (const PeerDecode decode : {&DecodeAll, &DecodeBare}) {
      ASSIGN_OR_RETURN(const float* theirs,
                       peer.Make(i, batch.samples[i], decode, way.interpolation));
      double sum = 0;
      for (int64_t e = 0; e < elements; ++e) sum += std::abs(ours[e] - theirs[e]);
      const double bytes = 255 * kNormalization.std[0] * sum / static_cast<double>(elements);
      if (bytes <= 1) continue;
      return absl::InternalError(
          absl::StrCat("sample ", i, " differs by ", bytes, " of 255 from OpenCV's, on average"));
    }
  }
  return absl::OkStatus();
}

absl::Status Round(Device& device, PeerPictures& peer, Way& way) {
  ASSIGN_OR_RETURN(const PictureTimes ours, TimeLoader(*way.dataset, device, 1));
  way.ms.push_back(1e3 * ours.cpu);
  if (way.interpolation < 0) return absl::OkStatus();
  ASSIGN_OR_RETURN(const double imdecode, peer.Time(&DecodeAll, way.interpolation));
  ASSIGN_OR_RETURN(const double bare, peer.Time(&DecodeBare, way.interpolation));
  way.imdecode_ms.push_back(1e3 * imdecode);
  way.bare_ms.push_back(1e3 * bare);
  way.of_imdecode.push_back(imdecode / ours.cpu);
  way.of_bare.push_back(bare / ours.cpu);
  return absl::OkStatus();
}

void Print(const Way& way) {
  nlohmann::ordered_json line = {
      {"benchmark", "pictures"},
      {"filter", ImagesConfig::Filter_Name(way.filter)},
      {"pictures", absl::GetFlag(FLAGS_batches) * absl::GetFlag(FLAGS_batch)}};
  line.update(Spread("ms", way.ms));
  if (way.interpolation >= 0) {
    line.update({{"imdecode_ms", Median(way.imdecode_ms)}, {"bare_ms", Median(way.bare_ms)}});
    line.update(Spread("of_imdecode", way.of_imdecode));
    line.update(Spread("of_bare", way.of_bare));
  }
  PrintRow(line);
}

absl::Status Bench() {
  RETURN_IF_ERROR(CheckLeast(1, {FLAGS_size, FLAGS_batch, FLAGS_batches, FLAGS_workers}));
  RETURN_IF_ERROR(CheckLeast(0, {FLAGS_rounds}));
  if (absl::GetFlag(FLAGS_folder).empty()) {
    return absl::InvalidArgumentError("--folder is missing; see --help");
  }
  cv::setNumThreads(1);
  const auto device = NewCpuDevice({.threads = 1});
  std::vector<Way> ways;
  ways.push_back({ImagesConfig::ANTIALIASED, -1});
  ways.push_back({ImagesConfig::AREA, cv::INTER_AREA});
  ways.push_back({ImagesConfig::LINEAR, cv::INTER_LINEAR});
  for (Way& way : ways) {
    ASSIGN_OR_RETURN(way.dataset, Open(way.filter));
  }
  ASSIGN_OR_RETURN(PictureIndex pictures, ReadPictureFolder(absl::GetFlag(FLAGS_folder)));
  PeerPictures peer(std::move(pictures));
  for (const Way& way : ways) RETURN_IF_ERROR(Verify(way, *device, peer));
  const int workers = absl::GetFlag(FLAGS_workers);
  std::vector<double> one, several, speedup;  // pictures a second
  for (int round = 0; AnotherRound(round, absl::GetFlag(FLAGS_rounds)); ++round) {
    for (Way& way : ways) RETURN_IF_ERROR(Round(*device, peer, way));
    if (workers == 1) continue;
    ASSIGN_OR_RETURN(const PictureTimes alone, TimeLoader(*ways[0].dataset, *device, 1));
    ASSIGN_OR_RETURN(const PictureTimes together, TimeLoader(*ways[0].dataset, *device, workers));
    one.push_back(1 / alone.wall);
    several.push_back(1 / together.wall);
    speedup.push_back(alone.wall / together.wall);
  }
  for (const Way& way : ways) Print(way);
  if (speedup.empty()) return absl::OkStatus();
  nlohmann::ordered_json line = {{"benchmark", "picture_workers"},
                                 {"workers", workers},
                                 {"one_per_s", Median(one)},
                                 {"per_s", Median(several)}};
  line.update(Spread("of_one", speedup));
  PrintRow(line);
  return absl::OkStatus();
}

}  // namespace
}  // namespace gyre

int main(int argc, char** argv) {
  return gyre::RunBench(argc, argv, gyre::kUsage, gyre::kGroups, gyre::Bench);
}
