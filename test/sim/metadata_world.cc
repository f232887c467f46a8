#include "test/sim/metadata_world.h"

#include <algorithm>
#include <utility>

#include "lib/base/check.h"
#include "lib/meta/config_ops.h"
#include "lib/model/validate.h"

namespace cantle::sim {

using base::Code;

namespace {
constexpr char kTable[] = "t";
constexpr const char* kDistribution = "1_t";
constexpr size_t kPartds = 5;
constexpr Duration kPartdTurn = 300ms;
constexpr size_t kPartitionsEnough = 12;  // then no more splits
}  // namespace

MdWorld::MdWorld(uint64_t seed, MdOptions options)
    : scheduler_(seed),
      network_(scheduler_),
      coord_(scheduler_),
      cluster_{scheduler_, network_, coord_, layout_, {}},
      options_(options),
      random_(seed * 977 + 5) {
  coord_.faults().session_timeout = 2s;
  for (const auto& dir : layout_.skeleton()) coord_.put(dir, "");
  base::SeededRandom clocks(seed * 577 + 3);
  for (size_t i = 0; i < options_.servers; ++i) {
    hosts_.push_back(std::make_unique<MdHost>(scheduler_, "m" + std::to_string(i + 1)));
    auto& host = *hosts_.back();
    host.process.host_clock().drift = (static_cast<double>(clocks.below(2001)) - 1000.0) * 1e-6;
    host.process.on_death([this, &host] {
      scheduler_.after(0ns, [&host, life = host.process.life()] {
        if (!host.process.alive() && host.process.life() == life) host.node.reset();
      });
    });
  }
  for (size_t i = 0; i < options_.requesters; ++i)
    requesters_.push_back(std::make_unique<Requester>(scheduler_, "r" + std::to_string(i + 1)));
  partds_ = std::make_unique<Process>(scheduler_, "p0", "partd");
  partd_session_ = coord_.open(*partds_);
  coord_.on_commit([this](const TreeTxn& txn) { on_commit(txn); });
  scheduler_.after_each([this] {
    // What is on the disks changes with their commits alone.
    uint64_t commits = 0;
    for (const auto& host : hosts_) commits += host->disk.committed;
    if (commits != checked_at_) check_majority();
    checked_at_ = commits;
    if (!violation_.empty()) scheduler_.stop();
  });
}

MdWorld::~MdWorld() = default;

MdHost& MdWorld::host(const std::string& name) {
  for (auto& h : hosts_)
    if (h->id.name == name) return *h;
  CHECK(!"no such host");
  return *hosts_.front();
}

void MdWorld::violation(const std::string& text) {
  if (violation_.empty())
    violation_ = text + " (at " + std::to_string(base::to_ms(scheduler_.now().since_boot)) + " ms)";
}

void MdWorld::start(MdHost& host) {
  if (host.process.alive()) return;
  host.node.reset();
  ++host.starts;
  host.process.restart();
  host.node = std::make_unique<MdNode>(cluster_, host);
}

void MdWorld::set_up() {
  for (auto& host : hosts_) start(*host);
  for (size_t i = 1; i <= kPartds; ++i) {
    coord::Active active;
    active.role = coord::Role::partd;
    active.incarnation = {1};
    coord_.put(layout_.active({"p" + std::to_string(i)}), active_text(active));
  }
  scheduler_.run_for(1s);
  model::ops::CreateTable create;
  create.name = kTable;
  create.table = model::TableUuid::draw(random_);
  create.replicas = 3;
  create.replication = options_.replication;
  std::string begin;
  for (size_t n = 1; n <= options_.partitions; ++n) {
    model::ops::NewPartition p;
    p.id = model::PartitionId::draw(random_);
    p.interval.begin = std::exchange(begin, "k" + std::to_string(1000000 + n));
    if (n < options_.partitions) p.interval.end = begin;
    for (size_t i = 1; i <= 3; ++i)
      p.assignments.push_back({{"p" + std::to_string(i)}, model::AssignmentId::draw(random_)});
    create.partitions.push_back(p);
  }
  model::MdChange request;
  request.table = kTable;
  request.change = model::ChangeId::draw(random_);
  const std::vector<model::Operation> ops{create};
  request.ops = wire::encode_operations(ops);
  for (size_t i = 0; i < options_.members; ++i) request.metadata_servers.push_back(hosts_[i]->id);
  const auto made = ask("m1", request, 10s);
  if (!made) return violation("the table could not be created: " + to_string(made.error()));
  if (!wait([&] { return chain_.size() == 1; }, 5s)) violation("the table is not there");
  asking_ = true;
  partds_->after(kPartdTurn, [this] { partd_turn(); });
}

// --- what is committed -------------------------------------------------------------------------------------------

void MdWorld::on_commit(const TreeTxn& txn) {
  const auto path = layout_.config(kDistribution);
  for (const auto& change : txn.changes)
    if (change.path == path && change.now && !change.touched) committed(change.now->value);
}

// From whichever disk or memory has it; the hash says that it is the one.
std::shared_ptr<const model::Metadata> MdWorld::file_of(const model::TableConfig& config) {
  const auto root = wire::node_hash(config.metadata_hash);
  if (!root) return nullptr;
  for (auto& host : hosts_) {
    std::map<wire::NodeHash, std::string> held;
    const auto& db = host->disk.dbs[static_cast<size_t>(store::Db::records)];
    const auto lookup = [&](const wire::NodeHash& h) -> const std::string* {
      const auto it = db.find(wire::view(h));
      if (it == db.end()) return nullptr;
      for (auto v = it->second.rbegin(); v != it->second.rend(); ++v)
        if (v->commit <= host->disk.committed) return v->value ? &*v->value : nullptr;
      return nullptr;
    };
    const wire::MetadataFile* base = chain_.empty() ? nullptr : &files_[chain_.back()->txnid];
    if (auto file = wire::decode_metadata(*root, lookup, base)) {
      files_[file->map->txnid] = *file;
      return file->map;
    }
  }
  return nullptr;
}

void MdWorld::committed(const std::string& text) {
  const auto parsed = model::parse_table_config(text);
  if (!parsed) return violation("TableConfig is not one: " + parsed.error().text);
  const auto before = config_;
  config_ = *parsed;
  scheduler_.note("config", to_string(config_.metadata_txnid), config_.metadata_txnseq.value,
                  config_.metadata_servers.size());
  if (!chain_.empty() && config_.metadata_txnid == chain_.back()->txnid) {
    if (config_.metadata_hash != before.metadata_hash) violation("one transaction with two hashes");
    return check_majority();
  }
  const auto file = file_of(config_);
  if (!file) return violation("nobody has the file that is current now, whole, on a disk");
  if (file->txnid != config_.metadata_txnid || file->txnseq != config_.metadata_txnseq)
    return violation("the file is not the one that TableConfig says");
  if (chain_.empty()) {
    if (file->txnseq.value != 1) return violation("the chain does not begin at 1");
  } else {
    const auto& last = *chain_.back();
    if (file->prev_txnid != last.txnid || file->txnseq != last.txnseq.next())
      return violation("a fork: txnseq " + to_string(file->txnseq) + " does not follow the one before");
    if (const auto valid = model::validate_change(last, *file); !valid) return violation(valid.error().text);
  }
  if (const auto valid = model::validate(*file); !valid) return violation(valid.error().text);  // S41
  if (!changes_.insert(file->changes.back()).second) violation("a change was made twice (S28)");
  // S39: what a split fixed when it began never changes, and the children are the ones it named.
  for (const auto& p : file->partitions) {
    if (!p.split) continue;
    const auto [it, fresh] = splits_seen_.emplace(p.split->attempt, *p.split);
    if (!fresh && (it->second.point != p.split->point || it->second.low.id != p.split->low.id ||
                   it->second.high.id != p.split->high.id))
      violation("a split changed its point or its children (S39)");
  }
  for (const auto& p : file->partitions) {
    if (!p.merge) continue;
    const auto [it, fresh] = merges_seen_.emplace(p.merge->attempt, *p.merge);
    if (!fresh && it->second != *p.merge) violation("a merge changed its neighbours or its target (S39)");
  }
  for (const auto& e : file->ended) {
    if (e.was_merged()) {
      const auto merge = merges_seen_.find(e.attempt);
      if (merge == merges_seen_.end() || merge->second.target.id != e.into ||
          (merge->second.low != e.id && merge->second.high != e.id))
        violation("a merge ended otherwise than it began (S39)");
      continue;
    }
    const auto it = splits_seen_.find(e.attempt);
    if (it == splits_seen_.end() || it->second.point != e.point || it->second.low.id != e.low)
      violation("a split ended otherwise than it began (S39)");
  }
  chain_.push_back(file);
  chain_at_.push_back(scheduler_.now());
  check_majority();
}

void MdWorld::check_majority() {
  if (chain_.empty() || regression_expected_) return;
  size_t have = 0;
  for (const auto& server : config_.metadata_servers)
    for (const auto& host : hosts_)
      if (host->id == server && host->durable(config_.table_uuid, config_.metadata_txnseq, config_.metadata_txnid))
        ++have;
  if (have < model::majority(config_))
    violation("only " + std::to_string(have) + " of " + std::to_string(config_.metadata_servers.size()) +
              " listed servers have the current file durable");
}

// --- those who ask -----------------------------------------------------------------------------------------------

std::string MdWorld::any_server() { return hosts_[random_.below(hosts_.size())]->id.name; }

void MdWorld::send(const std::string& to, std::any request, Duration timeout, Network::Reply done) {
  network_.call(requesters_.front()->process, md_address({to}), std::move(request), timeout, std::move(done));
}

base::Result<std::any> MdWorld::ask(const std::string& to, std::any request, Duration timeout) {
  std::optional<base::Result<std::any>> got;
  send(to, std::move(request), timeout, [&](Network::Answer answer) { got = std::move(answer); });
  wait([&] { return got.has_value(); }, timeout + 5s);
  if (!got) return base::fail(Code::cancelled, "never answered");
  return std::move(*got);
}

std::vector<model::Operation> MdWorld::draw_operations() {
  const auto& map = *chain_.back();
  const auto& p = map.partitions[random_.below(map.partitions.size())];
  const auto kind = random_.below(100);
  if (kind < static_cast<uint64_t>(100 * options_.splits)) {
    if (p.split) {
      if (random_.chance(0.15)) return {model::ops::AbortSplit{p.id, p.split->attempt}};
    } else if (p.merge) {
      if (random_.chance(0.15)) return {model::ops::AbortMerge{p.merge->attempt, p.merge->low, p.merge->high}};
    } else if (!p.interval.end.empty() && random_.chance(map.partitions.size() < kPartitionsEnough ? 0.3 : 0.8)) {
      return {model::draw_merge(p, *map.find(p.interval.end), random_)};
    } else if (p.moves.empty() && map.partitions.size() < kPartitionsEnough) {
      std::vector<model::ServerId> others;
      if (random_.chance(0.3))
        for (size_t i = 0; i < 3; ++i)
          others.push_back({"p" + std::to_string((random_.below(kPartds) + i * 7) % kPartds + 1)});
      std::set<model::ServerId> distinct(others.begin(), others.end());
      if (distinct.size() != others.size()) others.clear();
      return {model::draw_split(p, p.interval.begin + static_cast<char>('a' + random_.below(26)), others, {}, random_)};
    }
    if (!being_reshaped(p) && p.moves.empty() && random_.chance(0.5)) {
      const model::ServerId to{"p" + std::to_string(random_.below(kPartds) + 1)};
      if (model::find_assignment(p, to) == nullptr)
        return {model::draw_replace(p, p.assignments[random_.below(p.assignments.size())], to, random_.chance(0.5),
                                    random_)};
    }
  }
  return {model::ops::SetOption{"read_level", random_.chance(0.5) ? "one" : "majority"}};
}

void MdWorld::request_now(Requester& requester) {
  if (!asking_ || requester.busy) return;
  requester.busy = true;
  auto asked = std::make_shared<Asked>();
  asked->request.table = kTable;
  asked->request.change = model::ChangeId::draw(random_);
  asked->request.since = chain_.back()->txnseq;
  asked->request.ops = wire::encode_operations(draw_operations());
  if (random_.chance(options_.strict)) asked->request.base = chain_.back()->txnid;
  asked->request.deadline_ms = static_cast<uint32_t>(500 + random_.below(4000));
  asked->tries = static_cast<int>(random_.below(4));
  asked->done = [this, &requester](const Told&) {
    requester.busy = false;
    requester.process.after(
        Duration(static_cast<int64_t>(random_.below(static_cast<uint64_t>(options_.think_max.count())))),
        [this, &requester] {
          if (random_.chance(0.3)) look_up(requester, any_server());
          request_now(requester);
        });
  };
  ask_round(requester, std::move(asked));
}

// The rules of lib/client/md_changes.cc, in small: a definite no counts only when nobody may be at it any more.
void MdWorld::ask_round(Requester& requester, std::shared_ptr<Asked> asked) {
  const auto to = any_server();
  const auto timeout = std::chrono::milliseconds(asked->request.deadline_ms) + 4s;
  network_.call(requester.process, md_address({to}), asked->request, timeout,
                [this, &requester, asked, to](Network::Answer answer) {
                  if (answer) {
                    const auto& reply = std::any_cast<const model::MdChangeReply&>(*answer);
                    return tell(*asked, Told::What::made, "at txnseq " + to_string(reply.txnseq));
                  }
                  const auto& error = answer.error();
                  if (error.code == Code::outcome_unknown) asked->unsure.insert(to);
                  const bool elsewhere = error.code == Code::outcome_unknown || error.code == Code::unavailable ||
                                         error.code == Code::overloaded || error.code == Code::regressed;
                  if (elsewhere && asked->tries-- > 0) return ask_round(requester, asked);
                  if (error.code == Code::outcome_unknown) return tell(*asked, Told::What::unknown, error.text);
                  settle(requester, asked, error);
                });
}

void MdWorld::settle(Requester& requester, std::shared_ptr<Asked> asked, base::Error refusal) {
  if (asked->unsure.empty()) return tell(*asked, Told::What::refused, to_string(refusal));
  const auto who = *asked->unsure.begin();
  const model::MdOutcome question{kTable, asked->request.change, asked->request.since, true};
  network_.call(requester.process, md_address({who}), question, 3s,
                [this, &requester, asked, refusal, who](Network::Answer answer) {
                  if (!answer) return tell(*asked, Told::What::unknown, "nobody could tell");
                  const auto& reply = std::any_cast<const model::MdOutcomeReply&>(*answer);
                  if (reply.outcome == model::ChangeOutcome::committed)
                    return tell(*asked, Told::What::made, "said md.outcome");
                  if (reply.outcome != model::ChangeOutcome::absent)
                    return tell(*asked, Told::What::unknown, "still at it");
                  asked->unsure.erase(who);
                  settle(requester, asked, refusal);
                });
}

void MdWorld::tell(const Asked& asked, Told::What what, std::string text) {
  Told told{what, asked.request.change, std::move(text)};
  scheduler_.note("told", to_string(told.change), static_cast<int>(what), told.text);
  if (what == Told::What::made && !changes_.contains(told.change))
    violation("a change was said to be made and is not in the chain: " + told.text);
  told_.push_back(told);
  asked.done(told);
}

void MdWorld::change(std::vector<model::Operation> ops, int tries, std::function<void(const Told&)> done,
                     model::TxnId base) {
  auto asked = std::make_shared<Asked>();
  asked->request.table = kTable;
  asked->request.change = model::ChangeId::draw(random_);
  asked->request.base = base;
  asked->request.since = chain_.back()->txnseq;
  asked->request.ops = wire::encode_operations(ops);
  asked->request.deadline_ms = 5000;
  asked->tries = tries;
  asked->done = std::move(done);
  ask_round(*requesters_.front(), std::move(asked));
}

// S32: an answer that does not say that it is stale shows what was current no longer ago than its age. It was made when
// it was asked for, at the earliest.
void MdWorld::look_up(Requester& requester, const std::string& to) {
  model::MdGet request;
  request.table = kTable;
  const auto asked_at = scheduler_.now();
  network_.call(requester.process, md_address({to}), request, 3s, [this, asked_at](Network::Answer answer) {
    if (!answer) return;
    const auto& reply = std::any_cast<const model::MdGetReply&>(*answer);
    if (reply.stale) return violation("a stale answer to somebody who did not ask for one");
    const std::chrono::milliseconds age(reply.age_ms + 1);
    const auto since = asked_at - age - age / 500;  // its clock may be slow
    model::TxnSeq floor{0};
    for (size_t i = 0; i < chain_.size(); ++i)
      if (chain_at_[i] <= since) floor = chain_[i]->txnseq;
    if (reply.txnseq < floor)
      violation("an answer of age " + std::to_string(reply.age_ms) + " ms shows txnseq " + to_string(reply.txnseq) +
                " though " + to_string(floor) + " was current before (S32)");
    if (!reply.unchanged && !reply.nodes.empty() &&
        wire::hash_of_node(reply.nodes.front()) != *wire::node_hash(reply.hash))
      violation("a map whose root has another hash");
    for (const auto& file : chain_)
      if (file->txnseq == reply.txnseq && file->txnid != reply.txnid) violation("a map that is not in the chain");
  });
}

// --- partition servers that only watch --------------------------------------------------------------------------

// They observe the map that is committed, one after the other, and report what they were to fill.
void MdWorld::partd_turn() {
  partds_->after(kPartdTurn, [this] { partd_turn(); });
  if (!partds_on_ || chain_.empty()) return;
  const auto& map = *chain_.back();
  const auto who = model::ServerId{"p" + std::to_string(random_.below(kPartds) + 1)};
  partd_session_->create(layout_.observed(kDistribution, who), coord::observed_text({map.txnseq, {1}}),
                         coord::CreateMode::persistent, [this, who, seq = map.txnseq](base::Result<std::string> made) {
                           if (!made && made.error().code == Code::exists)
                             partd_session_->set(layout_.observed(kDistribution, who), coord::observed_text({seq, {1}}),
                                                 coord::kAnyVersion, [](auto) {});
                         });
  const auto mark = [&](const model::Assignment& a) {
    if (a.state != model::AssignmentState::initializing) return;
    auto& asked = marking_[a.id];
    if (asked != Instant{} && scheduler_.now() - asked < 2s) return;
    asked = scheduler_.now();
    model::MdChange request;
    request.table = kTable;
    request.change = model::ChangeId::draw(random_);
    request.gather = random_.chance(0.8);
    const std::vector<model::Operation> ops{model::ops::MarkAvailable{a.id, a.server}};
    request.ops = wire::encode_operations(ops);
    network_.call(*partds_, md_address({any_server()}), request, 12s, [](Network::Answer) {});
  };
  for (const auto& p : map.partitions) {
    if (map.replication == model::Replication::quorum) {
      lead(p);
      continue;
    }
    for (const auto& a : p.assignments) mark(a);
    if (!p.split) continue;
    for (const auto* child : {&p.split->low, &p.split->high})
      for (const auto& a : child->assignments) mark(a);
  }
}

// What its leader would do, having all the replicas level: the government is brought to what the map says.
void MdWorld::lead(const model::Partition& p) {
  const auto path = layout_.government(kDistribution, p.region);
  const auto* text = coord_.value(path);
  if (text == nullptr) return;
  auto government = coord::parse_government(*text);
  if (!government) return violation("region " + to_string(p.region) + " has no government");
  government->voters.clear();
  for (const auto* a : model::should_vote(p)) government->voters.push_back({a->slot, a->server, a->id});
  government->txnseq = p.min_txnseq;
  government->cut.reset();
  if (p.split && p.split->phase == model::SplitPhase::filling) {
    government->cut = model::CutReport{p.split->attempt, {government->epoch, {p.split->since.value}, 7}};
    for (const auto& v : government->voters) government->cut->holders.push_back(v.server);
  }
  if (p.merge) {
    government->cut = model::CutReport{p.merge->attempt, {government->epoch, {p.merge->since.value}, 7}, {}};
    for (const auto& a : p.assignments) government->cut->holders.push_back(a.server);
  }
  if (coord::government_text(*government) != *text) coord_.put(path, coord::government_text(*government));
}

// --- what goes wrong ---------------------------------------------------------------------------------------------

void MdWorld::run(Duration span) {
  if (!violation_.empty()) return;
  auto& net = network_.faults();
  auto& coord = coord_.faults();
  if (options_.faults) {
    const auto some = [&](double most) {
      return random_.chance(0.5) ? most * static_cast<double>(random_.below(1000)) / 1000 : 0;
    };
    net.lose = some(0.05);
    net.lose_answer = some(0.1);
    net.late = some(0.02);
    // No duplicates: a stream delivers a request once, and a requester that was told no sends no other.
    net.slow = some(0.05);
    coord.lose_request = some(0.05);
    coord.lose_reply = some(0.15);
    coord.late_change = some(0.1);
    coord.lose_read = some(0.05);
    coord.lose_watch = some(0.3);
    coord.delay_watch = some(0.3);
    coord.lag_spike = some(0.05);
  }
  disturbing_ = true;
  for (auto& r : requesters_) request_now(*r);
  disturb();
  scheduler_.run_for(span);
}

void MdWorld::disturb() {
  scheduler_.after(Duration(static_cast<int64_t>(random_.below(1500)) * 1'000'000), [this] {
    if (!disturbing_) return;
    disturb();
    auto& victim = *hosts_[random_.below(hosts_.size())];
    const auto what = random_.below(14);
    if (what < 3 && options_.crashes) {
      if (random_.chance(0.5))
        victim.process.arm_crash(1 + random_.below(10));
      else
        kill(victim);
    } else if (what < 6) {
      for (auto& h : hosts_)
        if (!h->process.alive() && random_.chance(0.7)) start(*h);
    } else if (what == 6 && options_.sessions) {
      coord_.expire(victim.id.name);
    } else if (what == 7 && options_.sessions) {
      coord_.outage(std::chrono::milliseconds(random_.below(4000)));
    } else if (what == 8 && options_.sessions) {
      coord_.cut(victim.id.name);
    } else if (what == 9 && options_.faults) {
      const auto& other = hosts_[random_.below(hosts_.size())]->id.name;
      if (random_.chance(0.5))
        network_.cut(victim.id.name, other);
      else
        network_.cut_both(victim.id.name, other);
    } else if (what == 10) {
      network_.heal();
      coord_.heal();
    } else if (what == 11 && options_.crashes && victim.process.alive()) {
      victim.process.pause(std::chrono::milliseconds(random_.below(3000)));
    } else if (options_.membership) {
      const auto to = any_server();
      if (random_.chance(0.5))
        send(to, model::MdJoin{kTable}, 12s, [](Network::Answer) {});
      else
        send(to, model::MdLeave{kTable, victim.id}, 12s, [](Network::Answer) {});
    }
  });
}

void MdWorld::stop_faults() {
  disturbing_ = false;
  network_.faults() = {};
  const auto timeout = coord_.faults().session_timeout;
  coord_.faults() = {};
  coord_.faults().session_timeout = timeout;
  network_.heal();
  coord_.heal();
  for (auto& h : hosts_) {
    h->process.arm_crash(0);
    start(*h);
  }
}

void MdWorld::calm() {
  asking_ = false;
  stop_faults();
  scheduler_.run_for(15s);  // every change that is under way has its answer
}

void MdWorld::finish() {
  if (!violation_.empty()) return;
  calm();
  check_told();
  check_rest();
}

void MdWorld::check_told() {
  for (const auto& told : told_)
    if (told.what == Told::What::refused && changes_.contains(told.change))
      violation("a change was refused and is in the chain: " + told.text);
}

// Held by somebody, whether it is driven or not.
std::vector<std::string> MdWorld::tasks() const { return children_of(coord_.tree(), layout_.tasks()); }

void MdWorld::check_rest() {
  if (!violation_.empty()) return;
  const auto rests = [this] {
    const auto& map = *chain_.back();
    for (const auto& p : map.partitions) {
      if (being_reshaped(p) || !p.moves.empty()) return false;
      for (const auto& a : p.assignments)
        if (a.state != model::AssignmentState::available) return false;
    }
    if (!map.ended.empty() || !tasks().empty()) return false;
    for (const auto& server : config_.metadata_servers) {
      auto& h = host(server.name);
      auto* agent = h.node ? h.node->service()->table(kTable) : nullptr;
      if (agent == nullptr || agent->current() == nullptr || agent->current()->map->txnid != map.txnid) return false;
    }
    return true;
  };
  if (!wait(rests, 90s)) {
    std::string why;
    const auto& map = *chain_.back();
    for (const auto& p : map.partitions) {
      if (p.split)
        why += " split of " + to_string(p.region) +
               (p.split->phase == model::SplitPhase::barrier ? " in barrier" : " filling");
      if (p.merge) why += " merge of " + to_string(p.region);
      if (!p.moves.empty()) why += " move in " + to_string(p.region);
      for (const auto& a : p.assignments)
        if (a.state != model::AssignmentState::available)
          why += " " + a.server.name + " of " + to_string(p.region) + " not available";
    }
    if (!map.ended.empty()) why += " " + std::to_string(map.ended.size()) + " ended";
    for (const auto& task : tasks()) why += " " + task + " is held";
    for (const auto& server : config_.metadata_servers) {
      auto* agent = host(server.name).node ? host(server.name).node->service()->table(kTable) : nullptr;
      if (agent == nullptr || agent->current() == nullptr) why += " " + server.name + " is behind";
    }
    if (violation_.empty()) violation("it does not come to rest:" + why);
    return;
  }
  check_nodes();
  if (!violation_.empty()) return;
  // And it still takes changes.
  std::optional<Told> told;
  change({model::ops::SetOption{"write_level", "all"}}, 5, [&](const Told& t) { told = t; });
  wait([&] { return told.has_value(); }, 30s);
  if (!told || told->what != Told::What::made) violation("no change could be made once the faults had stopped");
}

void MdWorld::check_nodes() {
  const auto& map = *chain_.back();
  // What did not fit into the multi follows.
  wait([this] { return !config_.regions_behind; }, 30s);
  for (const auto& [region, node] : meta::region_nodes(map)) {
    const auto* value = coord_.value(layout_.region(kDistribution, region));
    if (value == nullptr || *value != region_text(node))
      return violation("region node " + to_string(region) + " does not agree with the map");
    const auto* text = coord_.value(layout_.government(kDistribution, region));
    const auto first = meta::first_government(map, region, "");
    if ((text != nullptr) != first.has_value() ||
        (coord_.value(layout_.quorums(kDistribution, region)) != nullptr) != first.has_value())
      return violation("region " + to_string(region) + " has nodes of a quorum table, or lacks them");
    if (!first) continue;
    auto is = coord::parse_government(*text);
    if (!is || is->writer.empty()) return violation("region " + to_string(region) + " has no government");
    if (is->voters != first->voters)
      return violation("the voters of region " + to_string(region) + " are not the map's");
  }
}

Verdict MdWorld::verdict() { return {scheduler_.trace_hash(), scheduler_.events(), violation_}; }

}  // namespace cantle::sim
