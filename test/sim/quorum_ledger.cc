#include "test/sim/quorum_ledger.h"

#include "lib/base/check.h"
#include "lib/model/cut.h"
#include "lib/wire/block.h"

namespace cantle::sim {

namespace {

std::string name_of(uint64_t client, uint64_t series) {
  return "series " + std::to_string(series) + " of client " + std::to_string(client);
}
std::string text_of(const model::WriteOutcome& o) {
  return to_string(o.epoch) + ":" + to_string(o.lsn) +
         (o.kind == model::ResultKind::place ? "" : " = " + std::to_string(o.value));
}

// Whether the condition holds.
bool holds(const model::Expect& expect, const QuorumLedger::Held* held) {
  if (expect.absent) return held == nullptr;
  if (held == nullptr) return false;
  return expect.version ? held->version == *expect.version : held->value == *expect.value;
}

}  // namespace

void QuorumLedger::asked(const QuorumWrite& write) {
  CHECK(asked_.emplace(Name{write.client, write.series}, write).second);
}

void QuorumLedger::built(size_t partition, const model::BlockHeader& header, std::string payload) {
  partitions_[partition].built[{header.last(), header.header_crc}] = {header, std::move(payload)};
}

QuorumLedger::Fault QuorumLedger::told(size_t partition, uint64_t client, uint64_t series,
                                       const model::WriteOutcome& outcome) {
  const auto [at, first] = partitions_[partition].told.emplace(Name{client, series}, outcome);
  if (first || at->second == outcome) return std::nullopt;
  return name_of(client, series) + " was told " + text_of(at->second) + " and then " + text_of(outcome) + " (S23)";
}

void QuorumLedger::refused(size_t partition, const std::string& key, const std::string& version) {
  if (!version.empty()) partitions_[partition].refused.emplace(key, version);
}

void QuorumLedger::told_refused(size_t partition, uint64_t client, uint64_t series) {
  partitions_[partition].told_refused.emplace(client, series);
}

QuorumLedger::Fault QuorumLedger::committed(size_t partition, const model::PartitionId& id,
                                            const model::LogPoint& point) {
  const auto [at, first] = partitions_[partition].committed[id].emplace(point.lsn, point.crc);
  if (first || at->second == point.crc) return std::nullopt;
  return "commits another block that ends at LSN " + to_string(point.lsn) + " (S2, S14)";
}

void QuorumLedger::merged(size_t partition, const Merged& merge) {
  const auto start = model::merged_point(merge.low, merge.high);
  partitions_[partition].merged[{start.lsn, start.crc}] = merge;
}

// Of a parent: up to the cut it is in the leaf's log; behind it there are only starts of epochs.
QuorumLedger::Fault QuorumLedger::check_committed(const Partition& p, const Leaf& leaf,
                                                  const std::set<Place>& ends) const {
  auto all = leaf.ancestors;
  all.emplace_back(leaf.id, leaf.end);
  for (const auto& [id, end] : all) {
    const auto points = p.committed.find(id);
    if (points == p.committed.end()) continue;
    for (const auto& [lsn, crc] : points->second) {
      if (lsn <= end.lsn && !ends.contains({lsn, crc}))
        return "what was committed up to LSN " + to_string(lsn) + " is not in the log in the end (S2)";
      const auto block = lsn <= end.lsn ? p.built.end() : p.built.find({lsn, crc});
      if (lsn > end.lsn && (block == p.built.end() || block->second.header.kind != model::BlockKind::epoch_start))
        return "the parent committed more than starts of epochs behind the cut, up to LSN " + to_string(lsn) + " (S43)";
    }
  }
  return std::nullopt;
}

// From its beginning, or from what two were merged into.
QuorumLedger::Fault QuorumLedger::go_through(size_t partition, const model::LogPoint& end, Gone& gone) const {
  const auto& p = partitions_[partition];
  std::vector<const Built*> log;
  for (Place at{end.lsn, end.crc}; at.first.value != 0;) {
    gone.ends.insert(at);
    if (const auto merge = p.merged.find(at); merge != p.merged.end()) {
      if (auto fault = join(partition, merge->second, gone)) return fault;
      break;
    }
    const auto it = p.built.find(at);
    if (it == p.built.end()) return "nobody built the block that ends at LSN " + to_string(at.first);
    log.push_back(&it->second);
    at = {it->second.header.prev_lsn, it->second.header.prev_crc};
  }
  for (auto block = log.rbegin(); block != log.rend(); ++block)
    if (auto fault = replay(gone, partition, **block)) return fault;
  return std::nullopt;
}

// What both come to: they may have been one themselves, once.
QuorumLedger::Fault QuorumLedger::join(size_t partition, const Merged& merge, Gone& gone) const {
  for (const auto& [end, interval] : {std::pair(merge.low, merge.low_interval), {merge.high, merge.high_interval}}) {
    Gone one;
    if (auto fault = go_through(partition, end, one)) return fault;
    for (const auto& [key, held] : one.contents)
      if (interval.contains(key)) gone.contents[key] = held;
    for (auto& [key, line] : one.timelines)
      if (interval.contains(key)) gone.timelines[key] = std::move(line);
    for (const auto& [name, outcome] : one.written) {
      const auto [at, first] = gone.written.emplace(name, outcome);
      if (!first && at->second != outcome)
        return name_of(name.first, name.second) + " was written in two that were merged (S23)";
    }
    gone.versions.merge(one.versions);
    gone.ends.merge(one.ends);
  }
  return std::nullopt;
}

QuorumLedger::Fault QuorumLedger::check(size_t partition, const std::vector<Leaf>& leaves) {
  auto& p = partitions_[partition];
  std::map<Name, model::WriteOutcome> written;
  std::set<std::pair<std::string, std::string>> versions;
  p.leaves.clear();
  p.timelines.clear();
  for (const auto& leaf : leaves) {
    Gone gone;
    if (auto fault = go_through(partition, leaf.end, gone)) return fault;
    if (auto fault = check_committed(p, leaf, gone.ends)) return fault;
    auto& contents = p.leaves[leaf.id];
    for (const auto& [key, held] : gone.contents)
      if (leaf.interval.contains(key)) contents[key] = held;
    for (auto& [key, line] : gone.timelines)
      if (leaf.interval.contains(key)) p.timelines[key] = std::move(line);
    for (const auto& [name, outcome] : gone.written) {
      const auto [at, first] = written.emplace(name, outcome);
      if (!first && at->second != outcome)
        return name_of(name.first, name.second) + " was written in two children of a split (S23)";
    }
    versions.merge(gone.versions);
  }
  for (const auto& [name, outcome] : p.told) {
    const auto it = written.find(name);
    if (it == written.end())
      return name_of(name.first, name.second) + " was told " + text_of(outcome) + ", and is not in the log";
    if (it->second != outcome)
      return name_of(name.first, name.second) + " was told " + text_of(outcome) + ", and is at " + text_of(it->second);
  }
  for (const auto& name : p.told_refused)
    if (const auto it = written.find(name); it != written.end() && it->second.kind != model::ResultKind::refused)
      return name_of(name.first, name.second) + " was told that its condition did not hold, and is at " +
             text_of(it->second) + " (S23)";
  for (const auto& refused : p.refused)
    if (!versions.contains(refused))
      return "a refusal told of version " + refused.second + " of " + refused.first +
             ", which is not in the log in the end (S24)";
  return std::nullopt;
}

QuorumLedger::Fault QuorumLedger::replay(Gone& gone, size_t partition, const Built& block) const {
  if (block.header.kind != model::BlockKind::data) return std::nullopt;
  wire::RecordReader in(block.payload);
  model::RecordView view;
  std::vector<model::Record> group;
  model::Lsn lsn = block.header.first;
  for (; in.next(view); lsn = lsn.next()) {
    group.push_back(wire::own(view));
    if (view.version != model::quorum_version(block.header.epoch, lsn))
      return "the record at LSN " + to_string(lsn) + " has another's version";
    if (view.client == 0) continue;
    if (auto fault = apply(gone, partition, block.header, group)) return fault;
    group.clear();
  }
  if (!in.status()) return "the block that ends at LSN " + to_string(block.header.last()) + " has no records";
  if (!group.empty()) return "nobody's records end at LSN " + to_string(block.header.last());
  return std::nullopt;
}

// The group is what its request asks for, here.
QuorumLedger::Fault QuorumLedger::apply(Gone& gone, size_t partition, const model::BlockHeader& header,
                                        const std::vector<model::Record>& group) const {
  const auto& last = group.back();
  const std::string who = name_of(last.client, last.series) + ", version " + model::to_string(last.version) + ", ";
  const auto it = asked_.find({last.client, last.series});
  if (it == asked_.end() || it->second.partition != partition) return who + "was not asked for";
  const auto& write = it->second;
  if (group.size() != write.ops.size()) return who + "has too few records, or too many";
  const auto at = gone.contents.find(write.ops[0].key);
  const Held* held = at == gone.contents.end() ? nullptr : &at->second;
  model::WriteOutcome outcome;
  outcome.epoch = header.epoch;
  outcome.lsn = model::Lsn{};
  std::string value = write.ops[0].value;
  if (last.op == model::Op::none) {
    const auto told = model::outcome_of(wire::view_of(last));
    if (!told) return who + "has no outcome: " + to_string(told.error());
    if (write.kind != model::WriteKind::cas || holds(write.expect, held)) return who + "was refused, and should not be";
    if (!gone.written.emplace(Name{last.client, last.series}, *told).second) return who + "was written before (S23)";
    return std::nullopt;
  }
  if (write.kind == model::WriteKind::cas && !holds(write.expect, held)) return who + "was written over another value";
  if (write.kind == model::WriteKind::append) {
    value = (held != nullptr ? held->value : "") + value;
    outcome.kind = model::ResultKind::length;
    outcome.value = static_cast<int64_t>(value.size());
  }
  if (write.kind == model::WriteKind::incr) {
    outcome.kind = model::ResultKind::number;
    outcome.value = (held != nullptr ? std::stoll(held->value) : 0) + write.by;
    value = std::to_string(outcome.value);
  }
  for (size_t i = 0; i < group.size(); ++i) {
    const auto& asked = write.ops[i];
    const std::string& wanted = i == 0 ? value : asked.value;
    if (group[i].op != asked.op || group[i].key != asked.key || group[i].value != wanted)
      return who + "says \"" + group[i].value + "\" of " + group[i].key + ", and should say \"" + wanted + "\" of " +
             asked.key;
    gone.versions.emplace(group[i].key, model::to_string(group[i].version));
    gone.timelines[group[i].key].push_back({group[i].version, group[i].op == model::Op::del});
    if (group[i].op == model::Op::del)
      gone.contents.erase(group[i].key);
    else
      gone.contents[group[i].key] = {group[i].version, group[i].value};
  }
  const auto place = model::outcome_of(wire::view_of(last));
  if (!place) return who + "has no outcome: " + to_string(place.error());
  outcome.lsn = place->lsn;
  if (*place != outcome) return who + "says " + text_of(*place) + " of itself, and is " + text_of(outcome);
  if (!gone.written.emplace(Name{last.client, last.series}, outcome).second) return who + "was written before (S23)";
  return std::nullopt;
}

}  // namespace cantle::sim
