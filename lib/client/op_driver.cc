#include "lib/client/op_driver.h"

#include <unistd.h>

#include <deque>
#include <utility>

#include "lib/base/testing.h"
#include "lib/coord/governments.h"
#include "lib/io/loop.h"
#include "lib/io/timer.h"
#include "lib/proto/drivers.h"

namespace cantle::client {

using base::Code;
using base::Error;
namespace driver = proto::driver;

namespace {
constexpr base::Duration kTick = std::chrono::milliseconds(50);
constexpr base::Duration kMapTimeout = std::chrono::seconds(8);

// Reads a directory's children and each child's value; what vanishes meanwhile is left out. A watch that is given is
// set on all of them.
void read_all(coord::Session& session, const std::string& directory, const coord::Watch& watch,
              std::function<void(base::Result<std::map<std::string, std::string>>)> done) {
  struct Round {
    std::map<std::string, std::string> found;
    size_t left = 0;
    base::Status status = base::ok();
  };
  session.children(directory, watch,
                   [&session, directory, watch, done = std::move(done)](base::Result<coord::Children> names) {
                     if (!names && names.error().code == Code::not_found)
                       return done(std::map<std::string, std::string>{});
                     if (!names) return done(base::fail(names.error()));
                     auto round = std::make_shared<Round>();
                     round->left = names->names.size();
                     if (round->left == 0) return done(round->found);
                     for (const auto& name : names->names)
                       session.get(directory + "/" + name, watch, [round, name, done](base::Result<coord::Node> node) {
                         if (node)
                           round->found[name] = node->value;
                         else if (node.error().code != Code::not_found)
                           round->status = base::fail(node.error());
                         if (--round->left != 0) return;
                         if (!round->status) return done(base::fail(round->status.error()));
                         done(round->found);
                       });
                   });
}

}  // namespace

std::string this_process() {
  char host[256] = "localhost";
  ::gethostname(host, sizeof host - 1);
  return std::string(host) + ":" + std::to_string(::getpid());
}

struct OpDriver::Core : std::enable_shared_from_this<OpDriver::Core> {
  Core(io::Loop& l, MdClient& m, std::string t, model::AttemptId a, std::unique_ptr<proto::DriverBase> d,
       OpDriverOptions o, OpDriverEvents e)
      : loop(l),
        md(m),
        table(std::move(t)),
        attempt(a),
        machine(std::move(d)),
        options(std::move(o)),
        events(std::move(e)),
        timer(l, [this] { feed(driver::Tick{loop.now()}); }) {}

  coord::Session& session() { return md.session(); }
  std::string task() const { return md.layout().op_task(attempt); }

  // A callback that does nothing once the driver is gone.
  template <class... Args, class Fn>
  std::function<void(Args...)> guarded(Fn fn) {
    return [weak = weak_from_this(), fn = std::move(fn)](Args... args) mutable {
      if (const auto self = weak.lock(); self && !self->gone) fn(*self, std::move(args)...);
    };
  }

  void feed(driver::Input input) {
    inputs.push_back(std::move(input));
    if (std::exchange(stepping, true)) return;
    const auto self = shared_from_this();
    while (!inputs.empty() && !gone) {
      auto in = std::move(inputs.front());
      inputs.pop_front();
      for (const auto& e : machine->step(in)) {
        if (gone) break;
        std::visit([&](const auto& x) { perform(x); }, e);
      }
    }
    stepping = false;
  }

  void perform(const driver::Look& e);
  void perform(const driver::Submit& e);
  void perform(const driver::Waiting& e) {
    if (events.on_waiting) events.on_waiting(e);
  }
  void perform(const driver::Ended& e);
  void looked(uint64_t number, base::Result<proto::World> world);
  void read_observed(uint64_t number, proto::World world, const std::string& distribution);
  void read_map(uint64_t number, proto::World world);
  void read_governments(uint64_t number, proto::World world);
  void take(std::function<void(base::Status)> done);
  void send(const driver::Submit& e);
  void let_go();

