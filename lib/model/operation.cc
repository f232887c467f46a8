#include "lib/model/operation.h"

#include <algorithm>
#include <set>

#include "lib/base/bytes.h"
#include "lib/model/apply_parts.h"
#include "lib/model/table_config.h"
#include "lib/model/validate.h"

namespace cantle::model {
namespace detail {

base::Result<Partition> Draft::partition(const PartitionId& id) const {
  const auto* p = file.find(id);
  if (p == nullptr)
    return conflict("partition", "no partition " + to_string(id) + " in txnseq " + to_string(file.txnseq));
  return *p;
}

void Draft::changed(Partition partition) {
  partition.min_txnseq = file.txnseq;
  file.partitions.put(std::move(partition));
}

void Draft::ended(EndedPartition ended) {
  file.partitions.erase(ended.region);
  const auto order = [](const EndedPartition& a, const EndedPartition& b) {
    return std::pair(a.at, a.region) < std::pair(b.at, b.region);
  };
  file.ended.insert(std::upper_bound(file.ended.begin(), file.ended.end(), ended, order), std::move(ended));
}

base::Status apply(Draft& draft, const ops::CreateTable& op) {
  auto& file = draft.file;
  if (op.keyspace != Keyspace::range) return refused("supported", "this version has range tables only");
  if (op.partitions.empty() || op.partitions.size() > kPartitionsAtCreation)
    return refused("limits", "a table begins with 1 to " + std::to_string(kPartitionsAtCreation) + " partitions");
  file.table = op.table;
  file.name = op.name;
  file.keyspace = op.keyspace;
  file.replication = op.replication;
  file.replicas = op.replicas;
  file.options = op.options;
  file.next_region = {1};
  std::vector<Partition> all;
  for (const auto& spec : op.partitions) {
    Partition p{.id = spec.id,
                .region = file.next_region,
                .interval = spec.interval,
                .state = PartitionState::active,
                .min_txnseq = file.txnseq,
                .parent = {},
                .parent_region = {},
                .assignments = {},
                .split = std::nullopt,
                .moves = {}};
    for (uint32_t slot = 0; slot < spec.assignments.size(); slot++)
      p.assignments.push_back({.server = spec.assignments[slot].server,
                               .id = spec.assignments[slot].id,
                               .slot = slot,
                               .state = AssignmentState::available,
                               .source = {},
                               .since = file.txnseq});
    file.next_region = file.next_region.next();
    all.push_back(std::move(p));
  }
  file.partitions = Partitions(std::move(all));
  return base::ok();
}

base::Status apply(Draft& draft, const ops::DropTable& op) {
  if (!op.accept_loss) return refused("accept-loss", "dropping a table loses its data: accept_loss is not set");
  draft.file.dropped = true;
  return base::ok();
}

base::Status apply(Draft& draft, const ops::SetOption& op) {
  TRY(validate_option(op.name, op.value ? *op.value : default_option(op.name)));
  if (op.value)
    draft.file.options[op.name] = *op.value;
  else
    draft.file.options.erase(op.name);
  return base::ok();
}

namespace {

base::Result<Metadata> begin_draft(const Metadata* before, std::span<const Operation> operations,
                                   const ApplyContext& context) {
  if (operations.empty() || operations.size() > kOperationsMax)
    return refused("limits", "a transaction has 1 to " + std::to_string(kOperationsMax) + " operations");
  if (context.txnid.none() || context.change.none()) return refused("ids", "a transaction needs its ids");
  const bool creates = std::holds_alternative<ops::CreateTable>(operations.front());
  for (const auto& op : operations.subspan(1))
    if (std::holds_alternative<ops::CreateTable>(op)) return refused("create", "CREATE_TABLE comes first and once");
  if (before == nullptr && !creates) return base::fail(base::Code::no_such_table, "there is no such table");
  if (before != nullptr && creates)
    return base::fail(base::Code::exists, "there is a table " + before->name + " already");
  if (before == nullptr) {
    Metadata first;
    first.txnseq = {1};
    return first;
  }
  if (before->dropped) return base::fail(base::Code::no_such_table, "table " + before->name + " was dropped");
  Metadata next = *before;
  next.prev_txnid = before->txnid;
  next.prev_hash = context.base_hash;
  next.txnseq = before->txnseq.next();
  return next;
}

}  // namespace

base::Result<Draft> begin(const Metadata* before, std::span<const Operation> operations, const ApplyContext& context) {
  TRY_ASSIGN(auto file, begin_draft(before, operations, context));
  return Draft{std::move(file)};
}

}  // namespace detail

base::Result<Metadata> apply(const Metadata* base, std::span<const Operation> operations, const ApplyContext& context) {
  TRY_ASSIGN(auto draft, detail::begin(base, operations, context));
  draft.file.txnid = context.txnid;
  draft.file.changes.push_back(context.change);
  if (draft.file.changes.size() > kChangeIdsMax) draft.file.changes.erase(draft.file.changes.begin());
  for (const auto& op : operations) {
    auto done = std::visit([&](const auto& x) { return detail::apply(draft, x); }, op);
    if (!done) return base::fail(std::move(done).error().wrap(operation_name(op)));
  }
  TRY(base != nullptr ? validate_change(*base, draft.file) : validate(draft.file));
  return std::move(draft.file);
}

ops::SplitPartition draw_split(const Partition& parent, std::string point, const std::vector<ServerId>& low,
                               const std::vector<ServerId>& high, base::Random& random) {
  std::vector<ServerId> own;
  for (const auto& a : parent.assignments) own.push_back(a.server);
  const auto child = [&](const std::vector<ServerId>& servers) {
    ops::NewChild c{.id = PartitionId::draw(random), .assignments = {}};
    for (const auto& s : servers.empty() ? own : servers) c.assignments.push_back({s, AssignmentId::draw(random)});
    return c;
  };
  ops::SplitPartition op{
      .partition = parent.id, .attempt = AttemptId::draw(random), .point = std::move(point), .low = {}, .high = {}};
  op.low = child(low);
  op.high = child(high);
  return op;
}

ops::MergePartitions draw_merge(const Partition& low, const Partition& high, base::Random& random) {
  ops::MergePartitions op{
      .attempt = AttemptId::draw(random), .low = low.id, .high = high.id, .target = {PartitionId::draw(random), {}}};
  for (const auto& a : low.assignments) op.target.assignments.push_back({a.server, AssignmentId::draw(random)});
  return op;
}

ops::Replace draw_replace(const Partition& partition, const Assignment& from, const ServerId& to, bool from_dead,
                          base::Random& random) {
  const auto attempt = AttemptId::draw(random);
  return {.partition = partition.id,
          .attempt = attempt,
          .from = from.id,
          .to = {to, AssignmentId::draw(random)},
          .from_dead = from_dead};
}

ops::Replace draw_replace(const Partition& partition, const Move& cancelled, base::Random& random) {
  return {.partition = partition.id,
          .attempt = AttemptId::draw(random),
          .from = cancelled.from,
          .to = {find_assignment(partition, cancelled.to)->server, cancelled.to},
          .from_dead = true};
}

std::vector<ServerId> servers_of_change(const Metadata* before, const Metadata& after) {
  std::set<ServerId> out;
  const auto add_all = [&](const std::vector<Assignment>& list) {
    for (const auto& a : list) out.insert(a.server);
  };
  const auto add = [&](const Partition* p) {
    if (p == nullptr) return;
    add_all(p->assignments);
    if (p->split) add_all(p->split->low.assignments), add_all(p->split->high.assignments);
  };
  static const Partitions kNone;
  const auto& old = before != nullptr ? before->partitions : kNone;
  if (before == nullptr || before->dropped != after.dropped)
    for (const auto& p : after.partitions) add(&p);
  for (const auto region : Partitions::changed(old, after.partitions)) {
    add(old.get(region));
    add(after.partitions.get(region));
  }
  return {out.begin(), out.end()};
}

}  // namespace cantle::model
