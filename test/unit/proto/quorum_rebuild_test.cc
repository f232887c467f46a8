#include "lib/proto/quorum_rebuild.h"

#include <gtest/gtest.h>

namespace cantle::proto::quorum {
namespace {

using base::Code;
using base::Instant;
using model::SnapshotPlace;

constexpr auto kMs = std::chrono::milliseconds(1);
const Instant t0{std::chrono::seconds(100)};
const model::Hop kLeader{{"p1"}, {}}, kOther{{"p2"}, {}};

SnapshotPlace place(uint64_t snapshot, const std::string& key, bool all = false) {
  SnapshotPlace p;
  p.snapshot = snapshot;
  p.after_key = key;
  p.records_done = p.all = all;
  return p;
}
base::Result<SnapshotPlace> refused(Code code) { return base::fail(code, "no"); }

// What it asked for, if that; and that it asked for one thing at most.
struct Asked {
  std::optional<PullSnapshot> pull;
  bool install = false;
};
Asked take(Effects& out) {
  Asked asked;
  for (const auto& e : out) {
    if (const auto* p = std::get_if<PullSnapshot>(&e)) {
      EXPECT_FALSE(asked.pull);
      asked.pull = *p;
    }
    if (std::get_if<InstallSnapshot>(&e)) asked.install = true;
  }
  EXPECT_FALSE(asked.pull && asked.install);
  out.clear();
  return asked;
}

TEST(Rebuild, pulls_part_after_part_and_installs_only_what_is_complete) {
  Rebuild r({});
  Effects out;
  r.tick(t0, out);
  EXPECT_FALSE(take(out).pull) << "nobody said that it needs one";
  r.told(t0, kLeader, out);
  auto asked = take(out);
  ASSERT_TRUE(asked.pull);
  EXPECT_EQ(asked.pull->from, kLeader);
  EXPECT_EQ(asked.pull->place, SnapshotPlace{});
  r.told(t0 + kMs, kLeader, out);
  EXPECT_FALSE(take(out).pull) << "one thing at a time";
  r.pulled(t0, asked.pull->number, place(7, "k"), out);
  asked = take(out);
  ASSERT_TRUE(asked.pull);
  EXPECT_EQ(asked.pull->place, place(7, "k"));
  r.pulled(t0, asked.pull->number - 1, place(7, "late", true), out);
  EXPECT_FALSE(take(out).install) << "an answer to an older question";
  r.pulled(t0, asked.pull->number, place(7, "z", true), out);
  EXPECT_TRUE(take(out).install);
  EXPECT_TRUE(r.busy());
  r.installed(t0, base::ok(), out);
  EXPECT_FALSE(r.busy());
  EXPECT_EQ(r.place(), SnapshotPlace{});
}

TEST(Rebuild, asks_again_for_what_did_not_come_and_begins_anew_what_is_not_there_any_more) {
  Rebuild r({});
  Effects out;
  r.told(t0, kLeader, out);
  r.pulled(t0, take(out).pull->number, place(7, "k"), out);
  r.pulled(t0, take(out).pull->number, refused(Code::unavailable), out);
  r.tick(t0, out);
  EXPECT_FALSE(take(out).pull) << "not at once";
  r.tick(t0 + kRebuildAgain, out);
  auto asked = take(out);
  ASSERT_TRUE(asked.pull);
  EXPECT_EQ(asked.pull->place, place(7, "k"));
  r.pulled(t0 + kRebuildAgain, asked.pull->number, refused(Code::not_found), out);
  take(out);
  r.tick(t0 + 5 * kRebuildAgain, out);
  EXPECT_EQ(take(out).pull->place, SnapshotPlace{});
}

TEST(Rebuild, goes_on_in_another_life_and_from_another_leader) {
  Rebuild r(place(7, "k"));
  Effects out;
  r.tick(t0, out);
  EXPECT_FALSE(take(out).pull);
  r.told(t0, kOther, out);
  const auto asked = take(out);
  ASSERT_TRUE(asked.pull);
  EXPECT_EQ(asked.pull->from, kOther);
  EXPECT_EQ(asked.pull->place, place(7, "k"));
}

TEST(Rebuild, stops_when_the_leader_does_not_say_it_any_more_and_when_it_leads) {
  Rebuild r({});
  Effects out;
  r.told(t0, kLeader, out);
  r.pulled(t0, take(out).pull->number, refused(Code::unavailable), out);
  r.tick(t0 + kToldMost, out);
  EXPECT_FALSE(take(out).pull);
  EXPECT_FALSE(r.busy());
  r.told(t0 + kToldMost, kLeader, out);
  EXPECT_TRUE(take(out).pull);
  r.stop();
  EXPECT_FALSE(r.busy());
}

TEST(Rebuild, a_snapshot_that_is_older_than_the_log_is_given_up) {
  Rebuild r(place(7, "z", true));
  Effects out;
  r.told(t0, kLeader, out);
  EXPECT_TRUE(take(out).install);
  r.installed(t0, base::fail(Code::conflict, "the log goes further"), out);
  take(out);
  r.told(t0 + kRebuildAgain, kLeader, out);
  EXPECT_EQ(take(out).pull->place, SnapshotPlace{});
  // One that could not be installed just now is tried again.
  Rebuild again(place(7, "z", true));
  again.told(t0, kLeader, out);
  take(out);
  again.installed(t0, base::fail(Code::unavailable, "busy"), out);
  take(out);
  again.told(t0 + kRebuildAgain, kLeader, out);
  EXPECT_TRUE(take(out).install);
}

}  // namespace
}  // namespace cantle::proto::quorum
