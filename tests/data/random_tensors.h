// random_tensors.h: named tensors of random bits, shapes and types, and the memory they lie in.
#pragma once

#include <algorithm>
#include <deque>
#include <random>
#include <string>
#include <vector>

#include "engine/data/tensors/tensor_file.h"

namespace gyre {

inline constexpr DType kAllDTypes[] = {DType::kF64, DType::kF32, DType::kF16, DType::kBF16,
                                       DType::kI32, DType::kI64, DType::kU8};

class RandomTensors {
 public:
  // Up to `count` tensors; shapes have rank 0 to 6, extents 0 to 4 and now and then an odd, larger
  // one.
  RandomTensors(uint64_t seed, size_t count, std::vector<DType> dtypes) : random_(seed) {
    for (size_t i = random_() % (count + 1); i > 0; --i) {
      Add("layer" + std::to_string(i) + "/\"é\\" + std::to_string(random_() % 100),
          dtypes[random_() % dtypes.size()], RandomShape());
    }
    std::shuffle(tensors_.begin(), tensors_.end(), random_);
  }

  void Add(const std::string& name, DType dtype, const Shape& shape) {
    Tensor tensor{nullptr, shape, dtype};
    std::string& bytes = memory_.emplace_back(tensor.bytes(), '\0');
    for (char& byte : bytes) byte = static_cast<char>(random_());
    if (!bytes.empty()) tensor.data = bytes.data();  // an empty one need not be bound
    tensors_.push_back({name, tensor});
  }

  const std::vector<NamedTensor>& tensors() const { return tensors_; }
  std::vector<NamedTensor> Shuffled() {
    std::vector<NamedTensor> tensors = tensors_;
    std::shuffle(tensors.begin(), tensors.end(), random_);
    return tensors;
  }

 private:
  Shape RandomShape() {
    std::vector<int64_t> dims(random_() % (Shape::kMaxRank + 1));
    for (int64_t& extent : dims) extent = static_cast<int64_t>(random_() % 5);
    if (!dims.empty() && random_() % 8 == 0) dims[0] = 101;
    return Shape(std::span<const int64_t>(dims));
  }

  std::mt19937_64 random_;
  std::deque<std::string> memory_;
  std::vector<NamedTensor> tensors_;
};

}  // namespace gyre
