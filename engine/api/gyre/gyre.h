// gyre.h: Gyre in a program.  All of it is inline, over the functions of gyre_c.h, which is what
// libgyre.so exports.  So any C++17 compiler and standard library can use it.  gyre_c.h has the
// rules of errors, threads and memory, and says what each function does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "gyre/gyre_c.h"

namespace gyre {

// OK, or an error with its code and text.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(int code, std::string message) : code_(code), message_(std::move(message)) {}
  // Of a function of gyre_c.h.
  static Status Of(int code) {
    return code == GYRE_OK ? Status() : Status(code, gyre_last_error());
  }

  bool ok() const { return code_ == GYRE_OK; }
  int code() const { return code_; }  // gyre_code
  const std::string& message() const { return message_; }

 private:
  int code_ = GYRE_OK;
  std::string message_;
};

// A named array in the caller's memory: a pointer and the number of elements, or a container such
// as std::vector.  It must outlive the call.
class NamedArray : public gyre_array {
 public:
  NamedArray(const char* of, const float* values, size_t size)
      : NamedArray(of, GYRE_F32, values, size, 4) {}
  NamedArray(const char* of, const int32_t* values, size_t size)
      : NamedArray(of, GYRE_I32, values, size, 4) {}
  NamedArray(const char* of, const uint8_t* values, size_t size)
      : NamedArray(of, GYRE_U8, values, size, 1) {}
  template <typename Container>
  NamedArray(const char* of, Container& container)
      : NamedArray(of, std::data(container), std::size(container)) {}
  // A temporary would be gone.
  template <typename Container>
  NamedArray(const char* of, const Container&& container) = delete;

 private:
  NamedArray(const char* of, int element_type, const void* values, size_t size, size_t element)
      : gyre_array{of, element_type, const_cast<void*>(values), size * element} {}
};

// What a net takes or gives.
struct ArrayInfo {
  std::string name;
  bool is_output = false;
  int type = GYRE_F32;        // gyre_type
  std::vector<int64_t> dims;  // of a sample
  int64_t elements = 1;       // of a sample
  std::vector<std::string> classes;

  explicit ArrayInfo(const gyre_array_info& info)
      : name(info.name),
        is_output(info.is_output != 0),
        type(info.type),
        dims(info.dims, info.dims + info.rank),
        elements(info.elements),
        classes(info.classes, info.classes + info.class_count) {}
};

struct PredictorOptions {
  int64_t max_batch = 1;
  int threads = 0;
  std::string device = "cpu";
  size_t device_memory = 0;
  std::string outputs = {};  // layers, such as "fc1,fc2"
};

