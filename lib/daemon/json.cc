#include "lib/daemon/json.h"

#include <cmath>
#include <cstdio>

#include "lib/base/bytes.h"
#include "lib/base/check.h"
#include "lib/base/utf8.h"

namespace cantle::daemon {
std::string to_base64(std::string_view bytes) {
  static constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const size_t n = bytes.size() - i < 3 ? bytes.size() - i : 3;
    uint32_t group = 0;
    for (size_t k = 0; k < 3; ++k) group = group << 8 | (k < n ? static_cast<unsigned char>(bytes[i + k]) : 0u);
    for (size_t k = 0; k < 4; ++k) out += k <= n ? kDigits[group >> (18 - 6 * k) & 63] : '=';
  }
  return out;
}

void Json::comma() {
  if (after_key_)
    after_key_ = false;
  else if (!first_)
    out_ += ',';
  first_ = false;
}

Json& Json::open(char bracket) {
  comma();
  out_ += bracket;
  open_.push_back(bracket == '{' ? '}' : ']');
  first_ = true;
  return *this;
}

Json& Json::end() {
  CHECK(!open_.empty() && !after_key_);
  out_ += open_.back();
  open_.pop_back();
  first_ = false;
  return *this;
}

Json& Json::key(std::string_view name) {
  CHECK(!open_.empty() && open_.back() == '}' && !after_key_);
  comma();
  quote(name);
  out_ += ':';
  after_key_ = true;
  return *this;
}

Json& Json::text(std::string_view v) {
  comma();
  quote(v);
  return *this;
}

Json& Json::real(double v) {
  if (!std::isfinite(v)) return null();  // JSON has no word for these
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "%.17g", v);
  double back = 0;
  // The shortest form that reads back the same.
  for (int digits = 1; digits < 17; ++digits) {
    char shorter[32];
    std::snprintf(shorter, sizeof shorter, "%.*g", digits, v);
    if (std::sscanf(shorter, "%lf", &back) == 1 && back == v) return raw(shorter);
  }
  return raw(buffer);
}

Json& Json::raw(std::string_view json) {
  comma();
  out_ += json;
  return *this;
}

Json& Json::bytes(std::string_view name, std::string_view v) {
  if (base::is_utf8(v)) return member(name, v);
  member(name, base::escape(v));
  return member(std::string(name) + "_b64", to_base64(v));
}

void Json::quote(std::string_view v) {
  static constexpr char kHex[] = "0123456789abcdef";
  out_ += '"';
  for (size_t i = 0; i < v.size();) {
    const auto n = base::utf8_sequence(v, i);
    const auto c = static_cast<unsigned char>(v[i]);
    if (n == 0) {
      out_ += "\\ufffd";
      ++i;
      continue;
    }
    if (c == '"' || c == '\\') {
      out_ += '\\';
      out_ += static_cast<char>(c);
    } else if (c == '\n') {
      out_ += "\\n";
    } else if (c == '\t') {
      out_ += "\\t";
    } else if (c < 0x20 || c == 0x7f) {
      out_ += "\\u00";
      out_ += kHex[c >> 4];
      out_ += kHex[c & 15];
    } else {
      out_ += v.substr(i, n);
    }
    i += n;
  }
  out_ += '"';
}

}  // namespace cantle::daemon
