// The memory of the simulator: operator new and delete for one thread that makes and drops small objects all the time.
//
// A block has a head that says which list it goes back to. Lists never shrink: a run takes what the run before gave
// back. A build with sanitizers keeps the allocator that they check.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

namespace {

constexpr size_t kHead = 16, kStep = 16, kSmallMax = 1024, kLargeMax = size_t{1} << 20, kChunk = size_t{1} << 20;
constexpr size_t kSmallLists = kSmallMax / kStep + 1;
constexpr size_t kLists = kSmallLists + 10;  // 2, 4, 8 … 1024 KiB
constexpr uint64_t kNoList = UINT64_MAX;

struct Block {
  uint64_t list;
  Block* next;  // while it is free
};
static_assert(sizeof(Block) <= kHead);

struct Lists {
  Block* free[kLists] = {};
  char* at = nullptr;
  size_t left = 0;
};
thread_local Lists lists;

size_t list_of(size_t size, size_t* room) {
  if (size <= kSmallMax) {
    const size_t i = (size + kStep - 1) / kStep;
    *room = i * kStep;
    return i;
  }
  size_t i = kSmallLists;
  for (*room = 2 * kSmallMax; *room < size; *room *= 2) ++i;
  return i;
}

void* take(size_t size) {
  if (size > kLargeMax) {
    auto* block = static_cast<Block*>(std::malloc(size + kHead));
    if (!block) throw std::bad_alloc();
    block->list = kNoList;
    return reinterpret_cast<char*>(block) + kHead;
  }
  size_t room = 0;
  const size_t list = list_of(size, &room);
  auto& mine = lists;
  Block* block = mine.free[list];
  if (block) {
    mine.free[list] = block->next;
  } else if (room > kChunk / 8) {
    block = static_cast<Block*>(std::malloc(room + kHead));
    if (!block) throw std::bad_alloc();
    block->list = list;
  } else {
    if (mine.left < room + kHead) {
      mine.at = static_cast<char*>(std::malloc(kChunk));
      if (!mine.at) throw std::bad_alloc();
      mine.left = kChunk;
    }
    block = reinterpret_cast<Block*>(mine.at);
    mine.at += room + kHead;
    mine.left -= room + kHead;
    block->list = list;
  }
  return reinterpret_cast<char*>(block) + kHead;
}

void give_back(void* p) {
  if (!p) return;
  auto* block = reinterpret_cast<Block*>(static_cast<char*>(p) - kHead);
  if (block->list == kNoList) return std::free(block);
  block->next = lists.free[block->list];
  lists.free[block->list] = block;
}

}  // namespace

void* operator new(size_t size) { return take(size); }
void* operator new[](size_t size) { return take(size); }
void operator delete(void* p) noexcept { give_back(p); }
void operator delete[](void* p) noexcept { give_back(p); }
void operator delete(void* p, size_t) noexcept { give_back(p); }
void operator delete[](void* p, size_t) noexcept { give_back(p); }

#endif
