#include "cmd/replpush/verbs.h"

#include <unistd.h>

#include <cstdio>

#include "lib/daemon/duration.h"
#include "lib/daemon/exit.h"
#include "lib/daemon/output.h"
#include "lib/io/address.h"
#include "lib/io/loop.h"
#include "lib/io/signal.h"
#include "lib/rpc/peer.h"
#include "lib/wire/codec.h"

#include <csignal>

namespace cantle::replpush {

using base::Code;

namespace {

constexpr base::Duration kAsk = std::chrono::seconds(10);
constexpr base::Duration kPoll = std::chrono::milliseconds(100);

base::Result<std::string> call(const std::string& socket, const char* method, const std::string& params) {
  TRY_ASSIGN(const auto address, io::parse_address(socket));
  auto answer = rpc::call_sync(address, method, params, kAsk);
  if (!answer && answer.error().code == Code::unavailable)
    return base::fail(Code::not_found, "no replpush answers at " + socket + ": " + answer.error().text);
  return answer;
}

// All rows, however many pages they take.
base::Result<model::PushList> fetch(const std::string& socket) {
  model::PushList all;
  for (std::string after;;) {
    TRY_ASSIGN(const auto bytes, call(socket, "list", wire::encode(model::PushListRequest{after, 0})));
    TRY_ASSIGN(auto page, wire::decode<model::PushList>(bytes));
    if (after.empty())
      all = page;
    else
      all.streams.insert(all.streams.end(), page.streams.begin(), page.streams.end());
    if (!page.more || page.streams.empty()) return all;
    after = page.streams.back().id;
  }
}

bool matches(const std::string& which, const model::PushStreamRow& r) {
  mv::Target t;
  t.table = r.table;
  t.server = r.server;
  t.source = r.source;
  t.partition = r.partition;
  t.id = {r.own, r.target};
  return mv::names(which, t);
}

void say_what_is_missing(const model::PushList& list) {
  if (!list.paused.empty()) std::fprintf(stderr, "nothing moves: %s\n", list.paused.c_str());
  for (const auto& s : list.streams)
    if (!s.caught_up)
      std::fprintf(stderr, "%s partition %s to %s: %s, LSN %s of %s%s%s\n", s.table.c_str(),
                   to_string(s.partition).substr(0, 8).c_str(), s.server.name.c_str(), s.state.c_str(),
                   to_string(s.confirmed).c_str(), to_string(s.end).c_str(), s.why.empty() ? "" : ": ", s.why.c_str());
  for (const auto& p : list.proofs)
    if (p.state != "dropped")
      std::fprintf(stderr, "%s partition %s, to be dropped: %s%s%s\n", p.table.c_str(),
                   to_string(p.partition).substr(0, 8).c_str(), p.state.c_str(), p.why.empty() ? "" : ": ",
                   p.why.c_str());
}

// The one that runs does the work; this one waits for it.
base::Result<int> once_beside(const ToolFlags& flags, base::Duration limit) {
  TRY(call(flags.socket, "wake", wire::encode(model::PushAsk{})));
  base::SystemClock clock;
  const auto until = clock.now() + limit;
  model::PushList last;
  do {
    TRY_ASSIGN(last, fetch(flags.socket));
    if (last.all_done) return daemon::kExitDone;
    ::usleep(static_cast<useconds_t>(base::to_ms(kPoll) * 1000));
  } while (clock.now() < until);
  say_what_is_missing(last);
  return daemon::kExitTemporary;
}

}  // namespace

base::Result<int> list(const daemon::GlobalFlags& global, const ToolFlags& flags) {
  TRY_ASSIGN(const auto all, fetch(flags.socket));
  daemon::Printer out(global.format,
                      {"target", "table", "partition", "server", "state", "confirmed", "end", "sent_bytes", "why"});
  for (const auto& s : all.streams) {
    if (!matches(flags.which, s) || (flags.waiting && s.caught_up)) continue;
    const std::string state = s.caught_up && s.state == "idle" ? "through" : s.state;
    out.row({to_string(s.target), s.table, to_string(s.partition), s.server.name,
             s.snapshot ? state + " (snapshot)" : state, s.confirmed.value, s.end.value, s.sent_bytes, s.why});
  }
  for (const auto& p : all.proofs)
    out.row({to_string(p.assignment), p.table, to_string(p.partition), "-", "drop: " + p.state, p.proved,
             daemon::Missing{}, daemon::Missing{}, p.why});
  out.flush();
  if (!all.paused.empty()) std::fprintf(stderr, "nothing moves: %s\n", all.paused.c_str());
  for (const auto& h : all.holds) std::fprintf(stderr, "held: %s\n", h.empty() ? "all" : h.c_str());
  return daemon::kExitDone;
}

base::Result<int> ask(const daemon::GlobalFlags& global, const ToolFlags& flags, const std::string& verb) {
  TRY_ASSIGN(const auto bytes,
             call(flags.socket, verb.c_str(), wire::encode(model::PushAsk{flags.which == "all" ? "" : flags.which})));
  TRY_ASSIGN(const auto reply, wire::decode<model::PushAsked>(bytes));
  daemon::print_object(global.format, {{"verb", verb}, {"streams", reply.streams}});
  // A hold of something that is not there yet is kept for when it is.
  return reply.streams == 0 && verb != "hold" && verb != "release" ? daemon::kExitNotThere : daemon::kExitDone;
}

base::Result<int> once(const daemon::GlobalFlags&, const Config& config, const ToolFlags& flags) {
  TRY_ASSIGN(const auto limit, daemon::parse_duration(flags.timeout));
  io::Loop loop;
  Service service(loop, config);
  bool failed = false, stopped = false;
  base::Error error;
  io::Signal term(loop, SIGTERM, [&] { stopped = true; }), interrupt(loop, SIGINT, [&] { stopped = true; });
  service.start([] {},
                [&](base::Error e) {
                  failed = true;
                  error = std::move(e);
                });
  if (failed && error.code == Code::conflict) return once_beside(flags, limit);
  loop.run_for(limit, [&] { return failed || stopped || service.all_done(); });
  if (failed) return base::fail(std::move(error));
  const bool done = service.all_done();
  if (!done) {
    std::fprintf(stderr, "not everything is through: %s\n", service.status_line().c_str());
    for (const auto& s : service.mover().streams(loop.now()))
      if (!s.caught_up)
        std::fprintf(stderr, "%s partition %s to %s: %s%s%s\n", s.target.table.c_str(),
                     to_string(s.target.partition).substr(0, 8).c_str(), s.target.server.name.c_str(), s.state.c_str(),
                     s.why.empty() ? "" : ": ", s.why.c_str());
  }
  bool flushed = false;
  service.stop([&] { flushed = true; });
  loop.run_for(std::chrono::seconds(10), [&] { return flushed; });
  return done ? daemon::kExitDone : daemon::kExitTemporary;
}

}  // namespace cantle::replpush
