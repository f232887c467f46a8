#include "lib/coord/recovery_text.h"

#include <gtest/gtest.h>

namespace cantle::coord {
namespace {

using base::Code;

template <class Id>
Id id(uint8_t n) {
  Id out;
  out.bytes[15] = n;
  return out;
}

model::RecoveryPlan a_plan() {
  model::RecoveryPlan p;
  p.id = id<model::AttemptId>(1);
  p.cluster = id<model::ClusterUuid>(2);
  p.table = "orders";
  p.table_uuid = id<model::TableUuid>(3);
  p.partition = id<model::PartitionId>(4);
  p.region = {5};
  p.txnseq = {14};
  p.version = 6;
  p.replaces = {7};
  p.epoch = {9};
  for (uint8_t i = 0; i < 2; i++) {
    const model::Voter v{2u * i, {"p" + std::to_string(i + 1)}, id<model::AssignmentId>(10 + i)};
    p.voters.push_back(v);
    p.stay.push_back({v.server,
                      {},
                      p.table_uuid,
                      p.partition,
                      p.region,
                      v.assignment,
                      "",
                      {{7}, {100u + i}, 0xabcu},
                      {90},
                      {8},
                      {},
                      {},
                      true});
  }
  p.gone = {{"p3"}, {"p4"}};
  p.loss = {model::LossKind::certain, {{7}, {101}, 0xabc}, 3, 4};
  return p;
}

// The text with another value in one line.
std::string with(std::string text, const std::string& key, const std::string& value) {
  const auto at = text.find("\n" + key + ":");
  EXPECT_NE(at, text.npos) << key;
  const auto end = text.find('\n', at + 1);
  return text.substr(0, at + 1) + key + ": " + value + text.substr(end);
}

TEST(RecoveryText, a_plan_is_read_as_it_was_written) {
  const auto plan = a_plan();
  const auto text = recovery_plan_text(plan);
  const auto again = parse_recovery_plan(text + "# for people: yes\n");
  ASSERT_TRUE(again) << again.error().text;
  EXPECT_EQ(*again, plan);
}

// Their line is no part of the plan's text: it was looked at after it was gone.
TEST(RecoveryText, servers_that_are_gone_are_read_whatever_their_names) {
  auto plan = a_plan();
  plan.gone.clear();
  for (char c = 'a'; c <= 'z'; c++) plan.gone.push_back({std::string(40, c)});
  const auto again = parse_recovery_plan(recovery_plan_text(plan));
  ASSERT_TRUE(again) << again.error().text;
  EXPECT_EQ(again->gone, plan.gone);
}

TEST(RecoveryText, a_plan_that_contradicts_itself_or_lacks_a_line_is_refused) {
  const auto text = recovery_plan_text(a_plan());
  for (const auto& [key, value] :
       std::vector<std::pair<std::string, std::string>>{{"epoch", "7"},  // not above the government's
                                                        {"epoch", "8"},  // nor above a promise
                                                        {"government_version", "-1"},
                                                        {"government_version", "x"},
                                                        {"stay", ""},
                                                        {"stay", "p1/0"},
                                                        {"stay", "p1/0/0000000000000000000000000000000a/7-100/90/8"},
                                                        {"loss", "some"},
                                                        {"gone", "p 3/"},
                                                        {"partition", "00000000000000000000000000000000"},
                                                        {"table", "No"},
                                                        {"cluster", "12"}})
    EXPECT_FALSE(parse_recovery_plan(with(text, key, value))) << key << " " << value;
  std::string twice = "p1/0/0000000000000000000000000000000a/7-100-00000abc/90/8";
  EXPECT_TRUE(parse_recovery_plan(with(text, "stay", twice)));
  EXPECT_FALSE(parse_recovery_plan(with(text, "stay", twice + " " + twice)));
  EXPECT_FALSE(parse_recovery_plan(""));
  EXPECT_EQ(parse_recovery_plan(std::string(kRecoveryPlanMax + 1, '#')).error().code, Code::too_large);
  for (size_t at = text.find('\n') + 1; at < text.size(); at = text.find('\n', at) + 1) {
    auto without = text;
    without.erase(at, text.find('\n', at) + 1 - at);
    if (text.compare(at, 5, "gone:") == 0) continue;  // nobody
    EXPECT_FALSE(parse_recovery_plan(without)) << text.substr(at, 20);
  }
}

TEST(RecoveryText, reports_are_read_as_they_were_written) {
  model::CopyReport r;
  r.server = {"p2"};
  r.incarnation = {3};
  r.table = id<model::TableUuid>(3);
  r.partition = id<model::PartitionId>(4);
  r.region = {1};
  r.assignment = id<model::AssignmentId>(5);
  r.state = "offline";
  r.end = {{4}, {120}, 0xdeadbeef};
  r.commit = {118};
  r.promised = {5};
  r.highest = {5};
  r.epochs = {{{2}, {1}}, {{4}, {100}}};
  auto other = r;
  other.partition = id<model::PartitionId>(9);
  other.epochs.clear();
  other.end = {};
  other.whole = false;
  const auto again = parse_reports(report_text(r) + report_text(other));
  ASSERT_TRUE(again) << again.error().text;
  EXPECT_EQ(*again, (std::vector<model::CopyReport>{r, other}));
  EXPECT_TRUE(parse_reports("")->empty());
  EXPECT_FALSE(parse_reports("server: p1\n"));
  r.state = "leader";  // no data directory says that
  EXPECT_FALSE(parse_reports(report_text(r)));
  r.state = "offline";
  r.epochs = {{{4}, {100}}, {{2}, {110}}};
  EXPECT_FALSE(parse_reports(report_text(r)));
  r.epochs = {{{4}, {121}}};
  EXPECT_FALSE(parse_reports(report_text(r)));
}

TEST(RecoveryText, the_note_of_a_recovery_is_read_as_it_was_written) {
  const auto plan = a_plan();
  const model::Recovered r{plan.id, plan.epoch, plan.voters, plan.loss, 1234567890123, "host:12"};
  const auto again = parse_recovered(recovered_text(r));
  ASSERT_TRUE(again) << again.error().text;
  EXPECT_EQ(*again, r);
  EXPECT_FALSE(parse_recovered("plan: 1\n"));
}

}  // namespace
}  // namespace cantle::coord
