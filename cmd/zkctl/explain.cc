// explain: in words, what state something is in, what it waits for, and for whom.
#include <algorithm>
#include <charconv>

#include "cmd/zkctl/reach.h"
#include "cmd/zkctl/ruling.h"
#include "cmd/zkctl/verbs.h"
#include "cmd/zkctl/world.h"
#include "lib/base/bytes.h"
#include "lib/coord/path.h"
#include "lib/daemon/duration.h"
#include "lib/daemon/json.h"
#include "lib/proto/merge_driver.h"
#include "lib/proto/split_driver.h"

namespace cantle::zkctl {

using base::Code;
using base::fail;
using model::ServerId;

namespace {

// The sentences, printed as lines, or as one JSON object.
class Story {
 public:
  Story(std::string kind, std::string id) : kind_(std::move(kind)), id_(std::move(id)) {}
  Story& say(std::string sentence) { return lines_.push_back(std::move(sentence)), *this; }
  int print(daemon::Format format) const {
    if (format == daemon::Format::json) {
      daemon::Json j;
      j.object().member("kind", kind_).member("id", id_).key("explanation").array();
      for (const auto& line : lines_) j.text(line);
      daemon::print_line(j.end().end().str());
    } else {
      for (const auto& line : lines_) daemon::print_line(line);
    }
    return daemon::kExitDone;
  }

