#include "lib/wire/metadata_codec.h"

#include <algorithm>
#include <set>
#include <unordered_map>

#include "lib/base/check.h"
#include "lib/model/validate.h"
#include "lib/wire/metadata_nodes.h"
#include "lib/wire/msgpack.h"

namespace cantle::wire {
namespace {

using model::EndedPartition;
using model::Metadata;
using model::Partition;
using model::Partitions;

constexpr uint32_t kInnerRegions = model::kLeafRegions * model::kInnerLeaves;

struct Builder {
  std::vector<Node> fresh;

  NodeHash add(std::string bytes) {
    CHECK(bytes.size() <= kNodeMax);
    const auto hash = hash_of_node(bytes);
    fresh.push_back({hash, std::make_shared<const std::string>(std::move(bytes))});
    return hash;
  }
};

uint32_t leaf_of(model::Region region) { return region.value / model::kLeafRegions; }

// Leaves that must be written anew, ascending.
std::set<uint32_t> changed_leaves(const Metadata* base, const Metadata& next) {
  static const Partitions kNone;
  std::set<uint32_t> out;
  for (const auto region : Partitions::changed(base != nullptr ? base->partitions : kNone, next.partitions))
    out.insert(leaf_of(region));
  static const std::vector<EndedPartition> kNoEnded;
  const auto& before = base != nullptr ? base->ended : kNoEnded;
  if (before == next.ended) return out;
  std::map<model::Region, const EndedPartition*> old;
  for (const auto& e : before) old[e.region] = &e;
  for (const auto& e : next.ended) {
    const auto it = old.find(e.region);
    if (it == old.end() || !(*it->second == e)) out.insert(leaf_of(e.region));
    if (it != old.end()) old.erase(it);
  }
  for (const auto& [region, e] : old) out.insert(leaf_of(region));
  return out;
}

// Empty for a leaf that holds nothing.
std::string leaf_bytes(const Metadata& m, uint32_t number) {
  std::vector<const Partition*> living;
  std::vector<const EndedPartition*> ended;
  for (uint32_t i = 0; i < model::kLeafRegions; i++)
    if (const auto* p = m.partitions.get({number * model::kLeafRegions + i})) living.push_back(p);
  for (const auto& e : m.ended)
    if (leaf_of(e.region) == number) ended.push_back(&e);
  std::sort(ended.begin(), ended.end(), [](const auto* a, const auto* b) { return a->region < b->region; });
  return living.empty() && ended.empty() ? std::string() : nodes::encode_leaf(number, living, ended);
}

bool empty(const InnerNode& inner) {
  return std::all_of(inner.leaves.begin(), inner.leaves.end(), [](const NodeHash& h) { return h == NodeHash{}; });
}

base::Result<const std::string*> need(const NodeLookup& lookup, const NodeHash& hash) {
  const auto* bytes = lookup(hash);
  if (bytes == nullptr)
    return base::fail(base::Code::not_found, "METADATA: node " + base::to_hex(view(hash)) + " is not here");
  return bytes;
}

// Takes over what is the same in `base`, decodes the rest.
class Decoding {
 public:
  Decoding(const NodeLookup& lookup, const MetadataFile* base) : lookup_(lookup), base_(base) {}

  base::Result<Metadata> run(const NodeHash& hash) {
    TRY_ASSIGN(const auto* bytes, need(lookup_, hash));
    TRY_ASSIGN(auto root, nodes::decode_root(*bytes));
    if (base_ != nullptr && base_->map->table != root.head.table) base_ = nullptr;
    static const InnerNode kNone;
    std::map<uint32_t, NodeHash> inners(root.inners.begin(), root.inners.end());
    const auto base_inners = base_ != nullptr ? base_->tree->inners.size() : 0;
    for (uint32_t n = 0; n < base_inners; n++) inners.try_emplace(n, NodeHash{});
    for (const auto& [n, inner_hash] : inners) {
      const auto* old = n < base_inners ? base_->tree->inners[n].get() : nullptr;
      if ((old != nullptr ? old->hash : NodeHash{}) == inner_hash) continue;
      TRY(inner(n, inner_hash, old != nullptr ? *old : kNone));
    }
    return finish(std::move(root.head));
  }

 private:
  base::Status inner(uint32_t number, const NodeHash& hash, const InnerNode& old) {
    InnerNode now;
    if (hash != NodeHash{}) {
      TRY_ASSIGN(const auto* bytes, need(lookup_, hash));
      TRY_ASSIGN(const auto decoded, nodes::decode_inner(*bytes));
      if (decoded.number != number)
        return base::fail(base::Code::malformed, "METADATA: an inner part stands in the wrong place");
      for (const auto& [place, leaf_hash] : decoded.leaves) now.leaves[place] = leaf_hash;
    }
    for (uint32_t i = 0; i < model::kInnerLeaves; i++)
      if (now.leaves[i] != old.leaves[i]) TRY(leaf(number * model::kInnerLeaves + i, now.leaves[i]));
    return base::ok();
  }

