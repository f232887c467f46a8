// JournalPosition: a place in a server's journal; and the names of what lies in a data directory.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

namespace cantle::store {

// When a block of the journal is synced. Soon: it may wait a little for others to share its sync (journal.h).
enum class Sync : uint8_t { now, soon };

// Where a frame starts (or the next one will). `sequence` alone orders positions of one journal.
struct JournalPosition {
  uint64_t segment = 0, offset = 0, sequence = 0;  // segments and sequences count from 1
  friend bool operator==(const JournalPosition&, const JournalPosition&) = default;
  friend auto operator<=>(const JournalPosition& a, const JournalPosition& b) { return a.sequence <=> b.sequence; }
};
std::string to_string(const JournalPosition& p);  // "segment:offset:sequence"

constexpr std::string_view kJournalDir = "journal";
constexpr std::string_view kRootPath = "journal/root";
constexpr std::string_view kLivePath = "journal/live";
constexpr std::string_view kIndexDir = "index";
constexpr std::string_view kPositionsDir = "push";
constexpr std::string_view kTrashDir = "trash";
constexpr std::string_view kIdPath = "id";
std::string segment_path(uint64_t segment);  // "journal/000000000001.seg"
// 0 for a name that is not a segment's.
uint64_t segment_of_name(std::string_view name);

}  // namespace cantle::store
