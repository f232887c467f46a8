#include "lib/client/format.h"

namespace cantle::client {
namespace {

// False for a backslash that stands before none of t n r \.
bool unescape_tsv(std::string_view text, std::string* out) {
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\') {
      *out += text[i];
      continue;
    }
    if (++i == text.size()) return false;
    switch (text[i]) {
      case 't': *out += '\t'; break;
      case 'n': *out += '\n'; break;
      case 'r': *out += '\r'; break;
      case '\\': *out += '\\'; break;
      default: return false;
    }
  }
  return true;
}

class TsvParser final : public Parser {
 public:
  explicit TsvParser(Sink sink) : Parser(std::move(sink)) {}

 private:
  void line(std::string_view text, bool) override {
    if (text.empty()) return;
    const size_t tab = text.find('\t');
    if (tab == std::string_view::npos) return reject(line_number(), "there is no tab between key and value");
    if (text.find('\t', tab + 1) != std::string_view::npos)
      return reject(line_number(), "there is a second tab (in a value it is written \\t)");
    Entry entry;
    entry.line = line_number();
    if (!unescape_tsv(text.substr(0, tab), &entry.key) || !unescape_tsv(text.substr(tab + 1), &entry.value))
      return reject(line_number(), "a backslash stands before none of t, n, r and backslash");
    emit(std::move(entry));
  }
};

}  // namespace

std::unique_ptr<Parser> make_tsv_parser(Sink sink) { return std::make_unique<TsvParser>(std::move(sink)); }

}  // namespace cantle::client
