// PipelineWorld: the machines of a quorum table's log (Follower, Leader) on a few nodes, under random delays, losses,
// doublings, crashes and changes of leader, from one seed. Elections are played by the world itself, by their rule: a
// majority seals, the highest (epoch, LSN) among it leads; old leaders are told nothing.
//
// What it watches: committed is one sequence of records, whoever says so; who serves has all of it; what a client was
// told is in it.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <set>
#include <string>
#include <vector>

#include "lib/base/random.h"
#include "lib/proto/quorum_follower.h"
#include "lib/proto/quorum_leader.h"

namespace cantle::proto::quorum {

using namespace std::chrono_literals;

class PipelineWorld {
 public:
  struct Options {
    size_t nodes = 3;
    Pipeline pipeline = Pipeline::chain;
    double lose = 0, twice = 0, slow = 0;
    bool crashes = false, elections = false, store_refuses = false, short_journal = false;
  };
  PipelineWorld(uint64_t seed, const Options& options) : random_(seed), options_(options) {
    for (size_t i = 0; i < options.nodes; ++i) {
      nodes_.push_back(std::make_unique<Node>());
      auto& n = *nodes_.back();
      n.at = i;
      n.hop.server.name = "p" + std::to_string(i + 1);
      n.hop.assignment.bytes[0] = static_cast<uint8_t>(i + 1);
      voters_.push_back({static_cast<uint32_t>(i), n.hop.server, n.hop.assignment});
      start(n);
    }
  }

  void run_for(base::Duration d) {
    const auto until = now_ + d;
    while (!events_.empty() && events_.top().at <= until && violation_.empty()) {
      auto e = events_.top();
      events_.pop();
      now_ = e.at;
      e.fn();
    }
    now_ = until;
  }
  // Faults and clients at random.
  void storm(base::Duration d) {
    const auto until = now_ + d;
    while (now_ < until && violation_.empty()) {
      run_for(between(100, 3000) * 1us);
      const auto dice = random_.below(100);
      if (dice < 80) write_somewhere();
      if (options_.crashes && dice >= 96) crash(random_.below(nodes_.size()));
      if (options_.elections && dice >= 92 && dice < 96) elect();
    }
  }
  // A majority that is up seals, and the best of it leads.
  bool elect() {
    std::vector<Node*> up;
    for (auto& n : nodes_)
      if (n->alive) up.push_back(n.get());
    const size_t need = voters_.size() / 2 + 1;
    if (up.size() < need) return false;
    while (up.size() > need && random_.chance(0.5)) up.erase(up.begin() + static_cast<long>(random_.below(up.size())));
    const model::Epoch next{epoch_ + 1};
    Node* best = nullptr;
    for (auto* n : up) {
      seal(*n, next);
      if (best == nullptr || token(*n) > token(*best)) best = n;
    }
    epoch_ = next.value;
    leader_ = best->at;
    lead(*best);
    return true;
  }
  void crash(size_t i) { crash_node(*nodes_.at(i)); }

  // No more faults; within the time a leader serves, takes a write, and all logs are the same.
  std::string settle() {
    options_.lose = options_.twice = options_.slow = 0;
    options_.store_refuses = false;
    for (auto& n : nodes_)
      if (!n->alive) start(*n);
    run_for(3s);
    if (nodes_[leader_]->leader == nullptr || nodes_[leader_]->leader->stopped()) elect();
    std::optional<bool> done;
    for (int i = 0; i < 50 && !done.value_or(false) && violation_.empty(); ++i) {
      done.reset();
      write(*nodes_[leader_], &done);
      run_for(300ms);
    }
    if (!violation_.empty()) return violation_;
    if (!done.value_or(false)) return "no write goes through after the faults" + describe();
    run_for(4s);
    const auto& first = *nodes_.front();
    for (const auto& n : nodes_) {
      if (n->log.size() != first.log.size() || n->state->commit() != first.state->commit())
        return "the logs are not the same in the end" + describe();
      for (size_t i = 0; i < n->log.size(); ++i)
        if (n->log[i].header != first.log[i].header) return "the logs differ in the end" + describe();
    }
    for (const auto write : told_)
      if (std::find(committed_.begin(), committed_.end(), write) == committed_.end())
        return "an acknowledged write is gone";
    return violation_;
  }
  std::string violation() const { return violation_; }
  size_t acknowledged() const { return told_.size(); }
  size_t cuts() const { return cuts_; }
  size_t outside() const { return outside_; }

