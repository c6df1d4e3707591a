// first_error.h: the first complaint of protobuf's parser or tokenizer, for callers with messages
// of their own.
#pragma once

#include <string>

#include "google/protobuf/io/tokenizer.h"

namespace gyre {

struct FirstError : google::protobuf::io::ErrorCollector {
  void AddError(int line_of_it, int column_of_it, const std::string& message) override {
    if (!text.empty()) return;
    text = message;
    line = line_of_it;
    column = column_of_it;
  }

  std::string text;          // "": there is none
  int line = 0, column = 0;  // from 0
};

}  // namespace gyre
