// Source: what replpush reads and keeps in the data directory that it shares with its partd: the journal, the index,
// the live page, and its own positions.
//
// Three lanes, each a thread that does one thing at a time: the journal, the index, the positions; so that a slow disk
// read never stops the loop, and a sync of a position never stops reading. Another thread waits on the live page.
//
// Use
//   Source source(loop, "/var/lib/cantle/p1", "");
//   source.attach(incarnation, done);            // at each new life of the partd
//   source.read_log(effect, self, done);         // done(LogRead) on the loop; so all others
//
// Invariants
//   * Every call is answered once, on the loop, unless the Source is destroyed before.
//   * Nothing past the durable end on the live page of the attached incarnation is read.
//   * A log end is only given where it is known: from the journal, or, where the journal has no block of a log any
//     more, from what the index has applied.
//   * Positions are durable, in the order recorded, before the done of a later forget, load or flush.
// Threads: the loop's. Ownership: destroy it before the loop.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "lib/base/result.h"
#include "lib/proto/mover_types.h"
#include "lib/store/data_dir.h"

namespace cantle::io {
class Loop;
}

namespace cantle::replpush {

namespace mv = proto::mover;

class Source {
 public:
  template <class T>
  using Done = std::function<void(T)>;

  Source(io::Loop& loop, std::string data_dir, std::string index_dir);
  ~Source();
  Source(const Source&) = delete;
  Source& operator=(const Source&) = delete;

  base::Result<store::Identity> identity();  // not_found before the partd's first start
  // Takes the lock that makes this the only replpush here, and opens the positions. conflict: another runs.
  base::Status open_positions();
  // A file beside the positions, for what operators hold.
  base::Result<std::string> read_holds();
  base::Status write_holds(const std::string& text);

  // The journal, the index and the page of this life of the partd. `moved` is called when the page moved, soon and
  // not too often; nothing is called for an older attachment any more.
  void attach(model::Incarnation incarnation, std::function<void()> moved, Done<base::Status> done);
  void detach();

  struct Logs {
    base::Status status;
    std::map<model::PartitionId, mv::LogState> logs;
  };
  void logs(std::vector<model::HeldPartition> held, Done<Logs> done);
  // What live sends had confirmed for these streams.
  std::vector<std::pair<mv::StreamId, model::LogPoint>> live(const std::vector<mv::StreamId>& streams);

  void read_log(mv::ReadLog ask, model::ServerNumber self, Done<mv::LogRead> done);
  void open_snapshot(mv::OpenSnapshot ask, Done<mv::SnapshotOpened> done);
  void read_snapshot(mv::ReadSnapshot ask, Done<mv::SnapshotRead> done);
  void read_proof(mv::ReadProof ask, Done<mv::ProofRead> done);

  void load_mark(mv::LoadMark ask, Done<mv::MarkLoaded> done);
  void record_mark(mv::RecordMark mark);
  void forget_mark(mv::MarkKey key);
  void list_marks(Done<std::vector<mv::MarkKey>> done);
  void flush(std::function<void()> done);  // all positions recorded so far are durable
  // A write to the positions failed for good (S61): the caller ends the process.
  void on_fatal(std::function<void(base::Error)> fn);

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace cantle::replpush
