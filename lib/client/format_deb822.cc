#include <strings.h>

#include "lib/client/format.h"

namespace cantle::client {
namespace {

bool same_word(std::string_view a, std::string_view b) {
  return a.size() == b.size() && ::strncasecmp(a.data(), b.data(), a.size()) == 0;
}

std::string_view trim(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t' || text.back() == '\r')) text.remove_suffix(1);
  return text;
}

class Deb822Parser final : public Parser {
 public:
  Deb822Parser(std::string key_field, Sink sink) : Parser(std::move(sink)), key_field_(std::move(key_field)) {}

 private:
  void line(std::string_view text, bool ended) override {
    if (trim(text).empty()) return end_stanza();
    if (stanza_.empty()) begins_ = line_number();
    // An overlong stanza is remembered only as such: it will be rejected, whatever else it says.
    if (bytes_ <= model::kValueMax) stanza_.append(text).append(ended ? "\n" : "");
    bytes_ += text.size() + (ended ? 1 : 0);
    look_for_key(text);
  }
  void end() override { end_stanza(); }

  void look_for_key(std::string_view text) {
    if (!key_.empty() || text.front() == ' ' || text.front() == '\t' || text.front() == '#') return;
    const size_t colon = text.find(':');
    if (colon == std::string_view::npos || !same_word(text.substr(0, colon), key_field_)) return;
    key_ = trim(text.substr(colon + 1));
  }

  void end_stanza() {
    if (stanza_.empty()) return;
    if (bytes_ > model::kValueMax) {
      reject(begins_, "the stanza has " + std::to_string(bytes_) + " bytes, over " + std::to_string(model::kValueMax));
    } else if (key_.empty()) {
      reject(begins_, "the stanza has no field " + key_field_);
    } else {
      emit({.key = std::move(key_), .value = std::move(stanza_), .line = begins_});
    }
    key_.clear();
    stanza_.clear();
    bytes_ = 0;
  }

  const std::string key_field_;
  std::string stanza_, key_;
  size_t bytes_ = 0;
  uint64_t begins_ = 0;
};

}  // namespace

std::unique_ptr<Parser> make_deb822_parser(std::string key_field, Sink sink) {
  return std::make_unique<Deb822Parser>(std::move(key_field), std::move(sink));
}

}  // namespace cantle::client
