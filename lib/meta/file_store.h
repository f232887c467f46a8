// FileStore: a metadata server's METADATA files on disk: nodes by hash, shared between files, and for each
// table what was current once.
//
// Use
//   TRY_ASSIGN(auto files, FileStore::open(index, executor));
//   files->put(table, name, info, nodes, [](base::Status s) { … });   // durable when called
//   auto bytes = files->node(hash);
//
// What is asked for while the disk is busy goes into one transaction when it is free. `seen` and `remove`
// wait for the next put or for flush(): nobody waits for them.
//
// Invariants
//   * A file that is listed has all its nodes; a node goes when no file has it any more.
//   * node() knows what put() was given at once; has_file() of FileStore's owner is what tells durable.
//   * A put that failed left nothing.
//
// Threads: the loop's. Ownership: index and executor outlive it.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "lib/base/result.h"
#include "lib/model/ids.h"
#include "lib/proto/metadata_replica.h"
#include "lib/store/executor.h"
#include "lib/store/index.h"
#include "lib/wire/metadata_codec.h"

namespace cantle::meta {

class FileStore {
 public:
  using FileInfo = proto::replica::FileInfo;
  using Done = std::function<void(base::Status)>;

  struct Table {
    model::TableUuid uuid;
    std::string name;
    model::TxnId seen_txnid;
    model::TxnSeq seen_txnseq;
    std::map<model::TxnId, FileInfo> files;
  };

  // corrupt: a listed file lacks a node, or an entry cannot be read.
  static base::Result<std::unique_ptr<FileStore>> open(store::Index& index, store::Executor& executor);
  ~FileStore();
  FileStore(const FileStore&) = delete;
  FileStore& operator=(const FileStore&) = delete;

  // As after everything that was asked for so far.
  const std::map<model::TableUuid, Table>& tables() const { return tables_; }

  // `nodes`: at least those that are not here yet; not_found when one is missing.
  void put(const model::TableUuid& table, const std::string& name, const FileInfo& file, std::vector<wire::Node> nodes,
           Done done);
  void seen(const model::TableUuid& table, const std::string& name, const model::TxnId& txnid, model::TxnSeq txnseq);
  void remove(const model::TableUuid& table, const std::vector<model::TxnId>& files);
  // The table with all its files and what was seen of it.
  void forget(const model::TableUuid& table);
  void flush();

  bool has_node(const wire::NodeHash& hash) const { return refs_.contains(hash); }
  // Null when it is not here.
  std::shared_ptr<const std::string> node(const wire::NodeHash& hash);
  // A file that is listed, decoded. `base` as in wire::decode_metadata.
  base::Result<wire::MetadataFile> load(const FileInfo& file, const wire::MetadataFile* base = nullptr);

  // Called when a transaction fails for want of space, before it is tried once more; true: there is room now.
  void on_no_space(std::function<bool()> make_room) { make_room_ = std::move(make_room); }
  size_t largest_put() const { return largest_put_; }

 private:
  struct Write {
    std::vector<std::pair<std::string, std::string>> put_meta;
    std::vector<std::string> del_meta;
    std::vector<wire::Node> put_nodes;
    std::vector<wire::NodeHash> del_nodes;
    Done done;  // put
    model::TableUuid table;
    model::TxnId txnid;  // put: to undo
  };

  FileStore(store::Index& index, store::Executor& executor)
      : index_(index), executor_(executor), reader_(index.reader()) {}
  base::Status read_all();
  base::Status complete(const wire::NodeHash& hash, int depth);
  base::Result<std::vector<wire::NodeHash>> children(const wire::NodeHash& hash, int depth);
  void add_ref(const wire::NodeHash& hash, int depth, std::vector<wire::NodeHash>* fresh);
  void drop_ref(const wire::NodeHash& hash, int depth, std::vector<wire::NodeHash>* gone);
  void remember(const Table& table, Write& write);
  void drop_file(Table& table, const model::TxnId& txnid, Write& write);
  void begin();
  void finished(std::vector<Write>& writes, const base::Status& status);
  static base::Status perform(store::Index& index, const std::vector<Write>& writes);

  store::Index& index_;
  store::Executor& executor_;
  std::unique_ptr<store::Reader> reader_;
  std::function<bool()> make_room_;
  std::map<model::TableUuid, Table> tables_;
  std::map<wire::NodeHash, uint32_t> refs_;  // by how many parents, files being the parents of roots
  std::map<wire::NodeHash, std::shared_ptr<const std::string>> unwritten_;
  std::deque<Write> queue_;
  bool busy_ = false, urgent_ = false;
  size_t largest_put_ = 0;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace cantle::meta
