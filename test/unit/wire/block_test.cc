#include "lib/wire/block.h"

#include <gtest/gtest.h>

#include "lib/base/random.h"

namespace cantle::wire {
namespace {

using model::BlockHeader;
using model::BlockKind;
using model::Record;

Record record(std::string key, std::string value, uint64_t ms = 5) {
  return {model::Op::put, std::move(key), std::move(value), model::Version::make(ms, 1, {2}, {3}), 0, 0, 0};
}

BlockHeader header() {
  BlockHeader h;
  base::SeededRandom random(1);
  h.partition = model::PartitionId::draw(random);
  h.region = {7};
  h.epoch = {3};
  h.first = {42};
  h.records = 2;
  h.prev_epoch = {2};
  h.prev_lsn = {41};
  h.prev_crc = 0xdeadbeef;
  h.commit = {41};
  h.leader_ms = 1700000000000;
  h.elapsed_ms = 60000;
  return h;
}

std::string encoded(const BlockHeader& h) {
  std::string bytes(kBlockHeaderSize, '\0');
  encode_header(h, bytes.data());
  return bytes;
}

TEST(Block, header_round_trips_every_field) {
  auto h = header();
  seal_block(h, "payload");
  EXPECT_EQ(decode_header(encoded(h)).value(), h);
  EXPECT_EQ(h.length, 7U);
}

TEST(Block, any_flipped_bit_of_the_header_is_noticed) {
  auto h = header();
  seal_block(h, "payload");
  const auto bytes = encoded(h);
  for (size_t bit = 0; bit < bytes.size() * 8; bit++) {
    auto bad = bytes;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << (bit % 8)));
    EXPECT_FALSE(decode_header(bad).has_value()) << "bit " << bit;
  }
  EXPECT_FALSE(decode_header(bytes.substr(1)).has_value());
}

TEST(Block, what_mends_a_block_is_that_block_but_for_its_kind) {
  for (const auto kind : {BlockKind::data, BlockKind::epoch_start, BlockKind::cut, BlockKind::uncut}) {
    BlockHeader h = header();
    h.kind = kind;
    seal_block(h, "payload");
    const auto mended = as_mended(h);
    EXPECT_TRUE(model::is_mended(mended.kind));
    EXPECT_FALSE(model::is_log_block(mended.kind));
    const auto read = decode_header(encoded(mended));
    ASSERT_TRUE(read);
    EXPECT_EQ(*read, mended);
    EXPECT_TRUE(check_payload(*read, "payload"));
    EXPECT_EQ(of_mended(*read), h);
  }
}

TEST(Block, payload_is_bound_to_its_header) {
  auto h = header();
  seal_block(h, "payload");
  EXPECT_TRUE(check_payload(h, "payload").has_value());
  EXPECT_EQ(check_payload(h, "paylaod").error().code, base::Code::corrupt);
  EXPECT_FALSE(check_payload(h, "payloa").has_value());
}

TEST(Block, headers_over_their_limits_are_refused) {
  const auto refused = [](auto change) {
    auto h = header();
    change(h);
    if (h.length == 0) seal_block(h, "");
    return !decode_header(encoded(h)).has_value();
  };
  EXPECT_FALSE(refused([](BlockHeader&) {}));
  EXPECT_TRUE(refused([](BlockHeader& h) { h.first = {0}; }));
  EXPECT_TRUE(refused([](BlockHeader& h) { h.first = {44}; }));
  EXPECT_TRUE(refused([](BlockHeader& h) { h.records = 0; }));
  EXPECT_TRUE(refused([](BlockHeader& h) { h.kind = static_cast<BlockKind>(9); }));
  EXPECT_TRUE(refused([](BlockHeader& h) { h.kind = BlockKind::seal; }));
}

