#include "lib/proto/metadata_commit.h"

#include "test/unit/proto/metadata_rig.h"

namespace cantle::proto {
namespace {

using namespace commit;
using base::Code;

class MetadataCommitTest : public MetadataRig {
 protected:
  MetadataCommitTest() { change_ = model::ChangeId::draw(random_); }

  void make(model::TxnId base = {}, bool creates = false) {
    Request r;
    r.change = change_;
    r.base = base;
    r.creates = creates;
    if (creates) r.metadata_servers = {A, B, C};
    r.deadline = at(10000);
    machine_ = std::make_unique<MetadataCommit>(std::move(r), random_);
  }
  Effects step(Input in) { return machine_->step(in); }

  template <class T>
  static const T* find(const Effects& effects) {
    for (const auto& e : effects)
      if (const auto* x = std::get_if<T>(&e)) return x;
    return nullptr;
  }
  template <class T>
  static size_t count(const Effects& effects) {
    size_t n = 0;
    for (const auto& e : effects) n += std::holds_alternative<T>(e) ? 1 : 0;
    return n;
  }
  // What the answer says: "ok", or the name of the error.
  static std::string outcome(const Effects& effects) {
    const auto* r = find<Reply>(effects);
    if (r == nullptr) return "none";
    return r->outcome ? (r->outcome->already ? "already" : "ok")
                      : std::string(base::code_name(r->outcome.error().code));
  }

  // Up to the point where all three were asked to store.
  void to_storing() {
    make();
    EXPECT_EQ(step(Proposed{at(0)}), Effects{Read{false}});
    EXPECT_EQ(step(ConfigRead{at(1), read(config(base_, 7))}), Effects{Load{base_->txnid}});
    build();
  }
  // From Loaded to Store.
  void build() {
    const auto loaded = step(Loaded{at(2), base_});
    ASSERT_TRUE(find<Build>(loaded));
    txnid_ = find<Build>(loaded)->txnid;
    file_ = next(base_, change_, txnid_);
    EXPECT_EQ(step(Built{at(3), BuiltFile{file_, hash_of(txnid_)}}),
              (Effects{Store{A, txnid_}, Store{B, txnid_}, Store{C, txnid_}}));
  }
  Effects stored(const model::ServerId& by) { return step(Stored{at(4), by, txnid_, base::ok()}); }
  Swap swap_at(int32_t version) const {
    Swap s{version, config(base_, version).config};
    model::set_current(s.to, *file_, hash_of(txnid_));
    return s;
  }
  void to_swapping() {
    to_storing();
    stored(A);
    EXPECT_EQ(stored(C), Effects{swap_at(7)});
  }

