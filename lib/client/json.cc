#include "lib/client/json.h"

#include "lib/base/utf8.h"

namespace cantle::client {
namespace {

void append_utf8(uint32_t c, std::string* out) {
  const auto put = [&](uint32_t b) { *out += static_cast<char>(b); };
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xc0 | c >> 6);
    put(0x80 | (c & 0x3f));
  } else if (c < 0x10000) {
    put(0xe0 | c >> 12);
    put(0x80 | (c >> 6 & 0x3f));
    put(0x80 | (c & 0x3f));
  } else {
    put(0xf0 | c >> 18);
    put(0x80 | (c >> 12 & 0x3f));
    put(0x80 | (c >> 6 & 0x3f));
    put(0x80 | (c & 0x3f));
  }
}

class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}

  base::Result<std::vector<JsonMember>> object() {
    std::vector<JsonMember> members;
    space();
    TRY(expect('{'));
    TRY(members_of(&members, 1));
    space();
    if (at_ != text_.size()) return wrong("something follows the object");
    return members;
  }

 private:
  tl::unexpected<base::Error> wrong(const std::string& what) const {
    return base::fail(base::Code::invalid, "not JSON: " + what + " at byte " + std::to_string(at_ + 1));
  }
  void space() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\r' || text_[at_] == '\n'))
      ++at_;
  }
  bool take(char c) {
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  base::Status expect(char c) {
    if (!take(c)) return wrong(std::string("'") + c + "' is missing");
    return base::ok();
  }

  // Behind '{', up to and with '}'.
  base::Status members_of(std::vector<JsonMember>* members, int depth) {
    space();
    if (take('}')) return base::ok();
    while (true) {
      JsonMember member;
      space();
      TRY_ASSIGN(member.name, string());
      space();
      TRY(expect(':'));
      TRY(value(&member, depth));
      if (members) members->push_back(std::move(member));
      space();
      if (take('}')) return base::ok();
      TRY(expect(','));
    }
  }

  base::Status elements(int depth) {
    space();
    if (take(']')) return base::ok();
    while (true) {
      JsonMember ignored;
      TRY(value(&ignored, depth));
      space();
      if (take(']')) return base::ok();
      TRY(expect(','));
    }
  }

  base::Status value(JsonMember* member, int depth) {
    if (depth > kJsonDepthMax) return wrong("nesting is too deep");
    space();
    if (at_ == text_.size()) return wrong("a value is missing");
    switch (text_[at_]) {
      case '"': {
        member->kind = JsonMember::Kind::string;
        TRY_ASSIGN(member->text, string());
        return base::ok();
      }
      case '{':
        ++at_;
        member->kind = JsonMember::Kind::nested;
        return members_of(nullptr, depth + 1);
      case '[':
        ++at_;
        member->kind = JsonMember::Kind::nested;
        return elements(depth + 1);
      default: return literal(member);
    }
  }

  base::Status literal(JsonMember* member) {
    for (const std::string_view word : {"true", "false", "null"}) {
      if (!text_.substr(at_).starts_with(word)) continue;
      at_ += word.size();
      member->kind = word == "null" ? JsonMember::Kind::null : JsonMember::Kind::boolean;
      member->text = word;
      return base::ok();
    }
    return number(member);
  }

  bool digits() {
    const size_t begin = at_;
    while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') ++at_;
    return at_ > begin;
  }
  base::Status number(JsonMember* member) {
    const size_t begin = at_;
    take('-');
    const bool zero = at_ < text_.size() && text_[at_] == '0';
    if (zero) ++at_;
    if (!zero && !digits()) return wrong("no value begins");
    if (take('.') && !digits()) return wrong("a digit is missing");
    if (take('e') || take('E')) {
      if (!take('+')) take('-');
      if (!digits()) return wrong("a digit is missing");
    }
    member->kind = JsonMember::Kind::number;
    member->text = text_.substr(begin, at_ - begin);
    return base::ok();
  }

  base::Result<std::string> string() {
    TRY(expect('"'));
    std::string out;
    while (at_ < text_.size()) {
      const auto c = static_cast<unsigned char>(text_[at_]);
      if (c == '"') {
        ++at_;
        return out;
      }
      if (c < 0x20) return wrong("a control character in a string");
      if (c == '\\') {
        TRY(escape(&out));
        continue;
      }
      const size_t n = base::utf8_sequence(text_, at_);
      if (n == 0) return wrong("a string is not UTF-8");
      out.append(text_.substr(at_, n));
      at_ += n;
    }
    return wrong("a string does not end");
  }

  base::Status escape(std::string* out) {
    ++at_;
    if (at_ == text_.size()) return wrong("a string does not end");
    static constexpr std::string_view kNames = "\"\\/bfnrt", kBytes = "\"\\/\b\f\n\r\t";
    const char c = text_[at_++];
    if (const size_t i = kNames.find(c); i != std::string_view::npos) {
      *out += kBytes[i];
      return base::ok();
    }
    if (c != 'u') return wrong("an unknown escape");
    TRY_ASSIGN(uint32_t code, four_hex());
    if (code >= 0xdc00 && code < 0xe000) return wrong("half a surrogate pair");
    if (code >= 0xd800 && code < 0xdc00) {
      if (!take('\\') || !take('u')) return wrong("half a surrogate pair");
      TRY_ASSIGN(const uint32_t low, four_hex());
      if (low < 0xdc00 || low >= 0xe000) return wrong("half a surrogate pair");
      code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    }
    append_utf8(code, out);
    return base::ok();
  }

  base::Result<uint32_t> four_hex() {
    uint32_t code = 0;
    for (int i = 0; i < 4; ++i, ++at_) {
      if (at_ == text_.size()) return wrong("four hex digits are missing");
      const char c = text_[at_];
      const int digit = c >= '0' && c <= '9'   ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : -1;
      if (digit < 0) return wrong("four hex digits are missing");
      code = code << 4 | static_cast<uint32_t>(digit);
    }
    return code;
  }

  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

base::Result<std::vector<JsonMember>> parse_json_object(std::string_view text) { return Scanner(text).object(); }

base::Result<std::string> from_base64(std::string_view text) {
  static constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  if (text.size() % 4 != 0) return base::fail(base::Code::invalid, "not base64: the length is no multiple of four");
  size_t digits = text.size();
  for (int i = 0; i < 2 && digits > 0 && text[digits - 1] == '='; ++i) --digits;
  std::string out;
  uint32_t bits = 0;
  int have = 0;
  for (size_t i = 0; i < digits; ++i) {
    const size_t digit = kDigits.find(text[i]);
    if (digit == std::string_view::npos)
      return base::fail(base::Code::invalid, "not base64 at byte " + std::to_string(i + 1));
    bits = bits << 6 | static_cast<uint32_t>(digit);
    have += 6;
    if (have < 8) continue;
    have -= 8;
    out += static_cast<char>(bits >> have & 0xff);
  }
  if ((bits & ((1u << have) - 1)) != 0) return base::fail(base::Code::invalid, "not base64: stray bits at the end");
  return out;
}

}  // namespace cantle::client
