#include "lib/client/split_plan.h"

#include <gtest/gtest.h>

#include "lib/base/random.h"

namespace cantle::client {
namespace {

SplitPlan plan() {
  base::SeededRandom random(5);
  SplitPlan p;
  p.table = "orders";
  p.table_uuid = model::TableUuid::draw(random);
  p.base = model::TxnId::draw(random);
  p.base_txnseq = {12};
  p.split.partition = model::PartitionId::draw(random);
  p.split.attempt = model::AttemptId::draw(random);
  p.split.point = std::string("li\0b\xff %\n", 8);
  for (auto* child : {&p.split.low, &p.split.high}) {
    child->id = model::PartitionId::draw(random);
    for (const char* name : {"p1", "p2", "p3"})
      child->assignments.push_back({{name}, model::AssignmentId::draw(random)});
  }
  return p;
}
std::string without(std::string text, const std::string& name) {
  const size_t at = text.find(name + ":");
  return text.erase(at, text.find('\n', at) + 1 - at);
}
std::string with(std::string text, const std::string& from, const std::string& to) {
  return text.replace(text.find(from), from.size(), to);
}

TEST(SplitPlan, comes_back_as_it_was_whatever_bytes_the_point_has) {
  const auto back = parse_plan(format_plan(plan()));
  ASSERT_TRUE(back) << base::to_string(back.error());
  EXPECT_EQ(*back, plan());
}

TEST(SplitPlan, a_line_that_is_missing_is_named) {
  for (const char* name : {"cantle-split-plan", "table", "table_uuid", "base_txnid", "base_txnseq", "partition",
                           "attempt", "point", "low", "high"}) {
    const auto parsed = parse_plan(without(format_plan(plan()), name));
    ASSERT_FALSE(parsed) << name;
    EXPECT_NE(parsed.error().text.find(name), std::string::npos) << parsed.error().text;
  }
}

TEST(SplitPlan, what_is_no_plan_is_refused) {
  const auto good = format_plan(plan());
  for (const auto& bad : {std::string(), std::string("not a plan"), with(good, "plan: 1", "plan: 2"),
                          with(good, "table: orders", "table: Orders!"), with(good, "p1=", "p1"),
                          with(good, "p2=", "P/2="), with(good, "point: ", "point: %zz")})
    EXPECT_FALSE(parse_plan(bad)) << bad;
  EXPECT_EQ(parse_plan(std::string(kSplitPlanMax + 1, 'x')).error().code, base::Code::too_large);
}

}  // namespace
}  // namespace cantle::client