  struct Block {
    model::BlockHeader header;
    std::vector<uint64_t> writes;  // one a record; 0: an epoch start
  };
  struct Node final : Gatherer {
    // Every seventh request puts nothing into the log: what it was judged by is all that is in the log before it.
    Judged gather(RequestId request, BatchId batch, model::Epoch epoch, model::Lsn first) override {
      if (performed_commit < started) early = true;
      if (request % 7 == 0) return {0, 0, judged[request] = model::Lsn{first.value - 1}, request % 2 == 0};
      batches[{epoch, batch}].push_back(request);
      return {1, 100, {}, true};
    }
    std::map<RequestId, model::Lsn> judged;
    model::Lsn started, performed_commit;  // its newest epoch start; what the store was told
    bool early = false;
    size_t at = 0;
    model::Hop hop;
    bool alive = false;
    uint64_t life = 0;
    model::Epoch promise;  // durable
    std::vector<Block> log;
    size_t durable = 0;  // blocks
    model::Lsn kept_commit;
    std::unique_ptr<Log> state;
    std::unique_ptr<Follower> follower;
    std::unique_ptr<Leader> leader;
    std::vector<std::unique_ptr<Leader>> former;
    bool syncing = false;
    std::optional<std::vector<Block>> before_cut;  // until the cut is durable
    std::map<CallId, std::pair<Block, model::PipeBlock>> blocks;
    std::map<CallId, std::function<void(base::Result<model::PipeOpenReply>)>> opens;
    std::map<std::pair<model::Epoch, BatchId>, std::vector<uint64_t>> batches;
    std::map<model::Lsn, Block> kept;
  };
  Node& node(size_t i) { return *nodes_.at(i); }
  Node& leader() { return *nodes_[leader_]; }
  void write(Node& n, std::optional<bool>* done = nullptr) {
    if (!n.alive || n.leader == nullptr || n.leader->stopped()) return;
    const auto id = ++last_write_;
    waiting_[id] = done;
    Effects out;
    n.leader->write(now_, id, 100, now_ + 300ms, out);
    if (random_.chance(0.7)) n.leader->flush(now_, out);
    perform(n, out);
    if (done == nullptr && random_.chance(0.1)) return;  // until the next one: a leader may be deposed in between
    if (n.alive && n.leader) {
      Effects rest;
      n.leader->flush(now_, rest);
      perform(n, rest);
    }
  }
  std::string describe() const {
    std::string out = "\n";
    for (const auto& n : nodes_) {
      out += n->hop.server.name + (n->alive ? "" : " down") + " promise " + std::to_string(n->promise.value) + " end " +
             std::to_string(n->state ? n->state->end().lsn.value : 0) + " durable " +
             std::to_string(n->state ? n->state->durable().lsn.value : 0) + " commit " +
             std::to_string(n->state ? n->state->commit().value : 0) +
             (n->leader ? " leads epoch " + std::to_string(n->leader->epoch().value) +
                              (n->leader->serving() ? " serving" : "") + (n->leader->stopped() ? " stopped" : "")
                        : "") +
             " log";
      for (const auto& b : n->log)
        out += " " + std::to_string(b.header.epoch.value) + ":" + std::to_string(b.header.last().value);
      if (n->leader)
        for (const auto& p : n->leader->peers())
          out += "\n   " + p.hop.server.name + " state " + std::to_string(static_cast<int>(p.state)) + " acked " +
                 std::to_string(p.acked.lsn.value) + " " + p.why;
      out += "\n";
    }
    return out;
  }

