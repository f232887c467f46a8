#include <optional>

#include "lib/client/format.h"
#include "lib/client/json.h"

namespace cantle::client {
namespace {

using Kind = JsonMember::Kind;

class JsonlParser final : public Parser {
 public:
  JsonlParser(std::string key_field, Sink sink) : Parser(std::move(sink)), key_field_(std::move(key_field)) {}

 private:
  void line(std::string_view text, bool) override {
    if (text.find_first_not_of(" \t\r") == std::string_view::npos) return;
    auto entry = key_field_.empty() ? record(text) : document(text);
    if (!entry) return reject(line_number(), entry.error().text);
    entry->line = line_number();
    emit(std::move(*entry));
  }

  // {"key": …, "value": …}, as dump writes it.
  base::Result<Entry> record(std::string_view text) {
    TRY_ASSIGN(const auto members, parse_json_object(text));
    Entry entry;
    std::optional<std::string> key, key_b64, value, value_b64;
    for (const auto& m : members) {
      if (m.name == "key") {
        TRY(bytes_of(m, &key));
      } else if (m.name == "key_b64") {
        TRY(bytes_of(m, &key_b64));
      } else if (m.name == "value") {
        TRY(bytes_of(m, &value));
      } else if (m.name == "value_b64") {
        TRY(bytes_of(m, &value_b64));
      } else if (m.name == "deleted" && m.kind == Kind::boolean) {
        entry.deleted = m.text == "true";
      } else if (m.name != "version") {  // --json prints it; loading stamps a new one
        return base::fail(base::Code::invalid, "unknown field '" + m.name + "'");
      }
    }
    if (key_b64) key = std::move(key_b64);
    if (value_b64) value = std::move(value_b64);
    if (!key) return base::fail(base::Code::invalid, "there is no field key");
    if (!value && !entry.deleted) return base::fail(base::Code::invalid, "there is no field value");
    if (value && entry.deleted) return base::fail(base::Code::invalid, "a value, and deleted");
    entry.key = std::move(*key);
    if (value) entry.value = std::move(*value);
    return entry;
  }

  base::Status bytes_of(const JsonMember& m, std::optional<std::string>* out) {
    if (m.kind != Kind::string) return base::fail(base::Code::invalid, "field " + m.name + " is not a string");
    if (*out) return base::fail(base::Code::invalid, "field " + m.name + " is there twice");
    if (!m.name.ends_with("_b64")) {
      *out = m.text;
      return base::ok();
    }
    TRY_ASSIGN(*out, from_base64(m.text));
    return base::ok();
  }

  // Any object: one of its fields is the key, the line is the value.
  base::Result<Entry> document(std::string_view text) {
    TRY_ASSIGN(const auto members, parse_json_object(text));
    for (const auto& m : members) {
      if (m.name != key_field_) continue;
      if (m.kind != Kind::string && m.kind != Kind::number)
        return base::fail(base::Code::invalid, "field " + key_field_ + " is neither a string nor a number");
      return Entry{.key = m.text, .value = std::string(text)};
    }
    return base::fail(base::Code::invalid, "there is no field " + key_field_);
  }

  const std::string key_field_;
};

}  // namespace

std::unique_ptr<Parser> make_jsonl_parser(std::string key_field, Sink sink) {
  return std::make_unique<JsonlParser>(std::move(key_field), std::move(sink));
}

}  // namespace cantle::client
