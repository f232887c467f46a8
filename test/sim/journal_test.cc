// One server's store alone, dying again and again: what was durable is there after every death, and the log of a
// partition is one chain. Thousands of deaths a second, so that the rare ones are met too: the power fails in the
// middle of a sync, and again when a little has been written over what was torn; a sync fails; a process is killed.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>

#include "lib/store/data_dir.h"
#include "lib/store/engine.h"
#include "lib/store/journal_reader.h"
#include "lib/store/live_page.h"
#include "lib/store/mem_index.h"
#include "lib/wire/block.h"
#include "test/sim/disk.h"
#include "test/sim/executor.h"
#include "test/sim/seeds.h"

namespace cantle::sim {
namespace {

class JournalWorld {
 public:
  // `flips`: bits flip while the process is dead, and the power does not fail: the live page knows what was durable.
  explicit JournalWorld(uint64_t seed, bool flips = false)
      : flips_(flips), scheduler_(seed), medium_(scheduler_, "p1"), process_(scheduler_, "p1", "partd") {
    process_.kill();
    medium_.on_power_loss([this] { lose_power(); });
    auto& random = scheduler_.random();
    table_ = model::TableUuid::draw(random);
    cluster_ = model::ClusterUuid::draw(random);
    tenure_ = {model::PartitionId::draw(random), model::AssignmentId::draw(random)};
    config_.segment_bytes = 16 << 10;
    config_.overlay_bytes = 64 << 10;
    config_.overlay_age = 20ms;
    config_.checkpoint_interval = 50ms;
    config_.retention_bytes = 8 << 20;
    config_.reserve_bytes = 64 << 10;
    if (seed % 2 == 0) config_.spill_from = 0;  // every value is left in the journal
    config_.spill_value = 1;
  }

  Verdict run() {
    const size_t lives = 10 + scheduler_.random().below(30);
    for (size_t i = 0; i < lives && violation_.empty(); ++i) {
      if (live()) die();
      end_life();
    }
    if (violation_.empty()) (void)live();
    end_life();
    return {scheduler_.trace_hash(), scheduler_.events(), violation_};
  }

 private:
  struct Life {
    Life(Medium& medium, Process& process, const SimExecutor::Times& times, store::MemIndexFiles& index)
        : disk(medium, process), executor(process, times), indexes(index) {}
    SimDisk disk;
    SimExecutor executor;
    store::MemIndexFactory indexes;
    std::unique_ptr<store::DataDir> dir;
    std::unique_ptr<store::LivePage> page;
    std::unique_ptr<store::Engine> engine;
  };

  void fail(const std::string& text) {
    if (violation_.empty()) violation_ = text;
    scheduler_.note("VIOLATION", text);
  }
  void lose_power() {
    scheduler_.after(1ns, [this] { medium_.power_cut(); });
  }

  // A life up to the moment of its death; false: it did not come so far.
  bool live() {
    process_.restart();
    if (flips_) medium_.faults().full_below = scheduler_.random().chance(0.4) ? store::kTrashDir : "";  // S65
    life_ = std::make_unique<Life>(medium_, process_, times_, index_);
    if (const auto opened = open(); !opened) {
      if (process_.alive()) fail("it does not start: " + to_string(opened.error()));
      return false;
    }
    const auto& report = life_->engine->report();
    scheduler_.note("recovered", report.frames, report.torn_bytes, report.damaged.size());
    if (!report.damaged.empty() && flipped_ == 0 && !damaged_before_)
      fail("its journal is called damaged, and nothing damaged it");
    there_ = there_ || life_->engine->find(tenure_).has_value();
    if (!there_) {
      const auto begun = life_->engine->create({tenure_, table_, {1}, {}},
                                               [this](base::Status made) { there_ = there_ || made.has_value(); });
      if (!begun || !scheduler_.run_until([&] { return there_; }, scheduler_.now() + 1s)) return false;
    }
    if (flips_ && !life_->engine->find(tenure_)->whole && !mend()) return false;
    check();
    for (size_t bursts = scheduler_.random().below(3); bursts > 0 && process_.alive(); --bursts) burst();
    return process_.alive();
  }

