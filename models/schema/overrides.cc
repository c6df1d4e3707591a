// overrides.cc: Set, ApplyOverrides, and Split of parse.h, by protobuf's reflection.
#include "models/schema/overrides.h"

#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "google/protobuf/text_format.h"
#include "models/schema/describe.h"
#include "models/schema/first_error.h"
#include "models/schema/net.pb.h"
#include "models/schema/number.h"
#include "models/schema/parse.h"

namespace gyre {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::EnumValueDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using google::protobuf::TextFormat;

// Sets a scalar field, or adds an element to a repeated one; false if `text` is no value for it.
// Numbers, booleans and enumerators are read as in a file.
bool Store(Message& message, const FieldDescriptor* field, const std::string& text) {
  const Reflection& reflection = *message.GetReflection();
  if (field->cpp_type() != FieldDescriptor::CPPTYPE_STRING) {
    FirstError ignored;  // a caller says more of an error
    TextFormat::Parser parser;
    parser.RecordErrorsTo(&ignored);
    return parser.ParseFieldValueFromString(text, field, &message);
  }
  if (field->is_repeated()) {
    reflection.AddString(&message, field, text);
  } else {
    reflection.SetString(&message, field, text);
  }
  return true;
}

absl::Status SetScalar(Message& message, const FieldDescriptor* field, absl::string_view value) {
  std::vector<std::string> elements = {std::string(value)};
  const bool real = field->cpp_type() == FieldDescriptor::CPPTYPE_DOUBLE;
  const std::string advice = real ? PointAdvice({value.data(), value.size()}) : "";
  const auto error = [&](const auto&... what) {
    return absl::InvalidArgumentError(absl::StrCat(what..., advice));
  };
  if (field->is_repeated()) {
    elements = absl::StrSplit(value, ',');
    message.GetReflection()->ClearField(&message, field);
  }
  for (const std::string& element : elements) {
    const bool number = field->cpp_type() != FieldDescriptor::CPPTYPE_STRING &&
                        (advice.empty() || field->is_repeated());
    const std::string wrong = number ? WrongNumber(element) : "";
    if (!wrong.empty()) return error(wrong);
    if (Store(message, field, element)) continue;
    return error("expected for ", field->name(), " ", Expected(*field), ", got \"", element, "\"");
  }
  return absl::OkStatus();
}

// The element of a repeated message that is called `key`, or else whose index it is.
absl::StatusOr<Message*> FindElement(Message& message, const FieldDescriptor* field,
                                     const std::string& key) {
  const Reflection& reflection = *message.GetReflection();
  const FieldDescriptor* name = field->message_type()->FindFieldByName("name");
  const int count = reflection.FieldSize(message, field);
  std::vector<std::string> names;
  for (int i = 0; name != nullptr && i < count; ++i) {
    Message* element = reflection.MutableRepeatedMessage(&message, field, i);
    names.push_back(element->GetReflection()->GetString(*element, name));
    if (names.back() == key) return element;
  }
  int index = 0;
  if (absl::SimpleAtoi(key, &index)) {
    if (index >= 0 && index < count) {
      return reflection.MutableRepeatedMessage(&message, field, index);
    }
    return absl::InvalidArgumentError(
        absl::StrCat("no ", field->name(), " ", key, "; there are ", count, ", counted from 0"));
  }
  if (name == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(field->name(), " is a list of ", count,
                                                   "; go on with the index of one of them"));
  }
  return absl::InvalidArgumentError(Unknown(field->name(), key, names));
}

// Of a list of one, or of none, whose first it then makes, `key` may be a field.
bool IsFieldOfOnly(const Message& message, const FieldDescriptor* field, const std::string& key) {
  return message.GetReflection()->FieldSize(message, field) <= 1 &&
         field->message_type()->FindFieldByName(key) != nullptr;
}

// A layer keeps its type: a field of another says something of a layer that is not there.
absl::Status CheckType(const Message& message, const FieldDescriptor* field) {
  const auto* layer = dynamic_cast<const LayerConfig*>(&message);
  if (layer == nullptr || field->containing_oneof() == nullptr ||
      layer->type_case() == LayerConfig::TYPE_NOT_SET || layer->type_case() == field->number()) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("layer \"", layer->name(), "\" is of type ",
                   LayerConfig::descriptor()->FindFieldByNumber(layer->type_case())->name(),
                   ", not ", field->name()));
}

