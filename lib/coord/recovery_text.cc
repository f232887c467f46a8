#include "lib/coord/recovery_text.h"

#include <algorithm>
#include <charconv>

#include "lib/coord/layout.h"

namespace cantle::coord {

using base::Code;
using base::fail;
using model::CopyReport;
using model::LogPoint;
using model::LossKind;
using model::RecoveryPlan;

namespace {

template <class Int>
base::Result<Int> number(std::string_view what, std::string_view text, int radix = 10) {
  Int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, radix);
  if (text.empty() || error != std::errc{} || end != text.data() + text.size())
    return fail(Code::invalid, std::string(what) + ": no number: " + std::string(text.substr(0, 40)));
  return value;
}

// Views into the text, which must stay.
std::vector<std::string_view> split(std::string&& text, char at) = delete;
std::vector<std::string_view> split(std::string_view text, char at) {
  std::vector<std::string_view> parts;
  for (size_t from = 0;;) {
    const auto end = text.find(at, from);
    parts.push_back(text.substr(from, end - from));
    if (end == text.npos) return parts;
    from = end + 1;
  }
}

std::vector<std::string_view> words(std::string&& text) = delete;
std::vector<std::string_view> words(std::string_view text) {
  auto parts = split(text, ' ');
  std::erase_if(parts, [](std::string_view word) { return word.empty(); });
  return parts;
}

template <class Id>
base::Status need_id(const Lines& lines, const char* name, Id* id) {
  TRY_ASSIGN(const auto text, lines.need(name));
  auto parsed = model::parse_id<Id>(text);
  if (!parsed) return fail(std::move(parsed).error().wrap(name));
  if (parsed->none()) return fail(Code::invalid, std::string(name) + ": none");
  *id = *parsed;
  return base::ok();
}

template <class Int>
base::Status need(const Lines& lines, const char* name, Int* value) {
  TRY_ASSIGN(const auto text, lines.need(name));
  TRY_ASSIGN(*value, number<Int>(name, text));
  return base::ok();
}

base::Result<model::ServerId> server(std::string_view name) {
  TRY(model::validate_server_id(name));
  return model::ServerId{std::string(name)};
}

// epoch-lsn-checksum
std::string point_text(const LogPoint& p) {
  char crc[9];
  snprintf(crc, sizeof crc, "%08x", p.crc);
  return to_string(p.epoch) + "-" + to_string(p.lsn) + "-" + crc;
}
base::Result<LogPoint> parse_point(std::string_view what, std::string_view text) {
  const auto parts = split(text, '-');
  if (parts.size() != 3) return fail(Code::invalid, std::string(what) + ": no place in a log: " + std::string(text));
  LogPoint p;
  TRY_ASSIGN(p.epoch.value, number<uint64_t>(what, parts[0]));
  TRY_ASSIGN(p.lsn.value, number<uint64_t>(what, parts[1]));
  TRY_ASSIGN(p.crc, number<uint32_t>(what, parts[2], 16));
  return p;
}

std::string servers_text(const std::vector<model::ServerId>& servers) {
  std::string text;
  for (const auto& s : servers) text += (text.empty() ? "" : " ") + s.name;
  return text;
}

base::Result<LossKind> parse_loss(std::string_view name) {
  for (const auto kind : {LossKind::none, LossKind::possible, LossKind::certain})
    if (loss_name(kind) == name) return kind;
  return fail(Code::invalid, "loss: neither none, possible nor certain: " + std::string(name));
}

void add_loss(Lines& lines, const model::Loss& loss) {
  lines.add("loss", loss_name(loss.kind))
      .add("end", point_text(loss.end))
      .add("lost_committed", loss.committed)
      .add("lost_unknown", loss.unknown_fate);
}
base::Result<model::Loss> need_loss(const Lines& lines) {
  model::Loss loss;
  TRY_ASSIGN(const auto kind, lines.need("loss"));
  TRY_ASSIGN(loss.kind, parse_loss(kind));
  TRY_ASSIGN(const auto end, lines.need("end"));
  TRY_ASSIGN(loss.end, parse_point("end", end));
  TRY(need(lines, "lost_committed", &loss.committed));
  TRY(need(lines, "lost_unknown", &loss.unknown_fate));
  return loss;
}

}  // namespace

std::string_view loss_name(LossKind kind) {
  switch (kind) {
    case LossKind::none: return "none";
    case LossKind::possible: return "possible";
    case LossKind::certain: return "certain";
  }
  return "?";
}

// --- reports ---------------------------------------------------------------------------------------