  base::Status leaf(uint32_t number, const NodeHash& hash) {
    changed_.insert(number);
    if (hash == NodeHash{}) return base::ok();
    TRY_ASSIGN(const auto* bytes, need(lookup_, hash));
    TRY_ASSIGN(auto decoded, nodes::decode_leaf(*bytes));
    if (decoded.number != number)
      return base::fail(base::Code::malformed, "METADATA: a leaf stands in the wrong place");
    for (auto& p : decoded.partitions) partitions_.push_back(std::move(p));
    for (auto& e : decoded.ended) ended_.push_back(std::move(e));
    return base::ok();
  }

  Metadata finish(Metadata m) {
    if (base_ == nullptr) {
      m.partitions = Partitions(std::move(partitions_));
    } else {
      m.partitions = base_->map->partitions;
      std::set<model::Region> now;
      for (const auto& p : partitions_) now.insert(p.region);
      for (const auto number : changed_)
        for (uint32_t i = 0; i < model::kLeafRegions; i++)
          if (const model::Region region{number * model::kLeafRegions + i}; !now.contains(region))
            m.partitions.erase(region);
      for (auto& p : partitions_) {
        const auto* old = m.partitions.get(p.region);
        if (old == nullptr || !(*old == p)) m.partitions.put(std::move(p));
      }
      for (const auto& e : base_->map->ended)
        if (!changed_.contains(leaf_of(e.region))) ended_.push_back(e);
    }
    m.ended = std::move(ended_);
    std::sort(m.ended.begin(), m.ended.end(),
              [](const auto& a, const auto& b) { return std::pair(a.at, a.region) < std::pair(b.at, b.region); });
    return m;
  }

