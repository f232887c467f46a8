#include "lib/wire/snapshot_file.h"

#include <gtest/gtest.h>

#include "lib/wire/block.h"

namespace cantle::wire {
namespace {

std::string sample() {
  std::string out;
  SnapshotHead head;
  head.server = {"p1"};
  head.interval = {"a", "m"};
  append_snapshot_head(out, head);
  for (int i = 0; i < 3; i++) {
    SnapshotPart part;
    const std::string key = "k" + std::to_string(i);
    model::RecordView r;
    r.key = key;
    r.value = "v";
    r.version = model::Version::make(7, 0, {1}, {1});
    append_record(part.records, r);
    part.count = 1;
    part.through_key = key;
    part.last = i == 2;
    append_snapshot_part(out, part);
  }
  return out;
}

// What a parser makes of it: number of items, then whether it is complete, then the error.
std::string parse(std::string_view bytes, size_t step) {
  SnapshotParser parser;
  SnapshotParser::Item item;
  int items = 0;
  for (size_t at = 0; at < bytes.size(); at += step) {
    parser.feed(bytes.substr(at, step));
    while (parser.next(&item)) items++;
  }
  return std::to_string(items) + (parser.complete() ? " complete" : " cut") +
         (parser.status() ? "" : " " + parser.status().error().text);
}

TEST(SnapshotFile, comes_back_in_pieces_of_any_size) {
  const auto bytes = sample();
  for (size_t step : {size_t{1}, size_t{7}, bytes.size()}) EXPECT_EQ(parse(bytes, step), "4 complete");
}

TEST(SnapshotFile, cut_anywhere_is_never_complete) {
  const auto bytes = sample();
  for (size_t n = 0; n < bytes.size(); n++)
    EXPECT_EQ(parse(std::string_view(bytes).substr(0, n), 64).find("complete"), std::string::npos) << n;
}

TEST(SnapshotFile, a_flipped_bit_anywhere_is_noticed) {
  const auto good = sample();
  for (size_t n = 0; n < good.size(); n++) {
    auto bytes = good;
    bytes[n] = static_cast<char>(bytes[n] ^ 0x10);
    EXPECT_NE(parse(bytes, 4096), "4 complete") << n;
  }
}

TEST(SnapshotFile, claims_of_huge_parts_and_trailing_bytes_are_refused) {
  std::string bytes;
  append_snapshot_head(bytes, {});
  bytes += std::string("\x7f\xff\xff\xff\x00\x00\x00\x00", 8);
  EXPECT_NE(parse(bytes, 4096).find("a part of"), std::string::npos);
  EXPECT_NE(parse(sample() + "x", 4096).find("behind the last part"), std::string::npos);
}

}  // namespace
}  // namespace cantle::wire
