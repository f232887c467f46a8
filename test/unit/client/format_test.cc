#include "lib/client/format.h"

#include <gtest/gtest.h>

#include <vector>

#include "lib/base/random.h"

namespace cantle::client {
namespace {

struct Read {
  std::vector<Entry> entries;
  std::vector<Rejected> rejected;
};

// Fed in pieces of `piece` bytes, so that every cut is tried.
Read read(Format format, std::string_view text, const std::string& key_field = "", size_t piece = SIZE_MAX) {
  Read r;
  auto parser = make_parser(format, {.key_field = key_field},
                            {.entry = [&](Entry&& e) { r.entries.push_back(std::move(e)); },
                             .rejected = [&](Rejected&& x) { r.rejected.push_back(std::move(x)); }});
  EXPECT_TRUE(parser.has_value());
  while (!text.empty()) {
    (*parser)->feed(text.substr(0, piece));
    text.remove_prefix(std::min(piece, text.size()));
  }
  (*parser)->finish();
  return r;
}
Entry entry(std::string key, std::string value, uint64_t line) {
  return {.key = std::move(key), .value = std::move(value), .line = line};
}

TEST(Deb822, a_stanza_is_a_record_with_its_newlines_wherever_the_input_is_cut) {
  const std::string text =
      "\n\nPackage: a\nDescription: x\n .\n y\n\n\nSource: z\npackage:  b-c \nX: 1\n \nPackage: last";
  const std::vector<Entry> want = {entry("a", "Package: a\nDescription: x\n .\n y\n", 3),
                                   entry("b-c", "Source: z\npackage:  b-c \nX: 1\n", 9),
                                   entry("last", "Package: last", 13)};
  for (size_t piece = 1; piece < text.size() + 1; ++piece) {
    const auto r = read(Format::deb822, text, "", piece);
    EXPECT_EQ(r.entries, want) << "piece " << piece;
    EXPECT_TRUE(r.rejected.empty());
  }
}

TEST(Deb822, what_cannot_be_a_record_is_rejected_with_its_line_and_the_rest_is_read) {
  const std::string big(model::kValueMax, 'x');
  const auto r =
      read(Format::deb822, "Foo: 1\n Package: no\n\nPackage: big\nD: " + big +
                               "\nE: 1\n\nPackage:\nA: b\n\nPackage: " + std::string(481, 'k') + "\n\nPackage: ok\n");
  ASSERT_EQ(r.rejected.size(), 4u);
  EXPECT_EQ(r.rejected[0], (Rejected{1, "the stanza has no field Package"}));
  EXPECT_EQ(r.rejected[1].line, 4u);
  EXPECT_EQ(r.rejected[2], (Rejected{8, "the stanza has no field Package"}));
  EXPECT_EQ(r.rejected[3], (Rejected{11, "the key has 481 bytes, over 480"}));
  EXPECT_EQ(r.entries, (std::vector<Entry>{entry("ok", "Package: ok\n", 13)}));
}

TEST(Deb822, another_field_may_be_the_key) {
  EXPECT_EQ(read(Format::deb822, "Package: a\nSource: s\n", "Source").entries.at(0).key, "s");
}

TEST(Tsv, escapes_stand_for_what_would_end_a_field_or_a_line) {
  const auto r = read(Format::tsv, "k\\t1\ta\\nb\\\\c\\r\n\nx\t\nno tab\na\tb\tc\nbad\\x\t1\nend\\\t1\n");
  EXPECT_EQ(r.entries, (std::vector<Entry>{entry("k\t1", "a\nb\\c\r", 1), entry("x", "", 3)}));
  ASSERT_EQ(r.rejected.size(), 4u);
  EXPECT_EQ(r.rejected[0].line, 4u);
  EXPECT_EQ(r.rejected[3].line, 7u);
}

TEST(Jsonl, records_deletes_and_bytes) {
  const auto r = read(Format::jsonl,
                      "{\"key\": \"a\", \"value\": \"\\u00e9\\ud83d\\ude00\\n\"}\n"
                      "{\"value_b64\":\"AP8=\",\"key\":\"%FE\",\"key_b64\":\"/g==\"}\n"
                      "{\"key\":\"gone\",\"deleted\":true}\n"
                      "{\"key\":\"v\",\"value\":\"1\",\"version\":\"00\"}\n");
  EXPECT_TRUE(r.rejected.empty());
  ASSERT_EQ(r.entries.size(), 4u);
  EXPECT_EQ(r.entries[0], entry("a", "\xc3\xa9\xf0\x9f\x98\x80\n", 1));
  EXPECT_EQ(r.entries[1], entry("\xfe", std::string("\0\xff", 2), 2));
  EXPECT_TRUE(r.entries[2].deleted);
}

TEST(Jsonl, what_is_not_a_record_is_rejected_and_says_why) {
  const std::vector<std::string> bad = {
      "nonsense",
      "[]",
      "{",
      "{\"key\":1,\"value\":\"x\"}",
      "{\"key\":\"a\"}",
      "{\"value\":\"a\"}",
      "{\"key\":\"a\",\"value\":\"b\"} x",
      "{\"key\":\"a\",\"value\":\"b\",\"valeu\":1}",
      "{\"key\":\"a\",\"key\":\"b\",\"value\":\"\"}",
      "{\"key\":\"\",\"value\":\"\"}",
      "{\"key\":\"a\",\"value\":\"\\ud800\"}",
      "{\"key\":\"a\",\"value\":\"\xff\"}",
      "{\"key_b64\":\"0\",\"value\":\"\"}",
      "{\"key\":\"a\",\"value\":\"b\",\"deleted\":true}",
      "{\"key\":\"a\",\"value\":\"b\",}",
      "{\"key\":\"a\",\"value\":01}",
      "{\"key\":\"a\",\"value\":\"b\",\"version\":" + std::string(100, '[') + std::string(100, ']') + "}"};
  for (const auto& line : bad) {
    const auto r = read(Format::jsonl, line + "\n");
    EXPECT_TRUE(r.entries.empty()) << line;
    ASSERT_EQ(r.rejected.size(), 1u) << line;
    EXPECT_FALSE(r.rejected[0].why.empty());
  }
}

TEST(Jsonl, a_key_field_makes_any_object_a_record) {
  const auto r =
      read(Format::jsonl, "{\"id\": 17, \"x\": {\"y\": [1, 2.5e-3, null]}}\n{\"id\":[]}\n{\"no\":1}\n", "id");
  EXPECT_EQ(r.entries, (std::vector<Entry>{entry("17", "{\"id\": 17, \"x\": {\"y\": [1, 2.5e-3, null]}}", 1)}));
  EXPECT_EQ(r.rejected.size(), 2u);
}

TEST(Format, an_overlong_line_is_one_rejection_and_costs_no_memory) {
  Read r;
  auto parser = make_parser(Format::tsv, {},
                            {.entry = [&](Entry&& e) { r.entries.push_back(std::move(e)); },
                             .rejected = [&](Rejected&& x) { r.rejected.push_back(std::move(x)); }});
  const std::string part(1 << 20, 'x');
  for (int i = 0; i < 40; ++i) (*parser)->feed(part);
  (*parser)->feed("\na\tb\n");
  (*parser)->finish();
  EXPECT_EQ(r.entries, (std::vector<Entry>{entry("a", "b", 2)}));
  ASSERT_EQ(r.rejected.size(), 1u);
  EXPECT_EQ(r.rejected[0].line, 1u);
}

TEST(Format, what_is_written_is_read_back) {
  base::SeededRandom random(7);
  for (const Format format : {Format::jsonl, Format::tsv}) {
    std::string text;
    std::vector<Entry> want;
    for (uint64_t i = 0; i < 300; ++i) {
      Entry e;
      e.line = i + 1;
      for (uint64_t n = 1 + random.below(20); n > 0; --n) e.key += static_cast<char>(random.below(256));
      for (uint64_t n = random.below(200); n > 0; --n)
        e.value += static_cast<char>(i % 2 ? random.below(256) : ' ' + random.below(90));
      write_entry(format, e.key, e.value, &text);
      want.push_back(std::move(e));
    }
    const auto r = read(format, text, "", 13);
    EXPECT_EQ(r.entries, want);
  }
  std::string stanza;
  write_entry(Format::deb822, "a", "Package: a\nB: c\n", &stanza);
  EXPECT_EQ(stanza, "Package: a\nB: c\n\n");
}

}  // namespace
}  // namespace cantle::client
