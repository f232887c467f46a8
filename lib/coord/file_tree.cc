#include "lib/coord/file_tree.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>

#include "lib/base/bytes.h"
#include "lib/coord/path.h"

namespace cantle::coord::file {

using base::Code;
using base::fail;

namespace {

constexpr std::string_view kTreeVersion = "1";

MDB_val val(std::string_view bytes) { return {bytes.size(), const_cast<char*>(bytes.data())}; }
std::string_view view(const MDB_val& v) { return {static_cast<const char*>(v.mv_data), v.mv_size}; }

// A '\0' behind the parent puts the children of one node side by side, whatever other names begin alike.
std::string node_key(std::string_view path) {
  if (path == "/") return "/";
  std::string key(parent_of(path));
  key += '\0';
  return key.append(name_of(path));
}

std::string session_key(uint64_t id) {
  std::string key;
  base::put_u64_be(key, id);
  return key;
}

std::string number_value(uint64_t n) {
  std::string value;
  base::put_u64_be(value, n);
  return value;
}

bool is_ephemeral(CreateMode mode) { return mode == CreateMode::ephemeral || mode == CreateMode::ephemeral_sequential; }
bool is_sequential(CreateMode mode) {
  return mode == CreateMode::persistent_sequential || mode == CreateMode::ephemeral_sequential;
}

std::string sequence_suffix(uint32_t n) {
  std::array<char, 16> text{};
  std::snprintf(text.data(), text.size(), "%010d", static_cast<int32_t>(n));
  return text.data();
}

// Calls `fn(key, value)` for each entry whose key begins with `prefix`.
template <class Fn>
base::Status each_with_prefix(MDB_txn* txn, MDB_dbi table, std::string_view prefix, Fn fn) {
  MDB_cursor* cursor = nullptr;
  if (const int rc = mdb_cursor_open(txn, table, &cursor)) return fail(lmdb_error("cursor", rc));
  MDB_val key = val(prefix), value{};
  int rc = prefix.empty() ? mdb_cursor_get(cursor, &key, &value, MDB_FIRST)
                          : mdb_cursor_get(cursor, &key, &value, MDB_SET_RANGE);
  while (rc == 0 && view(key).starts_with(prefix)) {
    fn(view(key), view(value));
    rc = mdb_cursor_get(cursor, &key, &value, MDB_NEXT);
  }
  mdb_cursor_close(cursor);
  if (rc != 0 && rc != MDB_NOTFOUND) return fail(lmdb_error("cursor", rc));
  return base::ok();
}

base::Error missing(std::string_view path) { return {Code::not_found, "no znode " + std::string(path)}; }

}  // namespace

base::Status check_tree(const Env& env, MDB_txn* txn) {
  MDB_val key = val("version"), value{};
  const int rc = mdb_get(txn, env.tables().meta, &key, &value);
  if (rc == MDB_NOTFOUND) return fail(Code::not_found, "no tree");
  if (rc) return fail(lmdb_error("version", rc));
  if (view(value) == kTreeVersion) return base::ok();
  return fail(Code::invalid,
              "tree of version " + std::string(view(value)) + ", this program knows " + std::string(kTreeVersion));
}

base::Status prepare_tree(const Env& env, MDB_txn* txn) {
  const auto there = check_tree(env, txn);  // another process may have been first
  if (there || there.error().code != Code::not_found) return there;
  Editor editor(env, txn);
  auto made = editor.create("/", "", CreateMode::persistent, 0);
  if (!made) return fail(made.error());
  MDB_val key = val("version"), version = val(kTreeVersion);
  if (const int rc = mdb_put(txn, env.tables().meta, &key, &version, 0)) return fail(lmdb_error("version", rc));
  return editor.seal();
}

// --- Reader ------------------------------------------------------------------------------------

Stat Reader::stat_of(const Header& h) {
  Stat s;
  s.version = static_cast<int32_t>(h.version);
  s.cversion = static_cast<int32_t>(2 * h.created - h.children);  // creations and deletions, as ZooKeeper counts them
  s.czxid = static_cast<int64_t>(h.czxid);
  s.mzxid = static_cast<int64_t>(h.mzxid);
  s.ephemeral_owner = h.owner;
  return s;
}

base::Result<std::optional<Reader::Found>> Reader::find(std::string_view path) const {
  const auto name = node_key(path);
  MDB_val key = val(name), value{};
  const int rc = mdb_get(txn_, tables_.nodes, &key, &value);
  if (rc == MDB_NOTFOUND) return std::nullopt;
  if (rc) return fail(lmdb_error(path, rc));
  if (value.mv_size < sizeof(Header)) return fail(Code::corrupt, std::string(path) + ": short znode");
  Found found;
  std::memcpy(&found.header, value.mv_data, sizeof(Header));
  found.value = view(value).substr(sizeof(Header));
  return found;
}

base::Result<Reader::Found> Reader::need(std::string_view path) const {
  TRY_ASSIGN(const auto found, find(path));
  if (!found) return fail(missing(path));
  return *found;
}

base::Result<Node> Reader::get(std::string_view path) const {
  TRY_ASSIGN(const auto found, need(path));
  return Node{std::string(found.value), stat_of(found.header)};
}

base::Result<Stat> Reader::exists(std::string_view path) const {
  TRY_ASSIGN(const auto found, need(path));
  return stat_of(found.header);
}

base::Result<Children> Reader::children(std::string_view path) const {
  TRY_ASSIGN(const auto found, need(path));
  Children result;
  result.stat = stat_of(found.header);
  std::string prefix(path);
  prefix += '\0';
  TRY(each_with_prefix(txn_, tables_.nodes, prefix, [&](std::string_view key, std::string_view) {
    result.names.emplace_back(key.substr(prefix.size()));
  }));
  return result;
}

uint64_t Reader::zxid() const {
  MDB_val key = val("zxid"), value{};
  if (mdb_get(txn_, tables_.meta, &key, &value) != 0 || value.mv_size != 8) return 0;
  return base::get_u64_be(value.mv_data);
}

bool Reader::has_session(uint64_t id) const {
  const auto name = session_key(id);
  MDB_val key = val(name), value{};
  return mdb_get(txn_, tables_.sessions, &key, &value) == 0;
}

std::vector<SessionRecord> Reader::sessions() const {
  std::vector<SessionRecord> list;
  static_cast<void>(each_with_prefix(txn_, tables_.sessions, "", [&](std::string_view key, std::string_view value) {
    if (key.size() == 8 && value.size() == 8)
      list.push_back({base::get_u64_be(key.data()), base::get_u64_be(value.data())});
  }));
  return list;
}

std::vector<std::string> Reader::ephemerals(uint64_t session) const {
  std::vector<std::string> paths;
  const auto prefix = session_key(session);
  static_cast<void>(each_with_prefix(txn_, tables_.ephemerals, prefix, [&](std::string_view key, std::string_view) {
    paths.emplace_back(key.substr(prefix.size()));
  }));
  return paths;
}

// --- Editor ------------------------------------------------------------------------------------

base::Status Editor::check(int rc, std::string_view what) {
  if (rc == 0) return base::ok();
  broken_ = lmdb_error(what, rc);
  return fail(*broken_);
}

base::Status Editor::put(MDB_dbi table, std::string_view key, std::string_view value) {
  MDB_val k = val(key), v = val(value);
  return check(mdb_put(txn_, table, &k, &v, 0), "put");
}

base::Status Editor::erase(MDB_dbi table, std::string_view key) {
  MDB_val k = val(key);
  const int rc = mdb_del(txn_, table, &k, nullptr);
  return check(rc == MDB_NOTFOUND ? 0 : rc, "delete");
}

base::Status Editor::store(std::string_view path, const Header& header, std::string_view value) {
  std::string bytes(reinterpret_cast<const char*>(&header), sizeof header);
  bytes.append(value);
  return put(tables_.nodes, node_key(path), bytes);
}

base::Status Editor::seal() { return changed() ? put(tables_.meta, "zxid", number_value(zxid_)) : base::ok(); }

base::Result<Reader::Found> Editor::need_version(std::string_view path, int32_t version) const {
  TRY_ASSIGN(const auto found, need(path));
  if (version != kAnyVersion && version != static_cast<int32_t>(found.header.version))
    return fail(Code::conflict, std::string(path) + ": version is " + std::to_string(found.header.version) + ", not " +
                                    std::to_string(version));
  return found;
}

base::Result<std::string> Editor::do_create(std::string_view path, std::string_view value, CreateMode mode,
                                            uint64_t session) {
  std::string made(path);
  if (path != "/") {
    const std::string parent(parent_of(path));
    TRY_ASSIGN(const auto above, need(parent));
    Header header = above.header;
    if (is_sequential(mode)) made += sequence_suffix(header.created);
    TRY_ASSIGN(const auto there, find(made));
    if (there) return fail(Code::exists, made + " exists");
    if (header.owner != 0) return fail(Code::invalid, parent + " is ephemeral and has no children");
    header.created++, header.children++;
    TRY(store(parent, header, std::string(above.value)));  // a copy: the view dies with the first put
  }
  Header header;
  header.czxid = header.mzxid = zxid_;
  if (is_ephemeral(mode)) {
    header.owner = session;
    TRY(put(tables_.ephemerals, session_key(session) + made, ""));
  }
  TRY(store(made, header, value));
  return made;
}

base::Result<Stat> Editor::do_set(std::string_view path, std::string_view value, int32_t version) {
  TRY_ASSIGN(const auto found, need_version(path, version));
  Header header = found.header;
  header.version++;
  header.mzxid = zxid_;
  TRY(store(path, header, value));
  return stat_of(header);
}

base::Status Editor::do_remove(std::string_view path, int32_t version) {
  if (path == "/") return fail(Code::invalid, "the root cannot be removed");
  TRY_ASSIGN(const auto found, need_version(path, version));
  if (found.header.children != 0) return fail(Code::not_empty, std::string(path) + " has children");
  const auto owner = found.header.owner;
  const std::string parent(parent_of(path));
  TRY_ASSIGN(const auto above, need(parent));
  Header header = above.header;
  header.children--;
  TRY(store(parent, header, std::string(above.value)));
  TRY(erase(tables_.nodes, node_key(path)));
  if (owner != 0) TRY(erase(tables_.ephemerals, session_key(owner).append(path)));
  return base::ok();
}

// A change takes a zxid only when it happened.
base::Result<std::string> Editor::create(std::string_view path, std::string_view value, CreateMode mode,
                                         uint64_t session) {
  zxid_++;
  auto made = do_create(path, value, mode, session);
  if (!made) zxid_--;
  return made;
}

base::Result<Stat> Editor::set(std::string_view path, std::string_view value, int32_t version) {
  zxid_++;
  auto stat = do_set(path, value, version);
  if (!stat) zxid_--;
  return stat;
}

base::Status Editor::remove(std::string_view path, int32_t version) {
  zxid_++;
  auto removed = do_remove(path, version);
  if (!removed) zxid_--;
  return removed;
}

base::Result<OpResult> Editor::apply(const Op& op, uint64_t session) {
  OpResult result;
  switch (op.kind) {
    case Op::Kind::create: {
      TRY_ASSIGN(result.path, do_create(op.path, op.value, op.mode, session));
      return result;
    }
    case Op::Kind::set: {
      TRY_ASSIGN(result.stat, do_set(op.path, op.value, op.version));
      return result;
    }
    case Op::Kind::remove: TRY(do_remove(op.path, op.version)); return result;
    case Op::Kind::check: TRY(need_version(op.path, op.version)); return result;
  }
  return result;
}

base::Result<std::vector<OpResult>> Editor::multi(const std::vector<Op>& ops, uint64_t session) {
  MDB_txn* outer = txn_;
  MDB_txn* inner = nullptr;
  TRY(check(mdb_txn_begin(env_, outer, 0, &inner), "multi"));
  txn_ = inner;
  zxid_++;
  std::vector<OpResult> results;
  std::optional<base::Error> refused;
  for (size_t i = 0; i < ops.size() && !refused; i++) {
    auto result = apply(ops[i], session);
    if (result)
      results.push_back(std::move(*result));
    else
      refused = std::move(result).error(), refused->detail = std::to_string(i);
  }
  txn_ = outer;
  if (!refused) {
    TRY(check(mdb_txn_commit(inner), "multi"));
    return results;
  }
  mdb_txn_abort(inner);
  zxid_--;
  return fail(std::move(*refused));
}

base::Status Editor::add_session(const SessionRecord& record) {
  zxid_++;
  return put(tables_.sessions, session_key(record.id), number_value(record.timeout_ns));
}

base::Status Editor::end_session(uint64_t id) {
  if (!has_session(id)) return base::ok();
  zxid_++;
  for (const auto& path : ephemerals(id)) {
    auto removed = do_remove(path, kAnyVersion);
    if (!removed && removed.error().code != Code::not_found) return removed;
  }
  return erase(tables_.sessions, session_key(id));
}

}  // namespace cantle::coord::file
