#include "lib/proto/quorum_judge.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "lib/base/random.h"

namespace cantle::proto::quorum {
namespace {

using base::Code;
using model::ClientSeries;
using model::Epoch;
using model::kSeriesAgeMaxMs;
using model::kSeriesExpiryMs;
using model::kSeriesWindow;
using model::Lsn;
using model::ResultKind;
using model::Version;
using model::WriteKind;
using model::WriteOp;

constexpr Epoch kEpoch{3};

// A log and what is committed of it, by the simplest means: everything is applied in order, from the start, each time.
class Table {
 public:
  struct Entry {
    model::Record record;
    Lsn lsn;
    uint64_t elapsed_ms = 0;
  };
  struct State {
    std::map<std::string, std::pair<Version, std::string>> keys;
    std::map<std::string, Lsn> changed;  // deleted ones too
    std::map<uint64_t, ClientSeries> series;
    uint64_t now_ms = 0;
  };
  std::vector<Entry> log;
  Lsn commit;

  Lsn next() const { return log.empty() ? Lsn{1} : log.back().lsn.next(); }
  uint64_t time_ms(Lsn lsn) const {
    uint64_t ms = 0;
    for (const auto& e : log) ms += e.lsn <= lsn ? e.elapsed_ms : 0;
    return ms;
  }
  State upto(Lsn lsn) const {
    State s;
    for (const auto& e : log) {
      if (e.lsn > lsn) break;
      s.now_ms += e.elapsed_ms;
      const auto& r = e.record;
      if (r.op != model::Op::none) s.changed[r.key] = e.lsn;
      if (r.op == model::Op::put)
        s.keys[r.key] = {r.version, r.value};
      else if (r.op == model::Op::del)
        s.keys.erase(r.key);
      if (r.client != 0)
        s.series[r.client].window.add(
            {r.series, model::outcome_of({r.op, r.key, r.value, r.version, r.client, r.series, r.flags}).value(),
             s.now_ms});
    }
    return s;
  }
};

class Rig {
 public:
  Table table;
  bool broken = false, whole = true;
  Judge judge{CommittedState{[this](std::string_view key) { return value(key); },
                             [this](uint64_t client) { return series(client); },
                             [this] { return table.time_ms(table.commit); }}};
  int asked = 0;  // for series

  struct Ask {
    WriteKind kind = WriteKind::write;
    std::vector<WriteOp> ops;
    model::ExpectView expect{};
    int64_t by = 1;
    uint64_t client = 0, series = 0, age_ms = 0;
  };
  // Judged; what is new goes to the log.
  Verdict ask(const Ask& a, uint64_t elapsed_ms = 0) {
    const auto first = table.next();
    auto v = judge.judge({a.kind, a.ops, a.expect, a.by, a.client, a.series, a.age_ms}, kEpoch, first);
    if (const auto* w = std::get_if<NewWrite>(&v)) {
      Lsn lsn = first;
      for (const auto& r : w->records) {
        EXPECT_EQ(r.version, model::quorum_version(kEpoch, lsn));
        table.log.push_back({{r.op, std::string(r.key), std::string(r.value), r.version, r.client, r.series, r.flags},
                             lsn,
                             lsn == first ? elapsed_ms : 0});
        lsn = lsn.next();
      }
      EXPECT_EQ(w->outcome.lsn, table.log.back().lsn);
    }
    return v;
  }
  void commit(Lsn lsn) {  // the store shows it, and the judge is told
    table.commit = lsn;
    judge.committed(lsn);
  }
  void commit_all() { commit(table.next().value == 1 ? Lsn{} : table.log.back().lsn); }

