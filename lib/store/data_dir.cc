#include "lib/store/data_dir.h"

#include <algorithm>
#include <charconv>
#include <cstdio>

#include "lib/base/bytes.h"
#include "lib/base/log.h"
#include "lib/base/testing.h"
#include "lib/store/position.h"

namespace cantle::store {
namespace {

using base::Code;
using base::fail;

constexpr size_t kIdMax = 4096;
constexpr uint64_t kLivesOfANumber = 1'000'000'000;
constexpr std::string_view kHead = "cantle-id 1\n";
constexpr std::string_view kLockPath = "id.lock";

std::string crc_line(std::string_view text) {
  char line[24];
  snprintf(line, sizeof line, "crc=%08x\n", base::crc32c(text));
  return line;
}

std::string encode(const Identity& id) {
  std::string text(kHead);
  text += "server=" + id.server.name + "\n";
  text += "cluster=" + model::to_string(id.cluster) + "\n";
  text += "incarnation=" + model::to_string(id.incarnation) + "\n";
  text += "number=" + model::to_string(id.number) + "\n";
  return text + crc_line(text);
}

// Takes "name=value\n" from the front.
base::Result<std::string_view> take(std::string_view& text, std::string_view name) {
  const auto line = text.substr(0, text.find('\n'));
  if (line.size() == text.size() || line.substr(0, name.size()) != name || line.substr(name.size(), 1) != "=")
    return fail(Code::identity, "id file: no line '" + std::string(name) + "=…' where it should be");
  text.remove_prefix(line.size() + 1);
  return line.substr(name.size() + 1);
}

template <class Int>
base::Result<Int> number(std::string_view text) {
  Int n = 0;
  const auto [end, err] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (err != std::errc() || end != text.data() + text.size())
    return fail(Code::identity, "id file: not a number: " + std::string(text));
  return n;
}

base::Result<Identity> decode(std::string_view text) {
  const auto crc_at = text.rfind("crc=");
  if (text.substr(0, kHead.size()) != kHead || crc_at == std::string_view::npos ||
      text.substr(crc_at) != crc_line(text.substr(0, crc_at)))
    return fail(Code::identity, "id file: damaged; restore it, or replace the server with `zkctl node replace`");
  text.remove_prefix(kHead.size());
  Identity id;
  TRY_ASSIGN(const auto server, take(text, "server"));
  id.server.name = std::string(server);
  TRY_ASSIGN(const auto cluster, take(text, "cluster"));
  TRY_ASSIGN(id.cluster, model::parse_id<model::ClusterUuid>(cluster));
  TRY_ASSIGN(const auto incarnation, take(text, "incarnation"));
  TRY_ASSIGN(id.incarnation.value, number<uint64_t>(incarnation));
  TRY_ASSIGN(const auto own_number, take(text, "number"));
  TRY_ASSIGN(id.number.value, number<uint32_t>(own_number));
  return id;
}

model::Incarnation before_first_life(model::ServerNumber number) { return {number.value * kLivesOfANumber}; }

base::Result<bool> has_data(Disk& disk) {
  for (const char* path : {"journal/root", "index/data.mdb", "push/data.mdb", "meta/data.mdb"}) {
    TRY_ASSIGN(const bool there, disk.exists(path));
    if (there) return true;
  }
  TRY_ASSIGN(const auto names, disk.list(kJournalDir));
  for (const auto& name : names)
    if (segment_of_name(name) != 0) return true;
  return false;
}

base::Status check(const Identity& id, const Expected& expected) {
  if (id.server != expected.server)
    return fail(Code::identity, "this directory belongs to server '" + id.server.name + "', not '" +
                                    expected.server.name + "': check --id and --data-dir");
  if (id.cluster != expected.cluster)
    return fail(Code::identity, "this directory belongs to cluster " + model::to_string(id.cluster) + ", not " +
                                    model::to_string(expected.cluster) + ": check --coord, --cluster and --data-dir");
  return base::ok();
}

// The file that the next start writes is there already: a full disk does not stop a start (S65).
void keep_room(Disk& disk, const std::string& bytes) {
  auto file = disk.open(std::string(kIdPath) + ".new", OpenMode::create);
  if (file && (*file)->write(0, bytes)) (void)(*file)->sync();
}

}  // namespace

DataDir::DataDir(Disk& disk, Identity identity, bool first, std::unique_ptr<FileLock> lock)
    : disk_(disk), identity_(std::move(identity)), first_(first), lock_(std::move(lock)) {}

base::Result<Identity> DataDir::read(Disk& disk) {
  TRY_ASSIGN(const auto text, disk.read_whole(kIdPath, kIdMax));
  return decode(text);
}

base::Result<std::unique_ptr<DataDir>> DataDir::open(Disk& disk, const Expected& expected) {
  TRY_ASSIGN(auto lock, disk.lock(kLockPath));
  auto found = read(disk);
  Identity id;
  bool first = false;
  if (found) {
    id = std::move(*found);
    TRY(check(id, expected));
  } else if (found.error().code == Code::not_found) {
    TRY_ASSIGN(const bool data, has_data(disk));
    if (data)
      return fail(Code::identity,
                  "the id file is missing beside data: restore it, or empty the directory and replace the server with "
                  "`zkctl node replace`");
    first = true;
    id.server = expected.server;
    id.cluster = expected.cluster;
  } else {
    return fail(std::move(found).error());
  }
  id.incarnation = std::max(id.incarnation, before_first_life(id.number)).next();
  CRASH_POINT("id.before_write");
  TRY(disk.write_whole(kIdPath, encode(id)));
  CRASH_POINT("id.after_write");
  keep_room(disk, encode(id));
  return std::unique_ptr<DataDir>(new DataDir(disk, std::move(id), first, std::move(lock)));
}

base::Status DataDir::set_number(model::ServerNumber n) {
  Identity next = identity_;
  next.number = n;
  next.incarnation = std::max(next.incarnation, before_first_life(n).next());
  TRY(disk_.write_whole(kIdPath, encode(next)));
  keep_room(disk_, encode(next));
  identity_ = std::move(next);
  return base::ok();
}

}  // namespace cantle::store
