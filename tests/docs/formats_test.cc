// docs/formats.md and docs/data_*.md against the messages that they describe.  Left out are the
// layers' own messages, which layer.proto describes, and initializers, which the page shows by
// example.
#include <google/protobuf/descriptor.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "engine/data/files/atomic_file.h"
#include "models/schema/net.pb.h"
#include "models/schema/trainer.pb.h"

namespace gyre {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;

// The default cells of the tables of fields, by field name without the message ("momentum").
std::multimap<std::string, std::string> ReadTables() {
  std::string pages;
  for (const auto& file : std::filesystem::directory_iterator("docs")) {
    const absl::StatusOr<std::string> page = ReadFile(file.path());
    EXPECT_TRUE(page.ok()) << page.status();
    absl::StrAppend(&pages, page.value_or(""), "\n");
  }
  std::multimap<std::string, std::string> rows;
  bool in_table = false;
  for (absl::string_view line : absl::StrSplit(pages, '\n')) {
    if (!absl::StartsWith(line, "|")) in_table = false;
    if (absl::StartsWith(line, "| field |")) in_table = true;
    const std::vector<std::string> cells = absl::StrSplit(line, '|');
    if (!in_table || cells.size() < 5) continue;
    std::string names = cells[1].substr(0, cells[1].find(" in "));
    const std::regex name("`(?:\\w+\\.)?(\\w+)`");
    for (std::sregex_iterator i(names.begin(), names.end(), name), end; i != end; ++i) {
      rows.emplace((*i)[1], absl::StripAsciiWhitespace(cells[3]));
    }
  }
  return rows;
}

// `cell` says the default: as a number where it is one, else by its words.
bool Says(std::string cell, const FieldDescriptor* field) {
  if (cell.size() > 2 && cell.front() == '`') cell = cell.substr(1, cell.find('`', 1) - 1);
  std::string value;
  google::protobuf::TextFormat::PrintFieldValueToString(
      *google::protobuf::MessageFactory::generated_factory()->GetPrototype(
          field->containing_type()),
      field, /*index=*/-1, &value);
  double said = 0, expected = 0;
  if (absl::SimpleAtod(cell, &said) && absl::SimpleAtod(value, &expected)) return said == expected;
  return cell == value;
}

void Collect(const Descriptor& message, std::set<const FieldDescriptor*>* fields) {
  for (int i = 0; i < message.field_count(); ++i) {
    const FieldDescriptor* field = message.field(i);
    const bool is_layer_type =
        field->containing_oneof() != nullptr && field->containing_oneof()->name() == "type";
    if (is_layer_type || !fields->insert(field).second) continue;
    const Descriptor* child = field->message_type();
    if (child != nullptr && child != InitializerConfig::descriptor()) Collect(*child, fields);
  }
}

std::set<const FieldDescriptor*> AllFields() {
  std::set<const FieldDescriptor*> fields;
  Collect(*NetConfig::descriptor(), &fields);
  Collect(*TrainerConfig::descriptor(), &fields);
  Collect(*ParameterConfig::descriptor(), &fields);
  return fields;
}

TEST(FormatsPage, HasEveryFieldWithItsDefault) {
  const std::multimap<std::string, std::string> rows = ReadTables();
  for (const FieldDescriptor* field : AllFields()) {
    // A kind of optimizer is described by its own fields.
    if (field->message_type() != nullptr && field->message_type()->field_count() > 0 &&
        field->containing_oneof() != nullptr) {
      continue;
    }
    const auto [begin, end] = rows.equal_range(field->name());
    EXPECT_TRUE(begin != end) << field->full_name() << " has no row";
    bool said = !field->has_default_value();
    for (auto row = begin; row != end; ++row) said = said || Says(row->second, field);
    EXPECT_TRUE(said) << field->full_name() << ": no row says its default";
  }
}

TEST(FormatsPage, HasNoOtherField) {
  std::set<std::string> names;
  for (const FieldDescriptor* field : AllFields()) names.insert(field->name());
  for (const auto& [name, cell] : ReadTables()) EXPECT_TRUE(names.count(name)) << name;
}

}  // namespace
}  // namespace gyre
