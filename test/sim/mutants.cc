#include "test/sim/mutants.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>

#include "lib/base/check.h"
#include "lib/base/testing.h"
#include "test/sim/seeds.h"

namespace cantle::sim {

#ifdef CANTLE_TESTING
namespace {

// What is to catch it: a simulation, by its name; a scenario, a test of this program, as GoogleTest names it; or a unit
// test, behind the name of its program: "unit_store:Suite.test". For rules whose breach takes two rare events at once.
struct Mutant {
  const char* name;
  const char* simulation;
  const char* breaks;
};

constexpr Mutant kMutants[] = {
    {"ack_before_sync", "journal", "an append is called durable before the sync"},
    {"ignore_sync_error", "journal", "a failed sync is passed over (S61)"},
    {"drop_before_proof", "push_in_no_log", "a copy is dropped unproved (S54)"},
    {"push_position_before_confirmed", "push", "a position moves past what the target confirmed"},
    {"bulk_end_too_early", "push", "bulk.end before everything is delivered (S43)"},
    {"split_barrier_without_majority", "push", "the barrier passes without a majority of slots"},
    {"finalize_without_majority", "push", "a split ends before a majority of a child is ready"},
    {"count_proposed_as_read", "push", "a replica that is being filled answers reads"},
    {"joined_before_the_rest", "push_merges",
     "a merge's target is taken to have been sent what of the two was not (invariant 7)"},
    {"settled_before_the_rest",
     "unit_proto:PushMerge.nothing_is_settled_or_confirmed_by_live_sends_before_the_rest_of_both_is_everywhere",
     "what is sent behind a merge says that all before it is everywhere"},
    {"merge_skip_barrier", "push_merges", "a merge ends though no majority has heard of it"},
    {"position_kept_across_tenure", "push_there_and_back", "a new tenure is taken for what an older one had confirmed"},
    {"split_skip_barrier", "push", "filling begins before writers include the children (S43)"},
    {"apply_ahead_of_journal", "push", "the index is applied before the journal is durable (S63)"},
    {"cache_is_not_told_of_writes", "quorum", "a record that was read once is read as it was then"},
    {"apply_older_version", "push", "an older version takes the place of a newer one"},
    {"damaged_end_is_torn", "journal_damaged", "what only the live page knows to be durable is taken for torn (S62)"},
    {"damaged_end_not_kept", "journal_damaged", "a damaged end is written over (S62)"},
    {"no_torn_tail_zeroing", "journal", "a torn tail stays where later frames are written"},
    {"ignore_min_txnseq", "push", "messages of older maps are taken (S32)"},
    {"available_before_majority_bulk_end", "push", "AVAILABLE with one source slot heard (S43)"},
    {"connection_loss_is_failure", "metadata", "an unknown swap is reported as failed (S27)"},
    {"skip_own_change_check", "metadata", "an own earlier try is taken for a conflict (S28)"},
    {"swap_without_majority", "metadata", "TableConfig is swapped before a majority stored the file"},
    {"count_store_before_durable", "metadata", "a file is counted before it is durable"},
    {"leave_without_majority", "metadata", "the last holders may leave (S30)"},
    {"serve_after_regression", "metadata_regression", "a map from the past is served (S36)"},
    {"sweep_by_txnid_only", "metadata", "files that may become current are swept (S27)"},
    {"skip_seal", "election", "a vote without a promise: the position that it names may be old when it is counted"},
    {"seal_within_promise", "election", "a seal while a leader relies on what was promised (S7)"},
    {"restart_forgets_promise", "election", "a server that starts seals at once"},
    {"seal_without_read", "election_outage", "a seal without an answer of the coordination service (S35)"},
    {"ask_nobody", "election_one_way", "who misses the leader alone has another elected (S21)"},
    {"any_promise_counts", "election", "votes of other elections are counted"},
    {"token_is_not_asked", "election", "whoever has the lowest slot leads (S18)"},
    {"elected_before_it_borrowed", "QuorumLends.who_is_highest_and_has_resigned_lends_what_it_has",
     "where those with more cannot lead, one leads that lacks what they have (S18)"},
    {"nobody_lends", "QuorumLends.who_is_highest_and_has_resigned_lends_what_it_has",
     "one that is highest and cannot lead gives nobody its blocks"},
    {"swap_without_version", "election", "the government is written over one that was not read (S33)"},
    {"resume_leadership", "election", "a server that the government names leads, whatever was before (S6)"},
    {"obey_below_promise", "election", "messages of older governments are obeyed (S11)"},
    {"grant_without_acceptance", "election", "a lease from voters that did not accept the leader"},
    {"answer_names_nothing", "election", "a voter that promised more does not say so"},
    {"lease_from_answer", "election", "a lease is counted from an answer's arrival"},
    {"commit_alone", "quorum", "the leader commits what it alone has durable"},
    {"commit_before_own_sync", "quorum", "committed on others, and not durable at the leader"},
    {"count_older_epochs", "quorum", "copies of older epochs are counted before the epoch start is (S14)"},
    {"ack_before_sync_at_follower", "quorum", "a follower acknowledges what is not durable (S5)"},
    {"open_before_sync", "quorum", "a follower says that it has what is not durable (S5)"},
    {"judge_committed_only", "quorum", "a write is judged by what is committed, not by the end of the log"},
    {"refusal_does_not_wait", "quorum", "a refusal tells of what may yet be lost (S24)"},
    {"repeat_answers_early", "quorum", "a repeat is answered before what it repeats is committed (S23)"},
    {"answer_before_judged_by", "quorum", "what puts nothing into the log is answered at once (S24)"},
    {"series_not_recorded", "quorum", "a record does not say whose write it was (S23)"},
    {"judge_before_the_store_shows", "quorum", "a new leader judges by a store that is behind its log"},
    {"judge_not_reset", "quorum", "a new leadership judges by what a former one did not get into the log"},
    {"windows_not_followed", "quorum", "what was committed since a client was first heard is not remembered (S23)"},
    {"windows_not_reset", "quorum", "a new leadership does not know what another leader answered in between (S23)"},
    {"judge_not_cut", "quorum", "what was judged and not taken by the store is judged by"},
    {"writes_not_parked", "quorum_splits", "writes go on behind a cut (S43)"},
    {"reads_not_parked", "quorum_split_late", "reads are answered behind a cut that is committed"},
    {"new_leader_not_parked", "quorum_splits", "only who put the cut into the log is parked"},
    {"uncut_by_silence", "quorum_splits", "a cut is taken back though METADATA does not say that it is over (S42)"},
    {"cut_of_any_attempt", "quorum_splits", "a cut of an attempt that was given up ends another one"},
    {"own_vote_is_not_looked_for", "unit_proto:Election.a_vote_that_was_taken_away_late_is_put_again",
     "a voter never sees that its own vote was taken away by a removal that came late"},
    {"forgets_promises_of_a_copy_that_is_gone",
     "unit_proto:Beacons.s7_what_was_promised_with_a_copy_that_is_gone_is_refused_as_before",
     "who was replaced grants a leader what it promised it would not (S7)"},
    {"refusal_not_recorded", "quorum", "that a condition did not hold is not remembered with its number (S23)"},
    {"damaged_parent_is_none",
     "QuorumDamagedSplitScenario.r16_who_counted_for_a_cut_and_is_damaged_before_it_does_not_vote_empty",
     "what is begun in place of a damaged copy votes with nothing, as if there had been none (R16)"},
    {"merge_without_both_cuts", "quorum_merges",
     "two merge where each has a cut on a majority, but no majority has both"},
    {"merge_series_of_one", "quorum_merges", "what two are merged into knows the writes of one of them (S23)"},
    {"holders_who_have_not", "quorum_merges", "a report names voters that have not confirmed the cut (S27)"},
    {"cut_on_few", "QuorumSplitScenario.a_cut_that_one_voter_of_one_has_ends_nothing",
     "what one voter of one has cut ends the partition of three"},
    {"observed_before_the_index",
     "QuorumJournalSplitScenario.r16_a_divide_that_is_damaged_once_nobody_knows_the_parent",
     "METADATA forgets what ended here while nothing but one block of the journal says what became of it (R16)"},
    {"published_before_the_index", "SimPush.s62_a_divide_that_is_damaged_once_nobody_knows_the_parent",
     "the same of a push table (S62)"},
    {"disk_watched_at_looks_alone", "QuorumFailover.sim_s26_a_disk_that_was_idle_for_long_does_not_stand_still",
     "a disk is taken for one that stands still since it was last seen idle (S26)"},
    {"what_was_not_made_stays",
     "unit_proto:QuorumTables.what_the_store_could_not_make_and_is_wanted_no_more_is_given_up",
     "a copy that could not be made, and is wanted no more, is in the way of those that come of its partition"},
    {"aside_for_what_went_elsewhere",
     "QuorumSplitMoveScenario.a_parent_aside_is_given_up_when_its_children_went_elsewhere",
     "a parent's copy waits for a child that was moved away"},
    {"recovered_by_a_later_map", "quorum_splits_and_moves",
     "after a recovery the voters wait for a map that never comes"},
    {"begun_before_it_came_of_that", "quorum_merges", "who has the logs of both takes part without one, meanwhile"},
    {"target_epoch_not_above", "quorum_merges", "what two are merged into begins below the epoch of one of them"},
    {"damaged_votes", "quorum_damaged", "a voter whose log is not whole says where it ends (R16)"},
    {"damaged_trusts_its_promise",
     "QuorumScenario.r16_one_whose_seal_may_be_lost_obeys_nobody_before_it_has_sealed_again",
     "a voter whose seal may be lost obeys who it sealed against (R16)"},
    {"mended_is_forgotten", "QuorumScenario.r16_what_was_mended_is_there_when_its_server_dies_at_once",
     "what came from another replica is gone when its server dies (R16)"},
    {"whole_too_early", "quorum_damaged", "a mended log is called whole before all that it confirmed is there (R16)"},
    {"series_left_behind", "quorum_forgets", "a snapshot does not bring the series (S23)"},
    {"install_forgets_promise", "QuorumRebuilds.sim_s11_a_snapshot_does_not_make_a_replica_forget_what_it_promised",
     "a snapshot's copy does not know what the old one promised"},
    {"install_before_complete", "quorum_forgets", "a snapshot takes a copy's place before it is complete (S22)"},
    {"install_over_a_longer_log", "unit_store:QuorumSnapshot.never_takes_the_place_of_a_log_that_goes_further",
     "a snapshot takes the place of a log that goes further (S5)"},
    {"snapshot_of_a_parked_copy", "QuorumSplitForgets.sim_s43_who_leads_after_a_rebuild_knows_that_its_log_is_cut",
     "a snapshot is given of a log that ends in a cut, and brings none"},
    {"take_waiting_at_commit", "QuorumScenario.sim_s24_what_waited_for_a_leader_is_judged_by_what_it_found_in_its_log",
     "what waited is judged by a store that has not heard of the commit before it"},
    {"session_token_not_asked", "quorum", "a replica answers a session that has seen more than it has"},
    {"read_without_lease", "quorum", "a leader reads whatever its lease says (S7)"},
    {"commit_by_one_set", "quorum", "a swap of voters may be made, and a majority of the old ones commits (S61)"},
    {"lease_by_one_set", "quorum", "a swap of voters may be made, and the old ones alone give a lease (S61)"},
    {"reform_without_both", "quorum", "voters are swapped while the old ones alone commit (S61)"},
    {"voter_not_level", "quorum", "a replica gets a vote without what is committed (S61)"},
    {"reform_by_an_older_map", "QuorumMembers.sim_s61_a_leader_with_an_older_map_does_not_swap_voters_back",
     "a leader with an older map swaps voters back (S61)"},
    {"cancel_without_leader", "quorum", "METADATA drops a replica that may have a vote (S61)"},
    {"finalize_without_swap", "quorum", "METADATA drops a replica that still votes (S61)"},
    {"wiped_has_nothing_to_lose", "QuorumMembers.sim_s06_who_lost_its_disk_has_no_vote_under_its_old_name",
     "a voter whose disk was lost begins again under its name, with nothing (S6)"},
    {"commit_by_new_set", "QuorumMembers.sim_s09_nothing_is_acknowledged_by_a_removal_that_was_only_asked_for",
     "what was only asked for counts (S9)"},
    {"commit_by_new_set",
     "QuorumMembers.sim_s10_while_a_configuration_is_not_committed_nothing_is_acknowledged_under_it",
     "what was only asked for counts (S10)"},
    {"commit_by_one_set", "QuorumMembers.sim_s13_what_is_under_way_when_voters_change_is_on_a_majority_of_either",
     "what was counts until the answer is here (S13)"},
    {"count_older_epochs", "QuorumFailover.sim_s14_copies_of_an_older_epoch_do_not_count_before_the_epoch_start",
     "copies of older epochs are counted (S14)"},
    {"refill_into_the_old_copy", "QuorumForgets.sim_s17_what_was_deleted_stays_deleted_where_the_delete_never_came",
     "a snapshot without what was deleted is put over what is there (S17)"},
    {"finalize_without_swap", "QuorumMembers.sim_s19_a_live_replica_goes_only_when_another_has_what_it_has",
     "METADATA drops a live replica as surplus (S19)"},
    {"voter_not_level", "QuorumMembers.sim_s20_who_is_replaced_votes_until_there_is_another",
     "the old replica goes first (S20)"},
    {"divide_without_the_cut",
     "QuorumSplitScenario.sim_s46_who_lacks_the_end_of_the_parent_does_not_go_on_in_the_middle_of_a_child",
     "a replica goes on in a child from where its parent's log ends (S46)"},
    {"name_not_synced", "QuorumFailover.sim_s64_what_was_acknowledged_in_a_new_segment_is_there_after_a_power_cut",
     "a segment's name is not synced (S64)"},
};

// What the child tells: which seed it is at, and what it saw.
struct Shared {
  uint64_t seed = 0;
  bool caught = false;
  char violation[400] = {};
};

void search(const Mutant& mutant, const RunSeed& run, uint64_t limit, Shared* shared) {
  base::set_mutant(mutant.name);
  for (uint64_t seed = 1; seed <= limit && !shared->caught; ++seed) {
    shared->seed = seed;
    const auto verdict = run(seed);
    if (verdict.violation.empty()) continue;
    // A seed that fails by itself shows nothing of the mutant.
    base::set_mutant("");
    const bool by_itself = !run(seed).violation.empty();
    base::set_mutant(mutant.name);
    if (by_itself) continue;
    std::snprintf(shared->violation, sizeof shared->violation, "%s", verdict.violation.c_str());
    shared->caught = true;
  }
}

bool is_unit_test(const Mutant& mutant) { return std::strchr(mutant.simulation, ':') != nullptr; }
bool is_scenario(const Mutant& mutant) { return std::strchr(mutant.simulation, '.') != nullptr; }

bool scenario_passes(const Mutant& mutant, const char* name) {
  testing::GTEST_FLAG(filter) = mutant.simulation;
  base::set_mutant(name);
  return RUN_ALL_TESTS() == 0 && testing::UnitTest::GetInstance()->test_to_run_count() > 0;
}

// The program lies beside this one.
bool unit_test_passes(const Mutant& mutant, const char* name) {
  const std::string_view test = mutant.simulation;
  const auto colon = test.find(':');
  const std::string path = program();
  const auto slash = path.rfind('/');
  const std::string beside = (slash == std::string::npos ? "." : path.substr(0, slash)) + "/";
  const std::string command = "CANTLE_MUTANT='" + std::string(name) + "' '" + beside +
                              std::string(test.substr(0, colon)) + "' --gtest_filter='" +
                              std::string(test.substr(colon + 1)) + "'";
  FILE* out = ::popen(command.c_str(), "r");
  if (out == nullptr) return false;
  bool ran = false;
  for (char line[512]; std::fgets(line, sizeof line, out) != nullptr;)
    ran = ran || std::strncmp(line, "[  PASSED  ] 1 test", 19) == 0;
  return ::pclose(out) == 0 && ran;
}

// A scenario or a unit test is one schedule: it fails with the mutant, and passes without.
void act(const Mutant& mutant, Shared* shared) {
  std::freopen("/dev/null", "w", stdout);
  const auto passes = [&](const char* name) {
    return is_unit_test(mutant) ? unit_test_passes(mutant, name) : scenario_passes(mutant, name);
  };
  if (!passes("")) return;
  shared->seed = 1;
  if (passes(mutant.name)) return;
  std::snprintf(shared->violation, sizeof shared->violation, "%s", mutant.simulation);
  shared->caught = true;
}

bool caught(const Mutant& mutant, uint64_t limit) {
  const RunSeed* run = find_simulation(mutant.simulation);
  if (!run && !is_scenario(mutant)) {
    std::printf("mutant %-28s NOT CAUGHT: there is no simulation named %s\n", mutant.name, mutant.simulation);
    return false;
  }
  void* memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(memory != MAP_FAILED);
  auto* shared = new (memory) Shared;
  std::fflush(stdout);
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    std::freopen("/dev/null", "w", stderr);  // a failed CHECK talks
    if (is_scenario(mutant))
      act(mutant, shared);
    else
      search(mutant, *run, limit, shared);
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  const bool died = WIFSIGNALED(status);
  const bool good = shared->caught || (died && shared->seed > 0);  // without the mutant it has to live
  std::printf("mutant %-28s %s after %llu seeds: %s\n", mutant.name, good ? "caught" : "NOT CAUGHT",
              static_cast<unsigned long long>(shared->seed),
              died             ? "a CHECK failed"
              : shared->caught ? shared->violation
                               : mutant.breaks);
  munmap(memory, sizeof(Shared));
  return good;
}

}  // namespace

int run_mutants(const std::vector<std::string>& names) {
  const char* seeds = std::getenv("SEEDS");
  const uint64_t limit = seeds ? std::strtoull(seeds, nullptr, 10) : 2000;
  size_t passed = 0, failed = 0;
  for (const auto& mutant : kMutants)
    if (names.empty() || std::find(names.begin(), names.end(), mutant.name) != names.end())
      ++(caught(mutant, limit) ? passed : failed);
  // As GoogleTest says it: test/run.sh counts by these lines.
  std::printf("[  PASSED  ] %zu tests.\n", passed);
  if (failed > 0) std::printf("[  FAILED  ] %zu tests, listed below:\n", failed);
  return failed == 0 && passed > 0 ? 0 : 1;
}
#else
int run_mutants(const std::vector<std::string>&) {
  std::fprintf(stderr, "mutants are only in builds with TESTING=1\n");
  return 2;
}
#endif

}  // namespace cantle::sim
