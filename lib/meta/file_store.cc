#include "lib/meta/file_store.h"

#include "lib/base/bytes.h"
#include "lib/base/check.h"
#include "lib/base/testing.h"
#include "lib/wire/codec.h"

namespace cantle::meta {
namespace {

using store::Db;
using wire::NodeHash;

constexpr Db kNodes = Db::records, kEntries = Db::meta;
constexpr int kLeafDepth = 2;  // root 0, inner part 1

// The bodies of entries. Keys: 'f' uuid txnseq txnid, and 't' uuid.
struct FileEntry {
  model::TxnId prev;
  std::string hash;
  uint64_t stored_ms = 0;
  CANTLE_FIELDS(prev, hash, stored_ms)
};
struct TableEntry {
  std::string name;
  model::TxnId seen_txnid;
  model::TxnSeq seen_txnseq;
  CANTLE_FIELDS(name, seen_txnid, seen_txnseq)
};

std::string file_key(const model::TableUuid& table, const FileStore::FileInfo& file) {
  std::string key = "f";
  key += table.view();
  base::put_u64_be(key, file.txnseq.value);
  key += file.txnid.view();
  return key;
}
std::string table_key(const model::TableUuid& table) { return "t" + std::string(table.view()); }

base::Error corrupt(std::string text) { return base::Error(base::Code::corrupt, "metadata store: " + std::move(text)); }

}  // namespace

base::Result<std::unique_ptr<FileStore>> FileStore::open(store::Index& index, store::Executor& executor) {
  std::unique_ptr<FileStore> files(new FileStore(index, executor));
  TRY(files->read_all());
  return files;
}

FileStore::~FileStore() { *alive_ = false; }

base::Status FileStore::read_all() {
  TRY(reader_->renew());
  {
    TRY_ASSIGN(auto cursor, reader_->cursor(kEntries));
    TRY_ASSIGN(auto entry, cursor->seek(""));
    while (entry) {
      const auto key = entry->key;
      if (key.size() == 17 && key[0] == 't') {
        const auto uuid = *model::TableUuid::from_bytes(key.substr(1));
        auto decoded = wire::decode<TableEntry>(entry->value);
        if (!decoded) return base::fail(corrupt("table entry: " + decoded.error().text));
        auto& table = tables_[uuid];
        table.uuid = uuid;
        table.name = decoded->name;
        table.seen_txnid = decoded->seen_txnid;
        table.seen_txnseq = decoded->seen_txnseq;
      } else if (key.size() == 41 && key[0] == 'f') {
        auto decoded = wire::decode<FileEntry>(entry->value);
        if (!decoded || decoded->hash.size() != 32) return base::fail(corrupt("file entry"));
        const auto uuid = *model::TableUuid::from_bytes(key.substr(1, 16));
        FileInfo file;
        file.txnseq.value = base::get_u64_be(key.data() + 17);
        file.txnid = *model::TxnId::from_bytes(key.substr(25));
        file.prev = decoded->prev;
        file.hash = decoded->hash;
        file.stored_ms = decoded->stored_ms;
        tables_[uuid].uuid = uuid;
        tables_[uuid].files[file.txnid] = file;
      } else {
        return base::fail(corrupt("an entry of an unknown kind"));
      }
      TRY_ASSIGN(entry, cursor->next());
    }
  }
  reader_->reset();
  for (const auto& [uuid, table] : tables_)
    for (const auto& [txnid, file] : table.files) {
      const auto root = *wire::node_hash(file.hash);
      auto whole = complete(root, 0);
      if (!whole) return base::fail(corrupt("file " + to_string(txnid) + ": " + whole.error().text));
      add_ref(root, 0, nullptr);
    }
  return base::ok();
}

std::shared_ptr<const std::string> FileStore::node(const NodeHash& hash) {
  const auto it = unwritten_.find(hash);
  if (it != unwritten_.end()) return it->second;
  if (!reader_->renew()) return nullptr;
  const auto value = reader_->get(kNodes, wire::view(hash));
  std::shared_ptr<const std::string> out;
  if (value && *value) out = std::make_shared<const std::string>(**value);
  reader_->reset();
  // Check what you read back.
  if (out && wire::hash_of_node(*out) != hash) return nullptr;
  return out;
}

base::Result<std::vector<NodeHash>> FileStore::children(const NodeHash& hash, int depth) {
  if (depth >= kLeafDepth) return std::vector<NodeHash>{};
  const auto bytes = node(hash);
  if (!bytes) return base::fail(base::Code::not_found, "node " + base::to_hex(wire::view(hash)) + " is missing");
  return wire::children_of_node(*bytes);
}

// Everything under `hash` is here. What is referred to already is whole.
base::Status FileStore::complete(const NodeHash& hash, int depth) {
  if (refs_.contains(hash)) return base::ok();
  if (depth == kLeafDepth) {
    if (node(hash)) return base::ok();
    return base::fail(base::Code::not_found, "leaf " + base::to_hex(wire::view(hash)) + " is missing");
  }
  TRY_ASSIGN(const auto list, children(hash, depth));
  for (const auto& child : list) TRY(complete(child, depth + 1));
  return base::ok();
}

void FileStore::add_ref(const NodeHash& hash, int depth, std::vector<NodeHash>* fresh) {
  if (refs_[hash]++ != 0) return;
  if (fresh != nullptr) fresh->push_back(hash);
  const auto list = children(hash, depth);
  CHECK(list.has_value());
  for (const auto& child : *list) add_ref(child, depth + 1, fresh);
}

void FileStore::drop_ref(const NodeHash& hash, int depth, std::vector<NodeHash>* gone) {
  const auto it = refs_.find(hash);
  CHECK(it != refs_.end());
  if (--it->second != 0) return;
  const auto list = children(hash, depth);
  refs_.erase(it);
  gone->push_back(hash);
  if (list)
    for (const auto& child : *list) drop_ref(child, depth + 1, gone);
}

void FileStore::put(const model::TableUuid& uuid, const std::string& name, const FileInfo& file,
                    std::vector<wire::Node> nodes, Done done) {
  const auto fail_later = [&](base::Error error) {
    executor_.defer([alive = std::weak_ptr<bool>(alive_), done = std::move(done), error = std::move(error)] {
      if (alive.lock()) done(base::fail(error));
    });
  };
  const auto root = wire::node_hash(file.hash);
  if (!root) return fail_later(root.error());
  std::vector<NodeHash> lent;  // made known for the look at what is complete
  for (const auto& n : nodes)
    if (!refs_.contains(n.hash) && unwritten_.emplace(n.hash, n.bytes).second) lent.push_back(n.hash);
  auto whole = complete(*root, 0);
  if (!whole) {
    for (const auto& h : lent) unwritten_.erase(h);
    return fail_later(std::move(whole).error());
  }
  auto& table = tables_[uuid];
  table.uuid = uuid;
  table.name = name;
  table.files[file.txnid] = file;

  Write write;
  std::vector<NodeHash> fresh;
  add_ref(*root, 0, &fresh);
  size_t bytes = 0;
  for (const auto& h : fresh) {
    // Not among the unwritten: it stands on the disk, but its removal has been asked for.
    const auto node_bytes = node(h);
    CHECK(node_bytes != nullptr);
    unwritten_.emplace(h, node_bytes);
    write.put_nodes.push_back({h, node_bytes});
    bytes += node_bytes->size();
  }
  for (const auto& h : lent)
    if (!refs_.contains(h)) unwritten_.erase(h);
  largest_put_ = std::max(largest_put_, bytes);
  write.put_meta.emplace_back(file_key(uuid, file), wire::encode(FileEntry{file.prev, file.hash, file.stored_ms}));
  remember(table, write);
  write.done = std::move(done);
  write.table = uuid;
  write.txnid = file.txnid;
  queue_.push_back(std::move(write));
  urgent_ = true;
  begin();
}

void FileStore::remember(const Table& table, Write& write) {
  write.put_meta.emplace_back(table_key(table.uuid),
                              wire::encode(TableEntry{table.name, table.seen_txnid, table.seen_txnseq}));
}

void FileStore::seen(const model::TableUuid& uuid, const std::string& name, const model::TxnId& txnid,
                     model::TxnSeq txnseq) {
  auto& table = tables_[uuid];
  table.uuid = uuid;
  table.name = name;
  table.seen_txnid = txnid;
  table.seen_txnseq = txnseq;
  Write write;
  remember(table, write);
  queue_.push_back(std::move(write));
}

void FileStore::drop_file(Table& table, const model::TxnId& txnid, Write& write) {
  const auto it = table.files.find(txnid);
  if (it == table.files.end()) return;
  write.del_meta.push_back(file_key(table.uuid, it->second));
  drop_ref(*wire::node_hash(it->second.hash), 0, &write.del_nodes);
  table.files.erase(it);
}

void FileStore::remove(const model::TableUuid& uuid, const std::vector<model::TxnId>& files) {
  const auto it = tables_.find(uuid);
  if (it == tables_.end()) return;
  Write write;
  for (const auto& txnid : files) drop_file(it->second, txnid, write);
  queue_.push_back(std::move(write));
}

void FileStore::forget(const model::TableUuid& uuid) {
  const auto it = tables_.find(uuid);
  if (it == tables_.end()) return;
  Write write;
  while (!it->second.files.empty()) drop_file(it->second, it->second.files.begin()->first, write);
  write.del_meta.push_back(table_key(uuid));
  tables_.erase(it);
  queue_.push_back(std::move(write));
  flush();
}

void FileStore::flush() {
  urgent_ = urgent_ || !queue_.empty();
  begin();
}

void FileStore::begin() {
  if (busy_ || !urgent_ || queue_.empty()) return;
  busy_ = true;
  urgent_ = false;
  auto writes = std::make_shared<std::vector<Write>>();
  for (auto& w : queue_) writes->push_back(std::move(w));
  queue_.clear();
  auto status = std::make_shared<base::Status>(base::ok());
  executor_.run(
      store::Lane::apply, [&index = index_, writes, status] { *status = perform(index, *writes); },
      [this, alive = std::weak_ptr<bool>(alive_), writes, status] {
        if (!alive.lock()) return;
        const bool full = !*status && status->error().code == base::Code::no_space;
        if (!full || !make_room_ || !make_room_()) return finished(*writes, *status);
        executor_.run(
            store::Lane::apply, [&index = index_, writes, status] { *status = perform(index, *writes); },
            [this, alive, writes, status] {
              if (alive.lock()) finished(*writes, *status);
            });
      });
}

base::Status FileStore::perform(store::Index& index, const std::vector<Write>& writes) {
  TRY_ASSIGN(auto txn, index.begin());
  // In the order asked: a node that is removed and stored again ends up stored.
  for (const auto& w : writes) {
    for (const auto& hash : w.del_nodes) TRY(txn->del(kNodes, wire::view(hash)));
    for (const auto& key : w.del_meta) TRY(txn->del(kEntries, key));
    for (const auto& node : w.put_nodes) TRY(txn->put(kNodes, wire::view(node.hash), *node.bytes));
    for (const auto& [key, value] : w.put_meta) TRY(txn->put(kEntries, key, value));
  }
  CRASH_POINT("metadata.before_commit");
  TRY(txn->commit());
  CRASH_POINT("metadata.after_commit");
  return base::ok();
}

void FileStore::finished(std::vector<Write>& writes, const base::Status& status) {
  busy_ = false;
  Write undo;
  for (auto& w : writes) {
    if (!status && w.done) {
      const auto it = tables_.find(w.table);
      if (it != tables_.end()) drop_file(it->second, w.txnid, undo);
    }
    // Only what no later write has taken up again: that one will say when it is on disk.
    if (status)
      for (const auto& node : w.put_nodes) {
        bool again = false;
        for (const auto& later : queue_)
          for (const auto& n : later.put_nodes) again = again || n.hash == node.hash;
        if (!again) unwritten_.erase(node.hash);
      }
  }
  if (!status) {
    // What another file of the queue shares with a failed one must be written with it now.
    for (auto& w : writes)
      for (auto& node : w.put_nodes) {
        if (!refs_.contains(node.hash)) {
          unwritten_.erase(node.hash);
          continue;
        }
        for (auto& later : queue_)
          if (later.done) {
            later.put_nodes.push_back(node);
            break;
          }
      }
    // Removals are asked for once only, so they wait for the next try.
    for (auto& w : writes)
      if (!w.done) queue_.push_front(std::move(w));
    if (!undo.del_meta.empty()) queue_.push_back(std::move(undo));
  }
  for (auto& w : writes)
    if (w.done) w.done(status);
  begin();
}

base::Result<wire::MetadataFile> FileStore::load(const FileInfo& file, const wire::MetadataFile* base) {
  TRY_ASSIGN(const auto root, wire::node_hash(file.hash));
  std::map<NodeHash, std::shared_ptr<const std::string>> held;
  const auto lookup = [&](const NodeHash& hash) -> const std::string* {
    auto& slot = held[hash];
    if (!slot) slot = node(hash);
    return slot.get();
  };
  return wire::decode_trusted(root, lookup, base);
}

}  // namespace cantle::meta
