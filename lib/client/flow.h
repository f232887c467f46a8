// Flow: one request on its way: map, partition, server, answer, and again. Internal to lib/client.
//
// Invariants
//   * Exactly one of succeeded() and failed() is called, once.
// Ownership: kept alive by the callback it waits for; ends with the client.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "lib/client/client.h"

namespace cantle::client {

class Flow : public std::enable_shared_from_this<Flow> {
 public:
  virtual ~Flow() = default;
  void begin();

 protected:
  Flow(Client& client, std::string table, Purpose purpose, base::Duration timeout);

  // The partition that takes the request; null after the flow has dealt with it otherwise (and is over).
  virtual const model::Partition* locate(const model::Metadata& map) = 0;
  virtual uint64_t spread() const = 0;
  // Of a quorum table: only its leader answers.
  virtual bool needs_leader() const { return true; }
  virtual std::string_view method() const = 0;
  virtual std::string encode(model::TxnSeq txnseq, uint32_t deadline_ms) = 0;
  // malformed: cannot be read.
  virtual base::Status succeeded(std::string_view result) = 0;
  virtual void failed(const base::Error& error) = 0;

  void give_up(const base::Error& last);
  // Of the last attempt's partition, in a quorum table: what this client was told of it, or of the one that it was
  // split from.
  std::optional<uint64_t> session_token() const;
  void saw_lsn(uint64_t lsn);
  bool of_quorum() const { return of_quorum_; }  // the table of the last attempt
  void attempt(const MapPtr& map);

  Client& client_;
  const std::string table_;
  const Purpose purpose_;
  Attempts attempts_;

 private:
  void find_map();
  void send(const model::ServerId& server, const MapPtr& map, size_t others);
  void attempt_failed(const model::ServerId& server, const base::Error& error, size_t others);

  void learn_leader(const model::ServerId& server, const base::Error& error);
  std::string place() const;  // of the last attempt, for people

  model::TxnSeq at_least_, acted_on_;
  MapPtr map_;  // that the last attempt acted on, and the partition there
  model::Region region_;
  model::PartitionId partition_;
  std::vector<model::PartitionId> parents_;  // two: it was merged from them
  bool of_quorum_ = false, of_leader_ = false;
  std::set<model::ServerId> tried_;  // since the last delay
};

}  // namespace cantle::client
