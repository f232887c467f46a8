// What `zkctl quorum` reads and writes as text: reports of copies (`partd report`), the plan of a recovery, and the
// note of one that stands in the coordination service (regions/<n>/recovered).
//
//   cantle-recovery-plan: 1
//   plan: 77e0…                  drawn: applying it twice is the same recovery
//   cluster: 81b2…
//   table: orders
//   table_uuid: 4f0c…
//   partition: 0a1b…
//   region: 3
//   txnseq: 12                   of the map that the voters are of
//   government_version: 7        applied only to exactly this one
//   government_epoch: 4
//   stay: p1/0/9c1d…/4-1200-0f00ba12/1180/5 …
//                                server, slot, assignment, log end, commit, promise of each that votes then
//   gone: p2 p3
//   epoch: 6                     of the new government
//   loss: possible               none, possible, certain
//   end: 4-1200-0f00ba12         of the best log that stays
//   lost_committed: 0
//   lost_unknown: 0
//
// Lines that begin with # are for people.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lib/base/result.h"
#include "lib/model/recovery.h"

namespace cantle::coord {

constexpr size_t kRecoveryPlanMax = 65536;            // bytes of text
constexpr size_t kReportsTextMax = size_t{64} << 20;  // epochs are what is long

std::string_view loss_name(model::LossKind kind);

// One text a copy, with an empty line behind it.
std::string report_text(const model::CopyReport& report);
// All of a text. invalid: not one of ours; the message says where.
base::Result<std::vector<model::CopyReport>> parse_reports(std::string_view text);

std::string recovery_plan_text(const model::RecoveryPlan& plan);
// invalid: not a plan, a line that is missing or wrong, a plan that contradicts itself.
base::Result<model::RecoveryPlan> parse_recovery_plan(std::string_view text);

std::string recovered_text(const model::Recovered& recovered);
base::Result<model::Recovered> parse_recovered(std::string_view text);

}  // namespace cantle::coord
