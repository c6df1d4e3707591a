#include "tools/data/made_data.h"

#include <algorithm>
#include <cstdio>

#include "engine/runtime/random.h"
#include "tools/command_line/flags.h"
#include "tools/command_line/process.h"
#include "tools/command_line/ranks.h"
#include "tools/data/new_folder.h"

namespace gyre {

double Numbers::Uniform(double least, double most) {
  const RandomBits bits = Philox(key_, 0, next_++);
  return least + (most - least) * UniformDouble(bits.v[0], bits.v[1]);
}

double Numbers::Normal() { return Normals(Philox(key_, 1, next_++)).first; }

int64_t Numbers::Below(int64_t bound) {
  return std::min(bound - 1, static_cast<int64_t>(Uniform() * static_cast<double>(bound)));
}

int RunMaker(int argc, char** argv, const char* usage, const std::vector<FlagGroup>& groups,
             const absl::Flag<std::string>& out, const Maker& maker) {
  ParseFlags(argc, argv, usage, groups);
  const std::string folder = absl::GetFlag(out);
  absl::Status status = maker.check();
  if (status.ok()) status = WriteNewFolder(folder, maker.write);
  if (!status.ok()) Fail(nullptr, status);
  std::printf("wrote %s to %s\n", maker.made().c_str(), folder.c_str());
  return FinishOutput(0);
}

}  // namespace gyre
