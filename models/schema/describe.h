// describe.h: wording for errors about a model's text, such as a field's expected value or the name
// that a wrong one is near.  Pure functions of the descriptors, so a new field needs no edit here.
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

// The candidate nearest to `word`, ignoring case, or "".  Near: one begins with the other, or the
// edit distance is <= 1 + a third of the word's length, <= most_edits and < that length.  Unless
// all letters are the same, it is also <= half the longer one's length.
std::string DidYouMean(std::string_view word, std::span<const std::string> candidates,
                       size_t most_edits = SIZE_MAX - 1);

// In the order of the .proto file.
std::vector<std::string> FieldNames(const google::protobuf::Descriptor& message);
std::vector<std::string> FieldNames(const google::protobuf::OneofDescriptor& oneof);

// "a, b, c", of at most twenty names.
std::string Listed(std::span<const std::string> names);

// The values that a field takes, as "a 64-bit integer", "true or false", "MAX or AVERAGE".
std::string Expected(const google::protobuf::FieldDescriptor& field);

// `unknown field "kernal"; did you mean "kernel"?`, or `...; choose from a, b` if nothing is near.
// `kind` is "field", "input", ...
std::string Unknown(absl::string_view kind, absl::string_view word,
                    std::span<const std::string> candidates);

// Advice on a value that is no number.  It is "; a decimal has a point: 0.02" for 0,02, else "".
std::string PointAdvice(std::string_view value);

// Unknown for a field of `message`.  Says where a field belongs that is one level down.
std::string UnknownField(const google::protobuf::Descriptor& message, absl::string_view word);

}  // namespace gyre
