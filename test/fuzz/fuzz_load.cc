// What `partc load` reads: jsonl, tsv and deb822.
//
// What holds whatever comes: the same entries and refusals however it is cut, every entry within the limits, and what
// was taken is written and read again the same. The first byte says the format.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/check.h"
#include "lib/client/format.h"

namespace {

using namespace cantle::client;

struct Read {
  std::vector<Entry> entries;
  std::vector<Rejected> rejected;
};

Read read(Format format, std::string_view bytes, size_t step) {
  Read out;
  const auto parser = *make_parser(format, {},
                                   {.entry = [&](Entry&& e) { out.entries.push_back(std::move(e)); },
                                    .rejected = [&](Rejected&& r) { out.rejected.push_back(std::move(r)); }});
  for (size_t at = 0; at < bytes.size(); at += step) parser->feed(bytes.substr(at, step));
  parser->finish();
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const auto format = data[0] == 'j' ? Format::jsonl : data[0] == 't' ? Format::tsv : Format::deb822;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  const auto whole = read(format, bytes, bytes.size());
  const auto pieces = read(format, bytes, 5);
  CHECK(whole.entries == pieces.entries && whole.rejected == pieces.rejected);
  std::string text;
  std::vector<Entry> written;
  for (const auto& e : whole.entries) {
    CHECK(!e.key.empty() && e.key.size() <= cantle::model::kKeyMax && e.value.size() <= cantle::model::kValueMax);
    if (e.deleted) continue;  // no dump has one
    write_entry(format, e.key, e.value, &text);
    written.push_back(e);
  }
  if (text.empty()) return 0;
  const auto again = read(format, text, text.size());
  CHECK(again.rejected.empty() && again.entries.size() == written.size());
  for (size_t n = 0; n < written.size(); n++) {
    auto value = written[n].value;
    // The last stanza of a file may lack its newline, no other can.
    if (format == Format::deb822 && !value.ends_with('\n')) value += '\n';
    CHECK(again.entries[n].key == written[n].key && again.entries[n].value == value);
  }
  return 0;
}
