#include "lib/proto/metadata_member.h"

#include "test/unit/proto/metadata_rig.h"

namespace cantle::proto {
namespace {

using namespace member;
using base::Code;

class MetadataMemberTest : public MetadataRig {
 protected:
  void make(Kind kind, const model::ServerId& server) {
    machine_ = std::make_unique<MetadataMember>(Request{kind, server, at(10000)});
  }
  Effects step(Input in) { return machine_->step(in); }
  Effects loaded(const MapPtr& map) { return step(Loaded{at(2), map}); }
  static std::string outcome(const Effects& effects) {
    for (const auto& e : effects)
      if (const auto* r = std::get_if<Reply>(&e))
        return r->outcome ? "ok" : std::string(base::code_name(r->outcome.error().code));
    return "none";
  }
  static Swap swap_to(const VersionedConfig& c, std::vector<model::ServerId> list) {
    Swap s{c.version, c.config};
    s.to.metadata_servers = std::move(list);
    return s;
  }
  Effects stored(const model::ServerId& by) { return step(Stored{at(3), by, base_->txnid, base::ok()}); }

  std::unique_ptr<MetadataMember> machine_;
};

TEST_F(MetadataMemberTest, a_server_joins_with_the_current_file_durable) {
  make(Kind::join, D);
  EXPECT_EQ(step(Asked{at(0)}), Effects{Read{}});
  EXPECT_EQ(step(ConfigRead{at(1), read(config(base_, 4))}), (Effects{Load{base_->txnid}}));
  EXPECT_EQ(loaded(base_), (Effects{swap_to(config(base_, 4), {A, B, C, D})}));
  EXPECT_EQ(step(Swapped{at(3), SwapResult::done}), (Effects{Reply{Members{{A, B, C, D}, base_->txnseq}}}));
}

TEST_F(MetadataMemberTest, one_who_lost_the_race_starts_again) {
  make(Kind::join, D);
  step(Asked{at(0)});
  step(ConfigRead{at(1), read(config(base_, 4))});
  loaded(base_);
  EXPECT_EQ(step(Swapped{at(3), SwapResult::conflict}), Effects{Read{}});
  const auto f = next(base_);
  EXPECT_EQ(step(ConfigRead{at(4), read(config(f, 5))}), (Effects{Load{f->txnid}}));
}

TEST_F(MetadataMemberTest, a_lost_answer_is_read_off_the_list) {
  make(Kind::join, D);
  step(Asked{at(0)});
  step(ConfigRead{at(1), read(config(base_, 4))});
  loaded(base_);
  EXPECT_EQ(step(Swapped{at(3), SwapResult::unknown}), Effects{Read{}});
  EXPECT_EQ(outcome(step(ConfigRead{at(4), read(config(base_, 5, {A, B, C, D}))})), "ok");
}

TEST_F(MetadataMemberTest, a_member_has_joined_already) {
  make(Kind::join, B);
  step(Asked{at(0)});
  EXPECT_EQ(outcome(step(ConfigRead{at(1), read(config(base_, 4))})), "ok");
}

TEST_F(MetadataMemberTest, a_leave_waits_for_a_majority_of_the_remaining) {  // S30
  make(Kind::leave, A);
  step(Asked{at(0)});
  step(ConfigRead{at(1), read(config(base_, 4, {A, B, C, D}))});
  EXPECT_EQ(loaded(base_), (Effects{Store{B, base_->txnid}, Store{C, base_->txnid}, Store{D, base_->txnid}}));
  EXPECT_EQ(stored(B), Effects{});
  EXPECT_EQ(stored(A), Effects{});  // the one that leaves is no vote
  EXPECT_EQ(stored(D), (Effects{swap_to(config(base_, 4), {B, C, D})}));
}

TEST_F(MetadataMemberTest, a_leave_without_a_majority_is_refused) {  // S30
  make(Kind::leave, A);
  step(Asked{at(0)});
  step(ConfigRead{at(1), read(config(base_, 4))});
  loaded(base_);
  stored(B);
  EXPECT_EQ(step(Stored{at(3), C, base_->txnid, base::fail(Code::unavailable, "away")}), Effects{});
  EXPECT_EQ(step(Tick{at(100)}), (Effects{Store{C, base_->txnid}}));
  EXPECT_EQ(outcome(step(Tick{at(10001)})), "UNAVAILABLE");
}

TEST_F(MetadataMemberTest, the_last_one_does_not_leave) {
  make(Kind::leave, A);
  step(Asked{at(0)});
  EXPECT_EQ(outcome(step(ConfigRead{at(1), read(config(base_, 4, {A}))})), "INVALID");
}

TEST_F(MetadataMemberTest, a_leave_whose_base_has_passed_starts_again) {
  make(Kind::leave, A);
  step(Asked{at(0)});
  step(ConfigRead{at(1), read(config(base_, 4))});
  loaded(base_);
  EXPECT_EQ(step(Stored{at(3), B, base_->txnid, base::fail(Code::conflict, "another is current")}), Effects{Read{}});
}

TEST_F(MetadataMemberTest, what_cannot_be_found_out_is_unknown) {
  make(Kind::leave, A);
  step(Asked{at(0)});
  step(ConfigRead{at(1), read(config(base_, 4))});
  loaded(base_);
  stored(B);
  stored(C);
  step(Swapped{at(4), SwapResult::unknown});
  step(ConfigRead{at(5), away()});
  EXPECT_EQ(outcome(step(Tick{at(10001)})), "none");
  EXPECT_EQ(outcome(step(Tick{at(13001)})), "OUTCOME_UNKNOWN");
}

}  // namespace
}  // namespace cantle::proto
