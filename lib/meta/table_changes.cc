// The changes a table's agent proposes: performs what proto::MetadataCommit decides.
#include <algorithm>
#include <charconv>

#include "lib/base/log.h"
#include "lib/meta/config_ops.h"
#include "lib/meta/table_agent.h"
#include "lib/model/validate.h"

namespace cantle::meta {

using namespace proto::commit;

namespace {

constexpr base::Duration kLoadWithin = std::chrono::seconds(3);
constexpr int kSwapTries = 4;  // with what is known of the region nodes corrected in between

base::Duration change_time(const model::MdChange& request) {
  if (request.deadline_ms == 0) return proto::kMdChangeDeadline;
  return std::min<base::Duration>(std::chrono::milliseconds(request.deadline_ms), proto::kMdChangeDeadlineMax);
}

// Whether the operation puts replicas somewhere, so that racks matter.
bool places(const model::Operation& op) {
  return std::holds_alternative<model::ops::CreateTable>(op) ||
         std::holds_alternative<model::ops::SplitPartition>(op) || std::holds_alternative<model::ops::Replace>(op);
}

model::Racks racks_of(const NodesView& nodes) {
  model::Racks racks;
  for (const auto& [server, info] : nodes.infos)
    if (info.role == coord::Role::partd && !info.dead) racks[server] = info.rack;
  return racks;
}

}  // namespace

void TableAgent::change(const model::MdChange& request, Done<model::MdChangeReply> done) {
  auto operations = wire::decode_operations(request.ops);
  if (!operations) return done(base::fail(std::move(operations).error()));
  if (request.change.none()) return done(base::fail(base::Code::invalid, "md.change needs a change id"));
  // They go into TableConfig as they are.
  for (const auto& server : request.metadata_servers)
    if (auto valid = model::validate_server_id(server.name); !valid) return done(base::fail(std::move(valid).error()));
  for (const auto& waiting : changes_)
    if (waiting->request.change == request.change) return waiting->done.push_back(std::move(done));
  if (given_up_.contains(request.change))
    return done(base::fail(base::Code::conflict, "this change was given up by its requester"));
  if (changes_.size() >= kChangesWaiting)
    return done(base::fail(base::Code::overloaded, "too many changes wait for this table"));
  if (request.gather && operations->size() == 1)
    if (const auto* op = std::get_if<model::ops::MarkAvailable>(&operations->front()))
      return gather(request, *op, std::move(done));
  auto change = std::make_shared<Change>();
  change->request = request;
  change->operations = std::move(*operations);
  change->encoded = wire::encode_operations(change->operations);
  change->deadline = now() + change_time(request);
  change->done.push_back(std::move(done));
  enqueue(std::move(change));
}

void TableAgent::give_up(const model::ChangeId& change) {
  if (!given_up_.insert(change).second) return;
  given_up_order_.push_back(change);
  if (given_up_order_.size() <= kGivenUpMax) return;
  given_up_.erase(given_up_order_.front());
  given_up_order_.pop_front();
}

void TableAgent::enqueue(ChangePtr change) {
  changes_.push_back(std::move(change));
  if (changes_.size() == 1) start_next();
}

void TableAgent::start_next() {
  if (changes_.empty()) return;
  const auto& change = changes_.front();
  proto::commit::Request request;
  request.change = change->request.change;
  request.base = change->request.base;
  request.since = change->request.since;
  request.creates = std::holds_alternative<model::ops::CreateTable>(change->operations.front());
  request.metadata_servers = change->request.metadata_servers;
  if (request.creates && request.metadata_servers.empty()) {
    const auto& live = host_.nodes().mdservers;
    request.metadata_servers.assign(live.begin(), live.end());
    if (!live.contains(host_.self())) request.metadata_servers.push_back(host_.self());
  }
  request.deadline = change->deadline;
  change->machine = std::make_unique<proto::MetadataCommit>(std::move(request), host_.random());
  feed(change, Proposed{now()});
}

void TableAgent::feed(const ChangePtr& change, Input input) {
  act([this, change, input = std::move(input)] {
    if (!change->machine) {
      // Its time passed while it waited for its turn.
      change->machine = std::make_unique<proto::MetadataCommit>(proto::commit::Request{.change = change->request.change,
                                                                                       .base = {},
                                                                                       .since = {},
                                                                                       .creates = false,
                                                                                       .metadata_servers = {},
                                                                                       .deadline = change->deadline},
                                                                host_.random());
    }
    for (const auto& e : change->machine->step(input)) std::visit([&](const auto& x) { perform(change, x); }, e);
  });
}

void TableAgent::perform(const ChangePtr& change, const Read& e) {
  // The swap is conditional on the version, so a change may begin on what was read a moment ago.
  const auto* machine = live_ != nullptr ? &live_->machine() : nullptr;
  if (!e.fresh && machine != nullptr && machine->config() && !machine->regressed() && machine->confirmed() &&
      now() - *machine->confirmed() < kCachedConfigFor && host_.session().connected())
    return feed(change, ConfigRead{now(), proto::ConfigAnswer(*machine->config())});
  reader_.read([this, change](const proto::ConfigAnswer& answer) {
    if (answer && *answer && live_ != nullptr && live_->machine().regressed())
      return feed(change, ConfigRead{now(), base::fail(base::Code::regressed, live_->machine().alarm())});
    feed(change, ConfigRead{now(), answer});
  });
}

void TableAgent::perform(const ChangePtr& change, const Load& e) {
  if (live_ == nullptr) return feed(change, Loaded{now(), base::fail(base::Code::unavailable, "TableConfig is gone")});
  live_->load(e.txnid, kLoadWithin, [this, alive = weak(), change](base::Result<wire::MetadataFile> file) {
    if (!alive.lock()) return;
    if (!file) return feed(change, Loaded{now(), base::fail(std::move(file).error())});
    feed(change, Loaded{now(), file->map});
  });
}

base::Result<BuiltFile> TableAgent::build(const Change& change, const model::TxnId& txnid, const proto::MapPtr& base) {
  const wire::MetadataFile* base_file = nullptr;
  model::TableUuid uuid;
  if (base != nullptr) {
    uuid = base->table;
    const auto it = replicas_.find(uuid);
    base_file = it != replicas_.end() ? it->second->last() : nullptr;
    if (base_file == nullptr || base_file->map->txnid != base->txnid)
      return base::fail(base::Code::unavailable, "another file is current by now");
  } else if (const auto* create = std::get_if<model::ops::CreateTable>(&change.operations.front())) {
    if (create->name != name_)
      return base::fail(base::Code::invalid, "CREATE_TABLE names another table than the request");
    uuid = create->table;
  }
  const model::ApplyContext context{txnid, change.request.change,
                                    base_file != nullptr ? base_file->hash() : std::string()};
  TRY_ASSIGN(auto map, model::apply(base.get(), change.operations, context));
  if (std::any_of(change.operations.begin(), change.operations.end(), places))
    TRY(model::validate_racks(base.get(), map, racks_of(host_.nodes())));
  auto encoded = wire::encode_next(base_file, std::make_shared<const model::Metadata>(std::move(map)));
  BuiltFile built{encoded.file.map, encoded.file.hash()};
  replica(uuid).offer(encoded);
  return built;
}

void TableAgent::perform(const ChangePtr& change, const Build& e) {
  auto built = build(*change, e.txnid, e.base);
  if (built || built.error().detail != model::kRacksRule) return feed(change, Built{now(), std::move(built)});
  // What is known of racks may be as old as kNodesPoll: nobody is refused by a rack that was changed since.
  host_.refresh_nodes([this, alive = weak(), change, e](bool) {
    if (alive.lock()) feed(change, Built{now(), build(*change, e.txnid, e.base)});
  });
}

void TableAgent::store_at(const model::ServerId& at, const model::MdStore& request,
                          std::function<void(base::Status)> done) {
  if (at == host_.self()) return replica(request.table_uuid).store(request, std::move(done));
  host_.store(at, request, kStoreTimeout, [done = std::move(done)](base::Result<model::MdStoreReply> reply) {
    done(reply ? base::ok() : base::Status(base::fail(std::move(reply).error())));
  });
}

void TableAgent::perform(const ChangePtr& change, const Store& e) {
  const auto* built = change->machine->built();
  if (built == nullptr) return;
  const auto& base = change->machine->base();
  model::MdStore request;
  request.table = name_;
  request.table_uuid = built->map->table;
  request.base = base != nullptr ? base->txnid : model::TxnId{};
  request.base_txnseq = base != nullptr ? base->txnseq : model::TxnSeq{};
  request.change = change->request.change;
  request.ops = change->encoded;
  request.txnid = e.txnid;
  request.hash = built->hash;
  request.proposer = host_.self();
  request.incarnation = host_.incarnation();
  store_at(e.at, request, [this, alive = weak(), change, at = e.at, txnid = e.txnid](base::Status status) {
    if (alive.lock()) feed(change, Stored{now(), at, txnid, std::move(status)});
  });
}

std::string TableAgent::writer_token() {
  return host_.self().name + "/" + to_string(host_.incarnation()) + "-" + std::to_string(++writes_);
}

void TableAgent::perform(const ChangePtr& change, const Swap& e) {
  auto to = e.to;
  to.writer = writer_token();
  if (e.version != proto::kCreateVersion) return swap_multi(change, std::move(to), e.version, kSwapTries);
  make_skeleton(0, [this, change, to](base::Status status) {
    if (!status) return feed(change, Swapped{now(), proto::SwapResult::unsent});
    swap_multi(change, to, proto::kCreateVersion, kSwapTries);
  });
}

// The directories of a table, which may be there from an earlier try; TableConfig comes last.
void TableAgent::make_skeleton(size_t next, std::function<void(base::Status)> done) {
  const auto dirs = host_.layout().table_skeleton(distribution_);
  const bool replication = next == dirs.size();
  if (next > dirs.size()) return done(base::ok());
  auto path = replication ? host_.layout().replication(distribution_) : dirs[next];
  auto then = [this, alive = weak(), next, done = std::move(done)](base::Result<std::string> made) {
    if (!alive.lock()) return;
    if (!made && made.error().code != base::Code::exists) return done(base::fail(std::move(made).error()));
    make_skeleton(next + 1, done);
  };
  std::string value;
  if (replication && !changes_.empty())
    if (const auto* op = std::get_if<model::ops::CreateTable>(&changes_.front()->operations.front()))
      value = std::to_string(op->replicas) + "\n";
  host_.session().create(std::move(path), std::move(value), coord::CreateMode::persistent, std::move(then));
}

void TableAgent::swap_multi(const ChangePtr& change, model::TableConfig to, int32_t version, int tries) {
  const auto* built = change->machine->built();
  if (built == nullptr) return;
  const auto& base = change->machine->base();
  auto swap = swap_ops(host_.layout(), distribution_, to, version, base.get(), *built->map, change->regions_present);
  to.regions_behind = swap.regions_behind;
  const auto checks_from = swap.ops.size();
  if (base != nullptr)
    for (auto& check : government_checks(host_.layout(), distribution_, *base, change->operations))
      swap.ops.push_back(std::move(check));
  host_.session().multi(std::move(swap.ops), [this, alive = weak(), asked = now(), change, to, version, tries,
                                              checks_from](base::Result<std::vector<coord::OpResult>> done) {
    if (!alive.lock()) return;
    if (done) {
      swapped(to, version == proto::kCreateVersion ? 0 : done->front().stat.version, asked);
      return feed(change, Swapped{now(), proto::SwapResult::done});
    }
    const auto& error = done.error();
    // Not TableConfig, but a region node that is there, or is not, against expectation: nothing happened.
    const bool region = (error.code == base::Code::exists || error.code == base::Code::not_found) &&
                        error.detail != "0" && !error.detail.empty();
    size_t failed = 0;
    std::from_chars(error.detail.data(), error.detail.data() + error.detail.size(), failed);
    if (failed >= checks_from && (error.code == base::Code::conflict || error.code == base::Code::not_found))
      return feed(change, Swapped{now(), proto::SwapResult::refused});
    if (region && tries > 0) return regions_refused(change, to, version, tries - 1);
    feed(change, Swapped{now(), proto::swap_result(error)});
  });
}

void TableAgent::regions_refused(const ChangePtr& change, model::TableConfig to, int32_t version, int tries) {
  host_.session().children(
      host_.layout().regions(distribution_), nullptr,
      [this, alive = weak(), change, to = std::move(to), version, tries](base::Result<coord::Children> there) {
        if (!alive.lock()) return;
        if (!there) return feed(change, Swapped{now(), proto::SwapResult::unsent});
        const auto* built = change->machine->built();
        if (built == nullptr) return;
        for (const auto& [region, node] : changed_region_nodes(change->machine->base().get(), *built->map))
          change->regions_present[region] =
              std::binary_search(there->names.begin(), there->names.end(), to_string(region));
        swap_multi(change, to, version, tries);
      });
}

// An own write need not be read again.
void TableAgent::swapped(const model::TableConfig& to, int32_t version, base::Instant asked) {
  on_config(proto::ConfigAnswer(proto::VersionedConfig{to, version}), asked);
}

void TableAgent::perform(const ChangePtr& change, const Fence& e) {
  auto config = e.config;
  config.writer = writer_token();
  host_.session().set(host_.layout().config(distribution_), to_text(config), e.version,
                      [this, alive = weak(), change](base::Result<coord::Stat> done) {
                        if (alive.lock()) feed(change, Fenced{now(), proto::swap_result(done)});
                      });
}

void TableAgent::perform(const ChangePtr& change, const Discard& e) {
  model::TableUuid uuid;
  for (const auto& [id, r] : replicas_)
    if (r->machine().has(e.txnid)) uuid = id;
  if (uuid.none() && live_ != nullptr) uuid = live_->uuid();
  if (uuid.none())
    if (const auto* op = std::get_if<model::ops::CreateTable>(&change->operations.front())) uuid = op->table;
  const model::MdAbort request{name_, uuid, e.txnid};
  for (const auto& server : e.at) {
    if (server == host_.self())
      abort(request);
    else
      host_.abort(server, request);
  }
}

void TableAgent::perform(const ChangePtr&, const Alarm& e) {
  base::log(base::Level::error, "metadata-alarm", {{"table", name_}, {"text", e.text}});
}

void TableAgent::perform(const ChangePtr& change, const Reply& e) {
  if (e.outcome && !e.outcome->txnid.none()) {
    const auto* built = change->machine->built();
    const model::MapChanged message{name_, e.outcome->txnseq};
    if (built != nullptr)
      for (const auto& server : model::servers_of_change(change->machine->base().get(), *built->map))
        host_.tell_changed(server, message);
  }
  const bool front = !changes_.empty() && changes_.front() == change;
  std::erase(changes_, change);
  base::Result<model::MdChangeReply> reply = base::fail(base::Code::faulted, "");
  if (e.outcome)
    reply = model::MdChangeReply{live_ != nullptr ? live_->uuid() : model::TableUuid{}, e.outcome->txnid,
                                 e.outcome->txnseq, e.outcome->already};
  else
    reply = base::fail(e.outcome.error());
  const auto done = std::move(change->done);
  change->done.clear();
  for (const auto& fn : done) fn(reply);
  if (front) act([this] { start_next(); });
}

void TableAgent::outcome(const model::MdOutcome& request, Done<model::MdOutcomeReply> done) {
  for (const auto& change : changes_)
    if (change->request.change == request.change)
      return done(model::MdOutcomeReply{model::ChangeOutcome::working, live_ != nullptr && live_->last() != nullptr
                                                                           ? live_->last()->map->txnseq
                                                                           : model::TxnSeq{}});
  if (request.give_up) give_up(request.change);
  reader_.read([this, request, done = std::move(done)](const proto::ConfigAnswer& answer) {
    if (!answer) return done(base::fail(answer.error()));
    if (!*answer) return done(base::fail(base::Code::no_such_table, "there is no table " + name_));
    live_->load((*answer)->config.metadata_txnid, kLoadWithin, [request, done](base::Result<wire::MetadataFile> file) {
      if (!file) return done(base::fail(std::move(file).error()));
      const auto& map = *file->map;
      model::MdOutcomeReply reply{model::ChangeOutcome::absent, map.txnseq};
      if (std::find(map.changes.begin(), map.changes.end(), request.change) != map.changes.end())
        reply.outcome = model::ChangeOutcome::committed;
      else if (request.since.value != 0 && map.txnseq.value > request.since.value + model::kChangeIdsMax)
        reply.outcome = model::ChangeOutcome::forgotten;
      done(reply);
    });
  });
}

// --- MARK_AVAILABLEs ---------------------------------------------------------------------------------

void TableAgent::gather(const model::MdChange& request, const model::ops::MarkAvailable& op,
                        Done<model::MdChangeReply> done) {
  if (gathered_.empty()) gather_until_ = now() + kGatherFor;
  gathered_.push_back({op, now() + change_time(request), std::move(done)});
  if (gathered_.size() >= kGatherMax) flush_gathered();
}

// One transaction for all. Those that the current map refuses would take the others down with them: they are answered
// now.
void TableAgent::flush_gathered() {
  auto list = std::move(gathered_);
  gathered_.clear();
  auto change = std::make_shared<Change>();
  change->request.table = name_;
  change->request.change = model::ChangeId::draw(host_.random());
  const auto* file = current();
  auto map = file != nullptr ? file->map : nullptr;
  for (auto& g : list) {
    const std::vector<model::Operation> one{g.op};
    if (map != nullptr) {
      auto next = model::apply(
          map.get(), one, {model::TxnId::draw(host_.random()), model::ChangeId::draw(host_.random()), file->hash()});
      if (!next) {
        g.done(base::fail(std::move(next).error()));
        continue;
      }
    }
    change->operations.emplace_back(g.op);
    change->deadline = std::max(change->deadline, g.deadline);
    change->done.push_back(std::move(g.done));
  }
  if (change->operations.empty()) return;
  if (changes_.size() >= kChangesWaiting) {
    for (const auto& fn : change->done) fn(base::fail(base::Code::overloaded, "too many changes wait for this table"));
    return;
  }
  change->encoded = wire::encode_operations(change->operations);
  enqueue(std::move(change));
}

}  // namespace cantle::meta
