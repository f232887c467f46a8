// fsck of what the coordination service holds besides tables.
#include <algorithm>

#include "cmd/zkctl/fsck.h"
#include "lib/coord/path.h"

namespace cantle::zkctl {

using base::Code;
using model::ServerId;

base::Status Fsck::check_cluster() {
  TRY_ASSIGN(format_, tool_.cluster());
  TRY_ASSIGN(auto* session, tool_.coord());
  TRY(session->sync("/"));
  for (const auto& path : tool_.at().skeleton()) {
    checked_++;
    const auto there = session->exists(path);
    if (!there && there.error().code != Code::not_found) return base::fail(there.error());
    if (!there) found(path, "is missing (zkctl init makes it)");
  }
  TRY(check_unknown(tool_.at().root(), {"format", "nodes", "arrivals", "distribution", "tasks", "dropped"}));
  return check_unknown(tool_.at().nodes(), {"active", "version", "info"});
}

base::Status Fsck::check_unknown(const std::string& directory, const std::set<std::string>& known) {
  TRY_ASSIGN(auto* session, tool_.coord());
  TRY_ASSIGN(const auto names, session->children_or_none(directory));
  for (const auto& name : names)
    if (!known.contains(name)) found(coord::join_path(directory, name), "belongs to nothing that this version knows");
  return base::ok();
}

base::Status Fsck::check_nodes() {
  TRY_ASSIGN(auto* session, tool_.coord());
  const auto& at = tool_.at();
  const auto each = [&](const std::string& directory, bool ephemeral, auto parse) -> base::Status {
    TRY_ASSIGN(const auto names, session->children_or_none(directory));
    for (const auto& name : names) {
      checked_++;
      const auto path = coord::join_path(directory, name);
      const auto node = session->get(path);
      if (!node && node.error().code == Code::not_found) continue;
      if (!node) return base::fail(node.error());
      if (!model::validate_server_id(name)) found(path, "is no server's name");
      if (ephemeral != (node->stat.ephemeral_owner != 0))
        found(path, ephemeral ? "is not ephemeral: it outlives its server" : "is ephemeral");
      if (auto parsed = parse(node->value); !parsed) found(path, parsed.error().text);
    }
    return base::ok();
  };
  TRY(each(at.active(), true, coord::parse_active));
  TRY(each(at.versions(), true, coord::parse_version));
  TRY(each(at.infos(), false, coord::parse_info));

  TRY_ASSIGN(const auto events, values_under(*session, at.arrivals()));
  std::map<uint32_t, coord::Arrival> arrived;
  for (const auto& [name, text] : events) {
    checked_++;
    const auto number = coord::sequence_of(name);
    const auto event = coord::parse_arrival(text);
    if (!number || !event)
      found(at.arrivals() + "/" + name, "is no arrival");
    else
      arrived[*number] = *event;
  }
  std::map<uint32_t, ServerId> numbers;
  for (const auto& [id, node] : nodes_) {
    if (node.live() && !node.version) found(at.version(id), "is missing: its software's versions are not known");
    if (!node.info || node.info->number.value == 0) continue;
    const auto number = node.info->number.value;
    // Versions of records carry it: two servers of one number could stamp alike.
    if (const auto [it, fresh] = numbers.emplace(number, id); !fresh)
      found(at.info(id), "has server number " + std::to_string(number) + ", as " + it->second.name);
    const auto event = arrived.find(number);
    if (event == arrived.end() || event->second.server != id)
      found(at.info(id), "has server number " + std::to_string(number) + ", which no arrival of it has");
  }
  return base::ok();
}

base::Status Fsck::check_tasks() {
  TRY_ASSIGN(auto* session, tool_.coord());
  TRY_ASSIGN(const auto names, session->children_or_none(tool_.at().tasks()));
  for (const auto& name : names) {
    checked_++;
    const auto path = tool_.at().task(name);
    const auto node = session->get(path);
    if (!node) continue;
    if (node->stat.ephemeral_owner == 0) found(path, "is not ephemeral: nobody else can take the task");
    if (auto task = coord::parse_task(node->value); !task) found(path, task.error().text);
    if (only_table_.empty() && name.starts_with("op-") && !attempts_.contains(name.substr(3)))
      found(path, "drives an operation that no METADATA has");
  }
  return base::ok();
}

base::Status Fsck::check_dropped() {
  TRY_ASSIGN(auto* session, tool_.coord());
  TRY_ASSIGN(const auto dropped, values_under(*session, tool_.at().dropped()));
  TRY_ASSIGN(const auto tables, tool_.tables());
  for (const auto& [uuid, text] : dropped) {
    checked_++;
    const auto path = tool_.at().dropped() + "/" + uuid;
    if (!model::parse_id<model::TableUuid>(uuid)) found(path, "is no table's id");
    if (auto parsed = coord::parse_dropped(text); !parsed) found(path, parsed.error().text);
    for (const auto& t : tables)
      if (t.config && !t.config->dropped && to_string(t.config->table_uuid) == uuid)
        found(path, "table " + t.name + " was dropped and is there");
  }
  return base::ok();
}

}  // namespace cantle::zkctl
