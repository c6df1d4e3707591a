#include "engine/runtime/machine.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <filesystem>
#include <map>
#include <thread>

#include "engine/runtime/device/device.h"
#include "tests/data/temp_folder.h"

namespace gyre {
namespace {

struct Case {
  const char* groups;                       // /proc/self/cgroup
  std::map<std::string, std::string> root;  // files below /sys/fs/cgroup
  size_t limit;                             // 0: none
};

// Measures each case with control groups of its own.
template <typename Measure>
void ExpectLimits(const std::vector<Case>& cases, size_t without, Measure measure) {
  for (const Case& c : cases) {
    const TempFolder folder;
    WriteBytes(folder / "groups", c.groups);
    for (const auto& [name, text] : c.root) {
      const std::filesystem::path path = folder / ("root/" + name);
      std::filesystem::create_directories(path.parent_path());
      WriteBytes(path, text);
    }
    const ControlGroups groups = {folder / "groups", folder / "root"};
    EXPECT_EQ(measure(groups), c.limit == 0 ? without : c.limit) << c.groups;
  }
}

TEST(MachineTest, TheLeastLimitOnTheWayUp) {
  const std::string v2 = "memory.max", v1 = "memory.limit_in_bytes";
  const size_t all = MemoryBytes({"/nowhere", "/nowhere"});
  EXPECT_GT(all, size_t{1} << 20);
  ExpectLimits(
      {
          {"", {{v2, "5"}}, 0},
          {"0::/\n", {}, 0},
          {"0::/\n", {{v2, "max\n"}}, 0},
          {"0::/\n", {{v2, "4096\n"}}, 4096},
          {"0::/a/b\n", {{"a/b/" + v2, "max\n"}, {"a/" + v2, "300\n"}, {v2, "400\n"}}, 300},
          {"0::/a/b\n", {{"a/b/" + v2, "200\n"}, {"a/" + v2, "300\n"}}, 200},
          {"0::/the/hosts/path\n", {{v2, "70\n"}}, 70},
          {"5:cpu:/\n4:hugetlb,memory:/x\n0::/\n", {{"memory/x/" + v1, "12\n"}}, 12},
          {"4:memory:/x\n", {{"memory/" + v1, "9223372036854771712\n"}}, 0},
          {"4:cpu:/x\n", {{"memory/x/" + v1, "12\n"}}, 0},
          {"bad\n::\n4:memory:x\n", {{"memory/" + v1, "12\n"}}, 0},
      },
      all, [](const ControlGroups& groups) { return MemoryBytes(groups); });
}

TEST(MachineTest, CoresAreBoundToSomeOrShared) {
  cpu_set_t before, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
  const size_t all = static_cast<size_t>(Cores({"/nowhere", "/nowhere"}));
  EXPECT_EQ(all, CPU_COUNT(&before));
  const std::string quota = "cpu/x/cpu.cfs_quota_us", period = "cpu/x/cpu.cfs_period_us";
  const auto cores = [](const ControlGroups& groups) { return static_cast<size_t>(Cores(groups)); };
  ExpectLimits(
      {
          {"0::/\n", {{"cpu.max", "max 100000\n"}}, 0},
          {"0::/\n", {{"cpu.max", "100000 100000\n"}}, 1},
          {"0::/\n", {{"cpu.max", "1000 100000\n"}}, 1},
          {"0::/\n", {{"cpu.max", "99900000 100000\n"}}, 0},
          {"0::/a\n", {{"a/cpu.max", "max 100000\n"}, {"cpu.max", "40000 50000\n"}}, 1},
          {"4:cpu,cpuacct:/x\n", {{quota, "50000\n"}, {period, "100000\n"}}, 1},
          {"4:cpu,cpuacct:/x\n", {{quota, "-1\n"}, {period, "100000\n"}}, 0},
          {"4:cpuset:/x\n", {{quota, "50000\n"}, {period, "100000\n"}}, 0},
      },
      all, cores);
  // A share of one and a half cores keeps a second one busy half of the time.
  ExpectLimits({{"0::/\n", {{"cpu.max", "150000 100000\n"}}, std::min<size_t>(2, all)}}, all,
               cores);

  CPU_ZERO(&one);
  for (int core = 0; CPU_COUNT(&one) == 0; ++core) {
    if (CPU_ISSET(core, &before)) CPU_SET(core, &one);
  }
  std::thread([&] {  // its affinity ends with it
    ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
    EXPECT_EQ(Cores({"/nowhere", "/nowhere"}), 1);
  })
      .join();
}

TEST(MachineTest, BoundsTheCpuDevice) {
  EXPECT_EQ(NewCpuDevice({})->capacity_bytes(), MemoryBytes());
}

}  // namespace
}  // namespace gyre
