#include "engine/training/checkpoint/checkpoint.h"

#include <fcntl.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <filesystem>
#include <limits>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "engine/data/files/atomic_file.h"
#include "engine/data/files/file_reader.h"
#include "engine/runtime/check.h"
#include "models/schema/near_file.h"

namespace gyre {
namespace {

namespace fs = std::filesystem;

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

// Of a file that a checkpoint names: whatever is wrong with it, the checkpoint is broken.
absl::Status AsBroken(const fs::path& path, const absl::Status& status) {
  if (absl::IsNotFound(status)) return Broken(path, "missing");
  // A pipe or a folder in its place.
  const bool no_file = absl::IsInvalidArgument(status) || absl::IsFailedPrecondition(status);
  return no_file ? absl::DataLossError(status.message()) : status;
}

// The step that a folder's name states; none: it is not named by a step.
std::optional<int64_t> StepNamed(const fs::path& folder) {
  const std::string name = folder.filename().string();
  int64_t step = 0;
  if (!name.starts_with(kStepPrefix)) return std::nullopt;
  if (!absl::SimpleAtoi(name.substr(sizeof(kStepPrefix) - 1), &step)) return std::nullopt;
  return step;
}

std::string NameOfStep(int64_t step) { return absl::StrFormat("%s%08d", kStepPrefix, step); }

// Errors: DataLoss for numbers that no run can have, and for those of another step than the folder
// is named by.
absl::Status CheckState(const fs::path& folder, const CheckpointState& state) {
  const fs::path path = folder / kStateFile;
  if (state.step() < 0 || state.position() < 0 || state.position() > kMostSamples) {
    return Broken(path,
                  absl::StrFormat("step %d after %d samples", state.step(), state.position()));
  }
  const CheckpointState::LossScale& scale = state.loss_scale();
  if (state.has_loss_scale() &&
      (!(scale.scale() > 0 && std::isfinite(scale.scale())) || scale.good_steps() < 0 ||
       scale.skipped() < 0 || scale.skipped() > state.step())) {
    return Broken(
        path, absl::StrFormat("a loss scale of %g after %d good steps, %d of %d steps skipped",
                              scale.scale(), scale.good_steps(), scale.skipped(), state.step()));
  }
  const fs::path itself = folder.has_filename() ? folder : folder.parent_path();
  const std::optional<int64_t> named = StepNamed(itself);
  if (!named || *named == state.step()) return absl::OkStatus();
  return Broken(itself, absl::StrFormat("the name says step %d, but the checkpoint in it is of "
                                        "step %d; rename the folder to %s",
                                        *named, state.step(), NameOfStep(state.step())));
}

struct StateFile {
  CheckpointFile file;
  CheckpointState state;
};

// Reads state.pb and checks what it holds, the sum over the state first.
absl::StatusOr<StateFile> ReadState(const fs::path& folder) {
  const fs::path path = folder / kStateFile;
  absl::StatusOr<std::string> bytes = ReadFile(path, kMostStateBytes);
  if (!bytes.ok()) return AsBroken(path, bytes.status());
  StateFile read;
  CheckpointFile& file = read.file;
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
  if (!read.state.ParseFromString(file.state())) return Broken(path, "the state does not parse");
  RETURN_IF_ERROR(CheckState(folder, read.state));
  return read;
}

// The path of a file that state.pb must have the sum of.
absl::StatusOr<std::string> CheckNamed(const fs::path& folder, const std::string& name,
                                       const CheckpointFile& sums) {
  const auto sum = sums.crc32_of_file().find(name);
  if (sum == sums.crc32_of_file().end()) {
    return Broken(folder / kStateFile, absl::StrCat("no crc32 of ", name));
  }
  RETURN_IF_ERROR(CheckFile(folder / name, sum->second));
  return folder / name;
}

// Likewise those of all shards of a file, or of the first `most` of them.
absl::StatusOr<std::vector<std::string>> CheckParts(const fs::path& folder, const std::string& file,
                                                    const CheckpointFile& sums,
                                                    int most = std::numeric_limits<int>::max()) {
  const auto parts =
      static_cast<int>(std::ranges::count_if(sums.crc32_of_file(), [&](const auto& name_and_sum) {
        return absl::StartsWith(name_and_sum.first, file);
      }));
  std::vector<std::string> paths;
  for (int part = 0; part < std::min(parts, most); ++part) {
    ASSIGN_OR_RETURN(paths.emplace_back(), CheckNamed(folder, ShardName(file, part, parts), sums));
  }
  return paths;
}

// The step_ folders below `folder`, newest first; none if there is no such folder.
using StepFolders = std::multimap<int64_t, fs::path, std::greater<>>;
absl::StatusOr<StepFolders> ListSteps(const std::string& folder) {
  StepFolders steps;
  std::error_code error;
  fs::directory_iterator entry(folder, error);
  if (error == std::errc::no_such_file_or_directory || error == std::errc::not_a_directory) {
    return steps;
  }
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    if (const auto step = StepNamed(entry->path())) steps.emplace(*step, entry->path());
  }
  if (error) return absl::ErrnoToStatus(error.value(), absl::StrCat("cannot list ", folder));
  return steps;
}

}  // namespace

