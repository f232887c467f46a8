#include "lib/client/servers.h"

#include <unistd.h>

#include "lib/io/loop.h"

namespace cantle::client {

base::Result<io::Address> ServerEntry::address() const {
  if (!active.unix_socket.empty() && ::access(active.unix_socket.c_str(), W_OK) == 0)
    return io::parse_address("unix:" + active.unix_socket);
  if (active.tcp.empty()) return base::fail(base::Code::unavailable, "there is no address of " + id.name);
  return io::parse_address(active.tcp);
}

CoordServers::CoordServers(io::Loop& loop, coord::Session& session, coord::Layout layout)
    : loop_(loop), session_(session), layout_(std::move(layout)) {}
CoordServers::~CoordServers() { *alive_ = false; }

const ServerEntry* CoordServers::find(const model::ServerId& id) const {
  const auto it = known_.find(id);
  return it == known_.end() ? nullptr : &it->second;
}

std::vector<ServerEntry> CoordServers::all() const {
  std::vector<ServerEntry> list;
  for (const auto& [id, entry] : known_) list.push_back(entry);
  return list;
}

void CoordServers::refresh(std::function<void()> done) {
  if (!running_ && !stale_ && loop_.now() < last_ + kServersRefreshMin) return loop_.defer(std::move(done));
  waiting_.push_back(std::move(done));
  if (!running_) begin();
}

void CoordServers::begin() {
  running_ = true;
  stale_ = failed_ = false;
  next_.clear();
  // The watch only says that the next refresh is worth its while (a hint, S33).
  session_.children(
      layout_.active(),
      [this, alive = alive_] {
        if (*alive) stale_ = true;
      },
      [this, alive = alive_](base::Result<coord::Children> children) {
        if (!*alive) return;
        if (!children) {
          failed_ = true;
          return finish();
        }
        reads_left_ = children->names.size();
        for (const auto& name : children->names) read(name);
        if (children->names.empty()) finish();
      });
}

void CoordServers::read(const std::string& name) {
  session_.get(layout_.active({name}), nullptr, [this, name, alive = alive_](base::Result<coord::Node> node) {
    if (!*alive) return;
    if (node) {
      if (auto active = coord::parse_active(node->value)) next_[{name}] = {.id = {name}, .active = *active};
    } else if (node.error().code != base::Code::not_found) {
      failed_ = true;
    }
    if (--reads_left_ == 0) finish();
  });
}

void CoordServers::finish() {
  running_ = false;
  last_ = loop_.now();
  stale_ = stale_ || failed_;
  if (!failed_)
    for (auto& [id, entry] : known_) entry.live = next_.contains(id);
  for (auto& [id, entry] : next_) known_[id] = std::move(entry);
  for (auto& done : std::exchange(waiting_, {})) done();
}

}  // namespace cantle::client
