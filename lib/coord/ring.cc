#include "lib/coord/ring.h"

#include <array>
#include <charconv>

#include "lib/coord/layout.h"

namespace cantle::coord {

using base::Code;
using base::fail;

namespace {

constexpr std::string_view kVote = "vote: ", kGovernment = "government: ";
constexpr size_t kVoteWords = 8;

template <class T>
base::Result<T> number(std::string_view text) {
  T n = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (error != std::errc{} || end != text.data() + text.size())
    return fail(Code::invalid, "ring: no number: " + std::string(text));
  return n;
}

base::Result<std::array<std::string_view, kVoteWords>> words_of(std::string_view line) {
  std::array<std::string_view, kVoteWords> words;
  for (size_t i = 0; i < kVoteWords; ++i) {
    const auto end = i + 1 == kVoteWords ? line.size() : line.find(' ');
    if (end == line.npos) return fail(Code::invalid, "ring: half a vote");
    words[i] = line.substr(0, end);
    line.remove_prefix(std::min(line.size(), end + 1));
  }
  return words;
}

base::Result<std::pair<model::Region, model::Vote>> parse_line(std::string_view line) {
  TRY_ASSIGN(const auto word, words_of(line));
  model::Region region;
  model::Vote v;
  TRY_ASSIGN(region.value, number<uint32_t>(word[0]));
  TRY_ASSIGN(v.promise.value, number<uint64_t>(word[1]));
  TRY_ASSIGN(v.token, parse_token(word[2]));
  TRY_ASSIGN(v.assignment, model::parse_id<model::AssignmentId>(word[3]));
  v.server.name = word[4];
  TRY(model::validate_server_id(v.server.name));
  TRY_ASSIGN(v.slot, number<uint32_t>(word[5]));
  if (word[6] != "yes" && word[6] != "no") return fail(Code::invalid, "ring: can_lead: " + std::string(word[6]));
  v.can_lead = word[6] == "yes";
  TRY_ASSIGN(v.incarnation.value, number<uint64_t>(word[7]));
  return std::pair{region, std::move(v)};
}

}  // namespace

std::string ring_line(model::Region region, const model::Vote& v) {
  std::string line(kVote);
  for (const auto& word : {std::to_string(region.value), to_string(v.promise), token_text(v.token),
                           to_string(v.assignment), v.server.name, std::to_string(v.slot)})
    line.append(word).append(" ");
  return line.append(v.can_lead ? "yes " : "no ").append(to_string(v.incarnation)).append("\n");
}

std::string ring_line(model::Region region) {
  return std::string(kGovernment).append(std::to_string(region.value)).append("\n");
}

base::Result<Ring> parse_ring(std::string_view text) {
  Ring ring;
  while (!text.empty()) {
    const auto line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (line.starts_with(kVote)) {
      TRY_ASSIGN(auto vote, parse_line(line.substr(kVote.size())));
      ring.votes.push_back(std::move(vote));
    } else if (line.starts_with(kGovernment)) {
      TRY_ASSIGN(const auto region, number<uint32_t>(line.substr(kGovernment.size())));
      ring.governments.push_back({region});
    } else {
      return fail(Code::invalid, "ring: " + std::string(line));
    }
  }
  return ring;
}

}  // namespace cantle::coord
