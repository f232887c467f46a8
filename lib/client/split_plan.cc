#include "lib/client/split_plan.h"

#include <utility>

#include "lib/base/bytes.h"
#include "lib/coord/layout.h"
#include "lib/model/record.h"

namespace cantle::client {

using base::Code;

namespace {

std::string child_text(const model::ops::NewChild& child) {
  std::string text = to_string(child.id);
  for (const auto& a : child.assignments) text += " " + a.server.name + "=" + to_string(a.id);
  return text;
}

base::Result<model::ops::NewChild> parse_child(std::string_view text) {
  model::ops::NewChild child;
  bool first = true;
  while (!text.empty()) {
    const size_t end = std::min(text.find(' '), text.size());
    const auto word = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (std::exchange(first, false)) {
      TRY_ASSIGN(child.id, model::parse_id<model::PartitionId>(word));
      continue;
    }
    const size_t equals = word.find('=');
    if (equals == std::string_view::npos)
      return base::fail(Code::invalid, "'" + base::escape(word) + "' is no server=assignment");
    model::NewAssignment a;
    a.server.name = word.substr(0, equals);
    TRY(model::validate_server_id(a.server.name));
    TRY_ASSIGN(a.id, model::parse_id<model::AssignmentId>(word.substr(equals + 1)));
    child.assignments.push_back(std::move(a));
    if (child.assignments.size() > model::kReplicasMax)
      return base::fail(Code::invalid, "too many servers for one child");
  }
  if (child.id.none() || child.assignments.empty()) return base::fail(Code::invalid, "a child needs an id and servers");
  return child;
}

template <class Id>
base::Status read_id(const coord::Lines& lines, const char* name, Id* id) {
  TRY_ASSIGN(const auto text, lines.need(name));
  auto parsed = model::parse_id<Id>(text);
  if (!parsed) return base::fail(std::move(parsed).error().wrap(name));
  *id = *parsed;
  return base::ok();
}

}  // namespace

std::string format_plan(const SplitPlan& plan) {
  coord::Lines lines;
  lines.add("cantle-split-plan", uint64_t{1})
      .add("table", plan.table)
      .add("table_uuid", to_string(plan.table_uuid))
      .add("base_txnid", to_string(plan.base))
      .add("base_txnseq", plan.base_txnseq.value)
      .add("partition", to_string(plan.split.partition))
      .add("attempt", to_string(plan.split.attempt))
      .add("point", base::escape(plan.split.point))
      .add("low", child_text(plan.split.low))
      .add("high", child_text(plan.split.high));
  return lines.text();
}

base::Result<SplitPlan> parse_plan(std::string_view text) {
  if (text.size() > kSplitPlanMax)
    return base::fail(Code::too_large, "a plan has at most " + std::to_string(kSplitPlanMax) + " bytes");
  const auto lines = coord::Lines::parse(text);
  TRY_ASSIGN(const auto format, lines.need_number("cantle-split-plan"));
  if (format != 1) return base::fail(Code::invalid, "a plan of a newer format");
  SplitPlan plan;
  TRY_ASSIGN(plan.table, lines.need("table"));
  TRY(model::validate_table_name(plan.table));
  TRY(read_id(lines, "table_uuid", &plan.table_uuid));
  TRY(read_id(lines, "base_txnid", &plan.base));
  TRY_ASSIGN(plan.base_txnseq.value, lines.need_number("base_txnseq"));
  TRY(read_id(lines, "partition", &plan.split.partition));
  TRY(read_id(lines, "attempt", &plan.split.attempt));
  TRY_ASSIGN(const auto point, lines.need("point"));
  TRY_ASSIGN(plan.split.point, base::unescape(point));
  if (plan.split.point.empty() || plan.split.point.size() > model::kKeyMax)
    return base::fail(Code::invalid, "the point must have 1 to " + std::to_string(model::kKeyMax) + " bytes");
  TRY_ASSIGN(const auto low, lines.need("low"));
  TRY_ASSIGN(plan.split.low, parse_child(low));
  TRY_ASSIGN(const auto high, lines.need("high"));
  TRY_ASSIGN(plan.split.high, parse_child(high));
  return plan;
}

}  // namespace cantle::client