 private:
  int64_t between(uint64_t least, uint64_t most) {
    return static_cast<int64_t>(least + random_.below(most - least + 1));
  }
  struct Event {
    base::Instant at;
    uint64_t number;
    std::function<void()> fn;
    bool operator<(const Event& o) const { return at != o.at ? at > o.at : number > o.number; }
  };
  void after(base::Duration d, std::function<void()> fn) { events_.push({now_ + d, ++numbers_, std::move(fn)}); }
  void on(Node& n, base::Duration d, std::function<void()> fn) {
    after(d, [&n, life = n.life, fn = std::move(fn)] {
      if (n.alive && n.life == life) fn();
    });
  }
  void violate(std::string what) {
    if (violation_.empty()) violation_ = std::move(what) + describe();
  }
  static model::LogPoint end_of(const Block& b) { return point_of(b.header); }
  static model::LogPoint end_of(const Node& n) { return n.log.empty() ? model::LogPoint{} : end_of(n.log.back()); }
  static model::LogToken token(const Node& n) { return model::token_of(end_of(n)); }
  Node* find(const model::Hop& hop) {
    for (auto& n : nodes_)
      if (n->hop == hop) return n.get();
    return nullptr;
  }

  // --- lives
  void start(Node& n) {
    n.alive = true;
    ++n.life;
    std::vector<model::EpochStart> epochs;
    for (const auto& b : n.log)
      if (epochs.empty() || epochs.back().epoch != b.header.epoch) epochs.push_back({b.header.epoch, b.header.first});
    model::Lsn commit = n.kept_commit;
    for (const auto& b : n.log) commit = std::max(commit, b.header.commit);
    commit = std::min(commit, end_of(n).lsn);
    n.state = std::make_unique<Log>(end_of(n), commit, epochs);
    n.follower = std::make_unique<Follower>(*n.state);
    tick(n);
  }
  void tick(Node& n) {
    if (n.leader && !n.leader->stopped()) {
      Effects out;
      n.leader->tick(now_, out);
      perform(n, out);
    }
    if (n.alive) on(n, 2ms, [this, &n] { tick(n); });
  }
  void crash_node(Node& n) {
    if (!n.alive) return;
    n.alive = false;
    ++n.life;
    const size_t lost = n.log.size() - n.durable;
    n.log.resize(n.durable + (lost > 0 ? random_.below(lost + 1) : 0));
    if (n.before_cut && random_.chance(0.5)) n.log = std::move(*n.before_cut);
    n.before_cut.reset();
    n.durable = n.log.size();
    n.leader.reset();
    n.former.clear();
    n.follower.reset();
    n.state.reset();
    n.syncing = false;
    n.blocks.clear();
    n.opens.clear();
    n.batches.clear();
    n.kept.clear();
    after(between(1, 400) * 1ms, [this, &n] {
      if (!n.alive) start(n);
    });
  }
  void seal(Node& n, model::Epoch promise) {
    if (promise <= n.promise) return;
    n.promise = promise;
    n.durable = n.log.size();  // the seal stands behind it in the journal
    n.before_cut.reset();
    stop_leading(n);
    Effects out;
    n.follower->leave(out);
    perform(n, out);
    tell_durable(n);
  }
  void stop_leading(Node& n) {
    if (!n.leader) return;
    Effects out;
    n.leader->stop(base::Error(base::Code::not_leader, "another one leads"), out);
    n.former.push_back(std::move(n.leader));
    perform(n, out);
  }
  void lead(Node& n) {
    stop_leading(n);
    n.promise = std::max(n.promise, model::Epoch{epoch_});
    n.leader = std::make_unique<Leader>(n.hop, model::Epoch{epoch_}, voters_, *n.state, n, options_.pipeline);
    Effects out;
    n.leader->begin(now_, out);
    perform(n, out);
  }
  // May a leader of that epoch say something here?
  bool admits(Node& n, model::Epoch epoch) {
    if (epoch < n.promise) return false;
    if (n.leader && n.leader->epoch() < epoch) stop_leading(n);
    return true;
  }

