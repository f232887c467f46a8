#include "cmd/replpush/links.h"

#include <utility>

#include "lib/coord/layout.h"
#include "lib/io/address.h"

namespace cantle::replpush {

using base::Code;

namespace {
constexpr base::Duration kLookEvery = std::chrono::seconds(1);
constexpr size_t kOutputMax = size_t{96} << 20;  // over what the mover has under way at all

void answer_later(io::Loop& loop, rpc::Peer::Done done, Code code, std::string text) {
  loop.defer([done = std::move(done), code, text = std::move(text)] { done(base::fail(code, text)); });
}
}  // namespace

// --- The own partd -----------------------------------------------------------------------------------

PartdLink::PartdLink(io::Loop& loop, Config config, std::function<void()> notified)
    : loop_(loop), config_(std::move(config)), notified_(std::move(notified)) {
  if (!config_.address.empty()) connect(config_.address);
}
PartdLink::~PartdLink() { *here_ = false; }

void PartdLink::connect(const std::string& text) {
  auto address = io::parse_address(text);
  if (!address) {
    trouble_ = "the partition server's address '" + text + "': " + address.error().text;
    return;
  }
  address_ = text;
  if (peer_) return peer_->move_to(*address);
  rpc::PeerOptions options;
  options.identity = config_.identity;
  options.backoff_max = std::chrono::milliseconds(500);
  peer_ = std::make_unique<rpc::Peer>(loop_, *address, options);
  peer_->on_notify([this](std::string_view, std::string_view) { notified_(); });
}

void PartdLink::call(std::string_view method, std::string params, base::Duration timeout, rpc::Peer::Done done) {
  // A partd that started again may listen elsewhere.
  if (config_.address.empty() && (!peer_ || !peer_->connected())) look_up();
  if (!peer_) return answer_later(loop_, std::move(done), Code::unavailable, trouble_);
  peer_->call(method, params, timeout, std::move(done));
}

void PartdLink::look_up() {
  const auto now = loop_.now();
  if (looking_ || now - looked_at_ < kLookEvery) return;
  looked_at_ = now;
  if (config_.coord.empty()) {
    trouble_ = "neither --partd nor --coord says where the partition server is";
    return;
  }
  if (!session_) {
    auto session = coord::open(loop_, {.url = config_.coord, .must_exist = true});
    if (!session) {
      trouble_ = session.error().text;
      return;
    }
    session_ = std::move(*session);
  }
  looking_ = true;
  session_->get(coord::Layout(config_.cluster).active(config_.id), nullptr,
                [this, here = here_](base::Result<coord::Node> node) {
                  if (*here) looked_up(std::move(node));
                });
}

void PartdLink::looked_up(base::Result<coord::Node> node) {
  looking_ = false;
  if (!node) {
    trouble_ = node.error().code == Code::not_found ? "the partition server " + config_.id.name + " is not registered"
                                                    : "looking for the partition server: " + node.error().text;
    return;
  }
  auto active = coord::parse_active(node->value);
  if (!active) {
    trouble_ = "what is registered for " + config_.id.name + ": " + active.error().text;
    return;
  }
  const std::string& text = active->unix_socket.empty() ? active->tcp : active->unix_socket;
  if (text != address_)
    connect(text);
  else if (peer_)
    peer_->connect();
  // Not inside its own callback: pushing does without the coordination service until the next time.
  loop_.defer([this, here = here_] {
    if (*here && !looking_) session_.reset();
  });
}

// --- Targets -----------------------------------------------------------------------------------------

void TargetLinks::set(const std::vector<model::PeerView>& peers, const model::ClusterUuid& cluster) {
  identity_.cluster = cluster;
  std::map<model::ServerId, Link> next;
  for (const auto& p : peers) {
    Link link;
    if (auto it = links_.find(p.server); it != links_.end()) link = std::move(it->second);
    if (link.peer && link.address != p.tcp) {
      if (auto address = io::parse_address(p.tcp)) link.peer->move_to(*address);
    }
    if (link.peer && p.live && !link.live) link.peer->connect();
    link.address = p.tcp;
    link.live = p.live;
    next[p.server] = std::move(link);
  }
  links_ = std::move(next);
}

void TargetLinks::call(const model::ServerId& to, std::string_view method, std::string_view params,
                       base::Duration timeout, rpc::Peer::Done done, rpc::Peer::Tail tail) {
  auto it = links_.find(to);
  if (it == links_.end() || it->second.address.empty())
    return answer_later(loop_, std::move(done), Code::unavailable, "the address of " + to.name + " is not known");
  Link& link = it->second;
  if (!link.peer) {
    auto address = io::parse_address(link.address);
    if (!address) return answer_later(loop_, std::move(done), Code::unavailable, address.error().text);
    rpc::PeerOptions options;
    options.identity = identity_;
    options.output_max = kOutputMax;
    link.peer = std::make_unique<rpc::Peer>(loop_, *address, options);
  }
  link.peer->call(method, params, std::move(tail), timeout, std::move(done));
}

void TargetLinks::retry(const model::ServerId& to) {
  auto it = links_.find(to);
  if (it != links_.end() && it->second.peer) it->second.peer->connect();
}

}  // namespace cantle::replpush
