#include "lib/proto/quorum_windows.h"

#include <utility>

namespace cantle::proto::quorum {

model::SeriesWindow* Windows::find(uint64_t client) {
  const auto it = kept_.find(client);
  if (it == kept_.end()) return nullptr;
  it->second.used = true;
  return &it->second.window;
}

model::SeriesWindow* Windows::keep(uint64_t client, model::SeriesWindow window) {
  make_room();
  const auto [it, fresh] = kept_.try_emplace(client);
  if (fresh) round_.push_back(client);
  it->second = {std::move(window), true};
  return &it->second.window;
}

void Windows::add(uint64_t client, const model::SeriesEntry& entry) {
  if (const auto it = kept_.find(client); it != kept_.end()) it->second.window.add(entry);
}

void Windows::forget(uint64_t client) {
  if (kept_.erase(client) != 0) std::erase(round_, client);
}

void Windows::clear() {
  kept_.clear();
  round_.clear();
}

void Windows::make_room() {
  while (kept_.size() >= kWindowsMax) {
    const uint64_t client = round_.front();
    round_.pop_front();
    auto& kept = kept_.at(client);
    if (std::exchange(kept.used, false))
      round_.push_back(client);
    else
      kept_.erase(client);
  }
}

}  // namespace cantle::proto::quorum
