// training_c.cc: the functions of training of gyre_c.h.

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "engine/api/call.h"
#include "engine/api/program_run.h"
#include "engine/runtime/check.h"

struct gyre_training_run : gyre::Handle<gyre::ProgramRun> {};

namespace {

std::string TextOf(const char* text) { return text == nullptr ? "" : text; }

absl::StatusOr<std::vector<std::string>> ClassesOf(const gyre_training_options& options) {
  std::vector<std::string> classes;
  if (options.class_count == 0) return classes;
  if (options.classes == nullptr) return absl::InvalidArgumentError("classes: is null");
  for (size_t i = 0; i < options.class_count; ++i) {
    classes.push_back(TextOf(options.classes[i]));
    if (!classes.back().empty() && classes.back().find('\n') == std::string::npos) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("classes: expected a name without a line's end for number ", i, ", got \"",
                     absl::CHexEscape(classes.back()), "\""));
  }
  return classes;
}

gyre::ProgramRun::Tell TellOf(const gyre_training_options& options) {
  if (options.on_metrics == nullptr) return nullptr;
  return
      [tell = options.on_metrics, context = options.context](
          int64_t step, bool is_test, const std::vector<std::pair<std::string, double>>& values) {
        std::vector<gyre_metric> metrics;
        for (const auto& [name, value] : values) metrics.push_back({name.c_str(), value});
        tell(context, step, is_test ? 1 : 0, metrics.data(), metrics.size());
      };
}

}  // namespace

int gyre_training_open(const gyre_training_options* options, gyre_training_run** run) {
  return gyre::RunCall([&]() -> absl::Status {
    if (run == nullptr) return absl::InvalidArgumentError("run: is null");
    *run = nullptr;
    if (options == nullptr) return absl::InvalidArgumentError("options: is null");
    ASSIGN_OR_RETURN(std::vector<std::string> classes, ClassesOf(*options));
    ASSIGN_OR_RETURN(auto opened,
                     gyre::ProgramRun::Open({.trainer_text = TextOf(options->trainer_text),
                                             .net_text = TextOf(options->net_text),
                                             .trainer_file = TextOf(options->trainer_file),
                                             .out = TextOf(options->out),
                                             .resume = TextOf(options->resume),
                                             .weights = TextOf(options->weights),
                                             .classes = std::move(classes),
                                             .device = {.kind = options->device,
                                                        .memory_bytes = options->device_memory,
                                                        .threads = options->threads},
                                             .mpi_comm = options->mpi_comm},
                                            TellOf(*options)));
    *run = new gyre_training_run;
    (*run)->object = std::move(opened);
    return absl::OkStatus();
  });
}

void gyre_training_close(gyre_training_run* run) { delete run; }

size_t gyre_training_arrays(const gyre_training_run* run) {
  return run == nullptr ? 0 : run->object->arrays().size();
}

const gyre_array_info* gyre_training_array(const gyre_training_run* run, size_t index) {
  if (index >= gyre_training_arrays(run)) return nullptr;
  return &run->object->arrays().info(index);
}

int64_t gyre_training_batch(const gyre_training_run* run) {
  return run == nullptr ? 0 : run->object->batch();
}

int64_t gyre_training_steps(const gyre_training_run* run) {
  return run == nullptr ? 0 : run->object->steps();
}

int gyre_training_step(gyre_training_run* run, const gyre_array* arrays, size_t count) {
  return gyre::RunCall(run, [&](gyre::ProgramRun& of) { return of.Step(arrays, count); });
}

int gyre_training_test(gyre_training_run* run, int64_t samples, const gyre_array* arrays,
                       size_t count) {
  return gyre::RunCall(run, [&](gyre::ProgramRun& of) { return of.Test(samples, arrays, count); });
}

int gyre_training_save(gyre_training_run* run) {
  return gyre::RunCall(run, [](gyre::ProgramRun& of) { return of.Save(); });
}

int gyre_training_load(gyre_training_run* run, const char* path) {
  return gyre::RunCall(run, [&](gyre::ProgramRun& of) { return of.Load(TextOf(path)); });
}

int gyre_training_export(gyre_training_run* run, const char* path) {
  return gyre::RunCall(run, [&](gyre::ProgramRun& of) { return of.Export(TextOf(path)); });
}
