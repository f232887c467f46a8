// The lookups a table's agent answers from its current file.
#include <algorithm>

#include "lib/meta/table_agent.h"

namespace cantle::meta {

TableAgent::Age TableAgent::age() const {
  if (live_ == nullptr || !live_->machine().confirmed()) return {UINT64_MAX, true};
  const auto since = now() - *live_->machine().confirmed();
  return {static_cast<uint64_t>(std::max<int64_t>(0, base::to_ms(since))), since > host_.session().timeout()};
}

base::Result<const wire::MetadataFile*> TableAgent::serve(bool stale_ok, model::TxnSeq min_txnseq, Age* age_out) {
  if (live_ == nullptr) {
    // S32: that there is none is believed no longer than that there is one.
    if (seen_none_ && now() - none_at_ <= host_.session().timeout())
      return base::fail(base::Code::no_such_table, "there is no table " + name_);
    // Not read yet in this life. What is on disk may serve those who take stale answers.
    TableReplica* only = replicas_.size() == 1 ? replicas_.begin()->second.get() : nullptr;
    if (only == nullptr)
      return base::fail(base::Code::unavailable, "TableConfig of " + name_ + " has not been read yet");
    live_ = only;
  }
  const auto& machine = live_->machine();
  if (machine.regressed()) return base::fail(base::Code::regressed, machine.alarm());  // S36
  *age_out = age();
  const auto refuse = [&](std::string text) {
    base::Error error(base::Code::unavailable, std::move(text));
    error.detail = "age_ms=" + std::to_string(age_out->ms);
    return base::fail(std::move(error));
  };
  // S32: it does not know whether it is current.
  if (age_out->stale && !stale_ok) return refuse("cut off from the coordination service");
  const auto* file = live_->current();
  if (file == nullptr && stale_ok && age_out->stale) file = live_->last();
  if (file == nullptr) {
    const auto* c = config();
    if (c != nullptr && !model::is_member(*c, host_.self()))
      return refuse(host_.self().name + " is not a metadata server of " + name_);
    return refuse("the current file has not been fetched yet");
  }
  if (file->map->txnseq < min_txnseq) {
    hint();
    return refuse("at txnseq " + to_string(file->map->txnseq) + ", not yet at " + to_string(min_txnseq));
  }
  return file;
}

base::Result<model::MdFindReply> TableAgent::find(const model::MdFind& request) {
  Age age;
  TRY_ASSIGN(const auto* file, serve(request.stale_ok, request.min_txnseq, &age));
  const auto& map = *file->map;
  model::MdFindReply reply{map.table, map.txnseq, age.ms, age.stale, {}};
  if (request.by_key) {
    if (const auto* p = map.find(request.key)) reply.partitions.push_back(*p);
  } else if (!request.partition.none()) {
    if (const auto* p = map.find(request.partition)) reply.partitions.push_back(*p);
  } else if (!request.server.name.empty()) {
    const auto here = [&](const std::vector<model::Assignment>& list) {
      return std::any_of(list.begin(), list.end(), [&](const auto& a) { return a.server == request.server; });
    };
    for (const auto& p : map.partitions)
      if (here(p.assignments) || (p.split && (here(p.split->low.assignments) || here(p.split->high.assignments))))
        reply.partitions.push_back(p);
  } else {
    return base::fail(base::Code::invalid, "md.find needs a key, a partition or a server");
  }
  if (reply.partitions.empty() && request.server.name.empty())
    return base::fail(base::Code::not_found, "no such partition");
  return reply;
}

base::Result<model::MdGetReply> TableAgent::get(const model::MdGet& request) {
  Age age;
  TRY_ASSIGN(const auto* file, serve(request.stale_ok, request.min_txnseq, &age));
  const auto& map = *file->map;
  model::MdGetReply reply;
  reply.table_uuid = map.table;
  reply.txnid = map.txnid;
  reply.txnseq = map.txnseq;
  reply.hash = file->hash();
  reply.age_ms = age.ms;
  reply.stale = age.stale;
  reply.unchanged = request.have_txnid == map.txnid;
  if (reply.unchanged) return reply;
  const auto have = request.have_txnid.none() ? nullptr : live_->recent_tree(request.have_txnid);
  size_t bytes = 0;
  for (const auto& hash : wire::nodes_not_in(*file->tree, have.get())) {
    const auto node = hash == file->tree->root ? file->tree->root_bytes : host_.files().node(hash);
    if (!node || (!reply.nodes.empty() && bytes + node->size() > model::kMdFetchBytes)) break;
    bytes += node->size();
    reply.nodes.push_back(*node);
  }
  return reply;
}

namespace {

using model::DiscoverItem;
using model::Verdict;

std::vector<model::DiscoverTarget> targets_of(const model::Partition& p) {
  std::vector<model::DiscoverTarget> out;
  for (const auto& a : p.assignments) out.push_back({p.id, p.interval, a});
  return out;
}

DiscoverItem assigned(const model::Partition& p, const model::PartitionId& id, model::Region region,
                      const model::Interval& interval, model::PartitionState state, const model::Assignment& a) {
  DiscoverItem item;
  item.held = {id, a.id};
  item.verdict = model::answers_reads(a.state) ? Verdict::serve : Verdict::load;
  item.region = region;
  item.interval = interval;
  item.state = state;
  item.assignment_state = a.state;
  if (id == p.id) item.targets = targets_of(p);
  return item;
}

void add_assigned(const model::Metadata& map, const model::ServerId& server, std::vector<DiscoverItem>* out) {
  for (const auto& p : map.partitions) {
    for (const auto& a : p.assignments)
      if (a.server == server) out->push_back(assigned(p, p.id, p.region, p.interval, p.state, a));
    if (!p.split) continue;
    const model::Interval low{p.interval.begin, p.split->point}, high{p.split->point, p.interval.end};
    for (const auto* child : {&p.split->low, &p.split->high})
      for (const auto& a : child->assignments)
        if (a.server == server)
          out->push_back(assigned(p, child->id, child->region, child == &p.split->low ? low : high,
                                  model::PartitionState::creating, a));
  }
}

// What to do with a copy that is not assigned. Only an explicit trace of where its data is now is an order to give it
// up.
DiscoverItem held_item(const model::Metadata& map, const model::ServerId& server, const model::Held& held) {
  DiscoverItem item;
  item.held = held;
  if (const auto* p = map.find(held.partition)) {
    item.verdict = Verdict::unload;
    item.region = p->region;
    item.interval = p->interval;
    item.state = p->state;
    item.targets = targets_of(*p);
    return item;
  }
  if (const auto* e = find_ended(map, held.partition)) {
    const bool by_tenure = std::any_of(e->parent_assignments.begin(), e->parent_assignments.end(),
                                       [&](const auto& a) { return a.id == held.assignment && a.server == server; });
    item.verdict = by_tenure ? Verdict::divide : Verdict::unload;
    item.region = e->region;
    item.interval = e->interval;
    for (const auto& p : map.partitions)
      if (!e->interval.intersect(p.interval).empty())
        for (auto& t : targets_of(p)) item.targets.push_back(std::move(t));
    return item;
  }
  // Its end has been swept; its children may still say so.
  for (const auto& p : map.partitions)
    if (p.parent == held.partition || p.parent_high == held.partition)
      for (auto& t : targets_of(p)) item.targets.push_back(std::move(t));
  item.verdict = item.targets.empty() ? Verdict::unknown : Verdict::unload;
  return item;
}

}  // namespace

base::Result<model::MdDiscoverReply> TableAgent::discover(const model::MdDiscover& request) {
  Age age;
  TRY_ASSIGN(const auto* file, serve(request.stale_ok, {}, &age));
  const auto& map = *file->map;
  if (!request.table_uuid.none() && request.table_uuid != map.table)
    return base::fail(base::Code::no_such_table, "table " + name_ + " is another table now: " + to_string(map.table));
  model::MdDiscoverReply reply{map.table, map.txnseq, age.ms, age.stale, map.dropped, {}};
  if (!map.dropped) add_assigned(map, request.server, &reply.items);
  std::set<model::Held> known;
  for (const auto& item : reply.items) known.insert(item.held);
  for (const auto& held : request.held) {
    if (known.contains(held)) continue;
    if (map.dropped) {
      DiscoverItem item;
      item.held = held;
      item.verdict = Verdict::unload;
      reply.items.push_back(std::move(item));
    } else {
      reply.items.push_back(held_item(map, request.server, held));
    }
  }
  return reply;
}

}  // namespace cantle::meta