  base::Status open() {
    TRY_ASSIGN(life_->dir, store::DataDir::open(life_->disk, {{"p1"}, cluster_}));
    TRY_ASSIGN(life_->page, store::LivePage::create(life_->disk, life_->dir->identity().incarnation));
    TRY_ASSIGN(life_->engine,
               store::Engine::open({life_->disk, life_->indexes, life_->executor, process_, life_->page.get()}, config_,
                                   life_->dir->identity()));
    life_->engine->on_fatal([this](const base::Error& error) {
      scheduler_.note("fatal", error.text);
      process_.kill();
    });
    return base::ok();
  }

  // Blocks that go into one sync group, mostly; all of one size, so that old frames lie where new ones end.
  void burst() {
    auto& random = scheduler_.random();
    for (size_t n = 1 + random.below(6); n > 0; --n) {
      const std::string digits = std::to_string(++written_), key = std::string(8 - digits.size(), '0') + digits;
      model::RecordView record;
      record.key = key;
      record.value = "the same value";
      record.version = model::Version::make(1'700'000'000'000 + written_, 0, {1}, life_->dir->identity().incarnation);
      std::string payload;
      wire::append_record(payload, record);
      (void)life_->engine->append(tenure_.partition, payload, [this, key, v = record.version](const auto& lsn) {
        if (lsn) durable_[key] = v;
      });
    }
    scheduler_.run_for(scheduler_.between(0ns, 3ms));
    if (process_.alive()) life_->engine->tick();
  }

  // What may be lost is said to be, and was not thrown away: all but what the bits themselves hit stands in the journal
  // or in the trash. From now on the copy is called whole without it.
  bool mend() {
    size_t gone = 0;
    std::string all;
    for (auto it = durable_.begin(); it != durable_.end();) {
      const auto found = life_->engine->get(tenure_.partition, it->first);
      if (found && *found && (*found)->version == it->second) {
        ++it;
        continue;
      }
      if (all.empty()) all = everything();
      gone += all.find(it->first) == std::string::npos ? 1 : 0;
      it = durable_.erase(it);
    }
    if (gone > anywhere_) fail("what was durable and damaged is neither in the journal nor in the trash");
    flipped_ = anywhere_ = 0;
    bool marked = false;
    const auto begun = life_->engine->mark_whole(tenure_, [&](base::Status s) { marked = s.has_value(); });
    if (!begun || !scheduler_.run_until([&] { return marked || !process_.alive(); }, scheduler_.now() + 1s))
      return false;
    damaged_before_ = true;
    return process_.alive();
  }
  std::string everything() {
    std::string all;
    for (const auto& path : medium_.paths()) {
      if (!path.starts_with("journal/0") && !path.starts_with("trash/")) continue;
      const auto file = life_->disk.open(path, store::OpenMode::read);
      if (file) all += (*file)->read(0, (*file)->size().value_or(0)).value_or("");
    }
    return all;
  }
  // A bit flips: anywhere in the journal, or in the last of what was durable.
  void flip(const store::JournalPosition& end) {
    auto& random = scheduler_.random();
    if (random.chance(0.4)) {
      if (medium_.flip_bit("journal/0")) ++flipped_, ++anywhere_;
      return;
    }
    if (end.offset < 160) return;
    SimDisk disk(medium_, hand_);
    const auto file = disk.open(store::segment_path(end.segment), store::OpenMode::write);
    if (!file) return;
    const auto at = end.offset - 1 - random.below(std::min<uint64_t>(end.offset, random.chance(0.5) ? 240 : 60));
    auto byte = (*file)->read(at, 1);
    if (!byte || byte->size() != 1) return;
    if (byte->front() >= '0' && byte->front() <= '9') return;  // a key, perhaps, which is looked for
    byte->front() = static_cast<char>(byte->front() ^ (1 << random.below(8)));
    if ((*file)->write(at, *byte) && (*file)->sync()) ++flipped_;
  }

