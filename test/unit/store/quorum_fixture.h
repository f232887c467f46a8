// A quorum table's partition in a Store: blocks are built and taken as a leader and its followers would.
#pragma once

#include <string>
#include <vector>

#include "lib/model/series.h"
#include "lib/store/journal_format.h"
#include "test/unit/store/engine_fixture.h"

namespace cantle::store {

using Rows = std::map<std::string, std::string>;
using Blocks = std::vector<model::Block>;

// Whose write it is: the last record's.
struct Whose {
  uint64_t client = 0, series = 0;
  model::ResultKind kind = model::ResultKind::place;
};

inline std::string quorum_payload(model::Epoch epoch, model::Lsn first,
                                  const std::vector<std::pair<std::string, std::string>>& puts,
                                  const Whose& whose = {}) {
  std::string payload;
  size_t left = puts.size();
  for (const auto& [key, value] : puts) {
    model::RecordView r;
    r.key = key;
    r.value = value;
    if (--left == 0) {
      r.client = whose.client;
      r.series = whose.series;
      r.flags = model::result_flags(whose.kind);
    }
    wire::append_record(payload, r);
  }
  EXPECT_TRUE(wire::stamp_records(payload, epoch, first));
  return payload;
}

// A sealed block behind `before`.
inline model::Block block_after(const model::LogPoint& before, uint8_t p, uint64_t epoch, uint64_t commit,
                                const std::vector<std::pair<std::string, std::string>>& puts, const Whose& whose = {},
                                uint64_t elapsed_ms = 0) {
  model::Block b;
  auto& h = b.header;
  h.kind = puts.empty() ? model::BlockKind::epoch_start : model::BlockKind::data;
  h.partition = partition(p);
  h.region = {p};
  h.epoch = {epoch};
  h.first = before.lsn.next();
  h.records = puts.empty() ? 1 : static_cast<uint32_t>(puts.size());
  h.prev_epoch = before.epoch;
  h.prev_lsn = before.lsn;
  h.prev_crc = before.crc;
  h.commit = {commit};
  h.leader_ms = 1700000000000;
  h.elapsed_ms = elapsed_ms;
  if (!puts.empty()) b.payload = quorum_payload(h.epoch, h.first, puts, whose);
  wire::seal_block(h, b.payload);
  return b;
}

class QuorumStore : public Store {
 public:
  base::Status create_quorum(uint8_t p, uint8_t a, model::Interval interval = {}) {
    return wait([&](auto done) {
      return engine->create({tenure(p, a), id_of<model::TableUuid>(7), {p}, std::move(interval), LogMode::quorum},
                            done);
    });
  }
  QuorumLog log(uint8_t p = 1) {
    const auto l = engine->quorum_log(partition(p));
    EXPECT_TRUE(l.has_value());
    return l ? *l : QuorumLog{};
  }
  // One record, appended; the lanes are not run.
  base::Result<model::BlockHeader> build(uint64_t epoch, const std::string& key, const std::string& value,
                                         Engine::Taken done = nullptr, uint8_t p = 1) {
    const auto first = log(p).end.lsn.next();
    return engine->build(partition(p), {model::BlockKind::data, {epoch}, log(p).commit},
                         quorum_payload({epoch}, first, {{key, value}}), std::move(done));
  }
  // The same, as a client's.
  base::Result<model::BlockHeader> build_as(const Whose& whose, const std::string& key, const std::string& value,
                                            uint8_t p = 1) {
    const auto first = log(p).end.lsn.next();
    return engine->build(partition(p), {model::BlockKind::data, {1}, log(p).commit},
                         quorum_payload({1}, first, {{key, value}}, whose), nullptr);
  }
  model::ClientSeries series(uint64_t client, uint8_t p = 1) {
    const auto got = engine->series(partition(p), client);
    EXPECT_TRUE(got) << base::to_string(got.error());
    run();
    return got ? *got : model::ClientSeries{};
  }
  base::Result<model::BlockHeader> begin_epoch(uint64_t epoch, uint8_t p = 1) {
    return engine->build(partition(p), {model::BlockKind::epoch_start, {epoch}, log(p).commit}, "", nullptr);
  }
  base::Result<model::LogPoint> take(const model::Block& b, Engine::Taken done = nullptr, Sync sync = Sync::now) {
    return engine->take(b.header.partition, b.header, b.payload, std::move(done), sync);
  }
  base::Status commit(uint64_t lsn, uint8_t p = 1) { return engine->commit(partition(p), {lsn}); }
  base::Status seal(uint64_t promised, uint8_t p = 1) {
    return wait([&](auto done) { return engine->seal(partition(p), {promised}, done); });
  }
  base::Status truncate(const model::LogPoint& keep, uint8_t p = 1) {
    return wait([&](auto done) { return engine->truncate(partition(p), keep, done); });
  }
  base::Result<Blocks> read_log(uint64_t from, size_t bytes = size_t{1} << 30, uint8_t p = 1) {
    auto blocks = engine->read_log(partition(p), {from}, bytes);
    if (!blocks && blocks.error().code == base::Code::unavailable) {  // looked up in the background
      run();
      blocks = engine->read_log(partition(p), {from}, bytes);
    }
    return blocks;
  }
  // Power fails, and it starts again.
  void lose_power(base::Random* random = nullptr) {
    kill();
    disk.crash(random);
    ASSERT_TRUE(open());
  }
};

}  // namespace cantle::store
