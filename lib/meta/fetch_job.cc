#include "lib/meta/fetch_job.h"

namespace cantle::meta {

FetchJob::FetchJob(Host& host, std::string table, model::TableUuid uuid, wire::NodeHash root,
                   std::vector<model::ServerId> from, const wire::MetadataFile* base, Done done)
    : host_(host),
      table_(std::move(table)),
      uuid_(uuid),
      root_(root),
      from_(std::move(from)),
      last_(base::Code::unavailable, "there is nobody to ask"),
      done_(std::move(done)) {
  if (base != nullptr && base->map) base_ = *base;
}

FetchJob::~FetchJob() { *alive_ = false; }

const std::string* FetchJob::lookup(const wire::NodeHash& hash) {
  if (const auto it = fetched_.find(hash); it != fetched_.end()) return it->second.get();
  auto& slot = here_[hash];
  if (!slot && host_.files().has_node(hash)) slot = host_.files().node(hash);
  return slot.get();
}

void FetchJob::step() {
  auto missing = wire::missing_nodes(root_, [this](const wire::NodeHash& h) { return lookup(h); });
  if (!missing) return end(base::fail(std::move(missing).error()));
  if (missing->empty()) return decode();
  if (missing->size() > model::kMdFetchNodes) missing->resize(model::kMdFetchNodes);
  ask(std::move(*missing));
}

void FetchJob::ask(std::vector<wire::NodeHash> missing) {
  if (at_ >= from_.size()) return end(base::fail(last_));
  model::MdFetch request{table_, uuid_, {}};
  for (const auto& h : missing) request.hashes.emplace_back(wire::view(h));
  host_.fetch(from_[at_], request, kFetchTimeout,
              [this, alive = std::weak_ptr<bool>(alive_), missing](base::Result<model::MdFetchReply> reply) {
                if (alive.lock()) answered(missing, std::move(reply));
              });
}

void FetchJob::answered(const std::vector<wire::NodeHash>& asked, base::Result<model::MdFetchReply> reply) {
  size_t got = 0;
  if (reply) {
    for (size_t i = 0; i < asked.size() && i < reply->nodes.size(); i++) {
      auto& bytes = reply->nodes[i];
      if (bytes.empty() || wire::hash_of_node(bytes) != asked[i]) continue;
      fetched_[asked[i]] = std::make_shared<const std::string>(std::move(bytes));
      got++;
    }
    if (got == 0) last_ = base::Error(base::Code::unavailable, from_[at_].name + " has not what is missing");
  } else {
    last_ = std::move(reply).error().wrap(from_[at_].name);
  }
  if (got == 0) at_++;
  step();
}

void FetchJob::decode() {
  auto file = wire::decode_metadata(
      root_, [this](const wire::NodeHash& h) { return lookup(h); }, base_ ? &*base_ : nullptr);
  if (!file) return end(base::fail(std::move(file).error()));
  FetchedFile out{std::move(*file), {}};
  for (auto& [hash, bytes] : fetched_) out.nodes.push_back({hash, bytes});
  end(std::move(out));
}

void FetchJob::end(base::Result<FetchedFile> result) {
  // The owner destroys the job in here.
  auto done = std::move(done_);
  done(std::move(result));
}

}  // namespace cantle::meta
