// TableReplica: the shell around proto::MetadataReplica: one table's files on this metadata server, by the table's
// uuid.
//
// Use
//   replica.config_seen(asked, config);           // each read of TableConfig
//   replica.store(request, [](base::Status s) { … });
//   replica.load(txnid, 3s, [](base::Result<wire::MetadataFile> f) { … });   // the current file, durable and decoded
//
// Threads: the loop's. Ownership: the host outlives it.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "lib/meta/fetch_job.h"
#include "lib/meta/host.h"
#include "lib/proto/metadata_replica.h"

namespace cantle::meta {

class TableReplica {
 public:
  using LoadDone = std::function<void(base::Result<wire::MetadataFile>)>;
  using StoreDone = std::function<void(base::Status)>;

  TableReplica(Host& host, model::TableUuid uuid, std::string name);
  ~TableReplica();
  TableReplica(const TableReplica&) = delete;
  TableReplica& operator=(const TableReplica&) = delete;

  const model::TableUuid& uuid() const { return uuid_; }
  const std::string& name() const { return name_; }
  const proto::MetadataReplica& machine() const { return machine_; }
  // The current file; null when the local one is not current. last(): the newest one that was, for `stale_ok`.
  const wire::MetadataFile* current() const;
  const wire::MetadataFile* last() const { return last_.map ? &last_ : nullptr; }
  // The tree of a file that was current here lately, or null.
  std::shared_ptr<const wire::MetadataTree> recent_tree(const model::TxnId& txnid) const;

  void config_seen(std::optional<base::Instant> asked, const proto::VersionedConfig& config);
  void tick();
  void store(const model::MdStore& request, StoreDone done);
  // A file made here: a store() of it needs not make it again.
  void offer(const wire::EncodedFile& file);
  void abort(const model::TxnId& txnid);
  // unavailable when `txnid` is not the current file, or did not come in time.
  void load(const model::TxnId& txnid, base::Duration limit, LoadDone done);
  void on_current(std::function<void(const wire::MetadataFile&)> fn) { on_current_ = std::move(fn); }
  bool idle() const { return tickets_.empty() && loads_.empty() && jobs_.empty(); }
  base::Instant last_used() const { return last_used_; }

 private:
  struct Pending {  // made or fetched here, on its way to the disk or not yet current
    wire::MetadataFile file;
    std::vector<wire::Node> nodes;
  };
  struct Ticket {
    model::MdStore request;
    StoreDone done;
  };
  struct LoadWait {
    model::TxnId txnid;
    base::Instant until;
    LoadDone done;
  };

  void feed(proto::replica::Input input);
  void perform(const proto::replica::Build& e);
  void perform(const proto::replica::Fetch& e);
  void perform(const proto::replica::Persist& e);
  void perform(const proto::replica::Answer& e);
  void perform(const proto::replica::Current& e);
  void perform(const proto::replica::Seen& e);
  void perform(const proto::replica::Delete& e);
  void perform(const proto::replica::Alarm& e);
  base::Result<proto::replica::FileInfo> build(const Ticket& ticket, const model::TxnId& base,
                                               const model::TxnId& txnid);
  base::Result<wire::MetadataFile> file_of(const model::TxnId& txnid);
  void fetched(const model::TxnId& txnid, base::Result<FetchedFile> result);
  void keep(const model::TxnId& txnid, Pending pending);
  void let_go();
  void answer_loads();
  base::Instant now() { return host_.timers().now(); }

  Host& host_;
  model::TableUuid uuid_;
  std::string name_;
  proto::MetadataReplica machine_;
  std::deque<proto::replica::Input> inputs_;
  bool pumping_ = false;
  wire::MetadataFile last_;
  std::map<model::TxnId, Pending> pending_;
  std::deque<model::TxnId> pending_order_;
  std::deque<std::pair<model::TxnId, std::shared_ptr<const wire::MetadataTree>>> recent_;
  std::map<uint64_t, Ticket> tickets_;
  uint64_t next_ticket_ = 1;
  std::map<model::TxnId, std::unique_ptr<FetchJob>> jobs_;
  std::vector<LoadWait> loads_;
  std::function<void(const wire::MetadataFile&)> on_current_;
  base::Instant last_used_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace cantle::meta
