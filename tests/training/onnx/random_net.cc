#include "tests/training/onnx/random_net.h"

#include <algorithm>
#include <random>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace gyre {
namespace {

using Dims = std::vector<int64_t>;

// Appends layers to a chain.  `dims_` are those of the chain's last value without the samples,
// which lie along `batch_axis_`.
class NetMaker {
 public:
  explicit NetMaker(uint64_t seed) : random_(seed) {}

  RandomNet Make() {
    switch (Number(0, 3)) {
      case 0:
      case 1:
        Begin("image", {Number(5, 11), Number(5, 11), Number(1, 4)});
        break;
      case 2:
        Begin("steps", {Number(3, 9), Number(2, 8)});
        break;
      default:
        Begin("columns", {Number(3, 12)});
    }
    if (Number(0, 5) == 0) {
      const int64_t steps = Number(3, 7);
      inputs_ = absl::StrCat("input { name: \"text\" dims: ", steps, " type: LABEL }\n");
      Layer(absl::StrCat("embedding { vocabulary: ", Number(2, 20), " width: 6 }"), {steps, 6},
            "text");
    }
    const int64_t layers = Number(2, 9);
    for (int64_t i = 0; i < layers; ++i) AddLayer();
    if (is_input_) Activation();
    RandomNet net{absl::StrCat("name: \"random\"\n", inputs_, layers_), {last_}};
    if (Number(0, 2) == 0 && !others_.empty()) net.outputs.push_back(Pick(others_));
    std::erase(net.outputs, "");
    if (net.outputs.size() == 2 && net.outputs[0] == net.outputs[1]) net.outputs.pop_back();
    return net;
  }

 private:
  int64_t Number(int64_t least, int64_t most) {
    return std::uniform_int_distribution<int64_t>(least, most)(random_);
  }
  bool Flip() { return Number(0, 1) == 1; }
  template <typename T>
  const T& Pick(const std::vector<T>& of) {
    return of[static_cast<size_t>(Number(0, static_cast<int64_t>(of.size()) - 1))];
  }

  void Begin(const std::string& name, const Dims& dims) {
    inputs_ =
        absl::StrCat("input { name: \"", name, "\" dims: [", absl::StrJoin(dims, ", "), "] }\n");
    last_ = name;
    dims_ = dims;
    is_input_ = true;
  }

  // Appends a layer that reads the last value, or `inputs`.  Returns its name.
  std::string Layer(const std::string& type, const Dims& dims, std::string inputs = "") {
    const std::string name = absl::StrCat("l", count_++);
    if (inputs.empty()) inputs = last_;
    absl::StrAppend(&layers_, "layer { name: \"", name, "\" input: [\"", inputs, "\"] ", type,
                    " }\n");
    if (!is_input_ && others_.size() < 20) others_.push_back(last_);
    last_ = name;
    dims_ = dims;
    is_input_ = false;
    return name;
  }

  void AddLayer() {
    const size_t rank = dims_.size();
    const bool batch_first = batch_axis_ == 0;
    switch (Number(0, 18)) {
      case 0:
      case 1:
      case 2:
        if (rank == 3 && batch_first) return Number(0, 3) == 0 ? Pool() : Convolution();
        return rank == 2 ? Sequence() : Dense();
      case 3:
        return rank >= 2 ? Line() : Dense();
      case 4:
        return Activation();
      case 5:
        Layer(Pick<std::string>({"batch_norm {}", "batch_norm { epsilon: 0.01 }"}), dims_);
        return;
      case 6:
        if (rank < 4) {
          Layer(absl::StrCat("lrn { size: ", 2 * Number(0, 3) + 1, " alpha: 0.3 beta: 0.6 }"),
                dims_);
        }
        return;
      case 7:
        Layer(Pick<std::string>({"dropout {}", "softmax {}", "layer_norm {}"}), dims_);
        return;
      case 8:
      case 9:
        return Combine();
      case 10:
      case 11:
        return Cut();
      case 12:
        if (batch_first && rank > 1) Layer("flatten {}", {Elements()});
        return;
      case 13:
        return Reshape();
      case 14:
        return Transpose();
      case 15:
        return rank == 2 ? Attention() : Dense();
      case 16:
        return rank == 2 ? Sequence() : Activation();
      case 17:
        return Mean();
      default:
        return Dense();
    }
  }

  int64_t Elements() const {
    int64_t elements = 1;
    for (const int64_t dim : dims_) elements *= dim;
    return elements;
  }

  Dims WithLast(int64_t columns) const {
    Dims dims = dims_;
    dims.back() = columns;
    return dims;
  }

  void Dense() {
    const int64_t outputs = Number(1, 9);
    Layer(absl::StrCat("dense { outputs: ", outputs, Flip() ? "" : " use_bias: false", " }"),
          WithLast(outputs));
  }

  void Activation() {
    Layer(Pick<std::string>({"relu {}", "relu { negative_slope: 0.2 }", "relu { max: 0.7 }",
                             "relu { negative_slope: 0.1 max: 1.5 }", "sigmoid {}", "tanh {}",
                             "silu {}", "gelu {}", "gelu { approximate: TANH }"}),
          dims_);
  }