 private:
  std::string kind_, id_;
  std::vector<std::string> lines_;
};

std::string what_state_allows(model::PartitionState state) {
  switch (state) {
    case model::PartitionState::creating: return "It is being created: neither read nor written yet.";
    case model::PartitionState::active: return "It is active.";
    case model::PartitionState::splitting: return "It is being split; until that is done it answers reads.";
    case model::PartitionState::merging: return "It is being merged with its neighbour.";
  }
  return "";
}

std::string what_assignment_means(model::AssignmentState state) {
  switch (state) {
    case model::AssignmentState::proposed:
      return "proposed: it takes writes, and is filled once every writer knows of it";
    case model::AssignmentState::initializing: return "initializing: it takes writes and is being filled";
    case model::AssignmentState::available: return "available: it has everything";
    case model::AssignmentState::leaving: return "leaving: replaced, it answers reads until the replacement is final";
  }
  return "";
}

std::string seconds(uint64_t ms) { return std::to_string(ms / 1000) + "." + std::to_string(ms % 1000 / 100) + " s"; }

// Who leads, since when, who is behind by how much, and what it waits for.
std::string replica_says(const model::StatusPartition& held) {
  const auto& q = *held.quorum;
  std::string text = held.role;
  if (held.role == "leader") {
    text += " of epoch " + to_string(q.epoch) + " for " + seconds(q.since_ms) + ", " + held.state;
    text += q.lease_ms > 0 ? ", with a lease of " + std::to_string(q.lease_ms) + " ms" : ", without a lease";
  } else if (!q.leader.name.empty()) {
    text += ", epoch " + to_string(q.epoch) + ": " + q.leader.name + " leads, and said how far the log is " +
            seconds(q.heard_ms) + " ago";
  } else {
    text += ", epoch " + to_string(q.epoch) + ": it knows of no leader, and " + q.doing;
  }
  if (held.role == "leader" && q.doing != "leads") text += "; it " + q.doing;
  if (held.state == "rebuilding")
    text += "; a snapshot is being pulled, as its log ends before what the leader can send";
  text += "; its log ends at LSN " + to_string(held.end.lsn) + ", committed is " + to_string(q.commit) +
          ", the index has applied " + to_string(held.applied);
  for (const auto& other : q.replicas) {
    text += "; " + other.server.name + " " + other.state;
    if (other.acked < held.end.lsn && other.state != "waiting" && other.state != "opening")
      text += ", " + std::to_string(held.end.lsn.value - other.acked.value) + " behind";
    if (!other.why.empty() && other.state != "joined") text += " (" + other.why + ")";
  }
  return text;
}

// What the server itself says of this tenure.
std::string server_says(const base::Result<model::StatusReply>& status, const model::Partition& p,
                        const model::Assignment& a) {
  std::string text = status->read_only.empty() ? "" : "read-only (" + status->read_only + "); ";
  for (const auto& t : status->tables)
    for (const auto& held : t.partitions) {
      if (held.id != p.id || held.assignment != a.id) continue;
      if (held.quorum) return text + replica_says(held);
      text += held.state + ", its log ends at LSN " + to_string(held.end.lsn) + ", the index has applied " +
              to_string(held.applied);
      if (t.observed.value) text += ", its writes under maps older than " + to_string(t.observed) + " have ended";
      return text;
    }
  return text + "it does not hold it yet";
}

// In a quorum table only the leader writes, and only voters count.
std::string what_replica_means(model::AssignmentState state) {
  switch (state) {
    case model::AssignmentState::proposed: return "proposed: it is about to be filled";
    case model::AssignmentState::initializing:
      return "initializing: the leader fills it, and gives it a vote when it has everything that is committed";
    case model::AssignmentState::available: return "available: it is to vote";
    case model::AssignmentState::leaving: return "leaving: another has its vote";
  }
  return "";
}

// A server that is away does nothing, whatever the map has it do: that comes first.
void tell_assignment(Story& story, const model::Metadata& map, const model::Partition& p, const model::Assignment& a,
                     const Nodes& nodes, const Partds& partds) {
  const std::string line = "  slot " + std::to_string(a.slot) + ": " + a.server.name + " ";
  const std::string since = ", since txnseq " + to_string(a.since);
  const auto away = [&](const std::string& how) {
    story.say(line + how + "; the map has it as " + std::string(name_of(a.state)) + since + ".");
  };
  const auto it = nodes.find(a.server);
  const auto said = partds.find(a.server);
  if (it != nodes.end() && it->second.info && it->second.info->dead && !it->second.live())
    away("is marked dead");
  else if (it == nodes.end() || !it->second.live())
    away("is down: not registered in the coordination service");
  else if (said == partds.end() || !said->second)
    away("does not answer" + (said == partds.end() ? "" : ": " + said->second.error().text));
  else
    story.say(
        line + "is " +
        (map.replication == model::Replication::quorum ? what_replica_means(a.state) : what_assignment_means(a.state)) +
        since + ". It says: " + server_says(said->second, p, a) + ".");
}

base::Status tell_government(Tool& tool, Story& story, const model::Metadata& map, model::Region region) {
  if (map.replication != model::Replication::quorum) return base::ok();
  TRY_ASSIGN(auto* session, tool.coord());
  const auto ruling = read_ruling(*session, tool.at(), coord::distribution(map.keyspace, map.name), region);
  for (auto& sentence : in_words(ruling)) story.say(std::move(sentence));
  return base::ok();
}

// Who has what others lack, and has nobody to bring it to them.
void tell_pushers(Story& story, const model::Partition& p, const Partds& partds) {
  for (const auto& a : p.assignments) {
    const auto said = partds.find(a.server);
    if (said == partds.end() || !said->second) continue;
    if (const auto text = pusher_trouble(*said->second); !text.empty())
      story.say("  Note: " + text + ": what others lack and " + a.server.name + " has is not brought to them.");
  }
}

void tell_operation(Story& story, const OpEntry& op, const proto::World& world) {
  story.say("A " + op.what + " " + op.detail + " is under way, attempt " + to_string(op.attempt) + ", phase " +
            op.phase + ", since txnseq " + to_string(op.since) + ".");
  story.say("  " + next_step(op, world) + ".");
  story.say(op.driver.empty()
                ? "  Nobody drives it now; the first live metadata server of the table takes it after 5 s."
                : "  It is driven by " + op.driver + ".");
}

void tell_child(Story& story, const char* name, const model::Partition& parent, const model::Child& child,
                const proto::World& world) {
  if (world.map->replication == model::Replication::quorum) {
    std::string line = std::string("  ") + name + " child, region " + to_string(child.region) + ": on";
    const auto has = proto::holders_of(parent, child, world);
    for (const auto& a : child.assignments)
      line += " " + a.server.name +
              (std::find(has.begin(), has.end(), a.id) != has.end() ? " (is known to have the cut)" : "");
    story.say(line + "; its log will go on from the parent's, behind the cut.");
    return;
  }
  const auto ready = proto::ready_of(parent, child, world);
  std::string line = std::string("  ") + name + " child, region " + to_string(child.region) + ":";
  for (const auto& a : child.assignments) {
    const bool is_ready = std::find(ready.begin(), ready.end(), a.id) != ready.end();
    line += " " + a.server.name +
            (a.source.none() ? " (to be filled, " + std::string(name_of(a.state)) + ")" : " (has it already)") +
            (is_ready ? " ready;" : " not ready;");
  }
  story.say(line.substr(0, line.size() - 1) + ".");
}

// What two are merged into.
void tell_target(Story& story, const model::Merge& merge, const proto::World& world) {
  std::string line = "  It will be region " + to_string(merge.target.region) + ":";
  const bool quorum = world.map->replication == model::Replication::quorum;
  const auto ready = quorum ? proto::holders_of_both(merge, world) : proto::observed_merge(merge, world);
  const std::string yes = quorum ? " has both cuts;" : " has observed the merge;";
  const std::string no = quorum ? " is not known to have both cuts;" : " has not observed the merge;";
  for (const auto& a : merge.target.assignments) {
    const bool has = std::find(ready.begin(), ready.end(), a.id) != ready.end();
    line += " " + a.server.name + (has ? yes : no);
  }
  story.say(line.substr(0, line.size() - 1) + ".");
}

void tell_what_it_makes(Story& story, const model::Partition& p, const proto::World& world) {
  if (p.split) tell_child(story, "low", p, p.split->low, world), tell_child(story, "high", p, p.split->high, world);
  if (p.merge) tell_target(story, *p.merge, world);
}

struct Found {
  MapPtr map;
  const model::Partition* partition = nullptr;
};

base::Result<int> tell_partition(Tool& tool, const Found& found, const std::string& about, base::Duration timeout) {
  const auto& p = *found.partition;
  TRY_ASSIGN(const auto nodes, tool.nodes());
  TRY_ASSIGN(const auto world, world_of(tool, found.map->name, timeout));
  const auto* now = world.map->find(p.id);  // the newest map may have ended it meanwhile
  if (!now) return fail(Code::conflict, "partition " + to_string(p.id) + " has just been split or merged: ask again");
  Story story("partition", to_string(p.id));
  if (!about.empty()) story.say(about);
  story.say("Partition " + to_string(now->id) + " is region " + to_string(now->region) + " of table " +
            found.map->name + " and holds " + to_string(now->interval) + ".");
  const auto partds = ask_partds(tool, nodes, timeout);
  const auto reach = reach_of(*world.map, *now, nodes, partds);
  story.say(in_words(reach));
  story.say(what_state_allows(now->state) + " Maps older than txnseq " + to_string(now->min_txnseq) +
            " are sent back.");
  for (const auto& a : now->assignments) tell_assignment(story, *world.map, *now, a, nodes, partds);
  story.say(std::to_string(reach.live) + " of " + std::to_string(reach.slots) + " replicas serve; a majority is " +
            std::to_string(reach.slots / 2 + 1) + ".");
  TRY(tell_government(tool, story, *world.map, now->region));
  tell_pushers(story, *now, partds);
  TRY_ASSIGN(const auto operations, all_operations(tool, timeout));
  for (const auto& op : operations)
    if (op.partition == now->id || (now->merge && now->merge->attempt == op.attempt)) tell_operation(story, op, world);
  tell_what_it_makes(story, *now, world);
  return story.print(tool.format());
}

// An attempt of which both partitions have ended, or are known of at least in part.
int tell_merged(Tool& tool, const model::Metadata& map, const model::EndedPartition& e) {
  std::string regions;
  for (const auto* x : model::find_merged(map, e.into))
    regions += (regions.empty() ? "" : " and ") + to_string(x->region);
  const auto* target = map.find(e.into);
  return Story("operation", to_string(e.attempt))
      .say("Attempt " + to_string(e.attempt) + " merged region " + regions + " of table " + map.name + " into " +
           (target ? "region " + to_string(target->region) : "partition " + to_string(e.into)) +
           "; it was finished in txnseq " + to_string(e.at) + ".")
      .say("It is remembered until every server that held the two has joined its copies.")
      .print(tool.format());
}

base::Result<int> tell_attempt(Tool& tool, const model::AttemptId& attempt, base::Duration timeout) {
  TRY_ASSIGN(const auto operations, all_operations(tool, timeout));
  for (const auto& op : operations) {
    if (op.attempt != attempt) continue;
    TRY_ASSIGN(const auto world, world_of(tool, op.table, timeout));
    Story story("operation", to_string(attempt));
    story.say("Attempt " + to_string(attempt) + " is a " + op.what + " of region " + to_string(op.region) +
              " of table " + op.table + ".");
    tell_operation(story, op, world);
    const auto* p = world.map->find(op.partition);
    if (p) tell_what_it_makes(story, *p, world);
    return story.print(tool.format());
  }
  TRY_ASSIGN(const auto maps, tool.maps(timeout));
  for (const auto& map : maps)
    for (const auto& e : map->ended) {
      if (e.attempt != attempt) continue;
      if (e.was_merged()) return tell_merged(tool, *map, e);
      return Story("operation", to_string(attempt))
          .say("Attempt " + to_string(attempt) + " split region " + to_string(e.region) + " of table " + map->name +
               " at \"" + base::escape(e.point) + "\"; it was finished in txnseq " + to_string(e.at) + ".")
          .say("It is remembered until every server that held the parent has divided its copy.")
          .print(tool.format());
    }
  return fail(Code::not_found, "nothing is known of " + to_string(attempt) +
                                   " now: no partition has this id, and no operation under it is under way");
}

// A partition that the map names no more: its region is remembered for as long as the table is there.
base::Result<std::optional<int>> tell_former(Tool& tool, const model::PartitionId& id) {
  TRY_ASSIGN(auto* session, tool.coord());
  TRY_ASSIGN(const auto tables, tool.tables());
  for (const auto& t : tables) {
    TRY_ASSIGN(const auto regions, values_under(*session, tool.at().regions(t.distribution)));
    for (const auto& [name, text] : regions) {
      const auto node = coord::parse_region(text);
      if (!node || node->partition != id) continue;
      Story story("partition", to_string(id));
      story.say("Partition " + to_string(id) + " was region " + name + " of table " + t.name + "; it is " +
                std::string(coord::region_state_name(node->state)) + ".");
      if (node->has_children)
        story.say("It was split at \"" + base::escape(node->split) + "\" into regions " + to_string(node->left) +
                  " and " + to_string(node->right) + ". zkctl tree " + t.name + " shows what became of them.");
      if (node->has_target && node->state == coord::RegionState::merged)
        story.say("It was merged into region " + to_string(node->into) + ". zkctl tree " + t.name +
                  " shows what became of that.");
      return std::optional(story.print(tool.format()));
    }
  }
  return std::optional<int>();
}

base::Result<int> tell_ended(Tool& tool, const model::Metadata& map, const model::EndedPartition& e) {
  Story story("partition", to_string(e.id));
  story.say("Partition " + to_string(e.id) + " was region " + to_string(e.region) + " of table " + map.name + ", " +
            to_string(e.interval) + ". It was " +
            (e.was_merged() ? "merged" : "split at \"" + base::escape(e.point) + "\"") + " in txnseq " +
            to_string(e.at) + ".");
  story.say(e.was_merged() ? "It is a part of partition " + to_string(e.into) + " now."
                           : "Its children are " + to_string(e.low) + " and " + to_string(e.high) + ".");
  std::vector<ServerId> waits;
  TRY_ASSIGN(const auto world, world_of(tool, map.name, std::chrono::seconds(5)));
  for (const auto& a : e.parent_assignments) {
    const auto it = world.observed.find(a.server);
    if (it == world.observed.end() || it->second < e.at) waits.push_back(a.server);
  }
  if (!waits.empty())
    story.say("It is remembered for " + join(waits, ", ") + ", which may still have to " +
              (e.was_merged() ? "join" : "divide") + " a copy of it.");
  return story.print(tool.format());
}

base::Result<int> tell_task(Tool& tool, const std::string& name, const coord::Node& node) {
  const auto task = coord::parse_task(node.value);
  Story story("task", name);
  if (!task)
    return story.say("Task " + name + " says nothing that can be read: " + task.error().text).print(tool.format());
  return story
      .say("Task " + name + (task->what.empty() ? "" : ", " + task->what) +
           (task->table.empty() ? "" : " of table " + task->table) + ", is held by " + task->driver + ".")
      .say("It is free again when that process lets go or its session ends.")
      .print(tool.format());
}

// It waits for what the replpush of its live partners brings: is there one beside each?
void tell_waiting(Tool& tool, Story& story, const model::StatusReply& status, base::Duration timeout) {
  std::vector<ServerId> from;
  std::vector<std::string> trouble;
  for (const auto& peer : status.peers) {
    if (!peer.live) continue;
    from.push_back(peer.server);
    const auto said = tool.status_of(peer.server, "", timeout);
    if (!said)
      trouble.push_back(peer.server.name + " does not answer");
    else if (const auto text = pusher_trouble(*said); !text.empty())
      trouble.push_back(text);
  }
  story.say("It is not ready: it waits until it has caught up with the live replicas" +
            (from.empty() ? "" : ", on " + join(from, ", ")) + ".");
  std::string text;
  for (const auto& t : trouble) text += (text.empty() ? "" : "; ") + t;
  if (!text.empty()) story.say("Nobody brings it what it lacks from there: " + text + ". Start replpush there.");
}

base::Result<int> tell_server(Tool& tool, const NodeEntry& node, base::Duration timeout) {
  Story story("server", node.id.name);
  const bool partd = (node.active ? node.active->role
                      : node.info ? node.info->role
                                  : coord::Role::partd) == coord::Role::partd;
  std::string line = node.id.name + " is a " + (partd ? "partition" : "metadata") + " server";
  if (!node.live()) {
    story.say(line + (node.info && node.info->dead ? ", marked dead."
                                                   : ". It is down: not registered in the coordination service."));
    return story.print(tool.format());
  }
  story.say(line + ", registered with incarnation " + to_string(node.active->incarnation) + ".");
  if (!partd) return story.print(tool.format());
  const auto status = tool.status_of(node.id, "", timeout);
  if (!status) return story.say("It does not answer: " + status.error().text + ".").print(tool.format());
  if (status->ready) story.say("It is ready.");
  if (!status->ready) tell_waiting(tool, story, *status, timeout);
  if (status->pusher == "attached") story.say("A replpush runs beside it.");
  if (const auto text = pusher_trouble(*status); !text.empty())
    story.say("Note: " + text + ": what others lack and it has is not brought to them. Start replpush there.");
  if (!status->read_only.empty()) story.say("It takes no writes: " + status->read_only + ".");
  for (const auto& t : status->tables)
    for (const auto& p : t.partitions)
      story.say("  " + t.name + ", region " + to_string(p.region) + ": " +
                (p.quorum ? replica_says(p) : p.role + ", " + p.state + ", log end " + to_string(p.end.lsn)) + ".");
  return story.print(tool.format());
}

// What works in all of the table, and where not everything does.
base::Status tell_reach(Tool& tool, Story& story, const model::Metadata& map, base::Duration timeout) {
  TRY_ASSIGN(const auto nodes, tool.nodes());
  const auto partds = ask_partds(tool, nodes, timeout);
  size_t whole = 0, none = 0;
  std::vector<std::string> lines;
  for (const auto& p : map.partitions) {
    const auto reach = reach_of(map, p, nodes, partds);
    whole += reach.reads == model::Level::all && reach.writes == model::Level::all;
    none += reach.none();
    if (!reach.why.empty())
      lines.push_back("  region " + to_string(p.region) + " " + to_string(p.interval) + ": " + in_words(reach));
  }
  const auto count = map.partitions.size();
  story.say(whole == count  ? "All of it can be read and written at every level."
            : none == count ? "It is unavailable: none of it can be read or written."
            : none > 0      ? std::to_string(none) + " of its partitions are unavailable:"
                            : "Not everything works in " + std::to_string(count - whole) + " of its partitions:");
  for (auto& line : lines) story.say(std::move(line));
  return base::ok();
}

base::Result<int> tell_table(Tool& tool, const std::string& name, base::Duration timeout) {
  TRY_ASSIGN(const auto table, tool.table(name));
  Story story("table", name);
  if (table.config->dropped)
    return story
        .say("Table " + name + " was dropped in txnseq " + to_string(table.config->metadata_txnseq) +
             "; its servers are letting go of it.")
        .print(tool.format());
  TRY_ASSIGN(const auto world, world_of(tool, name, timeout));
  story.say("Table " + name + " has " + std::to_string(world.map->partitions.size()) + " partitions of " +
            std::to_string(world.map->replicas) + " replicas, at txnseq " + to_string(world.map->txnseq) + ".");
  TRY(tell_reach(tool, story, *world.map, timeout));
  TRY_ASSIGN(const auto operations, all_operations(tool, timeout));
  bool any = false;
  for (const auto& op : operations)
    if (op.table == name) tell_operation(story.say("Region " + to_string(op.region) + ":"), op, world), any = true;
  if (!any) story.say("No split, no merge and no replacement is under way in it.");
  return story.print(tool.format());
}

// One word: whatever it names.
base::Result<int> explain_word(Tool& tool, std::string word, base::Duration timeout) {
  TRY_ASSIGN(auto* session, tool.coord());
  if (word.starts_with("op-") && word.size() == 35) word = word.substr(3);
  if (word.size() == 32) {
    if (const auto id = model::parse_id<model::PartitionId>(word)) {
      TRY_ASSIGN(const auto maps, tool.maps(timeout));
      for (const auto& map : maps) {
        if (const auto* p = map->find(*id)) return tell_partition(tool, {map, p}, "", timeout);
        for (const auto& e : map->ended)
          if (e.id == *id) return tell_ended(tool, *map, e);
      }
      TRY_ASSIGN(const auto former, tell_former(tool, *id));
      if (former) return *former;
      model::AttemptId attempt;
      attempt.bytes = id->bytes;
      return tell_attempt(tool, attempt, timeout);
    }
  }
  if (const auto task = session->get(tool.at().task(word))) return tell_task(tool, word, *task);
  TRY_ASSIGN(const auto nodes, tool.nodes());
  if (const auto it = nodes.find(ServerId{word}); it != nodes.end()) return tell_server(tool, it->second, timeout);
  const auto told = tell_table(tool, word, timeout);
  if (!told && told.error().code == Code::no_such_table)
    return fail(Code::not_found, word + " names no partition, operation, task, server or table");
  return told;
}

base::Result<int> explain_in_table(Tool& tool, const std::string& table, const std::string& word,
                                   base::Duration timeout) {
  TRY_ASSIGN(const auto map, tool.map(table, timeout));
  if (map->dropped) return fail(Code::no_such_table, "table " + table + " was dropped");
  uint32_t number = 0;
  const auto digits = word.starts_with('#') ? std::string_view(word).substr(1) : std::string_view();
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (!digits.empty() && error == std::errc{} && end == digits.data() + digits.size()) {
    if (const auto* p = map->partitions.get(model::Region{number})) return tell_partition(tool, {map, p}, "", timeout);
    for (const auto& e : map->ended)
      if (e.region.value == number) return tell_ended(tool, *map, e);
    return fail(Code::not_found, "table " + table + " has no region " + word);
  }
  auto key = base::unescape(word);
  if (!key) return fail(Code::usage, "key '" + word + "': " + key.error().text);
  const auto* p = map->find(*key);
  if (!p) return fail(Code::corrupt, "the map has no partition for the key");
  // A number is a key as well as any other word.
  const bool number_too =
      !word.empty() && std::all_of(word.begin(), word.end(), [](char c) { return c >= '0' && c <= '9'; });
  return tell_partition(tool, {map, p},
                        "Key \"" + base::escape(*key) + "\" of table " + table +
                            (number_too ? " (region " + word + " is written #" + word + "):" : ":"),
                        timeout);
}

}  // namespace

base::Result<int> explain(Tool& tool, const ExplainFlags& flags) {
  TRY_ASSIGN(const auto timeout, daemon::parse_duration(flags.timeout));
  TRY(tool.cluster());
  if (flags.what.size() == 2) return explain_in_table(tool, flags.what[0], flags.what[1], timeout);
  return explain_word(tool, flags.what[0], timeout);
}

}  // namespace cantle::zkctl
