// The tree of the simulated coordination service: what a transaction does to it.
#include <algorithm>
#include <cstdio>

#include "test/sim/coord.h"

namespace cantle::sim {

using base::Code;
using coord::CreateMode;
using coord::Op;

namespace {

std::string parent_of(std::string_view path) {
  const size_t slash = path.rfind('/');
  return slash == 0 ? "/" : std::string(path.substr(0, slash));
}

bool valid_path(std::string_view path) {
  if (path == "/") return true;
  return path.size() >= 2 && path[0] == '/' && path.back() != '/' && path.find("//") == std::string_view::npos;
}

bool ephemeral(CreateMode mode) { return mode == CreateMode::ephemeral || mode == CreateMode::ephemeral_sequential; }
bool sequential(CreateMode mode) {
  return mode == CreateMode::persistent_sequential || mode == CreateMode::ephemeral_sequential;
}

// The tree with the changes of a transaction that is not yet known to succeed.
class Staged {
 public:
  Staged(const Tree& tree, TreeTxn* txn) : tree_(tree), txn_(txn) {}

  ZnodePtr find(const std::string& path) const {
    for (auto it = txn_->changes.rbegin(); it != txn_->changes.rend(); ++it)
      if (it->path == path) return it->now;
    const auto it = tree_.find(path);
    return it == tree_.end() ? nullptr : it->second;
  }
  bool has_children(const std::string& path) const {
    std::set<std::string> names;
    for (auto& name : children_of(tree_, path)) names.insert(path == "/" ? "/" + name : path + "/" + name);
    for (auto& change : txn_->changes) {
      if (parent_of(change.path) != path || change.path == "/") continue;
      if (change.now)
        names.insert(change.path);
      else
        names.erase(change.path);
    }
    return !names.empty();
  }
  void put(const std::string& path, Znode node, bool made, bool touched = false) {
    txn_->changes.push_back({path, std::make_shared<const Znode>(std::move(node)), made, touched});
  }
  void drop(const std::string& path) { txn_->changes.push_back({path, nullptr, false, false}); }
  void touch_parent(const std::string& path, bool created) {
    const std::string parent = parent_of(path);
    Znode node = *find(parent);
    ++node.stat.cversion;
    if (created) ++node.next_sequence;
    put(parent, std::move(node), false, true);
  }

 private:
  const Tree& tree_;
  TreeTxn* txn_;
};

base::Result<coord::OpResult> create(Staged& staged, const Op& op, uint64_t owner, int64_t zxid) {
  const ZnodePtr parent = staged.find(parent_of(op.path));
  if (!parent) return base::fail(Code::not_found, "no parent of " + op.path);
  if (parent->stat.ephemeral_owner != 0) return base::fail(Code::invalid, "an ephemeral has no children: " + op.path);
  std::string path = op.path;
  if (sequential(op.mode)) {
    char number[16];
    std::snprintf(number, sizeof number, "%010llu", static_cast<unsigned long long>(parent->next_sequence));
    path += number;
  }
  if (staged.find(path)) return base::fail(Code::exists, path);
  Znode node;
  node.value = op.value;
  node.stat.czxid = node.stat.mzxid = zxid;
  if (ephemeral(op.mode)) node.stat.ephemeral_owner = owner;
  staged.put(path, std::move(node), true);
  staged.touch_parent(path, true);
  return coord::OpResult{path, {}};
}

base::Result<coord::OpResult> change_one(Staged& staged, const Op& op, uint64_t owner, int64_t zxid) {
  if (!valid_path(op.path)) return base::fail(Code::invalid, "path " + op.path);
  if (op.value.size() > coord::kValueMax) return base::fail(Code::invalid, "value too large: " + op.path);
  if (op.kind == Op::Kind::create) return create(staged, op, owner, zxid);
  const ZnodePtr node = staged.find(op.path);
  if (!node) return base::fail(Code::not_found, op.path);
  if (op.version != coord::kAnyVersion && op.version != node->stat.version)
    return base::fail(Code::conflict, "version of " + op.path);
  coord::OpResult result{op.path, node->stat};
  if (op.kind == Op::Kind::set) {
    Znode next = *node;
    next.value = op.value;
    ++next.stat.version;
    next.stat.mzxid = zxid;
    result.stat = next.stat;
    staged.put(op.path, std::move(next), false);
  } else if (op.kind == Op::Kind::remove) {
    if (staged.has_children(op.path)) return base::fail(Code::not_empty, op.path);
    staged.drop(op.path);
    staged.touch_parent(op.path, false);
  }
  return result;
}

}  // namespace

std::vector<std::string> children_of(const Tree& tree, const std::string& path) {
  std::vector<std::string> names;
  const std::string prefix = path == "/" ? "/" : path + "/";
  for (auto it = tree.lower_bound(prefix); it != tree.end() && it->first.starts_with(prefix); ++it) {
    const std::string_view rest = std::string_view(it->first).substr(prefix.size());
    if (!rest.empty() && rest.find('/') == std::string_view::npos) names.emplace_back(rest);
  }
  return names;
}

void apply_txn(Tree& tree, const TreeTxn& txn) {
  for (const auto& change : txn.changes) {
    if (change.now)
      tree[change.path] = change.now;
    else
      tree.erase(change.path);
  }
}

base::Result<std::vector<coord::OpResult>> perform(Tree& tree, const std::vector<Op>& ops, uint64_t ephemeral_owner,
                                                   int64_t zxid, TreeTxn* txn) {
  txn->zxid = zxid;
  txn->changes.clear();
  Staged staged(tree, txn);
  std::vector<coord::OpResult> results;
  for (size_t i = 0; i < ops.size(); ++i) {
    auto one = change_one(staged, ops[i], ephemeral_owner, zxid);
    if (!one) {
      auto error = std::move(one).error();
      error.detail = std::to_string(i);
      return base::fail(std::move(error));
    }
    results.push_back(std::move(*one));
  }
  apply_txn(tree, *txn);
  return results;
}

}  // namespace cantle::sim
