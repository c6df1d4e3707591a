#include "engine/data/files/text_file.h"

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

}  // namespace gyre
