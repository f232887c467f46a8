#include "lib/rpc/server.h"

#include "lib/rpc/server_core.h"

namespace cantle::rpc {
namespace {

constexpr size_t kLocalExtra = 16;  // connections over a Unix socket beyond the limit: an operator gets in
constexpr base::Duration kSweepEvery = std::chrono::seconds(1);
}  // namespace

Server::Core::Core(io::Loop& l, Identity i, ServerLimits limits_given)
    : loop(l), identity(std::move(i)), limits(limits_given), sweeper(l, [this] { sweep(); }), drain_timer(l, [this] {
        end_drain();
      }) {}

Server::Core::~Core() {
  listeners.clear();
  for (auto& [number, session] : sessions) {
    session->core = nullptr;
    session->drop();
  }
}

base::Status Server::Core::add_listener(const std::function<base::Status(io::Listener&)>& open) {
  auto listener =
      std::make_unique<io::Listener>(loop, [this](std::unique_ptr<io::Conn> conn) { accept(std::move(conn)); });
  listener->set_room([this, one = listener.get()] {
    const bool local = one->address().kind == io::Address::Kind::local;
    return sessions.size() < limits.connections + (local ? kLocalExtra : 0);
  });
  TRY(open(*listener));
  listeners.push_back(std::move(listener));
  if (!sweeper.active()) sweeper.start(kSweepEvery, kSweepEvery);
  return base::ok();
}

void Server::Core::accept(std::unique_ptr<io::Conn> conn) {
  const auto number = next_number++;
  ++counters.accepted;
  auto session = std::make_shared<Session>(*this, number, std::move(conn));
  sessions.emplace(number, session);
  session->start();
}

void Server::Core::serve_later(std::shared_ptr<Session> session) {
  ready->push_back(std::move(session));
  if (ready->size() > 1) return;
  loop.defer([ready = ready] {
    // Serving adds nothing here: sockets are read in another phase.
    for (const auto& each : *ready) each->serve();
    ready->clear();
  });
}

void Server::Core::closed(Session& session) {
  ++counters.closed;
  // What it still waited for will be answered to nobody, and no longer holds up a drain.
  inflight -= session.inflight;
  const auto number = session.caller.connection;
  sessions.erase(number);
  if (gone) gone(number);
  check_drained();
}

void Server::Core::sweep() {
  std::vector<std::shared_ptr<Session>> all;
  all.reserve(sessions.size());
  for (const auto& [number, session] : sessions) all.push_back(session);
  for (const auto& session : all) session->sweep(loop.now());
}

void Server::Core::answered() {
  --inflight;
  check_drained();
}

void Server::Core::begin_drain(base::Duration limit, std::function<void()> done) {
  draining = true;
  drained = std::move(done);
  for (const auto& listener : listeners) listener->close();
  drain_timer.start(limit);
  check_drained();
}

void Server::Core::check_drained() {
  if (!draining) return;
  if (inflight > 0) return;
  std::vector<std::shared_ptr<Session>> all;
  for (const auto& [number, session] : sessions) all.push_back(session);
  for (const auto& session : all) session->finish();
  if (sessions.empty()) end_drain();
}

void Server::Core::end_drain() {
  drain_timer.stop();
  if (auto done = std::exchange(drained, nullptr)) loop.defer(std::move(done));
}

Server::Server(io::Loop& loop, Identity identity, ServerLimits limits)
    : core_(std::make_shared<Core>(loop, std::move(identity), limits)) {}
Server::~Server() = default;

base::Status Server::listen(const io::Address& address) {
  return core_->add_listener([&](io::Listener& listener) { return listener.listen(address); });
}

base::Status Server::listen_fd(int fd) {
  return core_->add_listener([&](io::Listener& listener) { return listener.listen_fd(fd); });
}

std::vector<io::Address> Server::addresses() const {
  std::vector<io::Address> result;
  for (const auto& listener : core_->listeners) result.push_back(listener->address());
  return result;
}

void Server::handle(std::string method, Handler handler) { core_->handlers[std::move(method)] = std::move(handler); }
void Server::handle_notify(std::string method, NotifyHandler handler) {
  core_->notify_handlers[std::move(method)] = std::move(handler);
}
void Server::on_gone(std::function<void(uint64_t)> fn) { core_->gone = std::move(fn); }
void Server::set_identity(Identity identity) { core_->identity = std::move(identity); }

bool Server::notify(uint64_t connection, std::string_view method, std::string_view params) {
  const auto found = core_->sessions.find(connection);
  if (found == core_->sessions.end() || !found->second->connected()) return false;
  found->second->notify(method, params);
  return true;
}

void Server::drain(base::Duration limit, std::function<void()> done) { core_->begin_drain(limit, std::move(done)); }
void Server::stop_accepting() {
  for (const auto& listener : core_->listeners) listener->close();
}

size_t Server::connections() const { return core_->sessions.size(); }
size_t Server::inflight() const { return core_->inflight; }

Counters Server::counters() const {
  auto counters = core_->counters;
  for (const auto& listener : core_->listeners) counters.refused += listener->refused() + listener->starved();
  return counters;
}

}  // namespace cantle::rpc
