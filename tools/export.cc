// export: writes trained weights in a format that other programs read.

#include <cstdio>
#include <map>
#include <string>

#include "absl/flags/flag.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/runtime/count_text.h"
#include "engine/training/model/weights.h"
#include "tools/command_line/flag_values.h"
#include "tools/command_line/flags.h"
#include "tools/command_line/process.h"
#include "tools/command_line/ranks.h"
#include "tools/command_line/run_files.h"

ABSL_FLAG(std::string, weights, "",
          "A run's folder (its newest checkpoint), a checkpoint's, or a safetensors file.");
ABSL_FLAG(std::string, to, "",
          "File to write: NAME.gyre, which `predict` and `evaluate` read alone, NAME.safetensors "
          "or NAME.npz.");

namespace gyre {
namespace {

constexpr char kUsage[] =
    "writes trained weights for other programs.\n"
    "\n"
    "  export --weights=runs/a --to=lenet.gyre\n"
    "  export --weights=runs/a --to=lenet.safetensors\n"
    "  export --weights=runs/a/checkpoints/step_00000200 --to=lenet.npz\n"
    "\n"
    "Tensors are named LAYER.STATE (conv1.weight), row-major; convolution weights are\n"
    "O,I,H,W.\n"
    "Like a .safetensors, a .gyre also holds the texts of net and trainer, classes,\n"
    "vocabulary and normalization.\n"
    "Exit codes: 0 done, 1 failed, 2 wrong flags.";

const std::vector<FlagGroup> kGroups = {
    {"Flags", {"weights", "to"}},
};

absl::Status Export(const std::string& to) {
  if (to.empty()) return absl::InvalidArgumentError("--to is missing; see --help");
  RETURN_IF_ERROR(CheckEnding("to", to, {".gyre", ".safetensors", ".npz"}));
  const bool npz = absl::EndsWith(to, ".npz");
  ASSIGN_OR_RETURN(const Weights weights, ReadTrained(absl::GetFlag(FLAGS_weights)));
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
