#include "lib/wire/client_request.h"

#include <gtest/gtest.h>

#include "lib/model/client_messages.h"
#include "lib/wire/codec.h"

namespace cantle::wire {
namespace {

using base::Code;
using model::Level;

model::PutRequest put() {
  model::PutRequest r;
  r.table = "t";
  r.key = "k";
  r.value = "v";
  return r;
}
template <class T>
Code code(const base::Result<T>& r) {
  return r ? Code{} : r.error().code;
}

TEST(ClientRequest, says_what_the_struct_says) {
  auto r = put();
  r.txnseq = {7};
  r.level = Level::all;
  r.hop = false;
  r.deadline_ms = 1234;
  r.version = model::Version::make(5, 6, {7}, {8});
  r.after = model::Version::make(4, 6, {7}, {8});
  const auto bytes = encode(r);
  const auto got = decode_put(bytes);
  ASSERT_TRUE(got);
  EXPECT_EQ(got->table, "t");
  EXPECT_EQ(got->ops.at(0).key, "k");
  EXPECT_EQ(got->ops.at(0).value, "v");
  EXPECT_EQ(got->txnseq.value, 7u);
  EXPECT_EQ(got->level, Level::all);
  EXPECT_FALSE(got->hop);
  EXPECT_EQ(got->deadline(), std::chrono::milliseconds(1234));
  EXPECT_EQ(got->version, r.version);
  EXPECT_EQ(got->after, r.after);
}

TEST(ClientRequest, has_the_defaults_of_the_struct) {
  model::GetRequest get;
  get.table = "t";
  get.key = "k";
  std::string bytes;
  Writer w(bytes);
  w.map(2);
  w.str("key");
  w.str("k");
  w.str("table");
  w.str("t");
  const auto got = decode_get(bytes);
  ASSERT_TRUE(got);
  EXPECT_EQ(got->level, get.level);
  EXPECT_EQ(got->hop, get.hop);
  EXPECT_EQ(got->deadline(), std::chrono::milliseconds(model::kDeadlineDefaultMs));
  EXPECT_EQ(decode_put(encode(put()))->level, put().level);
}

TEST(ClientRequest, unknown_fields_are_passed_over_and_wrong_types_refused) {
  std::string bytes;
  Writer w(bytes);
  w.map(4);
  w.str("colour");
  w.array(2);
  w.uint(1);
  w.nil();
  w.str("key");
  w.bin("k");
  w.str("table");
  w.str("t");
  w.str("level");
  w.uint(2);
  EXPECT_TRUE(decode_get(bytes));
  std::string wrong;
  Writer v(wrong);
  v.map(1);
  v.str("key");
  v.uint(7);
  EXPECT_EQ(code(decode_get(wrong)), Code::malformed);
  EXPECT_EQ(code(decode_get(bytes + "x")), Code::malformed);
  EXPECT_EQ(code(decode_get("\x93\x01\x02\x03")), Code::malformed);
}

// Which of the two counted would depend on who reads it.
TEST(ClientRequest, a_field_that_stands_there_twice_is_refused) {
  for (const bool same : {true, false}) {
    std::string bytes;
    Writer w(bytes);
    w.map(3);
    w.str("key");
    w.bin("a");
    w.str("table");
    w.str("t");
    w.str(same ? "key" : "kez");
    w.bin("b");
    const auto got = decode_get(bytes);
    EXPECT_EQ(got.has_value(), !same);
    if (!got) {
      EXPECT_EQ(got.error().code, Code::malformed);
    }
  }
}

TEST(ClientRequest, limits_have_their_codes) {
  auto r = put();
  r.key = "";
  EXPECT_EQ(code(decode_put(encode(r))), Code::invalid);
  r.key = std::string(model::kKeyMax, 'k');
  EXPECT_TRUE(decode_put(encode(r)));
  r.key += 'k';
  EXPECT_EQ(code(decode_put(encode(r))), Code::too_large);
  r = put();
  r.value = std::string(model::kValueMax, 'v');
  EXPECT_TRUE(decode_put(encode(r)));
  r.value += 'v';
  EXPECT_EQ(code(decode_put(encode(r))), Code::too_large);
  r = put();
  r.level = static_cast<Level>(4);
  EXPECT_EQ(code(decode_put(encode(r))), Code::invalid);
}

TEST(ClientRequest, a_batch_is_checked_whole) {
  model::BatchRequest b;
  b.table = "t";
  EXPECT_EQ(code(decode_batch(encode(b))), Code::invalid);  // empty
  b.ops = {{model::Op::put, "a", "1"}, {model::Op::del, "b", ""}};
  const auto bytes = encode(b);
  const auto got = decode_batch(bytes);
  ASSERT_TRUE(got);
  EXPECT_EQ(got->keys, (std::vector<std::string_view>{"a", "b"}));
  b.ops.push_back({model::Op::put, "a", "2"});
  EXPECT_EQ(code(decode_batch(encode(b))), Code::invalid);  // a key twice
  b.ops = {{model::Op::del, "a", "value"}};
  EXPECT_EQ(code(decode_batch(encode(b))), Code::invalid);
  b.ops = {{static_cast<model::Op>(9), "a", ""}};
  EXPECT_EQ(code(decode_batch(encode(b))), Code::invalid);
  b.ops.assign(model::kBatchRecordsMax + 1, {model::Op::put, "k", ""});
  EXPECT_EQ(code(decode_batch(encode(b))), Code::too_large);
  b.ops.clear();
  for (int i = 0; i < 5; i++)
    b.ops.push_back({model::Op::put, std::string(1, static_cast<char>('a' + i)), std::string(model::kValueMax, 'v')});
  EXPECT_EQ(code(decode_batch(encode(b))), Code::too_large);  // five MiB
}

TEST(ClientRequest, passed_on_it_asks_for_no_other_hop) {
  auto r = put();
  r.deadline_ms = 900;
  const auto bytes = pass_on(encode(r), {42});
  const auto got = decode_put(bytes);
  ASSERT_TRUE(got);
  EXPECT_FALSE(got->hop);
  EXPECT_EQ(got->txnseq.value, 42u);
  EXPECT_EQ(got->ops.at(0).value, "v");
  EXPECT_EQ(got->deadline_ms, 900u);
}

}  // namespace
}  // namespace cantle::wire
