// Copies of tensors between two pages that cannot be touched.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>

namespace emulator {

// Which end of the tensor lies at a forbidden page. The other has a margin that is compared.
enum class Flush { Back, Front };

class Guarded {
  public:
    static constexpr unsigned char MARGIN = 0xC9;

    // Null memory where the system gives none.
    Guarded(size_t bytes, Flush flush) : bytes_(bytes) {
        size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
        size_ = (bytes / page + 1) * page;
        void* map = mmap(nullptr, size_ + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (map == MAP_FAILED) return;
        map_ = static_cast<unsigned char*>(map);
        page_ = page;
        first_ = map_ + page;
        protect(PROT_READ | PROT_WRITE);
        std::memset(first_, MARGIN, size_);
        // Nothing may be touched of an empty tensor, so it always stands at the back.
        data_ = flush == Flush::Back || bytes == 0 ? first_ + size_ - bytes : first_;
    }
    Guarded(const Guarded&) = delete;
    Guarded(Guarded&& other) noexcept
        : map_(other.map_), first_(other.first_), data_(other.data_), bytes_(other.bytes_),
          size_(other.size_), page_(other.page_) {
        other.map_ = nullptr;
    }
    ~Guarded() {
        if (map_ != nullptr) munmap(map_, size_ + 2 * page_);
    }

    unsigned char* data() const { return data_; }
    size_t bytes() const { return bytes_; }
    void make_read_only() { protect(PROT_READ); }

    // Whether nothing was written beside the tensor, as far as it can be.
    bool margins_are_whole() const {
        for (unsigned char* at = first_; at < first_ + size_; ++at) {
            if (at == data_) at += bytes_;
            if (at < first_ + size_ && *at != MARGIN) return false;
        }
        return true;
    }

    // Whether the address is of this tensor or of its guards.
    bool owns(const void* address) const {
        auto at = static_cast<const unsigned char*>(address);
        return map_ != nullptr && at >= map_ && at < map_ + size_ + 2 * page_;
    }

  private:
    void protect(int how) { mprotect(first_, size_, how); }

    unsigned char* map_ = nullptr;
    unsigned char* first_ = nullptr;
    unsigned char* data_ = nullptr;
    size_t bytes_ = 0, size_ = 0, page_ = 0;
};

}  // namespace emulator