  struct Window {
    int64_t kernel, before, after, stride, dilation, extent;  // extent: of the output
  };
  Window WindowOf(int64_t extent, bool dilates) {
    Window w{};
    w.kernel = Number(1, std::min<int64_t>(extent, 4));
    w.before = Number(0, w.kernel - 1);
    w.after = Number(0, w.kernel - 1);
    w.stride = Number(1, 2);
    w.dilation = dilates && Number(0, 2) == 0 ? 2 : 1;
    const int64_t span = (w.kernel - 1) * w.dilation + 1;
    if (span > extent + w.before + w.after) w.dilation = 1;
    w.extent = (extent + w.before + w.after - ((w.kernel - 1) * w.dilation + 1)) / w.stride + 1;
    return w;
  }

  void Convolution() {
    const Window h = WindowOf(dims_[0], true), w = WindowOf(dims_[1], true);
    const int64_t groups = dims_[2] % 2 == 0 && Flip() ? 2 : 1, filters = groups * Number(1, 4);
    Layer(absl::StrFormat("conv2d { filters: %d kernel: [%d, %d] stride: [%d, %d] dilation: [%d, "
                          "%d] padding: [%d, %d, %d, %d] groups: %d use_bias: %s }",
                          filters, h.kernel, w.kernel, h.stride, w.stride, h.dilation, w.dilation,
                          h.before, h.after, w.before, w.after, groups, Flip() ? "true" : "false"),
          {h.extent, w.extent, filters});
  }

  void Pool() {
    const std::string kind = Flip() ? "MAX" : "AVERAGE";
    if (Number(0, 3) == 0) {
      Layer(absl::StrCat("pool2d { kind: ", kind, " global: true }"), {1, 1, dims_[2]});
      return;
    }
    const Window h = WindowOf(dims_[0], false), w = WindowOf(dims_[1], false);
    Layer(absl::StrFormat("pool2d { kind: %s kernel: [%d, %d] stride: [%d, %d] padding: [%d, %d, "
                          "%d, %d] }",
                          kind, h.kernel, w.kernel, h.stride, w.stride, h.before, h.after, w.before,
                          w.after),
          {h.extent, w.extent, dims_[2]});
  }

  // Along the last axis but one, which must not be that of the samples.
  void Line() {
    const size_t axis = dims_.size() - 2;
    if (batch_axis_ > static_cast<int>(axis)) return Activation();
    Dims dims = dims_;
    const Window w = WindowOf(dims_[axis], true);
    if (Flip()) {
      dims.back() = Number(1, 5);
      dims[axis] = w.extent;
      Layer(absl::StrFormat("conv1d { filters: %d kernel: %d stride: %d dilation: %d padding: [%d, "
                            "%d] }",
                            dims.back(), w.kernel, w.stride, w.dilation, w.before, w.after),
            dims);
      return;
    }
    const std::string kind = Flip() ? "MAX" : "AVERAGE";
    if (Number(0, 3) == 0) {
      dims[axis] = 1;
      Layer(absl::StrCat("pool1d { kind: ", kind, " global: true }"), dims);
      return;
    }
    const int64_t span = (w.kernel - 1) + 1;
    dims[axis] = (dims_[axis] + w.before + w.after - span) / w.stride + 1;
    Layer(absl::StrFormat("pool1d { kind: %s kernel: %d stride: %d padding: [%d, %d] }", kind,
                          w.kernel, w.stride, w.before, w.after),
          dims);
  }

  // Adds numbers that are made of none.
  void Mean() {
    if (batch_axis_ != 0) return;
    const std::string x = last_, dims = absl::StrJoin(dims_, ", ");
    Layer(absl::StrCat("noise { dims: [", dims, "] mean: 0.3 std: 0 }"), dims_);
    Layer("add {}", dims_, absl::StrCat(x, "\", \"", last_));
  }

  void Combine() {
    const std::string before = last_;
    const Dims dims = dims_;
    Activation();
    const std::string one = last_;
    if (Flip()) Dense();
    if (dims_ == dims && Flip()) {
      Layer(Flip() ? "add {}" : "multiply {}", dims,
            absl::StrCat(before, "\", \"", last_, Flip() ? absl::StrCat("\", \"", one) : ""));
      return;
    }
    Layer("concat {}", WithLast(dims.back() + dims_.back()), absl::StrCat(before, "\", \"", last_));
  }

  void Cut() {
    // The axis among all, so without the samples'.
    std::vector<int> axes;
    for (int a = 0; a <= static_cast<int>(dims_.size()); ++a) {
      if (a != batch_axis_) axes.push_back(a);
    }
    const int axis = Pick(axes);
    const size_t at = static_cast<size_t>(axis > batch_axis_ ? axis - 1 : axis);
    if (dims_[at] < 2) return;
    const int64_t begin = Number(0, dims_[at] - 2), end = Number(begin + 1, dims_[at]);
    Dims dims = dims_;
    if (Flip() && begin > 0) {
      const int64_t rest = dims_[at] - begin;
      const std::string name =
          Layer(absl::StrCat("split { axis: ", axis, " sizes: [", begin, ", ", rest, "] }"), dims);
      dims_ = dims;
      dims_[at] = begin;
      if (Flip()) {
        last_ = name + ":1";
        dims_[at] = rest;
      }
      Activation();
      return;
    }
    dims[at] = end - begin;
    Layer(absl::StrCat("slice { axis: ", axis, " begin: ", begin, " end: ", end, " }"), dims);
  }

