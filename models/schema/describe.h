// describe.h: the wording shared by everything that complains about a model's text: what a field
// expects, and what a wrong name should have been.  Pure functions of the descriptors, so a new
// layer or field needs no edit here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/string_view.h"
#include "google/protobuf/descriptor.h"

namespace gyre {

// The candidate nearest to `word`, capitals or not: one begins with the other, or the edit distance
// is <= 1 + a third of the word's length, <= most_edits and less than that length.  "" if there is
// none.
std::string DidYouMean(std::string_view word, std::span<const std::string> candidates,
                       size_t most_edits = SIZE_MAX - 1);

// In the order of the .proto file.
std::vector<std::string> FieldNames(const google::protobuf::Descriptor& message);
std::vector<std::string> FieldNames(const google::protobuf::OneofDescriptor& oneof);

// "a, b, c"; the first twenty.
std::string Listed(std::span<const std::string> names);

// What a value of the field must be: "a 64-bit integer", "true or false", "MAX or AVERAGE".
std::string Expected(const google::protobuf::FieldDescriptor& field);

// `unknown field "kernal"; did you mean "kernel"?`, or `...; choose from a, b` if nothing is near.
// `kind` is "field", "input", ...
std::string Unknown(absl::string_view kind, absl::string_view word,
                    std::span<const std::string> candidates);

// True for double and float.
bool IsReal(const google::protobuf::FieldDescriptor& field);

// What to say of a value that is no number: "; a decimal has a point: 0.02" of 0,02, else "".
std::string PointAdvice(std::string_view value);

// The same as Unknown for a field of `message`; a field that belongs one level down is told where.
std::string UnknownField(const google::protobuf::Descriptor& message, absl::string_view word);

}  // namespace gyre
