#include "test/sim/maps.h"

#include <algorithm>

#include "lib/base/check.h"
#include "lib/model/table_config.h"
#include "lib/model/validate.h"

namespace cantle::sim {

using base::Code;

MapService::MapService(Scheduler& scheduler, Network& network, CoordService& coord,
                       const std::vector<std::string>& hosts)
    : scheduler_(scheduler), network_(network), coord_(coord), hosts_(hosts) {
  for (const auto& path : layout_.skeleton()) coord_.put(path, "");
  for (const auto& host : hosts_) {
    processes_[host] = std::make_unique<Process>(scheduler_, host, "md");
    serve(*processes_[host]);
  }
}

void MapService::serve(Process& process) {
  network_.listen(process, [this, &process](const std::string&, const std::any& request, Network::Reply reply) {
    if (!coord_.reachable(process.host())) return reply(base::fail(Code::unavailable, "no coordination service"));
    if (const auto* ask = std::any_cast<MapAsk>(&request)) {
      const MapPtr map = current(ask->table);
      if (!map) return reply(base::fail(Code::no_such_table, ask->table));
      return reply(std::any(MapAnswer{map}));
    }
    if (const auto* ask = std::any_cast<ChangeAsk>(&request)) {
      auto done = change(*ask);
      if (!done) return reply(base::fail(done.error()));
      return reply(std::any(*done));
    }
    reply(base::fail(Code::invalid, "unknown method"));
  });
}

std::string MapService::hash_of(const model::Metadata& map) {
  return std::string(map.txnid.view()) + std::string(map.txnid.view());
}

std::string MapService::config_path(const coord::Layout& layout, const std::string& table) {
  return layout.config(coord::distribution(model::Keyspace::range, table));
}

MapPtr MapService::create_table(const std::string& name, std::vector<model::ops::NewPartition> partitions,
                                uint32_t replicas) {
  const auto d = coord::distribution(model::Keyspace::range, name);
  coord_.put(layout_.table(d), "");
  for (const auto& path : layout_.table_skeleton(d)) coord_.put(path, "");
  model::ops::CreateTable create;
  create.name = name;
  create.table = model::TableUuid::draw(scheduler_.random());
  create.replicas = replicas;
  create.partitions = std::move(partitions);
  ChangeAsk ask{name, model::ChangeId::draw(scheduler_.random()), {create}};
  const auto done = change(ask);
  CHECK(done.has_value());
  return current(name);
}

MapPtr MapService::current(const std::string& table) const {
  const auto it = current_.find(table);
  return it == current_.end() ? nullptr : it->second;
}

std::vector<std::string> MapService::tables() const {
  std::vector<std::string> names;
  for (auto& [name, map] : current_) names.push_back(name);
  return names;
}

std::string MapService::address(Process& asker) const { return hosts_[asker.random().below(hosts_.size())] + "/md"; }

base::Result<ChangeAnswer> MapService::change(const ChangeAsk& ask) {
  const MapPtr base = current(ask.table);
  if (base && std::find(base->changes.begin(), base->changes.end(), ask.change) != base->changes.end())
    return ChangeAnswer{base->txnseq, true};
  model::ApplyContext context{model::TxnId::draw(scheduler_.random()), ask.change, base ? hash_of(*base) : ""};
  auto next = model::apply(base.get(), ask.ops, context);
  if (!next) {
    scheduler_.note("md_refused", ask.table, next.error().text);
    return base::fail(next.error());
  }
  auto map = std::make_shared<const model::Metadata>(std::move(*next));
  const auto valid = model::validate(*map);
  CHECK(valid.has_value());
  current_[ask.table] = files_[ask.table][map->txnseq] = map;
  write_config(*map);
  scheduler_.note("md_commit", ask.table, map->txnseq.value, ask.ops.empty() ? "" : model::operation_name(ask.ops[0]));
  if (on_commit_) on_commit_(base.get(), *map);
  return ChangeAnswer{map->txnseq, false};
}

void MapService::go_back(const std::string& table, model::TxnSeq to) {
  current_[table] = files_.at(table).at(to);
  scheduler_.note("md_go_back", table, to.value);
  write_config(*current_[table]);
}

void MapService::write_config(const model::Metadata& map) {
  model::TableConfig config;
  config.table_uuid = map.table;
  config.replicas = map.replicas;
  for (const auto& host : hosts_) config.metadata_servers.push_back({host});
  model::set_current(config, map, hash_of(map));
  config.dropped = map.dropped;
  coord_.set_now(config_path(layout_, map.name), model::to_text(config));
}

}  // namespace cantle::sim
