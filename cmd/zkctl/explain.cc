// explain: in words, what state something is in, what it waits for, and for whom.
#include <algorithm>
#include <charconv>

#include "cmd/zkctl/verbs.h"
#include "cmd/zkctl/world.h"
#include "lib/base/bytes.h"
#include "lib/coord/path.h"
#include "lib/daemon/duration.h"
#include "lib/daemon/json.h"
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
    case model::PartitionState::active: return "It is active: read and written.";
    case model::PartitionState::splitting:
      return "It is being split: it answers reads, and writes go to it and to its children.";
    case model::PartitionState::merging: return "It is being merged: it answers reads and takes writes.";
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

// What the server itself says of this tenure.
std::string server_says(Tool& tool, const std::string& table, const model::Partition& p, const model::Assignment& a,
                        base::Duration timeout) {
  const auto status = tool.status_of(a.server, table, timeout);
  if (!status) return "it does not answer: " + status.error().text;
  std::string text = status->read_only.empty() ? "" : "read-only (" + status->read_only + "); ";
  for (const auto& t : status->tables)
    for (const auto& held : t.partitions) {
      if (held.id != p.id || held.assignment != a.id) continue;
      text += held.state + ", its log ends at LSN " + to_string(held.end.lsn) + ", the index has applied " +
              to_string(held.applied);
      if (t.observed.value) text += ", its writes under maps older than " + to_string(t.observed) + " have ended";
      return text;
    }
  return text + "it does not hold it yet";
}

void tell_assignment(Tool& tool, Story& story, const std::string& table, const model::Partition& p,
                     const model::Assignment& a, const std::map<ServerId, NodeEntry>& nodes, base::Duration timeout) {
  std::string line = "  slot " + std::to_string(a.slot) + ": " + a.server.name + " is " +
                     what_assignment_means(a.state) + ", since txnseq " + to_string(a.since) + ". ";
  const auto it = nodes.find(a.server);
  if (it == nodes.end() || !it->second.live()) {
    const bool dead = it != nodes.end() && it->second.info && it->second.info->dead;
    story.say(line + (dead ? "It is marked dead." : "It is down: not registered in the coordination service."));
    return;
  }
  story.say(line + "It says: " + server_says(tool, table, p, a, timeout) + ".");
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

struct Found {
  MapPtr map;
  const model::Partition* partition = nullptr;
};

base::Result<int> tell_partition(Tool& tool, const Found& found, const std::string& about, base::Duration timeout) {
  const auto& p = *found.partition;
  TRY_ASSIGN(const auto nodes, tool.nodes());
  TRY_ASSIGN(const auto world, world_of(tool, found.map->name, timeout));
  const auto* now = world.map->find(p.id);  // the newest map may have ended it meanwhile
  if (!now) return fail(Code::conflict, "partition " + to_string(p.id) + " has just been split: ask again");
  Story story("partition", to_string(p.id));
  if (!about.empty()) story.say(about);
  story.say("Partition " + to_string(now->id) + " is region " + to_string(now->region) + " of table " +
            found.map->name + " and holds " + to_string(now->interval) + ".");
  story.say(what_state_allows(now->state) + " Maps older than txnseq " + to_string(now->min_txnseq) +
            " are sent back.");
  size_t live = 0;
  uint32_t slots = 0;
  for (const auto& a : now->assignments) {
    tell_assignment(tool, story, found.map->name, *now, a, nodes, timeout);
    const auto it = nodes.find(a.server);
    live += it != nodes.end() && it->second.live() && model::answers_reads(a.state);
    slots = std::max(slots, a.slot + 1);
  }
  const auto majority = slots / 2 + 1;
  story.say(std::to_string(live) + " of " + std::to_string(slots) + " replicas live; a majority is " +
            std::to_string(majority) +
            (live >= majority ? ": it can be read and written at level majority."
                              : ": at level majority it waits for " + std::to_string(majority - live) + " more."));
  TRY_ASSIGN(const auto operations, all_operations(tool, timeout));
  for (const auto& op : operations)
    if (op.partition == now->id) tell_operation(story, op, world);
  if (now->split)
    tell_child(story, "low", *now, now->split->low, world), tell_child(story, "high", *now, now->split->high, world);
  return story.print(tool.format());
}

base::Result<std::vector<MapPtr>> maps_of(Tool& tool, base::Duration timeout) {
  std::vector<MapPtr> maps;
  TRY_ASSIGN(const auto tables, tool.tables());
  for (const auto& t : tables) {
    if (!t.config || t.config->dropped) continue;
    TRY_ASSIGN(auto map, tool.map(t.name, timeout));
    maps.push_back(std::move(map));
  }
  return maps;
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
    if (p && p->split)
      tell_child(story, "low", *p, p->split->low, world), tell_child(story, "high", *p, p->split->high, world);
    return story.print(tool.format());
  }
  TRY_ASSIGN(const auto maps, maps_of(tool, timeout));
  for (const auto& map : maps)
    for (const auto& e : map->ended) {
      if (e.attempt != attempt) continue;
      return Story("operation", to_string(attempt))
          .say("Attempt " + to_string(attempt) + " split region " + to_string(e.region) + " of table " + map->name +
               " at \"" + base::escape(e.point) + "\"; it was finished in txnseq " + to_string(e.at) + ".")
          .say("It is remembered until every server that held the parent has divided its copy.")
          .print(tool.format());
    }
  return fail(Code::not_found,
              "no operation " + to_string(attempt) + " is under way; it has ended, or there never was one");
}