  io::Loop& loop;
  MdClient& md;
  std::string table;
  model::AttemptId attempt;
  std::unique_ptr<proto::DriverBase> machine;
  OpDriverOptions options;
  OpDriverEvents events;
  io::Timer timer;
  std::deque<driver::Input> inputs;
  bool stepping = false, gone = false, watching = false;
  uint64_t task_session = 0;  // whose ephemeral stands
};

// A sync; then who lives, what was observed, and last the map, so that it is the newest of the three; and behind it the
// governments that the attempt waits for.
void OpDriver::Core::perform(const driver::Look& e) {
  const uint64_t number = e.number;
  session().sync(
      md.layout().distributions(), guarded<base::Status>([number](Core& self, base::Status synced) {
        if (!synced) return self.looked(number, base::fail(synced.error()));
        read_all(self.session(), self.md.layout().active(), nullptr,
                 self.guarded<base::Result<std::map<std::string, std::string>>>([number](Core& me, auto nodes) {
                   if (!nodes) return me.looked(number, base::fail(nodes.error()));
                   proto::World world;
                   for (const auto& [name, text] : *nodes)
                     if (const auto active = coord::parse_active(text); active && active->role == coord::Role::partd)
                       world.live.insert(model::ServerId{name});
                   me.session().children(
                       me.md.layout().distributions(), nullptr,
                       me.guarded<base::Result<coord::Children>>([number, world](Core& x, auto names) {
                         if (!names) return x.looked(number, base::fail(names.error()));
                         auto d = coord::find_distribution(names->names, x.table);
                         if (!d) return x.looked(number, base::fail(d.error()));
                         x.read_observed(number, world, *d);
                       }));
                 }));
      }));
}

void OpDriver::Core::read_observed(uint64_t number, proto::World world, const std::string& distribution) {
  // Hints only (S33): the slow timer looks again anyway. One set at a time, so that they do not pile up.
  coord::Watch watch;
  if (!watching) {
    watching = true;
    watch = guarded<>([](Core& self) {
      if (!std::exchange(self.watching, false)) return;
      self.loop.defer(self.guarded<>([](Core& me) { me.feed(driver::Hint{me.loop.now()}); }));
    });
    session().get(md.layout().config(distribution), watch, [](base::Result<coord::Node>) {});
  }
  read_all(session(), md.layout().observed(distribution), watch,
           guarded<base::Result<std::map<std::string, std::string>>>([number, world](Core& self, auto nodes) mutable {
             if (!nodes) return self.looked(number, base::fail(nodes.error()));
             for (const auto& [name, text] : *nodes)
               if (const auto observed = coord::parse_observed(text))
                 world.observed[model::ServerId{name}] = observed->txnseq;
             self.read_map(number, std::move(world));
           }));
}

void OpDriver::Core::read_map(uint64_t number, proto::World world) {
  md.get(table, {}, kMapTimeout, guarded<base::Result<MdClient::MapPtr>>([number, world](Core& self, auto map) mutable {
           if (!map) return self.looked(number, base::fail(map.error()));
           world.map = *map;
           self.read_governments(number, std::move(world));
         }));
}

// Where the attempt is about partitions of a quorum table.
void OpDriver::Core::read_governments(uint64_t number, proto::World world) {
  const auto wanted = proto::governed_by(*world.map, attempt);
  coord::read_governments(session(), md.layout(), coord::distribution(world.map->keyspace, table), wanted,
                          guarded<base::Result<coord::GovernmentsRead>>([number, world](Core& self, auto read) mutable {
                            if (!read) return self.looked(number, base::fail(read.error()));
                            for (auto& [id, r] : *read) world.governments[id] = {std::move(r.government), r.version};
                            self.looked(number, std::move(world));
                          }));
}

void OpDriver::Core::looked(uint64_t number, base::Result<proto::World> world) {
  if (world && events.on_world) events.on_world(*world);
  if (!gone) feed(driver::Looked{loop.now(), number, std::move(world)});
}

void OpDriver::Core::perform(const driver::Submit& e) {
  if (!options.drive)
    return loop.defer(guarded<>([number = e.number](Core& self) {
      self.feed(driver::Changed{self.loop.now(), number, base::fail(Code::unavailable, "left to whoever drives it")});
    }));
  if (options.without_task) return send(e);
  if (task_session != 0 && task_session == session().session_id()) return send(e);
  take(guarded<base::Status>([e](Core& self, base::Status taken) {
    if (taken) return self.send(e);
    self.feed(driver::Changed{self.loop.now(), e.number, taken});
  }));
}

void OpDriver::Core::take(std::function<void(base::Status)> done) {
  const coord::Task content{options.who, table, options.what};
  const uint64_t under = session().session_id();
  session().create(
      task(), coord::task_text(content), coord::CreateMode::ephemeral,
      guarded<base::Result<std::string>>([under, done = std::move(done)](Core& self, auto made) {
        if (made) {
          self.task_session = under;
          return done(base::ok());
        }
        if (made.error().code != Code::exists) return done(base::fail(made.error()));
        // Somebody drives it; or this is ours, and the answer to an earlier try was lost.
        self.session().get(self.task(), nullptr, self.guarded<base::Result<coord::Node>>([done](Core& me, auto node) {
          if (!node) return done(base::fail(Code::unavailable, node.error().text));
          if (node->stat.ephemeral_owner == me.session().session_id()) {
            me.task_session = me.session().session_id();
            return done(base::ok());
          }
          const auto other = coord::parse_task(node->value);
          done(base::fail(Code::unavailable, (other ? other->driver : "another process") + " drives it"));
        }));
      }));
}

void OpDriver::Core::send(const driver::Submit& e) {
  CRASH_POINT("driver.before_change");
  ChangeSpec spec;
  spec.table = table;
  spec.operations = {e.operation};
  md.change(std::move(spec), options.change_timeout,
            guarded<base::Result<model::MdChangeReply>>([number = e.number](Core& self, auto reply) {
              CRASH_POINT("driver.change_answered");
              self.feed(driver::Changed{self.loop.now(), number,
                                        reply ? base::ok() : base::Status(base::fail(reply.error()))});
            }));
}

void OpDriver::Core::perform(const driver::Ended& e) {
  timer.stop();
  let_go();
  if (events.on_ended) events.on_ended(e);
}

void OpDriver::Core::let_go() {
  if (std::exchange(task_session, 0) == 0) return;
  session().remove(task(), coord::kAnyVersion, [](base::Status) {});
}

OpDriver::OpDriver(io::Loop& loop, MdClient& md, std::string table, model::AttemptId attempt,
                   std::unique_ptr<proto::DriverBase> driver, OpDriverOptions options, OpDriverEvents events)
    : core_(std::make_shared<Core>(loop, md, std::move(table), attempt, std::move(driver), std::move(options),
                                   std::move(events))) {}

OpDriver::~OpDriver() {
  core_->gone = true;
  core_->timer.stop();
  core_->let_go();  // detached: a metadata server sees that nobody drives it
}

void OpDriver::start() {
  core_->timer.start(kTick, kTick);
  const auto begin = [](OpDriver::Core& self) { self.feed(driver::Begin{self.loop.now()}); };
  if (!core_->options.drive || core_->options.without_task) return core_->loop.defer(core_->guarded<>(begin));
  core_->take(core_->guarded<base::Status>([begin](Core& self, base::Status) { begin(self); }));
}

void OpDriver::abort(const std::string& reason) { core_->feed(driver::AbortAsked{core_->loop.now(), reason}); }

}  // namespace cantle::client
