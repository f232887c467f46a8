// The engine as a daemon runs it: real threads, LMDB, a real disk; a loop in miniature.
#include <gtest/gtest.h>

#include <condition_variable>
#include <deque>
#include <filesystem>
#include <mutex>
#include <thread>

#include "lib/store/direct_reader.h"
#include "lib/store/lmdb_index.h"
#include "test/unit/store/mini_loop.h"
#include "test/unit/store/quorum_fixture.h"

namespace cantle::store {
namespace {

struct Daemon {
  std::string path;
  base::SystemClock clock;
  MiniLoop loop;
  std::unique_ptr<RealDisk> disk;
  std::unique_ptr<LmdbIndexFactory> factory;
  std::unique_ptr<LivePage> live;
  std::unique_ptr<ThreadExecutor> lanes;
  std::unique_ptr<Engine> engine;
  EngineConfig config;
  Identity identity{{"p1"}, id_of<model::ClusterUuid>(9), {0}, {1}};
  std::string fatal;

  Daemon() {
    char name[] = "/tmp/cantle-engine-XXXXXX";
    path = mkdtemp(name);
    config.segment_bytes = 1 << 20;
    config.overlay_bytes = 2 << 20;
    config.overlay_age = std::chrono::milliseconds(50);
    config.checkpoint_interval = std::chrono::milliseconds(100);
    disk = std::make_unique<RealDisk>(path);
    factory = std::make_unique<LmdbIndexFactory>(path + "/index");
  }
  ~Daemon() {
    stop();
    std::filesystem::remove_all(path);
  }
  void stop() {
    engine.reset();
    lanes.reset();
    loop.clear();
    live.reset();
  }
  void start() {
    identity.incarnation = identity.incarnation.next();
    lanes = std::make_unique<ThreadExecutor>(loop.poster(), loop.deferrer());
    live = std::move(*LivePage::create(*disk, identity.incarnation));
    auto opened = Engine::open({*disk, *factory, *lanes, clock, live.get()}, config, identity);
    ASSERT_TRUE(opened) << opened.error().text;
    engine = std::move(*opened);
    engine->on_fatal([this](const base::Error& e) { fatal = e.text; });
  }
  bool until(const std::function<bool()>& done) {
    return loop.until([&] {
      engine->tick();
      return done() || !fatal.empty();
    });
  }
};

TEST(Threads, what_is_to_be_done_later_is_done_on_the_loop_and_not_before) {
  MiniLoop loop;
  ThreadExecutor lanes(loop.poster(), loop.deferrer());
  const auto loop_thread = std::this_thread::get_id();
  const auto begun = std::chrono::steady_clock::now();
  std::vector<int> order;
  const auto later = [&](int n, std::chrono::milliseconds delay) {
    lanes.after(delay, [&, n, delay] {
      EXPECT_EQ(std::this_thread::get_id(), loop_thread);
      EXPECT_GE(std::chrono::steady_clock::now() - begun, delay);
      order.push_back(n);
    });
  };
  later(3, std::chrono::milliseconds(30));
  later(1, std::chrono::milliseconds(10));
  later(2, std::chrono::milliseconds(20));
  lanes.run(
      Lane::journal, [] {}, [&] { order.push_back(0); });
  ASSERT_TRUE(loop.until([&] { return order.size() == 4; }));
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2, 3}));
}

TEST(Threads, more_reads_at_once_than_the_index_has_slots_for_readers) {
  Daemon d;
  d.start();
  bool made = false;
  ASSERT_TRUE(d.engine->create({tenure(1, 1), id_of<model::TableUuid>(7), {1}, {}},
                               [&](const base::Status& s) { made = s.has_value(); }));
  ASSERT_TRUE(d.until([&] { return made; }));
  bool written = false;
  ASSERT_TRUE(d.engine->append(partition(1), payload_of({put("k", "v", 1000)}), [&](const auto& r) { written = !!r; }));
  ASSERT_TRUE(d.until([&] { return written; }));
  size_t good = 0, ended = 0;
  constexpr size_t kReads = 2000;
  for (size_t i = 0; i < kReads; i++)
    d.engine->get_async(partition(1), "k", [&](const auto& found) {
      ended++;
      if (found && *found && (*found)->value == "v") good++;
    });
  ASSERT_TRUE(d.until([&] { return ended == kReads; }));
  EXPECT_EQ(good, kReads);
}

