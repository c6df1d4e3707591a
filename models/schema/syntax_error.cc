// syntax_error.cc: a recursive descent over protobuf's text format: fields `name: value`, messages
// `name { ... }`, lists `name: [ ... ]`, commas or semicolons between fields.
#include "models/schema/syntax_error.h"

#include <cstddef>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "google/protobuf/io/tokenizer.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "google/protobuf/message.h"
#include "google/protobuf/text_format.h"
#include "models/schema/describe.h"
#include "models/schema/first_error.h"
#include "models/schema/net.pb.h"
#include "models/schema/number.h"
#include "models/schema/trainer.pb.h"

namespace gyre {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::io::Tokenizer;
using Token = Tokenizer::Token;

class Reader {
 public:
  Reader(std::string_view text, std::string file) : file_(std::move(file)) {
    google::protobuf::io::ArrayInputStream input(text.data(), static_cast<int>(text.size()));
    FirstError error;
    Tokenizer tokenizer(&input, &error);
    tokenizer.set_comment_style(Tokenizer::SH_COMMENT_STYLE);
    tokenizer.set_allow_f_after_float(true);
    tokenizer.set_require_space_after_number(false);
    // Unlike the parser, so that a forgotten quote is found on its own line.
    tokenizer.set_allow_multiline_strings(false);
    do {
      tokenizer.Next();
      tokens_.push_back(tokenizer.current());
    } while (error.text.empty() && tokens_.back().type != Tokenizer::TYPE_END);
    if (error.text.empty()) return;

    // Where the text is not even made of tokens, no rule of the grammar must match.
    malformed_ = std::string(absl::StripSuffix(error.text, "."));
    if (absl::StartsWith(malformed_, "Interpreting non ascii")) {
      malformed_ = "a character beyond ASCII, which only quotes and comments may hold";
    }
    if (absl::StartsWith(malformed_, "String literals cannot cross") ||
        absl::StartsWith(malformed_, "Unexpected end of string")) {
      malformed_ = "a string that has no closing quote on its line";
    }
    Token& last = tokens_.back();
    if (const std::string wrong = WrongNumber(last.text); !wrong.empty()) malformed_ = wrong;
    if (last.type != Tokenizer::TYPE_STRING) {
      last.line = error.line;
      last.column = error.column;
    }
    last.type = Tokenizer::TYPE_SYMBOL;
    last.text.clear();
  }

  absl::Status Read(const Descriptor& message) {
    return ReadFields({message, "", nullptr, nullptr});
  }

 private:
  struct Scope {
    const Descriptor& message;
    std::string name;     // of the field that holds it
    const Token* opener;  // its brace; null for the file
    const Scope* outer;
  };

  const Token& Now() const { return tokens_[at_]; }
  void Advance() {
    if (at_ + 1 < tokens_.size()) ++at_;
  }
  bool TryConsume(absl::string_view symbol) {
    if (Now().type != Tokenizer::TYPE_SYMBOL || Now().text != symbol) return false;
    Advance();
    return true;
  }

  std::string Where(const Token& token) const {
    return absl::StrCat(file_, ":", token.line + 1, ":", token.column + 1);
  }
  absl::Status Error(const Token& token, absl::string_view text) const {
    // What a malformed token cuts short is at fault as little as what it begins.
    const Token& last = tokens_.back();
    const bool cut_short =
        &token + 1 == &last && token.line == last.line && token.end_column == last.column;
    const bool malformed = (&token == &last || cut_short) && !malformed_.empty();
    return absl::InvalidArgumentError(
        absl::StrCat(Where(token), ": ", label_, malformed ? malformed_ : text));
  }
  absl::Status Unexpected(absl::string_view expected) const {
    constexpr size_t kMostCharacters = 40;
    std::string got = Now().text;
    if (got == "-") got += tokens_[at_ + 1].text;
    if (got.size() > kMostCharacters) got = absl::StrCat(got.substr(0, kMostCharacters), "...");
    if (Now().type == Tokenizer::TYPE_END) got = "the end of the file";
    return Error(Now(), absl::StrCat("expected ", expected, ", got ", got));
  }

  // The fields of one message, up to its closing brace or the end of the file.
  absl::Status ReadFields(const Scope& scope) {
    std::map<const FieldDescriptor*, const Token*> seen;
    const FieldDescriptor* last = nullptr;
    while (true) {
      const Token& name = Now();
      if (name.type == Tokenizer::TYPE_END) {
        if (scope.opener == nullptr) return absl::OkStatus();
        return Error(*scope.opener, absl::StrCat("the \"", scope.opener->text, "\" of ", scope.name,
                                                 " is never closed"));
      }
      if (scope.opener != nullptr && TryConsume(scope.opener->text == "{" ? "}" : ">")) {
        return absl::OkStatus();
      }
      if (name.type != Tokenizer::TYPE_IDENTIFIER) {
        if (last == nullptr || last->cpp_type() != FieldDescriptor::CPPTYPE_DOUBLE ||
            last->is_repeated()) {
          return Unexpected("the name of a field");
        }
        const Token& whole = tokens_[at_ - 2];
        const std::string number = absl::StrCat(whole.text, tokens_[at_ - 1].text, name.text);
        const std::string advice = PointAdvice(number);
        if (advice.empty()) return Unexpected("the name of a field");
        return Error(
            whole, absl::StrCat("expected for ", last->name(), " a number, got ", number, advice));
      }
      const FieldDescriptor* field = scope.message.FindFieldByName(name.text);
      if (field == nullptr) return Error(name, UnknownHere(scope, name.text));
      for (const auto& [other, first] : seen) {
        if (other == field && !field->is_repeated()) {
          return Error(name,
                       absl::StrCat(name.text, " is already set at ", Where(*first), "; keep one"));
        }
        if (other != field && field->containing_oneof() != nullptr &&
            other->containing_oneof() == field->containing_oneof()) {
          return Error(name, absl::StrCat("both ", other->name(), " (at ", Where(*first), ") and ",
                                          name.text, "; keep one"));
        }
      }
      seen.emplace(field, &name);
      last = field;
      Advance();
      if (absl::Status status = ReadField(*field, scope); !status.ok()) return status;
      if (!TryConsume(",")) TryConsume(";");
    }
  }