 private:
  base::Result<std::optional<HeldValue>> value(std::string_view key) {
    if (broken) return base::fail(Code::unavailable, "the store cannot say");
    shown_ = table.upto(table.commit);
    const auto it = shown_.keys.find(std::string(key));
    if (it == shown_.keys.end()) return std::nullopt;
    return HeldValue{it->second.first, it->second.second};
  }
  base::Result<ClientSeries> series(uint64_t client) {
    if (broken) return base::fail(Code::unavailable, "the store cannot say");
    asked++;
    auto s = table.upto(table.commit);
    auto& out = s.series[client];
    out.now_ms = s.now_ms;
    out.whole = whole;
    return out;
  }
  Table::State shown_;
};

Rig::Ask put(std::string_view key, std::string_view value) {
  return {WriteKind::write, {{model::Op::put, key, value}}};
}
Rig::Ask del(std::string_view key) { return {WriteKind::write, {{model::Op::del, key, {}}}}; }
Rig::Ask incr(std::string_view key, int64_t by) { return {WriteKind::incr, {{model::Op::put, key, {}}}, {}, by}; }
Rig::Ask append(std::string_view key, std::string_view more) {
  return {WriteKind::append, {{model::Op::put, key, more}}};
}
Rig::Ask cas(std::string_view key, std::string_view value, model::ExpectView expect) {
  return {WriteKind::cas, {{model::Op::put, key, value}}, expect};
}
model::ExpectView absent() { return {{}, {}, true}; }
model::ExpectView holds(std::string_view value) { return {{}, value, false}; }
model::ExpectView at(Version v) { return {v, {}, false}; }
Rig::Ask as(uint64_t client, uint64_t series, Rig::Ask a, uint64_t age_ms = 0) {
  a.client = client;
  a.series = series;
  a.age_ms = age_ms;
  return a;
}

// "CODE@lsn", "repeat lsn value@lsn", "new lsn value", "refused lsn".
std::string says(const Verdict& v) {
  if (const auto* w = std::get_if<NewWrite>(&v); w != nullptr && w->refused) {
    EXPECT_EQ(w->refused->code, Code::condition_failed);
    EXPECT_EQ(w->outcome.kind, ResultKind::refused);
    return "refused " + model::to_string(w->outcome.lsn);
  }
  if (const auto* w = std::get_if<NewWrite>(&v))
    return "new " + model::to_string(w->outcome.lsn) + " " + std::to_string(w->outcome.value);
  if (const auto* r = std::get_if<Repeat>(&v))
    return "repeat " + model::to_string(r->outcome.lsn) + " " + std::to_string(r->outcome.value) + "@" +
           model::to_string(r->after);
  const auto& r = std::get<Refusal>(v);
  return std::string(base::code_name(r.error.code)) + "@" + model::to_string(r.after);
}

// --- conditions -----------------------------------------------------------------------------------

TEST(QuorumJudge, judges_against_the_end_of_the_log_committed_or_not) {
  Rig rig;
  EXPECT_EQ(says(rig.ask(put("k", "1"))), "new 1 0");
  EXPECT_EQ(says(rig.ask(cas("k", "2", holds("1")))), "new 2 0");             // of what is not committed
  EXPECT_EQ(says(rig.ask(cas("k", "3", holds("1")))), "CONDITION_FAILED@2");  // and not of what was overwritten
  EXPECT_EQ(says(rig.ask(cas("k", "3", at(model::quorum_version(kEpoch, {2}))))), "new 3 0");
  EXPECT_EQ(says(rig.ask(cas("k", "4", absent()))), "CONDITION_FAILED@3");
  EXPECT_EQ(says(rig.ask(del("k"))), "new 4 0");
  EXPECT_EQ(says(rig.ask(cas("k", "4", holds("3")))), "CONDITION_FAILED@4");
  EXPECT_EQ(says(rig.ask(cas("k", "5", absent()))), "new 5 0");
  rig.commit({5});
  EXPECT_EQ(rig.judge.pending(), 0U);
  EXPECT_EQ(says(rig.ask(cas("k", "6", absent()))), "CONDITION_FAILED@0");  // by what is committed: at once
  EXPECT_EQ(says(rig.ask(cas("k", "6", holds("5")))), "new 6 0");
}

TEST(QuorumJudge, a_refusal_waits_for_what_it_was_judged_by_and_for_nothing_else) {
  Rig rig;
  rig.ask(put("a", "1"));
  rig.ask(put("b", "1"));
  rig.ask(put("c", "1"));
  EXPECT_EQ(says(rig.ask(cas("b", "2", absent()))), "CONDITION_FAILED@2");
  EXPECT_EQ(says(rig.ask(cas("d", "2", holds("x")))), "CONDITION_FAILED@0");
  rig.commit({2});
  EXPECT_EQ(says(rig.ask(cas("b", "2", absent()))), "CONDITION_FAILED@0");
  EXPECT_EQ(says(rig.ask(cas("c", "2", absent()))), "CONDITION_FAILED@3");
}

TEST(QuorumJudge, a_failed_condition_says_which_version_is_there) {
  Rig rig;
  rig.ask(put("k", "1"));
  auto v = rig.ask(cas("k", "2", holds("x")));
  EXPECT_EQ(std::get<Refusal>(v).error.detail, model::to_string(model::quorum_version(kEpoch, {1})));
  v = rig.ask(cas("other", "2", holds("x")));
  EXPECT_EQ(std::get<Refusal>(v).error.detail, "");
  EXPECT_EQ(rig.judge.pending(), 1U);  // refusals leave nothing
}

// Of what was sent before another copy may still come, and by then the condition may hold (S23).
TEST(QuorumJudge, of_a_cas_that_was_sent_before_it_is_remembered_that_it_was_refused) {
  Rig rig;
  rig.ask(put("k", "1"));
  EXPECT_EQ(says(rig.ask(as(7, 1, cas("k", "9", holds("2"))))),
            "CONDITION_FAILED@1");  // the first time: it may come again
  EXPECT_EQ(says(rig.ask(as(7, 1, cas("k", "9", holds("2")), 1))), "refused 2");
  EXPECT_EQ(rig.table.log.back().record.op, model::Op::none);
  rig.ask(put("k", "2"));
  EXPECT_EQ(says(rig.ask(as(7, 1, cas("k", "9", holds("2"))))), "CONDITION_FAILED@2");
  EXPECT_EQ(says(rig.ask(cas("k", "3", holds("2")))), "new 4 0");  // by the put, not by what changes nothing
  rig.commit_all();
  EXPECT_EQ(rig.judge.pending(), 0U);
  EXPECT_EQ(says(rig.ask(as(7, 1, cas("k", "9", holds("2")), 5))), "CONDITION_FAILED@0");
  EXPECT_EQ(says(rig.ask(as(7, 2, cas("k", "4", holds("3")), 5))), "new 5 0");
  // Cut, it is judged again.
  EXPECT_EQ(says(rig.ask(as(7, 3, cas("k", "9", holds("2")), 1))), "refused 6");
  rig.table.log.pop_back();
  rig.judge.cut({6});
  EXPECT_EQ(says(rig.ask(cas("k", "2", holds("4")))), "new 6 0");
  EXPECT_EQ(says(rig.ask(as(7, 3, cas("k", "9", holds("2")), 1))), "new 7 0");
}

TEST(QuorumJudge, a_cas_deletes_too) {
  Rig rig;
  rig.ask(put("k", "1"));
  auto a = cas("k", "", holds("1"));
  a.ops[0].op = model::Op::del;
  EXPECT_EQ(says(rig.ask(a)), "new 2 0");
  EXPECT_EQ(rig.table.log.back().record.op, model::Op::del);
  EXPECT_EQ(says(rig.ask(a)), "CONDITION_FAILED@2");
}

TEST(QuorumJudge, an_incr_counts_from_nought_and_from_what_is_under_way) {
  Rig rig;
  EXPECT_EQ(says(rig.ask(incr("n", 5))), "new 1 5");
  EXPECT_EQ(says(rig.ask(incr("n", -7))), "new 2 -2");
  EXPECT_EQ(rig.table.log.back().record.value, "-2");
  EXPECT_EQ(rig.table.log.back().record.flags, model::result_flags(ResultKind::number));
  rig.commit_all();
  EXPECT_EQ(says(rig.ask(incr("n", 1))), "new 3 -1");
  rig.ask(del("n"));
  EXPECT_EQ(says(rig.ask(incr("n", 1))), "new 5 1");
}

TEST(QuorumJudge, an_incr_of_what_is_no_number_or_becomes_none_is_refused_without_effect) {
  Rig rig;
  rig.ask(put("k", "eleven"));
  EXPECT_EQ(says(rig.ask(incr("k", 1))), "INVALID@1");
  rig.ask(put("k", ""));
  EXPECT_EQ(says(rig.ask(incr("k", 1))), "INVALID@2");
  rig.ask(put("k", "9223372036854775807"));
  EXPECT_EQ(says(rig.ask(incr("k", 1))), "INVALID@3");
  EXPECT_EQ(says(rig.ask(incr("k", -1))), "new 4 9223372036854775806");
  rig.ask(put("k", "-9223372036854775808"));
  EXPECT_EQ(says(rig.ask(incr("k", -1))), "INVALID@5");
  EXPECT_EQ(says(rig.ask(incr("k", 0))), "new 6 -9223372036854775808");
  rig.ask(put("k", "9223372036854775808"));
  EXPECT_EQ(says(rig.ask(incr("k", -1))), "INVALID@7");
}

TEST(QuorumJudge, an_append_makes_the_key_and_tells_the_length) {
  Rig rig;
  EXPECT_EQ(says(rig.ask(append("k", "ab"))), "new 1 2");
  EXPECT_EQ(says(rig.ask(append("k", "cde"))), "new 2 5");
  EXPECT_EQ(rig.table.log.back().record.value, "abcde");
  EXPECT_EQ(rig.table.log.back().record.flags, model::result_flags(ResultKind::length));
  rig.commit_all();
  const std::string most(model::kValueMax - 5, 'x');
  EXPECT_EQ(says(rig.ask(append("k", most + "x"))), "TOO_LARGE@0");
  EXPECT_EQ(says(rig.ask(append("k", most))), "new 3 1048576");
  EXPECT_EQ(says(rig.ask(append("k", "x"))), "TOO_LARGE@3");
  EXPECT_EQ(says(rig.ask(append("k", ""))), "new 4 1048576");
}

// --- series ---------------------------------------------------------------------------------------

TEST(QuorumJudge, a_repeat_under_way_gets_its_result_when_that_is_committed) {
  Rig rig;
  rig.ask(put("n", "10"));
  EXPECT_EQ(says(rig.ask(as(7, 1, incr("n", 5)))), "new 2 15");
  rig.ask(incr("n", 100));
  EXPECT_EQ(says(rig.ask(as(7, 1, incr("n", 5)))), "repeat 2 15@2");
  EXPECT_EQ(rig.table.log.size(), 3U);
  rig.commit({1});
  EXPECT_EQ(says(rig.ask(as(7, 1, incr("n", 5)))), "repeat 2 15@2");
  rig.commit({2});
  EXPECT_EQ(says(rig.ask(as(7, 1, incr("n", 5)))), "repeat 2 15@0");
  EXPECT_EQ(says(rig.ask(as(8, 1, incr("n", 5)))), "new 4 120");  // another client
  EXPECT_EQ(says(rig.ask(as(7, 2, incr("n", 5)))), "new 5 125");  // another number
}

TEST(QuorumJudge, each_kind_of_result_is_found_again) {
  Rig rig;
  rig.ask(as(7, 1, put("k", "v")));
  rig.ask(as(7, 2, append("k", "vv")));
  rig.ask(as(7, 3, incr("n", -3)));
  rig.ask(as(7, 4, cas("k", "w", holds("vvv"))));
  rig.ask(as(7, 5, del("k")));
  for (int i = 0; i < 2; i++) {
    const std::string at = i == 0 ? "@" : "@0";
    const auto with = [&](const char* text, const char* lsn) { return text + at + (i == 0 ? lsn : ""); };
    EXPECT_EQ(says(rig.ask(as(7, 1, put("k", "v")))), with("repeat 1 0", "1"));
    EXPECT_EQ(says(rig.ask(as(7, 2, append("k", "vv")))), with("repeat 2 3", "2"));
    EXPECT_EQ(says(rig.ask(as(7, 3, incr("n", -3)))), with("repeat 3 -3", "3"));
    EXPECT_EQ(says(rig.ask(as(7, 4, cas("k", "w", holds("vvv"))))), with("repeat 4 0", "4"));  // though it would fail
    EXPECT_EQ(says(rig.ask(as(7, 5, del("k")))), with("repeat 5 0", "5"));
    rig.commit_all();
  }
}

TEST(QuorumJudge, a_batch_is_one_write_and_its_last_record_says_whose) {
  Rig rig;
  rig.ask(put("a", "1"));
  const Rig::Ask batch{WriteKind::write,
                       {{model::Op::put, "a", "2"}, {model::Op::del, "b", {}}, {model::Op::put, "c", "3"}}};
  EXPECT_EQ(says(rig.ask(as(7, 1, batch))), "new 4 0");
  EXPECT_EQ(rig.table.log[1].record.client, 0U);
  EXPECT_EQ(rig.table.log[3].record.client, 7U);
  EXPECT_EQ(rig.table.log[3].record.series, 1U);
  EXPECT_EQ(says(rig.ask(as(7, 1, batch))), "repeat 4 0@4");
  EXPECT_EQ(says(rig.ask(cas("a", "x", holds("1")))), "CONDITION_FAILED@2");
  rig.commit_all();
  EXPECT_EQ(says(rig.ask(as(7, 1, batch))), "repeat 4 0@0");
}

TEST(QuorumJudge, a_refused_write_is_judged_anew_when_it_is_sent_again) {
  Rig rig;
  EXPECT_EQ(says(rig.ask(as(7, 1, cas("k", "2", holds("1"))))), "CONDITION_FAILED@0");
  rig.ask(put("k", "1"));
  EXPECT_EQ(says(rig.ask(as(7, 1, cas("k", "2", holds("1"))))), "new 2 0");
  EXPECT_EQ(says(rig.ask(as(7, 1, cas("k", "2", holds("1"))))), "repeat 2 0@2");
}

TEST(QuorumJudge, below_the_window_is_too_old_and_in_it_is_new) {
  Rig rig;
  rig.ask(as(7, 100, put("k", "1")));
  EXPECT_EQ(says(rig.ask(as(7, 36, put("k", "2")))), "SERIES_OLD@1");
  EXPECT_EQ(says(rig.ask(as(7, 37, put("k", "2")))), "new 2 0");
  rig.commit({1});
  EXPECT_EQ(says(rig.ask(as(7, 36, put("k", "2")))), "SERIES_OLD@0");
  EXPECT_EQ(says(rig.ask(as(7, 37, put("k", "2")))), "repeat 2 0@2");
  rig.ask(as(7, 101, put("k", "3")));
  EXPECT_EQ(says(rig.ask(as(7, 37, put("k", "2")))), "SERIES_OLD@3");  // by what is under way
  EXPECT_EQ(says(rig.ask(as(8, 1, put("k", "2")))), "new 4 0");
  EXPECT_EQ(says(rig.ask(as(7, UINT64_MAX, put("k", "2")))), "new 5 0");
  EXPECT_EQ(says(rig.ask(as(7, 101, put("k", "2")))), "SERIES_OLD@5");
}

TEST(QuorumJudge, a_number_that_may_have_been_forgotten_is_not_written) {
  Rig rig;
  EXPECT_EQ(says(rig.ask(as(7, 1, put("k", "1"), kSeriesAgeMaxMs + 1))), "SERIES_EXPIRED@0");
  EXPECT_EQ(says(rig.ask(as(7, 1, put("k", "1"), kSeriesAgeMaxMs))), "new 1 0");
  EXPECT_EQ(says(rig.ask(as(7, 1, put("k", "1"), kSeriesAgeMaxMs + 1))), "repeat 1 0@1");  // it is known
  rig.commit_all();
  EXPECT_EQ(says(rig.ask(as(7, 1, put("k", "1"), kSeriesAgeMaxMs + 1))), "repeat 1 0@0");
  // Log time goes on.
  rig.ask(put("x", ""), kSeriesExpiryMs - 1);
  rig.commit_all();
  EXPECT_EQ(says(rig.ask(as(7, 1, put("k", "1"), kSeriesExpiryMs))), "repeat 1 0@0");
  rig.ask(put("x", ""), 1);
  rig.commit_all();
  EXPECT_EQ(says(rig.ask(as(7, 1, put("k", "1"), kSeriesExpiryMs))), "SERIES_EXPIRED@0");
  EXPECT_EQ(says(rig.ask(as(7, 1, put("k", "again")))), "new 4 0");  // a client that begins anew
}

TEST(QuorumJudge, an_old_window_does_not_outlive_its_entries) {
  Rig rig;
  rig.ask(as(7, 1000, put("k", "1")));
  rig.commit_all();
  rig.ask(put("x", ""), kSeriesExpiryMs);
  EXPECT_EQ(says(rig.ask(as(7, 1, put("k", "2")))), "SERIES_OLD@0");
  rig.commit_all();
  EXPECT_EQ(says(rig.ask(as(7, 1, put("k", "2")))), "new 3 0");
}

TEST(QuorumJudge, where_series_are_not_whole_what_was_sent_before_is_refused) {
  Rig rig;
  rig.whole = false;
  EXPECT_EQ(says(rig.ask(as(7, 1, put("k", "1"), 1))), "SERIES_EXPIRED@0");
  EXPECT_EQ(says(rig.ask(as(7, 1, put("k", "1")))), "new 1 0");
  EXPECT_EQ(says(rig.ask(as(7, 1, put("k", "1"), 1))), "repeat 1 0@1");
  EXPECT_EQ(says(rig.ask(put("k", "1"))), "new 2 0");
}

// --- the log's end moves --------------------------------------------------------------------------

TEST(QuorumJudge, what_was_cut_was_not_written) {
  Rig rig;
  rig.ask(as(7, 1, incr("n", 1)));
  rig.ask(as(7, 2, incr("n", 1)));
  rig.ask(as(7, 3, incr("n", 1)));
  const auto bytes = rig.judge.bytes();
  rig.judge.cut({2});
  rig.table.log.resize(1);
  EXPECT_EQ(rig.judge.pending(), 1U);
  EXPECT_LT(rig.judge.bytes(), bytes);
  EXPECT_EQ(says(rig.ask(as(7, 1, incr("n", 1)))), "repeat 1 1@1");
  EXPECT_EQ(says(rig.ask(as(7, 3, incr("n", 10)))), "new 2 11");
  rig.commit({1});
  rig.judge.cut({2});
  rig.table.log.resize(1);
  EXPECT_EQ(rig.judge.bytes(), 0U);
  EXPECT_EQ(says(rig.ask(as(7, 3, incr("n", 10)))), "new 2 11");  // the one before is committed by now
}

TEST(QuorumJudge, after_a_reset_nothing_is_left) {
  Rig rig;
  rig.ask(as(7, 1, incr("n", 1)));
  rig.ask(as(7, 2, incr("n", 1)));
  rig.commit({1});
  rig.judge.reset();
  rig.table.log.resize(1);
  EXPECT_EQ(rig.judge.pending(), 0U);
  EXPECT_EQ(rig.judge.bytes(), 0U);
  EXPECT_EQ(says(rig.ask(as(7, 2, incr("n", 1)))), "new 2 2");
  EXPECT_EQ(says(rig.ask(as(7, 2, incr("n", 1)))), "repeat 2 2@2");
}

TEST(QuorumJudge, nothing_is_judged_before_the_store_shows_what_was_in_the_log) {
  Rig rig;
  rig.ask(as(7, 1, incr("n", 1)));
  rig.ask(as(7, 2, incr("n", 1)));
  rig.commit({1});
  rig.judge.reset();  // both stay in the log of the next leadership, which the store shows up to the first
  EXPECT_EQ(says(rig.ask(as(7, 2, incr("n", 1)))), "OVERLOADED@0");
  EXPECT_EQ(says(rig.ask(put("k", "1"))), "OVERLOADED@0");
  EXPECT_EQ(rig.judge.pending(), 0U);
  rig.commit({2});
  EXPECT_EQ(says(rig.ask(as(7, 2, incr("n", 1)))), "repeat 2 2@0");
  EXPECT_EQ(says(rig.ask(as(7, 3, incr("n", 1)))), "new 3 3");
}

TEST(QuorumJudge, forgetting_one_write_of_a_key_leaves_the_next_one) {
  Rig rig;
  rig.ask(put("k", "1"));
  rig.ask(put("k", "2"));
  rig.judge.committed({1});  // the store shows it a little later
  EXPECT_EQ(says(rig.ask(cas("k", "3", holds("2")))), "new 3 0");
  rig.commit({2});
  EXPECT_EQ(says(rig.ask(cas("k", "4", holds("3")))), "new 4 0");
}

TEST(QuorumJudge, asks_the_store_once_for_a_client_that_goes_on) {
  Rig rig;
  for (uint64_t n = 1; n <= 200; n++) {
    const std::string count = std::to_string(n);
    EXPECT_EQ(says(rig.ask(as(7, n, incr("k", 1)), 1)), "new " + count + " " + count);
    if (n % 3 == 0) rig.commit_all();
    EXPECT_EQ(says(rig.ask(as(7, n, incr("k", 1)))),
              "repeat " + count + " " + count + (n % 3 == 0 ? "@0" : "@" + count));
  }
  EXPECT_EQ(rig.asked, 1);
  // Log time made a leap: when each of them was written is not known here any more.
  rig.ask(as(7, 201, incr("k", 1)), kWindowSlackMs + 1);
  rig.commit_all();
  EXPECT_EQ(says(rig.ask(as(7, 201, incr("k", 1)))), "repeat 201 201@0");
  EXPECT_EQ(rig.asked, 2);
  // Another leader may have written in between.
  rig.judge.reset();
  rig.judge.committed(rig.table.commit);
  EXPECT_EQ(says(rig.ask(as(7, 201, incr("k", 1)))), "repeat 201 201@0");
  EXPECT_EQ(rig.asked, 3);
}

TEST(QuorumJudge, remembers_a_bounded_number_of_clients) {
  Rig rig;
  const auto round = [&](uint64_t clients, uint64_t series) {
    for (uint64_t c = 1; c <= clients; c++) {
      rig.ask(as(c, series, put("k", "v")));
      rig.commit_all();
    }
  };
  round(kWindowsMax, 1);
  EXPECT_EQ(rig.asked, static_cast<int>(kWindowsMax));
  round(kWindowsMax, 2);
  EXPECT_EQ(rig.asked, static_cast<int>(kWindowsMax));
  round(kWindowsMax + 1, 3);
  EXPECT_EQ(rig.asked, static_cast<int>(kWindowsMax) + 1);
  // Whoever had to make room is known from the store.
  for (uint64_t c = 1; c <= kWindowsMax + 1; c++)
    EXPECT_EQ(says(rig.ask(as(c, 3, put("k", "v")))).substr(0, 6), "repeat");
}

TEST(QuorumJudge, a_store_that_cannot_say_is_an_error_without_effect) {
  Rig rig;
  rig.broken = true;
  EXPECT_EQ(says(rig.ask(as(7, 1, put("k", "1")))), "UNAVAILABLE@0");
  EXPECT_EQ(says(rig.ask(incr("k", 1))), "UNAVAILABLE@0");
  EXPECT_EQ(says(rig.ask(put("k", "1"))), "new 1 0");  // it need not ask
  EXPECT_EQ(says(rig.ask(incr("k", 1))), "new 2 2");
}

TEST(QuorumJudge, memory_has_a_bound) {
  Rig rig;
  const std::string value(model::kValueMax, 'v');
  size_t n = 0;
  Verdict v = rig.ask(put("k0", value));
  while (std::holds_alternative<NewWrite>(v) && n < 1000) v = rig.ask(put("k" + std::to_string(++n), value));
  EXPECT_EQ(says(v), "OVERLOADED@0");
  EXPECT_GT(std::get<Refusal>(v).error.retry_after_ms, 0U);
  EXPECT_LE(rig.judge.bytes(), kPendingMax);
  EXPECT_GT(rig.judge.bytes(), kPendingMax / 2);
  rig.commit({1});
  EXPECT_TRUE(std::holds_alternative<NewWrite>(rig.ask(put("k", value.substr(1000)))));
  rig.commit_all();
  EXPECT_EQ(rig.judge.bytes(), 0U);
}

// --- against a model ------------------------------------------------------------------------------

// What the same write would get if everything before it in the log had been committed.
std::string expected(const Table& table, const Rig::Ask& a, Lsn told, bool whole) {
  const auto end = table.upto({UINT64_MAX});
  const auto shown = table.upto(table.commit);
  const auto after = [&](Lsn lsn) { return "@" + model::to_string(lsn > told ? lsn : Lsn{}); };
  if (a.client != 0) {
    ClientSeries known;
    if (const auto it = shown.series.find(a.client); it != shown.series.end()) known = it->second;
    known.window.expire(shown.now_ms);
    auto all = known.window;
    Lsn high = {};
    for (const auto& e : table.log) {
      if (e.lsn <= told || e.record.client != a.client) continue;
      const auto& r = e.record;
      if (r.series > all.high() || (all.find(r.series) != nullptr && r.series == all.high())) high = e.lsn;
      all.add({r.series, model::outcome_of({r.op, r.key, r.value, r.version, r.client, r.series, r.flags}).value(),
               shown.now_ms});
    }
    if (known.window.high() >= 64 && a.series <= known.window.high() - 64) return "SERIES_OLD@0";
    if (all.high() >= 64 && a.series <= all.high() - 64) return "SERIES_OLD" + after(high);
    if (const auto* e = all.find(a.series); e != nullptr && e->outcome.kind == ResultKind::refused)
      return "CONDITION_FAILED" + after(e->outcome.lsn);
    if (const auto* e = all.find(a.series))
      return "repeat " + model::to_string(e->outcome.lsn) + " " + std::to_string(e->outcome.value) +
             after(e->outcome.lsn);
    if (a.age_ms > kSeriesExpiryMs / 2 || (!whole && a.age_ms > 0)) return "SERIES_EXPIRED@0";
  }
  Lsn lsn = {table.next().value + a.ops.size() - 1};
  const std::string fresh = "new " + model::to_string(lsn) + " ";
  if (a.kind == WriteKind::write) return fresh + "0";
  const std::string key(a.ops[0].key);
  const auto it = end.keys.find(key);
  const bool there = it != end.keys.end();
  const auto changed = end.changed.contains(key) ? end.changed.at(key) : Lsn{};
  switch (a.kind) {
    case WriteKind::cas: {
      const bool holds = a.expect.absent    ? !there
                         : a.expect.version ? there && it->second.first == *a.expect.version
                                            : there && it->second.second == *a.expect.value;
      if (holds) return fresh + "0";
      if (a.client != 0 && a.age_ms > 0) return "refused " + model::to_string(lsn);
      return "CONDITION_FAILED" + after(changed);
    }
    case WriteKind::append: {
      const size_t size = (there ? it->second.second.size() : 0) + a.ops[0].value.size();
      return size > model::kValueMax ? "TOO_LARGE" + after(changed) : fresh + std::to_string(size);
    }
    default: break;
  }
  const std::string text = there ? it->second.second : "0";
  char* stop = nullptr;
  errno = 0;
  const long long n = std::strtoll(text.c_str(), &stop, 10);
  if (errno != 0 || text.empty() || stop != text.c_str() + text.size()) return "INVALID" + after(changed);
  if (a.by > 0 ? n > INT64_MAX - a.by : n < INT64_MIN - a.by) return "INVALID" + after(changed);
  return fresh + std::to_string(n + a.by);
}

TEST(QuorumJudge, says_what_a_simple_model_says_under_many_schedules) {
  std::map<std::string, int> seen;
  int undone = 0;
  for (uint64_t seed = 1; seed <= 300 && !HasFailure(); seed++) {
    SCOPED_TRACE(seed);
    base::SeededRandom random(seed);
    Rig rig;
    rig.whole = random.below(4) != 0;
    Lsn told;
    const std::string big(model::kValueMax - 3, '7');
    const std::vector<std::string> keys = {"a", "b", "c"};
    const std::vector<std::string> values = {"0", "7", "-7", "x", "", "9223372036854775807"};
    std::vector<Rig::Ask> sent;  // that may be sent again
    for (int step = 0; step < 120 && !HasFailure(); step++) {
      switch (random.below(12)) {
        case 0:
        case 1: {  // more is committed
          const auto end = rig.table.next().value - 1;
          told.value = rig.table.commit.value + random.below(end - rig.table.commit.value + 1);
          rig.commit(told);
          break;
        }
        case 2: {  // a block was not built
          if (random.below(3) != 0) break;
          const Lsn from{rig.table.commit.value + 1 + random.below(rig.table.next().value - rig.table.commit.value)};
          std::erase_if(rig.table.log, [&](const auto& e) { return e.lsn >= from; });
          rig.judge.cut(from);
          undone++;
          break;
        }
        case 3:  // another leadership
          if (random.below(4) != 0) break;
          std::erase_if(rig.table.log, [&](const auto& e) { return e.lsn > rig.table.commit; });
          rig.judge.reset();
          told = rig.table.commit;
          rig.judge.committed(told);
          undone++;
          break;
        default: {
          Rig::Ask a;
          if (!sent.empty() && random.below(3) == 0) {
            a = sent[sent.size() - 1 - random.below(std::min<size_t>(sent.size(), 20))];
            if (random.below(3) == 0) a.age_ms = random.below(2) * kSeriesExpiryMs + 1;
          } else {
            const auto& key = keys[random.below(keys.size())];
            const std::string_view value = random.below(20) == 0 ? big : values[random.below(values.size())];
            switch (random.below(5)) {
              case 0: a = put(key, value); break;
              case 1:
                a = random.below(2) == 0 ? del(key)
                                         : Rig::Ask{WriteKind::write,
                                                    {{model::Op::put, keys[0], value},
                                                     {model::Op::del, keys[1], {}},
                                                     {model::Op::put, keys[2], values[0]}}};
                break;
              case 2: a = incr(key, static_cast<int64_t>(random.below(3)) - 1); break;
              case 3: a = append(key, value); break;
              default: {
                const auto changed = rig.table.upto({UINT64_MAX}).changed;
                const auto lsn = changed.contains(key) ? changed.at(key) : Lsn{1};
                const auto which = random.below(3);
                a = cas(key, value,
                        which == 0   ? absent()
                        : which == 1 ? holds(values[random.below(values.size())])
                                     : at(model::quorum_version(kEpoch, lsn)));
              }
            }
            if (random.below(4) != 0) {
              a.client = 1 + random.below(3);
              a.series = 1 + random.below(random.below(8) == 0 ? 200 : 70);
              sent.push_back(a);
            }
          }
          const auto want = expected(rig.table, a, told, rig.whole);
          const auto got = says(rig.ask(a, random.below(8) == 0 ? random.below(kSeriesExpiryMs / 2) : 0));
          EXPECT_EQ(got, want) << "step " << step;
          seen[got.substr(0, got.find_first_of(" @"))]++;
          if (got.starts_with("repeat")) seen[got.ends_with("@0") ? "repeat now" : "repeat later"]++;
          if (got.starts_with("SERIES_OLD")) seen[got.ends_with("@0") ? "old now" : "old later"]++;
          if (got.starts_with("COND")) seen[got.ends_with("@0") ? "failed now" : "failed later"]++;
        }
      }
    }
    rig.commit_all();
    EXPECT_EQ(rig.judge.bytes(), 0U);
    EXPECT_EQ(rig.judge.pending(), 0U);
  }
  for (const char* what : {"new", "refused", "repeat now", "repeat later", "old now", "old later", "failed now",
                           "failed later", "INVALID", "TOO_LARGE", "SERIES_EXPIRED"})
    EXPECT_GT(seen[what], 20) << what;
  EXPECT_GT(undone, 300);
}

}  // namespace
}  // namespace cantle::proto::quorum