  void Reshape() {
    if (batch_axis_ != 0) return;
    const int64_t elements = Elements();
    Dims dims = {elements};
    for (const int64_t divisor : {2, 3, 2, 5}) {
      if (dims[0] % divisor != 0 || dims.size() == 3 || Number(0, 3) == 0) continue;
      dims[0] /= divisor;
      dims.push_back(divisor);
    }
    std::ranges::shuffle(dims, random_);
    Layer(absl::StrCat("reshape { dims: [", absl::StrJoin(dims, ", "), "] }"), dims);
  }

  void Transpose() {
    Dims whole = dims_;
    whole.insert(whole.begin() + batch_axis_, 0);
    std::vector<int> axes(whole.size());
    for (size_t a = 0; a < axes.size(); ++a) axes[a] = static_cast<int>(a);
    std::ranges::shuffle(axes, random_);
    if (axes.back() == batch_axis_) std::swap(axes.front(), axes.back());
    Dims dims;
    int batch_axis = 0;
    for (size_t a = 0; a < axes.size(); ++a) {
      if (axes[a] == batch_axis_) {
        batch_axis = static_cast<int>(a);
      } else {
        dims.push_back(whole[static_cast<size_t>(axes[a])]);
      }
    }
    Layer(absl::StrCat("transpose { axes: [", absl::StrJoin(axes, ", "), "] }"), dims);
    batch_axis_ = batch_axis;
  }

  std::string Input(const std::string& name, const std::string& dims) {
    const std::string line =
        absl::StrCat("input { name: \"", name, "\" ", dims, " type: LABEL }\n");
    if (inputs_.find(line) == std::string::npos) inputs_ += line;
    return name;
  }

  // Lengths and resets are of the steps' number.
  void Sequence() {
    if (batch_axis_ > 1) return;
    const std::string cell = Pick<std::string>({"lstm", "gru", "rnn"});
    const int64_t hidden = Number(2, 6);
    std::string options = absl::StrCat("hidden: ", hidden);
    std::string inputs = last_;
    int64_t width = hidden;
    const bool both = Flip();
    if (both) options += " bidirectional: true";
    if (Number(0, 2) == 0) options += " layers: 2";
    if (!both && Number(0, 2) == 0) options += " carry: true";
    if (cell == "rnn" && Flip()) options += " nonlinearity: RELU";
    if (cell == "lstm" && Number(0, 2) == 0) {
      width = Number(1, hidden - 1);
      absl::StrAppend(&options, " projection: ", width);
    }
    const bool last = Number(0, 2) == 0;
    if (last) options += " last: true";
    if (Number(0, 2) == 0) {
      absl::StrAppend(&inputs, "\", \"", Input(absl::StrCat("length", dims_[0]), ""));
    }
    if (Number(0, 2) == 0 && batch_axis_ == 0) {
      absl::StrAppend(&inputs, "\", \"",
                      Input(absl::StrCat("reset", dims_[0]), absl::StrCat("dims: ", dims_[0])));
    }
    const int64_t columns = width * (both ? 2 : 1);
    const std::string name =
        Layer(absl::StrCat(cell, " { ", options, " }"), WithLast(columns), inputs);
    if (!last) return;
    last_ = name + ":1";
    dims_ = {columns};
    batch_axis_ = 0;
    Activation();
  }

  void Attention() {
    if (batch_axis_ > 1) return;
    const int64_t heads = Number(1, 3), columns = heads * Number(1, 4), steps = dims_[0];
    const std::string causal = Flip() ? " causal: true" : "";
    if (Number(0, 2) == 0)
      Layer(absl::StrCat("positional_embedding { length: ", steps + Number(0, 3), " }"), dims_);
    std::string inputs;
    if (Flip()) {
      Layer(absl::StrCat("dense { outputs: ", 3 * columns, " }"), WithLast(3 * columns));
      inputs = last_;
    } else {
      const std::string x = last_;
      for (int i = 0; i < 3; ++i) {
        Layer(absl::StrCat("dense { outputs: ", columns, " }"), WithLast(columns), x);
        absl::StrAppend(&inputs, i == 0 ? "" : "\", \"", last_);
      }
    }
    if (Flip()) absl::StrAppend(&inputs, "\", \"", Input(absl::StrCat("length", steps), ""));
    Layer(absl::StrCat("attention { heads: ", heads, causal, " }"), WithLast(columns), inputs);
  }

  std::mt19937_64 random_;
  std::string inputs_, layers_, last_;
  std::vector<std::string> others_;
  Dims dims_;
  int batch_axis_ = 0, count_ = 0;
  bool is_input_ = true;
};

}  // namespace

RandomNet MakeRandomNet(uint64_t seed) { return NetMaker(seed).Make(); }

}  // namespace gyre
