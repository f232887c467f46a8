#include "test/sim/cluster.h"

#include "test/sim/partd.h"
#include "test/sim/pusher.h"

namespace cantle::sim {

Host::Host(Scheduler& scheduler, const std::string& name)
    : id{name},
      clock(std::make_shared<HostClock>()),
      medium(scheduler, name),
      partd(scheduler, name, "partd", clock),
      push(scheduler, name, "push", clock) {}
Host::~Host() = default;

Cluster::Cluster(uint64_t seed)
    : scheduler(seed), network(scheduler), coord(scheduler), maps(scheduler, network, coord, {"m1", "m2", "m3"}) {
  uuid = model::ClusterUuid::draw(scheduler.random());
}
Cluster::~Cluster() = default;

Host& Cluster::add_host(const std::string& name) {
  auto& slot = hosts[name];
  slot = std::make_unique<Host>(scheduler, name);
  Host& host = *slot;
  // Dead at first, so that every start is a restart. A death is followed by a burial, on an event of its own: the
  // code that was running when the process died may still be on the stack.
  host.partd.kill();
  host.push.kill();
  host.medium.on_power_loss([this, &host] { power_cut(host); });
  host.partd.on_death([this, &host] {
    if (watchers.partd_dying && host.partd_node) watchers.partd_dying(host);
    scheduler.after(0ns, [&host, life = host.partd.life()] {
      if (!host.partd.alive() && host.partd.life() == life) host.partd_node.reset();
    });
  });
  host.push.on_death([this, &host] {
    scheduler.after(0ns, [&host, life = host.push.life()] {
      if (!host.push.alive() && host.push.life() == life) host.push_node.reset();
    });
  });
  return host;
}

void Cluster::start_partd(Host& host) {
  if (host.partd.alive() || host.gone) return;
  host.partd_node.reset();
  ++host.starts;
  host.partd.restart();
  host.partd_node = std::make_unique<PartdNode>(*this, host);
}

void Cluster::start_push(Host& host) {
  if (host.push.alive() || host.gone) return;
  host.push_node.reset();
  host.push.restart();
  host.push_node = std::make_unique<PushNode>(*this, host);
}

void Cluster::kill_partd(Host& host) { host.partd.kill(); }
void Cluster::kill_push(Host& host) { host.push.kill(); }

Host* Cluster::with_number(model::ServerNumber number) {
  for (auto& [name, h] : hosts)
    if (h->number == number) return h.get();
  return nullptr;
}

void Cluster::wipe(Host& host) {
  host.partd_node.reset();
  host.push_node.reset();
  host.wiped = true;
  host.wiped_at = scheduler.now();
  host.number = {};
  host.medium.wipe();
  host.index.clear();
  host.positions.clear();
  host.last_held.clear();
}

void Cluster::power_cut(Host& host) {
  host.partd.kill();
  host.push.kill();
  // After the burial, which closes files and drops what was in memory.
  scheduler.after(1ns, [&host] {
    if (!host.partd.alive() && !host.push.alive()) host.medium.power_cut();
  });
}

}  // namespace cantle::sim
