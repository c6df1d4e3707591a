// records_fixture.h: packs a data set in shards, sample by sample.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/data/records/shard_writer.h"
#include "engine/data/sets/dataset.h"
#include "engine/runtime/check.h"
#include "tests/data/read_sample.h"

namespace gyre {

// A set of the data set's arrays, their files as they are, in its order.
inline RecordSet SetOf(const Dataset& dataset, const std::string& name, int64_t shards) {
  RecordSet set;
  set.set_name(name);
  set.set_samples(dataset.size());
  set.set_shards(shards);
  set.set_lengths(!dataset.lengths().empty());
  for (const DataArray& array : dataset.arrays()) {
    RecordSet::Array& added = *set.add_array();
    added.set_input(array.input);
    added.set_digest(array.digest);
    added.set_reset(array.reset);
    if (array.stored != StoredAs::kValues) {
      added.set_content(array.stored == StoredAs::kMask ? RecordSet::Array::MASK
                                                        : RecordSet::Array::PICTURE);
      continue;
    }
    added.set_dtype(std::string(DTypeName(array.dtype)));
    for (const int64_t extent : array.shape.dims()) added.add_dims(extent);
    if (array.shape.elements() == 1 && SizeOf(array.dtype) <= 4) {
      set.set_indexed(set.array_size() - 1);
    }
  }
  for (const auto& [file, text] : dataset.fit()) {
    RecordSet::Text& added = *set.add_fit();
    added.set_name(file);
    added.set_text(text);
  }
  return set;
}

// Writes shard `number` to FOLDER/ShardName.
inline void WriteShard(const Dataset& dataset, const RecordSet& set, int64_t number,
                       const std::string& folder) {
  ShardHeader header;
  *header.mutable_set() = set;
  header.set_shard(number);
  const auto fill = [&](ShardWriter& writer) -> absl::Status {
    const int64_t end = (number + 1) * set.samples() / set.shards();
    for (int64_t i = number * set.samples() / set.shards(); i < end; ++i) {
      std::vector<std::string> arrays;
      for (size_t a = 0; a < dataset.arrays().size(); ++a) {
        SampleMemory memory;
        if (dataset.arrays()[a].stored != StoredAs::kValues) {
          ASSIGN_OR_RETURN(const std::string_view file, dataset.ReadStored(i, a, memory));
          arrays.emplace_back(file);
          continue;
        }
        ASSIGN_OR_RETURN(const Tensor values, dataset.Read(i, a, memory, {}));
        arrays.emplace_back(static_cast<const char*>(values.data), values.bytes());
      }
      const std::vector<std::string_view> views(arrays.begin(), arrays.end());
      RETURN_IF_ERROR(
          writer.Add(views, set.lengths() ? dataset.lengths()[static_cast<size_t>(i)] : 0));
    }
    return absl::OkStatus();
  };
  const absl::Status status =
      ShardWriter::Write(folder + "/" + ShardName(set, number), header, fill);
  GYRE_CHECK(status.ok());
}

inline void WriteShards(const Dataset& dataset, const RecordSet& set, const std::string& folder) {
  for (int64_t i = 0; i < set.shards(); ++i) WriteShard(dataset, set, i, folder);
}

}  // namespace gyre
