// init, ls, cat, set: the znodes as they are.
#include <algorithm>

#include "cmd/zkctl/verbs.h"
#include "lib/base/bytes.h"
#include "lib/base/log.h"
#include "lib/coord/path.h"
#include "lib/coord/settle.h"
#include "lib/daemon/json.h"

namespace cantle::zkctl {

using base::Code;
using base::fail;

base::Result<int> init(Tool& tool, const InitFlags& flags) {
  TRY_ASSIGN(auto* session, tool.coord(false));
  const auto& at = tool.at();
  const auto there = tool.cluster();
  if (there && flags.if_missing) return daemon::kExitDone;
  if (there)
    return fail(Code::exists, "there is a cluster " + tool.flags().cluster + " already, " + to_string(there->cluster));
  if (there.error().code != Code::not_found) return fail(there.error());
  for (const auto& path : at.skeleton()) {
    const auto made = session->settled_create(path, "");
    if (!made && made.error().code != Code::exists) return fail(made.error());
  }
  // Last: it is what makes a cluster. Two who try at once: one uuid wins.
  const coord::Format format{coord::kLayoutVersion, model::ClusterUuid::draw(tool.random())};
  const auto made = session->settled_create(at.format(), coord::format_text(format));
  if (!made && made.error().code == Code::exists && flags.if_missing) return daemon::kExitDone;
  if (!made) return fail(made.error());
  daemon::print_object(
      tool.format(),
      {{"cluster", tool.flags().cluster}, {"uuid", to_string(format.cluster)}, {"layout", format.layout}});
  return daemon::kExitDone;
}

namespace {

// A path that does not begin with '/' is below the cluster's root.
base::Result<std::string> path_of(Tool& tool, const std::string& word) {
  TRY(tool.coord());
  auto path = word.empty() ? tool.at().root() : word.front() == '/' ? word : coord::join_path(tool.at().root(), word);
  if (auto valid = coord::validate_path(path); !valid) return fail(Code::usage, valid.error().text);
  return path;
}

}  // namespace

namespace {

std::string session_text(uint64_t id) {
  std::string bytes;
  base::put_u64_be(bytes, id);
  return base::to_hex(bytes);
}

daemon::Cell owner_cell(uint64_t owner) {
  return owner ? daemon::Cell(session_text(owner)) : daemon::Cell(daemon::Missing{});
}

}  // namespace

base::Result<int> ls(Tool& tool, const PathFlags& flags) {
  TRY_ASSIGN(const auto path, path_of(tool, flags.path));
  TRY_ASSIGN(auto* session, tool.coord());
  TRY(session->sync("/"));
  TRY_ASSIGN(const auto names, session->children(path));
  daemon::Printer out(tool.format(), {"name", "bytes", "version", "changes", "owner"});
  for (const auto& name : names) {
    const auto node = session->get(coord::join_path(path, name));
    if (!node) continue;  // gone meanwhile
    out.row(
        {name, node->value.size(), node->stat.version, node->stat.cversion, owner_cell(node->stat.ephemeral_owner)});
  }
  return daemon::kExitDone;
}

base::Result<int> cat(Tool& tool, const PathFlags& flags) {
  const bool bare = flags.path.find('/') == std::string::npos;
  if (bare && tool.cluster() && tool.table(flags.path)) return cat_metadata(tool, flags.path);
  TRY_ASSIGN(const auto path, path_of(tool, flags.path));
  TRY_ASSIGN(auto* session, tool.coord());
  TRY(session->sync("/"));
  TRY_ASSIGN(const auto node, session->get(path));
  if (tool.format() == daemon::Format::json) {
    daemon::Json j;
    j.object().member("path", path).bytes("value", node.value).member("version", node.stat.version);
    j.member("changes", node.stat.cversion).member("created", node.stat.czxid).member("changed", node.stat.mzxid);
    j.key("owner");
    node.stat.ephemeral_owner ? j.text(session_text(node.stat.ephemeral_owner)) : j.null();
    daemon::print_line(j.end().str());
    return daemon::kExitDone;
  }
  auto text = node.value;
  if (!text.empty() && text.back() == '\n') text.pop_back();
  if (!text.empty()) daemon::print_line(text);
  return daemon::kExitDone;
}

namespace {

// What a daemon or a transaction owns: written by hand, it contradicts what they know.
bool is_owned(const coord::Layout& at, const std::string& path) {
  for (const auto& tree : {at.format(), at.distributions(), at.active(), at.versions(), at.arrivals(), at.dropped()})
    if (path == tree || path.starts_with(tree + "/")) return true;
  return path == at.root();
}

}  // namespace

base::Result<int> set(Tool& tool, const SetFlags& flags) {
  TRY_ASSIGN(const auto path, path_of(tool, flags.path));
  TRY_ASSIGN(const auto value, read_value(flags.value));
  if (is_owned(tool.at(), path) && !flags.force)
    return fail(daemon::unsafe(path + " belongs to the servers; a value written by hand may contradict what they know",
                               "--force"));
  TRY_ASSIGN(auto* session, tool.coord());
  TRY(session->sync("/"));
  const auto before = session->exists(path);
  if (!before && before.error().code != Code::not_found) return fail(before.error());
  if (!before && !flags.create) return fail(Code::not_found, "no znode " + path + " (--create makes it)");
  if (!before) {
    TRY(session->settled_create(path, value));
    return daemon::kExitDone;
  }
  // At the version that was read, unless one is given: never over somebody's newer value.
  TRY_ASSIGN(const auto stat,
             session->settled_set(path, value, flags.version == coord::kAnyVersion ? before->version : flags.version));
  daemon::print_object(tool.format(), {{"path", path}, {"version", stat.version}});
  return daemon::kExitDone;
}

}  // namespace cantle::zkctl
