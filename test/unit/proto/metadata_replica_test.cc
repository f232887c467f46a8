#include "lib/proto/metadata_replica.h"

#include "test/unit/proto/metadata_rig.h"

namespace cantle::proto {
namespace {

using namespace replica;
using base::Code;

class MetadataReplicaTest : public MetadataRig {
 protected:
  MetadataReplicaTest() : r_(A) {}

  Effects step(Input in) { return r_.step(in); }
  static FileInfo info(const MapPtr& map, base::WallMs stored = 0) {
    return {map->txnid, map->prev_txnid, map->txnseq, hash_of(map->txnid), stored};
  }
  void open(std::vector<FileInfo> files, model::TxnId seen = {}, model::TxnSeq seq = {}) {
    step(Opened{at(0), 0, std::move(files), seen, seq});
  }
  static StoreAsked ask(uint64_t ticket, const MapPtr& map) {
    return {at(1), ticket, map->prev_txnid, map->txnseq, map->txnid, hash_of(map->txnid), B};
  }
  // Stored and durable here.
  void have(const MapPtr& map) {
    step(ask(1000, map));
    if (r_.has(map->txnid)) return;
    step(Built{at(1), 1000, info(map)});
    step(Fetched{at(1), map->txnid, info(map)});
    step(Persisted{at(1), 0, info(map), base::ok()});
    ASSERT_TRUE(r_.has(map->txnid));
  }
  Effects seen(const MapPtr& map, int32_t version = 1) { return step(ConfigSeen{at(2), config(map, version)}); }
  static Answer yes(uint64_t ticket) { return {ticket, base::ok()}; }
  template <class T>
  static const T* find(const Effects& effects) {
    for (const auto& e : effects)
      if (const auto* x = std::get_if<T>(&e)) return x;
    return nullptr;
  }
  static std::string answer(const Effects& effects) {
    const auto* a = find<Answer>(effects);
    return a == nullptr ? "none" : a->status ? "ok" : std::string(base::code_name(a->status.error().code));
  }

