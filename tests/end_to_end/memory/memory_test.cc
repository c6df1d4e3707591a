// A run of one rank has as much memory as --plan says, within 5 % and a few MiB.  Ranks
// that share memory have each other's gradients, too, as the system counts.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/end_to_end/training_folder.h"

namespace gyre {
namespace {

const SyntheticData kData{.samples = 32};

class Memory : public testing::Test {
 protected:
  struct Bytes {
    double planned, peak;
  };
  // Of a run that checkpoints twice, its first layers `wide`.
  Bytes Run(int wide) const {
    std::vector<std::string> more;
    for (const char* layer : {"fc1", "fc2"}) {
      more.push_back(absl::StrCat("--set=net.layer.", layer, ".dense.outputs=", wide));
    }
    const ToolResult run = Succeeded(folder_.Train(absl::StrCat(wide), more));
    const auto plan =
        nlohmann::json::parse(folder_.Train("plan", Joined(more, {"--plan", "--json"})).out,
                              nullptr, /*allow_exceptions=*/false);
    EXPECT_TRUE(plan.is_object());
    if (!plan.is_object()) return {};
    const nlohmann::json& bytes = plan["bytes"];
    return {bytes["device"].get<double>() + bytes["host"].get<double>(),
            static_cast<double>(run.peak_bytes)};
  }

  TrainingFolder folder_{kData};
};

// What a small net has is the program, its libraries and the data.  Beside that a large one has
// buffers of a few MiB, for files and for packing.
TEST_F(Memory, IsWhatThePlanSays) {
  WriteTrainer(folder_ / "",
               "name: \"net\"\n"
               "input { name: \"image\" dims: [12, 12, 1] }\n"
               "input { name: \"label\" type: LABEL }\n"
               "layer { name: \"flat\" input: \"image\" flatten {} }\n"
               "layer { name: \"fc1\" dense { outputs: 8 } }\n"
               "layer { name: \"fc2\" dense { outputs: 8 } }\n"
               "layer { name: \"fc3\" dense { outputs: 10 } }\n"
               "layer { name: \"loss\" input: [\"fc3\", \"label\"] softmax_cross_entropy {} }\n",
               {.optimizer = "adam {}", .rest = "batch: 8 steps: 4 checkpoint_every: 2"});
  const Bytes large = Run(2048), small = Run(8);
  EXPECT_NEAR(large.peak - small.peak, large.planned - small.planned,
              0.05 * large.planned + (8 << 20));
}

}  // namespace
}  // namespace gyre
