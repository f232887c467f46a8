#include "cmd/partd/state_file.h"

#include <charconv>
#include <sstream>

#include "lib/base/testing.h"

namespace cantle::partd {
namespace {

constexpr std::string_view kPath = "partd";
constexpr size_t kSizeMax = size_t{64} << 20;

base::Status parse_line(StateFile& file, const std::string& line) {
  std::istringstream in(line);
  std::string key, a, b, c;
  in >> key >> a >> b >> c;
  if (key == "instance:") {
    file.instance = a;
  } else if (key == "seen:" || key == "quorum-seen:") {
    TRY_ASSIGN(const auto table, model::parse_id<model::TableUuid>(a));
    uint64_t txnseq = 0;
    if (std::from_chars(b.data(), b.data() + b.size(), txnseq).ec != std::errc())
      return base::fail(base::Code::identity, "not a number: " + b);
    (key == "seen:" ? file.seen : file.quorum_seen)[table] = {txnseq};
  } else if (key == "child:") {
    TRY_ASSIGN(const auto child, model::parse_id<model::PartitionId>(a));
    TRY_ASSIGN(const auto parent, model::parse_id<model::PartitionId>(b));
    TRY_ASSIGN(const auto attempt, model::parse_id<model::AttemptId>(c));
    file.children.push_back({child, parent, attempt});
  }
  return base::ok();
}

}  // namespace

base::Result<StateFile> StateFile::load(store::Disk& disk, base::Random& random) {
  StateFile file;
  auto text = disk.read_whole(kPath, kSizeMax);
  if (!text) {
    if (text.error().code != base::Code::not_found)
      return base::fail(std::move(text).error().wrap("the file 'partd' in the data directory"));
    file.instance = to_string(model::Id128<struct InstanceTag>::draw(random));
    TRY(file.save(disk));
    return file;
  }
  std::istringstream lines(*text);
  for (std::string line; std::getline(lines, line);)
    if (auto parsed = parse_line(file, line); !parsed)
      return base::fail(base::Code::identity,
                        "the file 'partd' in the data directory, line '" + line + "': " + parsed.error().text);
  return file;
}

base::Status StateFile::save(store::Disk& disk) const {
  std::string text = "instance: " + instance + "\n";
  for (const auto& [table, txnseq] : seen) text += "seen: " + to_string(table) + " " + to_string(txnseq) + "\n";
  for (const auto& [table, txnseq] : quorum_seen)
    text += "quorum-seen: " + to_string(table) + " " + to_string(txnseq) + "\n";
  for (const auto& c : children)
    text += "child: " + to_string(c.child) + " " + to_string(c.parent) + " " + to_string(c.attempt) + "\n";
  CRASH_POINT("state.before_write");
  TRY(disk.write_whole(kPath, text));
  CRASH_POINT("state.after_write");
  return base::ok();
}

}  // namespace cantle::partd
