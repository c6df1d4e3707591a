#include "distributed/agreement.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "distributed/collectives/channel.h"

namespace gyre {
namespace {

// The first line of two texts that differs.
std::string DifferentLine(std::string_view expected, std::string_view got) {
  const auto lines_of = [](std::string_view text) {
    return std::vector<absl::string_view>(
        absl::StrSplit(absl::string_view(text.data(), text.size()), '\n'));
  };
  const auto of_expected = lines_of(expected), of_got = lines_of(got);
  const auto line = std::ranges::mismatch(of_expected, of_got).in1 - of_expected.begin();
  const auto show = [line](const std::vector<absl::string_view>& lines) -> std::string {
    constexpr size_t kMostShown = 100;
    if (line == static_cast<ptrdiff_t>(lines.size())) return "the end";
    const auto text = absl::StripLeadingAsciiWhitespace(lines[static_cast<size_t>(line)]);
    return absl::StrCat("\"", absl::CHexEscape(text.substr(0, kMostShown)), "\"");
  };
  return absl::StrCat(": expected ", show(of_expected), ", got ", show(of_got));
}

}  // namespace

Agreement::Agreement(std::vector<Said> said, int rank, int size)
    : said_(std::move(said)), rank_(rank), size_(size) {
  for (const Said& one : said_) {
    const uint64_t hash = Hash(one.text);
    hashes_.append(reinterpret_cast<const char*>(&hash), sizeof(hash));
  }
}

Agreement::Difference Agreement::Find(const std::vector<Mail::Incoming>& hashes) const {
  constexpr size_t kBytes = sizeof(uint64_t);
  for (size_t text = 0; text < said_.size(); ++text) {
    for (const auto& [from, of_rank, into] : hashes) {
      const auto of_text = [&](std::string_view all) { return all.substr(text * kBytes, kBytes); };
      if (of_rank.size() == hashes_.size() && of_text(of_rank) == of_text(hashes_)) continue;
      return {from, static_cast<int32_t>(text)};
    }
  }
  return {};
}

absl::Status Agreement::Check(const std::function<absl::Status(Mail*)>& carry) {
  const bool first = rank_ == 0;
  Mail heard, told, texts;
  if (!first) heard.outgoing.push_back({0, hashes_});
  for (int rank = 1; first && rank < size_; ++rank) heard.incoming.push_back({rank});
  RETURN_IF_ERROR(carry(&heard));
  Difference found;
  if (first) found = Find(heard.incoming);
  const std::string_view word(reinterpret_cast<const char*>(&found), sizeof(found));
  if (!first) told.incoming.push_back({0});
  for (int rank = 1; first && rank < size_; ++rank) told.outgoing.push_back({rank, word});
  RETURN_IF_ERROR(carry(&told));
  if (!first) {
    const std::string& bytes = told.incoming.front().bytes;
    if (bytes.size() != sizeof(found)) {
      return absl::InternalError("what rank 0 has found does not parse");
    }
    std::memcpy(&found, bytes.data(), sizeof(found));
  }
  if (found.rank < 0) return absl::OkStatus();
  const Said& said = said_[static_cast<size_t>(found.text)];
  for (const int from : {0, static_cast<int>(found.rank)}) {
    if (from != rank_) texts.incoming.push_back({from});
    for (int to = 0; from == rank_ && to < size_; ++to) {
      if (to != rank_) texts.outgoing.push_back({to, said.text});
    }
  }
  RETURN_IF_ERROR(carry(&texts));
  std::string_view expected = said.text, got = said.text;
  for (const Mail::Incoming& mail : texts.incoming) (mail.from == 0 ? expected : got) = mail.bytes;
  return absl::FailedPreconditionError(absl::StrCat(
      std::string(said.what), ": rank ", found.rank, " is the first that differs from rank 0",
      DifferentLine(expected, got), "; give all ranks the same program, flags and files"));
}

}  // namespace gyre