absl::StatusOr<std::map<std::string, uint32_t>> ChecksumsOf(const std::string& path) {
  ASSIGN_OR_RETURN(const StateFile read, ReadState(path));
  const auto& sums = read.file.crc32_of_file();
  return std::map<std::string, uint32_t>(sums.begin(), sums.end());
}

absl::StatusOr<CheckpointState> StateOf(const std::string& path) {
  ASSIGN_OR_RETURN(StateFile read, ReadState(path));
  return std::move(read.state);
}

std::optional<CheckpointState> NewestStateOf(const std::string& folder) {
  for (const auto& [step, path] : ListSteps(folder).value_or(StepFolders())) {
    auto state = StateOf(path);
    if (state.ok()) return *std::move(state);
  }
  return std::nullopt;
}

absl::Status CheckFile(const std::string& path, uint32_t crc32) {
  // The length that its header states first: a sparse file would be summed for hours.
  if (const absl::Status sizes = TensorFiles::Open({path}).status(); !sizes.ok()) {
    return AsBroken(path, sizes);
  }
  ASSIGN_OR_RETURN(const uint32_t got, Crc32OfFile(path));
  if (got == crc32) return absl::OkStatus();
  return Broken(path, absl::StrFormat("the file has crc32 %08x, expected %08x", got, crc32));
}

std::string ShardName(const std::string& file, int part, int parts) {
  if (parts == 1) return absl::StrCat(file, ".safetensors");
  return absl::StrFormat("%s-%05d-of-%05d.safetensors", file, part + 1, parts);
}

CheckpointStore::CheckpointStore(std::string folder, std::string token)
    : folder_(std::move(folder)),
      token_(token.empty() ? std::to_string(getpid()) : std::move(token)) {}

// Each folder that it makes is an entry on the disk of the one that holds it.
absl::Status CheckpointStore::MakeFolder() {
  std::error_code error;
  const fs::path path = fs::absolute(folder_, error);
  std::vector<fs::path> holders;
  for (fs::path made = path; !fs::exists(made, error) && made.has_relative_path();) {
    holders.push_back(made = made.parent_path());
  }
  fs::create_directories(path, error);
  if (error) return absl::ErrnoToStatus(error.value(), absl::StrCat("cannot create ", folder_));
  for (const fs::path& holder : holders) {
    const int fd = open(holder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const bool synced = fd >= 0 && fsync(fd) == 0;
    const int why = errno;
    if (fd >= 0) close(fd);
    if (!synced) return absl::ErrnoToStatus(why, absl::StrCat("cannot sync ", holder.string()));
  }
  return absl::OkStatus();
}

absl::Status CheckpointStore::CheckMakeable() const {
  std::error_code error;
  fs::path nearest = fs::absolute(folder_, error);
  while (!fs::exists(nearest, error) && nearest.has_relative_path()) {
    nearest = nearest.parent_path();
  }
  const int why = !fs::is_directory(nearest, error)           ? ENOTDIR
                  : access(nearest.c_str(), W_OK | X_OK) != 0 ? errno
                                                              : 0;
  if (why == 0) return absl::OkStatus();
  const bool there = fs::exists(folder_, error);
  return absl::ErrnoToStatus(why,
                             absl::StrCat(there ? "cannot write in " : "cannot create ", folder_));
}

absl::Status CheckpointStore::ProbeWritable() {
  RETURN_IF_ERROR(MakeFolder());
  const fs::path probe = fs::path(folder_) / ".probe";
  RETURN_IF_ERROR(WriteFileAtomically(probe, "probe"));
  std::error_code error;
  fs::remove(probe, error);
  if (error) {
    return absl::ErrnoToStatus(error.value(), absl::StrCat("cannot remove ", probe.string()));
  }
  return absl::OkStatus();
}

std::string CheckpointStore::PathOf(int64_t step) const {
  GYRE_CHECK(step >= 0);
  return fs::path(folder_) / NameOfStep(step);
}

absl::StatusOr<uint32_t> CheckpointStore::Write(int64_t step, const std::string& name,
                                                std::span<const NamedTensor> tensors) {
  RETURN_IF_ERROR(MakeFolder());
  ASSIGN_OR_RETURN(const std::string staged, StageFolder(PathOf(step), token_));
  uint32_t crc32 = 0;
  RETURN_IF_ERROR(WriteSafetensors(absl::StrCat(staged, "/", name), tensors, {}, &crc32));
  return crc32;
}

absl::StatusOr<std::map<std::string, uint32_t>> CheckpointStore::Written(
    int64_t step, const std::vector<std::string>& names) const {
  std::map<std::string, uint32_t> crc32s;
  ASSIGN_OR_RETURN(const fs::path staged, StageFolder(PathOf(step), token_));
  std::error_code error;
  for (const std::string& name : names) {
    if (!fs::exists(staged / name, error)) return crc32s;
  }
  for (const std::string& name : names) {
    ASSIGN_OR_RETURN(crc32s[name], Crc32ByHeader(staged / name));
  }
  return crc32s;
}

absl::Status CheckpointStore::Publish(const CheckpointState& state,
                                      const std::map<std::string, uint32_t>& crc32_of_file) {
  const std::string path = PathOf(state.step());
  ASSIGN_OR_RETURN(const fs::path staged, StageFolder(path, token_));
  for (const auto& [name, crc32] : crc32_of_file) {
    std::error_code error;
    if (fs::exists(staged / name, error)) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        path, ": ", name, " has been written, and is not there: its writer has another ", folder_,
        "; all hosts must share the file system of --out"));
  }
  RETURN_IF_ERROR(WriteState(state, crc32_of_file));
  return PublishWritten(state.step());
}

