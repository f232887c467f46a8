#include "cmd/zkctl/fsck.h"

#include <algorithm>
#include <iterator>

#include "cmd/zkctl/verbs.h"
#include "cmd/zkctl/world.h"
#include "lib/daemon/duration.h"

namespace cantle::zkctl {

namespace {
constexpr base::Duration kSecondLook = std::chrono::seconds(1);
}

base::Result<std::set<Finding>> Fsck::look() {
  findings_.clear();
  maps_.clear();
  attempts_.clear();
  checked_ = 0;
  TRY(check_cluster());
  TRY_ASSIGN(nodes_, tool_.nodes());
  TRY(check_nodes());
  TRY_ASSIGN(const auto tables, tool_.tables());
  std::set<std::string> names;
  for (const auto& table : tables) {
    if (!only_table_.empty() && table.name != only_table_) continue;
    if (!table.name.empty() && !names.insert(table.name).second)
      found("table " + table.name, "there are two of this name, in different keyspaces");
    TRY(check_table(table));
  }
  TRY(check_tasks());
  TRY(check_dropped());
  if (!offline_) check_servers();
  return findings_;
}

base::Result<int> fsck(Tool& tool, const FsckFlags& flags) {
  TRY_ASSIGN(const auto timeout, daemon::parse_duration(flags.timeout));
  TRY(tool.cluster());
  if (!flags.table.empty()) TRY(tool.table(flags.table));
  Fsck check(tool, flags.table, flags.offline, timeout);
  TRY_ASSIGN(auto findings, check.look());
  if (!findings.empty()) {
    tool.loop().run_for(kSecondLook, [] { return false; });
    TRY_ASSIGN(const auto again, check.look());
    std::set<Finding> both;
    std::set_intersection(findings.begin(), findings.end(), again.begin(), again.end(),
                          std::inserter(both, both.end()));
    findings = std::move(both);
  }
  if (findings.empty() && tool.format() == daemon::Format::table)
    daemon::print_line("clean: " + std::to_string(check.checked()) + " things looked at");
  if (findings.empty()) return daemon::kExitDone;
  daemon::Printer out(tool.format(), {"where", "finding"});
  for (const auto& f : findings) out.row({f.where, f.what});
  return daemon::kExitFindings;
}

}  // namespace cantle::zkctl
