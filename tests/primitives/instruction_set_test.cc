// oneDNN's instruction set where the environment bounds it: see BUILD.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "engine/runtime/primitives/primitives.h"

namespace gyre {
namespace {

TEST(InstructionSetTest, TheEnvironmentRulesAndIsRecorded) {
  const auto bound = [](const char* variable) {
    const char* const value = std::getenv(variable);
    return value != nullptr && std::string(value) == "SSE41";
  };
  if (!bound("ONEDNN_MAX_CPU_ISA") && !bound("DNNL_MAX_CPU_ISA")) GTEST_SKIP() << "not bounded";
  const std::string choices = Primitives(DeviceKind::kCpu, 1).choices();
  EXPECT_NE(choices.find("instruction set 0x1,"), std::string::npos) << choices;
}

}  // namespace
}  // namespace gyre
