// Formats: records as text, the way `partc load` and `dump` read and write them.
//
//   jsonl   {"key": "…", "value": "…"} a line; bytes that are not UTF-8 in base64 as "key_b64", "value_b64"
//           (which count where both are there, so that what --json printed can be loaded); a delete is
//           {"key": "…", "deleted": true}. With a key field: any object a line, key = that field, value = the line.
//   tsv     key TAB value; \t \n \r \\ stand for a tab, a newline, a carriage return and a backslash
//   deb822  stanzas, parted by empty lines; key = the field Package (or the key field), value = the bytes of the
//           stanza, each line with its newline
//
// Use
//   auto parser = make_parser(Format::deb822, {}, {.entry = …, .rejected = …});
//   while (…) parser->feed(bytes);     // cut anywhere
//   parser->finish();
//
// Invariants
//   * Every line (deb822: stanza) ends up in exactly one call of entry or rejected; empty lines in none.
//   * An entry's key has 1 to kKeyMax bytes, its value at most kValueMax; memory stays below kLineMax + kValueMax.
//   * write_entry and a parser of the same format give back the same bytes (deb822: if the value was a stanza).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "lib/base/result.h"
#include "lib/model/record.h"

namespace cantle::client {

enum class Format : uint8_t { jsonl, tsv, deb822 };
base::Result<Format> parse_format(std::string_view name);

constexpr size_t kLineMax = 8 * model::kValueMax;  // a value of escapes only, and then some

struct Entry {
  std::string key, value;
  bool deleted = false;
  uint64_t line = 0;  // where it begins, from 1
  friend bool operator==(const Entry&, const Entry&) = default;
};
struct Rejected {
  uint64_t line = 0;
  std::string why;
  friend bool operator==(const Rejected&, const Rejected&) = default;
};
struct Sink {
  std::function<void(Entry&&)> entry;
  std::function<void(Rejected&&)> rejected;
};

class Parser {
 public:
  virtual ~Parser() = default;
  void feed(std::string_view bytes);
  void finish();  // the end of the input; nothing may be fed after it

 protected:
  explicit Parser(Sink sink) : sink_(std::move(sink)) {}
  // One line without its newline; `ended` says whether it had one.
  virtual void line(std::string_view text, bool ended) = 0;
  virtual void end() {}

  uint64_t line_number() const { return line_; }
  // Hands the entry on, or rejects it for its sizes.
  void emit(Entry&& entry);
  void reject(uint64_t at, std::string why) { sink_.rejected({at, std::move(why)}); }

 private:
  void take_line(std::string_view text, bool ended);

  Sink sink_;
  std::string part_;  // of a line whose newline has not come
  bool too_long_ = false;
  uint64_t line_ = 0;
};

struct ParserOptions {
  std::string key_field;  // empty: jsonl and tsv as above, deb822 "Package"
};
// tsv takes no key field: invalid.
base::Result<std::unique_ptr<Parser>> make_parser(Format format, const ParserOptions& options, Sink sink);

void write_entry(Format format, std::string_view key, std::string_view value, std::string* out);

// Each make_parser_… is in the file of its format.
std::unique_ptr<Parser> make_jsonl_parser(std::string key_field, Sink sink);
std::unique_ptr<Parser> make_tsv_parser(Sink sink);
std::unique_ptr<Parser> make_deb822_parser(std::string key_field, Sink sink);

}  // namespace cantle::client
