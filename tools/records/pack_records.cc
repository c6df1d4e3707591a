#include "tools/records/pack_records.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <mutex>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/data/batches/sample_order.h"
#include "engine/data/files/atomic_file.h"
#include "engine/data/pictures/picture.h"
#include "engine/data/records/record_shard.h"
#include "engine/data/records/shard_writer.h"
#include "engine/runtime/check.h"
#include "engine/runtime/wrapped_text.h"
#include "engine/training/feed/bad_samples.h"
#include "tools/records/shard_threads.h"

namespace gyre {
namespace {

// Sizes of so many files tell that of all within some per cent.
constexpr int64_t kSized = 1000;

// The arrays of a sample as they are packed.
class PackedSample {
 public:
  PackedSample(const Dataset& dataset, const PackOptions& options)
      : dataset_(dataset), options_(options), memories_(dataset.arrays().size()) {}

  // Valid until the next.  Sets `fault` where a picture cannot be read, or with `decode` decoded:
  // its file is packed as it is, as nothing where that cannot be read.
  absl::StatusOr<std::span<const std::string_view>> Read(int64_t index, bool decode,
                                                         absl::Status& fault) {
    arrays_.clear();
    for (size_t array = 0; array < memories_.size(); ++array) {
      if (dataset_.arrays()[array].stored == StoredAs::kValues || options_.raw) {
        ASSIGN_OR_RETURN(const Tensor values, dataset_.Read(index, array, memories_[array], {}));
        arrays_.emplace_back(static_cast<const char*>(values.data), values.bytes());
        continue;
      }
      const auto file = dataset_.ReadStored(index, array, memories_[array]);
      arrays_.push_back(file.value_or(""));
      fault.Update(!file.ok() ? file.status()
                              : Annotate(Check(*file, dataset_.arrays()[array].stored, decode),
                                         dataset_.Describe(index)));
    }
    return std::span<const std::string_view>(arrays_);
  }

 private:
  absl::Status Check(std::string_view file, StoredAs stored, bool decode) {
    ASSIGN_OR_RETURN(const PictureHeader header, ReadPictureHeader(file, options_.most_pixels));
    if (!decode) return absl::OkStatus();
    const bool mask = stored == StoredAs::kMask;
    return CheckPicture(file, header, {.channels = mask ? 1 : 3, .indices = mask});
  }

  const Dataset& dataset_;
  const PackOptions& options_;
  std::vector<SampleMemory> memories_;  // by array
  std::vector<std::string_view> arrays_;
};

// Counts and names the samples that could not be read.  Any thread.
class PackFaults {
 public:
  PackFaults(int64_t most, int64_t samples) : most_(most), bad_(most, samples) {}

  // Returns an error where they are too many.
  absl::Status Add(const absl::Status& fault) {
    if (fault.ok()) return absl::OkStatus();
    const std::lock_guard lock(mutex_);
    for (const std::string& text : bad_.New({std::string(fault.message())})) {
      if (bad_.count() < most_) {
        PrintNote("warning: ", text + "; packed as it is");
      }
    }
    bad_.Count(/*epoch=*/0, 1);
    return bad_.status();
  }

