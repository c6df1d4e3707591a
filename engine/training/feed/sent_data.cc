#include "engine/training/feed/sent_data.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "engine/data/files/file_reader.h"
#include "engine/data/files/private_folder.h"
#include "engine/data/files/text_file.h"
#include "engine/data/sets/tables/table_reader.h"
#include "engine/runtime/check.h"
#include "engine/training/checkpoint/checkpoint_folders.h"
#include "engine/training/feed/sent_data.pb.h"

namespace gyre {
namespace {

namespace fs = std::filesystem;

// How many folders above its own a path begins, -1 if a copy would not find it.
int64_t Climb(const fs::path& path) {
  int64_t up = 0;
  bool down = false;
  for (const fs::path& part : path) {
    if (part == "..") {
      ++up;
      if (down) return -1;
    } else if (part != ".") {
      down = true;
    }
  }
  return path.is_absolute() ? -1 : up;
}

// The files of what rank 0 has read, and their bytes one after another.
class FilesToSend {
 public:
  // path: as in the trainer's file; there: where it is.
  absl::Status Add(const std::string& path, const fs::path& there) {
    if (sent_.place().contains(path)) return absl::OkStatus();
    const fs::path place = fs::path(absl::StrCat(sent_.place_size())) / there.filename();
    (*sent_.mutable_place())[path] = place.string();
    std::error_code error;
    if (!fs::is_directory(there, error)) {
      // The files of a pattern keep their names, so that it means them there, too.
      ASSIGN_OR_RETURN(const std::vector<std::string> files, FilesOf(there.string()));
      for (const std::string& file : files) {
        const fs::path name = fs::path(file).filename();
        RETURN_IF_ERROR(AddFile(file, place.parent_path() / name));
      }
      return absl::OkStatus();
    }
    std::vector<fs::path> within;
    for (auto entry = fs::recursive_directory_iterator(
             there, fs::directory_options::follow_directory_symlink, error);
         !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
      std::error_code unreadable;  // as of a link to itself
      if (entry->is_regular_file(unreadable)) within.push_back(entry->path());
    }
    if (error) return absl::InternalError(absl::StrCat(there.string(), ": ", error.message()));
    std::ranges::sort(within);
    for (const fs::path& file : within) {
      RETURN_IF_ERROR(AddFile(file, place / file.lexically_relative(there)));
    }
    return absl::OkStatus();
  }

  // Likewise a list of pictures, with the files that it names.
  absl::Status AddList(const std::string& path, const std::string& there, bool masks) {
    if (sent_.place().contains(path)) return absl::OkStatus();
    ASSIGN_OR_RETURN(const SentList list, PlaceList(there, masks));
    const fs::path folder = absl::StrCat(sent_.place_size());
    (*sent_.mutable_place())[path] = (folder / list.list).string();
    RETURN_IF_ERROR(AddFile(there, folder / list.list));
    for (const SentList::ListedFile& file : list.files) {
      RETURN_IF_ERROR(AddFile(file.from, folder / file.to));
    }
    return absl::OkStatus();
  }

  const SentFiles& sent() const { return sent_; }

  // The bytes that follow.
  absl::Status Read(std::string& into) {
    for (size_t at = 0; at < into.size();) {
      if (!reader_) {
        ASSIGN_OR_RETURN(FileReader reader, FileReader::Open(paths_[next_]));
        reader_.emplace(std::move(reader));
        left_ = sent_.file(static_cast<int>(next_++)).bytes();
      }
      const size_t most = std::min<uint64_t>(left_, into.size() - at);
      RETURN_IF_ERROR(reader_->ReadAll(into.data() + at, most));
      at += most;
      left_ -= most;
      if (left_ == 0) reader_.reset();
    }
    return absl::OkStatus();
  }

 private:
  absl::Status AddFile(const fs::path& file, const fs::path& place) {
    ASSIGN_OR_RETURN(const FileReader reader, FileReader::Open(file));
    SentFiles::File& sent = *sent_.add_file();
    sent.set_path(place.string());
    sent.set_bytes(reader.size());
    paths_.push_back(file);
    return absl::OkStatus();
  }

