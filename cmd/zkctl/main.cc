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
  WaitFlags wait;
  NodeFlags node;
  NodeDeadFlags dead;
  NodeReplaceFlags replace;
  QuorumShowFlags quorum_show;
  RecoverPlanFlags recover_plan;
  RecoverApplyFlags recover_apply;
  MdFlags join, leave;
  StatusFlags status;
  FsckFlags fsck;
  ExplainFlags explain;
};

void add_timeout(CLI::App* sub, std::string& timeout) {
  sub->add_option("--timeout", timeout, "How long to try (250ms, 5s, 2m)")->capture_default_str();
}

void add_znode_verbs(CLI::App& app, Verbs& verbs, AllFlags& f) {
  auto* init = verbs.add(&app, "init", "Make a new cluster in the coordination service", f.init, zkctl::init);
  init->add_flag("--if-missing", f.init.if_missing, "There may be one already");
  init->footer("example: zkctl init --coord file:///var/lib/cantle/coord");

  auto* tree = verbs.add(&app, "tree", "Show servers, tables and their regions, nested as they were split and merged",
                         f.tree, zkctl::tree);
  tree->add_option("table", f.tree.table, "Only this table");
  tree->add_flag("--all", f.tree.all, "Also the regions of splits and merges that were aborted");
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
  create
      ->add_option("--replication", f.create.replication,
                   "push, or quorum: a leader for each partition, an odd number of replicas, at most 7")
      ->capture_default_str();
  create->add_option("--replicas", f.create.replicas, "Copies of each partition")
      ->capture_default_str()
      ->check(CLI::Range(1, 9));
  create->add_option("--servers", f.create.servers,
                     "Where its partitions go: p1,p2,p3 (else: unused ones first, racks distinct)");
  create->add_option(
      "--points", f.create.points,
      "Several partitions: a file of the keys where one ends and the next begins, one a line, ascending");
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

void add_node_verbs(CLI::App& app, Verbs& verbs, AllFlags& f) {
  auto* node = app.add_subcommand("node", "Servers: list, show, dead, replace");
  node->require_subcommand(1);
  verbs.add(node, "list", "List the servers", f.none, zkctl::node_list)->footer("example: zkctl node list");

  auto* show = verbs.add(node, "show", "Show a server and what it holds", f.node, zkctl::node_show);
  show->add_option("id", f.node.id, "Server")->required();
  add_timeout(show, f.node.timeout);
  show->footer("example: zkctl node show p2");

  auto* dead =
      verbs.add(node, "dead", "A server will not come back: give its replicas new homes", f.dead, zkctl::node_dead);
  dead->add_option("id", f.dead.id, "Server")->required();
  dead->add_flag("--mark-only", f.dead.mark_only, "Only mark it, move nothing");
  dead->add_flag("--dry-run", f.dead.dry_run, "Only say what would move where");
  dead->add_flag("--force", f.dead.force, "Although it is registered");
  add_timeout(dead, f.dead.timeout);
  dead->footer("example: zkctl node dead p2");

  auto* replace = verbs.add(node, "replace", "Put one server in the place of another", f.replace, zkctl::node_replace);
  replace->add_option("old", f.replace.from, "The server whose replicas go; alive or not")->required();
  replace->add_option("new", f.replace.to, "The server that gets them")->required();
  replace->add_option("--table", f.replace.table, "Only of this table");
  replace->add_flag("--dry-run", f.replace.dry_run, "Only say what would move");
  replace->add_flag("--detach", f.replace.detach, "Begin, and leave the rest to the metadata servers");
  auto* back = replace->add_flag("--cancel", f.replace.cancel, "Back to what was, where it is under way and not final");
  replace->get_option("--detach")->excludes(back);
  replace->add_flag("--progress", f.replace.progress, "Say what it waits for, also where stderr is no terminal");
  replace->add_flag("--force", f.replace.force, "Also onto a server that is marked dead or drain");
  add_timeout(replace, f.replace.timeout);
  replace->footer("Ctrl-C detaches; zkctl wait op:ATTEMPT:done waits again.\nexample: zkctl node replace p2 p4");

  verbs.add(&app, "arrivals", "Show the log of arrivals and departures", f.none, zkctl::arrivals)
      ->footer("example: zkctl arrivals");
}

void add_quorum_verbs(CLI::App& app, Verbs& verbs, AllFlags& f) {
  auto* quorum = app.add_subcommand("quorum", "Partitions of quorum tables: show, recover");
  quorum->require_subcommand(1);
  const auto about = [](CLI::App* sub, std::string& table, std::string& partition, std::vector<std::string>& reports) {
    sub->add_option("table", table, "Table")->required();
    sub->add_option("partition", partition, "Partition's id, #REGION, or a key in it")->required();
    sub->add_option("--report", reports, "What partd report said of a server that does not run; any number of times");
  };
  auto* show = verbs.add(quorum, "show", "Say how far each replica's log goes, and who can elect", f.quorum_show,
                         zkctl::quorum_show);
  about(show, f.quorum_show.table, f.quorum_show.partition, f.quorum_show.reports);
  add_timeout(show, f.quorum_show.timeout);
  show->footer("example: zkctl quorum show orders '#1'");

  auto* recover = quorum->add_subcommand("recover", "Go on without a majority that is gone for good: plan, apply");
  recover->require_subcommand(1);
  auto* plan = verbs.add(recover, "plan", "Say what would be lost; the plan is written to stdout", f.recover_plan,
                         zkctl::recover_plan);
  about(plan, f.recover_plan.table, f.recover_plan.partition, f.recover_plan.reports);
  plan->add_option("--stay", f.recover_plan.stay, "The servers that vote from then on: p1,p4 (else: all that can)");
  add_timeout(plan, f.recover_plan.timeout);
  plan->footer("example: zkctl quorum recover plan orders '#1' --stay p1 >FILE");
  auto* apply = verbs.add(recover, "apply", "Do what a plan says, if nothing has changed since; again: wait for it",
                          f.recover_apply, zkctl::recover_apply);
  apply->add_option("file", f.recover_apply.file, "The plan; - for stdin")->required();
  apply->add_flag("--accept-loss", f.recover_apply.accept_loss,
                  "What the plan says is lost is lost, and that is meant");
  add_timeout(apply, f.recover_apply.timeout);
  apply->footer("example: zkctl quorum recover apply FILE --accept-loss");
}

void add_md_verbs(CLI::App& app, Verbs& verbs, AllFlags& f) {
  auto* md = app.add_subcommand("md", "Metadata servers: list, join, leave");
  md->require_subcommand(1);
  verbs.add(md, "list", "List the metadata servers and their tables", f.none, zkctl::md_list)
      ->footer("example: zkctl md list");

  auto* join = verbs.add(md, "join", "Have a metadata server keep a table's map too", f.join, zkctl::md_join);
  join->add_option("table", f.join.table, "Table")->required();
  join->add_option("server", f.join.server, "The server that joins")->required();
  add_timeout(join, f.join.timeout);
  join->footer("example: zkctl md join orders m4");

  auto* leave = verbs.add(md, "leave", "Have a metadata server no longer keep a table's map", f.leave, zkctl::md_leave);
  leave->add_option("table", f.leave.table, "Table")->required();
  leave->add_option("server", f.leave.server, "The server that leaves; alive or not")->required();
  add_timeout(leave, f.leave.timeout);
  leave->footer("example: zkctl md leave orders m1");
}

void add_checks(CLI::App& app, Verbs& verbs, AllFlags& f) {
  auto* wait = verbs.add(&app, "wait", "Wait until conditions hold", f.wait, zkctl::wait);
  wait->add_option("condition", f.wait.conditions, "KIND:NAME:STATE, see below")->required();
  add_timeout(wait, f.wait.timeout);
  wait->footer(
      "table:NAME:exists|gone|available|settled  node:ID:active|gone|ready|readwrite\n"
      "op:ATTEMPT:done  md:ID:current\n"
      "example: zkctl wait table:packages:settled node:p2:ready --timeout 2m");

  auto* status = verbs.add(&app, "status", "Show the cluster at a glance", f.status, zkctl::status);
  status->add_flag("-x", f.status.problems_only, "Only what is wrong; exit status 2 if anything is");
  add_timeout(status, f.status.timeout);
  status->footer("example: zkctl status -x || mail -s cantle operator");

  auto* fsck = verbs.add(&app, "fsck", "Look for contradictions; exit status 2: there are", f.fsck, zkctl::fsck);
  fsck->add_option("table", f.fsck.table, "Only this table");
  fsck->add_flag("--offline", f.fsck.offline, "Ask no partition server");
  add_timeout(fsck, f.fsck.timeout);
  fsck->footer("example: zkctl fsck");

  auto* explain =
      verbs.add(&app, "explain", "Say what state something is in, and what it waits for", f.explain, zkctl::explain);
  explain->add_option("what", f.explain.what, "PARTITION | ATTEMPT | TASK | SERVER | TABLE | TABLE KEY | TABLE #REGION")
      ->required()
      ->expected(1, 2);
  add_timeout(explain, f.explain.timeout);
  explain->footer("Keys are written with %XX for a byte. example: zkctl explain packages bash");
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Set up, inspect and repair a cantle cluster through its coordination service.");
  daemon::GlobalFlags global;
  global.log_level = "warn";  // what a person typed is answered, not logged
  daemon::add_global_flags(app, global);
  app.require_subcommand(1);  // exactly: a table that is called like a verb is an argument
  Tool tool(global);
  AllFlags flags;
  Verbs verbs(tool);
  add_znode_verbs(app, verbs, flags);
  add_table_verbs(app, verbs, flags);
  add_node_verbs(app, verbs, flags);
  add_quorum_verbs(app, verbs, flags);
  add_md_verbs(app, verbs, flags);
  add_checks(app, verbs, flags);
  return daemon::run(app, argc, argv, global, [&] { return verbs.run(); });
}
