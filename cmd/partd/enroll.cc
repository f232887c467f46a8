#include "cmd/partd/enroll.h"

#include <chrono>

#include "lib/base/log.h"
#include "lib/io/loop.h"

namespace cantle::partd {

using base::Code;

namespace {
constexpr base::Duration kRetry = std::chrono::milliseconds(300);
}

Enrollment::Enrollment(io::Loop& loop, coord::Session& session, coord::Layout layout, EnrollSpec spec, Done done)
    : session_(session),
      layout_(std::move(layout)),
      spec_(std::move(spec)),
      done_(std::move(done)),
      retry_(loop, [this] { begin(); }) {}
Enrollment::~Enrollment() { *alive_ = false; }

template <class F>
auto Enrollment::guarded(F fn) {
  return [alive = alive_, fn = std::move(fn)](auto result) mutable {
    if (*alive) fn(std::move(result));
  };
}

void Enrollment::again() {
  running_ = false;
  retry_.start(kRetry);
}

void Enrollment::finish(base::Result<Answer> answer) {
  over_ = true;
  running_ = false;
  done_(std::move(answer));
}

void Enrollment::begin() {
  if (running_ || over_) return;
  running_ = true;
  before_.reset();
  found_ = {};
  session_.sync(layout_.info(spec_.server), guarded([this](base::Result<base::Nothing> synced) {
                  if (!synced) return again();
                  session_.get(layout_.info(spec_.server), nullptr, guarded([this](base::Result<coord::Node> node) {
                                 if (!node && node.error().code == Code::not_found) return find_event();
                                 if (!node) return again();
                                 auto info = coord::parse_info(node->value);
                                 if (!info)
                                   return finish(base::fail(
                                       Code::identity, "nodes/info/" + spec_.server.name + ": " + info.error().text));
                                 before_ = *info;
                                 before_version_ = node->stat.version;
                                 found_.number = info->number;
                                 if (spec_.first_start || info->number.value == 0) return find_event();
                                 write_info();
                               }));
                }));
}

// Looks through all arrivals: for the one that this data directory made in a try whose answer was lost, and for
// those of other directories under the same name.
void Enrollment::find_event() {
  found_.number = {};
  session_.children(layout_.arrivals(), nullptr, guarded([this](base::Result<coord::Children> events) {
                      if (!events && events.error().code == Code::not_found)
                        return finish(base::fail(
                            Code::identity, "there is no cluster at " + layout_.root() + ": zkctl init makes one"));
                      if (!events) return again();
                      look_at(events->names, 0);
                    }));
}

void Enrollment::look_at(std::vector<std::string> names, size_t i) {
  if (i == names.size()) return found_.number.value != 0 ? write_info() : ask_for_name();
  const auto path = layout_.arrivals() + "/" + names[i];
  session_.get(path, nullptr, guarded([this, names = std::move(names), i, path](base::Result<coord::Node> node) {
                 if (!node && node.error().code != Code::not_found) return again();
                 if (node)
                   if (const auto event = coord::parse_arrival(node->value);
                       event && event->server == spec_.server && event->kind == coord::Arrival::Kind::arrival) {
                     if (event->instance != spec_.instance)
                       found_.known_name = true;
                     else if (const auto number = coord::sequence_of(path); number && *number != 0)
                       found_.number = {*number};
                   }
                 look_at(names, i + 1);
               }));
}

void Enrollment::ask_for_name() {
  if (!found_.known_name || !spec_.may_take_name) return arrive();
  spec_.may_take_name([this, alive = alive_](base::Status status) {
    if (!*alive) return;
    if (status) return arrive();
    if (status.error().code == Code::identity) return finish(base::fail(std::move(status).error()));
    base::log(base::Level::warn, "name", {{"server", spec_.server.name}, {"waits", to_string(status.error())}});
    again();
  });
}

void Enrollment::arrive() {
  coord::Arrival event;
  event.server = spec_.server;
  event.instance = spec_.instance;
  event.rack = spec_.rack;
  event.weight = spec_.weight;
  event.at_ms = base::SystemClock().wall_ms();
  session_.create(layout_.arrival_prefix(), coord::arrival_text(event), coord::CreateMode::persistent_sequential,
                  guarded([this](base::Result<std::string> path) {
                    if (!path) return again();  // looked for again: it may be there
                    const auto number = coord::sequence_of(*path);
                    if (!number) return finish(base::fail(Code::faulted, "arrival event " + *path + " has no number"));
                    if (*number == 0) return arrive();  // 0 means "none": the cluster's first server arrives twice
                    base::log(base::Level::notice, "arrived", {{"server", spec_.server.name}, {"number", *number}});
                    found_.number = {*number};
                    write_info();
                  }));
}

void Enrollment::write_info() {
  auto info = before_.value_or(coord::NodeInfo{});  // flags that an operator set stay
  info.role = coord::Role::partd;
  info.number = found_.number;
  info.rack = spec_.rack;
  info.host = spec_.host;
  info.weight = spec_.weight;
  if (before_ && *before_ == info) return finish(found_);
  const auto path = layout_.info(spec_.server);
  const auto written = [this](bool ok) { ok ? finish(found_) : again(); };
  if (!before_)
    return session_.create(path, coord::info_text(info), coord::CreateMode::persistent,
                           guarded([written](base::Result<std::string> made) { written(made.has_value()); }));
  session_.set(path, coord::info_text(info), before_version_,
               guarded([written](base::Result<coord::Stat> set) { written(set.has_value()); }));
}

}  // namespace cantle::partd