  // --- the log
  void sync(Node& n) {
    if (n.syncing || n.before_cut || n.durable == n.log.size()) return;
    n.syncing = true;
    const size_t upto = n.log.size();
    const auto mark = upto > 0 ? end_of(n.log[upto - 1]) : model::LogPoint{};
    on(n, between(50, random_.chance(options_.slow) ? 200000 : 1500) * 1us, [this, &n, upto, mark] {
      n.syncing = false;
      if (n.log.size() >= upto && upto > 0 && end_of(n.log[upto - 1]) == mark) n.durable = std::max(n.durable, upto);
      tell_durable(n);
      if (n.durable < n.log.size()) sync(n);
    });
  }
  void tell_durable(Node& n) {
    if (n.durable == 0 || !n.state) return;
    n.state->durable(end_of(n.log[n.durable - 1]));
    Effects out;
    n.follower->durable(out);
    if (n.leader) n.leader->durable(now_, out);
    perform(n, out);
  }
  Block make(Node& n, const Build& e, std::vector<uint64_t> writes) {
    Block b;
    b.header.kind = e.kind;
    b.header.epoch = e.epoch;
    b.header.first = n.log.empty() ? model::Lsn{1} : end_of(n).lsn.next();
    b.header.records = static_cast<uint32_t>(writes.size());
    b.header.prev_epoch = end_of(n).epoch;
    b.header.prev_lsn = end_of(n).lsn;
    b.header.prev_crc = end_of(n).crc;
    b.header.commit = e.commit;
    uint64_t crc = b.header.prev_crc * 31 + e.epoch.value;
    for (const auto w : writes) crc = crc * 1000003 + w;
    b.header.header_crc = static_cast<uint32_t>(crc ^ (crc >> 32));
    b.writes = std::move(writes);
    return b;
  }
  void check_commit(Node& n, model::Lsn lsn) {
    size_t at = 0;
    for (const auto& b : n.log) {
      if (b.header.first > lsn) break;
      for (const auto w : b.writes) {
        if (at < committed_.size() && committed_[at] != w) return violate("two histories were committed");
        if (at >= committed_.size()) committed_.push_back(w);
        if (++at >= lsn.value) return;
      }
    }
    if (at < lsn.value) violate("committed beyond the end of the log");
  }

