// What znodes and addresses say, as text that an operator may have written with any ZooKeeper shell.
//
// What holds whatever comes: it is refused, or what it means is written and read again the same. The first byte says
// which text it is.
#include <cstdint>
#include <string>
#include <string_view>

#include "lib/base/check.h"
#include "lib/coord/layout.h"
#include "lib/coord/recovery_text.h"
#include "lib/coord/ring.h"
#include "lib/io/address.h"
#include "lib/model/client_messages.h"
#include "lib/model/table_config.h"

namespace {

using namespace cantle;

template <class Parse, class Text>
void round_trip(std::string_view text, Parse parse, Text write) {
  const auto value = parse(text);
  if (!value) return;
  const auto again = parse(write(*value));
  CHECK(again && *again == *value);
}

void table_config(std::string_view text) {
  const auto config = model::parse_table_config(text);
  if (!config) return;
  CHECK(config->metadata_hash.size() == 32 && !config->metadata_servers.empty());
  CHECK(model::majority(*config) <= config->metadata_servers.size());
  const auto again = model::parse_table_config(model::to_text(*config));
  CHECK(again && *again == *config);
}

void reports(std::string_view text) {
  const auto parsed = coord::parse_reports(text);
  if (!parsed) return;
  std::string written;
  for (const auto& r : *parsed) written += coord::report_text(r);
  const auto again = coord::parse_reports(written);
  CHECK(again && *again == *parsed);
}

void address(std::string_view text) {
  const auto parsed = io::parse_address(text);
  if (!parsed) return;
  const auto again = io::parse_address(io::to_string(*parsed));
  CHECK(again && io::to_string(*again) == io::to_string(*parsed));
}

// Many lines in one, of which a government says nothing but its region.
std::string ring_text(const coord::Ring& ring) {
  std::string text;
  for (const auto& [region, vote] : ring.votes) text += coord::ring_line(region, vote);
  for (const auto& region : ring.governments) text += coord::ring_line(region);
  return text;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0]) {
    case 'T': table_config(text); break;
    case '@': address(text); break;
    case 'F': round_trip(text, coord::parse_format, coord::format_text); break;
    case 'a': round_trip(text, coord::parse_active, coord::active_text); break;
    case 'v': round_trip(text, coord::parse_version, coord::version_text); break;
    case 'i': round_trip(text, coord::parse_info, coord::info_text); break;
    case 'e': round_trip(text, coord::parse_arrival, coord::arrival_text); break;
    case 'r': round_trip(text, coord::parse_region, coord::region_text); break;
    case 's': round_trip(text, coord::parse_system, coord::system_text); break;
    case 'g': round_trip(text, coord::parse_government, coord::government_text); break;
    case 'V': round_trip(text, coord::parse_vote, coord::vote_text); break;
    case 'b': round_trip(text, coord::parse_ring, ring_text); break;
    case 'p': round_trip(text, coord::parse_recovery_plan, coord::recovery_plan_text); break;
    case 'R': round_trip(text, coord::parse_recovered, coord::recovered_text); break;
    case 'q': reports(text); break;
    case 'o': round_trip(text, coord::parse_observed, coord::observed_text); break;
    case 't': round_trip(text, coord::parse_task, coord::task_text); break;
    case 'd': round_trip(text, coord::parse_dropped, coord::dropped_text); break;
    case 'k': round_trip(text, coord::parse_token, coord::token_text); break;
    case 'D':
      round_trip(text, coord::parse_distribution,
                 [](const coord::Distribution& d) { return coord::distribution(d.keyspace, d.table); });
      break;
    case 'l': round_trip(text, coord::parse_role, coord::role_name); break;
    case 'S': round_trip(text, coord::parse_region_state, coord::region_state_name); break;
    default: (void)coord::sequence_of(text);
  }
  return 0;
}
