#include "engine/training/checkpoint/checkpoint_gather.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "engine/data/files/atomic_file.h"
#include "engine/data/files/file_reader.h"
#include "engine/training/checkpoint/checkpoint.h"
#include "engine/training/checkpoint/checkpoint_folders.h"
#include "engine/training/checkpoint/checkpoint_gather.pb.h"

namespace gyre {
namespace {

namespace fs = std::filesystem;

using Checksums = std::map<std::string, uint32_t>;

Checksums ChecksumsIn(const CheckpointListing::Checkpoint& checkpoint) {
  return {checkpoint.crc32_of_file().begin(), checkpoint.crc32_of_file().end()};
}

int64_t StepOf(const CheckpointListing::Checkpoint& checkpoint) {
  int64_t step = -1;
  return absl::SimpleAtoi(absl::StripPrefix(checkpoint.name(), "step_"), &step) ? step : -1;
}

// Rank 0's: the checkpoints of all folders, newest first, each once; of those whose state.pb is
// nowhere whole, why.
std::vector<CheckpointListing::Checkpoint> Merge(const std::vector<CheckpointListing>& listings) {
  std::vector<CheckpointListing::Checkpoint> merged;
  for (const bool broken : {false, true}) {
    for (const CheckpointListing& listing : listings) {
      for (const auto& checkpoint : listing.checkpoints()) {
        const auto is_same = [&](const CheckpointListing::Checkpoint& other) {
          return other.name() == checkpoint.name() &&
                 (broken || ChecksumsIn(other) == ChecksumsIn(checkpoint));
        };
        if (checkpoint.has_broken() == broken && std::ranges::none_of(merged, is_same)) {
          merged.push_back(checkpoint);
        }
      }
    }
  }
  std::ranges::stable_sort(merged, std::greater(), StepOf);
  return merged;
}

class Gathering {
 public:
  Gathering(ProcessGroup& communication, const std::string& root, CheckpointFolders folders)
      : communication_(communication),
        me_(communication.rank()),
        folders_(std::move(folders)),
        root_(root) {}

  absl::StatusOr<GatheredCheckpoint> Run(const std::string& name) {
    ASSIGN_OR_RETURN(const auto listings, ToLeader("the checkpoints of each folder", List(name)));
    // Rank 0's: its next word, and what it goes through.
    CheckpointDecision word;
    std::vector<CheckpointListing::Checkpoint> candidates;
    if (me_ == 0) candidates = Merge(listings);
    for (size_t next = 0;; ++next) {
      for (; next < candidates.size() && candidates[next].has_broken(); ++next) {
        word.add_skipped(candidates[next].broken());
      }
      word.clear_look_for();
      if (next < candidates.size()) *word.mutable_look_for() = candidates[next];
      ASSIGN_OR_RETURN(const CheckpointDecision sought,
                       FromLeader("the checkpoint to look for", word));
      if (!sought.has_look_for()) {
        const fs::path where = root_ / name;
        if (sought.skipped().empty()) {
          return absl::NotFoundError(
              absl::StrCat("no checkpoint in ", where.string(), " on any host"));
        }
        return absl::DataLossError(absl::StrCat("each of the ", sought.skipped_size(),
                                                " checkpoints in ", where.string(),
                                                " is broken; the newest: ", sought.skipped(0)));
      }
      CheckpointHoldings holdings;
      if (folders_.Publishes(me_)) {
        ASSIGN_OR_RETURN(holdings, Look(sought.look_for()));
      }
      ASSIGN_OR_RETURN(const auto all, ToLeader("what each folder has of it", holdings));
      CheckpointDecision plan;
      if (me_ == 0) plan = Plan(sought.look_for(), all);
      ASSIGN_OR_RETURN(plan, FromLeader("what each folder is sent", plan));
      if (plan.skipped().empty()) {
        RETURN_IF_ERROR(Deliver(plan));
        return GatheredCheckpoint{(root_ / sought.look_for().name()).string(),
                                  {sought.skipped().begin(), sought.skipped().end()},
                                  received_};
      }
      word.add_skipped(plan.skipped(0));
    }
  }

