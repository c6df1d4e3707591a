#include "distributed/agreement.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "distributed/collectives/collective.h"

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

// The first rank whose text differs from rank 0's, or -1, and the index of the text.
struct Difference {
  int32_t rank = -1, text = 0;
};

// `own` and those of other ranks: a hash for each text.
Difference FirstDifference(std::string_view own, const std::vector<Mail::Incoming>& others) {
  for (size_t at = 0; at < own.size(); at += sizeof(uint64_t)) {
    for (const auto& [from, theirs, into] : others) {
      const auto of_text = [&](std::string_view all) { return all.substr(at, sizeof(uint64_t)); };
      if (theirs.size() == own.size() && of_text(theirs) == of_text(own)) continue;
      return {from, static_cast<int32_t>(at / sizeof(uint64_t))};
    }
  }
  return {};
}

}  // namespace

absl::Status CheckAgreement(std::span<const Said> said, int rank, int size,
                            const std::function<absl::Status(Mail*)>& carry) {
  std::string hashes;
  for (const Said& one : said) {
    const uint64_t hash = Hash(one.text);
    hashes.append(reinterpret_cast<const char*>(&hash), sizeof(hash));
  }
  Difference found;
  char* const word = reinterpret_cast<char*>(&found);
  Mail heard, told, texts;
  if (rank > 0) {
    heard.outgoing.push_back({0, hashes});
    told.incoming.push_back({.from = 0, .into = {word, sizeof(found)}});
  }
  for (int other = 1; rank == 0 && other < size; ++other) {
    heard.incoming.push_back({other});
    told.outgoing.push_back({other, {word, sizeof(found)}});
  }
  RETURN_IF_ERROR(carry(&heard));
  if (rank == 0) found = FirstDifference(hashes, heard.incoming);
  RETURN_IF_ERROR(carry(&told));
  if (found.rank < 0) return absl::OkStatus();
  const auto& [what, text] = said[static_cast<size_t>(found.text)];
  for (const int from : {0, static_cast<int>(found.rank)}) {
    if (from != rank) texts.incoming.push_back({from});
    for (int to = 0; from == rank && to < size; ++to) {
      if (to != rank) texts.outgoing.push_back({to, text});
    }
  }
  RETURN_IF_ERROR(carry(&texts));
  std::string_view expected = text, got = text;
  for (const Mail::Incoming& mail : texts.incoming) (mail.from == 0 ? expected : got) = mail.bytes;
  return absl::FailedPreconditionError(absl::StrCat(
      std::string(what), ": rank ", found.rank, " is the first that differs from rank 0",
      DifferentLine(expected, got), "; give all ranks the same program, flags and files"));
}

}  // namespace gyre
