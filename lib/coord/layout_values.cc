#include <algorithm>
#include <charconv>
#include <limits>

#include "lib/base/bytes.h"
#include "lib/base/check.h"
#include "lib/coord/layout.h"

namespace cantle::coord {

using base::Code;
using base::fail;

namespace {

std::string_view trim(std::string_view s) {
  while (!s.empty() && (s.front() == ' ' || s.front() == '\t')) s.remove_prefix(1);
  while (!s.empty() && (s.back() == ' ' || s.back() == '\t' || s.back() == '\r')) s.remove_suffix(1);
  return s;
}

base::Result<uint64_t> parse_number(std::string_view key, std::string_view text) {
  uint64_t n = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (error != std::errc{} || end != text.data() + text.size())
    return fail(Code::invalid, std::string(key) + ": no number: " + std::string(text));
  return n;
}

template <class T>
base::Result<T> number_as(const base::Result<uint64_t>& n, std::string_view key) {
  if (!n) return fail(n.error());
  if (*n > std::numeric_limits<T>::max()) return fail(Code::invalid, std::string(key) + ": too large");
  return static_cast<T>(*n);
}

template <class Id>
base::Result<Id> need_id(const Lines& lines, std::string_view key) {
  TRY_ASSIGN(const auto text, lines.need(key));
  auto id = model::parse_id<Id>(text);
  if (!id) return fail(std::move(id).error().wrap(key));
  return *id;
}

}  // namespace

Lines Lines::parse(std::string_view text) {
  Lines lines;
  while (!text.empty()) {
    const auto end = text.find('\n');
    const auto line = trim(text.substr(0, end));
    text.remove_prefix(end == text.npos ? text.size() : end + 1);
    if (line.empty()) continue;
    const auto colon = line.find(':');
    if (colon == line.npos)
      lines.lines_.emplace_back("", std::string(line));
    else
      lines.lines_.emplace_back(std::string(trim(line.substr(0, colon))), std::string(trim(line.substr(colon + 1))));
  }
  return lines;
}

Lines& Lines::add(std::string_view key, std::string_view value) {
  CHECK(value.find('\n') == value.npos);
  lines_.emplace_back(std::string(key), std::string(value));
  return *this;
}

Lines& Lines::word(std::string_view word) {
  CHECK(word.find(':') == word.npos && word.find('\n') == word.npos);
  lines_.emplace_back("", std::string(word));
  return *this;
}

std::string Lines::text() const {
  std::string out;
  for (const auto& [key, value] : lines_) {
    if (key.empty())
      out += value;
    else
      out.append(key).append(value.empty() ? ":" : ": ").append(value);
    out += '\n';
  }
  return out;
}

bool Lines::has_word(std::string_view word) const {
  return std::any_of(lines_.begin(), lines_.end(), [&](const auto& l) { return l.first.empty() && l.second == word; });
}

const std::string* Lines::find(std::string_view key) const {
  const auto it = std::find_if(lines_.rbegin(), lines_.rend(), [&](const auto& l) { return l.first == key; });
  return it == lines_.rend() ? nullptr : &it->second;
}

std::string Lines::get(std::string_view key, std::string_view otherwise) const {
  const auto* value = find(key);
  return value ? *value : std::string(otherwise);
}

base::Result<std::string> Lines::need(std::string_view key) const {
  const auto* value = find(key);
  if (!value) return fail(Code::invalid, std::string(key) + ": missing");
  return *value;
}

base::Result<uint64_t> Lines::need_number(std::string_view key) const {
  TRY_ASSIGN(const auto text, need(key));
  return parse_number(key, text);
}

base::Result<uint64_t> Lines::number_or(std::string_view key, uint64_t otherwise) const {
  const auto* text = find(key);
  if (!text) return otherwise;
  return parse_number(key, *text);
}

std::string format_text(const Format& format) {
  return Lines().add("layout", format.layout).add("cluster", to_string(format.cluster)).text();
}

base::Result<Format> parse_format(std::string_view text) {
  const auto lines = Lines::parse(text);
  Format f;
  TRY_ASSIGN(f.layout, number_as<uint32_t>(lines.need_number("layout"), "layout"));
  if (f.layout == 0 || f.layout > kLayoutVersion)
    return fail(Code::identity, "coordination service: layout " + std::to_string(f.layout) +
                                    ", this program knows up to " + std::to_string(kLayoutVersion));
  TRY_ASSIGN(f.cluster, need_id<model::ClusterUuid>(lines, "cluster"));
  return f;
}

std::string_view role_name(Role role) { return role == Role::partd ? "partd" : "mdserver"; }

base::Result<Role> parse_role(std::string_view name) {
  if (name == "partd") return Role::partd;
  if (name == "mdserver") return Role::mdserver;
  return fail(Code::invalid, "role: partd or mdserver, not " + std::string(name));
}

std::string active_text(const Active& active) {
  Lines lines;
  lines.word(active.readonly ? "readonly" : "readwrite").add("role", role_name(active.role));
  if (!active.tcp.empty()) lines.add("tcp", active.tcp);
  if (!active.unix_socket.empty()) lines.add("unix", active.unix_socket);
  lines.add("incarnation", active.incarnation.value);
  if (!active.instance.empty()) lines.add("instance", active.instance);
  return lines.text();
}

base::Result<Active> parse_active(std::string_view text) {
  const auto lines = Lines::parse(text);
  Active a;
  a.readonly = lines.has_word("readonly");
  TRY_ASSIGN(const auto role, lines.need("role"));
  TRY_ASSIGN(a.role, parse_role(role));
  a.tcp = lines.get("tcp");
  a.unix_socket = lines.get("unix");
  TRY_ASSIGN(a.incarnation.value, lines.need_number("incarnation"));
  a.instance = lines.get("instance");
  return a;
}

std::string version_text(const NodeVersion& v) {
  return Lines()
      .add("software", v.software)
      .add("protocol_min", v.protocol_min)
      .add("protocol_max", v.protocol_max)
      .add("format_min", v.format_min)
      .add("format_max", v.format_max)
      .text();
}

base::Result<NodeVersion> parse_version(std::string_view text) {
  const auto lines = Lines::parse(text);
  NodeVersion v;
  v.software = lines.get("software");
  TRY_ASSIGN(v.protocol_min, number_as<uint32_t>(lines.need_number("protocol_min"), "protocol_min"));
  TRY_ASSIGN(v.protocol_max, number_as<uint32_t>(lines.need_number("protocol_max"), "protocol_max"));
  TRY_ASSIGN(v.format_min, number_as<uint32_t>(lines.need_number("format_min"), "format_min"));
  TRY_ASSIGN(v.format_max, number_as<uint32_t>(lines.need_number("format_max"), "format_max"));
  return v;
}

std::string info_text(const NodeInfo& info) {
  std::string flags;
  const auto flag = [&](bool on, std::string_view name) {
    if (on) flags.append(flags.empty() ? "" : ", ").append(name);
  };
  flag(info.drain, "drain");
  flag(info.dead, "dead");
  flag(info.reserve, "reserve");
  return Lines()
      .add("role", role_name(info.role))
      .add("number", info.number.value)
      .add("rack", info.rack)
      .add("host", info.host)
      .add("weight", info.weight)
      .add("flags", flags)
      .text();
}

base::Result<NodeInfo> parse_info(std::string_view text) {
  const auto lines = Lines::parse(text);
  NodeInfo info;
  TRY_ASSIGN(info.role, parse_role(lines.get("role", "partd")));
  TRY_ASSIGN(info.number.value, number_as<uint32_t>(lines.number_or("number", 0), "number"));
  info.rack = lines.get("rack");
  info.host = lines.get("host");
  TRY_ASSIGN(info.weight, number_as<uint32_t>(lines.number_or("weight", 100), "weight"));
  std::string flags = lines.get("flags");
  std::replace(flags.begin(), flags.end(), ',', '\n');
  const auto words = Lines::parse(flags);
  info.drain = words.has_word("drain");
  info.dead = words.has_word("dead");
  info.reserve = words.has_word("reserve");
  return info;
}

std::string arrival_text(const Arrival& a) {
  return Lines()
      .word(a.kind == Arrival::Kind::arrival ? "arrival" : "departure")
      .add("server", a.server.name)
      .add("instance", a.instance)
      .add("at_ms", a.at_ms)
      .add("rack", a.rack)
      .add("weight", a.weight)
      .text();
}

base::Result<Arrival> parse_arrival(std::string_view text) {
  const auto lines = Lines::parse(text);
  Arrival a;
  if (lines.has_word("departure"))
    a.kind = Arrival::Kind::departure;
  else if (!lines.has_word("arrival"))
    return fail(Code::invalid, "neither arrival nor departure");
  TRY_ASSIGN(a.server.name, lines.need("server"));
  TRY(model::validate_server_id(a.server.name));
  a.instance = lines.get("instance");
  TRY_ASSIGN(a.at_ms, lines.number_or("at_ms", 0));
  a.rack = lines.get("rack");
  TRY_ASSIGN(a.weight, number_as<uint32_t>(lines.number_or("weight", 100), "weight"));
  return a;
}

std::string_view region_state_name(RegionState state) {
  switch (state) {
    case RegionState::creating: return "creating";
    case RegionState::active: return "active";
    case RegionState::splitting: return "splitting";
    case RegionState::merging: return "merging";
    case RegionState::split: return "split";
    case RegionState::aborted: return "aborted";
    case RegionState::merged: return "merged";
  }
  return "?";
}

base::Result<RegionState> parse_region_state(std::string_view name) {
  for (const auto s : {RegionState::creating, RegionState::active, RegionState::splitting, RegionState::merging,
                       RegionState::split, RegionState::aborted, RegionState::merged})
    if (region_state_name(s) == name) return s;
  return fail(Code::invalid, "no region state: " + std::string(name));
}

RegionState region_state(model::PartitionState state) {
  switch (state) {
    case model::PartitionState::creating: return RegionState::creating;
    case model::PartitionState::active: return RegionState::active;
    case model::PartitionState::splitting: return RegionState::splitting;
    case model::PartitionState::merging: return RegionState::merging;
  }
  return RegionState::creating;
}

std::string region_text(const RegionNode& region) {
  Lines lines;
  lines.add("state", region_state_name(region.state)).add("partition", to_string(region.partition));
  if (region.has_parent) lines.add("parent", region.parent.value);
  if (region.has_children) {
    lines.add("left", region.left.value).add("right", region.right.value).add("split", base::escape(region.split));
  }
  if (region.has_target) lines.add("into", region.into.value);
  if (!region.attempt.none()) lines.add("attempt", to_string(region.attempt));
  return lines.text();
}

base::Result<RegionNode> parse_region(std::string_view text) {
  const auto lines = Lines::parse(text);
  RegionNode r;
  TRY_ASSIGN(const auto state, lines.need("state"));
  TRY_ASSIGN(r.state, parse_region_state(state));
  TRY_ASSIGN(r.partition, need_id<model::PartitionId>(lines, "partition"));
  r.has_parent = lines.find("parent") != nullptr;
  if (r.has_parent) {
    TRY_ASSIGN(r.parent.value, number_as<uint32_t>(lines.need_number("parent"), "parent"));
  }
  if (lines.find("attempt") != nullptr) {
    TRY_ASSIGN(r.attempt, need_id<model::AttemptId>(lines, "attempt"));
  }
  r.has_target = lines.find("into") != nullptr;
  if (r.has_target) {
    TRY_ASSIGN(r.into.value, number_as<uint32_t>(lines.need_number("into"), "into"));
  }
  r.has_children = lines.find("left") != nullptr;
  if (!r.has_children) return r;
  TRY_ASSIGN(r.left.value, number_as<uint32_t>(lines.need_number("left"), "left"));
  TRY_ASSIGN(r.right.value, number_as<uint32_t>(lines.need_number("right"), "right"));
  TRY_ASSIGN(r.split, base::unescape(lines.get("split")));
  return r;
}

std::string system_text(const SystemNode& s) {
  return Lines().add("slot", s.slot).add("assignment", to_string(s.assignment)).add("version", s.version.value).text();
}

base::Result<SystemNode> parse_system(std::string_view text) {
  const auto lines = Lines::parse(text);
  SystemNode s;
  TRY_ASSIGN(s.slot, number_as<uint32_t>(lines.need_number("slot"), "slot"));
  TRY_ASSIGN(s.assignment, need_id<model::AssignmentId>(lines, "assignment"));
  TRY_ASSIGN(s.version.value, lines.number_or("version", 0));
  return s;
}

std::string token_text(const model::LogToken& token) { return to_string(token.epoch) + "-" + to_string(token.lsn); }

std::string vote_name(const model::LogToken& token, const model::ServerId& server) {
  return token_text(token) + ":" + server.name;
}

base::Result<model::LogToken> parse_token(std::string_view name) {
  const auto dash = name.find('-');
  if (dash == name.npos) return fail(Code::invalid, "no log position: " + std::string(name));
  model::LogToken token;
  TRY_ASSIGN(token.epoch.value, parse_number("token", name.substr(0, dash)));
  TRY_ASSIGN(token.lsn.value, parse_number("token", name.substr(dash + 1)));
  return token;
}

std::string government_text(const model::Government& g) {
  Lines lines;
  lines.add("epoch", g.epoch.value).add("leader", g.leader.none() ? "" : to_string(g.leader));
  std::string voters;
  for (const auto& v : g.voters)
    voters.append(voters.empty() ? "" : " ")
        .append(std::to_string(v.slot) + "/" + v.server.name + "/" + to_string(v.assignment));
  lines.add("voters", voters).add("writer", g.writer).add("txnseq", g.txnseq.value);
  if (!g.cut) return lines.text();
  lines.add("cut", to_string(g.cut->attempt) + " " + to_string(g.cut->at.epoch) + ":" + to_string(g.cut->at.lsn) + ":" +
                       std::to_string(g.cut->at.crc));
  std::string holders;
  for (const auto& s : g.cut->holders) holders.append(holders.empty() ? "" : " ").append(s.name);
  if (!holders.empty()) lines.add("cut_on", holders);
  return lines.text();
}

namespace {

// slot/server/assignment
base::Result<model::Voter> parse_voter(std::string_view text) {
  const auto first = text.find('/'), last = text.rfind('/');
  if (first == last) return fail(Code::invalid, "voters: neither slot, server nor assignment: " + std::string(text));
  model::Voter v;
  TRY_ASSIGN(v.slot, number_as<uint32_t>(parse_number("voters", text.substr(0, first)), "voters"));
  v.server.name = text.substr(first + 1, last - first - 1);
  TRY(model::validate_server_id(v.server.name));
  TRY_ASSIGN(v.assignment, model::parse_id<model::AssignmentId>(text.substr(last + 1)));
  if (v.assignment.none()) return fail(Code::invalid, "voters: no assignment: " + std::string(text));
  return v;
}

base::Result<std::vector<model::ServerId>> parse_servers(std::string_view text) {
  std::vector<model::ServerId> out;
  for (auto rest = trim(text); !rest.empty(); rest = trim(rest)) {
    const auto end = std::min(rest.find(' '), rest.size());
    model::ServerId server{std::string(rest.substr(0, end))};
    TRY(model::validate_server_id(server.name));
    if (out.size() == model::kVotersMax) return fail(Code::invalid, "more servers than there can be voters");
    out.push_back(std::move(server));
    rest.remove_prefix(end);
  }
  return out;
}

// attempt epoch:lsn:checksum
base::Result<model::CutReport> parse_cut(std::string_view text) {
  const auto space = text.find(' '), one = text.find(':'), two = text.rfind(':');
  if (space == text.npos || one == two || one < space) return fail(Code::invalid, "cut: " + std::string(text));
  model::CutReport cut;
  TRY_ASSIGN(cut.attempt, model::parse_id<model::AttemptId>(text.substr(0, space)));
  TRY_ASSIGN(cut.at.epoch.value, parse_number("cut", text.substr(space + 1, one - space - 1)));
  TRY_ASSIGN(cut.at.lsn.value, parse_number("cut", text.substr(one + 1, two - one - 1)));
  TRY_ASSIGN(cut.at.crc, number_as<uint32_t>(parse_number("cut", text.substr(two + 1)), "cut"));
  return cut;
}

}  // namespace

base::Result<model::Government> parse_government(std::string_view text) {
  const auto lines = Lines::parse(text);
  model::Government g;
  TRY_ASSIGN(g.epoch.value, lines.need_number("epoch"));
  if (g.epoch.value == 0) return fail(Code::invalid, "epoch: 0 is none");
  TRY_ASSIGN(const auto voters, lines.need("voters"));
  for (auto rest = trim(voters); !rest.empty(); rest = trim(rest)) {
    const auto end = std::min(rest.find(' '), rest.size());
    TRY_ASSIGN(auto voter, parse_voter(rest.substr(0, end)));
    if (model::find_voter(g.voters, voter.assignment) != nullptr)
      return fail(Code::invalid, "voters: one of them twice: " + to_string(voter.assignment));
    g.voters.push_back(std::move(voter));
    rest.remove_prefix(end);
  }
  if (g.voters.empty() || g.voters.size() > model::kVotersMax)
    return fail(Code::invalid, "voters: " + std::to_string(g.voters.size()) + " of them");
  g.writer = lines.get("writer");
  TRY_ASSIGN(g.txnseq.value, lines.number_or("txnseq", 0));
  if (const auto cut = lines.get("cut"); !cut.empty()) {
    TRY_ASSIGN(g.cut, parse_cut(cut));
    TRY_ASSIGN(g.cut->holders, parse_servers(lines.get("cut_on")));
  }
  TRY_ASSIGN(const auto leader, lines.need("leader"));
  if (leader.empty()) return g;
  TRY_ASSIGN(g.leader, model::parse_id<model::AssignmentId>(leader));
  if (model::find_voter(g.voters, g.leader) == nullptr) return fail(Code::invalid, "leader: none of the voters");
  return g;
}

std::string vote_text(const model::Vote& v) {
  return Lines()
      .add("promise", v.promise.value)
      .add("token", token_text(v.token))
      .add("assignment", to_string(v.assignment))
      .add("server", v.server.name)
      .add("slot", v.slot)
      .add("can_lead", v.can_lead ? "yes" : "no")
      .add("incarnation", v.incarnation.value)
      .text();
}

base::Result<model::Vote> parse_vote(std::string_view text) {
  const auto lines = Lines::parse(text);
  model::Vote v;
  TRY_ASSIGN(v.promise.value, lines.need_number("promise"));
  TRY_ASSIGN(const auto token, lines.need("token"));
  TRY_ASSIGN(v.token, parse_token(token));
  TRY_ASSIGN(v.assignment, need_id<model::AssignmentId>(lines, "assignment"));
  TRY_ASSIGN(v.server.name, lines.need("server"));
  TRY(model::validate_server_id(v.server.name));
  TRY_ASSIGN(v.slot, number_as<uint32_t>(lines.need_number("slot"), "slot"));
  v.can_lead = lines.get("can_lead") == "yes";
  TRY_ASSIGN(v.incarnation.value, lines.need_number("incarnation"));
  return v;
}

std::string observed_text(const Observed& o) {
  return Lines().add("txnseq", o.txnseq.value).add("incarnation", o.incarnation.value).text();
}

base::Result<Observed> parse_observed(std::string_view text) {
  const auto lines = Lines::parse(text);
  Observed o;
  TRY_ASSIGN(o.txnseq.value, lines.need_number("txnseq"));
  TRY_ASSIGN(o.incarnation.value, lines.number_or("incarnation", 0));
  return o;
}

std::string task_text(const Task& t) {
  return Lines().add("driver", t.driver).add("table", t.table).add("what", t.what).text();
}

base::Result<Task> parse_task(std::string_view text) {
  const auto lines = Lines::parse(text);
  Task t;
  TRY_ASSIGN(t.driver, lines.need("driver"));
  t.table = lines.get("table");
  t.what = lines.get("what");
  return t;
}

std::string dropped_text(const Dropped& d) {
  return Lines().add("table", d.table).add("txnseq", d.txnseq.value).text();
}

base::Result<Dropped> parse_dropped(std::string_view text) {
  const auto lines = Lines::parse(text);
  Dropped d;
  TRY_ASSIGN(d.table, lines.need("table"));
  TRY_ASSIGN(d.txnseq.value, lines.need_number("txnseq"));
  return d;
}

}  // namespace cantle::coord
