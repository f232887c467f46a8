// The METADATA file as bytes: leaves, inner parts and a root, each named by its SHA-256; and operations.
//
// Leaf n holds the partitions, living and ended, with the region numbers 64n to 64n+63; an inner part
// lists 64 leaves; the root lists the inner parts and holds everything else. The hash of the root is the
// hash of the file, the one in TableConfig. A change makes new bytes for the leaves it touched, what stands
// above them, and nothing else.
//
// Use
//   MetadataFile next = encode_next(base_file, metadata);       // next.fresh: what has to be stored
//   TRY_ASSIGN(auto file, decode_metadata(hash, lookup));       // lookup(hash) -> bytes of the node
//   for (auto& h : missing_nodes(hash, lookup)) …               // what to fetch first
//   std::string map = encode_whole_map(metadata);               // one string, as answers carry it
//
// Invariants
//   * One Metadata has one encoding; what decodes to it but has other bytes is refused.
//   * Whatever decodes was validated (lib/model/validate.h).
//   * A node's bytes are believed only under their own hash.
// Limits: a node has at most kNodeMax bytes, region numbers are below model::kRegionMax.
// Threads: any.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/bytes.h"
#include "lib/base/result.h"
#include "lib/model/metadata.h"
#include "lib/model/operation.h"

namespace cantle::wire {

using NodeHash = base::Sha256;
constexpr size_t kNodeMax = size_t{4} << 20;

NodeHash hash_of_node(std::string_view bytes);
inline std::string_view view(const NodeHash& h) { return {reinterpret_cast<const char*>(h.data()), h.size()}; }
base::Result<NodeHash> node_hash(std::string_view raw);  // malformed unless it has 32 bytes

struct Node {
  NodeHash hash{};
  std::shared_ptr<const std::string> bytes;
};

// The hashes of a file, so that the next one need not compute them again.
struct InnerNode {
  NodeHash hash{};                                     // all zero: there is none
  std::array<NodeHash, model::kInnerLeaves> leaves{};  // all zero: there is no such leaf
};
struct MetadataTree {
  NodeHash root{};
  std::shared_ptr<const std::string> root_bytes;
  std::vector<std::shared_ptr<const InnerNode>> inners;  // null: none
};

// A file in both forms. Cheap to copy.
struct MetadataFile {
  std::shared_ptr<const model::Metadata> map;
  std::shared_ptr<const MetadataTree> tree;

  std::string hash() const { return std::string(view(tree->root)); }  // as in TableConfig
};
struct EncodedFile {
  MetadataFile file;
  std::vector<Node> fresh;  // nodes that `base` does not have, the root last
};

// `base` null: everything is fresh.
EncodedFile encode_next(const MetadataFile* base, std::shared_ptr<const model::Metadata> metadata);
MetadataFile encode_file(model::Metadata metadata);

// The bytes of a node, null for one that is not there. What it returns must stay until the next call.
using NodeLookup = std::function<const std::string*(const NodeHash&)>;
// What has to be fetched before decode_metadata can succeed: only what `lookup` does not have. Call it again
// once these are there: lower nodes become known through upper ones. malformed: a node that is there is not one.
base::Result<std::vector<NodeHash>> missing_nodes(const NodeHash& root, const NodeLookup& lookup);
// not_found: a node is missing. `base`, a valid file, saves the decoding and checking of what it shares with this one.
base::Result<MetadataFile> decode_metadata(const NodeHash& root, const NodeLookup& lookup,
                                           const MetadataFile* base = nullptr);
// The same for files that need no validation, because this program wrote them after one.
base::Result<MetadataFile> decode_trusted(const NodeHash& root, const NodeLookup& lookup,
                                          const MetadataFile* base = nullptr);

// What stands directly under a node: of a root its inner parts, of an inner part its leaves.
base::Result<std::vector<NodeHash>> children_of_node(std::string_view bytes);
// Nodes of `tree` that `base` lacks (null: all), the root first, then inner parts, then leaves.
std::vector<NodeHash> nodes_not_in(const MetadataTree& tree, const MetadataTree* base);

// Head of a root, without decoding the rest.
struct RootHead {
  model::TableUuid table;
  model::TxnId txnid, prev_txnid;
  model::TxnSeq txnseq;
  std::string prev_hash;
};
base::Result<RootHead> decode_root_head(std::string_view root_bytes);

// A whole map in one string: `route full`, files, tests.
std::string encode_whole_map(const model::Metadata& metadata);
base::Result<MetadataFile> decode_whole_map(std::string_view bytes);

// A transaction's operations, as they travel in `ops`.
std::string encode_operations(std::span<const model::Operation> operations);
base::Result<std::vector<model::Operation>> decode_operations(std::string_view bytes);

}  // namespace cantle::wire
