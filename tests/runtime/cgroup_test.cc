#include "engine/runtime/device/cgroup.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include "engine/runtime/device/device.h"
#include "tests/data/temp_folder.h"

namespace gyre {
namespace {

TEST(CgroupTest, TheLeastLimitOnTheWayUp) {
  struct Case {
    const char* groups;                       // /proc/self/cgroup
    std::map<std::string, std::string> root;  // files below /sys/fs/cgroup
    std::optional<size_t> limit;
  };
  const std::string v2 = "memory.max", v1 = "memory.limit_in_bytes";
  const Case cases[] = {
      {"", {{v2, "5"}}, std::nullopt},
      {"0::/\n", {}, std::nullopt},
      {"0::/\n", {{v2, "max\n"}}, std::nullopt},
      {"0::/\n", {{v2, "4096\n"}}, 4096},
      {"0::/a/b\n", {{"a/b/" + v2, "max\n"}, {"a/" + v2, "300\n"}, {v2, "400\n"}}, 300},
      {"0::/a/b\n", {{"a/b/" + v2, "200\n"}, {"a/" + v2, "300\n"}}, 200},
      {"0::/the/hosts/path\n", {{v2, "70\n"}}, 70},
      {"5:cpu:/\n4:hugetlb,memory:/x\n0::/\n", {{"memory/x/" + v1, "12\n"}}, 12},
      {"4:memory:/x\n", {{"memory/" + v1, "9223372036854771712\n"}}, 9223372036854771712u},
      {"4:cpu:/x\n", {{"memory/x/" + v1, "12\n"}}, std::nullopt},
      {"bad\n::\n4:memory:x\n", {{"memory/" + v1, "12\n"}}, std::nullopt},
  };
  for (const Case& c : cases) {
    const TempFolder folder;
    WriteBytes(folder / "groups", c.groups);
    for (const auto& [name, text] : c.root) {
      const std::filesystem::path path = folder / ("root/" + name);
      std::filesystem::create_directories(path.parent_path());
      WriteBytes(path, text);
    }
    EXPECT_EQ(CgroupMemoryLimit(folder / "groups", folder / "root"), c.limit) << c.groups;
  }
  EXPECT_EQ(CgroupMemoryLimit("/nowhere", "/nowhere"), std::nullopt);
}

TEST(CgroupTest, BoundsTheCpuDevice) {
  const size_t limit = CgroupMemoryLimit().value_or(SIZE_MAX);
  EXPECT_LE(NewCpuDevice({})->capacity_bytes(), limit);
}

}  // namespace
}  // namespace gyre
