#include "lib/store/engine.h"

#include <gtest/gtest.h>

#include "test/unit/store/engine_fixture.h"

namespace cantle::store {
namespace {

using base::Code;
using Rows = std::map<std::string, std::string>;

TEST(Engine, a_write_is_seen_once_it_is_durable_and_not_before) {
  Store s;
  ASSERT_TRUE(s.open());
  EXPECT_TRUE(s.engine->report().first);
  ASSERT_TRUE(s.create(1, 1));
  bool acked = false;
  ASSERT_EQ(
      s.append(1, {put("k", "v", 5)}, [&](base::Result<model::Lsn> lsn) { acked = lsn.has_value() && lsn->value == 1; })
          ->value,
      1U);
  EXPECT_EQ(s.get(1, "k"), "none");
  EXPECT_FALSE(acked);
  s.run();
  EXPECT_TRUE(acked);
  EXPECT_EQ(s.get(1, "k"), "v");
}

TEST(Engine, one_sync_covers_all_that_gathered) {
  Store s;
  ASSERT_TRUE(s.open());
  ASSERT_TRUE(s.create(1, 1));
  s.run();
  const auto before = s.disk.syncs;
  int acked = 0;
  for (int i = 0; i < 50; i++)
    ASSERT_TRUE(s.append(1, {put("k" + std::to_string(i), "v", 5)}, [&](const auto& r) { acked += r ? 1 : 0; }));
  s.run();
  EXPECT_EQ(acked, 50);
  EXPECT_EQ(s.disk.syncs - before, 1U);
}

TEST(Engine, what_was_acknowledged_survives_a_crash_at_any_step) {
  for (uint64_t seed = 1; seed <= 300; seed++) {
    base::SeededRandom random(seed);
    Store s;
    if (seed % 2 == 0) {  // every value stays in the journal until it is applied
      s.config.spill_from = 0;
      s.config.spill_value = 1;
    }
    ASSERT_TRUE(s.open());
    ASSERT_TRUE(s.create(1, 1));
    Rows acked;
    std::set<std::string> asked;
    for (int life = 0; life < 3; life++) {
      for (int i = 0; i < 30; i++) {
        const auto key = std::to_string(life * 100 + i);
        const auto value = std::string(random.below(3000), 'v');
        if (s.append(1, {put(key, value, s.ms++)}, [&acked, key, value](const auto& r) {
              if (r) acked[key] = value;
            }))
          asked.insert(key);
        for (uint64_t n = random.below(6); n > 0 && s.lanes->step(); n--) {
        }
        if (random.chance(0.1)) {
          s.clock.at = s.clock.at + std::chrono::seconds(6);
          s.engine->tick();
        }
      }
      s.kill();
      s.disk.crash(&random);
      ASSERT_TRUE(s.open()) << "seed " << seed;
      const auto now = s.all(1);
      for (const auto& [key, value] : acked)
        ASSERT_EQ(now.contains(key) ? now.at(key) : "gone", value) << "seed " << seed << " key " << key;
      for (const auto& [key, value] : now) ASSERT_TRUE(asked.contains(key));
      ASSERT_TRUE(s.engine->report().damaged.empty()) << "seed " << seed;
      for (const auto& t : s.engine->tenures()) ASSERT_TRUE(t.whole);
    }
  }
}

TEST(Engine, newest_version_wins_in_overlay_index_and_ingest) {
  Store s;
  ASSERT_TRUE(s.open());
  ASSERT_TRUE(s.create(1, 1));
  const auto write = [&](const model::Record& r) {
    ASSERT_TRUE(s.append(1, {r}));
    s.run();
  };
  write(put("a", "new", 20));
  write(put("a", "old", 10));
  EXPECT_EQ(s.get(1, "a"), "new");
  s.settle();
  EXPECT_EQ(s.get(1, "a"), "new");
  write(put("a", "old", 15));  // in the overlay over a newer one in the index
  EXPECT_EQ(s.get(1, "a"), "new");
  EXPECT_EQ(s.all(1), (Rows{{"a", "new"}}));
  write(del("a", 30));
  EXPECT_EQ(s.get(1, "a"), "deleted");
  EXPECT_EQ(s.all(1), Rows{});
  s.settle();
  write(put("a", "late", 25));
  EXPECT_EQ(s.get(1, "a"), "deleted");
  write(put("b", "mine", 40));
  ASSERT_TRUE(s.wait([&](auto done) {
    return s.engine->ingest(tenure(1, 1), {1, payload_of({put("b", "theirs", 50), put("c", "older", 1)}), "c", true},
                            done);
  }));
  EXPECT_EQ(s.get(1, "b"), "theirs");
  s.settle();
  EXPECT_EQ(s.all(1), (Rows{{"b", "theirs"}, {"c", "older"}}));
}

TEST(Engine, a_full_overlay_says_overloaded_and_drains) {
  Store s;
  ASSERT_TRUE(s.open());
  ASSERT_TRUE(s.create(1, 1));
  int taken = 0;
  base::Status refused = base::ok();
  for (int i = 0; i < 200 && refused; i++) {
    auto r = s.append(1, {put("key" + std::to_string(i), std::string(4000, 'x'), s.ms++)});
    if (r)
      taken++;
    else
      refused = base::fail(r.error());
  }
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::overloaded);
  EXPECT_GT(refused.error().retry_after_ms, 0U);
  s.settle();
  EXPECT_EQ(s.all(1).size(), static_cast<size_t>(taken));
  EXPECT_TRUE(s.engine->can_append(partition(1)));
}

TEST(Engine, those_who_can_wait_leave_room_for_those_who_cannot) {
  Store s;
  ASSERT_TRUE(s.open());
  ASSERT_TRUE(s.create(1, 1));
  const uint64_t block = 4200;
  int waiting = 0, others = 0;
  for (int i = 0; i < 200; i++) {
    const bool room = s.engine->has_room(block);
    if (!s.append(1, {put("key" + std::to_string(i), std::string(4000, 'x'), s.ms++)})) break;
    (room ? waiting : others)++;
  }
  EXPECT_GT(waiting, 40);
  EXPECT_GT(others, 1);
  s.settle();
  EXPECT_TRUE(s.engine->has_room(block));
}

TEST(Engine, a_failed_sync_is_final) {
  Store s;
  ASSERT_TRUE(s.open());
  ASSERT_TRUE(s.create(1, 1));
  ASSERT_TRUE(s.write(1, "a", "1"));
  s.disk.on_sync = [](std::string_view) { return base::fail(Code::io_error, "injected"); };
  int answers = 0;
  ASSERT_TRUE(s.append(1, {put("b", "2", s.ms++)}, [&](const auto&) { answers++; }));
  s.run();
  EXPECT_EQ(s.fatal.size(), 1U);
  s.disk.on_sync = [](std::string_view) { return base::ok(); };
  EXPECT_EQ(s.append(1, {put("c", "3", s.ms++)}).error().code, Code::faulted);
  s.settle();
  EXPECT_EQ(answers, 0);
  EXPECT_EQ(s.fatal.size(), 1U);
}

TEST(Engine, a_full_disk_turns_it_read_only_and_it_comes_back_by_itself) {
  Store s;
  ASSERT_TRUE(s.open());
  ASSERT_TRUE(s.create(1, 1));
  ASSERT_TRUE(s.write(1, "a", "1"));
  s.settle();
  const auto space = s.disk.free_space;
  s.disk.free_space.free = 1000;
  s.pass(std::chrono::seconds(2));
  EXPECT_EQ(s.append(1, {put("b", "2", s.ms++)}).error().code, Code::read_only);
  EXPECT_EQ(s.get(1, "a"), "1");
  EXPECT_TRUE(s.engine->status().read_only);
  s.disk.free_space = space;
  s.pass(std::chrono::seconds(2));
  EXPECT_TRUE(s.write(1, "b", "2"));
}

TEST(Engine, no_room_for_a_segment_or_the_index_loses_nothing) {
  Store s;
  ASSERT_TRUE(s.open());
  ASSERT_TRUE(s.create(1, 1));
  s.run();
  s.disk.on_write = [](std::string_view path) {
    return path == "journal/next.tmp" ? base::Status(base::fail(Code::no_space, "full")) : base::ok();
  };
  s.files.before_commit = [] { return base::fail(Code::no_space, "full"); };
  Rows acked;
  base::Status refused = base::ok();
  for (int i = 0; i < 200 && refused; i++) {
    const auto key = std::to_string(i);
    auto r = s.append(1, {put(key, std::string(2000, 'x'), s.ms++)}, [&, key](const auto& a) {
      if (a) acked[key] = std::string(2000, 'x');
    });
    if (!r) refused = base::fail(r.error());
    s.run();
    s.pass(std::chrono::milliseconds(300));
  }
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::read_only);
  EXPECT_TRUE(s.fatal.empty());
  s.disk.on_write = [](std::string_view) { return base::ok(); };
  s.files.before_commit = nullptr;
  s.settle();
  EXPECT_TRUE(s.write(1, "z", "1"));
  acked["z"] = "1";
  EXPECT_EQ(s.all(1), acked);
  s.kill();
  s.disk.crash();
  ASSERT_TRUE(s.open());
  EXPECT_EQ(s.all(1), acked);
}

