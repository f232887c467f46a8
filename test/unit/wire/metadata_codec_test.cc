#include "lib/wire/metadata_codec.h"

#include <gtest/gtest.h>

#include "lib/model/validate.h"
#include "lib/wire/metadata_nodes.h"
#include "test/support/random_table.h"

namespace cantle::wire {
namespace {

using base::Code;
using test::RandomTable;

class Nodes {
 public:
  void add(const std::vector<Node>& nodes) {
    for (const auto& n : nodes) held_[n.hash] = *n.bytes;
  }
  void drop(const NodeHash& h) { held_.erase(h); }
  NodeLookup lookup() const {
    return [this](const NodeHash& h) {
      const auto it = held_.find(h);
      return it != held_.end() ? &it->second : nullptr;
    };
  }
  size_t size() const { return held_.size(); }

 private:
  std::map<NodeHash, std::string> held_;
};

model::Metadata big(size_t partitions, uint64_t seed = 3) {
  return RandomTable(seed, {.servers = 5, .replicas = 3, .partitions = partitions}).current();
}

TEST(MetadataCodec, a_file_survives_its_nodes) {
  const auto m = big(300);
  const auto encoded = encode_next(nullptr, std::make_shared<const model::Metadata>(m));
  Nodes nodes;
  nodes.add(encoded.fresh);
  const auto decoded = decode_metadata(encoded.file.tree->root, nodes.lookup());
  ASSERT_TRUE(decoded) << to_string(decoded.error());
  EXPECT_EQ(*decoded->map, m);
  EXPECT_EQ(decoded->hash(), encoded.file.hash());
  EXPECT_EQ(encoded.fresh.size(), 1U + 1U + 5U);  // root, inner part, leaves of 64 regions from 1 to 300
}

template <class T>
uint32_t fields() {
  uint32_t n = 0;
  T{}.each_field([&](const char*, const auto&) { n++; });
  return n;
}

// One that is added to the model and not to the codec would be gone at the first write.
TEST(MetadataCodec, no_field_of_the_model_is_left_out) {
  EXPECT_EQ(fields<model::Assignment>(), nodes::kAssignmentFields);
  EXPECT_EQ(fields<model::Move>(), nodes::kMoveFields);
  EXPECT_EQ(fields<model::Child>(), nodes::kChildFields);
  EXPECT_EQ(fields<model::Split>(), nodes::kSplitFields);
  EXPECT_EQ(fields<model::Merge>(), nodes::kMergeFields);
  // Two for the interval, none where there is no merge; the parents as one.
  EXPECT_EQ(fields<model::Partition>(), nodes::kPartitionFields + 1);
  EXPECT_EQ(nodes::kPartitionMergeFields, nodes::kPartitionFields + 1);
  // The cut, in four parts, where there is one; what it became as one.
  EXPECT_EQ(fields<model::EndedPartition>(), nodes::kEndedFields + 2);
}

TEST(MetadataCodec, a_cancelled_move_survives_its_nodes) {
  RandomTable t(4, {.servers = 5, .replicas = 3, .partitions = 3});
  auto m = t.current();
  m.replication = model::Replication::quorum;
  const auto p = m.partitions.front();
  const auto move = model::draw_replace(p, p.assignments[0], {"p9"}, false, t.random());
  for (const auto& op : std::vector<model::Operation>{move, model::ops::Initialize{p.id, move.attempt},
                                                      model::ops::CancelMove{p.id, move.attempt}}) {
    const auto next = model::apply(&m, std::vector<model::Operation>{op}, t.context());
    ASSERT_TRUE(next) << to_string(next.error());
    m = *next;
  }
  ASSERT_NE(m.partitions.front().moves.front().cancelled.value, 0U);
  const auto encoded = encode_next(nullptr, std::make_shared<const model::Metadata>(m));
  Nodes nodes;
  nodes.add(encoded.fresh);
  const auto decoded = decode_metadata(encoded.file.tree->root, nodes.lookup());
  ASSERT_TRUE(decoded) << to_string(decoded.error());
  EXPECT_EQ(*decoded->map, m);
}

TEST(MetadataCodec, a_change_makes_one_leaf_one_inner_part_and_the_root) {
  RandomTable t(4, {.servers = 5, .replicas = 3, .partitions = 500});
  const auto base = encode_file(t.current());
  const auto& p = t.current().partitions[250];
  const std::vector<model::Operation> ops{model::draw_replace(p, p.assignments[0], {"p9"}, true, t.random())};
  const auto next = model::apply(&t.current(), ops, t.context());
  ASSERT_TRUE(next);
  const auto encoded = encode_next(&base, std::make_shared<const model::Metadata>(*next));
  EXPECT_EQ(encoded.fresh.size(), 3U);
  EXPECT_EQ(encoded.file.hash(), encode_file(*next).hash());
}

TEST(MetadataCodec, step_by_step_is_the_same_as_all_at_once) {
  for (uint64_t seed = 1; seed <= 10; seed++) {
    RandomTable t(seed, {.replication = seed % 2 == 0 ? model::Replication::quorum : model::Replication::push});
    auto file = encode_file(t.current());
    Nodes nodes;
    nodes.add(encode_next(nullptr, file.map).fresh);
    for (int i = 0; i < 150; i++) {
      if (!t.step()) continue;
      auto encoded = encode_next(&file, std::make_shared<const model::Metadata>(t.current()));
      ASSERT_EQ(encoded.file.hash(), encode_file(t.current()).hash()) << "seed " << seed << " step " << i;
      nodes.add(encoded.fresh);
      const auto decoded = decode_metadata(encoded.file.tree->root, nodes.lookup(), &file);
      ASSERT_TRUE(decoded) << to_string(decoded.error());
      ASSERT_EQ(*decoded->map, t.current());
      file = encoded.file;
    }
    const auto whole = decode_whole_map(encode_whole_map(t.current()));
    ASSERT_TRUE(whole) << to_string(whole.error());
    EXPECT_EQ(*whole->map, t.current());
    EXPECT_EQ(whole->hash(), file.hash());
  }
}

TEST(MetadataCodec, a_file_far_from_the_base_decodes_as_well) {
  RandomTable t(8);
  for (int i = 0; i < 60; i++) t.step();
  const auto base = encode_file(t.current());
  for (int i = 0; i < 120; i++) t.step();
  const auto later = encode_next(nullptr, std::make_shared<const model::Metadata>(t.current()));
  Nodes nodes;
  nodes.add(later.fresh);
  const auto decoded = decode_metadata(later.file.tree->root, nodes.lookup(), &base);
  ASSERT_TRUE(decoded) << to_string(decoded.error());
  EXPECT_EQ(*decoded->map, t.current());
  // And of another table altogether.
  const auto other = encode_file(big(3, 77));
  EXPECT_EQ(decode_metadata(later.file.tree->root, nodes.lookup(), &other)->hash(), later.file.hash());
}

TEST(MetadataCodec, what_is_missing_is_named_level_by_level) {
  const auto encoded = encode_next(nullptr, std::make_shared<const model::Metadata>(big(200)));
  const auto& root = encoded.file.tree->root;
  Nodes nodes;
  size_t rounds = 0;
  while (true) {
    const auto missing = missing_nodes(root, nodes.lookup());
    ASSERT_TRUE(missing);
    if (missing->empty()) break;
    EXPECT_EQ(decode_metadata(root, nodes.lookup()).error().code, Code::not_found);
    for (const auto& h : *missing)
      for (const auto& n : encoded.fresh)
        if (n.hash == h) nodes.add({n});
    ASSERT_LT(++rounds, 5U);
  }
  EXPECT_EQ(rounds, 3U);
  EXPECT_TRUE(decode_metadata(root, nodes.lookup()));
}

TEST(MetadataCodec, the_nodes_between_two_files_are_those_that_changed) {
  RandomTable t(4, {.servers = 5, .replicas = 3, .partitions = 500});
  const auto base = encode_file(t.current());
  while (!t.step()) {
  }
  const auto encoded = encode_next(&base, std::make_shared<const model::Metadata>(t.current()));
  std::set<NodeHash> fresh, listed;
  for (const auto& n : encoded.fresh) fresh.insert(n.hash);
  for (const auto& h : nodes_not_in(*encoded.file.tree, base.tree.get())) listed.insert(h);
  EXPECT_EQ(fresh, listed);
  EXPECT_TRUE(nodes_not_in(*base.tree, base.tree.get()).empty());
  EXPECT_EQ(nodes_not_in(*base.tree, nullptr).size(), 1U + 1U + 8U);
}

TEST(MetadataCodec, other_bytes_for_the_same_map_are_refused) {
  const auto encoded = encode_next(nullptr, std::make_shared<const model::Metadata>(big(2)));
  // The same root with a longer form of its first number.
  std::string bytes = *encoded.file.tree->root_bytes;
  const auto mark = bytes.find("cantle metadata") + 15;
  ASSERT_EQ(bytes[mark], 1);
  bytes.replace(mark, 1, std::string("\xcc\x01", 2));
  Nodes nodes;
  nodes.add(encoded.fresh);
  const Node odd{hash_of_node(bytes), std::make_shared<const std::string>(bytes)};
  nodes.add({odd});
  const auto decoded = decode_metadata(odd.hash, nodes.lookup());
  ASSERT_FALSE(decoded);
  EXPECT_EQ(decoded.error().code, Code::malformed);
}

TEST(MetadataCodec, a_map_that_breaks_a_rule_is_refused) {
  auto m = big(3);
  auto p = m.partitions[1];
  p.interval.begin += "x";
  m.partitions.put(p);
  const auto decoded = decode_whole_map(encode_whole_map(m));
  ASSERT_FALSE(decoded);
  EXPECT_EQ(decoded.error().code, Code::malformed);
  EXPECT_NE(decoded.error().text.find("cover"), std::string::npos);
}

TEST(MetadataCodec, a_later_format_is_said_so) {
  auto bytes = *encode_file(big(1)).tree->root_bytes;
  bytes[bytes.find("cantle metadata") + 15] = 9;
  const auto root = nodes::decode_root(bytes);
  ASSERT_FALSE(root);
  EXPECT_NE(root.error().text.find("format 9"), std::string::npos);
}

TEST(MetadataCodec, a_cut_is_refused_and_a_flipped_bit_has_another_hash) {
  RandomTable t(6);
  for (int i = 0; i < 100; i++) t.step();
  const auto whole = encode_whole_map(t.current());
  const auto hash = decode_whole_map(whole)->hash();
  for (size_t cut = 0; cut < whole.size(); cut += 7)
    EXPECT_FALSE(decode_whole_map(std::string_view(whole).substr(0, cut)));
  for (size_t i = 0; i < whole.size(); i += 3) {
    auto bad = whole;
    bad[i] = static_cast<char>(bad[i] ^ (1 << (i % 8)));
    const auto decoded = decode_whole_map(bad);
    EXPECT_TRUE(!decoded || decoded->hash() != hash) << "byte " << i;
  }
}

TEST(OperationsCodec, every_operation_survives) {
  base::SeededRandom r(1);
  RandomTable t(2);
  const auto& p = t.current().partitions.front();
  std::vector<model::Operation> list = t.create();
  list.push_back(model::ops::DropTable{true});
  list.push_back(model::ops::SetOption{"read_level", "one"});
  list.push_back(model::ops::SetOption{"read_level", std::nullopt});
  list.push_back(model::draw_split(p, "m", {}, {{"p3"}, {"p4"}, {"p5"}}, r));
  list.push_back(model::ops::Initialize{p.id, model::AttemptId::draw(r)});
  list.push_back(model::ops::FinalizeSplit{p.id, model::AttemptId::draw(r), {model::AssignmentId::draw(r)}});
  list.push_back(model::ops::AbortSplit{p.id, model::AttemptId::draw(r)});
  list.push_back(model::draw_replace(p, p.assignments[0], {"p9"}, true, r));
  list.push_back(model::ops::MarkAvailable{model::AssignmentId::draw(r), {"p1"}});
  list.push_back(model::ops::FinalizeMove{p.id, model::AttemptId::draw(r)});
  list.push_back(model::ops::CancelMove{p.id, model::AttemptId::draw(r)});
  list.push_back(model::ops::RemoveDead{{"p1"}});
  list.push_back(model::ops::SweepEnded{p.id, model::AttemptId::draw(r)});
  list.push_back(model::draw_merge(p, p, r));
  list.push_back(model::ops::FinalizeMerge{model::AttemptId::draw(r),
                                           p.id,
                                           model::PartitionId::draw(r),
                                           {model::AssignmentId::draw(r)},
                                           model::ops::FinalCuts{{{{3}, {17}, 9}, {4}, 2}, {{{5}, {11}, 8}, {6}, 1}}});
  list.push_back(model::ops::AbortMerge{model::AttemptId::draw(r), p.id, model::PartitionId::draw(r)});
  std::set<size_t> kinds;
  for (const auto& op : list) kinds.insert(op.index());
  EXPECT_EQ(kinds.size(), std::variant_size_v<model::Operation>);
  const auto bytes = encode_operations(list);
  const auto decoded = decode_operations(bytes);
  ASSERT_TRUE(decoded) << to_string(decoded.error());
  EXPECT_EQ(*decoded, list);
  for (size_t cut = 0; cut < bytes.size(); cut++)
    EXPECT_FALSE(decode_operations(std::string_view(bytes).substr(0, cut)));
}

TEST(OperationsCodec, says_what_is_wrong) {
  EXPECT_EQ(decode_operations("\x90").error().code, Code::invalid);  // no operation at all
  std::string unknown = "\x91\x92\xa5SHAKE\x80";
  EXPECT_EQ(decode_operations(unknown).error().code, Code::invalid);
  EXPECT_EQ(decode_operations("nonsense").error().code, Code::malformed);
}

}  // namespace
}  // namespace cantle::wire
