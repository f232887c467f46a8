#include "lib/wire/metadata_nodes.h"

#include <algorithm>

#include "lib/model/record.h"
#include "lib/wire/msgpack.h"

namespace cantle::wire::nodes {
namespace {

// Positional arrays: a file of 10,000 partitions is read by every server and client, and names would double it.
constexpr std::string_view kRootMark = "cantle metadata", kInnerMark = "inner", kLeafMark = "leaf";
constexpr uint32_t kRootFields = 16, kInnerFields = 3, kLeafFields = 4;
constexpr uint32_t kAssignmentsMax = 2 * model::kReplicasMax, kOptionsMax = 256;
constexpr uint32_t kInnersMax = model::kRegionMax / (model::kLeafRegions * model::kInnerLeaves);

// --- writing ------------------------------------------------------------------------------------

void put(Writer& w, const std::vector<model::Assignment>& list) {
  w.array(list.size());
  for (const auto& a : list) {
    w.array(kAssignmentFields);
    w.str(a.server.name);
    w.bin(a.id.view());
    w.uint(a.slot);
    w.uint(static_cast<uint64_t>(a.state));
    w.bin(a.source.none() ? std::string_view() : a.source.view());
    w.uint(a.since.value);
  }
}

void put(Writer& w, const model::Child& child) {
  w.array(kChildFields);
  w.bin(child.id.view());
  w.uint(child.region.value);
  put(w, child.assignments);
}

void put(Writer& w, const model::Partition& p) {
  w.array(p.merge ? kPartitionMergeFields : kPartitionFields);
  w.bin(p.id.view());
  w.uint(p.region.value);
  w.bin(p.interval.begin);
  w.bin(p.interval.end);
  w.uint(static_cast<uint64_t>(p.state));
  w.uint(p.min_txnseq.value);
  std::string parents(p.parent.none() ? std::string_view() : p.parent.view());  // two ids: it was merged from them
  if (p.made_by_merge()) parents += p.parent_high.view();
  w.bin(parents);
  w.uint(p.parent_region.value);
  put(w, p.assignments);
  if (p.split) {
    w.array(kSplitFields);
    w.bin(p.split->attempt.view());
    w.bin(p.split->point);
    put(w, p.split->low);
    put(w, p.split->high);
    w.uint(static_cast<uint64_t>(p.split->phase));
    w.uint(p.split->since.value);
  } else {
    w.nil();
  }
  w.array(p.moves.size());
  for (const auto& m : p.moves) {
    w.array(kMoveFields);
    w.bin(m.attempt.view());
    w.bin(m.from.view());
    w.bin(m.to.view());
    w.boolean(m.from_dead);
    w.uint(m.since.value);
    w.uint(m.cancelled.value);
  }
  if (!p.merge) return;
  w.array(kMergeFields);
  w.bin(p.merge->attempt.view());
  w.bin(p.merge->low.view());
  w.bin(p.merge->high.view());
  put(w, p.merge->target);
  w.uint(p.merge->since.value);
}

void put(Writer& w, const model::EndedPartition& e) {
  w.array(e.cut ? kEndedCutFields : kEndedFields);
  w.bin(e.id.view());
  w.uint(e.region.value);
  w.bin(e.interval.begin);
  w.bin(e.interval.end);
  w.bin(e.attempt.view());
  w.bin(e.point);
  std::string became(e.was_merged() ? e.into.view() : e.low.view());  // one id: merged into it; two: split
  if (!e.was_merged()) became += e.high.view();
  w.bin(became);
  w.uint(e.at.value);
  put(w, e.parent_assignments);
  if (!e.cut) return;
  w.uint(e.cut->at.epoch.value);
  w.uint(e.cut->at.lsn.value);
  w.uint(e.cut->at.crc);
  w.uint(e.cut->epoch.value);
}

// --- reading: the first thing that is wrong makes everything after it fail ------------------------

class Input {
 public:
  explicit Input(std::string_view bytes) : in_(bytes) {}