TEST(Engine, large_values_come_back_whole) {
  Store s;
  s.config.segment_bytes = 4 << 20;
  s.config.overlay_bytes = 16 << 20;
  ASSERT_TRUE(s.open());
  ASSERT_TRUE(s.create(1, 1));
  base::SeededRandom random(3);
  Rows expected;
  const auto fill = [&](int round) {
    for (const size_t size : {0, 1, 255, 256, 1900, 1901, 4042, 4043, 4080, 4096, 5000, 8000, 16000, 16368, 16400,
                              40000, 100000, 1 << 20}) {
      std::string value(size, '\0');
      for (auto& c : value) c = static_cast<char>(random.u64());
      const auto key = "k" + std::to_string((size + static_cast<size_t>(round) * 7919) % 20);
      expected[key] = value;
      ASSERT_TRUE(s.write(1, key, value));
    }
  };
  fill(0);
  EXPECT_EQ(s.all(1), expected);
  s.settle();
  EXPECT_EQ(s.all(1), expected);
  for (int round = 1; round < 4; round++) {  // values of other sizes over these
    fill(round);
    s.settle();
    EXPECT_EQ(s.all(1), expected);
    for (const auto& [key, value] : expected) EXPECT_EQ(s.get(1, key), value);
  }
}

// --- values that are left in the journal --------------------------------------------------------

