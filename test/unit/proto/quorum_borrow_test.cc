#include "lib/proto/quorum_borrow.h"

#include <gtest/gtest.h>

#include "lib/proto/quorum_follower.h"

namespace cantle::proto::quorum {
namespace {

using model::Epoch;
using model::LogPoint;
using model::Lsn;

model::Hop hop(uint8_t i) {
  return {{"p" + std::to_string(i)}, *model::AssignmentId::from_bytes(std::string(16, static_cast<char>(i)))};
}
LogPoint at(uint64_t epoch, uint64_t lsn) { return {{epoch}, {lsn}, static_cast<uint32_t>(100 * epoch + lsn)}; }
LentBlock block(CallId call, LogPoint before, LogPoint end) {
  LentBlock b;
  b.call = call;
  auto& h = b.header;
  h.kind = model::BlockKind::data;
  h.epoch = end.epoch;
  h.first = before.lsn.next();
  h.records = static_cast<uint32_t>(end.lsn.value - before.lsn.value);
  h.prev_epoch = before.epoch;
  h.prev_lsn = before.lsn;
  h.prev_crc = before.crc;
  h.header_crc = end.crc;
  return b;
}
template <class E>
std::vector<E> all(const Effects& out) {
  std::vector<E> found;
  for (const auto& e : out)
    if (const auto* one = std::get_if<E>(&e)) found.push_back(*one);
  return found;
}

TEST(Borrow, one_after_the_other_is_asked_and_one_thing_at_a_time) {
  Log log(at(2, 9), {5}, {{{1}, {1}}, {{2}, {7}}});
  Borrow borrow;
  Effects out;
  borrow.due({}, {4}, log, out);
  EXPECT_TRUE(out.empty());
  borrow.due({hop(2), hop(3)}, {4}, log, out);
  borrow.due({hop(2), hop(3)}, {4}, log, out);
  auto asked = all<BorrowBlocks>(out);
  ASSERT_EQ(asked.size(), 1U);
  EXPECT_EQ(asked[0].from, hop(2));
  EXPECT_EQ(asked[0].promise, Epoch{4});
  EXPECT_EQ(asked[0].end, at(2, 9));
  EXPECT_EQ(asked[0].epochs, log.epochs());
  EXPECT_FALSE(borrow.answered(asked[0].number + 1, true));
  EXPECT_TRUE(borrow.answered(asked[0].number, true));
  EXPECT_FALSE(borrow.answered(asked[0].number, true)) << "answered twice";
  out.clear();
  borrow.due({hop(2), hop(3)}, {4}, log, out);
  asked = all<BorrowBlocks>(out);
  ASSERT_EQ(asked.size(), 1U);
  EXPECT_EQ(asked[0].from, hop(2)) << "it may have more";
  EXPECT_TRUE(borrow.answered(asked[0].number, false));
  out.clear();
  borrow.due({hop(2), hop(3)}, {4}, log, out);
  EXPECT_EQ(all<BorrowBlocks>(out).at(0).from, hop(3));
}

// A log that ends at 2/9, of which all up to 5 is committed.
struct Lends {
  Log log{at(2, 9), {5}, {{{1}, {1}}, {{2}, {7}}}};
  Follower follower{log};
  Effects out;
  void lent(LogPoint end, LogPoint keep, std::vector<LentBlock> blocks) {
    out.clear();
    follower.lent({end, keep, std::move(blocks)}, out);
  }
};

TEST(Borrow, what_follows_the_log_is_taken) {
  Lends l;
  l.lent(at(3, 12), at(2, 9), {block(1, at(2, 9), at(2, 10)), block(2, at(2, 10), at(3, 12))});
  EXPECT_EQ(all<Take>(l.out).size(), 2U);
  EXPECT_EQ(l.log.end(), at(3, 12));
  EXPECT_EQ(l.log.commit(), Lsn{5});
}

TEST(Borrow, what_does_not_follow_is_released) {
  Lends l;
  l.lent(at(3, 12), at(2, 9), {block(1, at(2, 9), at(2, 10)), block(2, at(2, 11), at(3, 12))});
  EXPECT_EQ(all<Take>(l.out).size(), 1U);
  EXPECT_EQ(all<Release>(l.out).size(), 1U);
  l.lent(at(2, 8), at(2, 8), {block(3, at(2, 8), at(2, 9))});  // a shorter log
  EXPECT_TRUE(all<Take>(l.out).empty() && all<Truncate>(l.out).empty());
  EXPECT_EQ(all<Release>(l.out).size(), 1U);
}

TEST(Borrow, another_lineage_is_cut_first_and_never_below_the_commit) {
  Lends l;
  l.lent(at(3, 8), at(1, 6), {block(1, at(1, 6), at(3, 7))});
  ASSERT_EQ(all<Truncate>(l.out).size(), 1U);
  EXPECT_EQ(all<Truncate>(l.out)[0].keep, at(1, 6));
  EXPECT_EQ(all<Release>(l.out).size(), 1U) << "it is lent again once the cut is durable";
  l.lent(at(3, 8), at(1, 6), {block(2, at(1, 6), at(3, 7))});
  EXPECT_TRUE(all<Take>(l.out).empty()) << "not yet";
  l.follower.truncated(base::ok(), l.out);
  l.lent(at(3, 8), at(1, 6), {block(3, at(1, 6), at(3, 7))});
  EXPECT_EQ(all<Take>(l.out).size(), 1U);
  Lends other;
  other.lent(at(3, 8), at(1, 4), {});
  EXPECT_TRUE(all<Truncate>(other.out).empty());
  EXPECT_EQ(all<Faulted>(other.out).size(), 1U);
}

TEST(Borrow, nothing_is_taken_once_somebody_leads) {
  Lends l;
  model::PipeOpen open;
  open.envelope.from = {"p3"};
  open.envelope.from_assignment = hop(3).assignment;
  open.epoch = {4};
  open.generation = 1;
  l.follower.open(base::Instant{}, 1, open, l.out);
  l.lent(at(3, 12), at(2, 9), {block(1, at(2, 9), at(2, 10))});
  EXPECT_TRUE(all<Take>(l.out).empty());
  EXPECT_EQ(all<Release>(l.out).size(), 1U);
}

}  // namespace
}  // namespace cantle::proto::quorum