TEST(Threads, writers_readers_apply_and_kill_lose_nothing_acknowledged) {
  Daemon d;
  struct Written {
    std::string value;
    model::Version version;
  };
  std::map<std::string, Written> acked;
  // A later write of the key may be there though nobody was told: it came to the disk, and then the process died.
  const auto there = [&](const std::string& key, const Written& w) {
    auto found = d.engine->get(partition(1), key);
    return found && *found &&
           ((*found)->version > w.version || ((*found)->version == w.version && (*found)->value == w.value));
  };
  for (int life = 0; life < 4; life++) {
    d.config.spill_from = life % 2 == 0 ? d.config.overlay_bytes : 0;  // values of the odd lives stay in the journal
    d.config.spill_value = 200;
    d.start();
    if (life == 0) {
      bool made = false;
      ASSERT_TRUE(d.engine->create({tenure(1, 1), id_of<model::TableUuid>(7), {1}, {}},
                                   [&](const base::Status& s) { made = s.has_value(); }));
      ASSERT_TRUE(d.until([&] { return made; }));
    }
    for (const auto& [key, w] : acked) ASSERT_TRUE(there(key, w)) << key;
    uint64_t ms = 1000 + static_cast<uint64_t>(life) * 1000000;
    int under_way = 0, written = 0;
    base::SeededRandom random(static_cast<uint64_t>(life));
    size_t scanned = 0;
    ASSERT_TRUE(d.until([&] {
      while (under_way < 64 && written < 4000) {
        const auto key = std::to_string(random.below(5000));
        const auto value = std::string(random.below(1500), static_cast<char>('a' + written % 26));
        const auto stamp = ms++;
        auto r = d.engine->append(partition(1), payload_of({put(key, value, stamp)}),
                                  [&, key, value, stamp](const auto& lsn) {
                                    under_way--;
                                    if (lsn) acked[key] = {value, version(stamp)};
                                  });
        if (!r) {
          EXPECT_EQ(r.error().code, base::Code::overloaded);
          break;
        }
        under_way++;
        written++;
      }
      if (written % 50 == 0)
        d.engine->scan_async(partition(1), {}, [&](const auto& rows) { scanned += rows ? rows->rows.size() : 0; });
      return written == 4000 && (life % 2 == 0 || under_way == 0);
    }));
    ASSERT_EQ(d.fatal, "");
    d.stop();  // no farewell
  }
  d.start();
  for (const auto& [key, w] : acked) ASSERT_TRUE(there(key, w)) << key;
  bool drained = false;
  d.engine->drain([&](const base::Status&) { drained = true; });
  ASSERT_TRUE(d.until([&] { return drained; }));
  auto direct = DirectReader::open(d.path);
  ASSERT_TRUE(direct);
  for (const auto& [key, w] : acked) {
    auto found = (*direct)->get(tenure(1, 1), key);
    ASSERT_TRUE(found && *found && (*found)->version >= w.version);
  }
  EXPECT_EQ((*direct)->find(id_of<model::TableUuid>(7), "x").value()->id, tenure(1, 1));
  direct->reset();
  bool closed = false;
  d.engine->shutdown([&](const base::Status& s) { closed = s.has_value(); });
  ASSERT_TRUE(d.until([&] { return closed; }));
  d.stop();
  d.start();
  EXPECT_TRUE(d.engine->report().clean);
}

// Written, looked up and applied at the same time, killed, read again.
TEST(Threads, series_of_a_quorum_table_lie_in_a_real_index_and_come_back) {
  Daemon d;
  constexpr uint64_t kClients = 20, kWrites = 3000;
  std::map<uint64_t, uint64_t> committed;  // client → its highest number
  uint64_t n = 0;
  for (int life = 0; life < 3; life++) {
    d.start();
    if (life == 0) {
      bool made = false;
      ASSERT_TRUE(d.engine->create({tenure(1, 1), id_of<model::TableUuid>(7), {1}, {}, LogMode::quorum},
                                   [&](const base::Status& s) { made = s.has_value(); }));
      ASSERT_TRUE(d.until([&] { return made; }));
    }
    const uint64_t until = n + kWrites;
    int under_way = 0;
    ASSERT_TRUE(d.until([&] {
      while (under_way < 64 && n < until) {
        const uint64_t client = 1 + n % kClients, number = 1 + n / kClients;
        const auto first = d.engine->quorum_log(partition(1))->end.lsn.next();
        auto built =
            d.engine->build(partition(1), {model::BlockKind::data, {1}, d.engine->quorum_log(partition(1))->commit},
                            quorum_payload({1}, first, {{"k" + std::to_string(client), "v"}}, {client, number}),
                            [&, client, number, first](const base::Result<model::LogPoint>& point) {
                              under_way--;
                              ASSERT_TRUE(point);
                              ASSERT_TRUE(d.engine->commit(partition(1), first));
                              committed[client] = number;
                              const auto known = d.engine->series(partition(1), client);
                              ASSERT_TRUE(known) << base::to_string(known.error());
                              const auto* entry = known->window.find(number);
                              ASSERT_NE(entry, nullptr);
                              EXPECT_EQ(entry->outcome.lsn, first);
                            });
        if (!built) {
          EXPECT_EQ(built.error().code, base::Code::overloaded);
          break;
        }
        under_way++;
        n++;
      }
      return n == until && (life == 1 || under_way == 0);
    }));
    ASSERT_EQ(d.fatal, "");
    d.stop();
  }
  d.start();
  ASSERT_TRUE(d.engine->commit(partition(1), d.engine->quorum_log(partition(1))->end.lsn));
  bool drained = false;
  d.engine->drain([&](const base::Status&) { drained = true; });
  ASSERT_TRUE(d.until([&] { return drained; }));
  for (const auto& [client, number] : committed) {
    const auto known = d.engine->series(partition(1), client);
    ASSERT_TRUE(known);
    EXPECT_NE(known->window.find(number), nullptr);
    EXPECT_EQ(known->window.entries().size(), model::kSeriesWindow);
  }
  auto direct = DirectReader::open(d.path);
  ASSERT_TRUE(direct);
  EXPECT_TRUE((*direct)->get(tenure(1, 1), "k1").value());
}