  // --- effects
  void perform(Node& n, Effects& effects) {
    const auto life = n.life;
    if (n.early) violate("a write was judged before the store had what the leader took over");
    for (auto& e : effects) {
      if (!n.alive || n.life != life) return;
      std::visit([&](auto& x) { perform(n, x); }, e);
    }
  }
  void perform(Node& n, Build& e) {
    auto writes = std::move(n.batches[{e.epoch, e.batch}]);
    n.batches.erase({e.epoch, e.batch});
    if (e.kind == model::BlockKind::epoch_start) {
      writes = {0};
      n.started = e.first;
    }
    Leader* leader = n.leader && n.leader->epoch() == e.epoch ? n.leader.get() : nullptr;
    for (auto& f : n.former)
      if (leader == nullptr && f->epoch() == e.epoch) leader = f.get();
    Effects out;
    if (options_.store_refuses && e.kind == model::BlockKind::data && random_.chance(0.1)) {
      leader->built(now_, e.batch, base::fail(base::Code::read_only, "the disk is full"), out);
    } else if (const auto first = end_of(n).lsn.next(); first != e.first) {
      leader->built(now_, e.batch, base::fail(base::Code::unavailable, "the log does not end there"), out);
    } else {
      n.log.push_back(make(n, e, std::move(writes)));
      const auto& b = n.log.back();
      n.kept[b.header.last()] = b;
      leader->built(now_, e.batch, Leader::Placed{b.header.first, end_of(b), 100 * b.writes.size()}, out);
      sync(n);
    }
    perform(n, out);
  }
  void perform(Node& n, Take& e) {
    auto& [block, message] = n.blocks.at(e.call);
    if (options_.store_refuses && random_.chance(0.02)) {
      Effects out;
      n.follower->take_failed(end_of(n), base::Error(base::Code::read_only, "the disk is full"), out);
      n.blocks.erase(e.call);
      return perform(n, out);
    }
    if (block.header.first != end_of(n).lsn.next()) {
      Effects out;
      n.follower->take_failed(end_of(n), base::Error(base::Code::diverged, "the log does not end there"), out);
      n.blocks.erase(e.call);
      return perform(n, out);
    }
    n.log.push_back(block);
    n.blocks.erase(e.call);
    sync(n);
  }
  void perform(Node& n, Truncate& e) {
    ++cuts_;
    n.before_cut = n.log;
    while (!n.log.empty() && n.log.back().header.last() > e.keep.lsn) n.log.pop_back();
    if (end_of(n) != e.keep) violate("cut at no block's end");
    n.durable = n.log.size();
    on(n, between(50, 2000) * 1us, [this, &n] {
      n.before_cut.reset();
      sync(n);
      Effects out;
      n.follower->truncated(base::ok(), out);
      perform(n, out);
    });
  }
  void perform(Node& n, Commit& e) {
    check_commit(n, e.lsn);
    n.performed_commit = e.lsn;
    if (random_.chance(0.3))
      n.kept_commit = std::min(e.lsn, n.durable > 0 ? end_of(n.log[n.durable - 1]).lsn : model::Lsn{});
  }
  void perform(Node& n, Serving& e) {
    if (e.epoch.value != epoch_) return;  // deposed, and does not know: its lease tells (lib/proto/beacons.h)
    size_t at = 0;
    for (const auto& b : n.log)
      for (const auto w : b.writes)
        if (at < committed_.size() && committed_[at++] != w)
          return violate("a leader serves without what is committed");
    if (at < committed_.size()) violate("a leader serves without all that is committed");
  }
  void perform(Node& n, Reply& e) {
    const auto it = waiting_.find(e.request);
    if (it == waiting_.end()) return violate("answered twice, or never asked");
    if (it->second != nullptr) *it->second = e.result.has_value();
    waiting_.erase(it);
    if (!e.result) {
      if (e.result.error().code != base::Code::outcome_unknown) refused_.insert(e.request);
      return;
    }
    if (const auto judged = n.judged.find(e.request); judged != n.judged.end()) {
      if (committed_.size() < judged->second.value) violate("answered before what it was judged by was committed");
      return;
    }
    told_.push_back(e.request);
    if (std::find(committed_.begin(), committed_.end(), e.request) == committed_.end())
      violate("acknowledged and not committed");
  }
  void perform(Node& n, MetPromise& e) {
    if (!n.leader || e.promise <= n.leader->epoch()) return;
    // It renews its government, if it is its own still.
    if (leader_ == n.at && n.leader->epoch().value == epoch_) {
      epoch_ = e.promise.value;
      on(n, 1ms, [this, &n, epoch = epoch_] {
        if (leader_ == n.at && epoch_ == epoch) lead(n);
      });
    } else {
      on(n, 1ms, [this, &n] {
        if (leader_ != n.at) stop_leading(n);
      });
    }
  }
  void perform(Node& n, CannotLead&) {
    on(n, 1ms, [this, &n] { stop_leading(n); });
  }
  void perform(Node&, Accepted&) {}
  void perform(Node&, SendOutside&) {}
  void perform(Node&, PullSnapshot&) {}
  void perform(Node&, InstallSnapshot&) {}
  void perform(Node&, FetchBlocks&) {}
  void perform(Node&, BorrowBlocks&) {}
  void perform(Node&, MarkWhole&) {}
  void perform(Node& n, Faulted& e) { violate(n.hop.server.name + " is faulted: " + e.why); }
  void perform(Node&, Say&) {}
  void perform(Node&, Release&) {}
  void perform(Node& n, ForgetBlocks& e) { n.kept.erase(n.kept.begin(), n.kept.upper_bound(e.through)); }
  void perform(Node& n, FindPoint& e) {
    on(n, between(10, 500) * 1us, [this, &n, e] {
      for (const auto& b : n.log)
        if (b.header.last() == e.lsn) {
          Effects out;
          if (n.leader) n.leader->point_found(now_, e.peer, e.generation, end_of(b), out);
          return perform(n, out);
        }
      violate("asked for the end of no block");
    });
  }

