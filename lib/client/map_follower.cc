#include "lib/client/md_client_core.h"
#include "lib/io/timer.h"

namespace cantle::client {
namespace {
constexpr base::Duration kFollowTimeout = std::chrono::seconds(10);
}

struct MapFollower::Core : std::enable_shared_from_this<MapFollower::Core> {
  Core(MdClient& c, std::string t, FollowerEvents e, FollowerOptions o)
      : client(c), loop(c.loop()), table(std::move(t)), events(std::move(e)), options(o), timer(loop, [this] {
          look();
        }) {}

  MdClient& client;
  io::Loop& loop;
  std::string table;
  FollowerEvents events;
  FollowerOptions options;
  io::Timer timer;
  base::SystemRandom random;
  MdClient::MapPtr map;
  model::TxnSeq wanted;
  bool looking = false, again = false, armed = false, gone = false;
  std::string alarm;

  void plan() {
    const auto quarter = static_cast<uint64_t>(options.poll.count() / 4 + 1);
    timer.start(options.poll * 7 / 8 + base::Duration(static_cast<int64_t>(random.below(quarter))));
  }

  void look() {
    if (looking) {
      again = true;
      return;
    }
    looking = true;
    again = false;
    arm();
    client.get(table, wanted, kFollowTimeout, [weak = weak_from_this()](base::Result<MdClient::MapPtr> got) {
      const auto self = weak.lock();
      if (!self) return;
      self->looking = false;
      self->looked(std::move(got));
      if (self->again)
        self->look();
      else
        self->plan();
    });
  }

  // The watch is a hint, and one is enough; the timer comes anyway (S33).
  void arm() {
    if (armed) return;
    armed = true;
    const auto path = client.layout().config(coord::distribution(model::Keyspace::range, table));
    client.session().get(
        path,
        [weak = weak_from_this()] {
          const auto self = weak.lock();
          if (!self) return;
          self->armed = false;
          self->look();
        },
        [weak = weak_from_this()](base::Result<coord::Node> node) {
          const auto self = weak.lock();
          if (self && !node) self->armed = false;
        });
  }

  void looked(base::Result<MdClient::MapPtr> got) {
    if (!got) {
      const auto& error = got.error();
      wanted = {};  // whoever hinted at more than there is must not keep us from what there is
      if (error.code == base::Code::no_such_table) {
        if (!gone && events.on_gone) events.on_gone();
        gone = true;
      } else if (error.code == base::Code::regressed) {
        raise(error);
      }
      return;
    }
    gone = false;
    const auto& now_there = *got;
    const bool regressed = now_there->table == options.uuid && now_there->txnseq < options.seen;
    if (regressed)
      return raise(base::Error(base::Code::regressed, "table " + table + " is at txnseq " +
                                                          to_string(now_there->txnseq) + ", but was at " +
                                                          to_string(options.seen) + " before"));
    alarm.clear();
    if (map && map->txnid == now_there->txnid) return;
    map = now_there;
    options.uuid = map->table;
    options.seen = map->txnseq;
    if (events.on_map) events.on_map(map);
  }

  void raise(const base::Error& error) {
    if (alarm == error.text) return;
    alarm = error.text;
    if (events.on_alarm) events.on_alarm(error);
  }
};

MapFollower::MapFollower(MdClient& client, std::string table, FollowerEvents events, FollowerOptions options)
    : core_(std::make_shared<Core>(client, std::move(table), std::move(events), options)) {
  core_->loop.defer([weak = std::weak_ptr<Core>(core_)] {
    if (const auto self = weak.lock()) self->look();
  });
}
MapFollower::~MapFollower() = default;

const MdClient::MapPtr& MapFollower::map() const { return core_->map; }

void MapFollower::hint(model::TxnSeq at_least) {
  if (at_least > core_->wanted) core_->wanted = at_least;
  if (core_->map && at_least.value != 0 && core_->map->txnseq >= at_least) return;
  core_->look();
}

}  // namespace cantle::client
