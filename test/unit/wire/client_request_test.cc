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

// --- series, cas, append, incr ------------------------------------------------------------------

TEST(ClientRequest, a_write_may_say_which_of_its_clients_it_is) {
  auto p = put();
  p.client = 77;
  p.series = 100;
  p.series_low = 37;
  p.age_ms = 1500;
  const auto bytes = encode(p);
  const auto got = decode_put(bytes);
  ASSERT_TRUE(got);
  EXPECT_EQ(got->kind, WriteKind::write);
  EXPECT_EQ(got->client, 77U);
  EXPECT_EQ(got->series, 100U);
  EXPECT_EQ(got->series_low, 37U);
  EXPECT_EQ(got->age_ms, 1500U);
  model::BatchRequest b;
  b.table = "t";
  b.ops = {{model::Op::put, "a", "1"}};
  b.client = 1;
  b.series = UINT64_MAX;
  EXPECT_EQ(decode_batch(encode(b))->series, UINT64_MAX);
  model::DeleteRequest d;
  d.table = "t";
  d.key = "k";
  d.client = 1;
  d.series = 2;
  EXPECT_EQ(decode_delete(encode(d))->client, 1U);
  EXPECT_EQ(decode_put(encode(put()))->client, 0U);
}

TEST(ClientRequest, half_a_series_or_one_that_would_forget_is_refused) {
  const auto asked = [](uint64_t client, uint64_t series, uint64_t low) {
    auto p = put();
    p.client = client;
    p.series = series;
    p.series_low = low;
    return code(decode_put(encode(p)));
  };
  EXPECT_EQ(asked(1, 0, 0), Code::invalid);
  EXPECT_EQ(asked(0, 1, 0), Code::invalid);
  EXPECT_EQ(asked(0, 0, 1), Code::invalid);
  EXPECT_EQ(asked(1, 5, 6), Code::invalid);
  EXPECT_EQ(asked(1, 5, 5), Code{});
  EXPECT_EQ(asked(1, 64, 1), Code{});
  EXPECT_EQ(asked(1, 65, 1), Code::invalid);
  EXPECT_EQ(asked(1, UINT64_MAX, 1), Code::invalid);
}

model::CasRequest cas() {
  model::CasRequest r;
  r.table = "t";
  r.key = "k";
  r.value = "new";
  r.expect.value = "old";
  return r;
}

TEST(ClientRequest, a_cas_says_what_it_expects) {
  auto r = cas();
  r.client = 3;
  r.series = 4;
  const auto bytes = encode(r);
  const auto got = decode_cas(bytes);
  ASSERT_TRUE(got);
  EXPECT_EQ(got->kind, WriteKind::cas);
  EXPECT_EQ(got->ops.at(0).op, model::Op::put);
  EXPECT_EQ(got->ops.at(0).value, "new");
  EXPECT_EQ(got->keys, (std::vector<std::string_view>{"k"}));
  EXPECT_EQ(got->expect.value, "old");
  EXPECT_FALSE(got->expect.version || got->expect.absent);
  EXPECT_EQ(got->series, 4U);
  r.expect = {};
  r.expect.version = model::quorum_version({3}, {9});
  EXPECT_EQ(decode_cas(encode(r))->expect.version, r.expect.version);
  r.expect = {};
  r.expect.absent = true;
  EXPECT_TRUE(decode_cas(encode(r))->expect.absent);
  r.expect = {};
  r.expect.value = "";  // an empty value is one
  EXPECT_EQ(decode_cas(encode(r))->expect.value, "");
}

