#include <algorithm>
#include <cstddef>
#include <set>
#include <string>
#include <vector>

#include "engine/runtime/check.h"
#include "engine/training/feed/data_feed.h"

namespace gyre {
namespace {

// So that --batch=auto is not held back by it; a product of both is an int64_t.
constexpr int64_t kStepsOfData = 1 << 20, kMostSamplesAStep = int64_t{1} << 40;

class AssumedDataset : public Dataset {
 public:
  // `pictures` are inputs of bytes.
  AssumedDataset(const NetConfig& net, const DataConfig& data,
                 const std::set<std::string>& pictures, int64_t size)
      : size_(size) {
    size_t longest = 0;
    // Samples are of classes, though the net may take distributions.
    const bool classes =
        data.order() == DataConfig::BALANCED || data.class_weight() == DataConfig::AUTO;
    for (const InputConfig& input : net.input()) {
      const DType reals = pictures.contains(input.name()) ? DType::kU8 : DType::kF32;
      const bool is_class = classes && input.name() == data.label_input() && input.dims_size() <= 1;
      const DType dtype = is_class || input.type() == InputConfig::LABEL ? DType::kI32 : reals;
      const Shape shape =
          is_class ? Shape{}
                   : Shape(std::vector<int64_t>(input.dims().begin(), input.dims().end()));
      arrays_.push_back(
          {.input = input.name(), .file = "the net's text", .shape = shape, .dtype = dtype});
      longest = std::max(longest, static_cast<size_t>(shape.elements()) * SizeOf(dtype));
    }
    zeros_.resize(longest);
  }
  int64_t size() const override { return size_; }
  const std::vector<DataArray>& arrays() const override { return arrays_; }
  absl::StatusOr<Tensor> Read(int64_t, size_t array, SampleMemory&,
                              const std::optional<SampleDraw>&) const override {
    return Tensor{const_cast<std::byte*>(zeros_.data()), arrays_[array].shape,
                  arrays_[array].dtype};
  }

 private:
  const int64_t size_;
  std::vector<DataArray> arrays_;
  std::vector<std::byte> zeros_;
};

}  // namespace

absl::StatusOr<RunData> AssumeData(const Parsed<TrainerConfig>& trainer,
                                   const Parsed<NetConfig>& net) {
  const TrainerConfig& config = *trainer.message;
  const auto assume = [&](bool test, int64_t size) {
    std::set<std::string> pictures;
    for (const DataConfig& source : SourcesOf(config.data())) {
      const DatasetConfig& set = test && source.has_test() ? source.test() : source.train();
      const bool bytes = set.has_idx() || set.has_images() || set.has_records();
      if (bytes) pictures.insert(source.image_input());
    }
    return std::make_shared<AssumedDataset>(*net.message, config.data(), pictures, size);
  };
  RunData data;
  data.assumed = true;
  data.train =
      assume(/*test=*/false, std::min(SamplesAStep(config), kMostSamplesAStep) * kStepsOfData);
  if (config.data().has_test() || config.data().has_split()) {
    data.test =
        assume(/*test=*/true, config.has_test_batch() ? config.test_batch() : config.batch());
  }
  ASSIGN_OR_RETURN(data.feed, FeedOf(net, trainer, data.train.get(), data.test.get()));
  return data;
}

}  // namespace gyre
