#include "cmd/splitter/drive.h"

#include <unistd.h>

#include <cstdio>

#include "lib/client/op_driver.h"
#include "lib/daemon/duration.h"
#include "lib/io/timer.h"
#include "lib/rpc/peer.h"
#include "lib/wire/codec.h"

namespace cantle::splitter {

using base::Code;
namespace driver = proto::driver;

namespace {

constexpr base::Duration kProgressEvery = std::chrono::seconds(1);
constexpr base::Duration kForEver = std::chrono::hours(24 * 365);
constexpr base::Duration kAnswerGrace = std::chrono::seconds(2);  // for the answer that says that the time is over
constexpr base::Duration kSaySlow = std::chrono::seconds(2);

// What is said on stderr while one waits: a line when the reason changes, and how far the filling is.
class Progress {
 public:
  Progress(Cluster& cluster, const model::AttemptId& attempt, bool wanted)
      : cluster_(cluster),
        attempt_(attempt),
        wanted_(wanted || ::isatty(STDERR_FILENO) == 1),
        began_(cluster.loop().now()),
        timer_(cluster.loop(), [this] { ask(); }) {
    if (wanted_) timer_.start(kProgressEvery, kProgressEvery);
  }

  void waiting(const driver::Waiting& w) {
    waiting_ = w;
    say(line());
  }
  void world(const proto::World& w) { map_ = w.map; }

 private:
  std::string line() const {
    std::string text = waiting_.why;
    for (const auto& s : waiting_.for_whom) text += " " + s.name;
    return text;
  }
  void say(const std::string& text) {
    if (!wanted_ || text.empty()) return;
    const double seconds = static_cast<double>(base::to_ms(cluster_.loop().now() - began_)) / 1000;
    std::fprintf(stderr, "%6.1f s  %s\n", seconds, text.c_str());
  }

  // While children are being filled: how many records of the parent's log each of their servers has taken so far.
  void ask() {
    if (!map_ || waiting_.for_whom.empty()) return;
    const auto* p = map_->partitions.by_attempt(attempt_);
    if (p == nullptr || !p->split || p->split->phase != model::SplitPhase::filling) return;
    const auto server = waiting_.for_whom[next_++ % waiting_.for_whom.size()];
    const auto* entry = cluster_.servers().find(server);
    if (entry == nullptr) return;
    auto address = entry->address();
    if (!address) return;
    peer_ = std::make_unique<rpc::Peer>(cluster_.loop(), *address);
    model::StatusRequest request;
    request.table = map_->name;
    peer_->call("status", wire::encode(request), std::chrono::seconds(1),
                [this, server](base::Result<std::string_view> r) {
                  if (!r) return say(server.name + ": " + r.error().text);
                  auto status = wire::decode<model::StatusReply>(*r);
                  if (status) tell(server, *status);
                });
  }
  void tell(const model::ServerId& server, const model::StatusReply& status) {
    const auto* p = map_->partitions.by_attempt(attempt_);
    if (p == nullptr || !p->split) return;
    for (const auto& t : status.tables)
      for (const auto& held : t.partitions)
        if (held.id == p->split->low.id || held.id == p->split->high.id)
          say(server.name + " has taken " + to_string(held.end.lsn) + " records of the " +
              (held.id == p->split->low.id ? "low" : "high") + " child, is " + held.state);
  }

  Cluster& cluster_;
  model::AttemptId attempt_;
  bool wanted_;
  base::Instant began_;
  driver::Waiting waiting_;
  MapPtr map_;
  size_t next_ = 0;
  std::unique_ptr<rpc::Peer> peer_;
  io::Timer timer_;
};

}  // namespace

std::string_view to_string(DriveEnd end) {
  switch (end) {
    case DriveEnd::done: return "done";
    case DriveEnd::aborted: return "aborted";
    case DriveEnd::failed: return "failed";
    case DriveEnd::detached: return "going on";
    case DriveEnd::timed_out: return "going on";
  }
  return "?";
}

// Ctrl-C and the time limit end the waiting, not the change: a metadata server that has it may commit it yet.
base::Result<model::MdChangeReply> commit(Cluster& cluster, const client::ChangeSpec& spec, base::Duration limit) {
  const bool& stopped = cluster.interrupted();
  const auto answer = std::make_shared<std::optional<base::Result<model::MdChangeReply>>>();
  auto& loop = cluster.loop();
  io::Timer slow(loop, [&] {
    std::fprintf(stderr, "waiting for a majority of the metadata servers of table %s (zkctl md list shows them)\n",
                 spec.table.c_str());
  });
  slow.start(kSaySlow);
  cluster.md().change(spec, limit, [answer](base::Result<model::MdChangeReply> r) { *answer = std::move(r); });
  loop.run_for(limit + kAnswerGrace, [&] { return stopped || answer->has_value(); });
  if (answer->has_value()) return std::move(**answer);
  return base::fail(Code::outcome_unknown, stopped ? "interrupted" : "no answer in time");
}

base::Result<Driven> drive(Cluster& cluster, const std::string& table, proto::OpKind kind,
                           const model::AttemptId& attempt, const DriveOptions& options) {
  base::Duration limit = kForEver;
  if (!options.timeout.empty()) {
    TRY_ASSIGN(limit, daemon::parse_duration(options.timeout));
  }
  auto& loop = cluster.loop();
  const bool& stopped = cluster.interrupted();
  std::optional<driver::Ended> ended;
  Progress progress(cluster, attempt, options.progress);
  client::OpDriverOptions how;
  how.what = proto::op_name(kind);
  how.who = client::this_process();
  how.drive = options.drive || options.abort;
  how.without_task = options.abort;
  const auto began = loop.refresh_now();
  client::OpDriver op(loop, cluster.md(), table, attempt, proto::make_driver(kind, attempt), how,
                      {.on_waiting = [&](const driver::Waiting& w) { progress.waiting(w); },
                       .on_ended = [&](const driver::Ended& e) { ended = e; },
                       .on_world = [&](const proto::World& w) { progress.world(w); }});
  op.start();
  if (options.abort) op.abort("an operator asked for it");
  loop.run_for(limit, [&] { return stopped || ended.has_value(); });
  Driven out;
  out.seconds = static_cast<double>(base::to_ms(loop.refresh_now() - began)) / 1000;
  if (!ended) {
    out.end = stopped ? DriveEnd::detached : DriveEnd::timed_out;
    return out;
  }
  out.reason = ended->reason;
  out.end = ended->outcome == driver::Outcome::done      ? DriveEnd::done
            : ended->outcome == driver::Outcome::aborted ? DriveEnd::aborted
                                                         : DriveEnd::failed;
  return out;
}

}  // namespace cantle::splitter
