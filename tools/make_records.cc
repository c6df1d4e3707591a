// make_records: packs the samples of a trainer's data in shards, which training reads in sequence.

#include <fnmatch.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <set>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/data/files/atomic_file.h"
#include "engine/data/files/folder_lock.h"
#include "engine/data/sets/series.h"
#include "engine/runtime/count_text.h"
#include "engine/runtime/machine.h"
#include "engine/training/feed/data_feed.h"
#include "tools/command_line/flag_values.h"
#include "tools/command_line/flags.h"
#include "tools/command_line/process.h"
#include "tools/command_line/ranks.h"
#include "tools/command_line/run_files.h"
#include "tools/data/made_data.h"
#include "tools/records/pack_records.h"
#include "tools/records/verify_records.h"

ABSL_FLAG(std::string, trainer, "", "Text file of the trainer, which names the net and the data.");
ABSL_FLAG(std::string, set, "",
          "PATH=VALUE of a field of the trainer or, as net.PATH, of the net.  Repeatable.");
ABSL_FLAG(std::string, out, "", "Folder of the shards.  Those that are there already are kept.");
ABSL_FLAG(bool, raw, false, "Pack pictures as pixels of the net's input, not as their files.");
ABSL_FLAG(std::string, order, "",
          "Of training samples: shuffled or kept.  Default: shuffled, but for data.order "
          "CONTIGUOUS.");
ABSL_FLAG(int, seed, 1, "Seed of all random numbers.");
ABSL_FLAG(std::string, shard_bytes, "256M", "Bytes of a shard, about.");
ABSL_FLAG(int, threads, 0, "Threads, each of which packs or reads a shard.  0: cores.");
ABSL_FLAG(bool, verify, false, "Read all shards of --out, and compare every checksum.");

