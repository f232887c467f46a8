// A server's store in one thread: disk and index in memory, lanes run by hand, a clock that is set.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "lib/store/engine.h"
#include "lib/store/live_page.h"
#include "lib/store/mem_index.h"
#include "lib/wire/block.h"
#include "test/unit/store/mem_disk.h"

namespace cantle::store {

struct HandClock final : base::Clock {
  base::Instant at{std::chrono::seconds(100)};
  base::Instant now() override { return at; }
  base::WallMs wall_ms() override { return 1700000000000 + static_cast<uint64_t>(base::to_ms(at.since_boot)); }
};

template <class Id>
Id id_of(uint8_t n) {
  Id id;
  id.bytes.fill(n);
  return id;
}
inline model::PartitionId partition(uint8_t n) { return id_of<model::PartitionId>(n); }
inline model::AssignmentId assignment(uint8_t n) { return id_of<model::AssignmentId>(n); }
inline TenureId tenure(uint8_t p, uint8_t a) { return {partition(p), assignment(a)}; }

inline model::Version version(uint64_t ms, uint32_t server = 1) { return model::Version::make(ms, 0, {server}, {1}); }

inline std::string payload_of(const std::vector<model::Record>& records) {
  std::string payload;
  for (const auto& r : records) wire::append_record(payload, wire::view_of(r));
  return payload;
}
inline model::Record put(std::string key, std::string value, uint64_t ms) {
  return {model::Op::put, std::move(key), std::move(value), version(ms), 0, 0, 0};
}
inline model::Record del(std::string key, uint64_t ms) {
  return {model::Op::del, std::move(key), "", version(ms), 0, 0, 0};
}

// Lanes of which some can be made to wait.
class Gate final : public Executor {
 public:
  std::unique_ptr<InlineExecutor> lanes;
  std::set<Lane> shut;
  void run(Lane lane, Fn task, Fn done) override {
    if (shut.contains(lane))
      waiting_.push_back({lane, std::move(task), std::move(done)});
    else
      lanes->run(lane, std::move(task), std::move(done));
  }
  void defer(Fn fn) override { lanes->defer(std::move(fn)); }
  void after(base::Duration delay, Fn fn) override {
    if (still)
      later_.push_back(std::move(fn));
    else
      lanes->after(delay, std::move(fn));
  }
  bool still = false;  // no time passes
  void pass() {
    for (auto& fn : std::exchange(later_, {})) fn();
  }
  void open() {
    shut.clear();
    for (auto& w : std::exchange(waiting_, {})) lanes->run(w.lane, std::move(w.task), std::move(w.done));
  }
  void clear() {
    waiting_.clear();
    later_.clear();
  }

 private:
  struct Waiting {
    Lane lane;
    Fn task, done;
  };
  std::vector<Waiting> waiting_;
  std::vector<Fn> later_;
};

class Store {
 public:
  MemDisk disk;
  MemIndexFiles files;
  MemIndexFactory factory{files};
  HandClock clock;
  EngineConfig config;
  Gate gate;
  std::unique_ptr<InlineExecutor>& lanes = gate.lanes;
  std::unique_ptr<LivePage> live;
  std::unique_ptr<Engine> engine;
  Identity identity{{"p1"}, id_of<model::ClusterUuid>(9), {0}, {1}};
  std::vector<std::string> fatal;
  uint64_t ms = 1000;

  Store() {
    config.segment_bytes = 64 << 10;
    config.overlay_bytes = 256 << 10;
    config.reserve_bytes = 1 << 20;
  }
  // After a crash: the process is gone, what its threads had not done is not done.
  void kill() {
    engine.reset();
    gate.clear();
    lanes.reset();
  }
  base::Status open() {
    kill();
    identity.incarnation = identity.incarnation.next();
    lanes = std::make_unique<InlineExecutor>();
    TRY_ASSIGN(live, LivePage::create(disk, identity.incarnation));
    auto opened = Engine::open({disk, factory, gate, clock, live.get()}, config, identity);
    if (!opened) return base::fail(std::move(opened).error());
    engine = std::move(*opened);
    engine->on_fatal([this](const base::Error& e) { fatal.push_back(e.text); });
    return base::ok();
  }
  void run() { lanes->run_all(); }
  void pass(base::Duration d) {
    clock.at = clock.at + d;
    engine->tick();
    run();
  }
  void settle() {  // everything durable and applied
    for (int i = 0; i < 100; i++) pass(std::chrono::milliseconds(1100));
  }
  base::Status create(uint8_t p, uint8_t a, model::Interval interval = {}) {
    base::Status got = base::fail(base::Code::cancelled, "no answer");
    TRY(engine->create({tenure(p, a), id_of<model::TableUuid>(7), {p}, interval},
                       [&](const base::Status& s) { got = s; }));
    run();
    return got;
  }
  // Appends without running the lanes.
  base::Result<model::Lsn> append(uint8_t p, const std::vector<model::Record>& records,
                                  Engine::Appended done = nullptr) {
    return engine->append(partition(p), payload_of(records), std::move(done));
  }
  // One record, durable.
  base::Result<model::Lsn> write(uint8_t p, std::string key, std::string value) {
    base::Result<model::Lsn> got = base::fail(base::Code::cancelled, "no answer");
    TRY(append(p, {put(std::move(key), std::move(value), ms++)},
               [&](base::Result<model::Lsn> r) { got = std::move(r); }));
    run();
    return got;
  }
  std::string get(uint8_t p, std::string_view key) {
    auto found = engine->get(partition(p), key);
    if (!found) return "error " + found.error().text;
    if (!*found) return "none";
    const auto text = (*found)->deleted ? "deleted" : std::string((*found)->value);
    run();
    return text;
  }
  std::map<std::string, std::string> all(uint8_t p) {
    std::map<std::string, std::string> out;
    ScanRange range;
    range.records_max = 1000000;
    range.bytes_max = size_t{1} << 30;
    auto end = engine->scan(partition(p), range, [&](std::string_view key, const Found& f) {
      out[std::string(key)] = std::string(f.value);
      return true;
    });
    EXPECT_TRUE(end.has_value());
    run();
    return out;
  }
  base::Status wait(const std::function<base::Status(Engine::Done)>& what) {
    base::Status got = base::fail(base::Code::cancelled, "no answer");
    TRY(what([&](const base::Status& s) { got = s; }));
    run();
    return got;
  }
  Engine::HashAt hash(uint8_t p) {
    base::Result<Engine::HashAt> got = base::fail(base::Code::cancelled, "no answer");
    engine->hash(partition(p), [&](base::Result<Engine::HashAt> h) { got = std::move(h); });
    run();
    EXPECT_TRUE(got.has_value());
    return got ? *got : Engine::HashAt{};
  }
};

}  // namespace cantle::store
