#include "lib/proto/quorum_mend.h"

#include <gtest/gtest.h>

namespace cantle::proto::quorum {
namespace {

using base::Code;
using base::Instant;
using model::LogGap;

const Instant t0{std::chrono::seconds(100)};

model::AssignmentId assignment(uint8_t i) {
  return *model::AssignmentId::from_bytes(std::string(16, static_cast<char>(i)));
}
const std::vector<model::Hop> kOthers{{{"p2"}, assignment(2)}, {{"p3"}, assignment(3)}};

LogGap gap(uint64_t after, uint64_t upto) { return {{{1}, {after}, 7}, {{1}, {upto}, 9}}; }
using Next = base::Result<std::optional<LogGap>>;
Next nothing() { return std::optional<LogGap>(); }
Next refused(Code code) { return base::fail(code, "no"); }

std::optional<FetchBlocks> take(Effects& out) {
  std::optional<FetchBlocks> asked;
  for (const auto& e : out)
    if (const auto* f = std::get_if<FetchBlocks>(&e)) {
      EXPECT_FALSE(asked) << "one thing at a time";
      asked = *f;
    }
  out.clear();
  return asked;
}

TEST(Mend, gap_after_gap_comes_from_whoever_has_them) {
  Mend m(gap(3, 5));
  Effects out;
  m.tick(t0, {}, out);
  EXPECT_FALSE(take(out)) << "it does not know of any other";
  m.tick(t0, kOthers, out);
  auto asked = take(out);
  ASSERT_TRUE(asked);
  EXPECT_EQ(asked->from, kOthers[0]);
  EXPECT_EQ(asked->gap, gap(3, 5));
  m.tick(t0, kOthers, out);
  EXPECT_FALSE(take(out));
  EXPECT_TRUE(m.fetched(t0, asked->number, refused(Code::not_found), kOthers, out));
  asked = take(out);
  ASSERT_TRUE(asked) << "the other one, at once";
  EXPECT_EQ(asked->from, kOthers[1]);
  EXPECT_FALSE(m.fetched(t0, asked->number - 1, nothing(), kOthers, out)) << "an older question";
  EXPECT_TRUE(m.fetched(t0, asked->number, std::optional(gap(8, 9)), kOthers, out));
  asked = take(out);
  ASSERT_TRUE(asked);
  EXPECT_EQ(asked->from, kOthers[1]) << "whoever had that may have this";
  EXPECT_EQ(asked->gap, gap(8, 9));
  EXPECT_TRUE(m.fetched(t0, asked->number, nothing(), kOthers, out));
  m.tick(t0 + kMendMost, kOthers, out);
  EXPECT_FALSE(take(out)) << "nothing is missing";
}

TEST(Mend, there_is_hope_until_each_has_said_that_it_does_not_have_it) {
  Mend m(gap(3, 5));
  Effects out;
  EXPECT_TRUE(m.hopeful(t0, {}));
  m.tick(t0, kOthers, out);
  m.fetched(t0, take(out)->number, refused(Code::not_found), kOthers, out);
  EXPECT_TRUE(m.hopeful(t0, kOthers));
  m.fetched(t0, take(out)->number, refused(Code::outcome_unknown), kOthers, out);
  EXPECT_TRUE(m.hopeful(t0, kOthers)) << "the other one did not say so";
  EXPECT_FALSE(take(out)) << "not at once";
  m.tick(t0 + kMendAgain, kOthers, out);
  m.fetched(t0 + kMendAgain, take(out)->number, refused(Code::unavailable), kOthers, out);
  m.fetched(t0 + kMendAgain, take(out)->number, refused(Code::corrupt), kOthers, out);
  EXPECT_FALSE(m.hopeful(t0 + kMendAgain, kOthers));
  // It is asked for all the same: that one may be mended by now.
  m.tick(t0 + 10 * kMendAgain, kOthers, out);
  const auto asked = take(out);
  ASSERT_TRUE(asked);
  m.fetched(t0 + 10 * kMendAgain, asked->number, std::optional(gap(8, 9)), kOthers, out);
  EXPECT_TRUE(m.hopeful(t0 + 10 * kMendAgain, kOthers));
}

TEST(Mend, there_is_no_hope_for_what_nobody_could_be_asked_for_in_time) {
  Mend m(gap(3, 5));
  Effects out;
  m.tick(t0, kOthers, out);
  EXPECT_TRUE(take(out));
  EXPECT_TRUE(m.hopeful(t0 + kMendMost - std::chrono::milliseconds(1), kOthers));
  EXPECT_FALSE(m.hopeful(t0 + kMendMost, kOthers));
  m.stop();
  EXPECT_FALSE(m.hopeful(t0, kOthers));
  m.tick(t0 + kMendMost, kOthers, out);
  EXPECT_FALSE(take(out));
}

}  // namespace
}  // namespace cantle::proto::quorum
