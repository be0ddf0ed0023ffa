// Annotations for ThreadSanitizer when it checks kernels (LFSIM_TSAN): the
// running fiber, and the order that each barrier establishes. The engine itself
// is compiled without the sanitizer, so that only kernels and these calls count.
#pragma once

#ifdef LFSIM_TSAN
extern "C" {
void* __tsan_get_current_fiber();
void* __tsan_create_fiber(unsigned);
void __tsan_destroy_fiber(void*);
void __tsan_switch_to_fiber(void*, unsigned);
void __tsan_acquire(void*);
void __tsan_release(void*);
void __tsan_read_range(void*, unsigned long);
void __tsan_write_range(void*, unsigned long);
}
namespace lfsim::race {
constexpr bool on = true;
struct Fiber {
  void* handle = nullptr;
  void create() { handle = __tsan_create_fiber(0); }
  void destroy() {
    if (handle) __tsan_destroy_fiber(handle);
    handle = nullptr;
  }
  void adopt() { handle = __tsan_get_current_fiber(); }
  void enter() { __tsan_switch_to_fiber(handle, 1); }  // 1: a switch alone orders nothing
  void enter_after() { __tsan_switch_to_fiber(handle, 0); }  // 0: sees what was done before it
};
// Aside is for engine work on a fiber's stack that allocates or maps. It makes
// the sanitizer attribute the work to the block, not the fiber.
class Aside {
 public:
  Aside(Fiber& block, Fiber& fiber) : fiber_(fiber) { block.enter(); }
  ~Aside() { fiber_.enter_after(); }

 private:
  Fiber& fiber_;
};
inline void acquire(void* tag) { __tsan_acquire(tag); }
inline void release(void* tag) { __tsan_release(tag); }
inline void read(const void* p, unsigned long n) { __tsan_read_range(const_cast<void*>(p), n); }
inline void write(void* p, unsigned long n) { __tsan_write_range(p, n); }
}  // namespace lfsim::race
#else
namespace lfsim::race {
constexpr bool on = false;
struct Fiber {
  void create() {}
  void destroy() {}
  void adopt() {}
  void enter() {}
  void enter_after() {}
};
struct Aside {
  Aside(Fiber&, Fiber&) {}
  ~Aside() {}
};
inline void acquire(void*) {}
inline void release(void*) {}
inline void read(const void*, unsigned long) {}
inline void write(void*, unsigned long) {}
}  // namespace lfsim::race
#endif
