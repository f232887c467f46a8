// Ledger: what the clients of QuorumWorld asked for, what they were told, and what the logs say of it.
//
// Use
//   ledger.asked(write);                          // before a client first sends it
//   ledger.built(header, payload);                // each block that a leader put into its log
//   ledger.told(partition, client, series, outcome);   // an answer left a server, to whichever copy of the request
//   ledger.refused(partition, key, version);      // a condition was said to have failed, with what was there
//   ledger.merged(partition, merge);              // two of its logs ended in these cuts, and one begins behind both
//   ledger.check(partition, leaves);              // at the end: what became of the partition, and where its logs end
// "partition": a table of the world; what its partitions were split and merged into in the end is its leaves.
//
// Checked: one request has one outcome, whoever is told (at once); and, in check(), by going through the log from its
// beginning (of a merge's target: through those of both, each as far as its interval goes):
//   * each record is what its request asks for in the state that the log leads to (a cas only as its condition holds),
//     so that a counter is the sum of its increments
//   * of each (client, series) there is one group of records, in one block, and somebody asked for it (S23)
//   * what was told stands where it was told to
//   * what a refusal told of was committed (S24), and what was refused was not done
//   * what anybody called committed is in it (S2)
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "lib/model/block.h"
#include "lib/model/client_messages.h"
#include "lib/model/interval.h"
#include "lib/model/record.h"
#include "lib/model/series.h"

namespace cantle::sim {

// A client's write, as it is sent.
struct QuorumWrite {
  struct Op {
    model::Op op = model::Op::put;
    std::string key, value;
  };
  size_t partition = 0;
  model::WriteKind kind = model::WriteKind::write;
  std::vector<Op> ops;
  model::Expect expect;  // cas
  int64_t by = 1;        // incr
  uint64_t client = 0, series = 0, series_low = 0, age_ms = 0;
  int64_t within_ms = 0;
};

class QuorumLedger {
 public:
  explicit QuorumLedger(size_t partitions) : partitions_(partitions) {}

  using Fault = std::optional<std::string>;
  void asked(const QuorumWrite& write);
  void built(size_t partition, const model::BlockHeader& header, std::string payload);
  Fault told(size_t partition, uint64_t client, uint64_t series, const model::WriteOutcome& outcome);
  // To the client, of all that it has sent: its condition did not hold.
  void told_refused(size_t partition, uint64_t client, uint64_t series);
  // `version`: in hex, as it was told; empty: the key was not there.
  void refused(size_t partition, const std::string& key, const std::string& version);
  Fault committed(size_t partition, const model::PartitionId& id, const model::LogPoint& point);
  // What the log comes to, once check() found nothing: key → (version, value); deleted ones are not there.
  struct Held {
    model::Version version;
    std::string value;
    friend bool operator==(const Held&, const Held&) = default;
  };
  using Contents = std::map<std::string, Held>;
  // What became of a key: its versions, each the next.
  struct Written {
    model::Version version;
    bool deleted = false;
  };
  using Timeline = std::vector<Written>;
  using Timelines = std::map<std::string, Timeline>;
  struct Merged {
    model::LogPoint low, high;  // the cuts
    model::Interval low_interval, high_interval;
  };
  void merged(size_t partition, const Merged& merge);
  struct Leaf {
    model::PartitionId id;
    model::Interval interval;
    model::LogPoint end;
    std::vector<std::pair<model::PartitionId, model::LogPoint>> ancestors;  // and where their logs ended
    Contents held;                                                          // for whoever compares it
  };
  Fault check(size_t partition, const std::vector<Leaf>& leaves);
  const Contents& contents(size_t partition, const model::PartitionId& leaf) const {
    return partitions_[partition].leaves.at(leaf);
  }
  const Timelines& timelines(size_t partition) const { return partitions_[partition].timelines; }

 private:
  using Name = std::pair<uint64_t, uint64_t>;  // client, series
  struct Built {
    model::BlockHeader header;
    std::string payload;
  };
  using Place = std::pair<model::Lsn, uint32_t>;  // last LSN and header checksum
  // What a log comes to, from the beginning to some end.
  struct Gone {
    Contents contents;
    std::map<Name, model::WriteOutcome> written;
    std::set<std::pair<std::string, std::string>> versions;  // key, version
    std::set<Place> ends;                                    // of its blocks
    Timelines timelines;
  };
  struct Partition {
    std::map<Place, Built> built;
    std::map<Place, Merged> merged;  // by where the target's log begins
    // Of each that it was or became: checksum of the block that ends there.
    std::map<model::PartitionId, std::map<model::Lsn, uint32_t>> committed;
    std::map<Name, model::WriteOutcome> told;
    std::set<std::pair<std::string, std::string>> refused;  // key, version
    std::set<Name> told_refused;
    std::map<model::PartitionId, Contents> leaves;
    Timelines timelines;
  };
  Fault check_committed(const Partition& p, const Leaf& leaf, const std::set<Place>& ends) const;
  Fault go_through(size_t partition, const model::LogPoint& end, Gone& gone) const;
  Fault join(size_t partition, const Merged& merge, Gone& gone) const;
  Fault replay(Gone& gone, size_t partition, const Built& block) const;
  Fault apply(Gone& gone, size_t partition, const model::BlockHeader& header,
              const std::vector<model::Record>& group) const;

  std::vector<Partition> partitions_;
  std::map<Name, QuorumWrite> asked_;
};

}  // namespace cantle::sim
