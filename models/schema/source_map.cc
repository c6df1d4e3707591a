// source_map.cc: an ordered map, so that the elements of one repeated field are neighbours.
#include "models/schema/source_map.h"

#include <climits>
#include <vector>

#include "absl/strings/str_cat.h"

namespace gyre {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

std::string SourceMap::Where(const Message& message, std::string_view name, int index) const {
  // The text format knows one position for a whole list "[1, 2]": that of its first element, so the
  // nearest element at or before `index` is the answer.
  for (const std::string& field : {std::string(name), std::string()}) {
    auto after = where_.upper_bound({&message, field, index});
    if (after == where_.begin()) continue;
    const auto& [key, where] = *--after;
    if (std::get<0>(key) == &message && std::get<1>(key) == field) return where;
  }
  return file_;
}

void SourceMap::Add(const Message& message, std::string name, int index, int line, int column) {
  where_[{&message, std::move(name), index}] = absl::StrCat(file_, ":", line, ":", column);
}

void SourceMap::AddMessage(const Message& message, int line, int column) {
  Add(message, "", 0, line, column);
}

void SourceMap::AddCopy(const Message& original, const Message& copy, const std::string& used_at) {
  for (auto it = where_.lower_bound({&original, "", 0});
       it != where_.end() && std::get<0>(it->first) == &original; ++it) {
    const auto& [message, field, index] = it->first;
    where_[{&copy, field, index}] = absl::StrCat(it->second, ", used at ", used_at);
  }
  const Reflection& reflection = *original.GetReflection();
  std::vector<const FieldDescriptor*> fields;
  reflection.ListFields(original, &fields);
  for (const FieldDescriptor* field : fields) {
    if (field->message_type() == nullptr) continue;
    if (!field->is_repeated()) {
      AddCopy(reflection.GetMessage(original, field), reflection.GetMessage(copy, field), used_at);
      continue;
    }
    for (int i = 0; i < reflection.FieldSize(original, field); ++i) {
      AddCopy(reflection.GetRepeatedMessage(original, field, i),
              reflection.GetRepeatedMessage(copy, field, i), used_at);
    }
  }
}

void SourceMap::AddOverride(const Message& message, const std::string& name,
                            const std::string& override) {
  // A message that an override made may lie where one was that it replaced.
  const auto end = name.empty()
                       ? where_.lower_bound({reinterpret_cast<const char*>(&message) + 1, "", 0})
                       : where_.upper_bound({&message, name, INT_MAX});
  where_.erase(where_.lower_bound({&message, name, 0}), end);
  where_[{&message, name, 0}] = override;
}

}  // namespace gyre
