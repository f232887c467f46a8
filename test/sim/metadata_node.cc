#include "test/sim/metadata_node.h"

#include "lib/base/bytes.h"
#include "lib/base/check.h"

namespace cantle::sim {

MdHost::MdHost(Scheduler& scheduler, const std::string& name) : id{name}, process(scheduler, name, "mdserver") {
  process.kill();
}
MdHost::~MdHost() = default;

bool MdHost::durable(const model::TableUuid& table, model::TxnSeq txnseq, const model::TxnId& txnid) const {
  std::string key = "f";
  key += table.view();
  base::put_u64_be(key, txnseq.value);
  key += txnid.view();
  const auto& entries = disk.dbs[static_cast<size_t>(store::Db::meta)];
  const auto it = entries.find(key);
  if (it == entries.end()) return false;
  const std::optional<std::string>* newest = nullptr;
  for (const auto& version : it->second)
    if (version.commit <= disk.committed) newest = &version.value;
  return newest != nullptr && newest->has_value();
}

MdNode::MdNode(MdCluster& cluster, MdHost& host)
    : cluster_(cluster), host_(host), timers_(host.process), executor_(host.process, cluster.times) {
  index_ = std::move(*store::MemIndexFactory(host.disk).open());
  auto files = meta::FileStore::open(*index_, executor_);
  CHECK(files.has_value());
  files_ = std::move(*files);
  session_ = cluster.coord.open(host.process);
  nodes_ = std::make_unique<meta::NodeWatch>(*session_, cluster.layout, timers_);
  registration_ = std::make_unique<coord::Registration>(*session_, timers_, host.process.random(), incarnation());
  service_ = std::make_unique<meta::Service>(*this);
  session_->on_event([this](coord::Event event) {
    registration_->on_event(event);
    if (event == coord::Event::expired) nodes_->session_lost();
    service_->on_event(event);
  });
  coord::Active active;
  active.role = coord::Role::mdserver;
  active.tcp = md_address(host.id);
  active.incarnation = incarnation();
  registration_->keep(cluster.layout.active(host.id), active_text(active));
  registration_->start();
  nodes_->start();
  service_->start();
  cluster.network.listen(host.process, [this](const std::string&, const std::any& request, Network::Reply reply) {
    serve(request, std::move(reply));
  });
}

MdNode::~MdNode() {
  service_.reset();
  registration_.reset();
  nodes_.reset();
}

namespace {

template <class Reply>
std::function<void(base::Result<Reply>)> answer_with(Network::Reply reply) {
  return [reply = std::move(reply)](base::Result<Reply> result) {
    if (result)
      reply(std::any(std::move(*result)));
    else
      reply(base::fail(std::move(result).error()));
  };
}

}  // namespace

void MdNode::serve(const std::any& request, Network::Reply reply) {
  using namespace model;
  if (const auto* r = std::any_cast<MdStore>(&request))
    return service_->store(*r, answer_with<MdStoreReply>(std::move(reply)));
  if (const auto* r = std::any_cast<MdFetch>(&request))
    return answer_with<MdFetchReply>(std::move(reply))(service_->fetch(*r));
  if (const auto* r = std::any_cast<MdAbort>(&request)) return service_->abort(*r);
  if (const auto* r = std::any_cast<MdChange>(&request))
    return service_->change(*r, answer_with<MdChangeReply>(std::move(reply)));
  if (const auto* r = std::any_cast<MdOutcome>(&request))
    return service_->outcome(*r, answer_with<MdOutcomeReply>(std::move(reply)));
  if (const auto* r = std::any_cast<MdGet>(&request))
    return service_->get(*r, answer_with<MdGetReply>(std::move(reply)));
  if (const auto* r = std::any_cast<MdDiscover>(&request))
    return service_->discover(*r, answer_with<MdDiscoverReply>(std::move(reply)));
  if (const auto* r = std::any_cast<MdJoin>(&request))
    return service_->join(*r, answer_with<MdMembersReply>(std::move(reply)));
  if (const auto* r = std::any_cast<MdLeave>(&request))
    return service_->leave(*r, answer_with<MdMembersReply>(std::move(reply)));
  CHECK(!"a request that nobody sends");
}

namespace {

template <class Reply>
Network::Reply got(std::function<void(base::Result<Reply>)> done) {
  return [done = std::move(done)](Network::Answer answer) {
    if (!answer) return done(base::fail(std::move(answer).error()));
    done(std::any_cast<Reply>(std::move(*answer)));
  };
}

}  // namespace

void MdNode::store(const model::ServerId& to, const model::MdStore& request, Duration timeout,
                   Done<model::MdStoreReply> done) {
  if (!host_.process.effect()) return;
  cluster_.network.call(host_.process, md_address(to), request, timeout, got<model::MdStoreReply>(std::move(done)));
}

void MdNode::fetch(const model::ServerId& to, const model::MdFetch& request, Duration timeout,
                   Done<model::MdFetchReply> done) {
  if (!host_.process.effect()) return;
  cluster_.network.call(host_.process, md_address(to), request, timeout, got<model::MdFetchReply>(std::move(done)));
}

void MdNode::abort(const model::ServerId& to, const model::MdAbort& request) {
  if (host_.process.effect()) cluster_.network.notify(host_.process, md_address(to), request);
}

void MdNode::tell_changed(const model::ServerId&, const model::MapChanged&) { (void)host_.process.effect(); }

}  // namespace cantle::sim
