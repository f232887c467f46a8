// Tenures through the engine: divide, merge, aside, drop, fill.
#include <gtest/gtest.h>

#include "lib/store/direct_reader.h"
#include "lib/store/rows.h"
#include "test/unit/store/engine_fixture.h"

namespace cantle::store {
namespace {

using base::Code;
using Rows = std::map<std::string, std::string>;

const model::AttemptId kAttempt = id_of<model::AttemptId>(0xaa);

ChildSpec child(uint8_t p, uint8_t a) { return {partition(p), {p}, a == 0 ? model::AssignmentId{} : assignment(a)}; }

void restart(Store& s) {
  s.kill();
  s.disk.crash();
  ASSERT_TRUE(s.open());
}

TEST(Divide, both_children_share_the_data_and_take_writes_at_once) {
  Store s;
  ASSERT_TRUE(s.open());
  ASSERT_TRUE(s.create(1, 1));
  for (const char* k : {"a", "c", "m", "x"}) ASSERT_TRUE(s.write(1, k, k));
  s.settle();
  ASSERT_TRUE(s.write(1, "n", "n"));  // one still in the overlay
  const auto commits = s.files.commits;
  bool durable = false;
  const auto at = s.engine->divide(partition(1), kAttempt, "m", child(2, 2), child(3, 3),
                                   [&](const base::Status& d) { durable = d.has_value(); });
  ASSERT_TRUE(at);
  EXPECT_EQ(at->lsn.value, 5U);
  bool acked = false;
  ASSERT_EQ(s.append(2, {put("b", "b", s.ms++)}, [&](const auto& r) { acked = r && r->value == 6; })->value, 6U);
  EXPECT_EQ(s.append(1, {put("b", "b", s.ms++)}).error().code, Code::not_found);
  EXPECT_EQ(s.append(3, {put("b", "b", s.ms++)}).error().code, Code::invalid);
  s.run();
  EXPECT_TRUE(durable && acked);
  EXPECT_EQ(s.files.commits, commits);  // no data was touched
  const Rows low{{"a", "a"}, {"b", "b"}, {"c", "c"}}, high{{"m", "m"}, {"n", "n"}, {"x", "x"}};
  EXPECT_EQ(s.all(2), low);
  EXPECT_EQ(s.all(3), high);
  EXPECT_EQ(s.engine->divide(partition(1), kAttempt, "m", child(2, 2), child(3, 3), nullptr).value(), *at);
  EXPECT_EQ(
      s.engine->divide(partition(1), id_of<model::AttemptId>(1), "m", child(2, 2), child(3, 3), nullptr).error().code,
      Code::conflict);
  restart(s);  // before it was applied
  EXPECT_EQ(s.all(2), low);
  EXPECT_EQ(s.all(3), high);
  s.settle();
  EXPECT_EQ(s.all(2), low);
  restart(s);  // after
  EXPECT_EQ(s.all(2), low);
  EXPECT_EQ(s.all(3), high);
  EXPECT_FALSE(s.engine->find(partition(1)));
  EXPECT_EQ(s.engine->find(partition(2))->interval, (model::Interval{"", "m"}));
  EXPECT_EQ(s.engine->log_end(partition(3))->lsn.value, 5U);
  EXPECT_EQ(s.write(3, "z", "z").value().value, 6U);
}

TEST(Divide, crashes_around_it_leave_it_whole_or_undone) {
  for (uint64_t seed = 1; seed <= 200; seed++) {
    base::SeededRandom random(seed);
    Store s;
    ASSERT_TRUE(s.open());
    ASSERT_TRUE(s.create(1, 1));
    Rows acked;
    const auto write = [&](uint8_t p, const std::string& key) {
      (void)s.append(p, {put(key, key, s.ms++)}, [&acked, key](const auto& r) {
        if (r) acked[key] = key;
      });
      for (uint64_t n = random.below(4); n > 0 && s.lanes->step(); n--) {
      }
      if (random.chance(0.2)) {
        s.clock.at = s.clock.at + std::chrono::milliseconds(1500);
        s.engine->tick();
      }
    };
    for (int i = 0; i < 10; i++) write(1, std::to_string(100 + static_cast<int>(random.below(900))));
    ASSERT_TRUE(s.engine->divide(partition(1), kAttempt, "5", child(2, 2), child(3, 3), nullptr));
    for (int i = 0; i < 10; i++) {
      const auto key = std::to_string(100 + static_cast<int>(random.below(900)));
      write(key < "5" ? 2 : 3, key);
    }
    for (int lives = 0; lives < 2; lives++) {
      s.kill();
      s.disk.crash(&random);
      ASSERT_TRUE(s.open());
      Rows now;
      if (s.engine->find(partition(1))) {
        now = s.all(1);
        ASSERT_FALSE(s.engine->find(partition(2)));
      } else {
        now = s.all(2);
        now.merge(s.all(3));
      }
      for (const auto& [k, v] : acked) ASSERT_TRUE(now.contains(k)) << "seed " << seed << " key " << k;
      for (const auto& t : s.engine->tenures()) ASSERT_TRUE(t.whole) << "seed " << seed;
      if (random.chance(0.5)) s.settle();
    }
  }
}

TEST(Divide, a_child_that_is_not_here_leaves_its_part_with_the_parent_until_dropped) {
  Store s;
  ASSERT_TRUE(s.open());
  ASSERT_TRUE(s.create(1, 1));
  for (const char* k : {"a", "c", "m", "x"}) ASSERT_TRUE(s.write(1, k, k));
  ASSERT_TRUE(s.engine->divide(partition(1), kAttempt, "m", child(2, 2), child(3, 0), nullptr));
  s.settle();
  EXPECT_FALSE(s.engine->find(partition(3)));
  const auto left = s.engine->find(tenure(1, 1));
  ASSERT_TRUE(left);
  EXPECT_EQ(left->state, TenureState::aside);
  EXPECT_EQ(left->interval, (model::Interval{"m", ""}));
  EXPECT_EQ(left->children, (std::vector{partition(2), partition(3)}));
  DirectReader reader(s.engine->index());
  ASSERT_TRUE(reader.refresh());
  EXPECT_EQ(reader.get(tenure(1, 1), "x").value()->value, "x");
  reader.release();
  ASSERT_TRUE(s.wait([&](auto done) { return s.engine->drop(tenure(1, 1), done); }));
  EXPECT_FALSE(s.engine->find(tenure(1, 1)));
  EXPECT_EQ(s.engine->status().trash_tenures, 1U);
  ASSERT_TRUE(s.wait([&](auto done) { return s.engine->restore(tenure(1, 1), done); }));
  EXPECT_TRUE(s.engine->find(tenure(1, 1)));
  ASSERT_TRUE(s.wait([&](auto done) { return s.engine->drop(tenure(1, 1), done); }));
  s.clock.at = s.clock.at + std::chrono::hours(25);
  s.settle();
  EXPECT_EQ(s.engine->status().trash_tenures, 0U);
  EXPECT_EQ(s.engine->status().freeing_extents, 0U);
  EXPECT_EQ(s.all(2), (Rows{{"a", "a"}, {"c", "c"}}));
  EXPECT_EQ(s.files.dbs[static_cast<size_t>(Db::records)].size(), 2U);  // the rest is freed
}

TEST(Divide, hashes_of_children_are_counted_anew_and_add_up) {
  Store s;
  ASSERT_TRUE(s.open());
  ASSERT_TRUE(s.create(1, 1));
  for (int i = 0; i < 300; i++)
    ASSERT_TRUE(s.write(1, std::to_string(1000 + i), std::string(static_cast<size_t>(i), 'x')));
  const auto whole = s.hash(1);
  ASSERT_TRUE(s.engine->divide(partition(1), kAttempt, "1100", child(2, 2), child(3, 3), nullptr));
  ASSERT_TRUE(s.write(2, "1005", "changed"));
  const auto low = s.hash(2), high = s.hash(3);
  EXPECT_EQ(low.hash.record_count + high.hash.record_count, whole.hash.record_count);
  s.settle();
  EXPECT_TRUE(s.engine->size(partition(3)).exact);
  EXPECT_EQ(s.engine->size(partition(3)).records, 200U);
  EXPECT_EQ(s.hash(2).hash, low.hash);
  Store t;
  ASSERT_TRUE(t.open());
  ASSERT_TRUE(t.create(3, 9, {"1100", ""}));
  for (int i = 100; i < 300; i++) {
    t.ms = 1000 + static_cast<uint64_t>(i);
    ASSERT_TRUE(t.write(3, std::to_string(1000 + i), std::string(static_cast<size_t>(i), 'x')));
  }
  EXPECT_EQ(t.hash(3).hash, high.hash);
}

// --- merges of a push table's ----------------------------------------------------------------------

TEST(Merge, the_target_shares_the_data_of_both_and_takes_writes_at_once) {
  Store s;
  ASSERT_TRUE(s.open());
  ASSERT_TRUE(s.create(1, 1, {"", "m"}));
  ASSERT_TRUE(s.create(2, 2, {"m", ""}));
  for (const char* k : {"a", "c"}) ASSERT_TRUE(s.write(1, k, k));
  for (const char* k : {"m", "x", "y"}) ASSERT_TRUE(s.write(2, k, k));
  s.settle();
  ASSERT_TRUE(s.write(1, "b", "b"));  // one still in the overlay
  const auto commits = s.files.commits;
  const auto low = *s.engine->log_end(partition(1)), high = *s.engine->log_end(partition(2));
  bool durable = false, acked = false;
  const auto at = s.engine->merge_ends(partition(1), partition(2), kAttempt, child(3, 3),
                                       [&](const base::Status& d) { durable = d.has_value(); });
  ASSERT_TRUE(at) << base::to_string(at.error());
  EXPECT_EQ(*at, model::merged_point(low, high));
  EXPECT_EQ(at->lsn.value, 3U);
  ASSERT_EQ(s.append(3, {put("n", "n", s.ms++)}, [&](const auto& r) { acked = r && r->value == 4; })->value, 4U);
  EXPECT_EQ(s.append(1, {put("b", "b", s.ms++)}).error().code, Code::not_found);
  EXPECT_EQ(s.engine->durable(partition(3))->lsn.value, 0U) << "not before the merge is";
  s.run();
  EXPECT_TRUE(durable && acked);
  EXPECT_EQ(s.files.commits, commits);  // no data was touched
  const Rows all{{"a", "a"}, {"b", "b"}, {"c", "c"}, {"m", "m"}, {"n", "n"}, {"x", "x"}, {"y", "y"}};
  EXPECT_EQ(s.all(3), all);
  EXPECT_EQ(s.engine->merge_ends(partition(1), partition(2), kAttempt, child(3, 3), nullptr).value(), *at);
  EXPECT_EQ(
      s.engine->merge_ends(partition(1), partition(2), id_of<model::AttemptId>(1), child(3, 3), nullptr).error().code,
      Code::conflict);
  for (int life = 0; life < 3; life++) {
    restart(s);
    EXPECT_EQ(s.all(3), all);
    EXPECT_EQ(s.engine->log_end(partition(3))->lsn.value, 4U);
    EXPECT_EQ(s.engine->find(partition(3))->log_start, *at);
    EXPECT_FALSE(s.engine->find(partition(1)) || s.engine->find(partition(2)));
    EXPECT_TRUE(s.engine->find(partition(3))->whole);
    s.settle();
  }
  EXPECT_EQ(s.hash(3).hash.record_count, 7U);
}

TEST(Merge, crashes_around_it_leave_it_whole_or_undone) {
  for (uint64_t seed = 1; seed <= 200; seed++) {
    base::SeededRandom random(seed);
    Store s;
    ASSERT_TRUE(s.open());
    ASSERT_TRUE(s.create(1, 1));
    Rows acked;
    const auto write = [&](uint8_t p, const std::string& key) {
      (void)s.append(p, {put(key, key, s.ms++)}, [&acked, key](const auto& r) {
        if (r) acked[key] = key;
      });
      for (uint64_t n = random.below(4); n > 0 && s.lanes->step(); n--) {
      }
      if (random.chance(0.2)) {
        s.clock.at = s.clock.at + std::chrono::milliseconds(1500);
        s.engine->tick();
      }
    };
    const auto key = [&] { return std::to_string(100 + static_cast<int>(random.below(900))); };
    for (int i = 0; i < 6; i++) write(1, key());
    ASSERT_TRUE(s.engine->divide(partition(1), kAttempt, "5", child(2, 2), child(3, 3), nullptr));
    for (int i = 0; i < 6; i++) {
      const auto k = key();
      write(k < "5" ? 2 : 3, k);
    }
    ASSERT_TRUE(s.engine->merge_ends(partition(2), partition(3), id_of<model::AttemptId>(0xbb), child(4, 4), nullptr));
    for (int i = 0; i < 6; i++) write(4, key());
    for (int lives = 0; lives < 2; lives++) {
      s.kill();
      s.disk.crash(&random);
      ASSERT_TRUE(s.open());
      Rows now;
      int found = 0;
      for (const uint8_t p : {uint8_t{1}, uint8_t{2}, uint8_t{3}, uint8_t{4}})
        if (s.engine->find(partition(p))) {
          found++;
          now.merge(s.all(p));
        }
      const bool divided = s.engine->find(partition(2)) && s.engine->find(partition(3));
      ASSERT_EQ(found, divided ? 2 : 1) << "seed " << seed;
      for (const auto& [k, v] : acked) ASSERT_TRUE(now.contains(k)) << "seed " << seed << " key " << k;
      for (const auto& t : s.engine->tenures()) ASSERT_TRUE(t.whole) << "seed " << seed;
      if (random.chance(0.5)) s.settle();
    }
  }
}

// All of the journal is there: the target is whole when all of its ancestors' logs are, as a divided one's children
// are.
TEST(Merge, a_lost_index_is_made_again_from_the_logs_of_both) {
  Store s;
  ASSERT_TRUE(s.open());
  ASSERT_TRUE(s.create(1, 1));
  for (const char* k : {"a", "c", "m", "x"}) ASSERT_TRUE(s.write(1, k, k));
  ASSERT_TRUE(s.engine->divide(partition(1), kAttempt, "m", child(2, 2), child(3, 3), nullptr));
  ASSERT_TRUE(s.write(2, "b", "b"));
  ASSERT_TRUE(s.write(3, "z", "z"));
  ASSERT_TRUE(s.engine->merge_ends(partition(2), partition(3), id_of<model::AttemptId>(0xbb), child(4, 4), nullptr));
  ASSERT_TRUE(s.write(4, "n", "n"));
  for (int i = 0; i < 10; i++) s.pass(std::chrono::seconds(6));  // the list of tenures is written
  ASSERT_TRUE(s.write(4, "o", "o"));
  const auto rows = s.all(4);
  const auto end = s.engine->log_end(partition(4));
  s.kill();
  s.files.clear();
  ASSERT_TRUE(s.open());
  EXPECT_TRUE(s.engine->report().index_rebuilt);
  EXPECT_EQ(s.all(4), rows);
  EXPECT_EQ(s.engine->log_end(partition(4)), end);
  EXPECT_TRUE(s.engine->find(partition(4))->whole);
}

TEST(Tenure, another_assignment_sets_the_old_copy_aside) {
  Store s;
  ASSERT_TRUE(s.open());
  ASSERT_TRUE(s.create(1, 1));
  ASSERT_TRUE(s.write(1, "old", "1"));
  EXPECT_EQ(s.create(1, 1).error().code, Code::exists);
  ASSERT_TRUE(s.create(1, 2));
  EXPECT_EQ(s.get(1, "old"), "none");  // nothing of the old shows through
  EXPECT_EQ(s.write(1, "new", "2").value().value, 1U);
  restart(s);
  EXPECT_EQ(s.all(1), (Rows{{"new", "2"}}));
  EXPECT_EQ(s.engine->find(tenure(1, 1))->state, TenureState::aside);
  s.settle();
  DirectReader reader(s.engine->index());
  ASSERT_TRUE(reader.refresh());
  EXPECT_EQ(reader.get(tenure(1, 1), "old").value()->value, "1");
  EXPECT_FALSE(reader.get(tenure(1, 2), "old").value());
}

TEST(Tenure, retag_changes_the_name_only) {
  Store s;
  ASSERT_TRUE(s.open());
  ASSERT_TRUE(s.create(1, 1));
  ASSERT_TRUE(s.write(1, "a", "1"));
  ASSERT_TRUE(s.wait([&](auto done) { return s.engine->retag(tenure(1, 1), assignment(5), done); }));
  EXPECT_FALSE(s.engine->find(tenure(1, 1)));
  ASSERT_TRUE(s.engine->find(tenure(1, 5)));
  ASSERT_TRUE(s.write(1, "b", "2"));
  restart(s);
  EXPECT_EQ(s.all(1), (Rows{{"a", "1"}, {"b", "2"}}));
  s.settle();
  EXPECT_EQ(s.engine->size(partition(1)).records, 2U);
}

TEST(Tenure, a_fill_resumes_where_it_was_durable) {
  Store s;
  ASSERT_TRUE(s.open());
  ASSERT_TRUE(s.create(1, 1));
  const auto chunk = [&](uint64_t number, const std::string& key, bool last) {
    return s.wait([&](auto done) {
      return s.engine->ingest(tenure(1, 1), {number, payload_of({put(key, key, 5)}), key, last}, done);
    });
  };
  ASSERT_TRUE(chunk(7, "b", false));
  restart(s);
  EXPECT_EQ(s.engine->find(partition(1))->fill.to, "b");
  EXPECT_EQ(s.engine->find(partition(1))->fill.snapshot, 7U);
  ASSERT_TRUE(chunk(7, "b", false));  // said twice
  ASSERT_TRUE(chunk(7, "d", true));
  restart(s);
  EXPECT_TRUE(s.engine->find(partition(1))->fill.all);
  EXPECT_EQ(s.all(1), (Rows{{"b", "b"}, {"d", "d"}}));
  EXPECT_EQ(s.engine->log_end(partition(1))->lsn.value, 0U);  // it has no log
  EXPECT_EQ(s.hash(1).hash.record_count, 2U);
}

TEST(Tenure, versions_that_came_in_a_snapshot_are_known_after_a_restart) {
  Store s;
  ASSERT_TRUE(s.open());
  ASSERT_TRUE(s.create(1, 1));
  ASSERT_TRUE(s.wait([&](auto done) {
    return s.engine->ingest(tenure(1, 1), {1, payload_of({put("k", "theirs", 5000)}), "k", true}, done);
  }));
  restart(s);
  EXPECT_GE(s.engine->highest_version(), version(5000));
  ASSERT_TRUE(s.append(1, {put("k", "older", 4000)}));  // newer than anything in our log
  s.run();
  EXPECT_EQ(s.get(1, "k"), "theirs");
}

TEST(Tenure, a_snapshot_in_chunks_and_the_log_behind_it_give_the_same) {
  Store s, t;
  for (Store* x : {&s, &t}) {
    x->config.overlay_bytes = 1 << 20;
    ASSERT_TRUE(x->open());
    ASSERT_TRUE(x->create(1, 1));
  }
  for (int i = 0; i < 200; i++) ASSERT_TRUE(s.write(1, std::to_string(i), std::string(500, 'v')));
  ASSERT_TRUE(s.append(1, {del("17", s.ms++)}));
  s.settle();
  DirectReader reader(s.engine->index());
  SnapshotReader snapshot(reader, tenure(1, 1), {}, "");
  int chunks = 0;
  for (bool last = false; !last; chunks++) {
    auto chunk = snapshot.next(10000);
    ASSERT_TRUE(chunk);
    last = chunk->last;
    if (chunks == 3) {
      ASSERT_TRUE(s.write(1, "0", "later"));  // behind the snapshot: the log has it
      s.settle();
    }
    ASSERT_TRUE(t.wait([&](auto done) {
      return t.engine->ingest(tenure(1, 1), {1, chunk->records, chunk->through_key, chunk->last}, done);
    }));
  }
  EXPECT_GT(chunks, 8);
  EXPECT_EQ(snapshot.start()->lsn.value, 201U);
  ASSERT_TRUE(t.append(1, {put("0", "later", s.ms - 1)}));
  t.run();
  EXPECT_EQ(s.hash(1).hash, t.hash(1).hash);
}

TEST(Tenure, sample_cuts_by_bytes) {
  Store s;
  s.config.overlay_bytes = 8 << 20;
  s.config.segment_bytes = 1 << 20;
  ASSERT_TRUE(s.open());
  ASSERT_TRUE(s.create(1, 1));
  for (int i = 0; i < 1000; i++)
    ASSERT_TRUE(s.write(1, std::to_string(10000 + i), std::string(i < 500 ? 3000 : 1000, 'x')));
  s.settle();
  base::Result<std::vector<std::string>> keys = base::fail(Code::cancelled, "");
  s.engine->sample(partition(1), 2, [&](auto k) { keys = std::move(k); });
  s.run();
  ASSERT_TRUE(keys);
  ASSERT_EQ(keys->size(), 1U);
  // 2 MB in all: half of it lies at about key 333.
  EXPECT_GT(keys->front(), "10300");
  EXPECT_LT(keys->front(), "10366");
}

// What a restart replayed and has not applied yet belongs to the copy that is set aside.
TEST(Aside, a_copy_set_aside_right_after_a_restart_has_all_of_its_log) {
  Store s;
  ASSERT_TRUE(s.open());
  ASSERT_TRUE(s.create(1, 1));
  for (const char* k : {"a", "b", "c"}) ASSERT_TRUE(s.write(1, k, k));
  restart(s);
  ASSERT_TRUE(s.wait([&](auto done) { return s.engine->set_aside(tenure(1, 1), true, done); }));
  EXPECT_EQ(s.engine->find(tenure(1, 1))->applied.lsn.value, 3U);
  DirectReader reader(s.engine->index());
  ASSERT_TRUE(reader.refresh());
  EXPECT_TRUE(reader.get(tenure(1, 1), "c").value().has_value());
}

// A block in the journal names the partition alone: two logs of one could not be told apart.
TEST(Aside, one_that_was_set_aside_goes_on_under_the_next_assignment) {
  Store s;
  ASSERT_TRUE(s.open());
  ASSERT_TRUE(s.create(1, 1));
  for (const char* k : {"a", "b", "c"}) ASSERT_TRUE(s.write(1, k, k));
  ASSERT_TRUE(s.wait([&](auto done) { return s.engine->set_aside(tenure(1, 1), true, done); }));
  ASSERT_TRUE(s.create(1, 2));
  EXPECT_FALSE(s.engine->find(tenure(1, 1)));
  EXPECT_EQ(s.engine->tenures().size(), 1U);
  EXPECT_EQ(s.write(1, "d", "d").value().value, 4U);
  const Rows all{{"a", "a"}, {"b", "b"}, {"c", "c"}, {"d", "d"}};
  EXPECT_EQ(s.all(1), all);
  restart(s);
  EXPECT_EQ(s.all(1), all);
  s.settle();
  restart(s);
  EXPECT_EQ(s.all(1), all);
  EXPECT_EQ(s.engine->find(partition(1))->id, tenure(1, 2));
  EXPECT_TRUE(s.engine->find(partition(1))->whole);
}

}  // namespace
}  // namespace cantle::store
