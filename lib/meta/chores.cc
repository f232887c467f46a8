#include "lib/meta/chores.h"

#include <algorithm>

#include "lib/base/log.h"
#include "lib/meta/config_ops.h"

namespace cantle::meta {

Chores::Table* Chores::find(const std::string& name) {
  const auto it = tables_.find(name);
  return it != tables_.end() ? &it->second : nullptr;
}

std::map<std::string, std::string> Chores::driving(const std::string& name) const {
  std::map<std::string, std::string> out;
  const auto it = tables_.find(name);
  if (it == tables_.end()) return out;
  for (const auto& [attempt, op] : it->second.operations)
    if (op.runner) out[to_string(attempt)] = op.runner->waiting();
  return out;
}

void Chores::tick(TableAgent& agent) {
  auto& table = tables_[agent.name()];
  table.agent = &agent;
  for (auto& [attempt, op] : table.operations) {
    if (!op.runner) continue;
    // Who has left the list follows the map no longer, and must not keep the task from those who do.
    if (agent.config() != nullptr && !model::is_member(*agent.config(), host_.self())) op.runner->stop();
    op.runner->tick();
    if (op.runner->ended()) {
      op.runner.reset();
      op.alone = false;
      maybe_ours(op);
    }
  }
  if (!host_.session().connected()) return;
  const auto* file = agent.current();
  const auto map = file != nullptr ? file->map : nullptr;
  if (now() >= table.next_drive) {
    table.next_drive = now() + kDriveEvery;
    give_back(agent, table);
    if (map != nullptr) drive(agent, table, *map);
  }
  const bool first = agent.first_live_member();
  if (map == nullptr || !first) return;
  if (map->dropped) return remove_dropped(agent, table, map);
  if (now() >= table.next_sweep) {
    table.next_sweep = now() + kSweepEndedEvery;
    if (!map->ended.empty()) sweep_ended(agent, table, *map);
  }
  if (agent.config() != nullptr && agent.config()->regions_behind) reconcile(agent, table, map);
  if (now() >= table.next_regions) {
    table.next_regions = now() + kRegionsEvery;
    sweep_regions(agent, table, map);
  }
  if (now() >= table.next_rings) {
    table.next_rings = now() + kRingsKept;
    sweep_rings(agent, table);
  }
}

// --- driving ----------------------------------------------------------------------------------------------

void Chores::maybe_ours(Watched& op) { op.maybe_ours_until = now() + kMaybeOurs + host_.session().timeout(); }

// Whatever became of our place in the list, and of our map: the task is our session's.
void Chores::give_back(TableAgent& agent, Table& table) {
  for (auto& [attempt, op] : table.operations)
    if (now() < op.maybe_ours_until && !op.runner && !op.asking) look_for_task(agent, table, attempt);
}

void Chores::drive(TableAgent& agent, Table& table, const model::Metadata& map) {
  const auto now_there = proto::operations_of(map);
  for (auto& [attempt, op] : table.operations) op.in_metadata = now_there.contains(attempt);
  std::erase_if(table.operations, [at = now()](const auto& entry) {
    const auto& op = entry.second;
    return !op.in_metadata && !op.runner && op.maybe_ours_until <= at;
  });
  if (!agent.first_live_member()) return;
  for (const auto& [attempt, kind] : now_there) {
    if (table.operations.size() >= kDrivenAtOnce && !table.operations.contains(attempt)) break;
    auto& op = table.operations[attempt];
    op.kind = kind;
    if (!op.runner && !op.asking) look_for_task(agent, table, attempt);
  }
}

void Chores::look_for_task(TableAgent& agent, Table& table, const model::AttemptId& attempt) {
  table.operations[attempt].asking = true;
  host_.session().exists(
      host_.layout().op_task(attempt), nullptr,
      [this, alive = std::weak_ptr<bool>(alive_), name = agent.name(), attempt](base::Result<coord::Stat> there) {
        if (!alive.lock()) return;
        auto* t = find(name);
        if (t == nullptr) return;
        const auto it = t->operations.find(attempt);
        if (it == t->operations.end()) return;
        auto& op = it->second;
        op.asking = false;
        // Our own, though nothing drives under it: an answer was lost. Give it back, and take it properly.
        if (there && there->ephemeral_owner == host_.session().session_id() && !op.runner) {
          maybe_ours(op);
          host_.session().remove(host_.layout().op_task(attempt), coord::kAnyVersion,
                                 [](base::Result<base::Nothing>) {});
          return;
        }
        if (there || there.error().code != base::Code::not_found || !op.in_metadata || t->agent->current() == nullptr ||
            !t->agent->first_live_member()) {
          op.alone = false;
          return;
        }
        if (!op.alone) {
          op.alone = true;
          op.alone_since = now();
        }
        if (now() - op.alone_since < kUndrivenFor) return;
        op.runner = std::make_unique<OpRunner>(host_, *t->agent, attempt, op.kind);
        op.runner->start();
      });
}

// --- ended partitions ---------------------------------------------------------------------------------------

void Chores::sweep_ended(TableAgent& agent, Table& table, const model::Metadata&) {
  if (table.sweeping) return;
  table.sweeping = true;
  read_observed(host_, agent.distribution(),
                [this, alive = std::weak_ptr<bool>(alive_),
                 name = agent.name()](base::Result<std::map<model::ServerId, model::TxnSeq>> observed) {
                  if (!alive.lock()) return;
                  auto* t = find(name);
                  if (t == nullptr) return;
                  t->sweeping = false;
                  auto& its = *t->agent;
                  const auto* file = its.current();
                  if (!observed || file == nullptr) return;
                  std::vector<model::Operation> ops;
                  for (const auto& e : file->map->ended) {
                    const bool all = std::all_of(e.parent_assignments.begin(), e.parent_assignments.end(),
                                                 [&](const model::Assignment& a) {
                                                   const auto it = observed->find(a.server);
                                                   return it != observed->end() && it->second >= e.at;
                                                 });
                    if (all && !model::being_filled(*file->map, e.interval) && ops.size() < model::kOperationsMax)
                      ops.push_back(model::ops::SweepEnded{e.id, e.attempt});
                  }
                  if (ops.empty()) return;
                  model::MdChange request;
                  request.table = name;
                  request.change = model::ChangeId::draw(host_.random());
                  request.ops = wire::encode_operations(ops);
                  t->sweeping = true;
                  its.change(request, [this, alive, name](base::Result<model::MdChangeReply>) {
                    if (!alive.lock()) return;
                    if (auto* again = find(name)) again->sweeping = false;
                  });
                });
}

// --- region nodes -------------------------------------------------------------------------------------------

void Chores::reconcile(TableAgent& agent, Table& table, std::shared_ptr<const model::Metadata> map) {
  if (table.reconciling) return;
  table.reconciling = true;
  const auto finish = [this, name = agent.name()] {
    if (auto* t = find(name)) t->reconciling = false;
  };
  host_.session().children(host_.layout().regions(agent.distribution()), nullptr,
                           [this, alive = std::weak_ptr<bool>(alive_), name = agent.name(), map,
                            finish](base::Result<coord::Children> names) {
                             if (!alive.lock()) return;
                             if (!names || find(name) == nullptr) return finish();
                             const auto writing = std::make_shared<Writing>();
                             writing->map = map;
                             for (auto& [region, node] : region_nodes(*map)) writing->nodes.emplace_back(region, node);
                             writing->there = {names->names.begin(), names->names.end()};
                             writing->writer = find(name)->agent->writer_token();
                             write_regions(name, writing, 0, kRegionsAtOnce,
                                           [this, alive, name, map, finish](bool done) {
                                             if (!alive.lock() || find(name) == nullptr) return;
                                             auto& its = *find(name)->agent;
                                             const auto* file = its.current();
                                             // Only if it is still this map that they follow.
                                             if (!done || file == nullptr || file->map->txnid != map->txnid)
                                               return finish();
                                             its.edit_config([](model::TableConfig& c) { c.regions_behind = false; },
                                                             [finish](base::Status) { finish(); });
                                           });
                           });
}

// In several multis; one that fails is halved, so that one conflict costs one region.
void Chores::write_regions(const std::string& name, std::shared_ptr<Writing> writing, size_t at, size_t batch,
                           std::function<void(bool)> done) {
  if (at >= writing->nodes.size()) return done(true);
  std::vector<coord::Op> ops;
  const auto& d = find(name)->agent->distribution();
  const size_t end = std::min(writing->nodes.size(), at + batch);
  for (size_t i = at; i < end; i++) {
    const auto& [region, node] = writing->nodes[i];
    append_region(ops, host_.layout(), d, *writing->map, region, node, writing->there.contains(to_string(region)),
                  writing->writer);
  }
  host_.session().multi(std::move(ops), [this, alive = std::weak_ptr<bool>(alive_), name, writing, at, batch, end,
                                         done = std::move(done)](base::Result<std::vector<coord::OpResult>> result) {
    if (!alive.lock() || find(name) == nullptr) return;
    if (result) return write_regions(name, writing, end, batch, done);
    const bool ours = result.error().code == base::Code::exists || result.error().code == base::Code::not_found;
    if (!ours) return done(false);
    if (batch > 1) return write_regions(name, writing, at, batch / 2, done);
    const auto region = to_string(writing->nodes[at].first);
    if (!writing->there.erase(region)) writing->there.insert(region);
    write_regions(name, writing, at, batch, done);
  });
}

void Chores::sweep_regions(TableAgent& agent, Table& table, std::shared_ptr<const model::Metadata> map) {
  if (table.listing) return;
  table.listing = true;
  host_.session().children(
      host_.layout().regions(agent.distribution()), nullptr,
      [this, alive = std::weak_ptr<bool>(alive_), name = agent.name(), map](base::Result<coord::Children> names) {
        if (!alive.lock()) return;
        auto* t = find(name);
        if (t == nullptr) return;
        t->listing = false;
        if (!names) return;
        const auto& d = t->agent->distribution();
        const auto used = region_nodes(*map);
        std::map<model::Region, base::Instant> unused;
        size_t removed = 0;
        for (const auto& text : names->names) {
          const model::Region region{static_cast<uint32_t>(std::strtoul(text.c_str(), nullptr, 10))};
          if (to_string(region) != text || used.contains(region) || region >= map->next_region) continue;
          const auto it = t->unused_since.find(region);
          const auto since = it != t->unused_since.end() ? it->second : now();
          if (now() - since >= kRegionsKept && removed < kRegionsRemovedAtOnce) {
            removed++;
            remove_tree(host_.layout().region(d, region), [](base::Status) {});
          } else {
            unused[region] = since;
          }
        }
        t->unused_since = std::move(unused);
      });
}

void Chores::remove_tree(const std::string& path, std::function<void(base::Status)> done) {
  const std::weak_ptr<bool> alive = alive_;
  host_.session().children(
      path, nullptr, [this, alive, path, done = std::move(done)](base::Result<coord::Children> names) {
        if (!alive.lock()) return;
        if (!names && names.error().code == base::Code::not_found) return done(base::ok());
        if (!names) return done(base::fail(std::move(names).error()));
        const auto remove_self = [this, alive, path, done] {
          host_.session().remove(path, coord::kAnyVersion, [alive, done](base::Result<base::Nothing> removed) {
            if (!alive.lock()) return;
            if (!removed && removed.error().code != base::Code::not_found)
              return done(base::fail(std::move(removed).error()));
            done(base::ok());
          });
        };
        if (names->names.empty()) return remove_self();
        auto left = std::make_shared<size_t>(names->names.size());
        auto status = std::make_shared<base::Status>(base::ok());
        for (const auto& child : names->names)
          remove_tree(path + "/" + child, [left, status, remove_self, done](base::Status one) {
            if (!one) *status = std::move(one);
            if (--*left != 0) return;
            if (*status)
              remove_self();
            else
              done(*status);
          });
      });
}

// --- the bell -------------------------------------------------------------------------------------

// Rings are in order: what was there a look ago is old. All of them in one multi, as each one that goes wakes whoever
// watches the bell.
void Chores::sweep_rings(TableAgent& agent, Table& table) {
  if (table.hearing) return;
  table.hearing = true;
  const auto bell = host_.layout().bell(agent.distribution());
  host_.session().children(
      bell, nullptr,
      [this, alive = std::weak_ptr<bool>(alive_), name = agent.name(), bell](base::Result<coord::Children> rings) {
        if (!alive.lock()) return;
        auto* t = find(name);
        if (t == nullptr) return;
        t->hearing = false;
        if (!rings) return;
        std::vector<coord::Op> old;
        for (const auto& ring : rings->names)
          if (ring <= t->heard && old.size() < kRingsRemovedAtOnce)
            old.emplace_back(coord::OpRemove{bell + "/" + ring});
        if (old.size() == kRingsRemovedAtOnce)
          t->next_rings = now();  // there may be more that are as old
        else
          t->heard = rings->names.empty() ? std::string() : rings->names.back();
        // Another one that sweeps, too: the next look finds what is left.
        if (!old.empty()) host_.session().multi(std::move(old), [](base::Result<std::vector<coord::OpResult>>) {});
      });
}

// --- dropped tables -----------------------------------------------------------------------------------------

void Chores::remove_dropped(TableAgent& agent, Table& table, std::shared_ptr<const model::Metadata> map) {
  if (table.removing || now() < table.next_sweep) return;
  table.next_sweep = now() + kSweepEndedEvery;
  table.removing = true;
  read_observed(host_, agent.distribution(),
                [this, alive = std::weak_ptr<bool>(alive_), name = agent.name(),
                 map](base::Result<std::map<model::ServerId, model::TxnSeq>> observed) {
                  if (!alive.lock()) return;
                  auto* t = find(name);
                  if (t == nullptr) return;
                  t->removing = false;
                  if (!observed) return;
                  const auto& infos = host_.nodes().infos;
                  std::set<model::ServerId> assigned;
                  for (const auto& p : map->partitions)
                    for (const auto& a : p.assignments) assigned.insert(a.server);
                  for (const auto& server : assigned) {
                    const auto info = infos.find(server);
                    if (info != infos.end() && info->second.dead) continue;
                    const auto it = observed->find(server);
                    if (it == observed->end() || it->second < map->txnseq)
                      return;  // it has not put its copies aside yet
                  }
                  t->removing = true;
                  base::log(base::Level::notice, "table-removed", {{"table", name}, {"uuid", to_string(map->table)}});
                  remove_table(*t->agent);
                });
}

// TableConfig goes when all else is gone: as long as it stands nobody makes a table of this name, so that nothing of
// the next one is removed for this one's, and nothing of this one, an old government say, is taken for the next one's.
// Until then `observed` stays, too: whoever goes on with a removal that was cut short asks it again.
void Chores::remove_table(TableAgent& agent) {
  const auto finish = [this, alive = std::weak_ptr<bool>(alive_), name = agent.name()] {
    if (!alive.lock()) return;
    if (auto* t = find(name)) t->removing = false;
  };
  const auto& d = agent.distribution();
  const auto path = host_.layout().table(d);
  const std::set<std::string> last{host_.layout().config(d), host_.layout().observed(d)};
  host_.session().children(
      path, nullptr,
      [this, alive = std::weak_ptr<bool>(alive_), d, path, last, finish](base::Result<coord::Children> names) {
        if (!alive.lock()) return;
        if (!names) return finish();
        auto left = std::make_shared<size_t>(1);
        auto status = std::make_shared<base::Status>(base::ok());
        const auto one_less = [this, left, status, d, finish](base::Status one) {
          if (!one) *status = std::move(one);
          if (--*left != 0) return;
          // What is still there, another vote say, goes in the next round.
          *status ? remove_last(d, finish) : finish();
        };
        for (const auto& name : names->names) {
          if (last.contains(path + "/" + name)) continue;
          ++*left;
          remove_tree(path + "/" + name, one_less);
        }
        one_less(base::ok());
      });
}

// All at once. /dropped/<uuid> came with the transaction, and stays.
void Chores::remove_last(const std::string& d, std::function<void()> done) {
  const auto& at = host_.layout();
  host_.session().children(
      at.observed(d), nullptr,
      [this, alive = std::weak_ptr<bool>(alive_), d, done = std::move(done)](base::Result<coord::Children> servers) {
        if (!alive.lock()) return;
        if (!servers) return done();
        std::vector<coord::Op> ops;
        const auto& layout = host_.layout();
        for (const auto& server : servers->names)
          ops.emplace_back(coord::OpRemove{layout.observed(d, model::ServerId{server})});
        for (const auto& last : {layout.observed(d), layout.config(d), layout.table(d)})
          ops.emplace_back(coord::OpRemove{last});
        host_.session().multi(std::move(ops), [done](base::Result<std::vector<coord::OpResult>>) { done(); });
      });
}

}  // namespace cantle::meta
