#include "lib/meta/node_watch.h"

#include "lib/meta/hint.h"

namespace cantle::meta {

NodeWatch::NodeWatch(coord::Session& session, coord::Layout layout, coord::Timers& timers)
    : session_(session), layout_(std::move(layout)), timers_(timers) {}
NodeWatch::~NodeWatch() { *alive_ = false; }

void NodeWatch::start() { poll(); }

void NodeWatch::poll() {
  refresh([](bool) {});
  timers_.after(kNodesPoll, [this, alive = std::weak_ptr<bool>(alive_)] {
    if (alive.lock()) poll();
  });
}

void NodeWatch::refresh(std::function<void(bool)> done) {
  next_.push_back(std::move(done));
  if (!busy_) begin();
}

void NodeWatch::begin() {
  busy_ = true;
  running_.swap(next_);
  const std::weak_ptr<bool> alive = alive_;
  auto round = std::make_shared<Round>();
  session_.sync(layout_.active(), [this, alive, round](base::Result<base::Nothing> synced) {
    if (!alive.lock()) return;
    if (!synced) {
      round->failed = true;
      return finish(*round);
    }
    auto watch = hint_watch(armed_, alive_, [this] { refresh([](bool) {}); });
    session_.children(layout_.active(), std::move(watch), [this, alive, round](base::Result<coord::Children> active) {
      if (!alive.lock()) return;
      if (!active) {
        armed_ = false;
        round->failed = true;
        return finish(*round);
      }
      session_.children(layout_.infos(), nullptr,
                        [this, alive, round, names = active->names](base::Result<coord::Children> infos) {
                          if (!alive.lock()) return;
                          if (!infos) {
                            round->failed = true;
                            return finish(*round);
                          }
                          read_each(round, names, infos->names);
                        });
    });
  });
}

void NodeWatch::read_each(std::shared_ptr<Round> round, const std::vector<std::string>& active,
                          const std::vector<std::string>& infos) {
  round->left = active.size() + infos.size();
  if (round->left == 0) return finish(*round);
  const std::weak_ptr<bool> alive = alive_;
  const auto one_done = [this, alive, round] {
    if (--round->left == 0) finish(*round);
  };
  for (const auto& name : active)
    session_.get(layout_.active(model::ServerId{name}), nullptr,
                 [alive, round, name, one_done](base::Result<coord::Node> node) {
                   if (!alive.lock()) return;
                   if (node) {
                     if (auto parsed = coord::parse_active(node->value))
                       round->actives[model::ServerId{name}] = std::move(*parsed);
                   } else if (node.error().code != base::Code::not_found) {
                     round->failed = true;
                   }
                   one_done();
                 });
  for (const auto& name : infos)
    session_.get(layout_.info(model::ServerId{name}), nullptr,
                 [alive, round, name, one_done](base::Result<coord::Node> node) {
                   if (!alive.lock()) return;
                   if (node) {
                     if (auto parsed = coord::parse_info(node->value))
                       round->infos[model::ServerId{name}] = std::move(*parsed);
                   } else if (node.error().code != base::Code::not_found) {
                     round->failed = true;
                   }
                   one_done();
                 });
}

void NodeWatch::finish(Round& round) {
  if (!round.failed) {
    NodesView view;
    for (const auto& [server, active] : round.actives) {
      (active.role == coord::Role::mdserver ? view.mdservers : view.partds).insert(server);
      actives_[server] = active;
    }
    view.infos = std::move(round.infos);
    view_ = std::move(view);
  }
  const std::weak_ptr<bool> alive = alive_;
  const auto waiting = std::move(running_);
  running_.clear();
  for (const auto& done : waiting) {
    done(!round.failed);
    if (!alive.lock()) return;
  }
  busy_ = false;
  if (!next_.empty()) begin();
}

}  // namespace cantle::meta