std::string report_text(const CopyReport& r) {
  std::string epochs;
  for (const auto& e : r.epochs) epochs += (epochs.empty() ? "" : " ") + to_string(e.epoch) + "/" + to_string(e.first);
  return Lines()
             .add("cantle-quorum-report", uint64_t{1})
             .add("server", r.server.name)
             .add("incarnation", r.incarnation.value)
             .add("table_uuid", to_string(r.table))
             .add("partition", to_string(r.partition))
             .add("region", r.region.value)
             .add("assignment", to_string(r.assignment))
             .add("state", r.state)
             .add("end", point_text(r.end))
             .add("commit", r.commit.value)
             .add("promised", r.promised.value)
             .add("highest", r.highest.value)
             .add("whole", r.whole ? "yes" : "no")
             .add("epochs", epochs)
             .text() +
         "\n";
}

namespace {

base::Result<CopyReport> parse_report(std::string_view text) {
  const auto lines = Lines::parse(text);
  if (lines.get("cantle-quorum-report") != "1") return fail(Code::invalid, "no report of partd report");
  CopyReport r;
  TRY_ASSIGN(const auto name, lines.need("server"));
  TRY_ASSIGN(r.server, server(name));
  TRY(need(lines, "incarnation", &r.incarnation.value));
  TRY(need_id(lines, "table_uuid", &r.table));
  TRY(need_id(lines, "partition", &r.partition));
  TRY(need(lines, "region", &r.region.value));
  TRY(need_id(lines, "assignment", &r.assignment));
  TRY_ASSIGN(r.state, lines.need("state"));
  if (r.state != "offline" && r.state != "aside") return fail(Code::invalid, "state: " + r.state);
  TRY_ASSIGN(const auto end, lines.need("end"));
  TRY_ASSIGN(r.end, parse_point("end", end));
  TRY(need(lines, "commit", &r.commit.value));
  TRY(need(lines, "promised", &r.promised.value));
  TRY(need(lines, "highest", &r.highest.value));
  TRY_ASSIGN(const auto whole, lines.need("whole"));
  if (whole != "yes" && whole != "no") return fail(Code::invalid, "whole: neither yes nor no");
  r.whole = whole == "yes";
  TRY_ASSIGN(const auto epochs, lines.need("epochs"));
  for (const auto word : words(epochs)) {
    const auto parts = split(word, '/');
    if (parts.size() != 2) return fail(Code::invalid, "epochs: " + std::string(word));
    model::EpochStart e;
    TRY_ASSIGN(e.epoch.value, number<uint64_t>("epochs", parts[0]));
    TRY_ASSIGN(e.first.value, number<uint64_t>("epochs", parts[1]));
    if (!r.epochs.empty() && (e.epoch <= r.epochs.back().epoch || e.first <= r.epochs.back().first))
      return fail(Code::invalid, "epochs: not ascending");
    if (e.first.value == 0 || e.first > r.end.lsn) return fail(Code::invalid, "epochs: outside the log");
    if (r.epochs.size() == model::kEpochStartsMax) return fail(Code::invalid, "epochs: too many");
    r.epochs.push_back(e);
  }
  return r;
}

}  // namespace

base::Result<std::vector<CopyReport>> parse_reports(std::string_view text) {
  std::vector<CopyReport> all;
  while (!text.empty()) {
    const auto gap = text.find("\n\n");
    const auto one = text.substr(0, gap);
    text.remove_prefix(gap == text.npos ? text.size() : gap + 2);
    if (one.find_first_not_of(" \n") == one.npos) continue;
    if (all.size() == model::kCopyReportsMax) return fail(Code::invalid, "more reports than a partition can have");
    TRY_ASSIGN(auto report, parse_report(one));
    all.push_back(std::move(report));
  }
  return all;
}

// --- the plan --------------------------------------------------------------------------------------

std::string recovery_plan_text(const RecoveryPlan& plan) {
  std::string stay;
  for (const auto& v : plan.voters)
    for (const auto& c : plan.stay)
      if (c.assignment == v.assignment)
        stay += (stay.empty() ? "" : " ") + c.server.name + "/" + std::to_string(v.slot) + "/" +
                to_string(c.assignment) + "/" + point_text(c.end) + "/" + to_string(c.commit) + "/" +
                to_string(c.promised);
  Lines lines;
  lines.add("cantle-recovery-plan", uint64_t{1})
      .add("plan", to_string(plan.id))
      .add("cluster", to_string(plan.cluster))
      .add("table", plan.table)
      .add("table_uuid", to_string(plan.table_uuid))
      .add("partition", to_string(plan.partition))
      .add("region", plan.region.value)
      .add("txnseq", plan.txnseq.value)
      .add("government_version", static_cast<uint64_t>(plan.version))
      .add("government_epoch", plan.replaces.value)
      .add("stay", stay)
      .add("gone", servers_text(plan.gone))
      .add("epoch", plan.epoch.value);
  add_loss(lines, plan.loss);
  return lines.text();
}