TEST(Spill, a_value_that_stays_in_the_journal_is_read_from_there) {
  Store s;
  s.config.spill_from = 0;
  ASSERT_TRUE(s.open());
  ASSERT_TRUE(s.create(1, 1));
  s.settle();
  Rows expected;
  for (int i = 0; i < 20; i++) {
    expected["k" + std::to_string(i)] = std::string(i % 3 == 0 ? 100 : 5000, static_cast<char>('a' + i));
    ASSERT_TRUE(s.write(1, "k" + std::to_string(i), expected["k" + std::to_string(i)]));
  }
  const auto held = s.engine->status();
  EXPECT_GT(held.backlog_bytes, 13 * 5000U);
  EXPECT_LT(held.overlay_bytes, 5000U);
  EXPECT_EQ(s.all(1), expected);
  for (const auto& [key, value] : expected) EXPECT_EQ(s.get(1, key), value);
  std::string fetched;
  s.engine->get_async(partition(1), "k1", [&](auto found) { fetched = (*found)->value; });
  s.run();
  EXPECT_EQ(fetched, expected["k1"]);
  s.kill();  // replayed, they stay there too
  ASSERT_TRUE(s.open());
  EXPECT_LT(s.engine->status().overlay_bytes, 5000U);
  EXPECT_EQ(s.all(1), expected);
  s.settle();
  EXPECT_EQ(s.engine->status().backlog_bytes, 0U);
  EXPECT_EQ(s.all(1), expected);
}

TEST(Spill, memory_is_crowded_before_anything_is_left_in_the_journal) {
  Store s;
  s.config.overlay_bytes = 4 << 20;
  s.config.segment_bytes = 1 << 20;
  s.gate.shut = {Lane::apply};
  ASSERT_TRUE(s.open());
  s.gate.open();
  ASSERT_TRUE(s.create(1, 1));
  s.gate.shut = {Lane::apply};
  for (int i = 0; i < 200; i++) ASSERT_TRUE(s.write(1, "k" + std::to_string(i), std::string(10000, 'v')));
  const auto held = s.engine->status().overlay_bytes;
  EXPECT_GE(held, s.config.overlay_bytes / 4);
  EXPECT_LT(held, s.config.overlay_bytes / 4 + 50000);
}

