// export: writes trained weights in a format that other programs read.

#include <cstdio>
#include <map>
#include <string>

#include "absl/flags/flag.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/runtime/count_text.h"
#include "engine/training/model/weights.h"
#include "engine/training/onnx/onnx_model.h"
#include "engine/training/onnx/verify.h"
#include "tools/command_line/flag_values.h"
#include "tools/command_line/flags.h"
#include "tools/command_line/process.h"
#include "tools/command_line/ranks.h"
#include "tools/command_line/run_files.h"

ABSL_FLAG(std::string, weights, "",
          "A run's folder (its newest checkpoint), a checkpoint's, or a safetensors file.");
ABSL_FLAG(std::string, to, "",
          "File to write: NAME.gyre, which `predict` and `evaluate` read alone, NAME.onnx, "
          "NAME.safetensors or NAME.npz.");
ABSL_FLAG(bool, last_weights, false,
          "Of a run with `ema`: the weights as they were last, in place of their averages.");
ABSL_FLAG(std::vector<std::string>, outputs, {},
          "Of an .onnx: layers whose output it gives, such as fc1,fc2.  Default: what the losses "
          "read, as shares behind a cross-entropy.");
ABSL_FLAG(std::string, images, "nhwc",
          "Of an .onnx: nhwc or nchw, the order of the axes of images.");
ABSL_FLAG(bool, keep_batch_norm, false,
          "Of an .onnx: do not fold batch_norm into the layer ahead.");
ABSL_FLAG(
    int, samples, 0,
    "Of an .onnx: the only number of samples that it takes, as OpenCV needs for lstm and gru.  "
    "0: any.");
ABSL_FLAG(
    bool, verify, false,
    "Of an .onnx: run it by OpenCV on random inputs of 1 and 3 samples, and print the largest "
    "difference from Gyre's net.");