base::Result<int> tell_ended(Tool& tool, const model::Metadata& map, const model::EndedPartition& e) {
  Story story("partition", to_string(e.id));
  story.say("Partition " + to_string(e.id) + " was region " + to_string(e.region) + " of table " + map.name + ", " +
            to_string(e.interval) + ". It was split at \"" + base::escape(e.point) + "\" in txnseq " + to_string(e.at) +
            ".");
  story.say("Its children are " + to_string(e.low) + " and " + to_string(e.high) + ".");
  std::vector<ServerId> waits;
  TRY_ASSIGN(const auto world, world_of(tool, map.name, std::chrono::seconds(5)));
  for (const auto& a : e.parent_assignments) {
    const auto it = world.observed.find(a.server);
    if (it == world.observed.end() || it->second < e.at) waits.push_back(a.server);
  }
  if (!waits.empty())
    story.say("It is remembered for " + join(waits, ", ") + ", which may still have to divide a copy of it.");
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
  story.say(status->ready ? "It is ready."
                          : "It is not ready: it waits until it has caught up with the live replicas.");
  if (!status->read_only.empty()) story.say("It takes no writes: " + status->read_only + ".");
  for (const auto& t : status->tables)
    for (const auto& p : t.partitions)
      story.say("  " + t.name + ", region " + to_string(p.region) + ": " + p.role + ", " + p.state + ", log end " +
                to_string(p.end.lsn) + ".");
  return story.print(tool.format());
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
  TRY_ASSIGN(const auto operations, all_operations(tool, timeout));
  bool any = false;
  for (const auto& op : operations)
    if (op.table == name) tell_operation(story.say("Region " + to_string(op.region) + ":"), op, world), any = true;
  if (!any) story.say("Nothing is under way in it.");
  return story.print(tool.format());
}

// One word: whatever it names.
base::Result<int> explain_word(Tool& tool, std::string word, base::Duration timeout) {
  TRY_ASSIGN(auto* session, tool.coord());
  if (word.starts_with("op-") && word.size() == 35) word = word.substr(3);
  if (word.size() == 32) {
    if (const auto id = model::parse_id<model::PartitionId>(word)) {
      TRY_ASSIGN(const auto maps, maps_of(tool, timeout));
      for (const auto& map : maps) {
        if (const auto* p = map->find(*id)) return tell_partition(tool, {map, p}, "", timeout);
        for (const auto& e : map->ended)
          if (e.id == *id) return tell_ended(tool, *map, e);
      }
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
  return tell_partition(tool, {map, p}, "Key \"" + base::escape(*key) + "\" of table " + table + ":", timeout);
}

}  // namespace

base::Result<int> explain(Tool& tool, const ExplainFlags& flags) {
  TRY_ASSIGN(const auto timeout, daemon::parse_duration(flags.timeout));
  TRY(tool.cluster());
  if (flags.what.size() == 2) return explain_in_table(tool, flags.what[0], flags.what[1], timeout);
  return explain_word(tool, flags.what[0], timeout);
}

}  // namespace cantle::zkctl
