#include "engine/data/batches/sample_writer.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace gyre {
namespace {

// Whether the array's samples are pictures that are moved, changed and mixed by pixels.
bool IsPicture(const LoadedArray& loaded, const Tensor& stored) {
  return loaded.augmented && stored.shape.rank() == 3;
}

}  // namespace

absl::StatusOr<SampleWriter> SampleWriter::Create(const Dataset& dataset,
                                                  const BatchLoaderOptions& options) {
  SampleWriter writer(dataset, options);
  for (const LoadedArray& loaded : options.arrays) {
    std::unique_ptr<const Decoder>& decoder = writer.decoders_.emplace_back();
    if (loaded.weight && loaded.array == dataset.arrays().size()) continue;
    const DataArray& array = dataset.arrays()[loaded.array];
    if (loaded.classes > 0 && HasClasses(array) && IsReal(loaded.dtype)) continue;
    if (loaded.classes > 0 || !Decoder::CanDecode(array.dtype, loaded.dtype)) {
      return absl::InvalidArgumentError(absl::StrCat(array.file, ": cannot make ",
                                                     std::string(DTypeName(loaded.dtype)), " of ",
                                                     std::string(DTypeName(array.dtype))));
    }
    decoder = std::make_unique<Decoder>(array.dtype, loaded.dtype, loaded.normalization);
  }
  return writer;
}

std::vector<Shape> SampleWriter::shapes() const {
  std::vector<Shape> shapes;
  for (const LoadedArray& loaded : options_.arrays) {
    if (loaded.classes > 0) {
      shapes.push_back({loaded.classes});
    } else {
      shapes.push_back(loaded.weight ? Shape{} : dataset_.arrays()[loaded.array].shape);
    }
  }
  return shapes;
}

absl::Status SampleWriter::Write(const OrderedSample& sample, SampleBuffers& memory,
                                 std::span<const Tensor> to) const {
  const auto source = [&](int64_t of, int64_t position, SampleMemory& in) {
    return VariedSample{of,
                        {.seed = options_.seed, .position = position},
                        MoveAt(options_.augmentation, options_.seed, position),
                        in};
  };
  const VariedSample own = source(sample.sample, sample.position, memory.own);
  const VariedSample other = source(sample.beside, sample.position_beside, memory.other);
  const Mix mix = MixAt(options_.mixing, own.draw);
  for (size_t k = 0; k < options_.arrays.size(); ++k) {
    const LoadedArray& loaded = options_.arrays[k];
    if (mix.mixes && loaded.mixed) {
      RETURN_IF_ERROR(WriteMixed(k, mix, own, other, memory, to[k]));
    } else {
      RETURN_IF_ERROR(WriteOne(k, own, to[k]));
    }
    if (sample.begins && !loaded.weight && dataset_.arrays()[loaded.array].reset) {
      *to[k].as<int32_t>() = 1;
    }
  }
  return absl::OkStatus();
}

absl::Status SampleWriter::WriteOne(size_t k, const VariedSample& source, const Tensor& to) const {
  const LoadedArray& loaded = options_.arrays[k];
  if (loaded.weight) return WriteWeight(k, source, to);
  if (loaded.classes > 0) return WriteClass(k, source, to);
  ASSIGN_OR_RETURN(const Tensor stored, ReadVaried(k, source));
  return Decode(k, source.sample, stored, loaded.augmented ? source.move : Move{}, to);
}

