// Structs to maps and back, and what is wrong said where it is.
#include "lib/wire/codec.h"

#include <gtest/gtest.h>

#include "lib/base/random.h"
#include "lib/model/fields.h"
#include "lib/model/messages.h"
#include "lib/model/quorum.h"

namespace cantle::wire {
namespace {

using base::Code;

enum class Colour : uint8_t { red = 1, blue = 200 };

struct Inner {
  uint32_t n = 5;
  std::string s;
  CANTLE_FIELDS(n, s)
  friend bool operator==(const Inner&, const Inner&) = default;
};
struct Everything {
  bool flag = false;
  uint64_t big = 0;
  int32_t below = 0;
  double real = 0;
  Colour colour = Colour::red;
  std::string bytes;
  Text text;
  model::TxnId txn;
  model::Lsn lsn;
  model::Region region;
  model::ServerId server;
  model::Version version;
  base::Sha256 sha{};
  base::Hash128 hash;
  std::vector<Inner> list;
  std::map<std::string, uint64_t> table;
  std::optional<Inner> maybe;
  std::optional<uint64_t> absent;
  CANTLE_FIELDS(flag, big, below, real, colour, bytes, text, txn, lsn, region, server, version, sha, hash, list, table,
                maybe, absent)
  friend bool operator==(const Everything&, const Everything&) = default;
};

Everything sample() {
  base::SeededRandom random(3);
  Everything e;
  e.flag = true;
  e.big = UINT64_MAX;
  e.below = -70000;
  e.real = 0.25;
  e.colour = Colour::blue;
  e.bytes = std::string("\0\xff x", 4);
  e.text = {"text"};
  e.txn = model::TxnId::draw(random);
  e.lsn = {1u << 20};
  e.region = {77};
  e.server = {"p1"};
  e.version = model::Version::make(123456789, 5, {3}, {9});
  e.sha = base::sha256("x");
  e.hash = base::hash128("y");
  e.list = {{1, "a"}, {2, "b"}};
  e.table = {{"a", 1}, {"b", 2}};
  e.maybe = Inner{9, "z"};
  return e;
}

std::string map_of(const std::function<void(Writer&)>& fill) {
  std::string out;
  Writer w(out);
  fill(w);
  return out;
}

TEST(Codec, brings_every_type_back) {
  const auto e = sample();
  const auto back = decode<Everything>(encode(e));
  ASSERT_TRUE(back) << to_string(back.error());
  EXPECT_EQ(*back, e);
  EXPECT_EQ(*decode<Everything>(encode(Everything{})), Everything{});
}

TEST(Codec, brings_messages_back) {
  base::SeededRandom random(4);
  model::PushWrite write;
  write.envelope.table = "orders";
  write.envelope.partition = model::PartitionId::draw(random);
  write.envelope.from = {"p2"};
  write.records = "abc";
  write.count = 1;
  const auto back = decode<model::PushWrite>(encode(write));
  ASSERT_TRUE(back);
  EXPECT_EQ(back->envelope.partition, write.envelope.partition);
  EXPECT_EQ(back->records, "abc");
}

TEST(Codec, brings_beacons_and_their_answers_back) {
  base::SeededRandom random(5);
  const auto partition = model::PartitionId::draw(random);
  const model::QuorumBeacon beacon{
      {"p1"}, {7}, 41, 1700000000000, {{partition, {9}, model::AssignmentId::draw(random)}, {partition, {1}, {}}}};
  EXPECT_EQ(*decode<model::QuorumBeacon>(encode(beacon)), beacon);
  const model::QuorumBeaconReply reply{{"p2"}, {3}, {7}, 41, 1700000000001, {{partition, {10}}}};
  EXPECT_EQ(*decode<model::QuorumBeaconReply>(encode(reply)), reply);
  const model::Vote vote{{4}, {{3}, {99}}, model::AssignmentId::draw(random), {"p3"}, 2, true, {5}};
  EXPECT_EQ(*decode<model::Vote>(encode(vote)), vote);
  const model::Government government{{4}, vote.assignment, {{2, {"p3"}, vote.assignment}}, "p3/5/1"};
  EXPECT_EQ(*decode<model::Government>(encode(government)), government);
}

TEST(Codec, fields_come_in_any_order_and_missing_ones_keep_their_default) {
  const auto bytes = map_of([](Writer& w) {
    w.map(1);
    w.str("s");
    w.bin("only this");
  });
  EXPECT_EQ(*decode<Inner>(bytes), (Inner{5, "only this"}));
  const auto turned = map_of([](Writer& w) {
    w.map(2);
    w.str("s");
    w.str("str is taken for bin");
    w.str("n");
    w.uint(8);
  });
  EXPECT_EQ(*decode<Inner>(turned), (Inner{8, "str is taken for bin"}));
  EXPECT_EQ(*decode<Inner>(""), (Inner{5, ""})) << "no params are an empty map";
}

TEST(Codec, unknown_fields_are_passed_over_and_counted) {
  const auto before = unknown_fields();
  const auto bytes = map_of([](Writer& w) {
    w.map(4);
    w.str("new");
    w.array(2), w.nil(), w.map(0);
    w.str("n");
    w.uint(1);
    w.str("s");
    w.bin("x");
    w.str("newer");
    w.real(1);
  });
  EXPECT_EQ(*decode<Inner>(bytes), (Inner{1, "x"}));
  EXPECT_EQ(unknown_fields() - before, 2u);
}

struct Wrong {
  const char* what;
  std::string bytes;
  const char* in_text;
};

TEST(Codec, what_is_wrong_is_malformed_and_named) {
  const auto with = [](std::string_view field, const std::function<void(Writer&)>& value) {
    return map_of([&](Writer& w) {
      w.map(1);
      w.str(field);
      value(w);
    });
  };
  const Wrong cases[] = {
      {"a type", with("big", [](Writer& w) { w.str("x"); }), "field big: expected unsigned integer, not str"},
      {"a negative number", with("big", [](Writer& w) { w.sint(-1); }), "field big"},
      {"a range", with("region", [](Writer& w) { w.uint(uint64_t{1} << 32); }), "field region: number out of range"},
      {"an enum's range", with("colour", [](Writer& w) { w.uint(256); }), "field colour"},
      {"an id", with("txn", [](Writer& w) { w.bin("short"); }), "field txn: expected 16 bytes, not 5"},
      {"a nested field",
       with("list",
            [](Writer& w) {
              w.array(2);
              w.map(0);
              w.map(1), w.str("n"), w.boolean(true);
            }),
       "field list[1].n: expected unsigned integer, not bool"},
      {"no map", map_of([](Writer& w) { w.array(0); }), "expected map, not array"},
      {"cut short", std::string("\x81\xa3", 2), "cut short"},
      {"trailing bytes", map_of([](Writer& w) { w.map(0), w.nil(); }), "bytes behind"},
      {"a twofold key", with("table", [](Writer& w) { w.map(2), w.bin("k"), w.uint(1), w.bin("k"), w.uint(2); }),
       "twice"},
      {"a value that is none", with("x", [](Writer& w) { w.raw("\xc1"); }), "broken"},
      {"depth", with("x", [](Writer& w) { w.raw(std::string(20, '\x91') + "\x01"); }), "broken or nested"},
  };
  for (const auto& c : cases) {
    const auto result = decode<Everything>(c.bytes);
    ASSERT_FALSE(result) << c.what;
    EXPECT_EQ(result.error().code, Code::malformed) << c.what;
    EXPECT_NE(result.error().text.find(c.in_text), std::string::npos) << c.what << ": " << result.error().text;
  }
}

TEST(Codec, too_many_fields_are_refused) {
  const auto bytes = map_of([](Writer& w) {
    w.map(kFieldsMax + 1);
    for (uint32_t i = 0; i <= kFieldsMax; ++i) w.str("f" + std::to_string(i)), w.nil();
  });
  EXPECT_FALSE(decode<Inner>(bytes));
}

TEST(Codec, every_cut_of_a_good_message_is_malformed) {
  const auto bytes = encode(sample());
  for (size_t n = 1; n < bytes.size(); ++n) EXPECT_FALSE(decode<Everything>(bytes.substr(0, n))) << n;
}

TEST(Codec, no_flipped_bit_does_harm) {
  const auto bytes = encode(sample());
  for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    auto flipped = bytes;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << (bit % 8)));
    const auto result = decode<Everything>(flipped);
    if (result) encode(*result);  // taken or refused, nothing else
  }
}

struct Views {
  std::string_view key;
  Raw rest;
  CANTLE_FIELDS(key, rest)
};

TEST(Codec, views_point_into_the_input) {
  const std::string inner = encode(Inner{3, "deep"});
  const auto bytes = encode(Views{"key", {inner}});
  const auto views = decode<Views>(bytes);
  ASSERT_TRUE(views);
  EXPECT_EQ(views->key, "key");
  EXPECT_GE(views->key.data(), bytes.data());
  EXPECT_LT(views->key.data(), bytes.data() + bytes.size());
  EXPECT_EQ(decode<Inner>(views->rest.bytes)->s, "deep");
}

}  // namespace
}  // namespace cantle::wire