// What a stream of old blocks saw, on a thread.
struct OldBlocks {
  model::Lsn from;
  std::vector<model::BlockHeader> headers;
};
// They follow one another from the one that was asked for on, and are those that were built.
void expect_of_log(const OldBlocks& old, const std::map<model::Lsn, uint32_t>& built) {
  for (size_t i = 0; i < old.headers.size(); i++) {
    const auto& h = old.headers[i];
    EXPECT_EQ(h.first, i == 0 ? old.from : old.headers[i - 1].last().next());
    const auto it = built.find(h.first);
    ASSERT_NE(it, built.end());
    EXPECT_EQ(h.header_crc, it->second);
  }
}

TEST(Threads, old_blocks_are_read_while_segments_are_written_retired_and_used_again) {
  Daemon d;
  d.config.retention_bytes = uint64_t{3} << 20;  // three segments
  d.start();
  bool made = false;
  ASSERT_TRUE(d.engine->create({tenure(1, 1), id_of<model::TableUuid>(7), {1}, {}, LogMode::quorum},
                               [&](const base::Status& s) { made = s.has_value(); }));
  ASSERT_TRUE(d.until([&] { return made; }));
  constexpr uint64_t kBlocks = 6000, kStreams = 6, kBack = 2500;  // of 2 KiB: a dozen segments
  std::map<model::Lsn, uint32_t> built;
  base::SeededRandom random(1);
  uint64_t writing = 0, streaming = 0, read = 0;
  const auto write = [&] {
    const auto first = d.engine->quorum_log(partition(1))->end.lsn.next();
    const auto block =
        d.engine->build(partition(1), {model::BlockKind::data, {1}, d.engine->quorum_log(partition(1))->commit},
                        quorum_payload({1}, first, {{"k" + std::to_string(first.value % 100), std::string(2000, 'v')}}),
                        [&, first](const base::Result<model::LogPoint>& point) {
                          writing--;
                          ASSERT_TRUE(point);
                          ASSERT_TRUE(d.engine->commit(partition(1), first));
                        });
    if (block) built[first] = block->header_crc;
    if (block) writing++;
    return block.has_value();
  };
  const auto stream = [&] {
    const uint64_t last = built.rbegin()->first.value, back = random.below(std::min(last, kBack));
    auto old = std::make_shared<OldBlocks>();
    old->from = {last - back};
    streaming++;
    d.engine->stream_log(
        partition(1), old->from, size_t{128} << 10,
        [old](const model::BlockHeader& h, std::string_view) { old->headers.push_back(h); },
        [&, old](const base::Status& s) {
          streaming--;
          expect_of_log(*old, built);
          read += old->headers.size();
          EXPECT_TRUE(s || s.error().code == base::Code::not_found || s.error().code == base::Code::unavailable)
              << base::to_string(s.error());
        });
  };
  // On a fast machine the blocks are there before anything was retired: then it goes on.
  bool enough = false;
  ASSERT_TRUE(d.until([&] {
    enough = enough || (built.size() >= kBlocks && !std::filesystem::exists(d.path + "/journal/000000000001.seg"));
    while (writing < 64 && !enough && write()) {
    }
    while (streaming < kStreams && !enough) stream();
    return enough && writing == 0 && streaming == 0;
  }));
  ASSERT_EQ(d.fatal, "");
  EXPECT_GT(read, kBlocks);
}

}  // namespace
}  // namespace cantle::store
