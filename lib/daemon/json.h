// Json: writes one JSON text, with bytes that are not UTF-8 made safe.
//
//   Json j;
//   j.object().member("table", table).member("records", n).bytes("key", key);
//   j.key("replicas").array().text("p1").text("p2").end();
//   j.end();
//   puts(j.str().c_str());
//
// Keys and values of records may be any bytes, and JSON is text. bytes(name, v) writes the member `name` as
// text. Where v is not UTF-8, that text is the %XX form (base::escape) and a second member `name_b64`
// has the bytes in base64: it is there if and only if `name` is escaped.
// text() and member() are for what is text by nature; stray bytes in it become U+FFFD.
//
// Numbers above 2^53 are written exactly, as JSON allows; use jq 1.7 or a language with big integers for those.
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/utf8.h"

namespace cantle::daemon {

using base::is_utf8;
std::string to_base64(std::string_view bytes);

class Json {
 public:
  Json& object() { return open('{'); }
  Json& array() { return open('['); }
  Json& end();  // of the innermost object or array
  Json& key(std::string_view name);

  Json& text(std::string_view v);
  Json& boolean(bool v) { return raw(v ? "true" : "false"); }
  Json& null() { return raw("null"); }
  Json& real(double v);
  template <std::integral T>
  Json& number(T v) {
    return raw(std::to_string(v));
  }
  Json& raw(std::string_view json);  // one JSON value as it is

  Json& member(std::string_view name, std::string_view v) { return key(name).text(v); }
  Json& member(std::string_view name, const char* v) { return key(name).text(v); }
  Json& member(std::string_view name, const std::string& v) { return key(name).text(v); }
  Json& member(std::string_view name, bool v) { return key(name).boolean(v); }
  Json& member(std::string_view name, double v) { return key(name).real(v); }
  template <std::integral T>
  requires(!std::same_as<T, bool>) Json& member(std::string_view name, T v) { return key(name).number(v); }
  Json& bytes(std::string_view name, std::string_view v);

  const std::string& str() const { return out_; }

 private:
  Json& open(char bracket);
  void comma();
  void quote(std::string_view v);

  std::string out_;
  std::vector<char> open_;  // closing brackets
  bool first_ = true, after_key_ = false;
};

}  // namespace cantle::daemon
