// Fibers: one flow of control for every CUDA thread, switched by hand. A
// dozen instructions and no system call, where ucontext makes two and an OS
// thread costs microseconds.
#pragma once
#include <stddef.h>

namespace lfsim {

// Context is a suspended flow of control: a pointer to its registers, which
// are on its stack.
struct Context {
  void* sp = nullptr;
};

// Stack is the memory of a fiber, with a page below it that faults.
class Stack {
 public:
  static constexpr size_t size = 64 * 1024;

  Stack() = default;
  Stack(const Stack&) = delete;
  Stack& operator=(const Stack&) = delete;
  Stack(Stack&& other) noexcept : base_(other.base_) { other.base_ = nullptr; }
  ~Stack() { release(); }

  void reserve();  // once; later calls do nothing
  void release();
  char* top() const { return base_ + size; }
  bool overflown_at(const void* address) const;

 private:
  char* base_ = nullptr;
};

// prepare makes context begin with entry(), on stack. Tops of stacks differ by
// color times 64 bytes: at equal offsets they would fight for the same lines
// of the cache.
void prepare(Context& context, Stack& stack, unsigned color, void (*entry)());

// switch_to saves the caller in from and resumes to.
extern "C" void lfsim_switch(void** from, void* to);
inline void switch_to(Context& from, Context& to) { lfsim_switch(&from.sp, to.sp); }

}  // namespace lfsim