absl::Status CheckpointStore::WriteState(const CheckpointState& state,
                                         const std::map<std::string, uint32_t>& crc32_of_file) {
  CheckpointFile file;
  file.set_state(Serialize(state));
  file.set_state_sha256(Sha256(file.state()));
  file.mutable_crc32_of_file()->insert(crc32_of_file.begin(), crc32_of_file.end());
  ASSIGN_OR_RETURN(const fs::path staged, StageFolder(PathOf(state.step()), token_));
  return WriteFileAtomically(staged / kStateFile, Serialize(file));
}

absl::Status CheckpointStore::PublishWritten(int64_t step) {
  ASSIGN_OR_RETURN(const std::string staged, StageFolder(PathOf(step), token_));
  return PublishFolder(staged, PathOf(step));
}

absl::Status CheckpointStore::AppendWritten(int64_t step, const std::string& name,
                                            std::string& bytes) const {
  ASSIGN_OR_RETURN(const std::string staged, StageFolder(PathOf(step), token_));
  ASSIGN_OR_RETURN(FileReader file, FileReader::Open(absl::StrCat(staged, "/", name)));
  RETURN_IF_ERROR(CheckFitsMemory(file.path(), bytes.size() + file.size()));
  const size_t before = bytes.size();
  bytes.resize(before + file.size());
  ASSIGN_OR_RETURN(const size_t read, file.Read(bytes.data() + before, file.size()));
  if (read == file.size()) return absl::OkStatus();
  return Broken(file.path(), absl::StrCat("ends after ", read, " bytes of ", file.size()));
}

absl::Status CheckpointStore::WriteCopy(int64_t step, const std::string& name,
                                        std::string_view bytes, uint32_t crc32) {
  RETURN_IF_ERROR(MakeFolder());
  ASSIGN_OR_RETURN(const fs::path staged, StageFolder(PathOf(step), token_));
  if (const uint32_t got = Crc32(bytes); got != crc32) {
    return Broken(staged / name,
                  absl::StrFormat("has come with crc32 %08x, expected %08x", got, crc32));
  }
  return WriteFileAtomically(staged / name, bytes);
}

void CheckpointStore::Discard(int64_t step) {
  const absl::StatusOr<std::string> staged = StageFolder(PathOf(step), token_);
  std::error_code harmless;
  if (staged.ok()) fs::remove_all(*staged, harmless);
}

