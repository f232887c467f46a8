#include "lib/coord/layout.h"

#include <algorithm>

namespace cantle::coord {

using base::Code;
using base::fail;

std::string distribution(model::Keyspace keyspace, std::string_view table) {
  return (keyspace == model::Keyspace::range ? "1_" : "0_") + std::string(table);
}

base::Result<Distribution> parse_distribution(std::string_view name) {
  Distribution d;
  if (name.starts_with("1_"))
    d.keyspace = model::Keyspace::range;
  else if (name.starts_with("0_"))
    d.keyspace = model::Keyspace::hash;
  else
    return fail(Code::invalid, "no distribution name: " + std::string(name));
  d.table = name.substr(2);
  TRY(model::validate_table_name(d.table));
  return d;
}

base::Result<std::string> find_distribution(const std::vector<std::string>& names, std::string_view table) {
  for (const auto& name : names) {
    const auto parsed = parse_distribution(name);
    if (parsed && parsed->table == table) return name;
  }
  return fail(Code::no_such_table, "no table " + std::string(table));
}

std::vector<std::string> Layout::skeleton() const {
  return {root_, nodes(), active(), versions(), infos(), arrivals(), distributions(), tasks(), dropped()};
}

std::vector<std::string> Layout::table_skeleton(std::string_view d) const {
  return {table(d), nameprefixqueue(d), observed(d), bell(d), regions(d)};
}

base::Status validate_cluster_name(std::string_view name) {
  if (name == "zookeeper") return fail(Code::invalid, "cluster name: zookeeper is ZooKeeper's own");
  auto valid = model::validate_server_id(name);
  if (!valid) return fail(Code::invalid, "cluster name: [a-z0-9][a-z0-9_.-]{0,62}, not \"" + std::string(name) + "\"");
  return base::ok();
}

base::Result<uint32_t> sequence_of(std::string_view path) {
  constexpr size_t kDigits = 10;
  if (path.size() < kDigits) return fail(Code::invalid, "no sequence number: " + std::string(path));
  uint64_t n = 0;
  for (const char c : path.substr(path.size() - kDigits)) {
    if (c < '0' || c > '9') return fail(Code::invalid, "no sequence number: " + std::string(path));
    n = n * 10 + static_cast<uint64_t>(c - '0');
  }
  return static_cast<uint32_t>(n);
}

}  // namespace cantle::coord