 private:
  // Of each rank that publishes, in order; on rank 0.
  template <typename Message>
  absl::StatusOr<std::vector<Message>> ToLeader(const char* what, const Message& message) {
    const std::string own = message.SerializeAsString();
    Mail mail;
    for (const std::vector<int>& ranks : folders_.folders()) {
      if (me_ == 0 && ranks.front() != 0) mail.incoming.push_back({ranks.front()});
    }
    if (me_ != 0 && folders_.Publishes(me_)) mail.outgoing.push_back({0, own});
    RETURN_IF_ERROR(communication_.Wait(communication_.Submit(what, &mail)).status());
    std::vector<Message> messages = {message};
    for (const auto& [from, bytes, into] : mail.incoming) {
      if (!messages.emplace_back().ParseFromString(bytes)) {
        return absl::InternalError(absl::StrCat(what, ": those of rank ", from, " do not parse"));
      }
    }
    return messages;
  }

  absl::StatusOr<CheckpointDecision> FromLeader(const char* what, const CheckpointDecision& word) {
    ASSIGN_OR_RETURN(const std::string text,
                     communication_.TextOfLeader(what, word.SerializeAsString()));
    CheckpointDecision heard;
    if (heard.ParseFromString(text)) return heard;
    return absl::InternalError(absl::StrCat(what, ": does not parse"));
  }

  CheckpointListing List(const std::string& name) const {
    CheckpointListing listing;
    if (!folders_.Publishes(me_)) return listing;
    std::error_code error;
    std::vector<std::string> names;
    if (name.empty()) {
      names = CheckpointStore(root_).Names().value_or(names);
    } else if (fs::is_directory(root_ / name, error)) {
      names = {name};
    }
    for (const std::string& of_step : names) {
      CheckpointListing::Checkpoint& checkpoint = *listing.add_checkpoints();
      checkpoint.set_name(of_step);
      const absl::StatusOr<Checksums> sums = ChecksumsOf(root_ / of_step);
      if (sums.ok()) {
        checkpoint.mutable_crc32_of_file()->insert(sums->begin(), sums->end());
      } else {
        checkpoint.set_broken(std::string(sums.status().message()));
      }
    }
    return listing;
  }

  absl::StatusOr<CheckpointHoldings> Look(const CheckpointListing::Checkpoint& wanted) {
    path_ = root_ / wanted.name();
    const Checksums sums = ChecksumsIn(wanted);
    absl::StatusOr<Checksums> here = ChecksumsOf(path_);
    if (!here.ok() || *here != sums) {
      // Written, and its writer ended before it could give it its name; another has.
      for (const std::string& staged : StagedFolders(path_)) {
        const absl::StatusOr<Checksums> written = ChecksumsOf(staged);
        if (!written.ok() || *written != sums) continue;
        RETURN_IF_ERROR(PublishFolder(staged, path_));
        here = sums;
        break;
      }
    }
    std::error_code error;
    const bool other = here.ok() && *here != sums;
    in_place_ = fs::is_directory(path_, error) && !other;
    CheckpointHoldings holdings;
    const auto enter = [&](const std::string& file, absl::Status status) {
      if (other) status = absl::DataLossError(path_.string() + ": is of another run");
      const uint64_t bytes = status.ok() ? fs::file_size(path_ / file, error) : 0;
      if (status.ok() && !error) {
        (*holdings.mutable_bytes_of_file())[file] = bytes;
      } else {
        (*holdings.mutable_lacks())[file] = std::string(status.message());
      }
    };
    enter(kStateFile, here.status());
    for (const auto& [file, crc32] : sums) enter(file, CheckFile(path_ / file, crc32));
    return holdings;
  }

