#include "test/sim/network.h"

#include <algorithm>
#include <typeinfo>

namespace cantle::sim {

using base::Code;

namespace {
constexpr Duration kConnectTimeout = 1s;
constexpr Duration kLocalDelay = 20us;
constexpr Duration kResetDelay = 1ms;  // until the other side's kernel says that a process is gone

tl::unexpected<base::Error> link_error(Code code, std::string text) {
  base::Error error(code, std::move(text));
  error.detail = kLinkError;
  return base::fail(std::move(error));
}

std::string host_of(const std::string& address) { return address.substr(0, address.find('/')); }
}  // namespace

void Network::listen(Process& process, Handler handler) {
  listeners_[process.name()] = {&process, std::move(handler)};
  watch_death(process);
}

void Network::watch_death(Process& process) {
  if (!watched_.insert(process.name()).second) return;
  process.on_death([this, &process] { forget(process); });
}

// The kernel closes a dead process's connections: its peers see a reset, its own calls are nobody's.
void Network::forget(const Process& process) {
  listeners_.erase(process.name());
  std::vector<LinkKey> theirs;
  for (auto& [key, link] : links_)
    if (key.first == process.name() || key.second == process.name()) theirs.push_back(key);
  for (const auto& key : theirs) break_link(links_[key]);
}

Network::Link& Network::link(Process& from, const std::string& to) {
  const auto [it, fresh] = links_.try_emplace({from.name(), to});
  if (fresh) watch_death(from);
  return it->second;
}

void Network::break_link(Link& link) {
  ++link.generation;
  link.last_forth = link.last_back = {};
  auto waiting = std::move(link.waiting);
  link.waiting.clear();
  for (auto& [number, call] : waiting) {
    if (call->ended) continue;
    scheduler_.after(kResetDelay, [this, c = call] {
      finish(c, link_error(Code::outcome_unknown, "connection to " + c->to + " lost"));
    });
  }
}

void Network::call(Process& from, const std::string& to, std::any request, Duration timeout, Reply done) {
  if (!from.effect()) return;
  auto c = std::make_shared<Call>();
  c->number = ++calls_;
  c->from = &from;
  c->from_life = from.life();
  c->to = to;
  c->request = std::move(request);
  c->done = std::move(done);
  const bool reachable = cuts_.empty() || (passes(from.host(), host_of(to)) && passes(host_of(to), from.host()));
  if (!reachable && !links_.contains({from.name(), to})) {
    // A new connection would have to be made first: nothing was sent.
    c->timer = from.after(std::min(timeout, kConnectTimeout),
                          [this, c] { finish(c, link_error(Code::unavailable, "cannot connect to " + c->to)); });
    return;
  }
  auto listener = listeners_.find(to);
  if (listener == listeners_.end()) {
    scheduler_.after(draw_delay(from.host() == host_of(to)),
                     [this, c] { finish(c, link_error(Code::unavailable, "connection to " + c->to + " refused")); });
    return;
  }
  c->target = listener->second.process;
  c->target_life = c->target->life();
  auto& l = link(from, to);
  c->link = &l;
  c->link_generation = l.generation;
  if (c->done) {
    l.waiting.emplace(c->number, c);
    c->timer = from.after(
        timeout, [this, c] { finish(c, link_error(Code::outcome_unknown, "no answer from " + c->to + " in time")); });
  }
  transmit(c);
}

void Network::notify(Process& from, const std::string& to, std::any message) {
  call(from, to, std::move(message), kConnectTimeout, nullptr);
}

Duration Network::draw_delay(bool local) {
  if (local) return kLocalDelay;
  if (faults_.slow > 0 && scheduler_.random().chance(faults_.slow))
    return scheduler_.between(faults_.delay_min, faults_.slow_max);
  return scheduler_.between(faults_.delay_min, faults_.delay_max);
}

Instant Network::in_order(Instant& last, Duration delay, bool reorder) {
  const Instant when = scheduler_.now() + delay;
  if (reorder) return when;
  last = std::max(last, when);
  return last;
}

void Network::transmit(const std::shared_ptr<Call>& c) {
  ++messages_;
  const bool local = c->from->host() == host_of(c->to);
  auto& random = scheduler_.random();
  const auto hit = [&](double p) { return !local && p > 0 && random.chance(p); };
  scheduler_.note("send", c->from->name(), c->to, c->number, c->request.type().name());
  if (hit(faults_.lose) || !passes(c->from->host(), host_of(c->to))) {
    // Into the void. A cut tells nobody: the caller waits for its timeout.
    if (passes(c->from->host(), host_of(c->to))) break_link(*c->link);
    return;
  }
  if (hit(faults_.late)) {
    scheduler_.after(scheduler_.between(1ms, faults_.late_max), [this, c] { deliver(c, true); });
    break_link(*c->link);
    return;
  }
  const bool reorder = hit(faults_.reorder);
  const Instant when = in_order(c->link->last_forth, draw_delay(local), reorder);
  scheduler_.at(when, [this, c] { deliver(c, false); });
  if (hit(faults_.duplicate) && !(never_double_ && never_double_(c->request)))
    scheduler_.at(when + scheduler_.between(1ms, faults_.late_max), [this, c] { deliver(c, true); });
}

void Network::deliver(const std::shared_ptr<Call>& c, bool duplicate) {
  auto it = listeners_.find(c->to);
  if (it == listeners_.end() || it->second.process != c->target || c->target->life() != c->target_life) return;
  if (!duplicate && !passes(c->from->host(), c->target->host())) return;
  c->target->deliver([this, c, duplicate, life = c->target_life] {
    auto at = listeners_.find(c->to);
    if (at == listeners_.end() || c->target->life() != life) return;
    scheduler_.note("recv", c->to, c->number, duplicate);
    // Copied: the handler may listen anew or die while it runs.
    const Handler handler = at->second.handler;
    if (duplicate || !c->done) {
      handler(c->from->name(), c->request, [](Answer) {});
    } else {
      handler(c->from->name(), c->request, [this, c](Answer result) { answer(c, std::move(result)); });
    }
  });
}

void Network::answer(const std::shared_ptr<Call>& c, Answer result) {
  if (c->answered) return;
  c->answered = true;
  if (c->target->life() != c->target_life || !c->target->effect()) return;
  ++messages_;
  const bool local = c->from->host() == c->target->host();
  if (c->link->generation != c->link_generation) return;  // the connection it came on is gone
  if (!passes(c->target->host(), c->from->host())) return;
  if (!local && faults_.lose_answer > 0 && scheduler_.random().chance(faults_.lose_answer)) {
    break_link(*c->link);
    return;
  }
  const Instant when = in_order(c->link->last_back, draw_delay(local), false);
  scheduler_.at(when, [this, c, r = std::move(result)]() mutable {
    if (c->link->generation != c->link_generation) return;
    if (!passes(c->target->host(), c->from->host())) return;
    finish(c, std::move(r));
  });
}

void Network::finish(const std::shared_ptr<Call>& c, Answer result) {
  if (c->ended) return;
  c->ended = true;
  c->from->cancel(c->timer);
  if (c->link) c->link->waiting.erase(c->number);
  if (!c->done || c->from->life() != c->from_life) return;
  scheduler_.note("done", c->from->name(), c->number, result ? 0 : static_cast<int>(result.error().code));
  c->from->deliver([done = std::move(c->done), r = std::move(result)]() mutable { done(std::move(r)); });
}

void Network::cut(const std::string& a, const std::string& b) {
  scheduler_.note("cut", a, b);
  cuts_.emplace(a, b);
}

void Network::heal() {
  scheduler_.note("heal");
  cuts_.clear();
}

bool Network::passes(const std::string& from, const std::string& to) const {
  if (cuts_.empty() || from == to) return true;
  return !cuts_.contains({from, to}) && !cuts_.contains({"*", to}) && !cuts_.contains({from, "*"});
}

}  // namespace cantle::sim
