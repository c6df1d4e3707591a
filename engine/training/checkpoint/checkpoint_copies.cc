#include "engine/training/checkpoint/checkpoint_copies.h"

#include <cstring>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"

namespace gyre {

CheckpointCopies::CheckpointCopies(const CheckpointFolders& folders,
                                   std::vector<std::vector<std::string>> files_of_rank,
                                   ProcessGroup& communication, CheckpointShards& shards)
    : communication_(communication),
      shards_(shards),
      files_of_rank_(std::move(files_of_rank)),
      neighbour_(folders.NeighbourOf(communication.rank())) {
  for (const int rank : folders.KeptBy(communication.rank())) mail_.incoming.push_back({rank});
}

absl::Status CheckpointCopies::Pack(const CheckpointStore& store, int64_t step) {
  const auto& files = files_of_rank_[static_cast<size_t>(communication_.rank())];
  packed_.assign(files.size() * sizeof(uint64_t), '\0');
  for (size_t i = 0; i < files.size(); ++i) {
    const size_t begin = packed_.size();
    RETURN_IF_ERROR(store.AppendWritten(step, files[i], packed_));
    const uint64_t length = packed_.size() - begin;
    std::memcpy(packed_.data() + i * sizeof(length), &length, sizeof(length));
  }
  mail_.outgoing = {{neighbour_, packed_}};
  return absl::OkStatus();
}

absl::Status CheckpointCopies::Write(CheckpointStore& store, int64_t step,
                                     const std::map<std::string, uint32_t>& crc32_of_file) {
  for (auto& [from, bytes, into] : mail_.incoming) {
    const auto& files = files_of_rank_[static_cast<size_t>(from)];
    size_t at = files.size() * sizeof(uint64_t);
    for (size_t i = 0; i < files.size(); ++i) {
      uint64_t length = 0;
      if (at <= bytes.size())
        std::memcpy(&length, bytes.data() + i * sizeof(length), sizeof(length));
      if (at > bytes.size() || length > bytes.size() - at) {
        return absl::DataLossError(absl::StrCat("rank ", from, " has sent ", bytes.size(),
                                                " bytes, which do not hold its ", files[i]));
      }
      RETURN_IF_ERROR(store.WriteCopy(step, files[i], std::string_view(bytes).substr(at, length),
                                      crc32_of_file.at(files[i])));
      at += length;
    }
    bytes = std::string();  // there may be little room for it
  }
  return absl::OkStatus();
}

void CheckpointCopies::Send() {
  if (std::exchange(sent_, true)) return;
  ticket_ = communication_.Submit("the parts of a checkpoint, to a neighbour", &mail_);
}

absl::Status CheckpointCopies::Collect(bool wait) {
  if (!ticket_) return absl::OkStatus();
  if (!wait) {
    ASSIGN_OR_RETURN(const bool done, communication_.Done(*ticket_));
    if (!done) return absl::OkStatus();
  }
  RETURN_IF_ERROR(communication_.Wait(*std::exchange(ticket_, std::nullopt)).status());
  packed_ = std::string();
  shards_.MailCame();
  return absl::OkStatus();
}

}  // namespace gyre