  MetadataReplica r_;
};

TEST_F(MetadataReplicaTest, a_store_is_answered_once_it_is_durable) {
  const auto f = next(base_);
  open({info(base_)});
  EXPECT_EQ(step(ask(1, f)), (Effects{Build{1, base_->txnid, f->txnid}}));
  EXPECT_EQ(step(Built{at(2), 1, info(f)}), Effects{Persist{f->txnid}});
  EXPECT_EQ(step(ask(2, f)), Effects{});  // asked again meanwhile
  EXPECT_EQ(step(Persisted{at(3), 7, info(f), base::ok()}), (Effects{yes(1), yes(2)}));
  EXPECT_EQ(step(ask(3, f)), Effects{yes(3)});  // a retry after a lost reply
}

// S32: a swap is sent while a read is under way, whose answer comes later.
TEST_F(MetadataReplicaTest, what_it_knows_is_as_old_as_the_youngest_question_that_was_answered) {
  open({info(base_)});
  EXPECT_FALSE(r_.confirmed());
  step(ConfigSeen{at(5), config(base_, 1)});
  EXPECT_EQ(r_.confirmed(), at(5));
  step(ConfigSeen{at(4), config(base_, 1)});
  EXPECT_EQ(r_.confirmed(), at(5));
}

// A read without a sync may come from a server of the coordination service that lags: news count, the past does not.
TEST_F(MetadataReplicaTest, a_read_without_a_sync_brings_news_and_proves_nothing) {
  const auto f = next(base_);
  open({info(base_), info(f)});
  step(ConfigSeen{at(5), config(base_, 3)});
  const auto effects = step(ConfigSeen{std::nullopt, config(f, 4)});
  ASSERT_NE(find<Current>(effects), nullptr);
  EXPECT_EQ(find<Current>(effects)->file.txnid, f->txnid);
  EXPECT_EQ(r_.confirmed(), at(5));
  EXPECT_EQ(step(ConfigSeen{std::nullopt, config(base_, 3)}), Effects{});
  EXPECT_FALSE(r_.regressed());
  EXPECT_EQ(step(ConfigSeen{std::nullopt, config(f, 3)}), Effects{});
  EXPECT_EQ(r_.config()->version, 4);
}

TEST_F(MetadataReplicaTest, a_store_that_did_not_get_to_the_disk_is_refused) {
  const auto f = next(base_);
  open({info(base_)});
  step(ask(1, f));
  step(Built{at(2), 1, info(f)});
  EXPECT_EQ(answer(step(Persisted{at(3), 0, info(f), base::fail(Code::no_space, "full")})), "NO_SPACE");
  EXPECT_FALSE(r_.has(f->txnid));
}

TEST_F(MetadataReplicaTest, operations_that_give_another_file_are_divergence) {
  const auto f = next(base_);
  open({info(base_)});
  step(ask(1, f));
  auto other = info(f);
  other.hash[0] ^= 1;
  const auto out = step(Built{at(2), 1, other});
  EXPECT_NE(find<Alarm>(out), nullptr);
  EXPECT_EQ(answer(out), "DIVERGED");
}

TEST_F(MetadataReplicaTest, one_transaction_with_two_hashes_is_divergence) {
  const auto f = next(base_);
  open({info(f)});
  auto again = ask(1, f);
  again.hash[0] ^= 1;
  const auto out = step(again);
  EXPECT_NE(find<Alarm>(out), nullptr);
  EXPECT_EQ(answer(out), "DIVERGED");
}

TEST_F(MetadataReplicaTest, without_the_base_it_fetches_the_file_from_the_proposer) {
  const auto f = next(next(base_));
  open({info(base_)});
  EXPECT_EQ(step(ask(1, f)), (Effects{Fetch{f->txnid, hash_of(f->txnid), {B}}}));
  EXPECT_EQ(step(Fetched{at(2), f->txnid, info(f)}), Effects{Persist{f->txnid}});
  EXPECT_EQ(answer(step(Persisted{at(3), 0, info(f), base::ok()})), "ok");
}

TEST_F(MetadataReplicaTest, a_base_that_is_on_its_way_is_waited_for) {
  const auto one = next(base_), two = next(one);
  open({info(base_)});
  step(ask(1, one));
  EXPECT_EQ(step(ask(2, two)), Effects{});
  EXPECT_EQ(step(Built{at(2), 1, info(one)}), (Effects{Persist{one->txnid}, Build{2, one->txnid, two->txnid}}));
}

TEST_F(MetadataReplicaTest, a_base_that_does_not_come_makes_it_fetch) {
  const auto one = next(base_), two = next(one);
  open({info(base_)});
  step(ask(1, one));
  step(ask(2, two));
  const auto out = step(Built{at(2), 1, base::fail(Code::invalid, "no")});
  EXPECT_NE(find<Fetch>(out), nullptr);
}

TEST_F(MetadataReplicaTest, what_can_never_be_current_is_not_stored) {
  const auto winner = next(base_), loser = next(base_);
  open({info(base_)});
  have(winner);
  seen(winner);
  EXPECT_EQ(answer(step(ask(2, loser))), "CONFLICT");
}

TEST_F(MetadataReplicaTest, it_follows_what_table_config_names) {
  const auto f = next(base_);
  open({info(base_)}, base_->txnid, base_->txnseq);
  EXPECT_EQ(seen(base_), (Effects{Current{info(base_)}}));
  EXPECT_TRUE(r_.current());
  EXPECT_EQ(seen(base_), Effects{});  // nothing new
  const auto out = seen(f, 2);
  EXPECT_EQ(out, (Effects{Seen{f->txnid, f->txnseq}, Fetch{f->txnid, hash_of(f->txnid), {B, C}}}));
  EXPECT_FALSE(r_.current());  // behind: no lookups
  step(Fetched{at(3), f->txnid, info(f)});
  EXPECT_EQ(step(Persisted{at(4), 9, info(f), base::ok()}), (Effects{Current{info(f, 9)}}));
  EXPECT_TRUE(r_.current());
}

TEST_F(MetadataReplicaTest, a_server_that_is_not_listed_fetches_only_what_it_needs) {
  open({});
  EXPECT_EQ(find<Fetch>(step(ConfigSeen{at(2), config(base_, 1, {B, C})})), nullptr);
  r_.set_needed(true);
  EXPECT_NE(find<Fetch>(step(ConfigSeen{at(3), config(base_, 1, {B, C})})), nullptr);
}

TEST_F(MetadataReplicaTest, a_failed_fetch_is_tried_again_later) {
  open({});
  ASSERT_NE(find<Fetch>(seen(base_)), nullptr);
  EXPECT_EQ(step(Fetched{at(3), base_->txnid, base::fail(Code::unavailable, "away")}), Effects{});
  EXPECT_EQ(step(Tick{at(10), 0}), Effects{});
  EXPECT_NE(find<Fetch>(step(Tick{at(100), 0})), nullptr);
}

TEST_F(MetadataReplicaTest, a_lower_txnseq_than_it_has_seen_is_refused) {  // S36
  const auto f = next(base_);
  open({info(base_), info(f)}, f->txnid, f->txnseq);
  const auto out = seen(base_);
  EXPECT_NE(find<Alarm>(out), nullptr);
  EXPECT_TRUE(r_.regressed());
  EXPECT_FALSE(r_.current());
  EXPECT_EQ(seen(base_), Effects{});  // one alarm
  EXPECT_EQ(answer(step(ask(1, next(f)))), "REGRESSED");
  seen(f);  // it is back where it was
  EXPECT_TRUE(r_.current());
}

TEST_F(MetadataReplicaTest, another_transaction_at_the_same_txnseq_is_refused) {  // S36
  const auto one = next(base_), other = next(base_);
  open({info(one)}, one->txnid, one->txnseq);
  EXPECT_NE(find<Alarm>(seen(other)), nullptr);
  EXPECT_TRUE(r_.regressed());
}

TEST_F(MetadataReplicaTest, a_file_whose_swap_may_be_under_way_is_never_swept) {  // S27
  const auto f = next(base_);
  open({info(base_)}, base_->txnid, base_->txnseq);
  seen(base_);
  have(f);
  EXPECT_EQ(step(Aborted{at(5), f->txnid}), Effects{});
  EXPECT_EQ(step(Tick{at(100000), 1000000000}), Effects{});
  EXPECT_TRUE(r_.has(f->txnid));
}

TEST_F(MetadataReplicaTest, a_file_that_lost_is_deleted) {
  const auto winner = next(base_), loser = next(base_);
  open({info(base_)}, base_->txnid, base_->txnseq);
  have(loser);
  have(winner);
  seen(winner);
  EXPECT_EQ(step(Aborted{at(5), loser->txnid}), (Effects{Delete{{loser->txnid}}}));
  EXPECT_TRUE(r_.has(winner->txnid));
  EXPECT_TRUE(r_.has(base_->txnid));
}

TEST_F(MetadataReplicaTest, old_files_are_kept_for_an_hour_and_the_last_64_for_longer) {
  std::vector<FileInfo> files;
  std::vector<MapPtr> maps{base_};
  files.push_back(info(base_, 1));
  for (int i = 0; i < 99; i++) {
    maps.push_back(next(maps.back()));
    files.push_back(info(maps.back(), 1));
  }
  open(files, maps.back()->txnid, maps.back()->txnseq);
  seen(maps.back());
  EXPECT_EQ(step(Tick{at(20000), 1000}), Effects{});  // younger than an hour
  const auto out = step(Tick{at(40000), 3600 * 1000 + 2});
  ASSERT_NE(find<Delete>(out), nullptr);
  EXPECT_EQ(find<Delete>(out)->files.size(), 100U - kFilesKept);
  for (size_t i = 100 - kFilesKept; i < 100; i++) EXPECT_TRUE(r_.has(maps[i]->txnid));
}

}  // namespace
}  // namespace cantle::proto