absl::Status CheckpointStore::DeleteOlder(int64_t step, int64_t keep) {
  GYRE_CHECK(keep >= 1);
  // Newer ones are another timeline's, left behind when a run went on from an older checkpoint:
  // they neither count nor go.
  ASSIGN_OR_RETURN(const StepFolders steps, ListSteps(folder_));
  int64_t kept = 0;
  for (const auto& [old, path] : steps) {
    if (old > step || kept++ < keep) continue;
    RETURN_IF_ERROR(RemoveFolderAtomically(path));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> CheckpointStore::Names() const {
  ASSIGN_OR_RETURN(const StepFolders steps, ListSteps(folder_));
  std::vector<std::string> names;
  for (const auto& [step, path] : steps) names.push_back(path.filename());
  return names;
}

absl::StatusOr<int64_t> CheckpointStore::NewestStep() const {
  ASSIGN_OR_RETURN(const StepFolders steps, ListSteps(folder_));
  return steps.empty() ? -1 : steps.begin()->first;
}

absl::StatusOr<Checkpoint> CheckpointStore::LoadLatest(std::vector<std::string>* skipped,
                                                       CheckpointNeed need) const {
  ASSIGN_OR_RETURN(const StepFolders steps, ListSteps(folder_));
  if (steps.empty()) return absl::NotFoundError(absl::StrCat("no checkpoint in ", folder_));
  absl::Status newest;
  for (const auto& [step, path] : steps) {
    absl::StatusOr<Checkpoint> checkpoint = LoadCheckpoint(path, need);
    if (checkpoint.ok()) return checkpoint;
    if (newest.ok()) newest = checkpoint.status();
    if (skipped != nullptr) skipped->emplace_back(checkpoint.status().message());
  }
  const std::string all = steps.size() == 1
                              ? absl::StrCat("the only checkpoint in ", folder_, " is broken: ")
                              : absl::StrCat("each of the ", steps.size(), " checkpoints in ",
                                             folder_, " is broken; the newest: ");
  return absl::DataLossError(absl::StrCat(all, newest.message()));
}

std::string OtherCheckpoints(const std::string& given) {
  fs::path path = given;
  if (!path.has_filename()) path = path.parent_path();
  // A run's folder is taken for a checkpoint's, or the step is mistyped.
  for (const fs::path& folder : {path / "checkpoints", path, path.parent_path()}) {
    auto names = CheckpointStore(folder.empty() ? "." : folder.string()).Names();
    if (!names.ok()) continue;
    std::erase(*names, path.filename().string());
    if (names->size() > 3) names->resize(3);
    if (names->empty()) continue;
    return absl::StrCat("in ", folder.string(), " there are ", absl::StrJoin(*names, ", "),
                        "; give one of them");
  }
  if (const std::string near = NearPath(given); !near.empty()) {
    return absl::StrCat("did you mean ", near, "?");
  }
  return "give latest (the newest of --out), auto (that, or a new run), or a checkpoint's folder, "
         "such as runs/a/checkpoints/step_00000200";
}

absl::StatusOr<Checkpoint> LoadCheckpoint(const std::string& path, CheckpointNeed need) {
  std::error_code error;
  if (!fs::is_directory(path, error)) {
    return absl::NotFoundError(absl::StrCat("no checkpoint folder ", path));
  }
  ASSIGN_OR_RETURN(StateFile read, ReadState(path));
  Checkpoint checkpoint;
  checkpoint.path = path;
  checkpoint.state = std::move(read.state);
  const CheckpointFile& file = read.file;
  ASSIGN_OR_RETURN(const std::string weights, CheckNamed(path, kWeightsFile, file));
  ASSIGN_OR_RETURN(checkpoint.weights, TensorFile::Read(weights));
  if (need == CheckpointNeed::kWeights) return checkpoint;
  if (need == CheckpointNeed::kAverages) {
    if (!checkpoint.state.averages()) return checkpoint;
    ASSIGN_OR_RETURN(const auto averages, CheckParts(path, kOptimizerFile, file, /*most=*/1));
    ASSIGN_OR_RETURN(checkpoint.optimizer, TensorFiles::Open(averages));
    return checkpoint;
  }
  ASSIGN_OR_RETURN(const auto optimizer, CheckParts(path, kOptimizerFile, file));
  ASSIGN_OR_RETURN(const auto carried, CheckParts(path, kCarriedFile, file));
  const size_t sums = file.crc32_of_file().size();
  if (optimizer.empty() || sums != 1 + optimizer.size() + carried.size()) {
    return Broken(fs::path(path) / kStateFile,
                  absl::StrFormat("has crc32 of %d files, of which %d are the optimizer's and %d "
                                  "of what is carried",
                                  sums, optimizer.size(), carried.size()));
  }
  ASSIGN_OR_RETURN(checkpoint.optimizer, TensorFiles::Open(optimizer));
  ASSIGN_OR_RETURN(checkpoint.carried, TensorFiles::Open(carried));
  return checkpoint;
}

}  // namespace gyre
