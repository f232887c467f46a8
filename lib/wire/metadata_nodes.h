// The three kinds of node, one at a time; for metadata_codec.cc and its tests.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lib/wire/metadata_codec.h"

namespace cantle::wire::nodes {

// How many stand in each array: those of the model; one more where an interval is two, one less where what a partition
// became is one.
constexpr uint32_t kPartitionFields = 11, kPartitionMergeFields = 12, kMergeFields = 5, kAssignmentFields = 6,
                   kSplitFields = 6, kChildFields = 3, kMoveFields = 6, kEndedFields = 9,
                   kEndedCutFields = 13;  // a quorum table's says where its log ended

struct Leaf {
  uint32_t number = 0;
  std::vector<model::Partition> partitions;  // by region
  std::vector<model::EndedPartition> ended;  // by region
};
struct Inner {
  uint32_t number = 0;
  std::vector<std::pair<uint32_t, NodeHash>> leaves;  // place in the part, hash; ascending
};
struct Root {
  model::Metadata head;  // all but partitions and ended
  std::vector<std::pair<uint32_t, NodeHash>> inners;
};

std::string encode_leaf(uint32_t number, const std::vector<const model::Partition*>& partitions,
                        const std::vector<const model::EndedPartition*>& ended);
std::string encode_inner(uint32_t number, const InnerNode& inner);
std::string encode_root(const model::Metadata& metadata, const std::vector<std::shared_ptr<const InnerNode>>& inners);

base::Result<Leaf> decode_leaf(std::string_view bytes);
base::Result<Inner> decode_inner(std::string_view bytes);
base::Result<Root> decode_root(std::string_view bytes);

}  // namespace cantle::wire::nodes
