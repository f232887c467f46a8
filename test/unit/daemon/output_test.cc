// Exit statuses, JSON, tables.
#include "lib/daemon/output.h"

#include <gtest/gtest.h>

#include <cmath>

#include "lib/base/utf8.h"
#include "lib/daemon/exit.h"
#include "lib/daemon/json.h"

namespace cantle::daemon {
namespace {

using base::Code;

TEST(Exit, every_code_has_the_status_of_interface_md) {
  const std::pair<Code, int> cases[] = {
      {Code::invalid, 1},        {Code::malformed, 1},     {Code::too_large, 1},  {Code::faulted, 1},
      {Code::io_error, 1},       {Code::no_space, 1},      {Code::corrupt, 1},    {Code::diverged, 1},
      {Code::not_found, 3},      {Code::no_such_table, 3}, {Code::conflict, 4},   {Code::condition_failed, 4},
      {Code::exists, 4},         {Code::not_empty, 4},     {Code::usage, 64},     {Code::unavailable, 69},
      {Code::stale_route, 75},   {Code::not_leader, 75},   {Code::no_quorum, 75}, {Code::catching_up, 75},
      {Code::overloaded, 75},    {Code::read_only, 75},    {Code::denied, 77},    {Code::identity, 78},
      {Code::outcome_unknown, 7}};
  for (const auto& [code, status] : cases) EXPECT_EQ(exit_status({code, "x"}), status) << base::code_name(code);
  EXPECT_EQ(exit_status(unsafe("dropping loses 3 records", "--accept-loss")), 5);
}

TEST(Json, nests_and_separates) {
  Json j;
  j.object().member("a", 1).member("b", true).member("s", "x");
  j.key("list").array().number(1).text("two").null().object().end().array().end().end();
  j.key("empty").object().end().end();
  EXPECT_EQ(j.str(), R"({"a":1,"b":true,"s":"x","list":[1,"two",null,{},[]],"empty":{}})");
}

TEST(Json, escapes_what_must_be) {
  Json j;
  j.object().member("q\"\\", "\n\t\x01\x7f/ü€😀").end();
  EXPECT_EQ(j.str(), "{\"q\\\"\\\\\":\"\\n\\t\\u0001\\u007f/ü€😀\"}");
}

TEST(Json, bytes_that_are_no_text_are_escaped_and_given_in_base64) {
  Json j;
  j.object().bytes("key", "plain ü").bytes("value", std::string("a\xff\x00z", 4)).end();
  EXPECT_EQ(j.str(), R"({"key":"plain ü","value":"a%ff%00z","value_b64":"Yf8Aeg=="})");
  Json text;
  text.object().member("t", "a\xffz").end();
  EXPECT_EQ(text.str(), R"({"t":"a\ufffdz"})");
}

TEST(Json, numbers_read_back_the_same) {
  Json j;
  j.array().number(UINT64_MAX).number(INT64_MIN).real(0.1).real(1e300).real(3).real(std::nan("")).end();
  EXPECT_EQ(j.str(), "[18446744073709551615,-9223372036854775808,0.1,1e+300,3,null]");
}

TEST(Json, utf8_is_checked_strictly) {
  for (const char* good : {"", "a", "ü", "€", "😀", "\xf4\x8f\xbf\xbf"}) EXPECT_TRUE(base::is_utf8(good)) << good;
  for (const char* bad :
       {"\x80", "\xc0\x80", "\xc3", "\xe0\x80\x80", "\xed\xa0\x80", "\xf0\x80\x80\x80", "\xf4\x90\x80\x80", "\xff"})
    EXPECT_FALSE(base::is_utf8(bad));
}

TEST(Json, base64_of_every_remainder) {
  EXPECT_EQ(to_base64(""), "");
  EXPECT_EQ(to_base64("f"), "Zg==");
  EXPECT_EQ(to_base64("fo"), "Zm8=");
  EXPECT_EQ(to_base64("foo"), "Zm9v");
  EXPECT_EQ(to_base64("foobar"), "Zm9vYmFy");
}

class Output : public testing::Test {
 protected:
  Output() { capture_output(&out); }
  ~Output() override { capture_output(nullptr); }
  void rows(Format format) {
    Printer p(format, {"id", "lag", "up", "key", "note"});
    p.row({"p1", uint64_t{5}, true, Bytes{std::string("a\xff", 2)}, Missing{}});
    p.row({"ü22", 12345, false, Bytes{"k"}, "two\twords"});
  }
  std::string out;
};

TEST_F(Output, a_table_is_aligned) {
  rows(Format::table);
  EXPECT_EQ(out,
            "id     lag  up   key   note\n"
            "p1       5  yes  a%ff  -\n"
            "ü22  12345  no   k     two\twords\n");
}

TEST_F(Output, json_is_one_object_a_line) {
  rows(Format::json);
  EXPECT_EQ(out,
            "{\"id\":\"p1\",\"lag\":5,\"up\":true,\"key\":\"a%ff\",\"key_b64\":\"Yf8=\",\"note\":null}\n"
            "{\"id\":\"ü22\",\"lag\":12345,\"up\":false,\"key\":\"k\",\"note\":\"two\\twords\"}\n");
}

TEST_F(Output, tsv_keeps_bytes_and_escapes_its_separators) {
  rows(Format::tsv);
  EXPECT_EQ(out, "p1\t5\tyes\ta\xff\t\nü22\t12345\tno\tk\ttwo\\twords\n");
}

TEST_F(Output, name_is_the_first_column) {
  rows(Format::name);
  EXPECT_EQ(out, "p1\nü22\n");
}

TEST_F(Output, objects_in_every_form) {
  const std::vector<std::pair<std::string, Cell>> members = {{"table", "orders"}, {"n", 3}, {"more", JsonValue{"[1]"}}};
  print_object(Format::table, members);
  print_object(Format::json, members);
  print_object(Format::tsv, members);
  print_object(Format::name, members);
  EXPECT_EQ(out,
            "table  orders\nn      3\nmore   [1]\n"
            "{\"table\":\"orders\",\"n\":3,\"more\":[1]}\n"
            "table\torders\nn\t3\nmore\t[1]\n"
            "orders\n");
}

TEST_F(Output, forms_have_names) {
  EXPECT_EQ(*parse_format("json"), Format::json);
  EXPECT_EQ(parse_format("xml").error().code, Code::usage);
}

}  // namespace
}  // namespace cantle::daemon
