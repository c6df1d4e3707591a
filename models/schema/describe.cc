// describe.cc: names are compared without regard to capitals, as people write them.
#include "models/schema/describe.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace gyre {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::EnumDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::OneofDescriptor;

// Levenshtein distance: the fewest insertions, deletions and replacements of one character.
// O(|a| |b|) steps, one row of memory: row[j] is the distance of a's first i characters from b's
// first j.
size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replace = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replace, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row.back();
}

template <typename Fields>
std::vector<std::string> Names(const Fields& fields) {
  std::vector<std::string> names;
  for (int i = 0; i < fields.field_count(); ++i) names.push_back(fields.field(i)->name());
  return names;
}

}  // namespace

std::string DidYouMean(std::string_view word, std::span<const std::string> candidates,
                       size_t most_edits) {
  // Two letters are too few to tell a beginning from a coincidence.
  constexpr size_t kShortestBeginning = 3;
  const std::string lower = absl::AsciiStrToLower(absl::string_view(word.data(), word.size()));
  std::string best;
  // It must be less than this.
  size_t best_distance = std::min({2 + word.size() / 3, word.size(), most_edits + 1});
  for (const std::string& candidate : candidates) {
    const std::string other = absl::AsciiStrToLower(candidate);
    const size_t shorter = std::min(lower.size(), other.size());
    const size_t longer = std::max(lower.size(), other.size());
    const bool beginning = shorter >= kShortestBeginning &&
                           (absl::StartsWith(lower, other) || absl::StartsWith(other, lower));
    const size_t distance =
        beginning ? std::min<size_t>(longer - shorter, 1) : EditDistance(lower, other);
    const bool other_letters = 2 * distance > longer && !std::ranges::is_permutation(lower, other);
    if (distance >= best_distance || other_letters) continue;
    best = candidate;
    best_distance = distance;
  }
  return best;
}

std::vector<std::string> FieldNames(const Descriptor& message) { return Names(message); }
std::vector<std::string> FieldNames(const OneofDescriptor& oneof) { return Names(oneof); }

std::string Listed(std::span<const std::string> names) {
  constexpr size_t kMost = 20;
  const std::string list = absl::StrJoin(names.first(std::min(kMost, names.size())), ", ");
  return names.size() > kMost ? absl::StrCat(list, ", ...") : list;
}

std::string Expected(const FieldDescriptor& field) {
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return "a 32-bit integer";
    case FieldDescriptor::CPPTYPE_INT64:
      return "a 64-bit integer";
    case FieldDescriptor::CPPTYPE_UINT32:
      return "a 32-bit integer >= 0";
    case FieldDescriptor::CPPTYPE_UINT64:
      return "a 64-bit integer >= 0";
    case FieldDescriptor::CPPTYPE_DOUBLE:
    case FieldDescriptor::CPPTYPE_FLOAT:
      return "a number";
    case FieldDescriptor::CPPTYPE_BOOL:
      return "true or false";
    case FieldDescriptor::CPPTYPE_STRING:
      return "a string in quotes";
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return "{ ... }";
    case FieldDescriptor::CPPTYPE_ENUM:
      break;
  }
  const EnumDescriptor& choices = *field.enum_type();
  std::string text = choices.value(0)->name();
  for (int i = 1; i < choices.value_count(); ++i) {
    absl::StrAppend(&text, i + 1 < choices.value_count() ? ", " : " or ", choices.value(i)->name());
  }
  return text;
}

std::string Unknown(absl::string_view kind, absl::string_view word,
                    std::span<const std::string> candidates) {
  const std::string problem = absl::StrCat("unknown ", kind, " \"", absl::CHexEscape(word), "\"");
  const std::string near = DidYouMean({word.data(), word.size()}, candidates);
  if (!near.empty()) return absl::StrCat(problem, "; did you mean \"", near, "\"?");
  if (candidates.empty()) return absl::StrCat(problem, "; there is none");
  return absl::StrCat(problem, "; choose from ", Listed(candidates));
}

std::string PointAdvice(std::string_view value) {
  const size_t comma = value.find(',');
  if (comma == value.npos || comma == 0 || comma + 1 == value.size() ||
      !absl::ascii_isdigit(static_cast<unsigned char>(value[comma - 1])) ||
      !absl::ascii_isdigit(static_cast<unsigned char>(value[comma + 1]))) {
    return "";
  }
  std::string decimal(value);
  decimal[comma] = '.';
  double number = 0;
  return absl::SimpleAtod(decimal, &number) ? absl::StrCat("; a decimal has a point: ", decimal)
                                            : "";
}

std::string UnknownField(const Descriptor& message, absl::string_view word) {
  std::vector<std::string> owners;
  for (int i = 0; i < message.field_count(); ++i) {
    const FieldDescriptor* field = message.field(i);
    if (field->message_type() != nullptr &&
        field->message_type()->FindFieldByName(std::string(word)) != nullptr) {
      owners.push_back(field->name());
    }
  }
  if (!owners.empty()) {
    return absl::StrCat("unknown field \"", word, "\" here; it belongs in ",
                        absl::StrJoin(owners, " or "), " { ... }");
  }
  // Of a layer, unless another field of it is near.
  if (const OneofDescriptor* types = message.FindOneofByName("type"); types != nullptr) {
    const FieldDescriptor* near =
        message.FindFieldByName(DidYouMean({word.data(), word.size()}, FieldNames(message)));
    if (near == nullptr || near->containing_oneof() == types) {
      return Unknown("layer type", word, FieldNames(*types));
    }
  }
  return Unknown("field", word, FieldNames(message));
}

}  // namespace gyre
