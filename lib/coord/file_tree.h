// Tree: the znodes of the embedded coordination service, inside one LMDB transaction.
//
// Reader looks, Editor also changes. The counters mean what they mean in ZooKeeper: every change (a
// whole multi is one) takes the next zxid; `version` counts the sets of a node, `cversion` the changes
// of its children; a sequential name carries the number of children ever created under the parent.
//
// Tables
//   nodes       parent '\0' name → header, value; the root under "/"
//   ephemerals  session id, big-endian, path → nothing
//   sessions    session id → SessionRecord
//   meta        "version", "zxid"
//
// Threads: a Reader's is that of its transaction, an Editor's the writer thread. Views end with the
// transaction.
#pragma once

#include <lmdb.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/result.h"
#include "lib/coord/coord.h"
#include "lib/coord/file_env.h"

namespace cantle::coord::file {

// not_found: nothing was stored yet. invalid: a tree of a version that this program does not know.
base::Status check_tree(const Env& env, MDB_txn* txn);
// First use: the root and the counters.
base::Status prepare_tree(const Env& env, MDB_txn* txn);

struct SessionRecord {
  uint64_t id = 0;
  uint64_t timeout_ns = 0;
};

class Reader {
 public:
  Reader(const Env& env, MDB_txn* txn) : tables_(env.tables()), txn_(txn) {}

  base::Result<Node> get(std::string_view path) const;
  base::Result<Stat> exists(std::string_view path) const;
  base::Result<Children> children(std::string_view path) const;
  uint64_t zxid() const;
  bool has_session(uint64_t id) const;
  std::vector<SessionRecord> sessions() const;
  // Of a session, in path order.
  std::vector<std::string> ephemerals(uint64_t session) const;

 protected:
  struct Header {
    uint32_t version = 0;
    uint32_t created = 0;   // children ever
    uint32_t children = 0;  // now
    uint32_t unused = 0;
    uint64_t czxid = 0, mzxid = 0;
    uint64_t owner = 0;
  };
  struct Found {
    Header header;
    std::string_view value;
  };
  static Stat stat_of(const Header& header);
  // Empty: there is none.
  base::Result<std::optional<Found>> find(std::string_view path) const;
  base::Result<Found> need(std::string_view path) const;

  Env::Tables tables_;
  MDB_txn* txn_;
};

// Changes in one write transaction. A refused change leaves nothing behind. After an error of LMDB
// itself (broken()) the transaction can only be aborted.
class Editor : public Reader {
 public:
  Editor(const Env& env, MDB_txn* txn) : Reader(env, txn), env_(env.raw()), zxid_(Reader::zxid()), base_zxid_(zxid_) {}

  base::Result<std::string> create(std::string_view path, std::string_view value, CreateMode mode, uint64_t session);
  base::Result<Stat> set(std::string_view path, std::string_view value, int32_t version);
  base::Status remove(std::string_view path, int32_t version);
  base::Result<std::vector<OpResult>> multi(const std::vector<Op>& ops, uint64_t session);
  base::Status add_session(const SessionRecord& record);
  // With all its ephemerals. Nothing for a session that is not there.
  base::Status end_session(uint64_t id);

  bool changed() const { return zxid_ != base_zxid_; }
  bool broken() const { return broken_.has_value(); }
  const base::Error& error() const { return *broken_; }
  // Before the commit.
  base::Status seal();

 private:
  base::Result<OpResult> apply(const Op& op, uint64_t session);
  base::Result<std::string> do_create(std::string_view path, std::string_view value, CreateMode mode, uint64_t session);
  base::Result<Stat> do_set(std::string_view path, std::string_view value, int32_t version);
  base::Status do_remove(std::string_view path, int32_t version);
  base::Result<Found> need_version(std::string_view path, int32_t version) const;
  base::Status store(std::string_view path, const Header& header, std::string_view value);
  base::Status put(MDB_dbi table, std::string_view key, std::string_view value);
  base::Status erase(MDB_dbi table, std::string_view key);
  base::Status check(int rc, std::string_view what);

  MDB_env* env_;
  uint64_t zxid_, base_zxid_;
  std::optional<base::Error> broken_;
};

}  // namespace cantle::coord::file