  // Rank 0's: what is to be sent so that each folder has all files, or why that cannot be.
  CheckpointDecision Plan(const CheckpointListing::Checkpoint& wanted,
                          const std::vector<CheckpointHoldings>& holdings) const {
    CheckpointDecision plan;
    std::vector<std::string> files = {kStateFile};
    for (const auto& [file, crc32] : ChecksumsIn(wanted)) files.push_back(file);
    for (const std::string& file : files) {
      // The first that has it, then those that lack it.
      CheckpointDecision::Delivery delivery;
      delivery.set_file(file);
      std::vector<int> lacking;
      std::string why;
      for (size_t i = 0; i < holdings.size(); ++i) {
        const int rank = folders_.folders()[i].front();
        const auto whole = holdings[i].bytes_of_file().find(file);
        if (whole == holdings[i].bytes_of_file().end()) {
          lacking.push_back(rank);
          absl::StrAppend(&why, "; rank ", rank, ": ", holdings[i].lacks().at(file));
        } else if (delivery.chain().empty()) {
          delivery.add_chain(rank);
          delivery.set_bytes(whole->second);
        }
      }
      if (delivery.chain().empty()) {
        plan.clear_deliveries();
        plan.add_skipped(absl::StrCat(wanted.name(), ": ", file, " is whole on no host", why));
        return plan;
      }
      delivery.mutable_chain()->Add(lacking.begin(), lacking.end());
      if (!lacking.empty()) *plan.add_deliveries() = delivery;
    }
    return plan;
  }

  absl::Status Deliver(const CheckpointDecision& plan) {
    fs::path into = path_;
    for (const CheckpointDecision::Delivery& delivery : plan.deliveries()) {
      const auto& chain = delivery.chain();
      if (std::find(chain.begin() + 1, chain.end(), me_) == chain.end()) {
        RETURN_IF_ERROR(Pass(delivery, {}));
        continue;
      }
      received_ = true;
      if (!in_place_) {
        ASSIGN_OR_RETURN(into, StageFolder(path_, std::to_string(getpid())));
      }
      RETURN_IF_ERROR(WriteFileAtomically(
          into / delivery.file(), [&](const FileSink& sink) { return Pass(delivery, sink); }));
    }
    if (received_ && !in_place_) RETURN_IF_ERROR(PublishFolder(into, path_));
    return communication_.Barrier();  // others read what this rank has put there
  }

  // A file; into sink, if this rank is sent it.
  absl::Status Pass(const CheckpointDecision::Delivery& delivery, const FileSink& sink) {
    std::optional<FileReader> file;
    const auto read = [&](std::string& bytes) -> absl::Status {
      if (!file) {
        ASSIGN_OR_RETURN(FileReader opened, FileReader::Open(path_ / delivery.file()));
        file.emplace(std::move(opened));
      }
      return file->ReadAll(bytes.data(), bytes.size());
    };
    const std::vector<int> chain(delivery.chain().begin(), delivery.chain().end());
    return PassBytes(communication_, delivery.file(), chain, delivery.bytes(), read, sink);
  }

  ProcessGroup& communication_;
  const int me_;
  const CheckpointFolders folders_;
  const fs::path root_;
  fs::path path_;          // of the checkpoint that is looked for
  bool in_place_ = false;  // files of it can be put there one by one
  bool received_ = false;
};

}  // namespace

absl::StatusOr<std::optional<GatheredCheckpoint>> GatherCheckpoint(ProcessGroup& communication,
                                                                   const std::string& root,
                                                                   const std::string& name) {
  if (communication.size() == 1) return std::nullopt;
  std::error_code error;
  double there = fs::is_directory(root, error) ? 1 : 0;
  RETURN_IF_ERROR(communication.Sum("the folders that are there", std::span(&there, 1)));
  if (there == 0) return std::nullopt;  // and none is made
  ASSIGN_OR_RETURN(const std::string token,
                   communication.TextOfLeader("the name of marks in folders of checkpoints",
                                              absl::StrCat(absl::ToUnixNanos(absl::Now()))));
  absl::StatusOr<CheckpointFolders> folders = CheckpointFolders::Meet(communication, root, token);
  // Who cannot write there reads; what went wrong between ranks stays their error.
  if (!folders.ok() || !folders->several()) {
    RETURN_IF_ERROR(communication.status());
    return std::nullopt;
  }
  ASSIGN_OR_RETURN(GatheredCheckpoint gathered,
                   Gathering(communication, root, *std::move(folders)).Run(name));
  return gathered;
}

}  // namespace gyre