namespace gyre {
namespace {

constexpr char kUsage[] =
    "writes trained weights for other programs.\n"
    "\n"
    "  export --weights=runs/a --to=lenet.gyre\n"
    "  export --weights=runs/a --to=lenet.onnx --images=nchw\n"
    "  export --weights=runs/a --to=lenet.safetensors\n"
    "  export --weights=runs/a/checkpoints/step_00000200 --to=lenet.npz\n"
    "\n"
    "Tensors are named LAYER.STATE (conv1.weight), row-major; convolution weights are\n"
    "O,I,H,W.\n"
    "Like a .safetensors, a .gyre also holds the texts of net and trainer, classes,\n"
    "vocabulary and normalization.\n"
    "An .onnx holds the net as it predicts, with its normalization and classes.\n"
    "Exit codes: 0 done, 1 failed, 2 wrong flags.";

const std::vector<FlagGroup> kGroups = {
    {"Flags", {"weights", "to", "last_weights"}},
    {"ONNX", {"outputs", "images", "keep_batch_norm", "samples", "verify"}},
};

absl::StatusOr<Weights> ReadGiven() {
  return ReadTrained(absl::GetFlag(FLAGS_weights), "--weights", absl::GetFlag(FLAGS_last_weights));
}

// By OpenCV, which must agree where it reads the model.
absl::Status Verify(const onnx::ModelProto& model, const OnnxSource& source,
                    const Primitives& primitives) {
  if (const std::string beyond = BeyondOpenCv(model); !beyond.empty()) {
    std::printf("not verified: OpenCV 4.6 does not read %s; onnxruntime does\n", beyond.c_str());
    return absl::OkStatus();
  }
  const int64_t fixed = absl::GetFlag(FLAGS_samples);
  for (const int64_t samples :
       fixed > 0 ? std::vector<int64_t>{fixed} : std::vector<int64_t>{1, 3}) {
    ASSIGN_OR_RETURN(const double difference,
                     DifferenceByOpenCv(model, source, samples, primitives));
    if (!(difference <= kOnnxTolerance)) {
      return absl::InternalError(absl::StrCat(
          "OpenCV's outputs for ", samples, " samples differ by ", difference,
          " of the largest; expected at most ", kOnnxTolerance, ".  The file is written"));
    }
    std::printf("verified by OpenCV for %d sample%s: differs by %.1e of the largest output\n",
                static_cast<int>(samples), samples == 1 ? "" : "s", difference);
  }
  return absl::OkStatus();
}

absl::Status ExportOnnx(const std::string& to) {
  const std::string images = absl::GetFlag(FLAGS_images);
  RETURN_IF_ERROR(CheckLeast(0, {FLAGS_samples}));
  RETURN_IF_ERROR(
      CheckValue(images == "nhwc" || images == "nchw", "images", images, "nhwc or nchw"));
  ASSIGN_OR_RETURN(const Weights weights, ReadGiven());
  ASSIGN_OR_RETURN(ConfigFiles files, FilesOfRun(weights.texts, weights.path, {}, {}, /*ranks=*/1));
  ASSIGN_OR_RETURN(OnnxSource source,
                   MakeOnnxSource(std::move(files.net), files.trainer.message->data(), weights,
                                  {.outputs = absl::GetFlag(FLAGS_outputs),
                                   .keep_batch_norm = absl::GetFlag(FLAGS_keep_batch_norm),
                                   .channels_first = images == "nchw"}));
  const Primitives primitives(DeviceKind::kCpu, /*threads=*/1);
  ASSIGN_OR_RETURN(onnx::ModelProto model, MakeOnnx(source, primitives));
  if (absl::GetFlag(FLAGS_samples) > 0) {
    FixExtents(*source.net.message, absl::GetFlag(FLAGS_samples), model);
  }
  RETURN_IF_ERROR(WriteOnnx(to, model));
  std::printf("wrote %s of %s to %s\n", DescribeOnnx(model).c_str(), weights.path.c_str(),
              to.c_str());
  if (!absl::GetFlag(FLAGS_verify)) return absl::OkStatus();
  // Shares near 0 and 1 hide what their scores differ by.
  AddScores(source.predictions, *source.net.message);
  ASSIGN_OR_RETURN(model, MakeOnnx(source, primitives));
  return Verify(model, source, primitives);
}

absl::Status Export(const std::string& to) {
  if (to.empty()) return absl::InvalidArgumentError("--to is missing; see --help");
  RETURN_IF_ERROR(CheckEnding("to", to, {".gyre", ".onnx", ".safetensors", ".npz"}));
  if (absl::EndsWith(to, ".onnx")) return ExportOnnx(to);
  RETURN_IF_ERROR(CheckUnused({"outputs", "images", "keep_batch_norm", "samples", "verify"},
                              absl::StrCat("--to=", to)));
  const bool npz = absl::EndsWith(to, ".npz");
  ASSIGN_OR_RETURN(const Weights weights, ReadGiven());
  const std::vector<NamedTensor>& tensors = weights.tensors.tensors();
  std::map<std::string, std::string> metadata = MetadataOf(weights);
  metadata["format"] = "gyre";
  RETURN_IF_ERROR(npz ? WriteNpz(to, tensors) : WriteSafetensors(to, tensors, metadata));
  for (const auto& [name, why] : weights.tensors.unreadable()) {
    std::fprintf(stderr, "left out: \"%s\" %s\n", name.c_str(), why.c_str());
  }
  std::printf("wrote %s of %s to %s\n",
              Counted(static_cast<int64_t>(tensors.size()), "tensor").c_str(), weights.path.c_str(),
              to.c_str());
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  ParseFlags(argc, argv, kUsage, kGroups);
  const absl::Status status = Export(absl::GetFlag(FLAGS_to));
  if (!status.ok()) Fail(nullptr, status);
  return FinishOutput(0);
}

}  // namespace
}  // namespace gyre

int main(int argc, char** argv) { return gyre::Main(argc, argv); }
