// silent_errors.h: a collector of protobuf's errors, for callers with messages of their own.
#pragma once

#include <string>

#include "google/protobuf/io/tokenizer.h"

namespace gyre {

class SilentErrors : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int, int, const std::string&) override {}
};

}  // namespace gyre