// Bytes are mixed as bytes, so that the result is the same where they are normalised on a device.
absl::Status SampleWriter::WriteMixed(size_t k, const Mix& mix, const VariedSample& own,
                                      const VariedSample& other, SampleBuffers& memory,
                                      const Tensor& to) const {
  const LoadedArray& loaded = options_.arrays[k];
  if (decoders_[k] != nullptr && !loaded.weight) {
    ASSIGN_OR_RETURN(Tensor mixed, ReadVaried(k, own));
    if (IsPicture(loaded, mixed) && mixed.dtype == DType::kU8) {
      const Decoder mover(DType::kU8, DType::kU8, {});
      ASSIGN_OR_RETURN(Tensor moved, ReadVaried(k, other));
      const auto move = [&](const VariedSample& from, ReusedBytes& bytes, Tensor& picture) {
        const Tensor result{bytes.Grow(picture.bytes()), picture.shape, picture.dtype};
        RETURN_IF_ERROR(mover.Decode(picture, from.move, result));
        picture = result;
        return absl::OkStatus();
      };
      RETURN_IF_ERROR(move(own, memory.moved[0], mixed));
      RETURN_IF_ERROR(move(other, memory.moved[1], moved));
      MixPicture(mix, moved, mixed);
      return Decode(k, own.sample, mixed, {}, to);
    }
  }
  RETURN_IF_ERROR(WriteOne(k, own, to));
  const Tensor values{memory.values.Grow(to.bytes()), to.shape, to.dtype};
  RETURN_IF_ERROR(WriteOne(k, other, values));
  if (IsPicture(loaded, to)) {
    MixPicture(mix, values, to);
  } else {
    MixValues(mix.share, values, to);
  }
  return absl::OkStatus();
}

absl::Status SampleWriter::WriteClass(size_t k, const VariedSample& source,
                                      const Tensor& to) const {
  const LoadedArray& loaded = options_.arrays[k];
  ASSIGN_OR_RETURN(const Tensor stored,
                   dataset_.Read(source.sample, loaded.array, source.memory, {}));
  const int32_t number = ClassIn(stored);
  if (number < 0 || number >= loaded.classes) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s: sample %d (the first is 0): expected a class from 0 to %d, got %d",
                        dataset_.arrays()[loaded.array].file, dataset_.NumberInFile(source.sample),
                        loaded.classes - 1, number));
  }
  std::memset(to.data, 0, to.bytes());
  VisitReal(to.dtype, [&]<typename T>() { to.as<T>()[number] = static_cast<T>(1); });
  return absl::OkStatus();
}

absl::Status SampleWriter::WriteWeight(size_t k, const VariedSample& source,
                                       const Tensor& to) const {
  double weight = 1;
  if (decoders_[k] != nullptr) {
    ASSIGN_OR_RETURN(const Tensor stored, ReadVaried(k, source));
    RETURN_IF_ERROR(Decode(k, source.sample, stored, {}, to));
    VisitReal(to.dtype, [&]<typename T>() { weight = static_cast<double>(*to.as<T>()); });
  }
  if (options_.weighed_by) weight *= options_.weighed_by->Weight(source.sample);
  VisitReal(to.dtype, [&]<typename T>() {
    *to.as<T>() = static_cast<T>(static_cast<AccumulateType<T>>(weight));
  });
  return absl::OkStatus();
}

absl::Status SampleWriter::Decode(size_t k, int64_t sample, const Tensor& stored, const Move& move,
                                  const Tensor& to) const {
  const absl::Status decoded = decoders_[k]->Decode(stored, move, to);
  if (decoded.ok()) return decoded;
  return absl::InvalidArgumentError(absl::StrCat(dataset_.arrays()[options_.arrays[k].array].file,
                                                 ": sample ", dataset_.NumberInFile(sample),
                                                 " (the first is 0) ", decoded.message()));
}

absl::StatusOr<Tensor> SampleWriter::ReadVaried(size_t k, const VariedSample& source) const {
  const LoadedArray& loaded = options_.arrays[k];
  ASSIGN_OR_RETURN(const Tensor stored,
                   dataset_.Read(source.sample, loaded.array, source.memory,
                                 loaded.augmented ? std::optional(source.draw) : std::nullopt));
  const Shape& shape = stored.shape;
  const bool is_mask = shape.rank() == 2;
  const bool changes = loaded.augmented && stored.dtype == DType::kU8 && options_.changes.any();
  if (!changes || (!is_mask && shape.rank() != 3)) return stored;
  Tensor changed = stored;
  changed.data = source.memory.For(loaded.array, stored.bytes());
  if (changed.data != stored.data) std::memcpy(changed.data, stored.data, stored.bytes());
  auto* const pixels = changed.as<uint8_t>();
  if (is_mask) {
    ChangeMask(options_.changes, source.draw, shape[0], shape[1], pixels);
  } else {
    ChangePixels(options_.changes, source.draw, shape[0], shape[1], static_cast<int>(shape[2]),
                 pixels);
  }
  return changed;
}

}  // namespace gyre