  void die() {
    auto& random = scheduler_.random();
    if (flips_) {
      const auto end = life_->page->read().durable;
      process_.kill();
      if (random.chance(0.5)) scheduler_.after(500us, [this, end] { flip(end); });
      return;
    }
    auto& faults = medium_.faults();
    switch (random.below(4)) {
      case 0: process_.kill(); break;
      case 1:
        process_.kill();
        lose_power();
        break;
      case 2: faults.power_at_sync = 1; break;
      default: faults.fail_sync = 1; break;
    }
    for (int i = 0; i < 3 && process_.alive(); ++i) burst();
    if (process_.alive()) scheduler_.run_for(5ms);
    faults.power_at_sync = faults.fail_sync = 0;
  }

  void end_life() {
    process_.kill();
    scheduler_.run_for(1ms);
    life_.reset();
  }

  void check() {
    for (const auto& [key, version] : durable_) {
      const auto found = life_->engine->get(tenure_.partition, key);
      if (!found || !*found || (*found)->version != version) return fail("record " + key + " was durable, and is gone");
    }
    const auto reader = store::JournalReader::open(life_->disk);
    if (!reader || !(*reader)->advance(life_->engine->status().head)) return;
    const auto end = (*reader)->end(tenure_.partition);
    const auto oldest = (*reader)->oldest(tenure_.partition);
    model::LogPoint before;
    for (model::Lsn next = oldest.value_or(model::Lsn{1}); end && next <= end->lsn;) {
      const auto part = (*reader)->read(tenure_.partition, next, 1 << 20);
      if (damaged_before_ && part && part->gap) return;
      if (!part || part->gap || part->gone || part->blocks.empty()) return fail("the journal cannot be read");
      for (const auto& block : part->blocks) {
        const auto& h = block.header;
        const model::LogPoint says = before_of(h);
        if (before.lsn.value != 0 && says != before)
          return fail("LSN " + to_string(h.first) + " does not follow the one before it");
        if (h.epoch < before.epoch)
          return fail("LSN " + to_string(h.first) + " is of an older life than the one before it");
        before = point_of(h);
      }
      next = part->next;
    }
  }

  bool flips_, damaged_before_ = false;
  size_t flipped_ = 0, anywhere_ = 0;  // bits, since the copy was whole; of them, such as may have hit a key
  Scheduler scheduler_;
  Medium medium_;
  Process process_;
  Process hand_{scheduler_, "hand", "hand"};  // of whoever spoils the disk while it is dead
  store::MemIndexFiles index_;
  SimExecutor::Times times_;
  store::EngineConfig config_;
  model::TableUuid table_;
  model::ClusterUuid cluster_;
  store::TenureId tenure_;
  std::unique_ptr<Life> life_;
  bool there_ = false;
  uint64_t written_ = 0;
  std::map<std::string, model::Version> durable_;
  std::string violation_;
};

Verdict run_journal(uint64_t seed) { return JournalWorld(seed).run(); }
const Simulation journal("journal", run_journal);
Verdict run_damaged_journal(uint64_t seed) { return JournalWorld(seed, true).run(); }
const Simulation damaged_journal("journal_damaged", run_damaged_journal);

// S61, S62, S63.
TEST(SimJournal, what_was_durable_is_there_however_often_the_server_dies) { run_seeds("journal", 1000, run_journal); }

// S62: at its end, too, where only the live page knows what it was.
TEST(SimJournal, what_was_durable_and_is_damaged_is_said_to_be_and_is_kept) {
  run_seeds("journal, damaged", 300, run_damaged_journal);
}

}  // namespace
}  // namespace cantle::sim
