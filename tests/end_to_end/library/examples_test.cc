// The examples, which know the headers and libgyre.so alone: one prediction by C++, C and Python,
// and a training loop of a simulation.  That the library exports nothing but its functions.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <regex>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/end_to_end/library/trained_file.h"

namespace gyre {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

constexpr char kLibrary[] = "engine/api/libgyre.so";

// Standard output and errors.
std::string Said(const std::string& command) {
  std::FILE* const pipe = popen((command + " 2>&1").c_str(), "r");
  EXPECT_NE(pipe, nullptr);
  std::string said;
  for (int c; (c = std::fgetc(pipe)) != EOF;) said += static_cast<char>(c);
  EXPECT_EQ(pclose(pipe), 0) << said;
  return said;
}

TEST(Examples, OnePrediction) {
  const TrainedFile trained;
  const std::string by_cpp =
      Said(absl::StrCat("engine/api/examples/frames ", trained.file(), " 1"));
  EXPECT_THAT(by_cpp, StartsWith("frame 0: "));
  EXPECT_EQ(Said(absl::StrCat("engine/api/examples/frame ", trained.file())), by_cpp);
  EXPECT_EQ(
      Said(absl::StrCat("python3 engine/api/examples/frame.py ", kLibrary, " ", trained.file())),
      by_cpp);
}

TEST(Examples, Simulation) {
  const TempFolder folder;
  const std::string said =
      Said(absl::StrCat("engine/api/examples/simulation ", folder / "oscillator"));
  EXPECT_THAT(said, HasSubstr("step 600  loss 0.0"));
  EXPECT_THAT(said, HasSubstr("simulated "));
}

TEST(Library, ExportsItsFunctionsAlone) {
  std::set<std::string> exported, declared;
  for (const absl::string_view line :
       absl::StrSplit(Said(absl::StrCat("nm --dynamic --defined-only --format=posix ", kLibrary)),
                      '\n', absl::SkipEmpty())) {
    exported.insert(std::string(line.substr(0, line.find(' '))));
  }
  const std::string header = ReadBytes("engine/api/gyre/gyre_c.h");
  const std::regex function("(gyre_[a-z_]+)\\(");
  for (std::sregex_iterator at(header.begin(), header.end(), function), end; at != end; ++at) {
    declared.insert((*at)[1]);
  }
  EXPECT_GE(declared.size(), 20u);
  EXPECT_EQ(exported, declared);
}

}  // namespace
}  // namespace gyre
