// LivePage: journal/live, a mapped page by which partd tells its replpush, without a call per insert,
// how far the journal is durable and what live sends had confirmed (design/store.md, "Snapshots and
// direct readers").
//
// Use, partd (writer):
//   TRY_ASSIGN(auto page, LivePage::create(disk, incarnation));  // invalidates what was there
//   page->set_durable(position);   page->tell();                  // and wakes the waiters
//   page->set_confirmed({own, target}, point);                    // contiguous: all at or below it
// replpush (reader):
//   TRY_ASSIGN(auto page, LivePage::attach(disk));                // not_found before partd ran
//   auto state = page->read();   page->wait(state.changes, 500);  // returns when something changed
//
// Invariants
//   * read() and confirmed() never return a mix of two writes (a sequence lock each; a writer that died
//     in the middle is not waited for: read() gives `valid` = false, confirmed() nothing).
//   * The reader takes only what belongs to the incarnation that the id file names. Across a crash one thing is
//     believed: a sequence that stands there was durable, however old it is; it is written after the sync.
//
// Threads: the writer one thread; readers any, in any process.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "lib/base/result.h"
#include "lib/model/block.h"
#include "lib/model/ids.h"
#include "lib/store/disk.h"
#include "lib/store/position.h"

namespace cantle::store {

constexpr size_t kLivePageSize = size_t{1} << 20;
constexpr size_t kLiveEntriesMax = 8000;  // (own, target) pairs; more are not published, which only costs digests

struct LiveState {
  bool valid = false;  // partd has opened its journal
  model::Incarnation incarnation;
  JournalPosition durable;  // the first byte not durable
  uint32_t changes = 0;     // moves with every tell(); for wait()
};

struct LivePair {
  model::AssignmentId own, target;
  auto operator<=>(const LivePair&) const = default;
};

class LivePage {
 public:
  static base::Result<std::unique_ptr<LivePage>> create(Disk& disk, model::Incarnation incarnation);
  static base::Result<std::unique_ptr<LivePage>> attach(Disk& disk);
  ~LivePage();

  // Writer.
  // The sequence that an earlier life's set_durable had told of; 0: none, or the page was lost. What recovery finds bad
  // before it is damage, not a write that was torn (S62).
  uint64_t durable_before() const;
  void set_durable(const JournalPosition& durable);
  // Wakes who waits: a system call that takes longer than all else here. Not for what no reader waits for.
  void tell();
  bool set_confirmed(const LivePair& pair, const model::LogPoint& point);  // false: the page is full
  void forget(const LivePair& pair);

  // Reader.
  LiveState read() const;
  std::optional<model::LogPoint> confirmed(const LivePair& pair) const;
  void wait(uint32_t changes_seen, int timeout_ms) const;

 private:
  struct Impl;
  explicit LivePage(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace cantle::store
