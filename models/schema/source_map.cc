// source_map.cc: an ordered map, so that the elements of one repeated field are neighbours.
#include "models/schema/source_map.h"

#include <climits>

#include "absl/strings/str_cat.h"

namespace gyre {

using google::protobuf::Message;

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

void SourceMap::AddOverride(const Message& message, const std::string& name,
                            const std::string& override) {
  where_.erase(where_.lower_bound({&message, name, 0}),
               where_.upper_bound({&message, name, INT_MAX}));
  where_[{&message, name, 0}] = override;
}

}  // namespace gyre