TEST(Block, records_round_trip_and_sizes_are_right) {
  std::vector<Record> records{record("k", ""), record("key", std::string(300, 'v'), uint64_t{1} << 40),
                              record(std::string(480, 'k'), std::string(70000, 'x'))};
  records.push_back({model::Op::del, "gone", "", model::Version::make(9, 0, {1}, {1}), 300, uint64_t{1} << 33, 200});
  std::string payload;
  for (const auto& r : records) {
    const auto before = payload.size();
    append_record(payload, view_of(r));
    EXPECT_EQ(payload.size() - before, encoded_size(view_of(r)));
  }
  RecordReader in(payload);
  model::RecordView r;
  for (const auto& expected : records) {
    ASSERT_TRUE(in.next(r));
    EXPECT_EQ(own(r), expected);
  }
  EXPECT_FALSE(in.next(r));
  EXPECT_TRUE(in.status().has_value());
  EXPECT_EQ(in.offset(), payload.size());
}

TEST(Block, a_cut_payload_yields_the_whole_records_and_then_an_error) {
  std::string payload;
  append_record(payload, view_of(record("a", "1")));
  const auto one = payload.size();
  append_record(payload, view_of(record("b", "2")));
  for (size_t n = one + 1; n < payload.size(); n++) {
    const auto cut = payload.substr(0, n);
    RecordReader in(cut);
    model::RecordView r;
    EXPECT_TRUE(in.next(r));
    EXPECT_FALSE(in.next(r));
    EXPECT_EQ(in.status().error().code, base::Code::malformed);
    EXPECT_EQ(in.offset(), one);
  }
}

TEST(Block, random_bytes_never_yield_a_record_over_its_limits) {
  base::SeededRandom random(7);
  std::string base;
  for (int i = 0; i < 4; i++) append_record(base, view_of(record("key" + std::to_string(i), "value")));
  for (int round = 0; round < 20000; round++) {
    auto bytes = base;
    for (int flips = 0; flips < 3; flips++) bytes[random.below(bytes.size())] = static_cast<char>(random.u64());
    RecordReader in(bytes);
    for (model::RecordView r; in.next(r);) {
      ASSERT_LE(r.key.size(), model::kKeyMax);
      ASSERT_GE(r.key.size(), 1U);
      ASSERT_GE(r.key.data(), bytes.data());
      ASSERT_LE(r.value.data() + r.value.size(), bytes.data() + bytes.size());
    }
  }
}

TEST(Block, check_and_filter_see_the_interval) {
  std::string payload;
  for (const char* key : {"a", "c", "e"})
    append_record(payload, view_of(record(key, key, static_cast<uint64_t>(key[0]))));
  const auto info = check_records(payload, {"a", "d"}).value();
  EXPECT_EQ(info.records, 3U);
  EXPECT_FALSE(info.inside);
  EXPECT_EQ(info.highest.ms(), static_cast<uint64_t>('e'));
  EXPECT_TRUE(check_records(payload, {"a", ""}).value().inside);
  uint32_t count = 0;
  const auto part = filter_records(payload, {"b", "e"}, &count);
  EXPECT_EQ(count, 1U);
  EXPECT_TRUE(check_records(part, {"c", "d"}).value().inside);
}

TEST(Block, a_records_series_and_flags_stay_whatever_is_done_with_it) {
  model::Record r = record("k", "7");
  r.client = 0xfedcba9876543210;
  r.series = 300;
  r.flags = 0xfd;
  std::string payload;
  append_record(payload, view_of(r));
  EXPECT_EQ(payload.size(), encoded_size(view_of(r)));
  model::Record plain = record("l", "8");
  append_record(payload, view_of(plain));
  ASSERT_TRUE(stamp_records(payload, {9}, {70}));
  uint32_t count = 0;
  const auto kept = filter_records(payload, {"k", "l"}, &count);
  EXPECT_EQ(count, 1U);
  r.version = model::quorum_version({9}, {70});
  plain.version = model::quorum_version({9}, {71});
  for (const auto& bytes : {payload, kept}) {
    RecordReader in(bytes);
    model::RecordView view;
    ASSERT_TRUE(in.next(view));
    EXPECT_EQ(own(view), r);
    if (in.next(view)) {
      EXPECT_EQ(own(view), plain);
    }
    EXPECT_TRUE(in.status());
  }
}

}  // namespace
}  // namespace cantle::wire
