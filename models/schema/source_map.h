// source_map.h: the origin of each field of a parsed text message.  Later errors can thus name
// file:line:column, or the override that set the field.  Immutable after parsing.  Any thread.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include "google/protobuf/message.h"

namespace gyre {

class SourceMap {
 public:
  explicit SourceMap(std::string file) : file_(std::move(file)) {}

  const std::string& file() const { return file_; }

  // The origin of field `name` (element `index` if repeated) of the message or a sub-message:
  //   "file:line:column"   of the field, or of the message if the field is not set or name is ""
  //   "--set path=value"   if an override set the field or made the message
  //   "file"               if nothing is known, as of a message made by hand
  std::string Where(const google::protobuf::Message& message, std::string_view name = "",
                    int index = 0) const;

  // For the parser: the position (1-based) of a field, and of a sub-message.
  void Add(const google::protobuf::Message& message, std::string name, int index, int line,
           int column);
  void AddMessage(const google::protobuf::Message& message, int line, int column);
  // For blocks: `copy` is a copy of `original`, made for the layer at `used_at`.
  void AddCopy(const google::protobuf::Message& original, const google::protobuf::Message& copy,
               const std::string& used_at);
  // For the parser: all of field `name`, or the message itself if empty, comes from an override.
  void AddOverride(const google::protobuf::Message& message, const std::string& name,
                   const std::string& override);

 private:
  // Message, field ("" for the message itself), element.
  using Key = std::tuple<const void*, std::string, int>;
  std::string file_;
  std::map<Key, std::string> where_;  // as Where returns it
};

}  // namespace gyre
