#include "engine/training/checkpoint.h"

#include <fcntl.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/data/atomic_file.h"
#include "engine/runtime/check.h"

namespace gyre {
namespace {

namespace fs = std::filesystem;

constexpr char kWeights[] = "weights.safetensors";
constexpr char kOptimizer[] = "optimizer.safetensors";
constexpr char kState[] = "state.pb";
constexpr char kStepPrefix[] = "step_";
// Far beyond any run; positions from here on cannot overflow.
constexpr int64_t kMostSamples = int64_t{1} << 56;
// Two texts of 64 MiB, which is all that a model's file may have, and the little beside them.
constexpr uint64_t kMostStateBytes = uint64_t{256} << 20;

absl::Status Broken(const fs::path& path, const std::string& what) {
  return absl::DataLossError(absl::StrCat(path.string(), ": ", what));
}

// Maps in key order, so that equal states make equal files.
std::string Serialize(const google::protobuf::MessageLite& message) {
  std::string bytes;
  google::protobuf::io::StringOutputStream stream(&bytes);
  google::protobuf::io::CodedOutputStream coded(&stream);
  coded.SetSerializationDeterministic(true);
  GYRE_CHECK(message.SerializeToCodedStream(&coded));
  coded.Trim();
  return bytes;
}

absl::Status WriteFiles(const fs::path& folder, const CheckpointState& state,
                        std::span<const NamedTensor> weights,
                        std::span<const NamedTensor> optimizer) {
  CheckpointFile file;
  file.set_state(Serialize(state));
  file.set_state_sha256(Sha256(file.state()));
  for (const auto& [name, tensors] : {std::pair(kWeights, weights), {kOptimizer, optimizer}}) {
    uint32_t crc32 = 0;
    RETURN_IF_ERROR(WriteSafetensors(folder / name, tensors, {}, &crc32));
    (*file.mutable_crc32_of_file())[name] = crc32;
  }
  return WriteFileAtomically(folder / kState,
                             [&](const FileSink& sink) { return sink(Serialize(file)); });
}

// Reads state.pb and checks the sum over the state it holds.
absl::StatusOr<CheckpointFile> ReadState(const fs::path& folder) {
  const fs::path path = folder / kState;
  absl::StatusOr<std::string> bytes = ReadFile(path, kMostStateBytes);
  if (absl::IsNotFound(bytes.status())) return Broken(path, "missing");
  if (!bytes.ok()) return bytes.status();
  CheckpointFile file;
  if (!file.ParseFromString(*bytes)) return Broken(path, "not a checkpoint's state");
  // Without unknown fields.  Not by DiscardUnknownFields: the system's protobuf lays maps out in
  // another way than headers compiled for ThreadSanitizer do.
  CheckpointFile known;
  known.set_state(file.state());
  known.set_state_sha256(file.state_sha256());
  *known.mutable_crc32_of_file() = file.crc32_of_file();
  if (known.ByteSizeLong() != bytes->size()) {
    return Broken(path, absl::StrCat("has ", bytes->size(), " bytes, of which ",
                                     known.ByteSizeLong(), " are a checkpoint's state"));
  }
  const std::string got = Sha256(file.state());
  if (file.state_sha256() != got) {
    return Broken(path,
                  absl::StrCat("the state has sha256 ", got, ", expected ", file.state_sha256()));
  }
  return file;
}

// Checks a tensor file against the sum that state.pb holds, and reads it.
absl::StatusOr<TensorFile> ReadTensors(const fs::path& folder, const char* name,
                                       const CheckpointFile& file) {
  const fs::path path = folder / name;
  const auto expected = file.crc32_of_file().find(name);
  if (expected == file.crc32_of_file().end()) {
    return Broken(folder / kState, absl::StrCat("no crc32 of ", name));
  }
  absl::StatusOr<uint32_t> got = Crc32OfFile(path);
  if (absl::IsNotFound(got.status())) return Broken(path, "missing");
  if (!got.ok()) return got.status();
  if (*got != expected->second) {
    return Broken(
        path, absl::StrFormat("the file has crc32 %08x, expected %08x", *got, expected->second));
  }
  return TensorFile::Read(path);
}

struct StepFolder {
  int64_t step;
  fs::path path;
};

// The step_ folders below `folder`, newest first; none if there is no such folder.
absl::StatusOr<std::vector<StepFolder>> ListSteps(const std::string& folder) {
  std::vector<StepFolder> steps;
  std::error_code error;
  fs::directory_iterator entry(folder, error);
  if (error == std::errc::no_such_file_or_directory || error == std::errc::not_a_directory) {
    return steps;
  }
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    int64_t step = 0;
    if (name.starts_with(kStepPrefix) &&
        absl::SimpleAtoi(name.substr(sizeof(kStepPrefix) - 1), &step)) {
      steps.push_back({step, entry->path()});
    }
  }
  if (error) return absl::ErrnoToStatus(error.value(), absl::StrCat("cannot list ", folder));
  std::sort(steps.begin(), steps.end(),
            [](const StepFolder& a, const StepFolder& b) { return a.step > b.step; });
  return steps;
}

// Makes the folder and those above it, each an entry on the disk of the one that holds it.
absl::Status MakeFolders(const std::string& folder) {
  std::error_code error;
  const fs::path path = fs::absolute(folder, error);
  std::vector<fs::path> holders;
  for (fs::path made = path; !fs::exists(made, error) && made.has_relative_path();) {
    holders.push_back(made = made.parent_path());
  }
  fs::create_directories(path, error);
  if (error) return absl::ErrnoToStatus(error.value(), absl::StrCat("cannot create ", folder));
  for (const fs::path& holder : holders) {
    const int fd = open(holder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const bool synced = fd >= 0 && fsync(fd) == 0;
    const int why = errno;
    if (fd >= 0) close(fd);
    if (!synced) return absl::ErrnoToStatus(why, absl::StrCat("cannot sync ", holder.string()));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckpointStore::ProbeWritable() {
  RETURN_IF_ERROR(MakeFolders(folder_));
  const fs::path probe = fs::path(folder_) / ".probe";
  RETURN_IF_ERROR(WriteFileAtomically(probe, [](const FileSink& sink) { return sink("probe"); }));
  std::error_code error;
  fs::remove(probe, error);
  if (error) {
    return absl::ErrnoToStatus(error.value(), absl::StrCat("cannot remove ", probe.string()));
  }
  return absl::OkStatus();
}

absl::Status CheckpointStore::Save(const CheckpointState& state,
                                   std::span<const NamedTensor> weights,
                                   std::span<const NamedTensor> optimizer) {
  GYRE_CHECK(state.step() >= 0);
  RETURN_IF_ERROR(MakeFolders(folder_));
  RemoveTemporaries(folder_).IgnoreError();  // of dead writers: where they stay they harm nobody
  const fs::path path = fs::path(folder_) / absl::StrFormat("%s%08d", kStepPrefix, state.step());
  return WriteFolderAtomically(path, [&](const std::string& temporary) {
    return WriteFiles(temporary, state, weights, optimizer);
  });
}

absl::Status CheckpointStore::DeleteOlder(int64_t step, int64_t keep) {
  GYRE_CHECK(keep >= 1);
  // Newer ones are another timeline's, left behind when a run went on from an older checkpoint:
  // they neither count nor go.
  ASSIGN_OR_RETURN(const std::vector<StepFolder> steps, ListSteps(folder_));
  int64_t kept = 0;
  for (const StepFolder& old : steps) {
    if (old.step > step || kept++ < keep) continue;
    RETURN_IF_ERROR(RemoveFolderAtomically(old.path));
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> CheckpointStore::NewestStep() const {
  ASSIGN_OR_RETURN(const std::vector<StepFolder> steps, ListSteps(folder_));
  return steps.empty() ? -1 : steps.front().step;
}

absl::StatusOr<Checkpoint> CheckpointStore::LoadLatest(std::vector<std::string>* skipped) const {
  ASSIGN_OR_RETURN(const std::vector<StepFolder> steps, ListSteps(folder_));
  if (steps.empty()) return absl::NotFoundError(absl::StrCat("no checkpoint in ", folder_));
  absl::Status newest;
  for (const StepFolder& step : steps) {
    absl::StatusOr<Checkpoint> checkpoint = LoadCheckpoint(step.path);
    if (checkpoint.ok()) return checkpoint;
    if (newest.ok()) newest = checkpoint.status();
    if (skipped != nullptr) skipped->emplace_back(checkpoint.status().message());
  }
  return absl::DataLossError(absl::StrCat("each of the ", steps.size(), " checkpoints in ", folder_,
                                          " is broken; the newest: ", newest.message()));
}

absl::StatusOr<Checkpoint> LoadCheckpoint(const std::string& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) {
    return absl::NotFoundError(absl::StrCat("no checkpoint folder ", path));
  }
  ASSIGN_OR_RETURN(const CheckpointFile file, ReadState(path));
  Checkpoint checkpoint;
  checkpoint.path = path;
  if (!checkpoint.state.ParseFromString(file.state())) {
    return Broken(fs::path(path) / kState, "the state does not parse");
  }
  const CheckpointState& state = checkpoint.state;
  if (state.step() < 0 || state.position() < 0 || state.position() > kMostSamples) {
    return Broken(fs::path(path) / kState,
                  absl::StrFormat("step %d after %d samples", state.step(), state.position()));
  }
  ASSIGN_OR_RETURN(checkpoint.weights, ReadTensors(path, kWeights, file));
  ASSIGN_OR_RETURN(checkpoint.optimizer, ReadTensors(path, kOptimizer, file));
  return checkpoint;
}

}  // namespace gyre
