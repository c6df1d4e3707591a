#include "engine/data/files/text_file.h"

#include <algorithm>

#include "engine/data/files/atomic_file.h"
#include "engine/runtime/check.h"
#include "models/schema/text_encoding.h"

namespace gyre {

absl::StatusOr<std::string> ReadText(const std::string& path) {
  ASSIGN_OR_RETURN(std::string text, ReadFile(path));
  const auto unmarked = WithoutMark(text);
  if (!unmarked.ok()) return Annotate(unmarked.status(), path);
  text.erase(0, text.size() - unmarked->size());
  return text;
}

absl::Status ForEachLine(std::string_view text,
                         absl::FunctionRef<absl::Status(int64_t, std::string_view)> line) {
  for (int64_t number = 1; !text.empty(); ++number) {
    std::string_view next = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), next.size() + 1));
    if (next.ends_with('\r')) next.remove_suffix(1);
    RETURN_IF_ERROR(line(number, next));
  }
  return absl::OkStatus();
}

}  // namespace gyre