  SentFiles sent_;
  std::vector<std::string> paths_;  // by sent_.file
  size_t next_ = 0;                 // of them
  std::optional<FileReader> reader_;
  uint64_t left_ = 0;  // of its file
};

// The lists of pictures that the data name, and whether they name masks.
std::map<std::string, bool> ListsOf(const DataConfig& data, const NetConfig& net) {
  std::map<std::string, bool> lists;
  for (const DataConfig& source : SourcesOf(data)) {
    const bool masks = std::ranges::any_of(net.input(), [&](const InputConfig& input) {
      return input.name() == source.label_input() && input.dims_size() > 1;
    });
    for (const DatasetConfig* set : {&source.train(), &source.test()}) {
      if (set->images().has_list()) lists[set->images().list()] |= masks;
    }
  }
  return lists;
}

// Of an error where data are put.
absl::Status Advised(const absl::Status& status) {
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat(status.message(),
                                                  "; TMPDIR says where data that "
                                                  "are sent are put"));
}

// The files of a folder, written from the bytes that arrive.
class ReceivedFiles {
 public:
  ReceivedFiles(const PrivateFolder& folder, const SentFiles& sent)
      : folder_(folder), sent_(sent) {}
  ~ReceivedFiles() {
    if (out_ >= 0) close(out_);
  }

  absl::Status Append(std::string_view bytes) {
    for (;;) {
      if (left_ == 0) {
        RETURN_IF_ERROR(Finish());
        if (next_ == sent_.file_size()) break;
        RETURN_IF_ERROR(Begin(sent_.file(next_++)));
        continue;
      }
      if (bytes.empty()) break;
      const size_t here = std::min<uint64_t>(left_, bytes.size());
      const ssize_t written = write(out_, bytes.data(), here);
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) return Failed();
      left_ -= static_cast<uint64_t>(written);
      bytes.remove_prefix(static_cast<size_t>(written));
    }
    return absl::OkStatus();
  }

 private:
  absl::Status Begin(const SentFiles::File& file) {
    path_ = (fs::path(folder_.path()) / file.path()).string();
    auto out = folder_.Create(file.path());
    if (!out.ok()) return Advised(out.status());
    out_ = *out;
    left_ = file.bytes();
    return absl::OkStatus();
  }
  absl::Status Finish() {
    const int out = std::exchange(out_, -1);
    return out < 0 || close(out) == 0 ? absl::OkStatus() : Failed();
  }
  absl::Status Failed() const { return Advised(absl::ErrnoToStatus(errno, path_)); }

  const PrivateFolder& folder_;
  const SentFiles& sent_;
  int next_ = 0;
  std::string path_;
  int out_ = -1;
  uint64_t left_ = 0;
};

// A private folder of this rank.  All ranks fail together, so that no folder is left.
absl::StatusOr<PrivateFolder> MakeFolder(ProcessGroup& communication, const std::string& token) {
  const char* const temporary = std::getenv("TMPDIR");
  auto own = PrivateFolder::Make(temporary == nullptr ? "/tmp" : temporary, "gyre_data", token);
  std::vector<double> failed(static_cast<size_t>(communication.size()));
  failed[static_cast<size_t>(communication.rank())] = own.ok() ? 0 : 1;
  RETURN_IF_ERROR(communication.Sum("folders of sent data", failed));
  RETURN_IF_ERROR(Advised(own.status()));
  const auto first = std::ranges::find(failed, 1.0);
  if (first == failed.end()) return own;
  return Advised(absl::FailedPreconditionError(absl::StrCat(
      "rank ", first - failed.begin(), " cannot make a folder such as ", own->path())));
}

}  // namespace