  const NodeLookup& lookup_;
  const MetadataFile* base_;
  std::set<uint32_t> changed_;
  std::vector<Partition> partitions_;
  std::vector<EndedPartition> ended_;
};

}  // namespace

NodeHash hash_of_node(std::string_view bytes) { return base::sha256(bytes); }

base::Result<NodeHash> node_hash(std::string_view raw) {
  NodeHash h{};
  if (raw.size() != h.size())
    return base::fail(base::Code::malformed, "a hash has 32 bytes, not " + std::to_string(raw.size()));
  std::copy(raw.begin(), raw.end(), h.begin());
  return h;
}

EncodedFile encode_next(const MetadataFile* base, std::shared_ptr<const Metadata> metadata) {
  CHECK(metadata->format >= model::kFormatMin && metadata->format <= model::kFormatMax);
  Builder builder;
  auto tree = std::make_shared<MetadataTree>();
  if (base != nullptr) tree->inners = base->tree->inners;
  const auto leaves = changed_leaves(base != nullptr ? base->map.get() : nullptr, *metadata);
  for (auto it = leaves.begin(); it != leaves.end();) {
    const uint32_t n = *it / model::kInnerLeaves;
    if (n >= tree->inners.size()) tree->inners.resize(n + 1);
    auto inner = tree->inners[n] ? std::make_shared<InnerNode>(*tree->inners[n]) : std::make_shared<InnerNode>();
    for (; it != leaves.end() && *it / model::kInnerLeaves == n; ++it) {
      auto bytes = leaf_bytes(*metadata, *it);
      inner->leaves[*it % model::kInnerLeaves] = bytes.empty() ? NodeHash{} : builder.add(std::move(bytes));
    }
    if (empty(*inner)) {
      tree->inners[n] = nullptr;
    } else {
      inner->hash = builder.add(nodes::encode_inner(n, *inner));
      tree->inners[n] = std::move(inner);
    }
  }
  while (!tree->inners.empty() && !tree->inners.back()) tree->inners.pop_back();
  tree->root = builder.add(nodes::encode_root(*metadata, tree->inners));
  tree->root_bytes = builder.fresh.back().bytes;
  return {{std::move(metadata), std::move(tree)}, std::move(builder.fresh)};
}

MetadataFile encode_file(Metadata metadata) {
  return encode_next(nullptr, std::make_shared<const Metadata>(std::move(metadata))).file;
}

base::Result<std::vector<NodeHash>> missing_nodes(const NodeHash& root, const NodeLookup& lookup) {
  std::vector<NodeHash> out;
  const auto* root_bytes = lookup(root);
  if (root_bytes == nullptr) return std::vector{root};
  TRY_ASSIGN(const auto decoded, nodes::decode_root(*root_bytes));
  std::vector<NodeHash> leaves;
  for (const auto& [n, inner_hash] : decoded.inners) {
    const auto* bytes = lookup(inner_hash);
    if (bytes == nullptr) {
      out.push_back(inner_hash);
      continue;
    }
    TRY_ASSIGN(const auto inner, nodes::decode_inner(*bytes));
    for (const auto& [place, hash] : inner.leaves) leaves.push_back(hash);
  }
  for (const auto& hash : leaves)
    if (lookup(hash) == nullptr) out.push_back(hash);
  return out;
}

base::Result<MetadataFile> decode_trusted(const NodeHash& root, const NodeLookup& lookup, const MetadataFile* base) {
  TRY_ASSIGN(auto metadata, Decoding(lookup, base).run(root));
  const bool same_table = base != nullptr && base->map->table == metadata.table;
  auto encoded = encode_next(same_table ? base : nullptr, std::make_shared<const Metadata>(std::move(metadata)));
  // The bytes that arrived are the only ones this map can have, or else two servers could hash one map differently.
  if (encoded.file.tree->root != root) return base::fail(base::Code::malformed, "METADATA: not in its canonical form");
  return std::move(encoded.file);
}

base::Result<MetadataFile> decode_metadata(const NodeHash& root, const NodeLookup& lookup, const MetadataFile* base) {
  TRY_ASSIGN(auto file, decode_trusted(root, lookup, base));
  const bool same_table = base != nullptr && base->map->table == file.map->table;
  if (auto valid = same_table ? model::validate_against(*base->map, *file.map) : model::validate(*file.map); !valid)
    return base::fail(base::Code::malformed, "METADATA of " + file.map->name + ": " + valid.error().text);
  return file;
}

base::Result<std::vector<NodeHash>> children_of_node(std::string_view bytes) {
  std::vector<NodeHash> out;
  if (auto root = nodes::decode_root(bytes)) {
    for (const auto& [n, hash] : root->inners) out.push_back(hash);
  } else if (auto inner = nodes::decode_inner(bytes)) {
    for (const auto& [n, hash] : inner->leaves) out.push_back(hash);
  } else if (auto leaf = nodes::decode_leaf(bytes); !leaf) {
    return base::fail(std::move(leaf).error());
  }
  return out;
}

std::vector<NodeHash> nodes_not_in(const MetadataTree& tree, const MetadataTree* base) {
  std::vector<NodeHash> out, leaves;
  if (base != nullptr && base->root == tree.root) return out;
  out.push_back(tree.root);
  static const InnerNode kNone;
  for (size_t n = 0; n < tree.inners.size(); n++) {
    if (!tree.inners[n]) continue;
    const auto& inner = *tree.inners[n];
    const auto* old = base != nullptr && n < base->inners.size() && base->inners[n] ? base->inners[n].get() : &kNone;
    if (old == &inner || old->hash == inner.hash) continue;
    out.push_back(inner.hash);
    for (size_t i = 0; i < inner.leaves.size(); i++)
      if (inner.leaves[i] != NodeHash{} && inner.leaves[i] != old->leaves[i]) leaves.push_back(inner.leaves[i]);
  }
  out.insert(out.end(), leaves.begin(), leaves.end());
  return out;
}

base::Result<RootHead> decode_root_head(std::string_view root_bytes) {
  TRY_ASSIGN(auto root, nodes::decode_root(root_bytes));
  return RootHead{root.head.table, root.head.txnid, root.head.prev_txnid, root.head.txnseq,
                  std::move(root.head.prev_hash)};
}

std::string encode_whole_map(const Metadata& metadata) {
  // The metadata belongs to the caller for the time of the call.
  const std::shared_ptr<const Metadata> borrowed(std::shared_ptr<const Metadata>(), &metadata);
  const auto encoded = encode_next(nullptr, borrowed);
  std::string out;
  Writer w(out);
  w.array(encoded.fresh.size());
  for (auto it = encoded.fresh.rbegin(); it != encoded.fresh.rend(); ++it) w.bin(*it->bytes);  // the root first
  return out;
}

base::Result<MetadataFile> decode_whole_map(std::string_view bytes) {
  Reader in(bytes);
  uint32_t count = 0;
  if (!in.array(&count) || count == 0) return base::fail(base::Code::malformed, "not a map");
  std::map<NodeHash, std::string> nodes;
  std::optional<NodeHash> root;
  for (uint32_t i = 0; i < count; i++) {
    std::string_view node;
    if (!in.text(&node) || node.size() > kNodeMax) return base::fail(base::Code::malformed, "a map with a broken node");
    const auto hash = hash_of_node(node);
    if (!root) root = hash;
    nodes.emplace(hash, node);
  }
  if (!in.done()) return base::fail(base::Code::malformed, "bytes behind the map");
  auto file = decode_metadata(*root, [&](const NodeHash& h) {
    const auto it = nodes.find(h);
    return it != nodes.end() ? &it->second : nullptr;
  });
  if (!file && file.error().code == base::Code::not_found)
    return base::fail(base::Code::malformed, "a map without all its nodes");
  return file;
}

}  // namespace cantle::wire
