#include "tests/cuda/fakes/fake_cudnn_norm.h"

#include <cmath>

namespace gyre::fake_cudnn {
namespace {

bool IsForward(const Descriptor& operation) {
  return operation.type == CUDNN_BACKEND_OPERATION_NORM_FORWARD_DESCRIPTOR;
}

// Forward's and backward's attribute of one name.
#define OPERAND(name) \
  (forward ? CUDNN_ATTR_OPERATION_NORM_FWD_##name : CUDNN_ATTR_OPERATION_NORM_BWD_##name)

constexpr int kRunning[] = {CUDNN_ATTR_OPERATION_NORM_FWD_INPUT_RUNNING_MEAN_DESC,
                            CUDNN_ATTR_OPERATION_NORM_FWD_INPUT_RUNNING_VAR_DESC,
                            CUDNN_ATTR_OPERATION_NORM_FWD_OUTPUT_RUNNING_MEAN_DESC,
                            CUDNN_ATTR_OPERATION_NORM_FWD_OUTPUT_RUNNING_VAR_DESC};

// Calls f(index, channel) for each element of an image.
template <typename F>
void ForEachElement(const Descriptor& image, const F& f) {
  const auto extents = Extents(image);
  const int64_t pixels = extents[2] * extents[3];
  for (int64_t i = 0; i < extents[0] * extents[1] * pixels; ++i) {
    f(static_cast<size_t>(i), static_cast<size_t>(i / pixels % extents[1]));
  }
}

// What the passes have in common.
struct Norm {
  const Descriptor& image;
  size_t channels;
  double count;  // elements of a channel
  const Values &x, &scale;
};

Norm NormOf(const Descriptor& operation, const std::map<int64_t, Values>& known) {
  const bool forward = IsForward(operation);
  const Descriptor& x = *operation.Child(OPERAND(XDESC));
  const auto extents = Extents(x);
  return {x, static_cast<size_t>(extents[1]),
          static_cast<double>(extents[0] * extents[2] * extents[3]), known.at(Id(x)),
          known.at(Id(*operation.Child(OPERAND(SCALE_DESC))))};
}

void Train(const Descriptor& operation, std::map<int64_t, Values>& known) {
  const auto values = [&](int attribute) -> Values& {
    return known[Id(*operation.Child(attribute))];
  };
  const Norm norm = NormOf(operation, known);
  const double epsilon = values(CUDNN_ATTR_OPERATION_NORM_FWD_EPSILON_DESC)[0];
  Values mean(norm.channels), variance(norm.channels), inverse;
  ForEachElement(norm.image, [&](size_t i, size_t c) { mean[c] += norm.x[i] / norm.count; });
  ForEachElement(norm.image, [&](size_t i, size_t c) {
    variance[c] += (norm.x[i] - mean[c]) * (norm.x[i] - mean[c]) / norm.count;
  });
  for (const double v : variance) inverse.push_back(1 / std::sqrt(v + epsilon));
  if (!operation.Children(kRunning[0]).empty()) {
    const double factor = values(CUDNN_ATTR_OPERATION_NORM_FWD_EXP_AVG_FACTOR_DESC)[0];
    const double unbiased = norm.count > 1 ? norm.count / (norm.count - 1) : 1;
    for (int i = 0; i < 2; ++i) {
      Values to;
      for (size_t c = 0; c < norm.channels; ++c) {
        const double batch = i == 0 ? mean[c] : variance[c] * unbiased;
        to.push_back((1 - factor) * values(kRunning[i])[c] + factor * batch);
      }
      values(kRunning[i + 2]) = to;
    }
  }
  values(CUDNN_ATTR_OPERATION_NORM_FWD_MEAN_DESC) = mean;
  values(CUDNN_ATTR_OPERATION_NORM_FWD_INV_VARIANCE_DESC) = inverse;
}

}  // namespace

bool IsNorm(const Descriptor& operation) {
  return IsForward(operation) || operation.type == CUDNN_BACKEND_OPERATION_NORM_BACKWARD_DESCRIPTOR;
}

std::string CheckNorm(const Descriptor& operation) {
  const bool forward = IsForward(operation);
  if (operation.Value<cudnnBackendNormMode_t>(OPERAND(MODE)) != CUDNN_BATCH_NORM) {
    return "the fake normalises over a batch";
  }
  const Descriptor& x = *operation.Child(OPERAND(XDESC));
  const auto image = Extents(x);
  const std::vector<int64_t> per_channel = {1, image[1], 1, 1}, number = {1, 1, 1, 1};
  for (const Descriptor* child : operation.AllChildren()) {
    const auto extents = Extents(*child);
    if (extents == image || extents == per_channel) continue;
    if (extents != number || !IsByValue(*child)) return "an operand has other extents";
  }
  if (!forward) return "";
  if (operation.Value<cudnnBackendNormFwdPhase_t>(CUDNN_ATTR_OPERATION_NORM_FWD_PHASE) !=
      CUDNN_NORM_FWD_TRAINING) {
    return "the fake normalises in training";
  }
  size_t running = 0;
  for (const int attribute : kRunning) running += operation.Children(attribute).size();
  const bool has_factor =
      !operation.Children(CUDNN_ATTR_OPERATION_NORM_FWD_EXP_AVG_FACTOR_DESC).empty();
  if (running != (has_factor ? 4 : 0)) return "running statistics are incomplete";
  return "";
}

std::vector<const Descriptor*> ResultsOfNorm(const Descriptor& operation) {
  std::vector<const Descriptor*> results;
  const auto add = [&](std::initializer_list<int> attributes) {
    for (const int attribute : attributes) {
      for (const Descriptor* child : operation.Children(attribute)) results.push_back(child);
    }
  };
  if (!IsForward(operation)) {
    add({CUDNN_ATTR_OPERATION_NORM_BWD_DXDESC, CUDNN_ATTR_OPERATION_NORM_BWD_DSCALE_DESC,
         CUDNN_ATTR_OPERATION_NORM_BWD_DBIAS_DESC});
    return results;
  }
  add({CUDNN_ATTR_OPERATION_NORM_FWD_YDESC, CUDNN_ATTR_OPERATION_NORM_FWD_MEAN_DESC,
       CUDNN_ATTR_OPERATION_NORM_FWD_INV_VARIANCE_DESC, kRunning[2], kRunning[3]});
  return results;
}

void ComputeNorm(const Descriptor& operation, std::map<int64_t, Values>& known) {
  const bool forward = IsForward(operation);
  if (forward) Train(operation, known);
  const Norm norm = NormOf(operation, known);
  const auto values = [&](int attribute) -> Values& {
    return known[Id(*operation.Child(attribute))];
  };
  const Values &mean = values(OPERAND(MEAN_DESC)), &inverse = values(OPERAND(INV_VARIANCE_DESC));
  const auto normalised = [&](size_t i, size_t c) { return (norm.x[i] - mean[c]) * inverse[c]; };
  Values result(norm.x.size());
  if (forward) {
    const Values& bias = values(CUDNN_ATTR_OPERATION_NORM_FWD_BIAS_DESC);
    ForEachElement(norm.image, [&](size_t i, size_t c) {
      result[i] = norm.scale[c] * normalised(i, c) + bias[c];
    });
    values(CUDNN_ATTR_OPERATION_NORM_FWD_YDESC) = result;
    return;
  }
  const Values& dy = values(CUDNN_ATTR_OPERATION_NORM_BWD_DYDESC);
  Values dscale(norm.channels), dbias(norm.channels);
  ForEachElement(norm.image, [&](size_t i, size_t c) {
    dscale[c] += dy[i] * normalised(i, c);
    dbias[c] += dy[i];
  });
  ForEachElement(norm.image, [&](size_t i, size_t c) {
    result[i] = norm.scale[c] * inverse[c] *
                (dy[i] - dbias[c] / norm.count - normalised(i, c) * dscale[c] / norm.count);
  });
  values(CUDNN_ATTR_OPERATION_NORM_BWD_DSCALE_DESC) = dscale;
  values(CUDNN_ATTR_OPERATION_NORM_BWD_DBIAS_DESC) = dbias;
  values(CUDNN_ATTR_OPERATION_NORM_BWD_DXDESC) = result;
}

#undef OPERAND

}  // namespace gyre::fake_cudnn