  // --- the network
  void carry(Node& to, std::function<void()> fn) {
    if (random_.chance(options_.lose)) return;
    const auto delay = [&] { return between(50, random_.chance(options_.slow) ? 300000 : 2000) * 1us; };
    if (random_.chance(options_.twice)) on(to, delay(), fn);
    on(to, delay(), fn);
  }
  model::Envelope envelope(const Node& from, const model::Hop& to) {
    model::Envelope out;
    out.from = from.hop.server;
    out.from_assignment = from.hop.assignment;
    out.to_assignment = to.assignment;
    return out;
  }
  template <class Ask>
  void call(Node& n, const model::Hop& to, uint64_t generation, model::Epoch epoch, Ask ask) {
    auto answered = std::make_shared<bool>(false);
    Node* target = find(to);
    auto answer = [this, &n, to, generation, epoch, answered](const base::Result<model::PipeOpenReply>& reply) {
      if (std::exchange(*answered, true)) return;
      if (!n.leader || n.leader->epoch() != epoch) return;
      Effects out;
      n.leader->opened(now_, to, generation, reply, out);
      perform(n, out);
    };
    on(n, 500ms, [answer] { answer(base::fail(base::Code::outcome_unknown, "no answer")); });
    carry(*target, [this, &n, target, epoch, ask, answer, life = n.life] {
      const auto back = [this, &n, answer, life](base::Result<model::PipeOpenReply> reply) {
        if (n.life == life) carry(n, [answer, reply] { answer(reply); });
      };
      if (!admits(*target, epoch)) {
        model::PipeOpenReply refusal;
        refusal.refused = target->promise;
        return back(refusal);
      }
      const CallId id = ++numbers_;
      target->opens[id] = back;
      Effects out;
      ask(*target, id, out);
      perform(*target, out);
    });
  }
  void perform(Node& n, SendOpen& e) {
    call(n, e.to, e.generation, e.epoch, [this, env = envelope(n, e.to), e](Node& t, CallId id, Effects& out) {
      t.follower->open(now_, id, {env, e.epoch, e.generation, e.commit}, out);
    });
  }
  void perform(Node& n, SendCut& e) {
    call(n, e.to, e.generation, e.epoch, [this, env = envelope(n, e.to), e](Node& t, CallId id, Effects& out) {
      t.follower->cut(now_, id, {env, e.epoch, e.generation, e.end, e.keep}, out);
    });
  }
  void perform(Node& n, AnswerOpen& e) {
    const auto it = n.opens.find(e.call);
    if (it == n.opens.end()) return violate("an open was answered twice");
    auto back = std::move(it->second);
    n.opens.erase(it);
    if (e.reply) check_durable(n, e.reply->end);
    back(e.reply);
  }
  void deliver(Node& t, const Block& block, const model::PipeBlock& m) {
    Node* from = find({m.envelope.from, m.envelope.from_assignment});
    if (!admits(t, m.epoch)) {
      model::PipeAck ack;
      ack.envelope = envelope(t, from->hop);
      ack.epoch = m.epoch;
      ack.refused = t.promise;
      return carry(*from, [this, from, ack] { tell(*from, ack); });
    }
    const CallId id = ++numbers_;
    t.blocks[id] = {block, m};
    Effects out;
    t.follower->block(now_, id, block.header, m, out);
    perform(t, out);
  }
  void send(Node& n, const model::Hop& to, const Block& block, model::PipeBlock m) {
    m.envelope.to_assignment = to.assignment;
    Node* target = find(to);
    (void)n;
    carry(*target, [this, target, block, m] { deliver(*target, block, m); });
  }
  void perform(Node& n, SendBlock& e) {
    const auto it = n.kept.find(e.last);
    if (it == n.kept.end()) return violate("a block is to be sent that was let go");
    send(n, e.to, it->second, {envelope(n, e.to), e.epoch, e.generation, e.commit, e.route, e.urgent, ""});
  }
  void perform(Node& n, SendOld& e) {
    on(n, between(50, 3000) * 1us, [this, &n, e] {
      std::vector<model::LogPoint> ends;
      Effects out;
      if (!n.leader) return;
      if (options_.short_journal && random_.chance(0.05)) {
        ++outside_;
        n.leader->old_sent(now_, e.to, e.generation, base::fail(base::Code::unavailable, "cannot be read now"), out);
        return perform(n, out);
      }
      for (size_t i = 0; i < n.durable && ends.size() < 5; ++i) {
        const auto& b = n.log[i];
        if (b.header.first < e.from) continue;
        send(n, e.to, b, {envelope(n, e.to), e.epoch, e.generation, e.commit, {}, 1, ""});
        ends.push_back(end_of(b));
      }
      n.leader->old_sent(now_, e.to, e.generation, ends, out);
      perform(n, out);
    });
  }
  void perform(Node& n, Forward& e) {
    const auto& [block, message] = n.blocks.at(e.call);
    auto m = message;
    m.route = e.route;
    m.urgent = e.urgent;
    send(n, e.to, block, m);
  }
  void perform(Node&, ReadReshape&) {}  // a replica's, not its leader's (quorum_cut.h)
  void perform(Node&, AskAbort&) {}
  void perform(Node& n, SendCommit& e) {
    Node* target = find(e.to);
    carry(*target,
          [this, target, m = model::PipeCommit{envelope(n, e.to), e.epoch, e.generation, e.commit, e.agreed, e.quiet}] {
            if (!admits(*target, m.epoch)) return;
            Effects out;
            target->follower->commit(now_, m, out);
            perform(*target, out);
          });
  }
  void tell(Node& n, const model::PipeAck& ack) {
    Effects out;
    if (n.leader) n.leader->acked(now_, ack, out);
    perform(n, out);
  }
  void perform(Node& n, SendAck& e) {
    model::PipeAck ack{envelope(n, e.to), e.epoch, e.generation, e.refused, e.gap, e.error, e.durable, e.commit};
    check_durable(n, e.durable);
    Node* target = find(e.to);
    carry(*target, [this, target, ack] { tell(*target, ack); });
  }

  // What a replica says that it has, a leader counts.
  void check_durable(const Node& n, const model::LogPoint& point) {
    if (point.lsn.value == 0) return;
    const bool have = std::any_of(n.log.begin(), n.log.begin() + static_cast<long>(n.durable),
                                  [&](const Block& b) { return end_of(b) == point; });
    if (!have) violate(n.hop.server.name + " says that it has what is not durable");
  }

  void write_somewhere() { write(*nodes_[random_.below(nodes_.size())]); }

  base::SeededRandom random_;
  Options options_;
  base::Instant now_{1s};
  uint64_t numbers_ = 0, last_write_ = 0, epoch_ = 0;
  size_t leader_ = 0, cuts_ = 0, outside_ = 0;
  std::priority_queue<Event> events_;
  std::vector<std::unique_ptr<Node>> nodes_;
  model::Voters voters_;
  std::vector<uint64_t> committed_;  // by LSN, from 1
  std::vector<uint64_t> told_;
  std::set<uint64_t> refused_;
  std::map<uint64_t, std::optional<bool>*> waiting_;
  std::string violation_;
};

}  // namespace cantle::proto::quorum