namespace gyre {
namespace {

constexpr char kUsage[] =
    "packs a trainer's data in shards, for disks that seek slowly.\n"
    "\n"
    "  make_records --trainer=models/photos/trainer.textproto --out=runs/records\n"
    "  make_records --verify --out=runs/records\n"
    "\n"
    "Writes DIR/train-00000-of-00012.rec and, of data.test or data.split, DIR/test-\n"
    "shards. Pictures are packed as their files are. A trainer reads shards by\n"
    "  data { train { records { file: \"runs/records/train-*.rec\" window: 10000 } } }\n"
    "Each is decoded once: one that is damaged is named, and ends the packing beyond\n"
    "data.max_bad_samples.\n"
    "If interrupted, the same command continues, and keeps whole shards of the same\n"
    "data: by all names and labels, and by the content of 1,000 pictures. Shards of\n"
    "an earlier packing in DIR are removed in the end.\n"
    "Exit codes: 0 done, 1 failed, or a shard is damaged or missing, 2 wrong flags.";

const std::vector<FlagGroup> kGroups = {
    {"Flags",
     {"trainer", "set", "out", "raw", "order", "seed", "shard_bytes", "threads", "verify"}},
};

int Threads() {
  const int threads = absl::GetFlag(FLAGS_threads);
  return threads > 0 ? threads : Cores();
}

absl::Status Verify(const std::string& folder) {
  ASSIGN_OR_RETURN(const VerifiedRecords verified, VerifyRecords(folder, Threads()));
  for (const std::string& set : verified.sets) std::printf("%s\n", set.c_str());
  if (verified.faults.empty()) return absl::OkStatus();
  constexpr size_t kTold = 20;
  for (size_t i = 0; i < std::min(kTold, verified.faults.size()); ++i) {
    std::fprintf(stderr, "%s\n", verified.faults[i].c_str());
  }
  return absl::DataLossError(absl::StrCat(
      folder, ": ", Counted(static_cast<int64_t>(verified.faults.size()), "fault"),
      verified.faults.size() > kTold ? absl::StrCat(", of which ", kTold, " are told") : "",
      "; make_records makes again what is removed"));
}

// Removes shards that an earlier packing has left.
absl::Status RemoveOthers(const std::string& folder, const std::set<std::string>& packed) {
  ASSIGN_OR_RETURN(const Listing listing, List(folder, {".rec"}));
  constexpr char kNumbers[] = "*-[0-9][0-9][0-9][0-9][0-9]-of-[0-9][0-9][0-9][0-9][0-9].rec";
  int64_t removed = 0;
  for (const std::string& path : listing.paths) {
    const std::string name = std::filesystem::path(path).filename().string();
    const bool ours = name.starts_with("train-") || name.starts_with("test-");
    if (packed.contains(name) || !ours || fnmatch(kNumbers, name.c_str(), 0) != 0) continue;
    std::error_code error;
    std::filesystem::remove(path, error);
    if (error) return absl::InternalError(absl::StrCat("cannot remove ", path));
    ++removed;
  }
  if (removed > 0) {
    std::printf("removed %s of an earlier packing\n", Counted(removed, "shard").c_str());
  }
  return absl::OkStatus();
}

absl::StatusOr<PackOptions> Options(const DataConfig& data) {
  PackOptions options{.folder = absl::GetFlag(FLAGS_out),
                      .raw = absl::GetFlag(FLAGS_raw),
                      .seed = static_cast<uint64_t>(absl::GetFlag(FLAGS_seed)),
                      .threads = Threads(),
                      .most_pixels = data.train().images().most_pixels(),
                      .max_bad_samples = data.max_bad_samples(),
                      .label_input = data.label_input()};
  ASSIGN_OR_RETURN(options.shard_bytes,
                   ParseBytes("--shard_bytes", absl::GetFlag(FLAGS_shard_bytes)));
  RETURN_IF_ERROR(
      CheckValue(options.shard_bytes > 0, "shard_bytes", absl::GetFlag(FLAGS_shard_bytes), "1M"));
  const std::string order = absl::GetFlag(FLAGS_order);
  RETURN_IF_ERROR(CheckValue(order.empty() || order == "shuffled" || order == "kept", "order",
                             order, "shuffled or kept"));
  options.shuffled = order.empty() ? data.order() != DataConfig::CONTIGUOUS : order == "shuffled";
  return options;
}

absl::Status Pack(const std::string& folder) {
  ASSIGN_OR_RETURN(ConfigFiles files,
                   ReadFiles(absl::GetFlag(FLAGS_trainer), SplitSet(absl::GetFlag(FLAGS_set)),
                             /*device=*/"", {}, /*ranks=*/1));
  // Samples are packed before they are normalized.
  files.trainer.message->mutable_data()->clear_normalization();
  const DataConfig& config = files.trainer.message->data();
  ASSIGN_OR_RETURN(PackOptions options, Options(config));
  ASSIGN_OR_RETURN(const RunData data, OpenData(files.trainer, files.net, /*train=*/true));
  RETURN_IF_ERROR(MakeFolder(folder));
  ASSIGN_OR_RETURN(const FolderLock lock, FolderLock::Take(folder));
  RETURN_IF_ERROR(RemoveTemporaries(folder));
  std::set<std::string> packed;
  for (const auto& [name, dataset] :
       {std::pair("train", data.train), std::pair("test", data.test)}) {
    if (!dataset) continue;
    if (dataset == data.test) options.shuffled = false;
    ASSIGN_OR_RETURN(const RecordSet set, PlanRecords(*dataset, name, options));
    int64_t kept = 0;
    {
      Progress progress(absl::StrCat(name, ": packed"), set.samples());
      ASSIGN_OR_RETURN(kept, PackRecords(*dataset, set, options, progress));
      std::printf("%s: %s in %s, %d of them kept, %.1f MB in %.1f s\n", name,
                  Counted(set.samples(), "sample").c_str(), Counted(set.shards(), "shard").c_str(),
                  static_cast<int>(kept), static_cast<double>(progress.bytes()) / 1e6,
                  progress.seconds());
    }
    for (int64_t i = 0; i < set.shards(); ++i) packed.insert(ShardName(set, i));
  }
  return RemoveOthers(folder, packed);
}

int Main(int argc, char** argv) {
  ParseFlags(argc, argv, kUsage, kGroups);
  const std::string folder = absl::GetFlag(FLAGS_out);
  absl::Status status = CheckLeast(0, {FLAGS_seed});
  status.Update(CheckThreads(absl::GetFlag(FLAGS_threads)));
  if (status.ok() && folder.empty()) {
    status = absl::InvalidArgumentError("--out is missing; see --help");
  }
  if (status.ok() && absl::GetFlag(FLAGS_verify) && !absl::GetFlag(FLAGS_trainer).empty()) {
    status = absl::InvalidArgumentError("--verify reads what is there; leave --trainer out");
  }
  if (status.ok()) status = absl::GetFlag(FLAGS_verify) ? Verify(folder) : Pack(folder);
  if (!status.ok()) Fail(nullptr, status);
  return FinishOutput(0);
}

}  // namespace
}  // namespace gyre

int main(int argc, char** argv) { return gyre::Main(argc, argv); }
