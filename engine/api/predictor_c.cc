// predictor_c.cc: the functions of predictions of gyre_c.h.

#include "absl/strings/ascii.h"
#include "absl/strings/str_split.h"
#include "engine/api/call.h"
#include "engine/api/net_predictor.h"
#include "engine/runtime/check.h"

struct gyre_predictor : gyre::Handle<gyre::NetPredictor> {};

int gyre_predictor_open(const char* path, const gyre_predictor_options* options,
                        gyre_predictor** predictor) {
  return gyre::RunCall([&]() -> absl::Status {
    if (predictor == nullptr) return absl::InvalidArgumentError("predictor: is null");
    *predictor = nullptr;
    if (path == nullptr) return absl::InvalidArgumentError("path: is null");
    gyre::NetPredictorOptions wanted;
    if (options != nullptr) {
      wanted = {.max_batch = options->max_batch,
                .device = {.kind = options->device,
                           .memory_bytes = options->device_memory,
                           .threads = options->threads}};
      if (options->outputs != nullptr) {
        for (const absl::string_view name : absl::StrSplit(options->outputs, ',')) {
          wanted.outputs.emplace_back(absl::StripAsciiWhitespace(name));
        }
      }
    }
    ASSIGN_OR_RETURN(auto opened, gyre::NetPredictor::Open(path, wanted));
    *predictor = new gyre_predictor;
    (*predictor)->object = std::move(opened);
    return absl::OkStatus();
  });
}

void gyre_predictor_close(gyre_predictor* predictor) { delete predictor; }

size_t gyre_predictor_arrays(const gyre_predictor* predictor) {
  return predictor == nullptr ? 0 : predictor->object->arrays().size();
}

const gyre_array_info* gyre_predictor_array(const gyre_predictor* predictor, size_t index) {
  if (index >= gyre_predictor_arrays(predictor)) return nullptr;
  return &predictor->object->arrays().info(index);
}

int gyre_predictor_run(gyre_predictor* predictor, int64_t samples, const gyre_array* arrays,
                       size_t count) {
  return gyre::RunCall(predictor,
                       [&](gyre::NetPredictor& net) { return net.Run(samples, arrays, count); });
}

int gyre_predictor_reset(gyre_predictor* predictor) {
  return gyre::RunCall(predictor, [](gyre::NetPredictor& net) {
    net.ClearCarried();
    return absl::OkStatus();
  });
}

int gyre_predictor_fit_picture(gyre_predictor* predictor, const char* input, const uint8_t* pixels,
                               int64_t height, int64_t width, int64_t channels, uint8_t* to,
                               size_t to_bytes) {
  return gyre::RunCall(predictor, [&](gyre::NetPredictor& net) {
    const int known = channels >= 1 && channels <= 4 ? static_cast<int>(channels) : 0;
    return net.FitPicture(input, {height, width, known, pixels}, to, to_bytes);
  });
}

int gyre_predictor_decode_picture(gyre_predictor* predictor, const char* input, const void* file,
                                  size_t file_bytes, uint8_t* to, size_t to_bytes) {
  return gyre::RunCall(predictor, [&](gyre::NetPredictor& net) {
    return net.DecodePicture(input, {static_cast<const char*>(file), file_bytes}, to, to_bytes);
  });
}
