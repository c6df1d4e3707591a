// silent_errors.h: a collector of protobuf's errors for those who report them in their own words.
#pragma once

#include <string>

#include "google/protobuf/io/tokenizer.h"

namespace gyre {

// Drops every error.
class SilentErrors : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int, int, const std::string&) override {}
};

}  // namespace gyre
