// A checkpoint's state whose own sum is right and whose numbers are wrong: whoever writes the one
// can write the other as well.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>

#include "absl/strings/str_cat.h"
#include "engine/data/files/atomic_file.h"
#include "engine/training/checkpoint/checkpoint.h"
#include "tests/data/temp_folder.h"

namespace gyre {
namespace {

class CheckpointStateTest : public testing::Test {
 protected:
  void SetUp() override {
    state_.set_step(3);
    state_.set_position(192);
    CheckpointStore store(folder_.path());
    std::map<std::string, uint32_t> crc32s;
    for (const std::string& name : {std::string(kWeightsFile), ShardName(kOptimizerFile, 0, 1)}) {
      crc32s[name] = store.Write(3, name, {}).value();
    }
    ASSERT_EQ(store.Publish(state_, crc32s), absl::OkStatus());
    ASSERT_EQ(Load(state_), absl::OkStatus());
  }

  absl::Status Load(const CheckpointState& state) {
    CheckpointFile file;
    EXPECT_TRUE(file.ParseFromString(*ReadFile(path_)));
    file.set_state(state.SerializeAsString());
    file.set_state_sha256(Sha256(file.state()));
    WriteBytes(path_, file.SerializeAsString());
    return LoadCheckpoint(folder_ / "step_00000003").status();
  }

  TempFolder folder_;
  const std::string path_ = folder_ / "step_00000003/state.pb";
  CheckpointState state_;
};

TEST_F(CheckpointStateTest, StepsThatNoRunHas) {
  for (const auto& [step, position] : std::vector<std::pair<int64_t, int64_t>>{
           {-1, 0}, {3, -64}, {3, std::numeric_limits<int64_t>::max()}}) {
    state_.set_step(step);
    state_.set_position(position);
    EXPECT_EQ(Load(state_), absl::DataLossError(absl::StrCat(path_, ": step ", step, " after ",
                                                             position, " samples")));
  }
}

TEST_F(CheckpointStateTest, LossScalesThatNoRunHas) {
  constexpr struct {
    double scale;
    int64_t good, skipped;
  } kScales[] = {{0, 1, 1}, {INFINITY, 1, 1}, {NAN, 1, 1}, {8, -1, 1}, {8, 1, -1}, {8, 1, 4}};
  for (const auto& [scale, good, skipped] : kScales) {
    auto& loss_scale = *state_.mutable_loss_scale();
    loss_scale.set_scale(scale);
    loss_scale.set_good_steps(good);
    loss_scale.set_skipped(skipped);
    EXPECT_THAT(Load(state_).message(), testing::HasSubstr("a loss scale of"));
  }
}

}  // namespace
}  // namespace gyre