  bool good() const { return good_; }
  bool nil() { return good_ && in_.nil(); }
  void array(uint32_t* n, uint32_t max) { need(in_.array(n) && *n <= max); }
  void exactly(uint32_t fields) {
    uint32_t n = 0;
    need(in_.array(&n) && n == fields);
  }
  void map(uint32_t* n, uint32_t max) { need(in_.map(n) && *n <= max); }
  void mark(std::string_view word) {
    std::string_view v;
    need(in_.text(&v) && v == word);
  }
  std::string text(size_t max) {
    std::string_view v;
    need(in_.text(&v) && v.size() <= max);
    return good_ ? std::string(v) : std::string();
  }
  std::string_view view() {
    std::string_view v;
    need(in_.text(&v));
    return good_ ? v : std::string_view();
  }
  template <class Id>
  void id(Id* out) {
    const auto v = view();
    need(v.size() == 16);
    if (good_) *out = *Id::from_bytes(v);
  }
  template <class Id>
  void optional_id(Id* out) {
    const auto v = view();
    need(v.empty() || (v.size() == 16 && v != std::string_view("\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 16)));
    if (good_ && !v.empty()) *out = *Id::from_bytes(v);
  }
  template <class Int>
  void number(Int* out, uint64_t max = std::numeric_limits<Int>::max()) {
    uint64_t v = 0;
    need(in_.uint(&v) && v <= max);
    if (good_) *out = static_cast<Int>(v);
  }
  template <class Enum>
  void enumeration(Enum* out, Enum max) {
    uint64_t v = 0;
    need(in_.uint(&v) && v >= 1 && v <= static_cast<uint64_t>(max));
    if (good_) *out = static_cast<Enum>(v);
  }
  void boolean(bool* out) { need(in_.boolean(out)); }
  void need(bool condition) { good_ = good_ && condition; }
  bool finished() const { return good_ && in_.done(); }

 private:
  Reader in_;
  bool good_ = true;
};

void get(Input& in, std::vector<model::Assignment>* list) {
  uint32_t n = 0;
  in.array(&n, kAssignmentsMax);
  for (uint32_t i = 0; in.good() && i < n; i++) {
    model::Assignment a;
    in.exactly(kAssignmentFields);
    a.server.name = in.text(63);
    in.id(&a.id);
    in.number(&a.slot);
    in.enumeration(&a.state, model::AssignmentState::leaving);
    in.optional_id(&a.source);
    in.number(&a.since.value);
    list->push_back(std::move(a));
  }
}

void get(Input& in, model::Child* child) {
  in.exactly(kChildFields);
  in.id(&child->id);
  in.number(&child->region.value, model::kRegionMax - 1);
  get(in, &child->assignments);
}

void get(Input& in, model::Partition* p) {
  uint32_t fields = 0;
  in.array(&fields, kPartitionMergeFields);
  in.need(fields == kPartitionFields || fields == kPartitionMergeFields);
  in.id(&p->id);
  in.number(&p->region.value, model::kRegionMax - 1);
  p->interval.begin = in.text(model::kKeyMax);
  p->interval.end = in.text(model::kKeyMax);
  in.enumeration(&p->state, model::PartitionState::merging);
  in.number(&p->min_txnseq.value);
  if (const auto parents = in.view(); parents.size() == 32) {
    p->parent = *model::PartitionId::from_bytes(parents.substr(0, 16));
    p->parent_high = *model::PartitionId::from_bytes(parents.substr(16));
    in.need(!p->parent.none() && !p->parent_high.none());
  } else {
    in.need(parents.empty() || parents.size() == 16);
    if (in.good() && !parents.empty()) p->parent = *model::PartitionId::from_bytes(parents);
    in.need(parents.empty() || !p->parent.none());
  }
  in.number(&p->parent_region.value, model::kRegionMax - 1);
  get(in, &p->assignments);
  if (!in.nil()) {
    model::Split s;
    in.exactly(kSplitFields);
    in.id(&s.attempt);
    s.point = in.text(model::kKeyMax);
    get(in, &s.low);
    get(in, &s.high);
    in.enumeration(&s.phase, model::SplitPhase::filling);
    in.number(&s.since.value);
    p->split = std::move(s);
  }
  uint32_t n = 0;
  in.array(&n, kAssignmentsMax);
  for (uint32_t i = 0; in.good() && i < n; i++) {
    model::Move m;
    in.exactly(kMoveFields);
    in.id(&m.attempt);
    in.id(&m.from);
    in.id(&m.to);
    in.boolean(&m.from_dead);
    in.number(&m.since.value);
    in.number(&m.cancelled.value);
    p->moves.push_back(m);
  }
  if (fields != kPartitionMergeFields) return;
  auto& merge = p->merge.emplace();
  in.exactly(kMergeFields);
  in.id(&merge.attempt);
  in.id(&merge.low);
  in.id(&merge.high);
  get(in, &merge.target);
  in.number(&merge.since.value);
}

void get(Input& in, model::EndedPartition* e) {
  uint32_t fields = 0;
  in.array(&fields, kEndedCutFields);
  in.need(fields == kEndedFields || fields == kEndedCutFields);
  in.id(&e->id);
  in.number(&e->region.value, model::kRegionMax - 1);
  e->interval.begin = in.text(model::kKeyMax);
  e->interval.end = in.text(model::kKeyMax);
  in.id(&e->attempt);
  e->point = in.text(model::kKeyMax);
  const auto became = in.view();
  in.need(became.size() == 16 || became.size() == 32);
  if (in.good() && became.size() == 16) {
    e->into = *model::PartitionId::from_bytes(became);
  } else if (in.good()) {
    e->low = *model::PartitionId::from_bytes(became.substr(0, 16));
    e->high = *model::PartitionId::from_bytes(became.substr(16));
  }
  in.number(&e->at.value);
  get(in, &e->parent_assignments);
  if (fields != kEndedCutFields) return;
  auto& cut = e->cut.emplace();
  in.number(&cut.at.epoch.value);
  in.number(&cut.at.lsn.value);
  in.number(&cut.at.crc);
  in.number(&cut.epoch.value);
}

std::vector<std::pair<uint32_t, NodeHash>> get_hashes(Input& in, uint32_t count_max) {
  std::vector<std::pair<uint32_t, NodeHash>> out;
  uint32_t n = 0;
  in.array(&n, count_max);
  for (uint32_t i = 0; in.good() && i < n; i++) {
    uint32_t place = 0;
    in.exactly(2);
    in.number(&place, count_max - 1);
    in.need(out.empty() || place > out.back().first);
    const auto raw = in.view();
    in.need(raw.size() == 32);
    if (!in.good()) break;
    out.emplace_back(place, *node_hash(raw));
  }
  return out;
}

tl::unexpected<base::Error> malformed(std::string_view what) {
  return base::fail(base::Code::malformed, "METADATA: not a valid " + std::string(what));
}

}  // namespace

std::string encode_leaf(uint32_t number, const std::vector<const model::Partition*>& partitions,
                        const std::vector<const model::EndedPartition*>& ended) {
  std::string out;
  out.reserve(64 + partitions.size() * 320);
  Writer w(out);
  w.array(kLeafFields);
  w.str(kLeafMark);
  w.uint(number);
  w.array(partitions.size());
  for (const auto* p : partitions) put(w, *p);
  w.array(ended.size());
  for (const auto* e : ended) put(w, *e);
  return out;
}

std::string encode_inner(uint32_t number, const InnerNode& inner) {
  std::string out;
  Writer w(out);
  w.array(kInnerFields);
  w.str(kInnerMark);
  w.uint(number);
  size_t count = 0;
  for (const auto& h : inner.leaves) count += h != NodeHash{} ? 1 : 0;
  w.array(count);
  for (uint32_t i = 0; i < inner.leaves.size(); i++) {
    if (inner.leaves[i] == NodeHash{}) continue;
    w.array(2);
    w.uint(i);
    w.bin(view(inner.leaves[i]));
  }
  return out;
}

std::string encode_root(const model::Metadata& m, const std::vector<std::shared_ptr<const InnerNode>>& inners) {
  std::string out, changes;
  for (const auto& c : m.changes) changes += c.view();
  out.reserve(changes.size() + 512 + inners.size() * 40);
  Writer w(out);
  w.array(kRootFields);
  w.str(kRootMark);
  w.uint(m.format);
  w.bin(m.table.view());
  w.str(m.name);
  w.uint(static_cast<uint64_t>(m.keyspace));
  w.uint(static_cast<uint64_t>(m.replication));
  w.uint(m.replicas);
  w.bin(m.txnid.view());
  w.bin(m.prev_txnid.none() ? std::string_view() : m.prev_txnid.view());
  w.bin(m.prev_hash);
  w.uint(m.txnseq.value);
  w.boolean(m.dropped);
  w.uint(m.next_region.value);
  w.bin(changes);
  w.map(m.options.size());
  for (const auto& [name, value] : m.options) {
    w.str(name);
    w.str(value);
  }
  size_t count = 0;
  for (const auto& i : inners) count += i ? 1 : 0;
  w.array(count);
  for (uint32_t i = 0; i < inners.size(); i++) {
    if (!inners[i]) continue;
    w.array(2);
    w.uint(i);
    w.bin(view(inners[i]->hash));
  }
  return out;
}

base::Result<Leaf> decode_leaf(std::string_view bytes) {
  Input in(bytes);
  Leaf leaf;
  in.exactly(kLeafFields);
  in.mark(kLeafMark);
  in.number(&leaf.number, model::kRegionMax / model::kLeafRegions - 1);
  uint32_t n = 0;
  in.array(&n, model::kLeafRegions);
  for (uint32_t i = 0; in.good() && i < n; i++) {
    model::Partition p;
    get(in, &p);
    in.need(p.region.value / model::kLeafRegions == leaf.number);
    in.need(leaf.partitions.empty() || leaf.partitions.back().region < p.region);
    leaf.partitions.push_back(std::move(p));
  }
  in.array(&n, model::kLeafRegions);
  for (uint32_t i = 0; in.good() && i < n; i++) {
    model::EndedPartition e;
    get(in, &e);
    in.need(e.region.value / model::kLeafRegions == leaf.number);
    in.need(leaf.ended.empty() || leaf.ended.back().region < e.region);
    leaf.ended.push_back(std::move(e));
  }
  if (!in.finished() || (leaf.partitions.empty() && leaf.ended.empty())) return malformed("leaf");
  return leaf;
}

base::Result<Inner> decode_inner(std::string_view bytes) {
  Input in(bytes);
  Inner inner;
  in.exactly(kInnerFields);
  in.mark(kInnerMark);
  in.number(&inner.number, kInnersMax - 1);
  inner.leaves = get_hashes(in, model::kInnerLeaves);
  if (!in.finished() || inner.leaves.empty()) return malformed("inner part");
  return inner;
}

base::Result<Root> decode_root(std::string_view bytes) {
  Input in(bytes);
  Root root;
  auto& m = root.head;
  in.exactly(kRootFields);
  in.mark(kRootMark);
  in.number(&m.format);
  if (in.good() && (m.format < model::kFormatMin || m.format > model::kFormatMax))
    return base::fail(base::Code::malformed,
                      "METADATA: format " + std::to_string(m.format) + " is not one that this version reads (" +
                          std::to_string(model::kFormatMin) + " to " + std::to_string(model::kFormatMax) + ")");
  in.id(&m.table);
  m.name = in.text(63);
  in.enumeration(&m.keyspace, model::Keyspace::hash);
  in.enumeration(&m.replication, model::Replication::quorum);
  in.number(&m.replicas);
  in.id(&m.txnid);
  in.optional_id(&m.prev_txnid);
  m.prev_hash = in.text(32);
  in.number(&m.txnseq.value);
  in.boolean(&m.dropped);
  in.number(&m.next_region.value, model::kRegionMax);
  const auto changes = in.view();
  in.need(changes.size() % 16 == 0 && changes.size() <= 16 * model::kChangeIdsMax);
  for (size_t i = 0; in.good() && i < changes.size(); i += 16)
    m.changes.push_back(*model::ChangeId::from_bytes(changes.substr(i, 16)));
  uint32_t n = 0;
  in.map(&n, kOptionsMax);
  for (uint32_t i = 0; in.good() && i < n; i++) {
    auto name = in.text(256);
    auto value = in.text(4096);
    in.need(m.options.empty() || m.options.rbegin()->first < name);
    m.options[std::move(name)] = std::move(value);
  }
  root.inners = get_hashes(in, kInnersMax);
  if (!in.finished()) return malformed("root");
  return root;
}

}  // namespace cantle::wire::nodes