  // A missing "}" makes the next field of an outer message look like an unknown one.
  static std::string UnknownHere(const Scope& scope, const std::string& name) {
    for (const Scope* outer = scope.outer; outer != nullptr; outer = outer->outer) {
      if (outer->message.FindFieldByName(name) == nullptr) continue;
      return absl::StrCat("unknown field \"", name, "\" in ", scope.name, "; it belongs ",
                          outer->name.empty() ? "outside" : absl::StrCat("in ", outer->name),
                          ": is a \"}\" missing before it?");
    }
    if (scope.outer == nullptr) {
      const Descriptor* const net = NetConfig::descriptor();
      const Descriptor* const trainer = TrainerConfig::descriptor();
      if (&scope.message == trainer && net->FindFieldByName(name) != nullptr) {
        return OfTheOther(name, "a trainer", "a net");
      }
      if (&scope.message == net && trainer->FindFieldByName(name) != nullptr) {
        return OfTheOther(name, "a net", "a trainer");
      }
    }
    return UnknownField(scope.message, name);
  }

  // Most likely the one file was given for the other.
  static std::string OfTheOther(const std::string& name, const char* here, const char* there) {
    return absl::StrCat("unknown field \"", name, "\" in ", here, "; it belongs in ", there,
                        ": is this file ", there, "?");
  }

  // What follows the name of `field`.
  absl::Status ReadField(const FieldDescriptor& field, const Scope& scope) {
    const bool colon = TryConsume(":");
    if (!colon && field.message_type() == nullptr) {
      return Unexpected(absl::StrCat("\":\" after ", field.name()));
    }
    if (!TryConsume("[")) return ReadValue(field, scope);
    if (!field.is_repeated()) {
      --at_;
      return Error(Now(), absl::StrCat(field.name(), " takes one value, not a list"));
    }
    if (TryConsume("]")) return absl::OkStatus();
    do {
      if (absl::Status status = ReadValue(field, scope); !status.ok()) return status;
    } while (TryConsume(","));
    return TryConsume("]") ? absl::OkStatus()
                           : Unexpected(absl::StrCat("\",\" or \"]\" in the list ", field.name()));
  }

  absl::Status ReadValue(const FieldDescriptor& field, const Scope& scope) {
    if (field.message_type() == nullptr) {
      return ReadScalar(field)
                 ? absl::OkStatus()
                 : Unexpected(absl::StrCat("for ", field.name(), " ", Expected(field)));
    }
    const Token& opener = Now();
    const size_t opener_at = at_;
    if (!TryConsume("{") && !TryConsume("<")) {
      return Unexpected(absl::StrCat("for ", field.name(), " ", Expected(field)));
    }
    const std::string outer_label = label_;
    const std::string name = field.is_repeated() ? NameOfMessageAt(opener_at) : "";
    if (!name.empty()) label_ = absl::StrCat(field.name(), " \"", absl::CHexEscape(name), "\": ");
    absl::Status status = ReadFields({*field.message_type(), field.name(), &opener, &scope});
    label_ = outer_label;
    return status;
  }

  // Consumes the value if protobuf takes it for `field`; otherwise stays.
  bool ReadScalar(const FieldDescriptor& field) {
    size_t end = at_ + (Now().text == "-" ? 2 : 1);
    // Adjacent strings are one.
    while (Now().type == Tokenizer::TYPE_STRING && tokens_[end].type == Tokenizer::TYPE_STRING) {
      ++end;
    }
    std::string value;
    for (size_t i = at_; i < end; ++i) absl::StrAppend(&value, tokens_[i].text, " ");
    const std::unique_ptr<google::protobuf::Message> message(
        google::protobuf::MessageFactory::generated_factory()
            ->GetPrototype(field.containing_type())
            ->New());
    FirstError ignored;
    google::protobuf::TextFormat::Parser parser;
    parser.RecordErrorsTo(&ignored);
    if (!parser.ParseFieldValueFromString(value, &field, message.get())) return false;
    at_ = end;
    return true;
  }

  // The value of the field "name" directly in the message whose brace is tokens_[open], or "".
  std::string NameOfMessageAt(size_t open) const {
    int depth = 0;
    for (size_t i = open; i + 2 < tokens_.size(); ++i) {
      const std::string& text = tokens_[i].text;
      if (text == "{" || text == "<") ++depth;
      if ((text == "}" || text == ">") && --depth == 0) break;
      if (depth == 1 && text == "name" && tokens_[i + 1].text == ":" &&
          tokens_[i + 2].type == Tokenizer::TYPE_STRING) {
        std::string name;
        Tokenizer::ParseString(tokens_[i + 2].text, &name);
        return name;
      }
    }
    return "";
  }

  std::string file_;
  std::string malformed_;      // the tokenizer's complaint, which is about the last token
  std::string label_;          // `layer "conv1": ` inside it
  std::vector<Token> tokens_;  // the last is the end of the file, or malformed
  size_t at_ = 0;
};

}  // namespace

absl::Status FindSyntaxError(std::string_view text, const std::string& file,
                             const Descriptor& message) {
  return Reader(text, file).Read(message);
}

}  // namespace gyre