// The index may fall behind by so much and no more; then writes wait, and go on when it has caught up.
TEST(Spill, an_index_that_is_far_behind_says_overloaded) {
  Store s;
  s.config.spill_from = 0;
  s.config.overlay_bytes = 64 << 10;  // 1 MiB of journal
  ASSERT_TRUE(s.open());
  ASSERT_TRUE(s.create(1, 1));
  s.gate.shut = {Lane::apply};
  Rows acked;
  base::Status refused = base::ok();
  for (int i = 0; refused && i < 1000; i++) {
    const auto key = "k" + std::to_string(i);
    if (auto r = s.write(1, key, std::string(4000, 'v')))
      acked[key] = std::string(4000, 'v');
    else
      refused = base::fail(r.error());
  }
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::overloaded);
  EXPECT_GT(acked.size(), 230U);
  EXPECT_LT(acked.size(), 262U);
  EXPECT_FALSE(s.engine->has_room(4000));
  EXPECT_EQ(s.all(1), acked);
  s.gate.open();
  s.settle();
  EXPECT_TRUE(s.write(1, "z", "1"));
}

TEST(Spill, a_value_that_is_not_what_was_written_is_neither_served_nor_applied) {  // S62
  for (const bool served : {true, false}) {
    Store s;
    s.config.spill_from = 0;
    ASSERT_TRUE(s.open());
    ASSERT_TRUE(s.create(1, 1));
    s.settle();
    ASSERT_TRUE(s.write(1, "a", std::string(2000, 'a')));
    ASSERT_TRUE(s.write(1, "b", std::string(2000, 'b')));
    auto& segment = s.disk.bytes("journal/000000000001.seg");
    const auto at = segment.find("bbbbbbbb");
    ASSERT_NE(at, std::string::npos);
    segment[at + 77] ^= 1;
    EXPECT_EQ(s.get(1, "a"), std::string(2000, 'a'));
    if (served) {
      EXPECT_TRUE(s.get(1, "b").starts_with("error journal: a value"));
      s.run();
    } else {
      s.settle();
    }
    ASSERT_EQ(s.fatal.size(), 1U);
    s.kill();
    ASSERT_TRUE(s.open());  // recovery tells whose block it was
    EXPECT_EQ(s.engine->report().damaged.size(), 1U);
    EXPECT_EQ(s.get(1, "a"), std::string(2000, 'a'));
    EXPECT_EQ(s.get(1, "b"), "none");
    EXPECT_FALSE(s.engine->find(partition(1))->whole);
  }
}

// A scan goes on with a half that has been applied meanwhile: its segment is not used again under it.
TEST(Spill, a_segment_is_not_recycled_while_a_scan_has_values_in_it) {
  Store s;
  s.config.spill_from = 0;
  s.config.retention_bytes = 128 << 10;  // two segments
  ASSERT_TRUE(s.open());
  ASSERT_TRUE(s.create(1, 1));
  s.settle();
  const std::string value(3000, 'x');
  for (int i = 0; i < 5; i++) ASSERT_TRUE(s.write(1, "k" + std::to_string(i), value));
  s.gate.shut = {Lane::read};
  std::optional<Engine::ScanRows> rows;
  s.engine->scan_async(partition(1), {}, [&](base::Result<Engine::ScanRows> r) { rows = std::move(*r); });
  const auto rewrite = [&](char with) {
    for (int i = 0; i < 200; i++) {
      ASSERT_TRUE(s.write(1, "k" + std::to_string(i % 5), std::string(3000, with)));
      s.pass(std::chrono::milliseconds(1100));
    }
  };
  rewrite('y');
  const auto kept = s.engine->status().segments;
  EXPECT_GT(kept, 4U);  // the scan's own and all behind it
  s.gate.open();
  s.run();
  ASSERT_TRUE(rows);
  ASSERT_EQ(rows->rows.size(), 5U);
  for (const auto& row : rows->rows) EXPECT_EQ(row.record.value, value);
  rewrite('z');
  EXPECT_LT(s.engine->status().segments, kept);
}