namespace {

// server/slot/assignment/end/commit/promise
base::Status parse_stay(std::string_view text, RecoveryPlan& plan) {
  for (const auto word : words(text)) {
    const auto parts = split(word, '/');
    if (parts.size() != 6) return fail(Code::invalid, "stay: " + std::string(word.substr(0, 80)));
    model::Voter v;
    CopyReport c;
    TRY_ASSIGN(c.server, server(parts[0]));
    TRY_ASSIGN(v.slot, number<uint32_t>("stay", parts[1]));
    TRY_ASSIGN(c.assignment, model::parse_id<model::AssignmentId>(parts[2]));
    TRY_ASSIGN(c.end, parse_point("stay", parts[3]));
    TRY_ASSIGN(c.commit.value, number<uint64_t>("stay", parts[4]));
    TRY_ASSIGN(c.promised.value, number<uint64_t>("stay", parts[5]));
    v.server = c.server;
    v.assignment = c.assignment;
    if (c.assignment.none() || model::find_voter(plan.voters, c.assignment) != nullptr)
      return fail(Code::invalid, "stay: " + c.server.name + " without an assignment, or twice");
    for (const auto& other : plan.voters)
      if (other.server == v.server || other.slot >= v.slot)
        return fail(Code::invalid, "stay: one server twice, or not in the order of the slots");
    c.partition = plan.partition;
    c.region = plan.region;
    c.table = plan.table_uuid;
    plan.voters.push_back(std::move(v));
    plan.stay.push_back(std::move(c));
  }
  if (plan.voters.empty() || plan.voters.size() > model::kVotersMax)
    return fail(Code::invalid, "stay: " + std::to_string(plan.voters.size()) + " of them");
  return base::ok();
}

}  // namespace

base::Result<RecoveryPlan> parse_recovery_plan(std::string_view text) {
  if (text.size() > kRecoveryPlanMax) return fail(Code::too_large, "too long for a plan");
  const auto lines = Lines::parse(text);
  if (lines.get("cantle-recovery-plan") != "1") return fail(Code::invalid, "no plan of zkctl quorum recover");
  RecoveryPlan plan;
  TRY(need_id(lines, "plan", &plan.id));
  TRY(need_id(lines, "cluster", &plan.cluster));
  TRY_ASSIGN(plan.table, lines.need("table"));
  TRY(model::validate_table_name(plan.table));
  TRY(need_id(lines, "table_uuid", &plan.table_uuid));
  TRY(need_id(lines, "partition", &plan.partition));
  TRY(need(lines, "region", &plan.region.value));
  TRY(need(lines, "txnseq", &plan.txnseq.value));
  TRY(need(lines, "government_version", &plan.version));
  TRY(need(lines, "government_epoch", &plan.replaces.value));
  TRY_ASSIGN(const auto stay, lines.need("stay"));
  TRY(parse_stay(stay, plan));
  const auto gone = lines.get("gone");
  for (const auto word : words(gone)) {
    TRY_ASSIGN(auto name, server(word));
    plan.gone.push_back(std::move(name));
  }
  TRY(need(lines, "epoch", &plan.epoch.value));
  TRY_ASSIGN(plan.loss, need_loss(lines));
  if (plan.version < 0) return fail(Code::invalid, "government_version: below 0");
  if (plan.epoch <= plan.replaces) return fail(Code::invalid, "epoch: not above the government's");
  for (const auto& c : plan.stay)
    if (plan.epoch <= c.promised) return fail(Code::invalid, "epoch: not above the promise of " + c.server.name);
  return plan;
}

// --- the note of one that was made ------------------------------------------------------------------

std::string recovered_text(const model::Recovered& r) {
  std::string voters;
  for (const auto& v : r.voters)
    voters +=
        (voters.empty() ? "" : " ") + std::to_string(v.slot) + "/" + v.server.name + "/" + to_string(v.assignment);
  Lines lines;
  lines.add("plan", to_string(r.plan)).add("epoch", r.epoch.value).add("voters", voters);
  add_loss(lines, r.loss);
  return lines.add("at_ms", r.at_ms).add("by", r.by).text();
}

base::Result<model::Recovered> parse_recovered(std::string_view text) {
  const auto lines = Lines::parse(text);
  model::Recovered r;
  TRY(need_id(lines, "plan", &r.plan));
  TRY(need(lines, "epoch", &r.epoch.value));
  TRY_ASSIGN(const auto voters, lines.need("voters"));
  for (const auto word : words(voters)) {
    const auto parts = split(word, '/');
    if (parts.size() != 3) return fail(Code::invalid, "voters: " + std::string(word.substr(0, 80)));
    model::Voter v;
    TRY_ASSIGN(v.slot, number<uint32_t>("voters", parts[0]));
    TRY_ASSIGN(v.server, server(parts[1]));
    TRY_ASSIGN(v.assignment, model::parse_id<model::AssignmentId>(parts[2]));
    if (r.voters.size() == model::kVotersMax) return fail(Code::invalid, "voters: too many");
    r.voters.push_back(std::move(v));
  }
  TRY_ASSIGN(r.loss, need_loss(lines));
  TRY(need(lines, "at_ms", &r.at_ms));
  r.by = lines.get("by");
  return r;
}

}  // namespace cantle::coord
