#include "cmd/partc/tool.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "lib/base/bytes.h"
#include "lib/client/await.h"
#include "lib/client/md_maps.h"
#include "lib/client/route_maps.h"
#include "lib/client/servers.h"
#include "lib/coord/layout.h"
#include "lib/coord/sync_session.h"
#include "lib/io/loop.h"

namespace cantle::partc {

using base::Code;

struct Tool::Parts {
  io::Loop loop;  // built first, dies last
  std::unique_ptr<coord::SyncSession> coord;
  std::unique_ptr<client::CoordServers> servers;
  rpc::Identity identity;
  std::unique_ptr<client::MdClient> md;
  std::unique_ptr<client::MdMaps> md_maps;
  client::RouteMaps route_maps;
  std::unique_ptr<client::FallbackMaps> maps;
  std::unique_ptr<client::Client> client;
};

Tool::Tool(const daemon::GlobalFlags& flags) : flags_(flags), parts_(std::make_unique<Parts>()) {}
Tool::~Tool() = default;

io::Loop& Tool::loop() { return parts_->loop; }

base::Status Tool::connect() {
  if (parts_->coord) return base::ok();
  TRY_ASSIGN(const auto url, daemon::need_coord(flags_));
  TRY_ASSIGN(parts_->identity.token, daemon::read_token(flags_));
  TRY_ASSIGN(auto session, coord::SyncSession::open(parts_->loop, {.url = url, .must_exist = true}));
  const coord::Layout layout(flags_.cluster);
  auto node = session->get(layout.format());
  if (!node && node.error().code == Code::not_found)
    return base::fail(Code::not_found,
                      "there is no cluster " + flags_.cluster + " at " + url + " (zkctl init makes one)");
  if (!node) return base::fail(node.error());
  TRY_ASSIGN(const auto format, coord::parse_format(node->value));
  parts_->identity.cluster = format.cluster;
  parts_->identity.role = "client";
  parts_->coord = std::move(session);
  parts_->servers = std::make_unique<client::CoordServers>(parts_->loop, parts_->coord->session(), layout);
  parts_->md = std::make_unique<client::MdClient>(parts_->loop, parts_->coord->session(), layout, *parts_->servers,
                                                  parts_->identity);
  parts_->md_maps = std::make_unique<client::MdMaps>(*parts_->md);
  parts_->maps = std::make_unique<client::FallbackMaps>(*parts_->md_maps, parts_->route_maps);
  return base::ok();
}

base::Result<client::Client*> Tool::client(const client::RetryOptions& retry) {
  if (!parts_->client) {
    TRY_ASSIGN(parts_->client, another_client(retry));
    parts_->route_maps.attach(*parts_->client);
    bool known = false;
    parts_->servers->refresh([&] { known = true; });
    parts_->loop.run_for(std::chrono::seconds(10), [&] { return known; });
    if (!known) return base::fail(Code::unavailable, "the coordination service does not answer");
  }
  return parts_->client.get();
}

base::Result<std::unique_ptr<client::Client>> Tool::another_client(const client::RetryOptions& retry) {
  TRY(connect());
  client::ClientOptions options;
  options.identity = parts_->identity;
  options.retry = retry;
  return std::make_unique<client::Client>(parts_->loop, *parts_->servers, *parts_->maps, std::move(options));
}

base::Result<std::vector<model::ServerId>> Tool::partition_servers() {
  TRY(connect());
  const coord::Layout layout(flags_.cluster);
  TRY_ASSIGN(const auto names, parts_->coord->children_or_none(layout.infos()));
  std::vector<model::ServerId> servers;
  for (const auto& name : names) {
    const auto node = parts_->coord->get(layout.info({name}));
    if (!node) continue;  // gone since
    const auto info = coord::parse_info(node->value);
    if (info && info->role == coord::Role::partd && !info->dead) servers.push_back({name});
  }
  return servers;
}

base::Result<client::MapPtr> Tool::map(const std::string& table, base::Duration timeout) {
  TRY_ASSIGN(auto* c, client());
  return client::await<client::MapPtr>(
      parts_->loop, timeout, [&](client::Done<client::MapPtr> done) { c->with_map(table, {}, std::move(done)); });
}

base::Result<model::Level> parse_level(const std::string& word) {
  using model::Level;
  for (const auto level : {Level::one, Level::majority, Level::all, Level::linearizable, Level::session, Level::any})
    if (word == to_string(level)) return level;
  return base::fail(Code::usage,
                    "level '" + word + "' is none of one, majority, all, nor, of a read, linearizable, session, any");
}

base::Result<std::string> parse_key(const std::string& text, bool hex) {
  auto key = hex ? base::from_hex(text) : base::unescape(text);
  if (!key) return base::fail(Code::usage, "key '" + text + "': " + key.error().text);
  return key;
}

base::Result<std::string> parse_value(const std::string& text) {
  if (text == "-") return read_all_of_stdin(model::kValueMax);
  return text;
}

namespace {

base::Result<std::string> read_all(int fd, const std::string& what, size_t limit) {
  std::string all(size_t{64} << 10, '\0');
  size_t used = 0;
  while (true) {
    const ssize_t n = ::read(fd, all.data() + used, all.size() - used);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return base::fail(base::errno_error("reading " + what, errno));
    if (n == 0) break;
    used += static_cast<size_t>(n);
    if (used > limit) return base::fail(Code::too_large, what + " has more than " + std::to_string(limit) + " bytes");
    if (used == all.size()) all.resize(2 * all.size());
  }
  all.resize(used);
  return all;
}

}  // namespace

base::Result<std::string> read_all_of_stdin(size_t limit) { return read_all(STDIN_FILENO, "stdin", limit); }

base::Result<std::string> read_file(const std::string& path, size_t limit) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return base::fail(base::errno_error("opening " + path, errno));
  auto all = read_all(fd, path, limit);
  ::close(fd);
  return all;
}

std::string another_format(client::Format format) {
  switch (format) {
    case client::Format::jsonl: return " as jsonl, the default --format; is this deb822 or tsv?";
    case client::Format::tsv: return " as tsv; is this jsonl or deb822?";
    case client::Format::deb822: return " as deb822; is this jsonl or tsv?";
  }
  return "";
}

std::string size_text(double bytes) {
  const char* const units[] = {"B", "kB", "MB", "GB", "TB"};
  int unit = 0;
  while (bytes >= 1000 && unit < 4) bytes /= 1000, ++unit;
  char text[32];
  std::snprintf(text, sizeof text, unit == 0 || bytes >= 100 ? "%.0f %s" : "%.1f %s", bytes, units[unit]);
  return text;
}

std::string duration_text(base::Duration d) {
  const double seconds = std::chrono::duration<double>(d).count();
  char text[32];
  if (seconds < 1e-3)
    std::snprintf(text, sizeof text, "%.0f us", seconds * 1e6);
  else if (seconds < 1)
    std::snprintf(text, sizeof text, "%.1f ms", seconds * 1e3);
  else
    std::snprintf(text, sizeof text, seconds < 100 ? "%.1f s" : "%.0f s", seconds);
  return text;
}

}  // namespace cantle::partc