TEST(Engine, scans_go_both_ways_through_limits) {
  Store s;
  ASSERT_TRUE(s.open());
  ASSERT_TRUE(s.create(1, 1));
  std::vector<std::string> keys;
  for (int i = 0; i < 60; i++) {
    char key[16];
    snprintf(key, sizeof key, "%03d", i);
    ASSERT_TRUE(s.write(1, key, "v"));
    if (i == 20) s.settle();
    if (i % 7 == 0) {
      ASSERT_TRUE(s.append(1, {del(key, s.ms++)}));
      s.run();
    } else {
      keys.push_back(key);
    }
    if (i == 40) s.settle();
  }
  for (const bool reverse : {false, true})
    for (const uint32_t limit : {1U, 3U, 1000U}) {
      std::vector<std::string> got;
      ScanRange range;
      range.reverse = reverse;
      range.records_max = limit;
      for (int pages = 0; pages < 1000; pages++) {
        auto end = s.engine->scan(partition(1), range, [&](std::string_view key, const Found&) {
          got.emplace_back(key);
          return true;
        });
        ASSERT_TRUE(end);
        if (!end->more) break;
        (reverse ? range.to : range.from) = end->resume;
        s.run();
      }
      if (reverse) std::reverse(got.begin(), got.end());
      EXPECT_EQ(got, keys) << "reverse " << reverse << " limit " << limit;
      // On a read thread it is the same.
      std::vector<std::string> async;
      ScanRange all;
      all.reverse = reverse;
      s.engine->scan_async(partition(1), all, [&](base::Result<Engine::ScanRows> rows) {
        ASSERT_TRUE(rows);
        for (const auto& row : rows->rows) async.push_back(row.key);
      });
      s.run();
      if (reverse) std::reverse(async.begin(), async.end());
      EXPECT_EQ(async, keys);
    }
}

TEST(Engine, hash_is_the_same_whatever_the_order_and_the_way) {
  Store a, b;
  for (Store* s : {&a, &b}) {
    ASSERT_TRUE(s->open());
    ASSERT_TRUE(s->create(1, 1));
  }
  std::vector<model::Record> records;
  for (uint64_t i = 0; i < 100; i++)
    records.push_back(put("k" + std::to_string(i % 37), std::string(i * 50, 'x'), 100 + i));
  records.push_back(del("k3", 500));
  for (const auto& r : records) {
    ASSERT_TRUE(a.append(1, {r}));
    a.run();
  }
  std::sort(records.begin(), records.end(), [](const auto& x, const auto& y) { return x.version > y.version; });
  for (size_t i = 0; i < records.size(); i++) {
    if (i % 3 == 0)
      ASSERT_TRUE(b.wait([&](auto done) {
        return b.engine->ingest(tenure(1, 1), {i + 1, payload_of({records[i]}), records[i].key, false}, done);
      }));
    else
      ASSERT_TRUE(b.append(1, {records[i]}));
    if (i % 10 == 0) b.settle();
  }
  const auto x = a.hash(1), y = b.hash(1);
  EXPECT_EQ(x.hash, y.hash);
  EXPECT_EQ(x.hash.record_count, 36U);
  EXPECT_EQ(x.hash.tombstone_count, 1U);
  EXPECT_FALSE(x.hash.records == base::Hash128{});
}

TEST(Engine, lacking_names_what_is_older_or_missing) {
  Store s;
  ASSERT_TRUE(s.open());
  ASSERT_TRUE(s.create(1, 1));
  ASSERT_TRUE(s.append(1, {put("a", "1", 10), put("b", "1", 10)}));
  s.settle();
  ASSERT_TRUE(s.append(1, {put("c", "1", 10)}));
  s.run();
  EXPECT_EQ(
      s.engine
          ->lacking(partition(1),
                    {{"a", version(10)}, {"a", version(11)}, {"b", version(9)}, {"c", version(10)}, {"d", version(1)}})
          .value(),
      (std::vector<uint32_t>{1, 4}));
}

TEST(Engine, shutdown_leaves_a_clean_root_and_nothing_to_replay) {
  Store s;
  ASSERT_TRUE(s.open());
  ASSERT_TRUE(s.create(1, 1));
  ASSERT_TRUE(s.write(1, "a", "1"));
  base::Status done = base::fail(Code::cancelled, "");
  s.engine->shutdown([&](const base::Status& d) { done = d; });
  s.run();
  ASSERT_TRUE(done);
  EXPECT_EQ(s.append(1, {put("b", "2", s.ms++)}).error().code, Code::unavailable);
  ASSERT_TRUE(s.open());
  EXPECT_TRUE(s.engine->report().clean);
  EXPECT_EQ(s.engine->report().records, 0U);
  EXPECT_EQ(s.get(1, "a"), "1");
  EXPECT_GE(s.engine->highest_version(), version(1000));
}

}  // namespace
}  // namespace cantle::store
