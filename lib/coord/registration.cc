#include "lib/coord/registration.h"

#include <utility>

#include "lib/base/log.h"
#include "lib/coord/layout.h"

namespace cantle::coord {

using base::Code;
using base::Duration;
using base::Level;
using base::Result;
using namespace std::chrono_literals;

namespace {
constexpr Duration kRetry = 200ms;  // after an error; and half of it again at random
}  // namespace

struct Registration::Impl : std::enable_shared_from_this<Impl> {
  struct Entry {
    std::string value;
    bool ours = false;
    bool displaced = false;  // somebody else's, whom we do not fight
    bool busy = false;       // a look is under way
    bool again = false;      // and another one is due
    bool watched = false;
    bool retrying = false;
  };
  Session& session;
  Timers& timers;
  base::Random& random;
  model::Incarnation incarnation;
  std::string instance;
  std::map<std::string, Entry> entries;
  std::function<void(bool)> changed;
  std::function<void(const std::string&)> displaced;
  bool started = false, stopped = false;
  bool told = false;  // what `changed` heard last
  bool new_session = false;

  Impl(Session& s, Timers& t, base::Random& r, model::Incarnation i, std::string name)
      : session(s), timers(t), random(r), incarnation(i), instance(std::move(name)) {}

  // A function of ours for later: nothing happens once we are gone.
  template <class Fn>
  auto guarded(Fn fn) {
    return [weak = this->weak_from_this(), fn = std::move(fn)](auto&&... args) {
      if (auto self = weak.lock(); self && !self->stopped) fn(*self, std::forward<decltype(args)>(args)...);
    };
  }
  Duration jitter(Duration upto) {
    return Duration(static_cast<int64_t>(random.below(static_cast<uint64_t>(std::max<int64_t>(upto.count(), 1)))));
  }

  bool complete() const {
    for (const auto& [path, entry] : entries)
      if (!entry.ours) return false;
    return started && !entries.empty();
  }

  void tell() {
    if (complete() == told) return;
    told = !told;
    if (changed) changed(told);
  }

  void check_all() {
    for (auto& [path, entry] : entries) check(path);
  }

  void patrol() {
    const auto round = session.timeout();
    timers.after(round - round / 8 + jitter(round / 4), guarded([](Impl& self) {
                   self.check_all();
                   self.patrol();
                 }));
  }

  void retry(const std::string& path) {
    if (std::exchange(entries[path].retrying, true)) return;
    timers.after(kRetry + jitter(kRetry / 2), guarded([path](Impl& self) {
                   self.entries[path].retrying = false;
                   self.check(path);
                 }));
  }

  void ended(const std::string& path) {
    auto& entry = entries[path];
    entry.busy = false;
    tell();
    if (std::exchange(entry.again, false)) check(path);
  }

  void failed(const std::string& path, const base::Error& error) {
    if (error.code != Code::unavailable && error.code != Code::outcome_unknown)
      base::log(Level::warn, "coord.register", {{"path", path}, {"error", base::to_string(error)}});
    ended(path);
    retry(path);
  }

  void check(const std::string& path) {
    auto& entry = entries[path];
    if (!started || stopped || !session.connected()) return;
    if (std::exchange(entry.busy, true)) {
      entry.again = true;
      return;
    }
    Watch watch;
    if (!std::exchange(entry.watched, true))
      watch = guarded([path](Impl& self) {
        self.entries[path].watched = false;
        self.check(path);
      });
    const auto asked_for = session.session_id();
    session.get(path, std::move(watch), guarded([path, asked_for](Impl& self, Result<Node> node) {
                  self.looked(path, asked_for, std::move(node));
                }));
  }

  void looked(const std::string& path, uint64_t asked_for, Result<Node> node) {
    auto& entry = entries[path];
    if (!node) entry.watched = false;  // a read that fails sets none
    if (!node && node.error().code != Code::not_found) return failed(path, node.error());
    if (session.session_id() != asked_for) return ended(path), check(path);
    entry.ours = node && node->stat.ephemeral_owner == asked_for;
    if (!node) return create(path);
    if (!entry.ours) return meet(path, *node);
    entry.displaced = false;
    if (node->value != entry.value) return update(path, node->stat.version);
    ended(path);
  }