absl::StatusOr<SentList> PlaceList(const std::string& list, bool masks) {
  ASSIGN_OR_RETURN(const std::string text, ReadText(list));
  std::set<std::string, std::less<>> paths;
  int64_t most = 0;
  const auto read = [&](int64_t number, std::string_view line) -> absl::Status {
    for (int column = 0; column < (masks ? 2 : 1) && !line.empty(); ++column) {
      const std::string_view path = line.substr(0, line.find('\t'));
      line.remove_prefix(std::min(line.size(), path.size() + 1));
      const int64_t climb = Climb(path);
      if (climb < 0) {
        return absl::InvalidArgumentError(
            absl::StrCat(list, ":", number,
                         ": --send_data expects paths relative to the list, with \"..\" at most in "
                         "front, got ",
                         std::string(path)));
      }
      most = std::max(most, climb);
      if (path.find_first_not_of(" \t") != std::string_view::npos) paths.emplace(path);
    }
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(ForEachLine(text, read));
  fs::path folder;
  for (int64_t i = 0; i < most; ++i) folder /= "list";
  SentList sent{.list = (folder / fs::path(list).filename()).string()};
  const fs::path beside = fs::path(list).parent_path();
  for (const std::string& path : paths) {
    sent.files.push_back(
        {.from = (beside / path).string(), .to = (folder / path).lexically_normal().string()});
  }
  // One file by several names, such as a.png and ./a.png.
  std::ranges::sort(sent.files, {}, &SentList::ListedFile::to);
  const auto same = std::ranges::unique(sent.files, {}, &SentList::ListedFile::to);
  sent.files.erase(same.begin(), same.end());
  return sent;
}

absl::StatusOr<SentData> OpenSentData(const Parsed<TrainerConfig>& trainer,
                                      const Parsed<NetConfig>& net, const Fit& fit,
                                      ProcessGroup& communication, size_t memory_bytes) {
  SentData all;
  FilesToSend files;
  if (communication.rank() == 0) {
    std::map<std::string, std::string> read;
    const auto note = [&](const std::string& path, const std::string& there) {
      return read[path] = there;
    };
    ASSIGN_OR_RETURN(all.data, OpenData(trainer, net, /*train=*/true, fit, note, memory_bytes));
    const std::map<std::string, bool> lists = ListsOf(trainer.message->data(), *net.message);
    for (const auto& [path, there] : read) {
      const auto list = lists.find(path);
      RETURN_IF_ERROR(list == lists.end() ? files.Add(path, there)
                                          : files.AddList(path, there, list->second));
    }
  }
  ASSIGN_OR_RETURN(const std::string token,
                   communication.TextOfLeader("the name of folders of sent data",
                                              absl::StrCat(absl::ToUnixNanos(absl::Now()))));
  SentFiles sent;
  ASSIGN_OR_RETURN(
      const std::string listing,
      communication.TextOfLeader("the files of sent data", files.sent().SerializeAsString()));
  if (!sent.ParseFromString(listing)) return absl::InternalError("sent data: does not parse");
  ASSIGN_OR_RETURN(PrivateFolder own, MakeFolder(communication, token));
  const fs::path folder = own.path();
  ASSIGN_OR_RETURN(const CheckpointFolders folders,
                   CheckpointFolders::Meet(communication, folder, token));
  std::vector<int> chain;
  for (const std::vector<int>& ranks : folders.folders()) chain.push_back(ranks.front());
  const std::vector<int>& by_rank_0 = folders.folders().front();
  const bool has_none = std::ranges::find(by_rank_0, communication.rank()) == by_rank_0.end();
  all.folders = static_cast<int>(chain.size()) - 1;
  all.files = sent.file_size();
  for (const SentFiles::File& file : sent.file()) all.bytes += file.bytes();
  ReceivedFiles received(own, sent);
  if (all.folders > 0) {
    RETURN_IF_ERROR(PassBytes(
        communication, "the data", chain, all.bytes,
        [&](std::string& bytes) { return files.Read(bytes); },
        [&](std::string_view bytes) { return received.Append(bytes); }));
  }
  RETURN_IF_ERROR(communication.Barrier());  // others read what this rank has put there
  if (communication.rank() > 0) {
    const auto place_of = [&](const std::string& path, const std::string& there) {
      const auto place = sent.place().find(path);
      return has_none && place != sent.place().end() ? (folder / place->second).string() : there;
    };
    ASSIGN_OR_RETURN(all.data, OpenData(trainer, net, /*train=*/true, fit, place_of, memory_bytes));
  }
  RETURN_IF_ERROR(communication.Barrier());
  // Pictures are read while training goes on.
  const RunData& data = all.data;
  if (has_none && (DecodesSamples(data.train.get()) || DecodesSamples(data.test.get()))) {
    all.data.files = std::make_shared<PrivateFolder>(std::move(own));
  }
  return all;
}

}  // namespace gyre
