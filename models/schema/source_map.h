// source_map.h: where each field of a parsed text message stands in its file, so that an error
// found long after parsing still names file:line:column.  Immutable after parsing.
#pragma once

#include <map>
#include <string>
#include <utility>

#include "google/protobuf/message.h"

namespace gyre {

class SourceMap {
 public:
  explicit SourceMap(std::string file) : file_(std::move(file)) {}

  const std::string& file() const { return file_; }

  // "file:line:column" of field `name` (element `index` if repeated) of `message`, which is the
  // parsed message or a sub-message of it; of the message itself if the field is not set or name is
  // empty; the file alone if nothing is known (a message made by hand, a field set by an override).
  std::string Where(const google::protobuf::Message& message, std::string_view name = "",
                    int index = 0) const;

  // For the parser: the position (1-based) of a field, and of a sub-message.
  void Add(const google::protobuf::Message& message, std::string name, int index, int line,
           int column);
  void AddMessage(const google::protobuf::Message& message, int line, int column);

 private:
  struct Position {
    int line, column;
  };
  std::string file_;
  std::map<std::pair<const void*, std::pair<std::string, int>>, Position> positions_;
};

}  // namespace gyre