 private:
  const int64_t most_;
  std::mutex mutex_;
  BadSamples bad_;
};

RecordSet::Array ArrayOf(const DataArray& array, bool values, const std::string& order) {
  RecordSet::Array packed;
  packed.set_input(array.input);
  packed.set_reset(array.reset);
  // That of the source, so that the same samples in the same order are the same data.
  if (!array.digest.empty()) packed.set_digest(array.digest + order);
  if (!values) {
    packed.set_content(array.stored == StoredAs::kMask ? RecordSet::Array::MASK
                                                       : RecordSet::Array::PICTURE);
    return packed;
  }
  packed.set_content(RecordSet::Array::VALUES);
  packed.set_dtype(std::string(DTypeName(array.dtype)));
  for (const int64_t extent : array.shape.dims()) packed.add_dims(extent);
  return packed;
}

// Bytes of all samples, about.  What is read for that is in the digest, so that samples packed with
// another filter, or of files that have changed, are told apart.
absl::StatusOr<double> BytesOf(const Dataset& dataset, PackedSample& sample, Sha256Digest& digest) {
  const int64_t sized = std::min(kSized, dataset.size());
  double bytes = 0;
  for (int64_t i = 0; i < sized; ++i) {
    absl::Status met_again;  // when it is packed
    ASSIGN_OR_RETURN(const auto arrays,
                     sample.Read(i * dataset.size() / sized, /*decode=*/false, met_again));
    for (const std::string_view array : arrays) {
      bytes += static_cast<double>(array.size());
      digest.Add(absl::StrCat(array.size(), " "));
      digest.Add(array);
    }
  }
  return bytes / static_cast<double>(sized) * static_cast<double>(dataset.size());
}

}  // namespace

absl::StatusOr<RecordSet> PlanRecords(const Dataset& dataset, const std::string& name,
                                      const PackOptions& options) {
  if (!dataset.sequences().empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "data.", name,
        ": samples that continue one another cannot be packed; train on the shots' files"));
  }
  RecordSet set;
  set.set_name(name);
  set.set_samples(dataset.size());
  set.set_lengths(!dataset.lengths().empty());
  for (const auto& [file, text] : dataset.fit()) {
    RecordSet::Text& added = *set.add_fit();
    added.set_name(file);
    added.set_text(text);
  }
  const std::string order = options.shuffled ? absl::StrCat("/shuffled ", options.seed) : "";
  for (const DataArray& array : dataset.arrays()) {
    const bool values = array.stored == StoredAs::kValues || options.raw;
    const bool fits =
        values && array.shape.elements() == 1 && SizeOf(array.dtype) <= sizeof(ShardEntry::indexed);
    if (fits && (!set.has_indexed() || array.input == options.label_input)) {
      set.set_indexed(set.array_size());
    }
    *set.add_array() = ArrayOf(array, values, order);
  }
  // Values that no digest stands for are in it.
  Sha256Digest digest;
  digest.Add(absl::StrCat(set.SerializeAsString(), order, options.raw ? " raw " : " "));
  PackedSample sample(dataset, options);
  ASSIGN_OR_RETURN(const double bytes, BytesOf(dataset, sample, digest));
  SampleMemory memory;
  for (size_t array = 0; array < dataset.arrays().size(); ++array) {
    if (!dataset.arrays()[array].digest.empty()) continue;
    for (int64_t i = 0; i < dataset.size(); ++i) {
      ASSIGN_OR_RETURN(const Tensor values, dataset.Read(i, array, memory, {}));
      digest.Add({static_cast<const char*>(values.data), values.bytes()});
    }
  }
  const double shards = std::ceil(bytes / static_cast<double>(options.shard_bytes));
  if (shards > kMostShards) {
    return absl::InvalidArgumentError(
        absl::StrCat("--shard_bytes=", options.shard_bytes, ": expected at most ", kMostShards,
                     " shards, got ", static_cast<int64_t>(shards), " for data.", name));
  }
  set.set_shards(std::clamp<int64_t>(static_cast<int64_t>(shards), 1, dataset.size()));
  set.set_digest(digest.Hex());
  return set;
}

absl::StatusOr<int64_t> PackRecords(const Dataset& dataset, const RecordSet& set,
                                    const PackOptions& options, Progress& progress) {
  SampleOrder order = options.shuffled ? SampleOrder(dataset.size(), options.seed)
                                       : SampleOrder::Contiguous(dataset.size(), 1);
  std::vector<int64_t> samples;
  for (int64_t i = 0; i < dataset.size(); ++i) samples.push_back(order.At(i));
  std::atomic<int64_t> kept = 0;
  PackFaults faults(options.max_bad_samples, dataset.size());
  const auto pack = [&](int64_t number) -> absl::Status {
    const std::string path =
        (std::filesystem::path(options.folder) / ShardName(set, number)).string();
    const int64_t first = number * set.samples() / set.shards();
    const int64_t end = (number + 1) * set.samples() / set.shards();
    ShardHeader header;
    *header.mutable_set() = set;
    header.set_shard(number);
    ShardHeader found;
    const auto shard = RecordShard::Open(path, found);
    if (shard.ok() && found.SerializeAsString() == header.SerializeAsString() &&
        shard->size() == end - first) {
      ++kept;
      progress.Add(end - first, 0);
      return absl::OkStatus();
    }
    PackedSample sample(dataset, options);
    const std::span<const int32_t> lengths = dataset.lengths();
    return ShardWriter::Write(path, header, [&](ShardWriter& writer) -> absl::Status {
      for (int64_t i = first; i < end; ++i) {
        const uint64_t before = writer.bytes();
        const int64_t index = samples[static_cast<size_t>(i)];
        absl::Status fault;
        ASSIGN_OR_RETURN(const auto arrays, sample.Read(index, /*decode=*/true, fault));
        RETURN_IF_ERROR(faults.Add(fault));
        RETURN_IF_ERROR(
            writer.Add(arrays, lengths.empty() ? 0 : lengths[static_cast<size_t>(index)]));
        progress.Add(1, writer.bytes() - before);
      }
      return absl::OkStatus();
    });
  };
  RETURN_IF_ERROR(ForEachShard(set.shards(), options.threads, pack));
  return kept;
}

}  // namespace gyre
