#include "test/sim/checks.h"

#include <set>

#include "lib/coord/layout.h"
#include "lib/store/direct_reader.h"
#include "test/sim/partd.h"

namespace cantle::sim {

using model::Version;

namespace {

size_t majority(size_t k) { return k / 2 + 1; }

// A copy that has been damaged says so and is not counted on.
bool damaged(const store::Tenure& tenure) { return !tenure.whole; }

}  // namespace

void Checks::fail(const std::string& text) {
  if (!violation_.empty()) return;
  violation_ = text;
  cluster_.scheduler.note("VIOLATION", text);
  cluster_.scheduler.stop();
}

std::string Checks::table_name(const model::TableUuid& uuid) const {
  for (const auto& name : cluster_.maps.tables())
    if (cluster_.maps.current(name)->table == uuid) return name;
  return "";
}

Version Checks::held(Host& host, const std::string& table, const std::string& key) const {
  if (!host.partd_node || !host.partd_node->engine() || !host.partd.alive()) {
    const auto t = host.last_held.find(table);
    if (t == host.last_held.end()) return {};
    const auto k = t->second.find(key);
    return k == t->second.end() ? Version{} : k->second;
  }
  auto& engine = *host.partd_node->engine();
  const auto map = cluster_.maps.current(table);
  Version newest;
  for (const auto& tenure : engine.tenures()) {
    if (tenure.state != store::TenureState::live || tenure.table != map->table || !tenure.interval.contains(key))
      continue;
    const auto found = engine.get(tenure.id.partition, key);
    if (found && *found) newest = std::max(newest, (*found)->version);
  }
  return newest;
}

// A dead server still has on its disk what it had durable.
void Checks::dying(Host& host) {
  host.last_held.clear();
  auto* engine = host.partd_node ? host.partd_node->engine() : nullptr;
  if (!engine) return;
  for (const auto& tenure : engine->tenures()) {
    if (tenure.state != store::TenureState::live) continue;
    cluster_.scheduler.note(
        "died_with", host.id.name, to_string(tenure.id.assignment), engine->applied(tenure.id.partition)->lsn.value,
        engine->durable(tenure.id.partition)->lsn.value, engine->log_end(tenure.id.partition)->lsn.value);
    auto& keys = host.last_held[table_name(tenure.table)];
    for (auto& [key, stored] : content(*engine, tenure.id.partition)) keys[key] = std::max(keys[key], stored.version);
  }
}

Checks::Content Checks::content(store::Engine& engine, const model::PartitionId& partition) const {
  Content out;
  store::ScanRange range;
  range.tombstones = true;
  range.records_max = 100000;
  range.bytes_max = 1 << 30;
  const auto end = engine.scan(partition, range, [&](std::string_view key, const store::Found& found) {
    out[std::string(key)] = {found.deleted, found.version, std::string(found.value)};
    return true;
  });
  if (!end) cluster_.scheduler.note("scan_failed", to_string(end.error()));
  return out;
}

// Whether servers that could make up a read at majority all lack this version: then an acknowledged write can be
// missed.
std::string Checks::answers_lack(const MapPtr& map, const std::string& key, const Version& version) const {
  const model::Partition* p = map->find(key);
  std::set<uint32_t> slots, lacking;
  std::string who;
  for (const auto& a : p->assignments) {
    slots.insert(a.slot);
    Host* host = cluster_.find(a.server);
    if (!model::answers_reads(a.state) || model::given_up(*p, a.id) || !host || host->gone || host->wiped) continue;
    if (held(*host, map->name, key) >= version) continue;
    lacking.insert(a.slot);
    who += " " + a.server.name;
  }
  return lacking.size() >= majority(slots.size()) ? who : "";
}

void Checks::told(const Write& write) {
  if (write.told != Told::ok || write.level == model::Level::one || damage_) return;
  const MapPtr map = cluster_.maps.current(write.table);
  if (!map || map->dropped) return;
  for (const auto& key : write.keys) {
    size_t holders = 0;
    // One whose disk was taken away since the write was asked for may have had it.
    for (auto& [name, host] : cluster_.hosts)
      if (held(*host, write.table, key) >= write.version || host->wiped_at >= write.asked) ++holders;
    if (holders < majority(map->replicas))
      fail("write " + std::to_string(write.number) + " of " + key + " was acknowledged and is durable on " +
           std::to_string(holders) + " of " + std::to_string(map->replicas));
    if (const auto who = answers_lack(map, key, write.version); !who.empty())
      fail("write " + std::to_string(write.number) + " of " + key +
           " was acknowledged and a majority that answers reads lacks it:" + who);
  }
}

// S62: a torn tail, and whatever an older tail left behind it, is not damage.
void Checks::recovered(const Host& host, const store::RecoveryReport& report) {
  if (!damage_ && !report.damaged.empty())
    fail(host.id.name + " found its journal damaged in " + std::to_string(report.damaged.size()) +
         " places, and nothing damaged it");
}

// S43: filling begins when a majority of the parent's slots have observed the split.
void Checks::barrier_passed(const model::Metadata& after, const model::Partition& p) {
  std::set<uint32_t> slots, observed;
  for (const auto& a : p.assignments) {
    slots.insert(a.slot);
    const auto d = coord::distribution(model::Keyspace::range, after.name);
    const auto* text = cluster_.coord.value(cluster_.maps.layout().observed(d, a.server));
    const auto seen = text ? coord::parse_observed(*text) : base::fail(base::Code::not_found, "");
    if (seen && seen->txnseq >= p.split->since) observed.insert(a.slot);
  }
  if (observed.size() < majority(slots.size()))
    fail("the barrier of a split of region " + std::to_string(p.region.value) + " was passed when " +
         std::to_string(observed.size()) + " of " + std::to_string(slots.size()) + " slots had observed it");
}

// A merge ends when a majority of the slots have observed it.
void Checks::merge_barrier_passed(const model::Metadata& before, const model::Partition& target) {
  const auto* low = before.find(target.parent);
  if (low == nullptr || !low->merge) return fail("a merge ended that had not begun");
  const auto d = coord::distribution(model::Keyspace::range, before.name);
  size_t observed = 0;
  for (const auto& a : low->assignments) {
    const auto* text = cluster_.coord.value(cluster_.maps.layout().observed(d, a.server));
    const auto seen = text ? coord::parse_observed(*text) : base::fail(base::Code::not_found, "");
    if (seen && seen->txnseq >= low->merge->since) ++observed;
  }
  if (observed < majority(low->assignments.size()))
    fail("a merge of region " + std::to_string(low->region.value) + " ended when " + std::to_string(observed) + " of " +
         std::to_string(low->assignments.size()) + " slots had observed it");
}

// A child comes into being with a majority that answers reads.
void Checks::child_made(const model::Partition& p) {
  std::set<uint32_t> slots, answering;
  for (const auto& a : p.assignments) {
    slots.insert(a.slot);
    if (model::answers_reads(a.state)) answering.insert(a.slot);
  }
  if (answering.size() < majority(slots.size()))
    fail("region " + std::to_string(p.region.value) + " was made with " + std::to_string(answering.size()) + " of " +
         std::to_string(slots.size()) + " slots that answer reads");
}

void Checks::committed(const model::Metadata* before, const model::Metadata& after) {
  if (before && (after.txnseq.value != before->txnseq.value + 1 || after.prev_txnid != before->txnid))
    fail("the chain of " + after.name + " has a fork");
  if (after.dropped) return;
  for (const auto& p : after.partitions) {
    const auto* was = before ? before->find(p.id) : nullptr;
    if (!was && !p.parent.none()) child_made(p);
    if (!was && before && p.made_by_merge()) merge_barrier_passed(*before, p);
    if (was && p.split && was->split && p.split->phase != was->split->phase) barrier_passed(after, p);
  }
  if (damage_) return;
  const MapPtr map = cluster_.maps.current(after.name);
  for (const auto& [key, version] : history_.acknowledged())
    if (key.first == after.name)
      if (const auto who = answers_lack(map, key.second, version); !who.empty())
        return fail("at txnseq " + std::to_string(after.txnseq.value) + " of " + after.name +
                    " a majority that answers reads lacks acknowledged " + key.second + ":" + who);
}

void Checks::dropping(Host& host, const store::TenureId& id, const std::string& why) {
  if (why != "proved") return;
  auto& engine = *host.partd_node->engine();
  const auto tenure = engine.find(id);
  if (!tenure) return;
  const auto name = table_name(tenure->table);
  const MapPtr map = name.empty() ? nullptr : cluster_.maps.current(name);
  if (!map || map->dropped) return;
  // Only a live copy can be read through the engine; one aside is read from the index below it.
  Content records;
  if (tenure->state == store::TenureState::live) {
    records = content(engine, id.partition);
  } else {
    store::DirectReader reader(engine.index());
    store::ScanRange range;
    range.tombstones = true;
    range.records_max = 100000;
    range.bytes_max = 1 << 30;
    if (reader.refresh())
      (void)reader.scan(id, range, [&](std::string_view key, const store::Found& found) {
        if (tenure->interval.contains(key)) records[std::string(key)] = {found.deleted, found.version, ""};
        return true;
      });
  }
  for (const auto& [key, stored] : records) {
    const model::Partition* p = map->find(key);
    std::set<uint32_t> slots, holding;
    for (const auto& a : p->assignments) {
      slots.insert(a.slot);
      Host* other = cluster_.find(a.server);
      if (other && !other->gone && held(*other, name, key) >= stored.version) holding.insert(a.slot);
    }
    if (holding.size() < majority(slots.size()))
      return fail(host.id.name + " drops " + key + " of " + name + " though only " + std::to_string(holding.size()) +
                  " servers have it");
  }
}

void Checks::sweep() {
  for (auto& [name, host] : cluster_.hosts) {
    if (!host->partd.alive() || !host->partd_node || !host->partd_node->engine()) continue;
    auto& engine = *host->partd_node->engine();
    std::map<model::TableUuid, std::set<std::string>> seen;
    for (const auto& tenure : engine.tenures()) {
      const auto durable = engine.durable(tenure.id.partition), applied = engine.applied(tenure.id.partition);
      if (tenure.state != store::TenureState::live) continue;
      // A child's row says where its parent ended before it is in the index: nothing of its own is applied then.
      if (durable && applied && applied->lsn > durable->lsn && applied->lsn > tenure.log_start.lsn)
        fail(name + ": the index is past the durable journal: applied " + to_string(applied->lsn) + ", durable " +
             to_string(durable->lsn) + " of " + to_string(tenure.id.partition));
      const auto table = table_name(tenure.table);
      auto& newest = newest_[name][tenure.id.assignment];
      if (damaged(tenure)) newest.clear();
      for (const auto& [key, stored] : content(engine, tenure.id.partition)) {
        if (const auto why = history_.refute(table, key, stored.deleted, stored.version, stored.value); !why.empty())
          fail(name + ": " + why);
        if (!seen[tenure.table].insert(key).second) fail(name + " has two live copies of " + key);
        auto& before = newest[key];
        if (stored.version < before)
          fail(name + ": " + key + " went back from " + to_string(before) + " to " + to_string(stored.version));
        before = stored.version;
      }
      if (damaged(tenure)) continue;
      const auto now = content(engine, tenure.id.partition);
      if (cluster_.scheduler.tracing()) {
        std::string keys;
        for (const auto& [key, stored] : now) keys += key + " ";
        cluster_.scheduler.note("swept", name, to_string(tenure.id.assignment), keys);
      }
      for (const auto& [key, version] : newest)
        if (tenure.interval.contains(key) && !now.contains(key) && !damage_)
          fail(name + ": " + key + " at " + to_string(version) + " was there and is gone");
    }
  }
}

void Checks::end() {
  for (const auto& table : cluster_.maps.tables()) check_table(table);
  check_leftovers();
}

void Checks::check_table(const std::string& table) {
  const MapPtr map = cluster_.maps.current(table);
  if (map->dropped) return;
  std::map<std::string, Version> final_versions;
  for (const auto& p : map->partitions) {
    std::string first_name;
    Content first;
    for (const auto& a : p.assignments) {
      Host& host = cluster_.host(a.server.name);
      auto* engine = host.partd_node ? host.partd_node->engine() : nullptr;
      const auto tenure = engine ? engine->find(p.id) : std::nullopt;
      if (!tenure || tenure->id.assignment != a.id)
        return fail(a.server.name + " does not hold region " + std::to_string(p.region.value) + " of " + table +
                    " under its assignment");
      auto records = content(*engine, p.id);
      for (const auto& [key, stored] : records) {
        if (!p.interval.contains(key)) fail(a.server.name + ": " + key + " lies outside its partition");
        if (const auto why = history_.refute(table, key, stored.deleted, stored.version, stored.value); !why.empty())
          fail(a.server.name + ": " + why);
      }
      if (first_name.empty()) {
        first_name = a.server.name;
        first = std::move(records);
        continue;
      }
      for (const auto& [key, stored] : first)
        if (const auto it = records.find(key); it == records.end() || !(it->second == stored))
          return fail("replicas differ in " + key + ": " + first_name + " has " + to_string(stored.version) + ", " +
                      a.server.name + " has " + (it == records.end() ? "nothing" : to_string(it->second.version)));
      if (records.size() != first.size()) return fail(a.server.name + " has keys that " + first_name + " has not");
    }
    for (const auto& [key, stored] : first) final_versions[key] = stored.version;
  }
  for (const auto& [key, version] : history_.acknowledged())
    if (key.first == table && final_versions[key.second] < version)
      fail("acknowledged " + key.second + " is lost: " + to_string(version) + " was acknowledged, " +
           to_string(final_versions[key.second]) + " is there");
  if (damage_) return;
  for (const auto& [key, acks] : history_.acknowledged_one())
    for (const auto& ack : acks) {
      // By whom it was taken is in the version; a server that never came back may have been the only one to have it.
      const Host* by = cluster_.with_number(ack.version.server());
      if (key.first == table && by && !by->gone && final_versions[key.second] < ack.version)
        fail("acknowledged at one, " + key.second + " is lost: " + to_string(ack.version));
    }
}

void Checks::check_leftovers() {
  for (auto& [name, host] : cluster_.hosts) {
    if (host->gone || !host->partd_node || !host->partd_node->engine()) continue;
    for (const auto& tenure : host->partd_node->engine()->tenures()) {
      const auto table = table_name(tenure.table);
      const MapPtr map = table.empty() ? nullptr : cluster_.maps.current(table);
      const model::Partition* p = map ? map->find(tenure.id.partition) : nullptr;
      const bool assigned = p && model::find_assignment(*p, tenure.id.assignment);
      if (!assigned || tenure.state != store::TenureState::live)
        fail(name + " still has a copy of region " + std::to_string(tenure.region.value) + " of " + table +
             " that it should not have");
    }
  }
}

}  // namespace cantle::sim