TEST(ClientRequest, a_cas_that_expects_nothing_or_too_much_is_refused) {
  auto r = cas();
  r.expect = {};
  EXPECT_EQ(code(decode_cas(encode(r))), Code::invalid);
  r.expect.value = "x";
  r.expect.absent = true;
  EXPECT_EQ(code(decode_cas(encode(r))), Code::invalid);
  r = cas();
  r.expect.version = model::quorum_version({3}, {9});
  EXPECT_EQ(code(decode_cas(encode(r))), Code::invalid);
  r = cas();
  r.expect.value = std::string(model::kValueMax + 1, 'v');
  EXPECT_EQ(code(decode_cas(encode(r))), Code::too_large);
  r = cas();
  r.op = model::Op::del;
  EXPECT_EQ(code(decode_cas(encode(r))), Code::invalid);  // with a value
  r.value = "";
  EXPECT_EQ(decode_cas(encode(r))->ops.at(0).op, model::Op::del);
  r.op = static_cast<model::Op>(3);
  EXPECT_EQ(code(decode_cas(encode(r))), Code::invalid);
  r = cas();
  r.key = std::string(model::kKeyMax + 1, 'k');
  EXPECT_EQ(code(decode_cas(encode(r))), Code::too_large);
  // The condition of a wrong shape, and one field of it twice.
  const auto shaped = [](auto expect) {
    std::string bytes;
    Writer w(bytes);
    w.map(3);
    w.str("table");
    w.str("t");
    w.str("key");
    w.str("k");
    w.str("expect");
    expect(w);
    return code(decode_cas(bytes));
  };
  EXPECT_EQ(shaped([](Writer& w) { w.uint(1); }), Code::malformed);
  EXPECT_EQ(shaped([](Writer& w) {
              w.map(2);
              w.str("value");
              w.bin("a");
              w.str("value");
              w.bin("b");
            }),
            Code::malformed);
  EXPECT_EQ(shaped([](Writer& w) {
              w.map(1);
              w.str("version");
              w.bin("short");
            }),
            Code::invalid);
  EXPECT_EQ(shaped([](Writer& w) {
              w.map(1);
              w.str("absent");
              w.boolean(true);
            }),
            Code{});
}

TEST(ClientRequest, append_and_incr_say_what_is_added) {
  model::AppendRequest a;
  a.table = "t";
  a.key = "k";
  a.value = "more";
  const auto bytes = encode(a);
  const auto append = decode_append(bytes);
  ASSERT_TRUE(append);
  EXPECT_EQ(append->kind, WriteKind::append);
  EXPECT_EQ(append->ops.at(0).value, "more");
  a.value = std::string(model::kValueMax + 1, 'v');
  EXPECT_EQ(code(decode_append(encode(a))), Code::too_large);

  model::IncrRequest i;
  i.table = "t";
  i.key = "k";
  for (const int64_t by : {int64_t{1}, int64_t{-5}, INT64_MAX, INT64_MIN}) {
    i.by = by;
    const auto incr = decode_incr(encode(i));
    ASSERT_TRUE(incr);
    EXPECT_EQ(incr->kind, WriteKind::incr);
    EXPECT_EQ(incr->by, by);
  }
  std::string wide;
  Writer w(wide);
  w.map(2);
  w.str("key");
  w.str("k");
  w.str("by");
  w.uint(uint64_t{1} << 63);
  EXPECT_EQ(code(decode_incr(wide)), Code::malformed);
  i.client = 4;
  EXPECT_EQ(code(decode_incr(encode(i))), Code::invalid);
  i.key = "";
  EXPECT_EQ(code(decode_incr(encode(i))), Code::invalid);
}

TEST(ClientRequest, an_answer_leaves_out_what_it_does_not_say) {
  model::WriteReply plain;
  const auto bare = encode(plain);
  EXPECT_EQ(bare.find("result"), std::string::npos);
  EXPECT_EQ(bare.find("repeat"), std::string::npos);
  model::WriteReply r;
  r.result = -7;
  r.repeat = true;
  const auto got = decode<model::WriteReply>(encode(r));
  ASSERT_TRUE(got);
  EXPECT_EQ(got->result, -7);
  EXPECT_EQ(got->repeat, true);
}

}  // namespace
}  // namespace cantle::wire