// A trained net.
class Predictor {
 public:
  Predictor() = default;
  Predictor(Predictor&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Predictor& operator=(Predictor&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Predictor() { Close(); }
  void Close() { gyre_predictor_close(std::exchange(handle_, nullptr)); }

  // Closes what was open.
  Status Open(const std::string& path, const PredictorOptions& options = {}) {
    Close();
    gyre_predictor_options c = {};
    c.max_batch = options.max_batch;
    c.threads = options.threads;
    c.device = options.device.c_str();
    c.device_memory = options.device_memory;
    c.outputs = options.outputs.empty() ? nullptr : options.outputs.c_str();
    return Status::Of(gyre_predictor_open(path.c_str(), &c, &handle_));
  }

  // Inputs, then outputs.
  std::vector<ArrayInfo> arrays() const {
    std::vector<ArrayInfo> all;
    for (size_t i = 0; i < gyre_predictor_arrays(handle_); ++i) {
      all.emplace_back(*gyre_predictor_array(handle_, i));
    }
    return all;
  }

  Status Run(int64_t samples, std::initializer_list<NamedArray> arrays) {
    return Run(samples, arrays.begin(), arrays.size());
  }
  Status Run(int64_t samples, const std::vector<NamedArray>& arrays) {
    return Run(samples, arrays.data(), arrays.size());
  }

  Status Reset() { return Status::Of(gyre_predictor_reset(handle_)); }

  Status FitPicture(const char* input, const uint8_t* pixels, int64_t height, int64_t width,
                    int64_t channels, uint8_t* to, size_t to_bytes) {
    return Status::Of(
        gyre_predictor_fit_picture(handle_, input, pixels, height, width, channels, to, to_bytes));
  }
  Status DecodePicture(const char* input, const void* file, size_t file_bytes, uint8_t* to,
                       size_t to_bytes) {
    return Status::Of(
        gyre_predictor_decode_picture(handle_, input, file, file_bytes, to, to_bytes));
  }

 private:
  Status Run(int64_t samples, const NamedArray* arrays, size_t count) {
    return Status::Of(gyre_predictor_run(handle_, samples, arrays, count));
  }

  gyre_predictor* handle_ = nullptr;
};

static_assert(sizeof(NamedArray) == sizeof(gyre_array),
              "arrays of NamedArray are arrays of gyre_array");

// The metrics of a step or a test.
struct StepMetrics {
  int64_t step = 0;  // steps done
  bool is_test = false;
  std::vector<std::pair<std::string, double>> values;
};

struct TrainingRunOptions {
  std::string trainer_text = {}, net_text = {};
  std::string trainer_file = {};  // in place of both
  std::string out = {}, resume = {}, weights = {};
  std::vector<std::string> classes = {};
  int threads = 0;
  std::string device = "cpu";
  size_t device_memory = 0;
  const void* mpi_comm = nullptr;                           // MPI_Comm*
  std::function<void(const StepMetrics&)> on_metrics = {};  // must not throw
};

// A net in training.
class TrainingRun {
 public:
  TrainingRun() = default;
  TrainingRun(const TrainingRun&) = delete;
  TrainingRun& operator=(const TrainingRun&) = delete;
  ~TrainingRun() { Close(); }
  void Close() { gyre_training_close(std::exchange(handle_, nullptr)); }

  // Closes what was open.
  Status Open(const TrainingRunOptions& options) {
    Close();
    on_metrics_ = options.on_metrics;
    gyre_training_options c = {};
    c.trainer_text = TextOrNull(options.trainer_text);
    c.net_text = TextOrNull(options.net_text);
    c.trainer_file = TextOrNull(options.trainer_file);
    c.out = TextOrNull(options.out);
    c.resume = TextOrNull(options.resume);
    c.weights = TextOrNull(options.weights);
    std::vector<const char*> classes;
    for (const std::string& name : options.classes) classes.push_back(name.c_str());
    c.classes = classes.data();
    c.class_count = classes.size();
    c.threads = options.threads;
    c.device = options.device.c_str();
    c.device_memory = options.device_memory;
    c.mpi_comm = options.mpi_comm;
    c.on_metrics = on_metrics_ ? &Tell : nullptr;
    c.context = this;
    return Status::Of(gyre_training_open(&c, &handle_));
  }

  std::vector<ArrayInfo> arrays() const {
    std::vector<ArrayInfo> all;
    for (size_t i = 0; i < gyre_training_arrays(handle_); ++i) {
      all.emplace_back(*gyre_training_array(handle_, i));
    }
    return all;
  }
  int64_t batch() const { return gyre_training_batch(handle_); }
  int64_t steps() const { return gyre_training_steps(handle_); }

  Status Step(std::initializer_list<NamedArray> arrays) {
    return Status::Of(gyre_training_step(handle_, arrays.begin(), arrays.size()));
  }
  Status Test(int64_t samples, std::initializer_list<NamedArray> arrays) {
    return Status::Of(gyre_training_test(handle_, samples, arrays.begin(), arrays.size()));
  }
  Status Save() { return Status::Of(gyre_training_save(handle_)); }
  // "": the newest checkpoint of `out`.
  Status Load(const std::string& path = "") {
    return Status::Of(gyre_training_load(handle_, TextOrNull(path)));
  }
  Status Export(const std::string& path) {
    return Status::Of(gyre_training_export(handle_, path.c_str()));
  }

 private:
  static const char* TextOrNull(const std::string& text) {
    return text.empty() ? nullptr : text.c_str();
  }
  static void Tell(void* self, int64_t step, int is_test, const gyre_metric* metrics,
                   size_t count) {
    StepMetrics of{step, is_test != 0, {}};
    for (size_t i = 0; i < count; ++i) of.values.emplace_back(metrics[i].name, metrics[i].value);
    static_cast<TrainingRun*>(self)->on_metrics_(of);
  }

  gyre_training_run* handle_ = nullptr;
  std::function<void(const StepMetrics&)> on_metrics_;
};

}  // namespace gyre