  void create(const std::string& path) {
    // What comes back is looked at again anyway: only the znode says whose it is.
    session.create(path, entries[path].value, CreateMode::ephemeral,
                   guarded([path](Impl& self, Result<std::string> made) {
                     if (!made && made.error().code != Code::exists && made.error().code != Code::outcome_unknown)
                       return self.failed(path, made.error());
                     self.ended(path);
                     self.check(path);
                   }));
  }

  void update(const std::string& path, int32_t version) {
    session.set(path, entries[path].value, version, guarded([path](Impl& self, Result<Stat> set) {
                  if (!set && set.error().code == Code::unavailable) return self.failed(path, set.error());
                  self.ended(path);
                  self.check(path);
                }));
  }

  // Another session's. Empty: of a life before, ours to replace (R26); otherwise who it is.
  std::string stranger(const std::string& path, const Node& node) const {
    const auto lines = Lines::parse(node.value);
    const auto theirs = lines.number_or("incarnation", 0);
    if (theirs && *theirs > incarnation.value)
      return path + ": incarnation " + std::to_string(*theirs) + ", ours is " + to_string(incarnation);
    const auto name = lines.get("instance");
    if (!name.empty() && !instance.empty() && name != instance)
      return path + ": another data directory, " + lines.get("tcp", lines.get("unix"));
    for (const auto& [other, entry] : entries)
      if (entry.displaced && other != path) return path + ": as " + other;
    return "";
  }

  void meet(const std::string& path, const Node& node) {
    auto& entry = entries[path];
    const auto who = stranger(path, node);
    if (who.empty()) return replace(path, node.stat.version);
    const bool first = !std::exchange(entry.displaced, true);
    if (first) base::log(Level::error, "coord.displaced", {{"by", who}});
    ended(path);
    retry(path);
    if (first && displaced) displaced(who);
  }

  void replace(const std::string& path, int32_t version) {
    session.remove(path, version, guarded([path](Impl& self, Result<base::Nothing> removed) {
                     if (!removed && removed.error().code == Code::unavailable)
                       return self.failed(path, removed.error());
                     self.create(path);
                   }));
  }

  void session_began() {
    if (!std::exchange(new_session, false)) return check_all();
    // Everybody lost their session when the service was away: not all at once (S35).
    timers.after(jitter(session.timeout() / 8), guarded([](Impl& self) { self.check_all(); }));
  }

  void session_ended() {
    new_session = true;
    for (auto& [path, entry] : entries) entry.ours = entry.watched = false;
    tell();
  }

  void withdraw_next(std::vector<std::string> paths, std::function<void()> done) {
    if (paths.empty()) return done();
    const auto path = std::move(paths.back());
    paths.pop_back();
    auto next = [weak = this->weak_from_this(), paths = std::move(paths), done = std::move(done)](auto&&) mutable {
      if (auto self = weak.lock()) self->withdraw_next(std::move(paths), std::move(done));
    };
    session.get(path, nullptr, [weak = this->weak_from_this(), path, next](Result<Node> node) mutable {
      auto self = weak.lock();
      if (!self) return;
      if (!node || node->stat.ephemeral_owner != self->session.session_id()) return next(0);
      self->session.remove(path, node->stat.version, next);
    });
  }
};

Registration::Registration(Session& session, Timers& timers, base::Random& random, model::Incarnation incarnation,
                           std::string instance)
    : impl_(std::make_shared<Impl>(session, timers, random, incarnation, std::move(instance))) {}
Registration::~Registration() = default;

void Registration::keep(std::string path, std::string value) {
  auto& entry = impl_->entries[path];
  entry.value = std::move(value);
  if (!impl_->started) return;
  impl_->tell();
  impl_->check(path);
}

void Registration::start() {
  if (std::exchange(impl_->started, true)) return;
  impl_->patrol();
  impl_->check_all();
}

void Registration::on_event(Event event) {
  if (event == Event::connected) impl_->session_began();
  if (event == Event::expired) impl_->session_ended();
}

bool Registration::registered() const { return impl_->complete(); }
void Registration::on_change(std::function<void(bool)> fn) { impl_->changed = std::move(fn); }
void Registration::on_displaced(std::function<void(const std::string&)> fn) { impl_->displaced = std::move(fn); }

void Registration::withdraw(std::function<void()> done) {
  impl_->stopped = true;
  std::vector<std::string> paths;
  for (const auto& [path, entry] : impl_->entries) paths.push_back(path);
  impl_->withdraw_next(std::move(paths), std::move(done));
}

}  // namespace cantle::coord
