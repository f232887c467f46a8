#include "lib/client/format.h"

#include "lib/base/utf8.h"
#include "lib/daemon/json.h"

namespace cantle::client {

base::Result<Format> parse_format(std::string_view name) {
  if (name == "jsonl") return Format::jsonl;
  if (name == "tsv") return Format::tsv;
  if (name == "deb822") return Format::deb822;
  return base::fail(base::Code::usage, "format '" + std::string(name) + "' is none of jsonl, tsv, deb822");
}

void Parser::feed(std::string_view bytes) {
  while (!bytes.empty()) {
    const size_t newline = bytes.find('\n');
    if (newline == std::string_view::npos) {
      if (part_.size() + bytes.size() > kLineMax) too_long_ = true;
      if (!too_long_) part_.append(bytes);
      if (too_long_) part_ = "x";  // a line is under way; its text no longer matters
      return;
    }
    const auto head = bytes.substr(0, newline);
    bytes.remove_prefix(newline + 1);
    if (part_.empty() && !too_long_) {
      take_line(head, true);
    } else {
      if (part_.size() + head.size() > kLineMax) too_long_ = true;
      if (!too_long_) part_.append(head);
      const std::string whole = std::move(part_);
      part_.clear();
      take_line(whole, true);
    }
  }
}

void Parser::finish() {
  if (!part_.empty()) {
    const std::string whole = std::move(part_);
    part_.clear();
    take_line(whole, false);
  }
  end();
}

void Parser::take_line(std::string_view text, bool ended) {
  ++line_;
  if (too_long_ || text.size() > kLineMax) {
    too_long_ = false;
    reject(line_, "the line is over " + std::to_string(kLineMax) + " bytes");
    return;
  }
  line(text, ended);
}

void Parser::emit(Entry&& entry) {
  if (entry.key.empty()) return reject(entry.line, "the key is empty");
  if (entry.key.size() > model::kKeyMax)
    return reject(entry.line,
                  "the key has " + std::to_string(entry.key.size()) + " bytes, over " + std::to_string(model::kKeyMax));
  if (entry.value.size() > model::kValueMax)
    return reject(entry.line, "the value has " + std::to_string(entry.value.size()) + " bytes, over " +
                                  std::to_string(model::kValueMax));
  sink_.entry(std::move(entry));
}

base::Result<std::unique_ptr<Parser>> make_parser(Format format, const ParserOptions& options, Sink sink) {
  switch (format) {
    case Format::jsonl: return make_jsonl_parser(options.key_field, std::move(sink));
    case Format::tsv:
      if (!options.key_field.empty()) return base::fail(base::Code::usage, "tsv has no fields to choose a key from");
      return make_tsv_parser(std::move(sink));
    case Format::deb822:
      return make_deb822_parser(options.key_field.empty() ? "Package" : options.key_field, std::move(sink));
  }
  return base::fail(base::Code::usage, "unknown format");
}

namespace {

void write_tsv(std::string_view text, std::string* out) {
  for (const char c : text) {
    switch (c) {
      case '\t': *out += "\\t"; break;
      case '\n': *out += "\\n"; break;
      case '\r': *out += "\\r"; break;
      case '\\': *out += "\\\\"; break;
      default: *out += c;
    }
  }
}

void write_json(std::string_view key, std::string_view value, std::string* out) {
  daemon::Json j;
  j.object();
  const auto member = [&](const std::string& name, std::string_view bytes) {
    if (base::is_utf8(bytes))
      j.member(name, bytes);
    else
      j.member(name + "_b64", daemon::to_base64(bytes));
  };
  member("key", key);
  member("value", value);
  j.end();
  *out += j.str();
  *out += '\n';
}

}  // namespace

void write_entry(Format format, std::string_view key, std::string_view value, std::string* out) {
  switch (format) {
    case Format::jsonl: write_json(key, value, out); return;
    case Format::tsv:
      write_tsv(key, out);
      *out += '\t';
      write_tsv(value, out);
      *out += '\n';
      return;
    case Format::deb822:
      *out += value;
      if (!value.ends_with('\n')) *out += '\n';
      *out += '\n';
      return;
  }
}

}  // namespace cantle::client