  model::ChangeId change_;
  model::TxnId txnid_;
  MapPtr file_;
  std::unique_ptr<MetadataCommit> machine_;
};

TEST_F(MetadataCommitTest, swaps_once_a_majority_has_stored) {
  to_storing();
  EXPECT_EQ(stored(A), Effects{});
  EXPECT_EQ(stored(A), Effects{});  // a repeated answer is not a second vote
  EXPECT_EQ(stored(C), Effects{swap_at(7)});
  EXPECT_EQ(stored(B), Effects{});
  const auto done = step(Swapped{at(5), SwapResult::done});
  EXPECT_EQ(done, (Effects{Reply{Committed{txnid_, file_->txnseq, false}}}));
  EXPECT_TRUE(machine_->ended());
  EXPECT_EQ(step(Tick{at(20000)}), Effects{});
}

TEST_F(MetadataCommitTest, a_vote_of_a_server_that_is_not_listed_does_not_count) {
  to_storing();
  stored(A);
  EXPECT_EQ(stored(D), Effects{});
  EXPECT_NE(find<Swap>(stored(B)), nullptr);
}

TEST_F(MetadataCommitTest, a_majority_of_two_is_two) {
  make();
  step(Proposed{at(0)});
  step(ConfigRead{at(1), read(config(base_, 7, {A, B}))});
  txnid_ = find<Build>(step(Loaded{at(2), base_}))->txnid;
  file_ = next(base_, change_, txnid_);
  step(Built{at(3), BuiltFile{file_, hash_of(txnid_)}});
  EXPECT_EQ(stored(A), Effects{});
  EXPECT_NE(find<Swap>(stored(B)), nullptr);
}

TEST_F(MetadataCommitTest, a_change_in_the_chain_is_not_made_again) {  // S28
  make();
  step(Proposed{at(0)});
  const auto current = next(next(base_, change_, model::TxnId::draw(random_)));
  step(ConfigRead{at(1), read(config(current, 9))});
  EXPECT_EQ(step(Loaded{at(2), current}), (Effects{Reply{Committed{{}, current->txnseq, true}}}));
}

TEST_F(MetadataCommitTest, another_base_than_the_one_named_is_a_conflict) {
  make(model::TxnId::draw(random_));
  step(Proposed{at(0)});
  step(ConfigRead{at(1), read(config(base_, 7))});
  const auto out = step(Loaded{at(2), base_});
  EXPECT_EQ(outcome(out), "CONFLICT");
  EXPECT_EQ(find<Reply>(out)->outcome.error().detail, to_string(base_->txnid));
}

TEST_F(MetadataCommitTest, an_invalid_change_stores_nothing) {
  make();
  step(Proposed{at(0)});
  step(ConfigRead{at(1), read(config(base_, 7))});
  step(Loaded{at(2), base_});
  const auto out = step(Built{at(3), base::fail(Code::invalid, "rule cover")});
  EXPECT_EQ(out.size(), 1U);
  EXPECT_EQ(outcome(out), "INVALID");
}

TEST_F(MetadataCommitTest, what_nobody_can_remember_is_unknown) {
  MapPtr current = base_;
  for (int i = 0; i < 300; i++) current = next(current);
  Request r;
  r.change = change_;
  r.since = {1};
  r.deadline = at(10000);
  machine_ = std::make_unique<MetadataCommit>(std::move(r), random_);
  step(Proposed{at(0)});
  step(ConfigRead{at(1), read(config(current, 400))});
  EXPECT_EQ(outcome(step(Loaded{at(2), current})), "OUTCOME_UNKNOWN");
}

TEST_F(MetadataCommitTest, a_hash_that_differs_aborts_and_alarms) {
  to_storing();
  stored(A);
  const auto out = step(Stored{at(4), B, txnid_, base::fail(Code::diverged, "another hash")});
  EXPECT_NE(find<Alarm>(out), nullptr);
  EXPECT_EQ(*find<Discard>(out), (Discard{txnid_, {A, B, C}}));
  EXPECT_EQ(outcome(out), "DIVERGED");
}

TEST_F(MetadataCommitTest, a_store_that_failed_is_asked_again) {
  to_storing();
  stored(A);
  EXPECT_EQ(step(Stored{at(4), B, txnid_, base::fail(Code::unavailable, "away")}), Effects{});
  EXPECT_EQ(step(Tick{at(10)}), Effects{});
  EXPECT_EQ(step(Tick{at(60)}), (Effects{Store{B, txnid_}}));
  EXPECT_NE(find<Swap>(stored(B)), nullptr);
}

TEST_F(MetadataCommitTest, a_lost_race_starts_over_on_the_new_base) {
  to_swapping();
  EXPECT_EQ(step(Swapped{at(5), SwapResult::conflict}), Effects{Read{true}});
  const auto other = next(base_);
  EXPECT_EQ(step(ConfigRead{at(6), read(config(other, 8))}), Effects{Load{other->txnid}});
  const auto out = step(Loaded{at(7), other});
  EXPECT_EQ(out, (Effects{Discard{txnid_, {A, B, C}}, Read{true}}));
  step(ConfigRead{at(8), read(config(other, 8))});
  const auto again = step(Loaded{at(9), other});
  EXPECT_EQ(find<Build>(again)->base, other);
  EXPECT_NE(find<Build>(again)->txnid, txnid_);  // a new identity for each attempt
}

TEST_F(MetadataCommitTest, a_lost_race_on_a_named_base_is_a_conflict) {
  make(base_->txnid);
  step(Proposed{at(0)});
  step(ConfigRead{at(1), read(config(base_, 7))});
  build();
  stored(A);
  stored(B);
  step(Swapped{at(5), SwapResult::conflict});
  const auto other = next(base_);
  step(ConfigRead{at(6), read(config(other, 8))});
  const auto out = step(Loaded{at(7), other});
  EXPECT_NE(find<Discard>(out), nullptr);
  EXPECT_EQ(outcome(out), "CONFLICT");
}

// What it rests on besides TableConfig has changed: it would be refused for ever, and others wait behind it.
TEST_F(MetadataCommitTest, a_swap_refused_for_what_it_rests_on_is_a_conflict_at_once) {
  to_swapping();
  const auto out = step(Swapped{at(5), SwapResult::refused});
  EXPECT_NE(find<Discard>(out), nullptr);
  EXPECT_EQ(outcome(out), "CONFLICT");
}

TEST_F(MetadataCommitTest, a_refused_swap_that_was_an_own_earlier_one_is_success) {  // S28
  to_swapping();
  step(Swapped{at(5), SwapResult::conflict});
  EXPECT_EQ(step(ConfigRead{at(6), read(config(file_, 8))}), (Effects{Reply{Committed{txnid_, file_->txnseq, false}}}));
}

TEST_F(MetadataCommitTest, a_refused_swap_whose_change_stands_in_the_chain_is_success) {
  to_swapping();
  step(Swapped{at(5), SwapResult::conflict});
  const auto later = next(file_);
  EXPECT_EQ(step(ConfigRead{at(6), read(config(later, 9))}), Effects{Load{later->txnid}});
  EXPECT_EQ(step(Loaded{at(7), later}), (Effects{Reply{Committed{{}, later->txnseq, true}}}));
}

TEST_F(MetadataCommitTest, only_the_version_moved_so_it_swaps_again) {
  to_swapping();
  step(Swapped{at(5), SwapResult::conflict});
  EXPECT_EQ(step(ConfigRead{at(6), read(config(base_, 8))}), Effects{swap_at(8)});
}

TEST_F(MetadataCommitTest, a_list_that_changed_needs_a_majority_of_its_own) {
  to_swapping();  // A and C have it
  step(Swapped{at(5), SwapResult::conflict});
  EXPECT_EQ(step(ConfigRead{at(6), read(config(base_, 8, {A, B, D}))}),
            (Effects{Store{D, txnid_}}));  // B was asked before
  const auto out = stored(D);
  ASSERT_NE(find<Swap>(out), nullptr);
  EXPECT_EQ(find<Swap>(out)->version, 8);
  EXPECT_EQ(find<Swap>(out)->to.metadata_servers, (std::vector<model::ServerId>{A, B, D}));
}

TEST_F(MetadataCommitTest, a_lost_answer_is_looked_into_and_was_success) {  // S27
  to_swapping();
  EXPECT_EQ(step(Swapped{at(5), SwapResult::unknown}), Effects{Read{true}});
  EXPECT_EQ(step(ConfigRead{at(6), away()}), Effects{});
  EXPECT_EQ(step(Tick{at(70)}), Effects{Read{true}});
  EXPECT_EQ(step(ConfigRead{at(71), read(config(file_, 8))}),
            (Effects{Reply{Committed{txnid_, file_->txnseq, false}}}));
}

TEST_F(MetadataCommitTest, a_lost_answer_that_did_not_happen_yet_is_swapped_again_and_nothing_is_discarded) {  // S27
  to_swapping();
  step(Swapped{at(5), SwapResult::unknown});
  const auto out = step(ConfigRead{at(6), read(config(base_, 7))});
  EXPECT_EQ(out, Effects{swap_at(7)});
  // The first one arrives after all and refuses the second.
  step(Swapped{at(7), SwapResult::conflict});
  EXPECT_EQ(outcome(step(ConfigRead{at(8), read(config(file_, 8))})), "ok");
}

TEST_F(MetadataCommitTest, before_it_says_no_it_fences_what_may_be_under_way) {  // S27
  to_swapping();
  step(Swapped{at(5), SwapResult::unknown});
  EXPECT_EQ(step(ConfigRead{at(6), away()}), Effects{});
  EXPECT_EQ(step(Tick{at(10001)}), Effects{Read{true}});  // the requester's time is over
  const auto fence = step(ConfigRead{at(10002), read(config(base_, 7))});
  EXPECT_EQ(fence, (Effects{Fence{7, config(base_, 7).config}}));
  const auto out = step(Fenced{at(10003), SwapResult::done});
  EXPECT_EQ(*find<Discard>(out), (Discard{txnid_, {A, B, C}}));
  EXPECT_EQ(outcome(out), "UNAVAILABLE");
}

TEST_F(MetadataCommitTest, a_fence_that_lost_the_race_finds_the_swap_done) {
  to_swapping();
  step(Swapped{at(5), SwapResult::unknown});
  step(ConfigRead{at(6), away()});
  step(Tick{at(10001)});
  step(ConfigRead{at(10002), read(config(base_, 7))});
  EXPECT_EQ(step(Fenced{at(10003), SwapResult::conflict}), Effects{Read{true}});
  EXPECT_EQ(outcome(step(ConfigRead{at(10004), read(config(file_, 8))})), "ok");
}

TEST_F(MetadataCommitTest, what_cannot_be_found_out_in_time_is_unknown_and_nothing_is_discarded) {
  to_swapping();
  step(Swapped{at(5), SwapResult::unknown});
  step(ConfigRead{at(6), away()});
  Effects all;
  for (int64_t ms = 60; ms < 20000; ms += 50) {
    for (auto& e : step(Tick{at(ms)})) {
      all.push_back(e);
      if (std::holds_alternative<Read>(e)) step(ConfigRead{at(ms), away()});
    }
  }
  EXPECT_EQ(outcome(all), "OUTCOME_UNKNOWN");
  EXPECT_EQ(count<Discard>(all), 0U);
  EXPECT_EQ(count<Reply>(all), 1U);
}

TEST_F(MetadataCommitTest, out_of_time_before_any_swap_is_certain_not_to_have_happened) {
  to_storing();
  stored(A);
  const auto out = step(Tick{at(10001)});
  EXPECT_NE(find<Discard>(out), nullptr);
  EXPECT_EQ(outcome(out), "UNAVAILABLE");
}

TEST_F(MetadataCommitTest, a_swap_without_an_answer_is_unknown_in_the_end) {
  to_swapping();
  EXPECT_EQ(step(Tick{at(10001)}), Effects{});
  const auto out = step(Tick{at(13001)});
  EXPECT_EQ(outcome(out), "OUTCOME_UNKNOWN");
  EXPECT_EQ(count<Discard>(out), 0U);
}

TEST_F(MetadataCommitTest, a_swap_that_never_left_is_made_again) {
  to_swapping();
  EXPECT_EQ(step(Swapped{at(5), SwapResult::unsent}), Effects{});
  EXPECT_EQ(step(Tick{at(60)}), Effects{Read{true}});
  EXPECT_EQ(step(ConfigRead{at(61), read(config(base_, 7))}), Effects{swap_at(7)});
}

TEST_F(MetadataCommitTest, a_table_is_created_where_there_is_none) {
  make({}, true);
  step(Proposed{at(0)});
  const auto out = step(ConfigRead{at(1), nothing()});
  ASSERT_NE(find<Build>(out), nullptr);
  EXPECT_EQ(find<Build>(out)->base, nullptr);
  txnid_ = find<Build>(out)->txnid;
  auto first = *base_;
  first.txnid = txnid_;
  first.changes = {change_};
  file_ = std::make_shared<const model::Metadata>(first);
  EXPECT_EQ(count<Store>(step(Built{at(2), BuiltFile{file_, hash_of(txnid_)}})), 3U);
  stored(A);
  const auto swap = stored(B);
  ASSERT_NE(find<Swap>(swap), nullptr);
  EXPECT_EQ(find<Swap>(swap)->version, kCreateVersion);
  EXPECT_EQ(find<Swap>(swap)->to.metadata_servers, (std::vector<model::ServerId>{A, B, C}));
  // The answer was lost, and it had happened.
  step(Swapped{at(5), SwapResult::unknown});
  EXPECT_EQ(outcome(step(ConfigRead{at(6), read(config(file_, 0))})), "ok");
}

TEST_F(MetadataCommitTest, a_lost_creation_is_tried_again) {
  make({}, true);
  step(Proposed{at(0)});
  txnid_ = find<Build>(step(ConfigRead{at(1), nothing()}))->txnid;
  auto first = *base_;
  first.txnid = txnid_;
  file_ = std::make_shared<const model::Metadata>(first);
  step(Built{at(2), BuiltFile{file_, hash_of(txnid_)}});
  stored(A);
  stored(B);
  step(Swapped{at(5), SwapResult::unknown});
  EXPECT_NE(find<Swap>(step(ConfigRead{at(6), nothing()})), nullptr);
}

TEST_F(MetadataCommitTest, there_is_no_such_table) {
  make();
  step(Proposed{at(0)});
  EXPECT_EQ(outcome(step(ConfigRead{at(1), nothing()})), "NO_SUCH_TABLE");
}

TEST_F(MetadataCommitTest, a_coordination_service_that_went_back_ends_it) {  // S36
  make();
  step(Proposed{at(0)});
  EXPECT_EQ(outcome(step(ConfigRead{at(1), base::fail(Code::regressed, "txnseq 3 after 5")})), "REGRESSED");
}

TEST_F(MetadataCommitTest, someone_ahead_of_us_is_found_out_by_reading_again) {
  to_storing();
  const auto out = step(Stored{at(4), B, txnid_, base::fail(Code::conflict, "txnseq 9 is current already")});
  EXPECT_NE(find<Discard>(out), nullptr);
  EXPECT_NE(find<Read>(out), nullptr);
}

}  // namespace
}  // namespace cantle::proto