std::string GoOn(absl::string_view name, const Descriptor& fields) {
  return absl::StrCat(name, " has fields of its own; go on with one of ",
                      Listed(FieldNames(fields)));
}

}  // namespace

absl::Status Set(Message& root, absl::string_view path, absl::string_view value,
                 absl::string_view override, std::vector<Touched>* touched) {
  const auto touch = [&](const Message& message, const std::string& field) {
    touched->push_back({&message, field, std::string(override)});
  };
  const std::vector<std::string> segments = absl::StrSplit(path, '.');
  Message* message = &root;
  for (size_t i = 0; i < segments.size(); ++i) {
    const Descriptor& fields = *message->GetDescriptor();
    const Reflection& reflection = *message->GetReflection();
    const FieldDescriptor* field = fields.FindFieldByName(segments[i]);
    if (field == nullptr) {
      return absl::InvalidArgumentError(UnknownField(fields, segments[i]));
    }
    const bool last = i + 1 == segments.size();
    if (field->message_type() == nullptr) {
      if (!last) {
        return absl::InvalidArgumentError(
            absl::StrCat(segments[i], " has no fields, so nothing can follow it"));
      }
      touch(*message, field->name());
      return SetScalar(*message, field, value);
    }
    if (field->is_repeated()) {
      if (last) {
        return absl::InvalidArgumentError(absl::StrCat(
            field->name(), " is a list; go on with the name or the index of one of them"));
      }
      if (IsFieldOfOnly(*message, field, segments[i + 1])) {
        const bool made = reflection.FieldSize(*message, field) == 0;
        message = made ? reflection.AddMessage(message, field)
                       : reflection.MutableRepeatedMessage(message, field, 0);
        if (made) touch(*message, "");
        continue;
      }
      absl::StatusOr<Message*> element = FindElement(*message, field, segments[++i]);
      if (!element.ok()) return element.status();
      message = *element;
      if (i + 1 == segments.size()) {
        return absl::InvalidArgumentError(GoOn(segments[i], *message->GetDescriptor()));
      }
      continue;
    }
    // "{}" is the only way to choose, of several messages, one that has no fields.
    if (last && value != "{}") {
      return absl::InvalidArgumentError(GoOn(segments[i], *field->message_type()));
    }
    if (absl::Status status = CheckType(*message, field); !status.ok()) return status;
    if (last) reflection.ClearField(message, field);
    const bool made = !reflection.HasField(*message, field);
    if (made) touch(*message, field->name());
    message = reflection.MutableMessage(message, field);
    if (made) touch(*message, "");
  }
  return absl::OkStatus();
}

absl::Status ApplyOverrides(std::span<const std::string> overrides, absl::string_view prefix,
                            const Spellings& spellings, Message& message,
                            std::vector<Touched>* touched) {
  for (const std::string& override : overrides) {
    const std::string whole = absl::StrCat(prefix, override);
    const auto spelling = spellings.find(whole);
    const std::string shown =
        spelling == spellings.end() ? absl::StrCat("--set ", whole) : spelling->second;
    const absl::string_view both = override;
    const size_t equals = both.find('=');
    if (equals == 0 || equals == both.npos) {
      return absl::InvalidArgumentError(
          absl::StrCat(shown, ": expected path=value, such as batch=64"));
    }
    const absl::Status status =
        Set(message, both.substr(0, equals), both.substr(equals + 1), shown, touched);
    if (!status.ok()) {
      return absl::Status(status.code(), absl::StrCat(shown, ": ", status.message()));
    }
  }
  return absl::OkStatus();
}

SplitOverrides Split(std::span<const std::string> overrides) {
  constexpr absl::string_view kNet = "net.";
  SplitOverrides split;
  for (const std::string& override : overrides) {
    if (absl::StartsWith(override, kNet)) {
      split.net.push_back(override.substr(kNet.size()));
    } else {
      split.trainer.push_back(override);
    }
  }
  return split;
}

}  // namespace gyre
