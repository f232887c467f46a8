// zkctl: everything about the coordination service. Flags here, a verb a function (verbs.h).
#include <CLI/CLI.hpp>

#include "cmd/zkctl/verbs.h"

namespace {

using namespace cantle;
using namespace cantle::zkctl;

// The verbs, each with its flags and what runs it.
class Verbs {
 public:
  explicit Verbs(Tool& tool) : tool_(tool) {}

  template <class Flags>
  CLI::App* add(CLI::App* under, const char* name, const char* says, Flags& flags,
                base::Result<int> (*verb)(Tool&, const Flags&)) {
    auto* sub = under->add_subcommand(name, says);
    runs_.emplace_back(sub, [this, &flags, verb] { return verb(tool_, flags); });
    return sub;
  }
  base::Result<int> run() {
    for (auto& [sub, run] : runs_)
      if (sub->parsed()) return run();
    return base::fail(base::Code::usage, "a verb is required (zkctl --help)");
  }

 private:
  Tool& tool_;
  std::vector<std::pair<CLI::App*, std::function<base::Result<int>()>>> runs_;
};

struct AllFlags {
  NoFlags none;
  InitFlags init;
  TreeFlags tree;
  PathFlags ls, cat;
  SetFlags set;
  TableCreateFlags create;
  TableFlags show;
  TableSetFlags table_set;
  TableDropFlags drop;
};

void add_timeout(CLI::App* sub, std::string& timeout) {
  sub->add_option("--timeout", timeout, "How long to try (250ms, 5s, 2m)")->capture_default_str();
}

void add_znode_verbs(CLI::App& app, Verbs& verbs, AllFlags& f) {
  auto* init = verbs.add(&app, "init", "Make a new cluster in the coordination service", f.init, zkctl::init);
  init->add_flag("--if-missing", f.init.if_missing, "There may be one already");
  init->footer("example: zkctl init --coord file:///var/lib/cantle/coord");

  auto* tree =
      verbs.add(&app, "tree", "Show servers, tables and their regions, nested as they were split", f.tree, zkctl::tree);
  tree->add_option("table", f.tree.table, "Only this table");
  tree->add_flag("--raw", f.tree.raw, "The bare znodes with the beginning of their values");
  tree->footer("example: zkctl tree packages");

  auto* ls = verbs.add(&app, "ls", "List the znodes below a path", f.ls, zkctl::ls);
  ls->add_option("path", f.ls.path, "Begins with /, or is below the cluster's root");
  ls->footer("example: zkctl ls nodes/active");

  auto* cat = verbs.add(&app, "cat", "Show a znode, or the METADATA file of a table", f.cat, zkctl::cat);
  cat->add_option("path", f.cat.path, "A path as for ls, or the name of a table")->required();
  cat->footer("example: zkctl cat distribution/1_packages/config; zkctl cat packages");

  auto* set = verbs.add(&app, "set", "Write a znode, at the version that it has now", f.set, zkctl::set);
  set->add_option("path", f.set.path, "A path as for ls")->required();
  set->add_option("value", f.set.value, "Value; - for stdin")->required();
  set->add_option("--version", f.set.version, "Only if it has this version");
  set->add_flag("--create", f.set.create, "Make it if it is not there");
  set->add_flag("--force", f.set.force, "Also what belongs to the servers");
  set->footer("example: zkctl cat nodes/info/p1 | sed 's/^rack:.*/rack: r2/' | zkctl set nodes/info/p1 -");
}

void add_table_verbs(CLI::App& app, Verbs& verbs, AllFlags& f) {
  auto* table = app.add_subcommand("table", "Tables: create, list, show, set, drop");
  table->require_subcommand(1);
  auto* create = verbs.add(table, "create", "Make a table", f.create, zkctl::table_create);
  create->add_option("name", f.create.name, "[a-z][a-z0-9_-]{0,62}")->required();
  create->add_option("--keyspace", f.create.keyspace, "range")->capture_default_str();
  create->add_option("--replication", f.create.replication, "push")->capture_default_str();
  create->add_option("--replicas", f.create.replicas, "Copies of each partition")
      ->capture_default_str()
      ->check(CLI::Range(1, 9));
  create->add_option("--servers", f.create.servers,
                     "Where the first partition goes: p1,p2,p3 (else: unused ones first, racks distinct)");
  create->add_option("--metadata-servers", f.create.metadata_servers,
                     "Who keeps its map: m1,m2,m3 (else: all that live)");
  create->add_option("--option", f.create.options, "NAME=VALUE, any number of times");
  create->add_flag("--dry-run", f.create.dry_run, "Only say where it would go");
  create->add_flag("--no-wait", f.create.no_wait, "Do not wait until its servers serve it");
  add_timeout(create, f.create.timeout);
  create->footer("example: zkctl table create orders --keyspace range --replication push --replicas 3");

  verbs.add(table, "list", "List the tables", f.none, zkctl::table_list)->footer("example: zkctl table list -o name");

  auto* show = verbs.add(table, "show", "Show a table and its options", f.show, zkctl::table_show);
  show->add_option("name", f.show.name, "Table")->required();
  add_timeout(show, f.show.timeout);
  show->footer("example: zkctl table show orders --json");

  auto* set = verbs.add(table, "set", "Set an option of a table", f.table_set, zkctl::table_set);
  set->add_option("name", f.table_set.name, "Table")->required();
  set->add_option("option", f.table_set.option, "Option; zkctl table show lists them")->required();
  set->add_option("value", f.table_set.value, "Value");
  set->add_flag("--default", f.table_set.fallback, "Back to the default");
  add_timeout(set, f.table_set.timeout);
  set->footer("example: zkctl table set orders read_level majority");

  auto* drop = verbs.add(table, "drop", "Drop a table and all its records", f.drop, zkctl::table_drop);
  drop->add_option("name", f.drop.name, "Table")->required();
  drop->add_flag("--accept-loss", f.drop.accept_loss, "Its records are lost, and that is meant");
  add_timeout(drop, f.drop.timeout);
  drop->footer("example: zkctl table drop orders --accept-loss");
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Set up, inspect and repair a cantle cluster through its coordination service.");
  daemon::GlobalFlags global;
  daemon::add_global_flags(app, global);
  Tool tool(global);
  AllFlags flags;
  Verbs verbs(tool);
  add_znode_verbs(app, verbs, flags);
  add_table_verbs(app, verbs, flags);
  return daemon::run(app, argc, argv, global, [&] { return verbs.run(); });
}
